"""The API servers of hub and target are restarted in the middle of the work (C71)."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from e2e.support.manifests import deployment, pod_spec, run_once
from e2e.support.pods import is_ready, labels_of, phase_of, uid_of
from e2e.support.process import FederateProcess
from e2e.support.spare import Pair, lent, spare_pair
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = [
    pytest.mark.e2e,
    # The witness's own client leaves a watch behind whose server was killed.
    pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PODS_EACH_TIME = 6
REPLICAS = 4

Restart = Callable[[LocalCluster], None]


@pytest.fixture
def pair(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[Pair]:
    with lent(spare_pair(testbed_factory), worlds) as found:
        yield found


@contextmanager
def watched_aside(pair: Pair, worlds: Worlds, *, node: str) -> Iterator[World]:
    """Run federate, and see its target through an API server that nobody restarts.

    The watch of a recorder does not outlive its server: a new one knows no versions from before.
    """
    with (
        pair.target.second_apiserver(storage_port=pair.target.storage_port) as aside,
        worlds.world(node=node, hub=pair.hub, target=aside, started=False) as plain,
    ):
        options = replace(plain.federate.options, target=pair.target.kubeconfig)
        federate = FederateProcess(options, folder=plain.federate.log.parent.parent)
        world = replace(plain, federate=federate)
        try:
            world.start_federate()
            yield world
        finally:
            federate.close()
            worlds.forget(aside)


def kill(cluster: LocalCluster) -> None:
    cluster.kill_apiserver()
    cluster.start_apiserver()


def restart_in_order(cluster: LocalCluster) -> None:
    cluster.restart_apiserver()


class Churn:
    """Pods that come, end and go, whatever their servers do; each time some more."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._numbers = count()
        self._uids: set[str] = set()
        self._deployments: list[str] = []

    def go_on(self) -> None:
        """Create pods that end, delete those of the last time, and replace the Deployment."""
        space = self._space
        old = [pod["metadata"]["name"] for pod in space.pods() if phase_of(pod) == "Succeeded"]
        number = next(self._numbers)
        for index in range(PODS_EACH_TIME):
            created = space.create(run_once(f"once-{number}-{index}", space.node))
            self._uids.add(uid_of(created))
        for name in self._deployments[-1:]:
            space.hub.delete("Deployment", space.namespace, name)
        self._deployments.append(f"web-{number}")
        body = deployment(self._deployments[-1], pod_spec(space.node), replicas=REPLICAS)
        space.create(body)
        for name in old:
            space.hub.delete("Pod", space.namespace, name)

    def wait_settled(self) -> None:
        """Wait until every pod ended or is ready, those deleted are gone, and so are mirrors."""
        self._space.wait("all is settled", self._is_settled, timeout_seconds=100.0)

    def _is_settled(self) -> bool:
        pods, mirrors = self._space.pods(), self._space.mirrors()
        web = [pod for pod in pods if labels_of(pod).get("app") == self._deployments[-1]]
        once = [pod for pod in pods if "app" not in labels_of(pod)]
        return (
            len(pods) == len(web) + len(once) == len(mirrors)
            and len(web) == REPLICAS
            and all(map(is_ready, web))
            and all(phase_of(pod) == "Succeeded" for pod in once)
        )

    def assert_each_ran(self) -> None:
        """Make sure that every pod of the kind that ends had a mirror, one and no more."""
        record = self._space.world.target_record
        mirrored = record.mirror_uids(self._space.target_namespace)
        assert self._uids <= set(mirrored)
        self._space.assert_one_mirror_each()


def restart_both(pair: Pair, restart: Restart) -> None:
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(restart, (pair.hub, pair.target)))


def test_pods_run_once_although_both_api_servers_are_killed(pair: Pair, worlds: Worlds) -> None:
    """Pods created, ended and deleted around the death of both API servers converge, run once."""
    with watched_aside(pair, worlds, node="steady") as world:
        space = Space(world, "killed")
        space.open()
        churn = Churn(space)
        churn.go_on()
        restart_both(pair, kill)
        churn.go_on()
        churn.wait_settled()
        churn.assert_each_ran()
        space.close()


@pytest.mark.long
@pytest.mark.parametrize(("restart", "times"), [(kill, 3), (restart_in_order, 1)])
def test_pods_run_once_although_api_servers_are_restarted_over_and_over(
    pair: Pair, worlds: Worlds, restart: Restart, times: int
) -> None:
    """However often the API servers of either side go and come, in order or killed.

    An orderly end is slow to be noticed by the hub's own controllers: a minute, each time.
    """
    with watched_aside(pair, worlds, node="steady") as world:
        space = Space(world, "restarted")
        space.open()
        churn = Churn(space)
        for cluster in (pair.hub, pair.target) * times:
            churn.go_on()
            restart(cluster)
            churn.go_on()
            churn.wait_settled()
        churn.assert_each_ran()
        space.close()

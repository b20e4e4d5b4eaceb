"""A cluster's storage is restored from an older snapshot, and both sides agree again (C51, C20)."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from e2e.support.manifests import COMPLETES, deployment, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import (
    condition_of,
    hub_pod_uid_of,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    phase_of,
    uid_of,
)
from e2e.support.recorder import WatchRecorder
from e2e.support.spare import Pair, lent, numbered, run_never_again, spare_pair
from e2e.support.witness import Json
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

FOUND_SECONDS = 10.0
"""The stores are read anew every 5 s, and what differs is looked at again a second later."""

FORGOTTEN_VERSIONS = 300
"""So many writes that a restored server knows nothing of: no watch from then on says a word."""


@pytest.fixture(params=["etcd", pytest.param("kine", marks=pytest.mark.long)])
def pair(
    request: pytest.FixtureRequest, testbed_factory: TestbedFactory, worlds: Worlds
) -> Iterator[Pair]:
    with lent(spare_pair(testbed_factory, request.param), worlds) as found:
        yield found


def write_much(cluster: LocalCluster) -> None:
    """Bring the cluster's versions forward."""
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(FORGOTTEN_VERSIONS):
        cluster.api.post(path, {"metadata": {"name": f"forgotten-{number}"}})


def complete(space: Space, name: str) -> None:
    """Let a running pod end by itself."""
    body = {"metadata": {"annotations": {COMPLETES: "true"}}}
    space.hub.patch("Pod", space.namespace, name, body)
    space.wait_phase(name, "Succeeded")


def delete_all(space: Space, names: list[str]) -> None:
    """Delete hub pods and wait until they are gone."""
    for name in names:
        space.delete_pod(name)
    for name in names:
        space.wait_pod_gone(name)


def web_pods(space: Space) -> list[Json]:
    """List the Deployment's pods that are neither over nor ending."""
    return [
        pod
        for pod in space.pods()
        if labels_of(pod).get("app") == "web"
        and phase_of(pod) != "Failed"
        and not is_terminating(pod)
    ]


def wait_web(space: Space, replicas: int) -> list[Json]:
    """Wait until the Deployment has so many ready pods, each with its mirror."""

    def probe() -> list[Json] | None:
        pods, mirrored = web_pods(space), set(map(hub_pod_uid_of, space.mirrors()))
        whole = all(is_ready(pod) and uid_of(pod) in mirrored for pod in pods)
        return pods if len(pods) == replicas and whole else None

    return space.wait(f"{replicas} pods of the Deployment", probe, timeout_seconds=60.0)


def are_lost(space: Space, names: list[str]) -> bool:
    """Tell whether the hub pods failed because their mirrors are gone."""
    found = {name_of(pod): pod for pod in space.pods() if phase_of(pod) == "Failed"}
    return all(
        name in found and found[name]["status"].get("reason") == "MirrorLost" for name in names
    )


def no_mirrors_of(space: Space, uids: set[str]) -> bool:
    return not uids & set(map(hub_pod_uid_of, space.mirrors()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """Waits that count from the moment at which a restored server answered again."""

    space: Space
    served_at: float
    measured: Measurements

    def wait(self, what: str, probe: Callable[[], object], *, promise: float) -> None:
        self.space.wait(what, probe, timeout_seconds=100.0)
        self.measured.seconds(f"until {what}", time.monotonic() - self.served_at, promise=promise)

    def wait_heard(self, cluster: str) -> None:
        """Wait until the watch of the pods was given up and begun anew.

        A hub that is away for longer than a lease lasts costs the leadership: then all begins anew.
        """
        federate = self.space.world.federate
        series = f'federate_watch_gaps_total{{cluster="{cluster}",resource="pods"}}'
        self.wait(
            "the watch is begun anew",
            lambda: (
                series in federate.fetch("/metrics")
                or "leadership lost" in federate.log_tail(lines=10_000)
            ),
            promise=FOUND_SECONDS,
        )


def test_a_hub_restored_from_a_backup_and_its_mirrors_agree_again(
    pair: Pair, worlds: Worlds, measured: Measurements
) -> None:
    """Mirrors of pods the hub forgot go; pods that are back without their mirror fail, unrun."""
    late, back = numbered("late", 3), numbered("back", 3)
    with worlds.world(node="rewound", hub=pair.hub, target=pair.target) as world:
        space = Space(world, "hub-restored")
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=4))
        kept, *_ = run_never_again(space, "kept", "ends", "again", *back)
        web = wait_web(space, 4)

        snapshot = pair.hub.snapshot()

        complete(space, "ends")
        delete_all(space, ["again", *back, name_of(web[0])])
        space.scale("web", 6)
        forgotten = {uid_of(pod) for pod in wait_web(space, 6)} - set(map(uid_of, web))
        forgotten |= set(map(uid_of, run_never_again(space, "again", *late)))
        write_much(pair.hub)

        served_at = pair.hub.restore(snapshot)

        since = Since(space=space, served_at=served_at, measured=measured)
        since.wait(
            "orphans are gone", lambda: no_mirrors_of(space, forgotten), promise=FOUND_SECONDS
        )
        since.wait(
            "lost pods fail", lambda: are_lost(space, ["again", *back]), promise=FOUND_SECONDS
        )
        since.wait_heard("hub")
        wait_web(space, 4)
        space.wait_phase("ends", "Succeeded")
        assert uid_of(space.wait_phase("kept", "Running")) == uid_of(kept)
        measured.note("until all agrees", f"{time.monotonic() - served_at:.2f} s")
        started = time.monotonic()
        run_never_again(space, "new")
        measured.seconds("a new pod runs", time.monotonic() - started, promise=1.0)
        space.assert_one_mirror_each()
        space.close()


def test_a_target_restored_from_a_backup_and_its_hub_agree_again(
    pair: Pair, worlds: Worlds, measured: Measurements
) -> None:
    """Mirrors that are back go again, pods whose mirrors are forgotten fail, ended ones stay so."""
    late, back = numbered("late", 3), numbered("back", 3)
    with worlds.world(node="shaken", hub=pair.hub, target=pair.target) as world:
        space, young = Space(world, "target-restored"), Space(world, "target-young")
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=3))
        kept, *_ = run_never_again(space, "kept", "ends", "again", *back)
        web = wait_web(space, 3)

        snapshot = pair.target.snapshot()

        complete(space, "ends")
        delete_all(space, ["again", *back, name_of(web[0])])
        gone = mirrors_ever(world, space) - set(map(hub_pod_uid_of, space.mirrors()))
        run_never_again(space, "again", *late)
        space.scale("web", 5)
        wait_web(space, 5)
        young.open()
        run_never_again(young, "young")
        write_much(pair.target)

        world.target_record.close()
        served_at = pair.target.restore(snapshot)

        with closing(WatchRecorder(pair.target.name, pair.target.kubeconfig)) as record:
            after = replace(world, target_record=record)
            since = Since(space=space, served_at=served_at, measured=measured)
            since.wait(
                "mirrors of pods that are gone go again",
                lambda: no_mirrors_of(space, gone),
                promise=FOUND_SECONDS,
            )
            since.wait(
                "lost pods fail", lambda: are_lost(space, ["again", *late]), promise=FOUND_SECONDS
            )
            since.wait_heard(world.node)
            wait_web(space, 5)
            assert uid_of(space.wait_phase("kept", "Running")) == uid_of(kept)
            measured.note("until all agrees", f"{time.monotonic() - served_at:.2f} s")
            started = time.monotonic()
            run_never_again(space, "new")
            measured.seconds("a new pod runs", time.monotonic() - started, promise=1.0)
            space.wait(
                "the mirror of the ended pod is stopped", lambda: not is_running(space, "ends")
            )
            assert_stayed_ended(world, space, "ends")
            assert_ran_once(space, world, after)
            assert_uninstalled_until_confirmed(young, pair.hub)
        space.close()
        young.close()


def mirrors_ever(world: World, space: Space) -> set[str]:
    """Return the uids of the hub pods that ever had a mirror."""
    return set(world.target_record.mirror_uids(space.target_namespace))


def is_running(space: Space, name: str) -> bool:
    mirror = space.mirror(name)
    return mirror is not None and phase_of(mirror) == "Running" and not is_terminating(mirror)


def assert_stayed_ended(world: World, space: Space, name: str) -> None:
    """Make sure that a hub pod never left its terminal phase."""
    (history,) = (
        events
        for events in world.hub_record.histories(space.namespace).values()
        if events[0].name == name
    )
    told = [event.phase for event in history]
    assert set(told[told.index("Succeeded") :]) == {"Succeeded"}, told


def assert_ran_once(space: Space, *worlds: World) -> None:
    """Make sure that no hub pod ever had two mirrors, before and after the restore together."""
    found: dict[str, set[str]] = {}
    for world in worlds:
        for hub_pod, mirrors in world.target_record.mirror_uids(space.target_namespace).items():
            found.setdefault(hub_pod, set()).update(mirrors)
    again = {hub_pod: mirrors for hub_pod, mirrors in found.items() if len(mirrors) > 1}
    assert not again, f"{again}\n{space.explain()}"


def assert_uninstalled_until_confirmed(space: Space, hub: LocalCluster) -> None:
    """Make sure that a namespace the target forgot counts as uninstalled until somebody says so."""
    found = space.pod("young")
    assert found is not None and phase_of(found) == "Running", space.explain()
    space.wait(
        "the node tells",
        lambda: condition_of(space.world.read_node(), "Ready").get("reason") == "Uninstalled",
    )
    confirmed = f"federate.dev/reinstall={space.target_namespace}"
    hub.kubectl("annotate", "node", space.node, confirmed)
    space.wait("the pod fails then", lambda: are_lost(space, ["young"]))

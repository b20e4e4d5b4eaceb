"""One of the hub's two API servers lags seconds behind, and one dies: nothing runs twice (C71)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from e2e.support.manifests import deployment, pod_spec, run_once
from e2e.support.measuring import Measurements
from e2e.support.pods import is_ready, name_of
from e2e.support.proxied import proxied
from e2e.support.spare import (
    Pair,
    assert_no_living_pod_lost_its_mirror,
    lent,
    numbered,
    phases,
    spare_pair,
)
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.lagging import LaggingStorage
from e2e.testbed.local import SecondApiServer

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

LAG_SECONDS = 3.0

UP_SECONDS = 10.0
"""The hub pods' watch may be on the lagging server: so much later all begins."""
DOWN_SECONDS = 5.0

COMPARED_SECONDS = 400.0
"""Both sides are compared as often as takes a twentieth of the time: after a comparison of ten
seconds, on a machine that others use, the next comes in three minutes."""

LISTS = "GET /api/v1/pods"

RUN_ONCE_PODS = 20
REPLICAS = 5


@pytest.fixture
def pair(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[Pair]:
    with lent(spare_pair(testbed_factory), worlds) as found:
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class Lagging:
    """A world whose federate speaks to two API servers of the hub in turn."""

    world: World
    storage: LaggingStorage
    second: SecondApiServer
    proxy: FaultProxy


@contextmanager
def lagging(pair: Pair, worlds: Worlds, *, node: str) -> Iterator[Lagging]:
    with (
        LaggingStorage(pair.hub.storage_port) as storage,
        pair.hub.second_apiserver(storage_port=storage.port) as second,
        FaultProxy.before(pair.hub, upstreams=[pair.hub.api_url, second.api_url]) as proxy,
        proxied(worlds, node=node, hub=pair.hub, target=pair.target, hub_proxy=proxy) as world,
    ):
        storage.lag_seconds = LAG_SECONDS
        yield Lagging(world=world, storage=storage, second=second, proxy=proxy)


def compare_with_old_news(lagging: Lagging, space: Space) -> None:
    """Let federate hear of new pods, and then find that lists do not have them, more than once."""
    proxy, second = lagging.proxy, lagging.second
    watches, count = "GET .*watch=true.*", RUN_ONCE_PODS + 2 * REPLICAS
    listing = f"/api/v1/namespaces/{space.namespace}/pods"
    with proxy.send_to(1, "GET .*"), proxy.send_to(0, watches):
        proxy.reset(watches).lift()
        read_before = len(proxy.passed(f"GET {listing}/web-.*"))
        lagging.storage.lag_seconds = 3600.0
        space.scale("web", 2 * REPLICAS)
        space.wait("twice as many", lambda: len(space.mirrors()) == count)
        assert len(second.api.get(f"{listing}?resourceVersion=0")["items"]) < count
        wait_for_more(proxy, f"GET {listing}/web-.*", more_than=read_before)
        listed = len(proxy.passed(LISTS))
        wait_for_more(proxy, LISTS, more_than=listed)
    lagging.storage.lag_seconds = LAG_SECONDS


def wait_for_more(proxy: FaultProxy, requests: str, *, more_than: int) -> None:
    wait_for(
        f"{requests} is asked again",
        lambda: len(proxy.passed(requests)) > more_than,
        timeout_seconds=COMPARED_SECONDS,
    )


def run_all(space: Space) -> None:
    """Create pods that end and a Deployment, and wait until all of them have run or are ready."""
    names = numbered("once", RUN_ONCE_PODS)
    for name in names:
        space.create(run_once(name, space.node))
    space.create(deployment("web", pod_spec(space.node), replicas=REPLICAS))

    def is_done() -> bool:
        web = [pod for pod in space.pods() if name_of(pod) not in names]
        ended = phases(space, *names) == ["Succeeded"] * RUN_ONCE_PODS
        return ended and len(web) == REPLICAS and all(map(is_ready, web))

    space.wait("all have run", is_done, timeout_seconds=100.0)


def delete_all(space: Space) -> None:
    for kind in ("Deployment", "Pod"):
        space.hub.delete_all(kind, space.namespace)
    space.wait_nothing_left(timeout_seconds=100.0)


def test_pods_come_and_go_once_while_an_api_server_lags(
    pair: Pair, worlds: Worlds, measured: Measurements
) -> None:
    """Every pod has one mirror, which lives as long as it, while a server tells old news."""
    with lagging(pair, worlds, node="patient") as found:
        space = Space(found.world, "lagging")
        space.open()
        started = time.monotonic()
        run_all(space)
        measured.seconds("until all have run", time.monotonic() - started, promise=UP_SECONDS)
        compare_with_old_news(found, space)
        found.second.stop()
        started = time.monotonic()
        delete_all(space)
        measured.seconds("until nothing is left", time.monotonic() - started, promise=DOWN_SECONDS)
        space.assert_one_mirror_each()
        assert_no_living_pod_lost_its_mirror(space)
        space.close()


def wait_renewed(lagging: Lagging, *, times: int) -> None:
    """Wait until the leader lease was renewed so many times more."""
    node = lagging.world.node
    renewals = f"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/federate-{node}"
    wait_for_more(
        lagging.proxy, renewals, more_than=len(lagging.proxy.passed(renewals)) + times - 1
    )


@pytest.mark.long
def test_pods_come_and_go_once_while_only_a_lagging_api_server_answers(
    pair: Pair, worlds: Worlds, measured: Measurements
) -> None:
    """federate leads on, and takes old news for old, when the server that is up to date hangs."""
    with lagging(pair, worlds, node="patient") as found:
        space = Space(found.world, "left-alone")
        space.open()
        run_all(space)
        for _ in range(2):
            space.scale("web", 3 * REPLICAS)
            space.wait("more", lambda: len(space.pods()) == RUN_ONCE_PODS + 3 * REPLICAS)
            # What balances takes a server that hangs out of turn.
            with found.proxy.send_to(1):
                pair.hub.pause_apiserver()
                try:
                    wait_renewed(found, times=3)
                finally:
                    pair.hub.resume_apiserver()
            space.scale("web", REPLICAS)
            space.wait("fewer", lambda: len(space.mirrors()) == RUN_ONCE_PODS + REPLICAS)
        started = time.monotonic()
        delete_all(space)
        measured.seconds("until nothing is left", time.monotonic() - started, promise=DOWN_SECONDS)
        space.assert_one_mirror_each()
        assert_no_living_pod_lost_its_mirror(space)
        space.close()

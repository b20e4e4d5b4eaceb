"""The network between federate and a cluster fails in every way it can, and heals (C12, C71).

Each way has a federate process of its own, and all of them fail at the same time: most of it is
waiting. While a way is cut, users go on on the hub, and so do others in the target.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pytest

from e2e.support.manifests import deployment, pod, pod_spec
from e2e.support.measuring import GENEROSITY, Measurements
from e2e.support.pods import is_ready, name_of, phase_of, uid_of
from e2e.support.proxied import proxied
from e2e.support.together import wait_each
from e2e.support.witness import Json
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

Side: TypeAlias = Literal["hub", "target", "both"]

KINDS: Mapping[str, Callable[[FaultProxy], object]] = {
    "dropped": lambda proxy: proxy.drop(),
    "reset": lambda proxy: proxy.reset(),
    "half-open": lambda proxy: proxy.half_open(),
    "slow": lambda proxy: proxy.delay(2.0),
    "buffered": lambda proxy: proxy.buffer_watch(),
    "throttled": lambda proxy: proxy.answer(429, retry_after=1),
    "broken": lambda proxy: proxy.answer(503, retry_after=1),
}

HEALED_SECONDS = 12.0
"""Two comparisons of both sides and a back-off."""
HEALED_AFTER_SILENCE_SECONDS = 45.0
"""A request that is never answered is given up after 30 s, and may be the pod's next step."""
SILENT = ("dropped", "half-open")

SHORT_SECONDS = 4.0
LONG_SECONDS = 25.0
"""Long enough for the leader lease to be lost, and for the target to be called unreachable."""

REPLICAS = 2


@dataclass(slots=True, kw_only=True)
class Story:
    """Pods of one federate process whose ways to the clusters are cut for a while."""

    kind: str
    side: Side
    space: Space
    proxies: Sequence[FaultProxy]
    ends_with_reset: bool
    """Whether a silence ends with a reset, as where a firewall comes back without its memory."""
    kept: dict[str, str] = field(default_factory=dict)
    """The uids of the hub pods that nobody touches, by name."""
    lost: Json = field(default_factory=dict)
    """The hub pod whose mirror somebody deletes in the target."""

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.side}"

    @property
    def promise_seconds(self) -> float:
        if self.kind in SILENT and not self.ends_with_reset:
            return HEALED_AFTER_SILENCE_SECONDS
        return HEALED_SECONDS

    def prepare(self) -> None:
        """Create what lives before the cut."""
        space = self.space
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=REPLICAS))
        for name in ("stays", "goes"):
            space.create(pod(name, pod_spec(space.node)))
        space.create(pod("ends", pod_spec(space.node, restartPolicy="Never")))

    def wait_prepared(self) -> None:
        found = self.space.wait_ready_pods(REPLICAS + 3)
        self.lost, *others = [each for each in found if name_of(each).startswith("web-")]
        others += [each for each in found if name_of(each) in ("stays", "ends")]
        self.kept = {name_of(each): uid_of(each) for each in others}

    def cut(self) -> None:
        for proxy in self.proxies:
            KINDS[self.kind](proxy)

    def go_on(self) -> None:
        """Do what users do, and others in the target, who know nothing of the cut."""
        space = self.space
        space.create(pod("comes", pod_spec(space.node)))
        space.delete_pod("goes")
        ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        succeeded = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
        space.target.patch("Pod", space.target_namespace, "ends", succeeded, subresource="status")
        assert space.target.delete("Pod", space.target_namespace, name_of(self.lost))

    def mend(self) -> None:
        for proxy in self.proxies:
            assert proxy.inflicted.total() > 0, f"{self.name} was not felt"
            proxy.lift_all()
            if self.ends_with_reset and self.kind in SILENT:
                proxy.reset().lift()

    def is_healed(self) -> bool:
        """Tell whether both sides are as they would be without the cut."""
        pods = {name_of(each): each for each in self.space.pods()}
        lost = pods.pop(name_of(self.lost), None)
        web = [each for name, each in pods.items() if name.startswith("web-")]
        singles = {name: phase_of(each) for name, each in pods.items() if each not in web}
        mirrors = {name_of(each): phase_of(each) for each in self.space.mirrors()}
        return (
            singles == {"comes": "Running", "stays": "Running", "ends": "Succeeded"}
            and len(web) == REPLICAS
            and (lost is None or phase_of(lost) == "Failed")
            and all(map(is_ready, [*web, pods["comes"], pods["stays"]]))
            and mirrors == {name: phase_of(each) for name, each in pods.items()}
        )

    def assert_unharmed(self) -> None:
        """Make sure that the cut cost nothing but time."""
        space = self.space
        pods = {name_of(each): uid_of(each) for each in space.pods()}
        assert self.kept.items() <= pods.items(), space.explain()
        failed = space.world.hub_record.find(
            lambda event: (
                event.phase == "Failed"
                and not event.is_terminating
                and event.uid != uid_of(self.lost)
            ),
            namespace=space.namespace,
        )
        assert failed is None, f"{failed}\n{space.explain()}"
        assert len(space.hub_pod_uids()) == REPLICAS + 5, "one pod was replaced, once"
        space.assert_one_mirror_each()


@contextmanager
def story(
    worlds: Worlds,
    hub: LocalCluster,
    target: LocalCluster,
    *,
    kind: str,
    side: Side,
    ends_with_reset: bool,
) -> Iterator[Story]:
    """Start a federate process behind proxies; it may not be ready yet."""
    with (
        FaultProxy.before(hub) as to_hub,
        FaultProxy.before(target) as to_target,
        proxied(
            worlds,
            node=f"cut-{kind}",
            hub=hub,
            target=target,
            hub_proxy=to_hub,
            target_proxy=to_target,
            started=False,
        ) as world,
    ):
        world.federate.start()
        proxies = {"hub": [to_hub], "target": [to_target], "both": [to_hub, to_target]}[side]
        yield Story(
            kind=kind,
            side=side,
            space=Space(world, f"cut-{kind}"),
            proxies=proxies,
            ends_with_reset=ends_with_reset,
        )


def tell(stories: Sequence[Story], *, seconds: float, measured: Measurements) -> None:
    """Cut all ways for so long, mend them, and hold everything against its promise."""
    for each in stories:
        each.space.world.federate.wait_ready()
        each.space.world.wait_node_ready()
        each.prepare()
    for each in stories:
        each.wait_prepared()
    mend_at = time.monotonic() + seconds
    for each in stories:
        each.cut()
        each.go_on()
    time.sleep(max(0.0, mend_at - time.monotonic()))
    for each in stories:
        each.mend()
    mended_at = time.monotonic()
    healed_at = wait_each(
        "all is as if nothing had been cut",
        {each.name: each.is_healed for each in stories},
        timeout_seconds=GENEROSITY * HEALED_SECONDS + HEALED_AFTER_SILENCE_SECONDS,
        explain=lambda names: "\n".join(s.space.explain() for s in stories if s.name in names),
    )
    for each in stories:
        took = healed_at[each.name] - mended_at
        measured.seconds(f"{each.name}: until healed", took, promise=each.promise_seconds)
    for each in stories:
        each.assert_unharmed()
        each.space.close()


def run(
    worlds: Worlds,
    hub: LocalCluster,
    target: LocalCluster,
    sides: Mapping[str, Side],
    *,
    seconds: float,
    ends_with_reset: bool,
    measured: Measurements,
) -> None:
    with ExitStack() as stack:
        stories = [
            stack.enter_context(
                story(worlds, hub, target, kind=kind, side=side, ends_with_reset=ends_with_reset)
            )
            for kind, side in sides.items()
        ]
        tell(stories, seconds=seconds, measured=measured)


def test_a_short_cut_costs_nothing_but_time(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, measured: Measurements
) -> None:
    """However the network or an API server fails for seconds, both sides agree again soon after."""
    sides: Mapping[str, Side] = {
        "dropped": "target",
        "reset": "both",
        "half-open": "hub",
        "slow": "both",
        "buffered": "both",
        "throttled": "target",
        "broken": "hub",
    }
    run(
        worlds,
        local_hub,
        local_target,
        sides,
        seconds=SHORT_SECONDS,
        ends_with_reset=True,
        measured=measured,
    )


@pytest.mark.long
@pytest.mark.parametrize("side", ["hub", "target", "both"])
def test_a_long_cut_costs_nothing_but_time(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    measured: Measurements,
    side: Side,
) -> None:
    """However long it fails, on whichever side, nothing is lost, doubled or failed."""
    sides = dict.fromkeys(KINDS, side)
    run(
        worlds,
        local_hub,
        local_target,
        sides,
        seconds=LONG_SECONDS,
        ends_with_reset=False,
        measured=measured,
    )

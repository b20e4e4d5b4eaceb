"""Two clusters whose API servers and storage a test may hurt.

They are shared by the session's tests, one after the other: who hurts them leaves them working.
Recorders do not outlive a test: a restored cluster gives out versions a second time, and no watch
can tell.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from e2e.testbed.fixtures import HUB, TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import Storage

from .manifests import pod, pod_spec
from .pods import name_of, phase_of
from .recorder import Change
from .witness import Json
from .world import Space
from .worlds import Worlds

AT_ONCE_SECONDS = 1.0
"""How far apart two recorders may note what happens at one instant, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two clusters."""

    hub: LocalCluster
    target: LocalCluster


def spare_pair(factory: TestbedFactory, storage: Storage = "etcd") -> Pair:
    """Return the session's pair with that storage, started at the first use."""
    suffix = "" if storage == "etcd" else f"-{storage}"
    hub, target = factory.clusters(
        replace(HUB, name=f"spare-hub{suffix}", storage=storage),
        replace(TARGET, name=f"spare-target{suffix}", storage=storage, nodes=1),
    )
    return Pair(hub=hub, target=target)


@contextmanager
def lent(pair: Pair, worlds: Worlds) -> Iterator[Pair]:
    """Lend a pair to a test, and stop looking at its clusters afterwards."""
    try:
        yield pair
    finally:
        worlds.forget(pair.hub)
        worlds.forget(pair.target)


def never_again(name: str, node: str) -> Json:
    """Render a bare pod that may not run twice, and runs on until it is told to end."""
    return pod(name, pod_spec(node, restartPolicy="Never"))


def run_never_again(space: Space, *names: str) -> list[Json]:
    """Create such pods and wait until all run; returns them in the order of the names."""
    for name in names:
        space.create(never_again(name, space.node))
    return [space.wait_phase(name, "Running") for name in names]


def phases(space: Space, *names: str) -> list[str]:
    """Return the hub pods' phases; "" for one that is not there."""
    found = {name_of(pod): phase_of(pod) for pod in space.pods()}
    return [found.get(name, "") for name in names]


def numbered(name: str, count: int) -> list[str]:
    """Return so many names."""
    return [f"{name}-{number}" for number in range(count)]


def assert_no_living_pod_lost_its_mirror(space: Space) -> None:
    """Make sure that no mirror was deleted before its hub pod was ending or gone."""
    hub_record, target_record = space.world.hub_record, space.world.target_record
    ended_at: dict[str, float] = {}
    for event in hub_record.events(namespace=space.namespace):
        if event.change is Change.DELETED or event.is_terminating:
            ended_at.setdefault(event.uid, event.at)
    for event in target_record.events(namespace=space.target_namespace):
        if event.change in (Change.DELETING, Change.DELETED):
            ended = ended_at.get(event.hub_pod_uid)
            assert ended is not None and ended <= event.at + AT_ONCE_SECONDS, (
                f"mirror {event.name} of a living hub pod was deleted\n{space.explain()}"
            )

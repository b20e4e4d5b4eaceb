"""A watch that silently loses an event: the comparison behind the events finds it (C51)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import GENEROSITY, Measurements
from e2e.support.pods import phase_of
from e2e.support.proxied import proxied
from e2e.support.together import wait_each
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.faults import Swallow
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

REPAIRED_SECONDS = 7.0
"""Both sides are read anew every 5 s, and what differs for another second is mended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One event that federate does not get to see, and what it would have told."""

    what: str
    swallow: Swallow
    cause: Callable[[], object]
    is_repaired: Callable[[], bool]


def runs(event: dict[str, Any]) -> bool:
    return phase_of(event["object"]) == "Running"


def is_being_deleted(event: dict[str, Any]) -> bool:
    return "deletionTimestamp" in event["object"]["metadata"]


def losses_of(space: Space, hub: FaultProxy, target: FaultProxy) -> list[Loss]:
    """Set up one loss of each kind; pods that are not created here run already."""

    def create(name: str) -> object:
        return space.create(pod(name, pod_spec(space.node)))

    def phase(name: str) -> str:
        found = space.pod(name)
        return phase_of(found) if found is not None else "gone"

    def is_gone(name: str) -> bool:
        return phase(name) == "gone" and space.mirror(name) is None

    def destroy(name: str) -> object:
        return space.target.delete("Pod", space.target_namespace, name, grace_seconds=0)

    return [
        Loss(
            what="a mirror's status",
            swallow=target.swallow(type="MODIFIED", name="started", where=runs),
            cause=lambda: create("started"),
            is_repaired=lambda: phase("started") == "Running",
        ),
        Loss(
            what="a mirror's end, asked for on the hub",
            swallow=target.swallow(type="DELETED", name="finished"),
            cause=lambda: space.delete_pod("finished"),
            is_repaired=lambda: is_gone("finished"),
        ),
        Loss(
            what="a mirror's end, by somebody in the target",
            swallow=target.swallow(type="DELETED", name="destroyed"),
            cause=lambda: destroy("destroyed"),
            is_repaired=lambda: is_gone("destroyed"),
        ),
        Loss(
            what="a hub pod's arrival",
            swallow=hub.swallow(type="ADDED", name="created"),
            cause=lambda: create("created"),
            is_repaired=lambda: phase("created") == "Running",
        ),
        Loss(
            what="a hub pod's deletion",
            swallow=hub.swallow(type="MODIFIED", name="deleted", where=is_being_deleted),
            cause=lambda: space.delete_pod("deleted"),
            is_repaired=lambda: is_gone("deleted"),
        ),
        Loss(
            what="a hub pod's end, forced",
            swallow=hub.swallow(type="DELETED", name="forced"),
            cause=lambda: space.delete_pod("forced", grace_seconds=0),
            is_repaired=lambda: is_gone("forced"),
        ),
    ]


def lose(loss: Loss) -> float:
    """Cause an event that is lost; return when that was."""
    loss.cause()
    loss.swallow.wait_done()
    return time.monotonic()


def test_an_event_that_never_came_is_made_up_for(
    worlds: Worlds, hub: TestCluster, target: TestCluster, measured: Measurements
) -> None:
    """One lost watch event, of any kind and on either side, costs seconds and nothing else."""
    with (
        FaultProxy.before(hub) as to_hub,
        FaultProxy.before(target) as to_target,
        proxied(
            worlds, node="lossy", hub=hub, target=target, hub_proxy=to_hub, target_proxy=to_target
        ) as world,
    ):
        space = Space(world, "loss")
        space.open()
        for name in ("finished", "destroyed", "deleted", "forced"):
            space.run_pod(pod(name, pod_spec(space.node)))
        losses = losses_of(space, to_hub, to_target)
        lost_at = {loss.what: lose(loss) for loss in losses}
        repaired_at = wait_each(
            "all losses are made up for",
            {loss.what: loss.is_repaired for loss in losses},
            timeout_seconds=GENEROSITY * REPAIRED_SECONDS,
            explain=lambda _missing: space.explain(),
        )
        for what, at in repaired_at.items():
            measured.seconds(what, at - lost_at[what], promise=REPAIRED_SECONDS)
        assert to_hub.inflicted["swallow"] == to_target.inflicted["swallow"] == 3
        space.assert_one_mirror_each()
        space.close()

"""Several processes for one virtual node: who leads."""

import time

from .world import World, wait_for

TAKEOVER_SECONDS = 20.0
"""A silent leader's lease lasts 15 s; the standby looks every 2 s."""


def leader_of(world: World) -> str:
    """Return the identity in the leader lease."""
    lease = world.hub.get("Lease", "kube-system", f"federate-{world.node}")
    assert lease is not None
    return str(lease["spec"].get("holderIdentity") or "")


def wait_leading(world: World, identity: str) -> float:
    """Wait until the process leads; return the seconds it took."""
    started = time.monotonic()
    wait_for(
        f"{identity} leads",
        lambda: leader_of(world) == identity,
        timeout_seconds=3 * TAKEOVER_SECONDS,
        explain=world.federate.log_tail,
    )
    return time.monotonic() - started

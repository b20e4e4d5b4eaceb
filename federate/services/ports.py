"""What the I/O of this folder acts through, and who is told.

`network.Network`, the one object that runtime holds:
    on_hub_pod(change), on_anchor(change)      who lives where; what owns things there
    wake_all()                                 the target is back
    refusal(hub_pod) -> Blocked | None         asked before a mirror is made; cheap
    hold(hub_pod, namespace) -> Hold | None    the same: whether it is to wait
    hub_api(namespace) -> HubApi | None        where names of the hub's API server lead
    on_made(hub_pod, namespace)                it has its mirror
    decision -> AddressDecision                which addresses hub pods show, and why
    parts() -> Mapping[str, Callable]          what runs beside: each until cancelled
    reads_services                             whether the watch of the hub's Services must run
    counts() -> Mapping[str, int]              followed Services by standing, for metrics
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.companions.steps import Ground
from federate.flow.controller import Outcome
from federate.flow.ratebound import RateBound
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey
from federate.model.resources import Resource


async def resolve_host(host: str) -> tuple[str, ...]:
    """Ask the DNS of where federate runs."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(str(address[0]) for *_, address in found)


class GroundPort(Protocol):
    """What stands in a target namespace to own things; `runtime.companions.CompanionGround`."""

    def state(self, namespace: str) -> Ground:
        """Say whether something may be made in the target namespace."""

    def anchor(self, namespace: str) -> JsonObject | None:
        """Return the anchor, as it is after our own writes; None where nothing may be made."""


class ObjectEvents(Protocol):
    """Where Events about the hub's objects go; `mirror.ports.ObjectEventSink` is one."""

    def event(
        self,
        resource: Resource,
        regarding: JsonObject,
        *,
        reason: str,
        note: str,
        action: str,
        warning: bool = True,
    ) -> None:
        """Note one Event; repeats are aggregated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePorts:
    """Everything that the Services of one virtual node act through."""

    scope: Scope
    target_name: str
    hub: ClusterPort
    target: ClusterPort
    ground: GroundPort
    events: ObjectEvents
    target_namespace: Callable[[str], str | None]
    """Where mirrors of a hub namespace stand by today's rules. A pod's record is not believed."""
    watched: Callable[[], Sequence[str]]
    """The target namespaces that may be asked for; "" stands for all at once."""
    wake: Callable[[ObjectKey], None]
    """Have a hub pod looked at: what refused it is gone."""
    admit: Callable[[], Outcome | None]
    """Asked before each reconcile: an outcome, or what is raised, stands instead of it."""
    target_reachable: Callable[[], bool]
    leaving: Callable[[], bool]
    confirm_hub: Callable[[], Awaitable[None]]
    """Raises where the hub's client speaks to another cluster now: absence says nothing there."""
    confirm_target: Callable[[], Awaitable[None]]
    """The same of the target's client (C5)."""
    fence: Callable[[], None]
    """Raises LeadershipLost where we may not act any more; called before every write."""
    fence_target: Callable[[], None]
    """Raises ClusterError while the target is known to be another cluster; before its writes."""
    delete_bound: RateBound
    """How fast what nobody wants is deleted."""
    clock: Callable[[], float]
    """Monotonic, and as fast as the event loop's."""
    random: Random
    resolve: Callable[[str], Awaitable[tuple[str, ...]]] = resolve_host
    """Return the addresses of a host by its name, as they are now; raises OSError."""

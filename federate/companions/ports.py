"""What the companions' I/O acts through, and who is told: the outside of `round` and `reconciler`.

Companions (reconciler.py), the one object that runtime holds:
    hold(hub_pod, target_namespace) -> Hold | None      asked before a mirror is made; cheap
    on_hub_pod(change), on_mirror(change)               who refers to what
    on_anchor(change)                                   uninstalled, installed again, list edited
    enqueue(key), wake_all()                            have one looked at; all (target is back)
    open() -> tuple[Reflector, ...]                     ConfigMap companions, metadata only
    parts() -> Mapping[str, Callable[[], Coroutine]]    what runs beside: each until cancelled
    demand() -> Demand                                  from both stores, as they are now
    inventory() -> frozenset[CompanionKey]              what the target shows of ours
    missing() -> list[CompanionKey]                     wanted, and never looked at
    lists: Lists                                        the Secrets on the anchors' lists
    counts() -> Mapping[str, int]                       by standing, for metrics
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.cluster.store import Store
from federate.companions.keys import Kind
from federate.companions.steps import Ground
from federate.flow.controller import Outcome
from federate.flow.ratebound import RateBound
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey


class GroundPort(Protocol):
    """What stands in a target namespace to own companions, and to list Secrets (C23).

    `runtime.companions.CompanionGround` satisfies it, on top of `mirror.ground.Ground`.
    """

    def state(self, namespace: str) -> Ground:
        """Say whether something may be made in the target namespace."""

    def anchor(self, namespace: str) -> JsonObject | None:
        """Return the anchor, as it is after our own writes; None where nothing may be made."""

    async def prepare(self, hub_namespace: str) -> None:
        """Make sure of target namespace and anchor for a hub namespace, by today's rules.

        Raises:
            NotOurs, ClusterError: as `mirror.ground.Ground.prepare`.
        """

    async def note(self, namespace: str, entries: Mapping[str, str | None], *, exact: bool) -> None:
        """Write entries of the anchor's `data` (None takes one off), under its uid.

        `exact`: under its resourceVersion too. Fenced.

        Raises:
            Conflict: it is gone or another one, or (`exact`) of another version.
            ClusterError: whatever the target answered.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionPorts:
    """Everything that the companions of one virtual node act through."""

    scope: Scope
    target_name: str
    hub: ClusterPort
    target: ClusterPort
    hub_pods: Store
    anchors: Store
    ground: GroundPort
    shared: frozenset[tuple[Kind, str]]
    """Objects of the target that hub pods may use by their own names: nothing stands for them."""
    brings_tokens: bool
    """Whether the volumes that admission made travel, so that what they name is wanted."""
    target_namespace: Callable[[JsonObject], str | None]
    """Where the companions of a hub pod stand; None: nowhere."""
    is_refused: Callable[[JsonObject], bool]
    """Whether a hub pod may get no mirror, so that nothing comes along either."""
    watched: Callable[[], Sequence[str]]
    """The target namespaces that may be asked for; "" stands for all at once."""
    wake: Callable[[ObjectKey], None]
    """Have a hub pod looked at: what it waited for came, or cannot come."""
    admit: Callable[[], Outcome | None]
    """Asked before each reconcile: an outcome, or what is raised, stands instead of it."""
    target_reachable: Callable[[], bool]
    leaving: Callable[[], bool]
    """Whether the virtual node is being left: then what nobody wants goes at once."""
    confirm_hub: Callable[[], Awaitable[None]]
    """Raises where the hub's client speaks to another cluster now: absence says nothing there."""
    confirm_target: Callable[[], Awaitable[None]]
    """The same of the target's client (C5)."""
    fence: Callable[[], None]
    """Raises LeadershipLost where we may not act any more; called before every write."""
    fence_target: Callable[[], None]
    """Raises ClusterError while the target is known to be another cluster; before its writes."""
    count_read: Callable[[str], None]
    """Told of each read by name, with the name of the cluster."""
    delete_bound: RateBound
    """How fast what nobody wants is deleted."""
    clock: Callable[[], float]
    """Monotonic, and as fast as the event loop's."""
    random: Random


class ListsPort(Protocol):
    """The lists in the anchors: what is to be found again whatever crashes (`lists.Lists`)."""

    def entry(self, namespace: str, name: str) -> str | None:
        """Return what the namespace's anchor says beside a name; None where it is not listed."""

    async def enlist(self, namespace: str, name: str, entry: str) -> None:
        """Put a name on the list; returns once it is written. Many at once are one request.

        Raises:
            ClusterError: whatever the target answered; nothing may be made then.
        """

    async def strike(self, namespace: str, name: str) -> None:
        """Take a name off the list: what it names is gone for sure. Many at once are one request.

        Raises:
            Conflict: somebody wrote the list meanwhile: look again.
            ClusterError: whatever the target answered.
        """

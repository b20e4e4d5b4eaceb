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
    lists: Lists                                        what is on record in the target
    counts() -> Mapping[str, int]                       by standing, for metrics
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.cluster.store import Store
from federate.companions.issued import IssuedKey
from federate.companions.keys import CompanionKey, Kind
from federate.companions.steps import Ground
from federate.companions.wanted import as_it_is
from federate.flow.controller import Outcome
from federate.flow.ratebound import RateBound
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey


class GroundPort(Protocol):
    """What stands in a target namespace to own companions (C23).

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
        """Write lines of the anchor's `data` (None takes one off), under its uid.

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
    has_mirror: Callable[[JsonObject], bool]
    """Whether a hub pod has the mirror that is on its record; the record alone says nothing."""
    is_refused: Callable[[JsonObject], bool]
    """Whether a hub pod may get no mirror, so that nothing comes along either."""
    travelling: Callable[[JsonObject], JsonObject] = as_it_is
    """A hub pod without the parts that reach no target: what they name does not come along."""
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
    """What is on record: what is to be found again whatever crashes (`lists.Lists`)."""

    def on_record(self) -> Set[CompanionKey | IssuedKey]:
        """Return all that came along, as the target tells of it."""

    def entry(self, place: ObjectKey) -> JsonObject | None:
        """Return the entry of the Secret at that place, while it stands."""

    def has_line(self, place: ObjectKey) -> bool:
        """Tell whether an earlier version put it on the list in the anchor."""

    async def enlist(self, place: ObjectKey, said: str) -> JsonObject:
        """Make the entry of a Secret, or take up the one that is there; returns it.

        Raises:
            NotOurs: something of that name stands there that is no entry of ours.
            ClusterError: whatever the target answered; nothing may be made then.
        """

    async def strike(self, place: ObjectKey, entry: JsonObject | None) -> None:
        """Take a Secret off record that is gone for sure, its entry as it was seen before.

        Raises:
            Conflict: somebody put it to use meanwhile: look again.
            ClusterError: whatever the target answered.
        """

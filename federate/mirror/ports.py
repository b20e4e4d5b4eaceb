"""What a reconcile of hub pods acts through, and what is remembered between two of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.cluster.shelf import Glance
from federate.cluster.store import Change, Store
from federate.companions.holding import Hold
from federate.companions.keys import Kind
from federate.companions.steps import Blocked
from federate.flow.ratebound import RateBound
from federate.mirror.admission import Applicant, applicant_of
from federate.mirror.ground import Ground
from federate.mirror.refusal import Refusal, refusal_of
from federate.mirror.steps import Created, PlanRules, RefusedChange
from federate.model.hostports import HOST_PORT_INDEX, HostPort
from federate.model.marks import (
    Origin,
    Scope,
    origin_of,
    record_of,
)
from federate.model.objects import (
    JsonObject,
    key_of,
    uid_of,
)
from federate.model.pods import is_gated
from federate.model.resources import Resource
from federate.policy.turns import FailingTurns
from federate.services.addresses import AddressDecision
from federate.services.hubnames import UNLED, HubApi

REFUSED_AGAIN_SECONDS = 5.0
"""How long after its first refusal a change is tried again; it doubles each time."""
REFUSED_AGAIN_CAP_SECONDS = 300.0
"""How long a policy of the target that was mended may go unnoticed."""
MOST_DOUBLINGS = 16
"""Keeps the power finite after thousands of refusals."""
ORIGIN_INDEX = "origin"
"""Index of the mirrors' store: hub pod key -> mirrors."""


def origin_index(mirror: JsonObject) -> Iterable[str]:
    """Index mirrors by the hub pod key they name."""
    origin = origin_of(mirror)
    return (str(origin.pod),) if origin else ()


class EventSink(Protocol):
    """Where Kubernetes Events about hub pods go; never blocks, never fails."""

    def event(
        self, regarding: JsonObject, *, reason: str, note: str, action: str, warning: bool = True
    ) -> None:
        """Note one Event; repeats are aggregated."""


class ObjectEventSink(Protocol):
    """Where Events about other objects of the hub go; never blocks, never fails."""

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


class Untold:
    """An `ObjectEventSink` that tells nobody."""

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
        """Do nothing."""


async def _nothing_shared(
    _hub_pod: JsonObject, _target_namespace: str
) -> frozenset[tuple[Kind, str]]:
    return frozenset()


def _no_claims(_hub_pod: JsonObject, _target_namespace: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPorts:
    """Everything the reconciler acts through."""

    hub: ClusterPort
    target: ClusterPort
    hub_pods: Store
    mirrors: Store
    ground: Ground
    events: EventSink
    target_reachable: Callable[[], bool]
    target_known: Callable[[], bool]
    """Whether `confirm_target` can tell one cluster from another."""
    confirm_hub: Callable[[], Awaitable[None]]
    """Raises where the hub's client speaks to another cluster now: absence says nothing there."""
    confirm_target: Callable[[], Awaitable[None]]
    """The same of the target's client (C5)."""
    fence: Callable[[], None]
    """Raises LeadershipLost where we may not act any more; called before every write."""
    fence_target: Callable[[], None]
    """Raises ClusterError while the target is known to be another cluster; before its writes."""
    now: Callable[[], datetime]
    orphan_bound: RateBound
    mirror_changed: Callable[[Change], None]
    """Told of every change that a write or read of ours brought to the mirrors' store: the watch
    will not tell of it again."""
    on_orphan_deleted: Callable[[], None]
    leaving: Callable[[], bool] = lambda: False
    """Whether the virtual node is being left: then nothing new is mirrored."""
    hold: Callable[[JsonObject, str], Hold | None] = lambda hub_pod, target_namespace: None
    """What a hub pod's mirror, made in that namespace, would have to wait for; whoever brings it
    wakes the pod."""
    turns: FailingTurns = field(default_factory=lambda: FailingTurns(monotonic))
    """Whose turn it is to fail, where refused pods do."""
    shared: Callable[[JsonObject, str], Awaitable[frozenset[tuple[Kind, str]]]] = _nothing_shared
    """Which objects of a target namespace its people let a hub pod name as they are; raises
    ClusterError."""
    claim_names: Callable[[JsonObject, str], Mapping[str, str] | None] = _no_claims
    """The claims of a target namespace by the volumes of a hub pod that are claims; None where one
    of them has none (any more): then `hold` says why."""
    hub_api: Callable[[str], HubApi | None] = lambda target_namespace: UNLED
    """Where the names of the hub's API server lead in a target namespace; None where that is not
    known (any more): then `hold` says why."""
    mirror_made: Callable[[JsonObject, str], None] = lambda hub_pod, target_namespace: None
    """Told of each mirror that was just made, by its hub pod and where it stands."""
    network_refusal: Callable[[JsonObject], Blocked | None] = lambda hub_pod: None
    """Which NetworkPolicies of the hub keep a pod from being mirrored; the pod is woken when that
    may have changed."""
    addresses: Callable[[], AddressDecision | None] = lambda: None
    """Which addresses of mirrors are shown, as it is decided now; None: as the rules say."""
    claim_words: Callable[[JsonObject], str] = lambda hub_pod: ""
    """What the target says of a hub pod's claims that have no storage; "" for nothing."""


@dataclass(slots=True)
class PodMemory:
    """What this process knows of one hub pod beyond what is written down; makes it only surer."""

    intended_at: str = ""
    """When the intent of this process was written, as it stands on record."""
    created: Created | None = None
    """The mirror of its own making, until it is let go."""
    taken_back: str = ""
    """The uid of a mirror that it deleted as it had never run."""
    last_state: JsonObject | None = None
    """The mirror as it was last seen before it vanished."""
    held_since: datetime | None = None
    """Since when companions of the pod are on their way."""
    stripped: JsonObject | None = None
    """A pod of our own making whose marks the target took off; it is still to be taken back."""
    weakened_by: str = ""
    """Fields that the target dropped from its mirror, which was therefore removed again."""
    futile: str = ""
    futile_metadata: str = ""
    refused: dict[str, RefusedChange] = field(default_factory=dict)
    """Changes of the mirror that the target refused, by their kind."""
    made: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """The last change of each kind that the target took, and when."""

    def is_made_again(self, kind: str, change: str, *, now: datetime) -> bool:
        """Note a change that the target took; tell whether it took the very same shortly before.

        Then somebody there undoes it, and doing it at once again would never end.
        """
        before, at = self.made.get(kind, ("", now))
        self.made[kind] = (change, now)
        return before == change and now - at < timedelta(seconds=REFUSED_AGAIN_CAP_SECONDS)

    def note_taken_back(self, mirror_uid: str) -> None:
        """Remember that a mirror is gone and never ran: whatever its watch said, it is no loss."""
        self.taken_back = mirror_uid
        if self.last_state is not None and uid_of(self.last_state) == mirror_uid:
            self.last_state = None

    def note_refused(self, kind: str, fingerprint: str, refusal: Refusal, *, now: datetime) -> None:
        """Remember that a change was refused, and when it is to be tried again."""
        before = self.refused.get(kind)
        same = before is not None and before.fingerprint == fingerprint
        failures = before.failures + 1 if before is not None and same else 1
        doubled = REFUSED_AGAIN_SECONDS * 2.0 ** min(failures - 1, MOST_DOUBLINGS)
        wait = min(doubled, REFUSED_AGAIN_CAP_SECONDS)
        self.refused[kind] = RefusedChange(
            fingerprint=fingerprint,
            refusal=refusal,
            again_at=now + timedelta(seconds=wait),
            failures=failures,
        )


class PodMemories:
    """What is remembered, by hub pod uid; a hub pod that goes is forgotten."""

    def __init__(self, ports: PodPorts) -> None:
        self._ports = ports
        self._by_uid: dict[str, PodMemory] = {}
        self._applicants: dict[str, tuple[Glance, Applicant]] = {}

    def of(self, hub_pod_uid: str) -> PodMemory:
        """Return a hub pod's memory, to be written to."""
        return self._by_uid.setdefault(hub_pod_uid, PodMemory())

    def peek(self, hub_pod_uid: str) -> PodMemory:
        """Return a hub pod's memory, to be read; an empty one where there is none."""
        return self._by_uid.get(hub_pod_uid) or PodMemory()

    def forget(self, hub_pod_uid: str) -> None:
        """Forget a hub pod that is gone."""
        self._by_uid.pop(hub_pod_uid, None)

    def note_hold(self, hub_pod_uid: str, hold: Hold | None, *, now: datetime) -> datetime | None:
        """Remember since when companions of a pod are on their way; None where none are."""
        if hold is None or not hold.coming:
            if hub_pod_uid in self._by_uid:
                self._by_uid[hub_pod_uid].held_since = None
            return None
        memory = self.of(hub_pod_uid)
        # A clock that was set back must not make it longer.
        memory.held_since = min(memory.held_since or now, now)
        return memory.held_since

    def applicants(
        self, port: HostPort, read: Callable[[JsonObject], Applicant]
    ) -> list[Applicant]:
        """Return the hub pods that want a host port of that number, as the store has them.

        Each version is looked into once: as many may wait for one port as a user likes.
        """
        hub_pods = self._ports.hub_pods
        found = []
        for key in hub_pods.keys_by_index(HOST_PORT_INDEX, port.place):
            glance = hub_pods.glance(key)
            if glance is None:
                continue
            known = self._applicants.get(glance.uid)
            if known is None or known[0] is not glance:
                known = glance, read(glance.unpack())
                self._applicants[glance.uid] = known
            found.append(known[1])
        return found

    def prune(self) -> None:
        """Forget what belongs to no hub pod in the store."""
        known = {hub_pod.uid for hub_pod in self._ports.hub_pods.glances()}
        for uid in self._by_uid.keys() - known:
            del self._by_uid[uid]
        for uid in self._applicants.keys() - known:
            del self._applicants[uid]

    def note_end(self, origin: Origin, mirror: JsonObject, *, last: JsonObject) -> None:
        """Keep the last state of *the* mirror of a hub pod.

        The end of a second mirror says nothing, nor that of one that never could run, or that
        federate itself took back.
        """
        hub_pod = self._ports.hub_pods.get(origin.pod)
        if hub_pod is None or uid_of(hub_pod) != origin.pod_uid:
            return
        record = record_of(hub_pod)
        recorded = record.mirror_uid if record is not None else ""
        memory = self.peek(origin.pod_uid)
        if memory.taken_back == uid_of(mirror):
            return
        never_ran = is_gated(mirror) and is_gated(last)
        taken_back = bool(memory.weakened_by)
        if recorded == uid_of(mirror) or not (recorded or never_ran or taken_back):
            self.of(origin.pod_uid).last_state = last


class PortRegistry:
    """The `Registry` of one round: what was read in it directly counts more than the stores."""

    def __init__(
        self, ports: PodPorts, memories: PodMemories, *, scope: Scope, rules: PlanRules
    ) -> None:
        self._ports = ports
        self._memories = memories
        self._scope = scope
        self._rules = rules
        self._read: dict[str, Applicant | None] = {}
        self._read_mirrors: dict[str, JsonObject | None] = {}

    def applicant(self, hub_pod: JsonObject) -> Applicant:
        """Read off a hub pod what its admission, and that of others, is decided by."""
        place = self._ports.ground.mirror_key(key_of(hub_pod))
        is_refused = place is None or refusal_of(
            hub_pod,
            mirror_key=place,
            rules=self._rules.render,
            target_name=self._rules.target_name,
            allow_system_namespaces=self._rules.allow_system_namespaces,
        )
        return applicant_of(hub_pod, self._rules.render.policy, is_refused=bool(is_refused))

    def note_read(self, uid: str, hub_pod: JsonObject | None) -> None:
        """Take over a hub pod as the quorum has it; None: that very one is not there any more."""
        self._read[uid] = None if hub_pod is None else self.applicant(hub_pod)

    def note_mirror_read(self, uid: str, found: JsonObject | None) -> None:
        """Take over what the target has in the place of a hub pod's mirror; None: nothing."""
        self._read_mirrors[uid] = found

    def applicants(self, port: HostPort) -> list[Applicant]:
        """Return the hub pods that want a port of that number."""
        known = self._memories.applicants(port, self.applicant)
        newest = (self._read.get(one.uid, one) for one in known)
        return [one for one in newest if one is not None]

    def mirror_of(self, holder: Applicant) -> JsonObject | None:
        """Return the mirror that one has on record, if that says the same: by its uid and marks."""
        if holder.mirror is None:
            return None
        found = self._read_mirrors.get(holder.uid, self._ports.mirrors.get(holder.mirror))
        origin = Origin(scope=self._scope, pod=holder.key, pod_uid=holder.uid)
        if found is None or (uid_of(found), origin_of(found)) != (holder.mirror_uid, origin):
            return None
        return found

    def was_read(self, uid: str) -> bool:
        """Tell whether one was read directly."""
        return uid in self._read

    def was_mirror_read(self, uid: str) -> bool:
        """Tell whether its mirror was read directly."""
        return uid in self._read_mirrors

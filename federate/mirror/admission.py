"""Say whether the virtual node has a new pod's host ports left, as a kubelet does. Pure.

The hub's scheduler never places two pods that clash; one that was bound past it (its creator set
spec.nodeName) may. What else a kubelet looks at there is not for us to judge: decision 0026.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Protocol

from federate.model.hostports import HostPort, host_ports_of
from federate.model.marks import record_of
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    key_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_terminal, phase_of
from federate.model.reasons import PodReason
from federate.policy.rules import PolicyRules
from federate.policy.verdict import applied, asked_spec
from federate.status.project import MIRRORED


class Claim(IntEnum):
    """What the claim of another pod to a port is; the first of these counts most."""

    HOLDS = 0
    """Its mirror lives, and has the port."""
    ENDS = 1
    """It was admitted, and is being deleted: the port is its own until it has ended."""
    MAY_HOLD = 2
    """It has a record, and no mirror that lives is in sight: it starts, or its mirror has ended or
    is gone, or somebody wrote the record."""
    COMES_FIRST = 3
    """It is not admitted either, and is decided on before: the scheduler gave it the port, or it is
    the older of two that were bound past it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """What of a hub pod decides who has a host port."""

    key: ObjectKey
    uid: str
    age: tuple[str, str]
    """Sorts the older before the younger: by whole seconds, and those of one by their uid."""
    ports: tuple[HostPort, ...]
    """Those that the policy lets through."""
    is_recorded: bool
    """It has a mirror or an intent on record: it was admitted, or its user wrote that."""
    mirror: ObjectKey | None
    """The mirror on record, with its uid; None where there is none yet."""
    mirror_uid: str
    is_refused: bool
    """By the rules alone it gets no mirror; it may have one from before."""
    is_ending: bool
    is_over: bool
    """It has ended, or runs nowhere and says so."""
    is_scheduled: bool
    """A scheduler bound it: only the `pods/binding` subresource writes that condition, and nobody
    does for who is created with a node's name."""
    is_next: bool
    """It is not admitted, and waits for nothing else that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortClash:
    """Why a pod is not admitted now."""

    port: HostPort
    claim: Claim
    rival: ObjectKey
    rival_uid: str
    is_sure: bool = False
    """The rival was read from the hub's quorum in this reconcile."""
    mirror: ObjectKey | None = None
    """Of who holds the port."""
    is_mirror_sure: bool = False
    """And that was read from the target."""


class Registry(Protocol):
    """Who wants which port, as far as it is known."""

    def applicants(self, port: HostPort) -> Iterable[Applicant]:
        """Return the hub pods that want a port of that number, whoever asks among them."""

    def mirror_of(self, holder: Applicant) -> JsonObject | None:
        """Return the mirror that one has on record, if that says the same: by its uid and marks."""

    def was_read(self, uid: str) -> bool:
        """Tell whether one was read from the hub's quorum in this reconcile."""

    def was_mirror_read(self, uid: str) -> bool:
        """Tell whether its mirror was read from the target in this reconcile."""


def applicant_of(hub_pod: JsonObject, policy: PolicyRules, *, is_refused: bool) -> Applicant:
    """Read off a hub pod what its admission, and that of others, is decided by."""
    record, metadata = record_of(hub_pod), metadata_of(hub_pod)
    said = condition_of(hub_pod, MIRRORED) or {}
    waits_for_else = said.get("status") == "False" and said.get("reason") != PodReason.NODE_PORTS
    asked = host_ports_of(spec_of(hub_pod))
    return Applicant(
        key=key_of(hub_pod),
        uid=uid_of(hub_pod),
        age=(str(metadata.get("creationTimestamp") or ""), uid_of(hub_pod)),
        ports=host_ports_of(applied(asked_spec(hub_pod), policy)) if asked else (),
        is_recorded=record is not None,
        mirror=record.mirror if record is not None and record.mirror_uid else None,
        mirror_uid=record.mirror_uid if record is not None else "",
        is_refused=is_refused,
        is_ending=is_terminating(hub_pod),
        is_over=is_terminal(hub_pod) or (phase_of(hub_pod) == "Running" and record is None),
        is_scheduled=(condition_of(hub_pod, "PodScheduled") or {}).get("status") == "True",
        is_next=not waits_for_else,
    )


def find_clash(applicant: Applicant, registry: Registry) -> PortClash | None:
    """Find who has, or is to have, a port that a pod needs which is not admitted; None: nobody."""
    strongest = min(_holders(applicant, registry), key=_by_strength, default=None)
    if strongest is not None:
        return strongest
    before = [
        (not other.is_scheduled, other.age, port, other)
        for port, other in _rivals(applicant, registry, lambda one: _comes_first(one, applicant))
    ]
    for _, _, port, other in sorted(before, key=lambda one: one[:2]):
        if not any(_holders(other, registry)):
            return _clash(port, other, Claim.COMES_FIRST, registry)
    return None


def _rivals(
    pod: Applicant, registry: Registry, is_sought: Callable[[Applicant], bool]
) -> Iterator[tuple[HostPort, Applicant]]:
    """Pair its ports with those who want the same; who is sought is asked first, as cheaper."""
    for port in pod.ports:
        for other in registry.applicants(port):
            if other.is_over or not is_sought(other) or other.uid == pod.uid:
                continue
            if any(map(port.clashes_with, other.ports)):
                yield port, other


def _holders(pod: Applicant, registry: Registry) -> Iterator[PortClash]:
    for port, other in _rivals(pod, registry, attrgetter("is_recorded")):
        claim = _claim_of(other, port, registry)
        if claim is not None:
            yield _clash(port, other, claim, registry)


def _comes_first(other: Applicant, applicant: Applicant) -> bool:
    """Tell whether one that is not admitted either is decided on before.

    Whom a scheduler gave the port may wait for what it likes, a full quota say: nobody who was
    bound past the scheduler takes it away. Of two of a kind the older, unless it waits for more.
    One that the rules refuse stands in nobody's way: it will not run.
    """
    if other.is_recorded or other.is_ending or other.is_refused:
        return False
    if other.is_scheduled is not applicant.is_scheduled:
        return other.is_scheduled
    return other.is_next and other.age < applicant.age


def _claim_of(holder: Applicant, port: HostPort, registry: Registry) -> Claim | None:
    """Say how a pod that has a record holds a port; None where it does not.

    The record is an annotation, which its user can write: alone it makes others wait at most, and
    not even that for a pod that the rules refuse. What counts is the mirror, and the ports that
    this has itself, whatever the policy is now.
    """
    mirror = registry.mirror_of(holder)
    if holder.is_refused if mirror is None else not _has(mirror, port):
        return None
    if holder.is_ending:
        return Claim.ENDS
    return Claim.HOLDS if mirror is not None and _goes_on(mirror) else Claim.MAY_HOLD


def _has(mirror: JsonObject, port: HostPort) -> bool:
    return any(map(port.clashes_with, host_ports_of(spec_of(mirror))))


def _goes_on(mirror: JsonObject) -> bool:
    return not is_terminal(mirror) and not is_terminating(mirror)


def _clash(port: HostPort, rival: Applicant, claim: Claim, registry: Registry) -> PortClash:
    return PortClash(
        port=port,
        claim=claim,
        rival=rival.key,
        rival_uid=rival.uid,
        is_sure=registry.was_read(rival.uid),
        mirror=rival.mirror if claim is Claim.HOLDS else None,
        is_mirror_sure=claim is Claim.HOLDS and registry.was_mirror_read(rival.uid),
    )


def _by_strength(clash: PortClash) -> tuple[int, bool, bool, ObjectKey, str]:
    """Order claims; of equal ones what was read already comes first, so that little is read."""
    unread = not clash.is_mirror_sure, not clash.is_sure
    return clash.claim, *unread, clash.rival, str(clash.port)

"""What leaving a target comes to: which hub pods go how, and what is said of it before. Pure.

The kinds of pods and what becomes of them are those of `kubectl drain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from federate.claims.places import claims_used
from federate.claims.words import kept_words
from federate.companions.keys import Kind
from federate.companions.references import wants_of
from federate.garbage.brought import Brought
from federate.model.marks import Scope, origin_of, record_of
from federate.model.objects import (
    JsonObject,
    annotations_of,
    controller_of,
    is_terminating,
    key_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_daemonset_pod, is_terminal

STATIC_POD_ANNOTATION = "kubernetes.io/config.mirror"
"""Of pods that a kubelet made for a manifest of its own: deleting them ends nothing."""

SHOWN = 20
"""So many names are listed; of the others there is the number."""


class PodKind(StrEnum):
    """How a hub pod leaves the virtual node."""

    EVICTED = "evicted"
    BARE = "deleted for good: nobody replaces it"
    DAEMONSET = "left to the end: its DaemonSet would replace it here"
    STATIC = "left to the end: a static pod"
    WAITING = "left to the end: it never had a mirror"


def kind_of(pod: JsonObject) -> PodKind:
    """Say how a hub pod leaves."""
    if STATIC_POD_ANNOTATION in annotations_of(pod):
        return PodKind.STATIC
    if is_daemonset_pod(pod):
        return PodKind.DAEMONSET
    if controller_of(pod) is None and not is_terminal(pod):
        return PodKind.BARE
    if record_of(pod) is None and not (is_terminal(pod) or is_terminating(pod)):
        # Evicted, one that tolerates the cordon would be replaced here at once, again and again.
        return PodKind.WAITING
    return PodKind.EVICTED


def stays_to_the_end(pod: JsonObject) -> bool:
    """Tell whether a drain leaves the pod alone."""
    return kind_of(pod) in (PodKind.DAEMONSET, PodKind.STATIC, PodKind.WAITING)


def has_local_data(pod: JsonObject) -> bool:
    """Tell whether something is lost with the pod that its successor does not have."""
    volumes = spec_of(pod).get("volumes") or ()
    return not is_terminal(pod) and any("emptyDir" in volume for volume in volumes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is to leave. Without a target nothing is known of it but what the hub says."""

    scope: Scope
    node: JsonObject | None
    hub_pods: Sequence[JsonObject]
    mirrors: Sequence[JsonObject] = ()
    anchors: Sequence[JsonObject] = ()
    brought: Sequence[Brought] = ()
    """What came along with pods, ConfigMaps and Secrets in the target."""
    services: Sequence[JsonObject] = ()
    """Services of the target that followed the hub's."""
    claims: Sequence[JsonObject] = ()
    """Storage in the target, which stays."""
    leases: Sequence[JsonObject] = ()
    """The leader lease."""
    recorded: Sequence[str] = ()
    """Target namespaces that the Node remembers."""

    @property
    def is_nothing(self) -> bool:
        """Tell whether everything is left already."""
        return self.node is None and not (
            self.mirrors or self.anchors or self.brought or self.services or self.leases
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Name the target namespaces that this virtual node uses, as far as both sides tell."""
        names = {key_of(obj).namespace for obj in (*self.anchors, *self.mirrors)}
        names |= set(self.recorded)
        records = (record_of(pod) for pod in self.hub_pods)
        names |= {record.mirror.namespace for record in records if record is not None}
        return tuple(sorted(names))

    def bare_pods(self) -> list[str]:
        """Name the living pods that nobody replaces."""
        return [
            str(key_of(pod))
            for pod in self.hub_pods
            if kind_of(pod) is PodKind.BARE and not is_terminating(pod)
        ]


def describe(found: Found, *, target_name: str) -> list[str]:
    """Say what leaving means, line by line."""
    kinds = [kind_of(pod) for pod in found.hub_pods]
    lines = [
        f"Virtual node {found.scope.node_name}"
        + ("" if found.node is not None else " (its Node is gone already)")
    ]
    for kind in PodKind:
        if count := kinds.count(kind):
            lines.append(f"  {_count(count, 'hub pod')} {kind}")
    if bare := found.bare_pods():
        lines.append(f"  bare pods: {listed(bare)}")
    if local := [str(key_of(pod)) for pod in found.hub_pods if has_local_data(pod)]:
        lines.append(f"  their emptyDir volumes are lost: {listed(local)}")
    lines.append(f"  {_count(len(found.mirrors), 'mirror')} in {target_name} removed")
    if found.brought:
        along = Counter(str(one.kind) for one in found.brought)
        counts = " and ".join(_count(n, kind) for kind, n in sorted(along.items()))
        lines.append(f"  {counts} in {target_name}, which came along with pods, removed")
    if found.services:
        services = _count(len(found.services), "Service")
        lines.append(f"  {services} in {target_name}, made for the hub's pods, removed")
    if found.namespaces:
        lines.append(f"  its namespaces in {target_name}: {listed(found.namespaces)}")
        lines.append("  (removed where federate made them and nothing is left in them)")
    lines.append("  then its Node, and its leases")
    if found.claims:
        claims = _count(len(found.claims), "claim")
        lines.append(f"  KEPT in {target_name}, with their data: {claims}")
        lines += [f"    {line}" for line in kept_words(found.scope, found.claims)]
        lines.append("    (to be removed there; and on the hub the volumes that lead to them)")
    return lines


def describe_abandoned(found: Found, *, target_name: str) -> list[str]:
    """Say what is abandoned in a target that cannot be cleaned, and what that may mean."""
    records = [record_of(pod) for pod in found.hub_pods]
    mirrors = sorted(str(r.mirror) for r in records if r is not None and r.mirror_uid)
    intents = sorted(str(r.mirror) for r in records if r is not None and not r.mirror_uid)
    lines = [f"Virtual node {found.scope.node_name}: its target {target_name} is abandoned"]
    lines.append(f"  {_count(len(found.hub_pods), 'hub pod')} ended and removed at once")
    lines.append(f"  abandoned in {target_name}, and perhaps STILL RUNNING there:")
    lines.append(f"    mirrors: {listed(mirrors) or 'none on record'}")
    if intents:
        lines.append(f"    mirrors that may exist, but never ran: {listed(intents)}")
    lines.append(f"    namespaces: {listed(found.namespaces) or 'none on record'}")
    lines += _describe_copies(found.hub_pods)
    lines += _describe_storage(found.hub_pods)
    lines += [
        "  Owners replace their pods at once. If the target is only cut off, a Job's work is then",
        "  done twice, and a StatefulSet's pod runs twice under one identity: as with kubectl",
        "  delete --force, it is you who says that these pods are no more.",
        "  Should the target come back: federate leave with --target removes what is left there,",
        "  and so does a federate that runs with this virtual node again. Or delete its anchors:",
        f"    kubectl --kubeconfig TARGET delete configmap,secret -A -l {found.scope.selector}",
    ]
    return lines


def _describe_copies(hub_pods: Iterable[JsonObject]) -> list[str]:
    """Name whose contents stay readable in a target that is abandoned, as far as the hub tells."""
    keys = {
        (key.kind, key.hub_key)
        for pod in hub_pods
        if (record := record_of(pod)) is not None and record.mirror_uid
        for key in wants_of(pod, record.mirror.namespace)
        if key.can_exist
    }
    lines = []
    for kind in Kind:
        if names := sorted(str(name) for found, name in keys if found is kind):
            lines.append(f"    copies of {kind}s of the hub: {listed(names)}")
    if any(kind is Kind.SECRET for kind, _ in keys):
        lines.append("      (whoever has that cluster reads them: think of renewing what is in)")
    return lines


def _describe_storage(hub_pods: Iterable[JsonObject]) -> list[str]:
    """Name the claims of pods with mirrors: where the mirrors are, there is the data."""
    claims = {
        str(use.claim)
        for pod in hub_pods
        if (record := record_of(pod)) is not None and record.mirror_uid
        for use in claims_used(pod)
    }
    if not claims:
        return []
    return [
        f"    the data of claims of the hub: {listed(sorted(claims))}",
        "      (out of reach with it, and kept there should it come back)",
    ]


def listed(names: Sequence[str]) -> str:
    """List names, not too many of them."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# -- the drain -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What of the hub pods is still to go."""

    due: tuple[JsonObject, ...]
    """To be asked to go."""
    going: tuple[JsonObject, ...]
    """Terminating: their mirrors end."""
    unforced: tuple[str, ...]
    """Bare pods that may not be deleted."""

    @property
    def is_done(self) -> bool:
        """Tell whether the virtual node is drained."""
        return not (self.due or self.going or self.unforced)


def plan_drain(
    hub_pods: Iterable[JsonObject],
    *,
    force: bool,
    mirrors: Iterable[JsonObject] | None = None,
) -> Remaining:
    """Sort what is on the virtual node.

    With `mirrors` it is the last look: pods that a drain leaves alone go too, where they have one.
    """
    mirrored = {origin.pod_uid for mirror in mirrors or () if (origin := origin_of(mirror))}
    due, going, unforced = [], [], []
    for pod in hub_pods:
        if stays_to_the_end(pod) and uid_of(pod) not in mirrored:
            continue
        if is_terminating(pod):
            going.append(pod)
        elif kind_of(pod) is PodKind.BARE and not force:
            unforced.append(str(key_of(pod)))
        else:
            due.append(pod)
    return Remaining(due=tuple(due), going=tuple(going), unforced=tuple(unforced))


def tell_remaining(remaining: Remaining, blocked: Sequence[str]) -> str:
    """Say in a line what is waited for; `blocked` are pods that a budget protects."""
    parts = []
    if blocked:
        parts.append(f"{len(blocked)} held by a PodDisruptionBudget: {listed(blocked[:3])}")
    if due := len(remaining.due) - len(blocked):
        parts.append(f"{due} asked to go")
    if remaining.going:
        parts.append(f"{len(remaining.going)} ending")
    if held := [str(key_of(pod)) for pod in remaining.going if _is_held(pod)]:
        parts.append(f"held by finalizers of others: {listed(held[:3])}")
    return "; ".join(parts)


def _is_held(pod: JsonObject) -> bool:
    meta = metadata_of(pod)
    return bool(meta.get("finalizers")) and not meta.get("deletionGracePeriodSeconds")

"""What came along with pods, as ConfigMaps of a target tell of it: by marks, or by entries. Pure.

No Secret is ever listed. What is wanted is told twice: a running virtual node derives it from its
stores (`companions.demand`); here it is taken rather too widely, for the command line, which does
not know where mirrors would stand, or what is shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from federate.companions.issued import IssuedKey, IssuedKind, place_of
from federate.companions.keys import (
    CompanionKey,
    Kind,
    is_object_name,
    name_of,
)
from federate.companions.record import Key, told_by, told_by_anchor
from federate.companions.references import names_used, references_of
from federate.model.marks import (
    NODE_NAME_ANNOTATION,
    VIRTUAL_NODE_LABEL,
    Scope,
    origin_of,
)
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    key_of,
    labels_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_terminal

README = "README"
"""What an anchor says beside the lines: to people."""


class Brought(NamedTuple):
    """One object that came along, as marks or an entry tell of it."""

    kind: Kind
    place: ObjectKey
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.place}, which stands for {self.key}"


def brought(
    scope: Scope, *, configmaps: Iterable[JsonObject], anchors: Iterable[JsonObject]
) -> tuple[Brought, ...]:
    """List what a virtual node brought: `anchors` with their data, of the others marks will do.

    An entry says that there may be a Secret, not that there is one; nor does a line in an anchor,
    where earlier versions kept this record.
    """
    told = (told_by(scope, configmap) for configmap in configmaps)
    keys = {key for key in told if key is not None}
    for anchor in anchors:
        keys.update(told_by_anchor(scope, anchor))
    return tuple(sorted(_brought(scope, key) for key in keys if _can_be_ours(key)))


def _can_be_ours(key: Key) -> bool:
    """Leave out what nobody can be called: who writes marks there may write anything into them."""
    return is_object_name(key.namespace) and is_object_name(key.name)


def _brought(scope: Scope, key: Key) -> Brought:
    if isinstance(key, IssuedKey):
        return Brought(key.kind.kind, place_of(scope, key), key)
    return Brought(key.kind, name_of(scope, key), key)


# -- what is wanted --------------------------------------------------------------------------------


def wanted_anywhere(
    scope: Scope, hub_pods: Iterable[JsonObject], mirrors: Iterable[JsonObject]
) -> Callable[[Brought], bool]:
    """Tell what is wanted, wherever a hub pod's mirror would stand, and whatever is shared."""
    living = [pod for pod in hub_pods if not is_terminal(pod)]
    objects = {
        (reference.kind, ObjectKey(key_of(pod).namespace, reference.name))
        for pod in living
        for reference in references_of(spec_of(pod), brings_tokens=True)
    }
    pods = {uid_of(pod) for pod in living}
    namespaces = {key_of(pod).namespace for pod in living}
    used = {
        (kind, ObjectKey(key_of(mirror).namespace, name))
        for mirror in mirrors
        if (origin := origin_of(mirror)) is not None and origin.scope == scope
        for kind, name in names_used(mirror)
    }

    def is_wanted(one: Brought) -> bool:
        if (one.kind, one.place) in used:
            return True
        if isinstance(one.key, CompanionKey):
            return (one.key.kind, one.key.hub_key) in objects
        if one.key.kind is IssuedKind.TOKENS:
            return one.key.uid in pods
        return one.key.namespace in namespaces

    return is_wanted


def of_others(
    scope: Scope, configmaps: Iterable[JsonObject], anchors: Iterable[JsonObject]
) -> Mapping[str, int]:
    """Count what other virtual nodes brought. Of anchors without companions no name is known."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for mark, name, number in _marks_of(configmaps, anchors):
        if mark != scope.virtual_node_hash:
            names[mark] = name or names.get(mark, "")
            counts[mark] += number
    return {
        names[mark] or f"the one of label {mark}": number
        for mark, number in sorted(counts.items())
        if number
    }


def _marks_of(
    configmaps: Iterable[JsonObject], anchors: Iterable[JsonObject]
) -> Iterator[tuple[str, str, int]]:
    for configmap in configmaps:
        name = annotations_of(configmap).get(NODE_NAME_ANNOTATION, "")
        yield labels_of(configmap).get(VIRTUAL_NODE_LABEL, ""), name, 1
    for anchor in anchors:
        lines = [name for name in anchor.get("data") or {} if name != README]
        yield labels_of(anchor).get(VIRTUAL_NODE_LABEL, ""), "", len(lines)

"""Who refers to which companion: `demand` kept up to date event by event. Nothing is counted. Pure.

What a pod refers to is read from its spec once: it changes only with the generation, and debug
containers come on top. Status writes of thousands of pods cost a comparison each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from federate.companions.demand import Demand
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.references import names_used, wants_of
from federate.model.marks import Scope, claims_mirror, origin_of, record_of
from federate.model.objects import JsonObject, ObjectKey, metadata_of, spec_of, uid_of
from federate.model.pods import is_terminal

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Place: TypeAlias = tuple[Kind, ObjectKey]
"""An object by kind and key: of the hub, or of the target."""


def as_it_is(hub_pod: JsonObject) -> JsonObject:
    """Return a hub pod of which all reaches the target."""
    return hub_pod


class Stamp(NamedTuple):
    """What must be the same for a pod's references to be."""

    uid: str
    generation: int
    debuggers: int
    is_over: bool
    target_namespace: str | None = None
    claims_mirror: bool = True
    """A mirror is on record, by an annotation that whoever may edit the pod can write."""
    has_mirror: bool = True
    """It stands there, and is the pod's."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What one hub pod wants."""

    stamp: Stamp
    keys: frozenset[CompanionKey]
    seen_at: float
    """When the pod was first seen."""
    kept: frozenset[CompanionKey] = frozenset()
    """What is not brought for it, but stays while it lives."""
    named: frozenset[CompanionKey] = frozenset()
    """What it names while it has no mirror: whether it is refused decides if it wants that, and may
    change without a word in the stamp, by labels and annotations."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What a pod's change made of the demand."""

    wish: Wish | None
    begun: frozenset[CompanionKey]
    """No hub pod wanted them before; at a start mirrors may have been told of first."""
    ended: frozenset[CompanionKey]
    """Nobody wants them any more."""
    left: frozenset[CompanionKey] = frozenset()
    """This pod does not want them any more."""


class Wanted:
    """The hub pods and mirrors of one virtual node, by what they refer to."""

    def __init__(
        self,
        *,
        scope: Scope,
        shared: Collection[tuple[Kind, str]],
        brings_tokens: bool,
        is_refused: Callable[[JsonObject], bool],
        has_mirror: Callable[[JsonObject], bool],
        travelling: Callable[[JsonObject], JsonObject] = as_it_is,
    ) -> None:
        self._scope = scope
        self._shared = shared
        self._brings_tokens = brings_tokens
        self._is_refused = is_refused
        self._has_mirror = has_mirror
        self._travelling = travelling
        self._wishes: dict[ObjectKey, Wish] = {}
        self._by_key: dict[CompanionKey, set[ObjectKey]] = defaultdict(set)
        self._kept: dict[CompanionKey, set[ObjectKey]] = defaultdict(set)
        self._mirrors: dict[ObjectKey, tuple[Stamp, frozenset[Place]]] = {}
        self._by_place: dict[Place, set[ObjectKey]] = defaultdict(set)
        self._keys_at: dict[Place, CompanionKey] = {}
        """Companions that were heard of, by where they stand."""
        self._of_object: dict[Place, set[CompanionKey]] = defaultdict(set)
        """Those that hub pods want, by the object of the hub."""

    # -- asking ------------------------------------------------------------------------------------

    def wants(self, key: CompanionKey, *, leaving: bool = False) -> bool:
        """Tell whether a hub pod or a mirror refers to it.

        `leaving`: only what a mirror refers to counts, for no new ones are made.
        """
        by_pods = key in self._by_key or key in self._kept
        return self._place(key) in self._by_place or (not leaving and by_pods)

    def is_used(self, kind: Kind, place: ObjectKey) -> bool:
        """Tell whether a mirror refers to an object of the target."""
        return (kind, place) in self._by_place

    def has_hub_pod(self, key: CompanionKey) -> bool:
        """Tell whether a hub pod refers to it: only then may the hub's object be read.

        Who may write in the target could make a mirror refer to whatever he likes to have.
        """
        return key in self._by_key

    def __iter__(self) -> Iterator[CompanionKey]:
        """Yield what hub pods want, as it is now."""
        return iter(list(self._by_key))

    def of_object(self, kind: Kind, hub_key: ObjectKey) -> tuple[CompanionKey, ...]:
        """Return the wanted companions of an object of the hub: one for each target namespace."""
        return tuple(self._of_object.get((kind, hub_key), ()))

    def demand(self) -> Demand:
        """Return all of it, as it is now."""
        keys = frozenset(self._by_key) | frozenset(self._kept)
        return Demand(keys=keys, used=frozenset(self._by_place))

    def mirror_of(self, key: ObjectKey) -> bool | None:
        """Tell whether the mirror that a hub pod claims stood there; None where it claims none."""
        wish = self._wishes.get(key)
        return wish.stamp.has_mirror if wish is not None and wish.stamp.claims_mirror else None

    def is_hub_pod_known(self, pod: JsonObject) -> bool:
        """Tell by its metadata whether what a hub pod wants is known, as it is in that version."""
        meta = metadata_of(pod)
        wish = self._wishes.get(ObjectKey(meta.get("namespace") or "", meta.get("name") or ""))
        return wish is not None and _is_of(wish.stamp, pod)

    def is_mirror_known(self, mirror: JsonObject) -> bool:
        """Tell the same of a mirror."""
        meta = metadata_of(mirror)
        known = self._mirrors.get(ObjectKey(meta.get("namespace") or "", meta.get("name") or ""))
        return known is not None and _is_of(known[0], mirror)

    # -- being told --------------------------------------------------------------------------------

    def hub_pod_is(
        self, key: ObjectKey, hub_pod: JsonObject, target_namespace: str | None, *, now: float
    ) -> Shift:
        """Take note of a hub pod as it is."""
        is_claimed = claims_mirror(hub_pod)
        stamp = _stamp_of(hub_pod)._replace(
            target_namespace=target_namespace,
            claims_mirror=is_claimed,
            has_mirror=is_claimed and self._has_mirror(hub_pod),
        )
        before = self._wishes.get(key)
        if before is not None and before.stamp == stamp:
            return self._asked_again(key, hub_pod, before)
        is_same_pod = before is not None and before.stamp.uid == stamp.uid
        seen_at = before.seen_at if before is not None and is_same_pod else now
        wish = self._wish_of(hub_pod, stamp, seen_at)
        self._wishes[key] = wish
        return self._shift(key, before, wish)

    def _asked_again(self, key: ObjectKey, hub_pod: JsonObject, before: Wish) -> Shift:
        is_same = not before.named or self._is_refused(hub_pod) == (not before.keys)
        wish = before if is_same else replace(before, keys=before.named - before.keys)
        self._wishes[key] = wish
        return self._shift(key, before, wish)

    def _wish_of(self, hub_pod: JsonObject, stamp: Stamp, seen_at: float) -> Wish:
        nothing = Wish(stamp=stamp, keys=frozenset(), seen_at=seen_at)
        if stamp.target_namespace is None or stamp.is_over:
            return nothing
        if stamp.claims_mirror and not stamp.has_mirror:
            # Not in sight yet, gone, a lie, or robbed of its marks while it runs: nothing is made
            # for it, and nothing taken from it.
            return replace(nothing, kept=self._named_by(hub_pod, _claimed_namespace(hub_pod)))
        keys = self._named_by(hub_pod, stamp.target_namespace)
        if not keys or stamp.has_mirror:
            return replace(nothing, keys=keys)
        # Nothing of a pod that is refused goes anywhere; asked last, for it costs most.
        is_out = self._is_refused(hub_pod)
        return replace(nothing, keys=frozenset() if is_out else keys, named=keys)

    def _named_by(self, hub_pod: JsonObject, target_namespace: str) -> frozenset[CompanionKey]:
        whole = self._travelling(hub_pod)
        return wants_of(whole, target_namespace, self._shared, brings_tokens=self._brings_tokens)

    def hub_pod_is_gone(self, key: ObjectKey) -> Shift:
        """Take note that a hub pod is no more."""
        return self._shift(key, self._wishes.pop(key, None), None)

    def mirror_is(self, key: ObjectKey, mirror: JsonObject | None) -> frozenset[CompanionKey]:
        """Take note of a mirror as it is, None: no more; return what nobody wants any more."""
        is_ours = mirror is not None and _is_of_scope(self._scope, mirror)
        stamp = _stamp_of(mirror) if mirror is not None and is_ours else None
        before = self._mirrors.get(key)
        if (before[0] if before is not None else None) == stamp:
            return frozenset()
        places_before = before[1] if before is not None else frozenset()
        places: frozenset[Place] = frozenset()
        if mirror is None or stamp is None:
            del self._mirrors[key]
        else:
            places = frozenset(
                (kind, ObjectKey(key.namespace, name)) for kind, name in names_used(mirror)
            )
            self._mirrors[key] = (stamp, places)
        for place in places:
            self._by_place[place].add(key)
        return self._leave(key, places_before - places)

    def heard_of(self, key: CompanionKey) -> None:
        """Take note that there is such a companion, so that its place leads to it."""
        self._keys_at[self._place(key)] = key

    def forget(self, key: CompanionKey) -> None:
        """Forget a companion that is gone, and that nobody wants."""
        self._keys_at.pop(self._place(key), None)

    # -- keeping -----------------------------------------------------------------------------------

    def _place(self, key: CompanionKey) -> Place:
        return key.kind, name_of(self._scope, key)

    def _shift(self, pod: ObjectKey, before: Wish | None, after: Wish | None) -> Shift:
        old = before.keys if before is not None else frozenset()
        new = after.keys if after is not None else frozenset()
        begun = {key for key in new - old if not self.has_hub_pod(key)}
        for key in new - old:
            self._by_key[key].add(pod)
            self._of_object[key.kind, key.hub_key].add(key)
            self.heard_of(key)
        kept_before = before.kept if before is not None else frozenset()
        kept = after.kept if after is not None else frozenset()
        for key in kept - kept_before:
            self._kept[key].add(pod)
        for key in kept_before - kept:
            discard(self._kept, key, pod)
        # A record alone says nothing of what there is: it leads to no look anywhere.
        released = {key for key in kept_before - kept if self._place(key) in self._keys_at}
        left = old - new
        for key in left:
            discard(self._by_key, key, pod)
            if key not in self._by_key:
                discard(self._of_object, (key.kind, key.hub_key), key)
        ended = frozenset(key for key in left | released if not self.wants(key))
        return Shift(wish=after, begun=frozenset(begun), ended=ended, left=left)

    def _leave(self, mirror: ObjectKey, places: Iterable[Place]) -> frozenset[CompanionKey]:
        ended = set()
        for place in places:
            discard(self._by_place, place, mirror)
            key = self._keys_at.get(place)
            if key is not None and not self.wants(key):
                ended.add(key)
        return frozenset(ended)


def discard(index: dict[K, set[V]], name: K, member: V) -> None:
    """Take one out of an index, in which nothing stands for an empty set."""
    members = index.get(name)
    if members is not None:
        members.discard(member)
        if not members:
            del index[name]


def _stamp_of(pod: JsonObject) -> Stamp:
    return Stamp(
        uid=uid_of(pod),
        generation=_generation_of(pod),
        debuggers=len(spec_of(pod).get("ephemeralContainers") or ()),
        is_over=is_terminal(pod),
    )


def _generation_of(pod: JsonObject) -> int:
    return int(metadata_of(pod).get("generation") or 0)


def _is_of(stamp: Stamp, pod: JsonObject) -> bool:
    return (stamp.uid, stamp.generation) == (uid_of(pod), _generation_of(pod))


def _is_of_scope(scope: Scope, mirror: JsonObject) -> bool:
    origin = origin_of(mirror)
    return origin is not None and origin.scope == scope


def _claimed_namespace(hub_pod: JsonObject) -> str:
    record = record_of(hub_pod)
    return record.mirror.namespace if record is not None else ""

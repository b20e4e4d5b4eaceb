"""Which pods of a virtual node live where: what Services and policies are compared with. Pure.

A pod counts from its intent on until it is over or gone: from then on there is, or may be, a mirror
of it. A pod that gets none, because it is refused, say, counts nowhere: nothing is made for it.
Pods of one controller share their labels, so a thousand of them cost one comparison.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from federate.model.marks import record_of
from federate.model.objects import JsonObject, ObjectKey, key_of, labels_of, status_of
from federate.model.pods import is_terminal, phase_of
from federate.services.addresses import pod_addresses

LabelSet: TypeAlias = frozenset[tuple[str, str]]


class Place(NamedTuple):
    """A hub namespace, and where its pods run."""

    namespace: str
    target_namespace: str


class Resident(NamedTuple):
    """What is known of one pod."""

    place: Place
    labels: LabelSet
    is_hidden: bool
    """It runs, and shows no address."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a change of one pod made of it all."""

    begun: Place | None = None
    """It is the first pod there."""
    ended: Place | None = None
    """It was the last pod there."""
    has_news: bool = False
    """Nobody had these labels there before, or nobody without an address."""


class Population:
    """The pods of one virtual node."""

    def __init__(self) -> None:
        self._residents: dict[ObjectKey, Resident] = {}
        self._sizes: Counter[Place] = Counter()
        self._labels: dict[str, Counter[LabelSet]] = defaultdict(Counter)
        self._hidden: dict[str, Counter[LabelSet]] = defaultdict(Counter)

    def lives_at(self, place: Place) -> bool:
        """Tell whether any pod does."""
        return place in self._sizes

    def places(self) -> Iterator[Place]:
        """Yield where pods live, as it is now."""
        return iter(list(self._sizes))

    def places_of(self, namespace: str) -> Iterator[Place]:
        """Yield where pods of a hub namespace live."""
        return (place for place in self.places() if place.namespace == namespace)

    def label_sets(self, namespace: str) -> Iterator[Mapping[str, str]]:
        """Yield the different labels of the pods of a hub namespace."""
        return map(dict, list(self._labels.get(namespace, ())))

    def hidden_label_sets(self, namespace: str) -> Iterator[Mapping[str, str]]:
        """Yield those of the pods that run and show no address."""
        return map(dict, list(self._hidden.get(namespace, ())))

    def pod_is(self, key: ObjectKey, hub_pod: JsonObject | None) -> Move:
        """Take note of a hub pod as it is, None: no more."""
        before = self._residents.get(key)
        after = _resident(hub_pod) if hub_pod is not None else None
        if before == after:
            return Move()
        has_news = after is not None and self._enter(key, after)
        is_first = after is not None and self._sizes[after.place] == 1
        ended = self._leave(key, before, is_back=after is not None) if before is not None else None
        moved = after is not None and (before is None or before.place != after.place)
        return Move(
            begun=after.place if after is not None and is_first and moved else None,
            ended=ended,
            has_news=has_news,
        )

    def _enter(self, key: ObjectKey, resident: Resident) -> bool:
        self._residents[key] = resident
        self._sizes[resident.place] += 1
        namespace, labels = resident.place.namespace, resident.labels
        self._labels[namespace][labels] += 1
        is_new = self._labels[namespace][labels] == 1
        if resident.is_hidden:
            self._hidden[namespace][labels] += 1
            is_new = is_new or self._hidden[namespace][labels] == 1
        return is_new

    def _leave(self, key: ObjectKey, resident: Resident, *, is_back: bool) -> Place | None:
        if not is_back:
            del self._residents[key]
        namespace, labels = resident.place.namespace, resident.labels
        _take_one(self._labels, namespace, labels)
        if resident.is_hidden:
            _take_one(self._hidden, namespace, labels)
        self._sizes[resident.place] -= 1
        if self._sizes[resident.place]:
            return None
        del self._sizes[resident.place]
        return resident.place


def _take_one(counts: dict[str, Counter[LabelSet]], namespace: str, labels: LabelSet) -> None:
    of_namespace = counts[namespace]
    of_namespace[labels] -= 1
    if not of_namespace[labels]:
        del of_namespace[labels]
    if not of_namespace:
        del counts[namespace]


def target_namespace_of(hub_pod: JsonObject) -> str | None:
    """Say where a pod's mirror stands, or will; None where it has none, or is over."""
    record = record_of(hub_pod)
    return record.mirror.namespace if record is not None and not is_terminal(hub_pod) else None


def _resident(hub_pod: JsonObject) -> Resident | None:
    target_namespace = target_namespace_of(hub_pod)
    if target_namespace is None:
        return None
    is_running = phase_of(hub_pod) == "Running"
    return Resident(
        place=Place(key_of(hub_pod).namespace, target_namespace),
        labels=frozenset(labels_of(hub_pod).items()),
        is_hidden=is_running and not pod_addresses(status_of(hub_pod)),
    )

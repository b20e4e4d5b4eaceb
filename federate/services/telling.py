"""Tell hub objects once that they select pods here: Services without addresses, policies.

An object is told by one Event in the life of this process, however many pods it selects and however
often they come and go; a namespace is looked at after something in it changed, a few Events at a
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from federate.cluster.store import Change
from federate.model.objects import JsonObject, uid_of
from federate.services.watched import HubObjects

PERIOD_SECONDS = 5.0
TOLD_AT_ONCE = 20
"""Events of one look: they share their way to the hub with those about pods."""


class SelectionTeller:
    """Tells objects of one kind; `run` it until cancelled."""

    def __init__(
        self,
        objects: HubObjects,
        *,
        selects: Callable[[JsonObject, Mapping[str, str]], bool],
        label_sets: Callable[[str], Iterable[Mapping[str, str]]],
        tell: Callable[[JsonObject], None],
    ) -> None:
        self._objects = objects
        self._selects = selects
        self._label_sets = label_sets
        self._tell = tell
        self._told: set[str] = set()
        self._changed: dict[str, None] = {}
        objects.listen(self._on_object)

    def look_at(self, namespace: str) -> None:
        """Have a namespace looked at: pods came, or changed."""
        self._changed[namespace] = None

    def _on_object(self, change: Change) -> None:
        if change.new is not None:
            self.look_at(change.key.namespace)
        elif change.old is not None:
            self._told.discard(uid_of(change.old))

    async def run(self) -> None:
        """Look at what changed, now and then."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            self.look()

    def look(self) -> int:
        """Tell who is to be told, a few at a time; returns how many that were."""
        told = 0
        while self._changed and told < TOLD_AT_ONCE:
            namespace = next(iter(self._changed))
            label_sets = list(self._label_sets(namespace))
            if label_sets and not self._objects.is_known:
                self._objects.want()
                break
            told += self._look_into(namespace, label_sets, TOLD_AT_ONCE - told)
        return told

    def _look_into(self, namespace: str, label_sets: Sequence[Mapping[str, str]], most: int) -> int:
        told = 0
        for obj in self._objects.in_namespace(namespace) if label_sets else ():
            if uid_of(obj) in self._told or not self._selects_any(obj, label_sets):
                continue
            if told == most:
                return told  # the rest of the namespace is for the next look
            self._told.add(uid_of(obj))
            self._tell(obj)
            told += 1
        del self._changed[namespace]
        return told

    def _selects_any(self, obj: JsonObject, label_sets: Iterable[Mapping[str, str]]) -> bool:
        return any(self._selects(obj, labels) for labels in label_sets)

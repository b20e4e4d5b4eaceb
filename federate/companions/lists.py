"""What is on record of all that came along, as the target shows it; and how entries come and go.

ConfigMaps are known by their marks. Each Secret has an entry, a ConfigMap of its name, before it is
made (`entries`): so one watch of ConfigMaps tells of everything, and no Secret is ever listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import structlog

from federate.cluster.store import Change, Store
from federate.companions.entries import is_entry, lines_of, render_entry, taking_up_entry
from federate.companions.ports import CompanionPorts
from federate.companions.record import Key, told_by, told_by_anchor
from federate.errors import AlreadyExists, Conflict, NotOurs
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    is_terminating,
    resource_version_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS

log = structlog.stdlib.get_logger(__name__)

Listener: TypeAlias = Callable[[Key, bool], None]
"""Told what came on record (True), changed there, or is off it (False)."""


class Lists:
    """What is on record in all target namespaces; satisfies `ListsPort`.

    `configmaps` holds what the target shows of ConfigMaps that came along, entries too; whoever
    feeds it tells each change to `note`.
    """

    def __init__(self, ports: CompanionPorts, configmaps: Store) -> None:
        self._ports = ports
        self._configmaps = configmaps
        self._keys: dict[ObjectKey, Key] = {}
        self.listeners: list[Listener] = []

    # -- what is on record -------------------------------------------------------------------------

    def note(self, change: Change) -> None:
        """Take note of a change of `configmaps`."""
        before = self._keys.pop(change.key, None)
        after = told_by(self._ports.scope, change.new) if change.new is not None else None
        if after is not None:
            self._keys[change.key] = after
        for listener in self.listeners:
            if before is not None and before != after:
                listener(before, False)
            if after is not None:
                listener(after, True)

    def on_record(self) -> set[Key]:
        """Return all that is on record; an entry says that there may be a Secret, no more."""
        found = set(self._keys.values())
        for anchor in self._ports.anchors.values():
            found.update(told_by_anchor(self._ports.scope, anchor))
        return found

    def entry(self, place: ObjectKey) -> JsonObject | None:
        """Return the entry of the Secret at that place, while it stands."""
        found = self._configmaps.get(place)
        if found is None or is_terminating(found) or not is_entry(self._ports.scope, found):
            return None
        return found

    def has_line(self, place: ObjectKey) -> bool:
        """Tell whether an earlier version put it on the list in the anchor."""
        anchor = self._ports.ground.anchor(place.namespace)
        return anchor is not None and place.name in lines_of(anchor)

    # -- coming and going --------------------------------------------------------------------------

    async def enlist(self, place: ObjectKey, said: str) -> JsonObject:
        """Make the entry of a Secret, or take up the one that is there; returns it.

        Raises:
            Conflict: it changed meanwhile, or the anchor is not there: look again.
            NotOurs: something of that name stands there that is no entry of ours.
            ClusterError: whatever the target answered; nothing may be made then.
        """
        anchor = self._ports.ground.anchor(place.namespace)
        if anchor is None:
            raise Conflict("the anchor is not there", subject=f"entry {place}")
        wanted = render_entry(place, said, scope=self._ports.scope, anchor=anchor)
        with self._configmaps.writing(place) as ticket:
            known = self.entry(place)
            if known is None:
                entry = await self._create(place, wanted)
            else:
                entry = await self._take_up(place, known, wanted)
            shown = ticket.commit(entry)
        if shown is not None:
            self.note(shown)
        return entry

    async def _create(self, place: ObjectKey, wanted: JsonObject) -> JsonDict:
        target = self._ports.target
        self._fence()
        try:
            made = await target.create(CONFIGMAPS, wanted, namespace=place.namespace)
        except AlreadyExists:
            found = await target.get(CONFIGMAPS, place)
            self._must_be_entry(place, found)
            return await self._take_up(place, found, wanted)
        if not is_entry(self._ports.scope, made):
            await target.delete(CONFIGMAPS, place, uid=uid_of(made))
        self._must_be_entry(place, made)
        return made

    def _must_be_entry(self, place: ObjectKey, found: JsonObject) -> None:
        if not is_entry(self._ports.scope, found):
            raise NotOurs(
                f"ConfigMap {place} of {self._ports.target_name}, which shall keep on record that "
                "a Secret of this name stands there, does not carry federate's marks: remove or "
                "rename it, or let admission there leave federate.dev/ keys alone"
            )

    async def _take_up(self, place: ObjectKey, entry: JsonObject, wanted: JsonObject) -> JsonDict:
        if is_terminating(entry):
            raise Conflict("it is still being removed", subject=f"entry {place}")
        self._fence()
        return await self._ports.target.patch(CONFIGMAPS, place, taking_up_entry(entry, wanted))

    async def strike(self, place: ObjectKey, entry: JsonObject | None) -> None:
        """Take a Secret off record that is gone for sure: delete its entry as it was seen before.

        Raises:
            Conflict: somebody put it to use meanwhile: look again.
            ClusterError: whatever the target answered.
        """
        if entry is not None:
            await self._delete(place, entry)
        if self.has_line(place):
            await self._ports.ground.note(place.namespace, {place.name: None}, exact=True)

    async def _delete(self, place: ObjectKey, entry: JsonObject) -> None:
        with self._configmaps.writing(place) as ticket:
            self._fence()
            left = await self._ports.target.delete(
                CONFIGMAPS,
                place,
                uid=uid_of(entry),
                resource_version=resource_version_of(entry),
            )
            if left is not None and is_terminating(left):
                log.info("an entry is held by somebody's finalizer", entry=str(place))
                shown = ticket.commit(left)
            else:
                shown = ticket.commit_deleted(uid_of(entry))
        if shown is not None:
            self.note(shown)

    def _fence(self) -> None:
        self._ports.fence()
        self._ports.fence_target()

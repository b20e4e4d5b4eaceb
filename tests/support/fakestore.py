"""What is behind the in-memory API server: every object, every version, every watch.

One counter numbers all writes, as etcd does. Stored objects are never changed in place: what is
read may be kept, what is written is copied. A watch is a queue of changes, so it sees all of them
in order however late it reads.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from federate.cluster.port import WatchEvent
from federate.errors import Expired
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.resources import Resource
from tests.support.selectors import Selection

FIRST_VERSION = 1000
ANYTHING = Resource(group_version="", plural="", kind="", namespaced=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write: `old` is None for a creation, `new` for a removal."""

    version: int
    resource: Resource
    key: ObjectKey
    old: JsonDict | None
    new: JsonDict | None


class Signal(Enum):
    """What happens to a watch apart from changes."""

    BOOKMARK = "send a bookmark"
    CLOSE = "the server ends the watch"
    BREAK = "the connection breaks"


Message: TypeAlias = Change | Signal
Backup: TypeAlias = dict[Resource, dict[ObjectKey, JsonDict]]


class Watching:
    """One open watch of a resource."""

    def __init__(self, resource: Resource, *, client: str, after: int) -> None:
        self.resource = resource
        self.client = client
        self.after = after
        self.messages: asyncio.Queue[Message] = asyncio.Queue()

    def tell(self, change: Change) -> None:
        """Queue the change where it is of this resource and later than where the watch began."""
        if change.resource == self.resource and change.version > self.after:
            self.messages.put_nowait(change)


class Eyes(Watching):
    """A watch of everything that is told at once instead of queueing."""

    def __init__(self, see: Callable[[Change], None]) -> None:
        super().__init__(ANYTHING, client="", after=0)
        self._see = see

    def tell(self, change: Change) -> None:
        self._see(change)


class FakeStore:
    """Objects by resource and key, their history, and the watches on them."""

    def __init__(self) -> None:
        self.version = FIRST_VERSION
        self.watches: list[Watching] = []
        self._objects: dict[Resource, dict[ObjectKey, JsonDict]] = {}
        self._history: list[Change] = []
        self._compacted = FIRST_VERSION

    def get(self, resource: Resource, key: ObjectKey) -> JsonDict | None:
        """Return the stored object: to be read, not to be changed."""
        return self._objects.get(resource, {}).get(key)

    def all(self) -> Iterator[tuple[Resource, JsonDict]]:
        """Iterate over a snapshot of everything."""
        for resource, objects in list(self._objects.items()):
            for obj in list(objects.values()):
                yield resource, obj

    def select(self, selection: Selection, *, lag: int = 0) -> list[JsonDict]:
        """Return matching objects in the order of their keys, as they stood `lag` changes ago."""
        objects = dict(self._objects.get(selection.resource, {}))
        for change in reversed(self._history[max(0, len(self._history) - lag) :]):
            if change.resource != selection.resource:
                continue
            if change.old is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.old
        return [objects[key] for key in sorted(objects) if selection.matches(objects[key])]

    def version_before(self, lag: int) -> int:
        """Return the version as of `lag` changes ago."""
        shown = self._history[: max(0, len(self._history) - lag)]
        return shown[-1].version if shown else self._compacted

    def write(self, resource: Resource, key: ObjectKey, obj: JsonObject) -> JsonDict:
        """Store a new version of the object, tell the watches, and return it."""
        new = copy.deepcopy(dict(obj))
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self._commit(resource, key, new)
        return new

    def remove(self, resource: Resource, key: ObjectKey) -> None:
        """Remove the object and tell the watches."""
        self.version += 1
        self._commit(resource, key, None)

    def changes_after(self, version: int) -> int:
        """Count the changes since then that are remembered."""
        return sum(change.version > version for change in self._history)

    def backup(self) -> Backup:
        """Return everything as it is; stored objects never change, so no copy is needed."""
        return {resource: dict(objects) for resource, objects in self._objects.items()}

    def restore(self, backup: Backup) -> None:
        """Put everything back as it was, under its old versions; no watch is told."""
        self._objects = {resource: dict(objects) for resource, objects in backup.items()}
        self.version += 1
        self.compact()

    def compact(self) -> None:
        """Forget the history: who watches from an older version must list again."""
        self._history.clear()
        self._compacted = self.version

    def open_watch(self, resource: Resource, *, client: str, version: int) -> Watching:
        """Start a watch with everything that changed after `version`.

        One from a version that is not reached yet stays silent until then, as on a real server.

        Raises:
            Expired: that version is compacted.
        """
        if version < self._compacted:
            raise Expired(f"too old resource version: {version}", reason="Expired", status=410)
        watching = Watching(resource, client=client, after=version)
        for change in self._history:
            watching.tell(change)
        self.watches.append(watching)
        return watching

    def close_watch(self, watching: Watching) -> None:
        """Forget a watch nobody reads any more."""
        if watching in self.watches:
            self.watches.remove(watching)

    def signal(self, signal: Signal, *, client: str = "") -> None:
        """Send a signal to all watches, or to those of one client."""
        for watching in self.watches:
            if not client or watching.client == client:
                watching.messages.put_nowait(signal)

    def _commit(self, resource: Resource, key: ObjectKey, new: JsonDict | None) -> None:
        objects = self._objects.setdefault(resource, {})
        change = Change(
            version=self.version, resource=resource, key=key, old=objects.get(key), new=new
        )
        if new is None:
            objects.pop(key)
        else:
            objects[key] = new
        self._history.append(change)
        for watching in self.watches:
            watching.tell(change)


def event_of(change: Change, selection: Selection) -> WatchEvent | None:
    """Say what a watch with that selection sees of a change, if anything.

    An object that stops matching is DELETED in its last matching state, under the new version.
    """
    before = change.old is not None and selection.matches(change.old)
    after = change.new is not None and selection.matches(change.new)
    if after and change.new is not None:
        return WatchEvent(type="MODIFIED" if before else "ADDED", object=copy.deepcopy(change.new))
    if before and change.old is not None:
        last = copy.deepcopy(change.old)
        last["metadata"]["resourceVersion"] = str(change.version)
        return WatchEvent(type="DELETED", object=last)
    return None

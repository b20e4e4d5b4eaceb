"""Last-known objects of one reflector: a keyed, indexed mirror of a collection.

One writer (the reflector, or one for each of several namespaces) feeds it listings and watch
events; anybody reads. Everyone who writes to the API server opens a `WriteTicket` around the
request, so that readers see what was written before the watch brings it: the rule is at
`Store.writing`. Objects handed out are shared and read-only. resourceVersions are compared for
equality only, never ordered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from federate.cluster.port import WatchEvent
from federate.cluster.shelf import Glance, Listed, Shelf
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    metadata_of,
    resource_version_of,
    uid_of,
)
from federate.model.objects import drop_managed_fields as drop_managed_fields

Indexer: TypeAlias = Callable[[JsonObject], Iterable[str]]

_KNOWN_BY = ("namespace", "name", "uid", "resourceVersion")

DELETED_LIMIT = 10_000
"""Deleted objects remembered. Too few: the exit state of a pod is lost before anyone asks."""


class Change:
    """What became of one key: `old` None is an addition, `new` None a deletion.

    A change may hold its objects packed until somebody looks: a listing makes very many of them.
    """

    __slots__ = ("_new", "_old", "key")

    def __init__(
        self, *, key: ObjectKey, old: JsonObject | Glance | None, new: JsonObject | Glance | None
    ) -> None:
        self.key = key
        self._old = old
        self._new = new

    @property
    def old(self) -> JsonObject | None:
        """The object before."""
        if isinstance(self._old, Glance):
            self._old = self._old.unpack()
        return self._old

    @property
    def new(self) -> JsonObject | None:
        """The object since."""
        if isinstance(self._new, Glance):
            self._new = self._new.unpack()
        return self._new

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Change):
            return NotImplemented
        return (self.key, self.old, self.new) == (other.key, other.old, other.new)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Change(key={self.key!r}, old={self.old!r}, new={self.new!r})"


@dataclass(frozen=True, slots=True)
class _Pending:
    """Our own write, shown before its watch event: a version, or None for a removal."""

    uid: str
    version: str | None


@dataclass(frozen=True, slots=True)
class _Deleted:
    known: Glance
    final: bool


class WriteTicket:
    """One request to one key on its way; see `Store.writing`.

    Exactly one of the closing methods counts; leaving the `with` block open means `abort`.
    """

    __slots__ = ("_store", "deleted_uids", "in_doubt", "is_open", "key", "seen_versions")

    def __init__(self, store: Store, key: ObjectKey, version: str) -> None:
        self._store = store
        self.key = key
        self.seen_versions = {version}
        self.deleted_uids: set[str] = set()
        self.in_doubt = False
        self.is_open = True

    def commit(self, reply: JsonDict) -> Change | None:
        """Show the reply of a create, patch, replace, or of a delete that left it terminating.

        Returns the change that readers now see, None where the watch was faster.
        """
        self._close()
        return self._store._commit(self, reply)

    def commit_deleted(self, uid: str) -> Change | None:
        """Show that this very object is gone: removed by our delete, or not found by it."""
        self._close()
        return self._store._commit_deleted(self, uid)

    def abort(self) -> None:
        """Close without a reply: refused, or the outcome is unknown. The watch will tell."""
        if self.is_open:
            self._close()

    def _close(self) -> None:
        if not self.is_open:
            raise RuntimeError(f"the write ticket of {self.key} is closed already")
        self.is_open = False
        del self._store._tickets[self.key]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


class Store:
    """Objects by key and by index.

    `indexers` are pure functions from an object to the values it is found under; `transform`
    shrinks an object before it is kept and must leave metadata's name, namespace, uid and
    resourceVersion. `shelf` is where they are kept: as they are, or, for collections of many large
    ones, packed. Then whoever looks at all of them does so at a `glance`, where that is enough.
    """

    def __init__(
        self,
        *,
        indexers: Mapping[str, Indexer] | None = None,
        transform: Callable[[JsonDict], JsonObject] = drop_managed_fields,
        deleted_limit: int = DELETED_LIMIT,
        shelf: Shelf | None = None,
    ) -> None:
        self._objects = shelf if shelf is not None else Shelf()
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {n: {} for n in self._indexers}
        self._transform = transform
        self._deleted_limit = deleted_limit
        self._deleted: OrderedDict[str, _Deleted] = OrderedDict()
        self._pending: dict[ObjectKey, _Pending] = {}
        self._gone_unseen: OrderedDict[str, str] = OrderedDict()
        """Uid -> namespace."""
        self._tickets: dict[ObjectKey, WriteTicket] = {}

    # --- reading -------------------------------------------------------------------------------

    def get(self, key: ObjectKey) -> JsonObject | None:
        """Return the last-known object."""
        known = self._objects.glance(key)
        return None if known is None else self._objects.unpack(known)

    def glance(self, key: ObjectKey) -> Glance | None:
        """Return what is known of an object at a glance: cheap, also where objects are packed."""
        return self._objects.glance(key)

    def glances(self) -> ValuesView[Glance]:
        """Return a live view of what is known of all objects at a glance."""
        return self._objects.glances()

    def by_index(self, index: str, value: str) -> list[JsonObject]:
        """Return the objects that the indexer puts under `value`; KeyError for no such index."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def keys_by_index(self, index: str, value: str) -> list[ObjectKey]:
        """Return the keys of what `by_index` does."""
        return list(self._indexes[index].get(value, ()))

    def glances_by_index(self, index: str, value: str) -> list[Glance]:
        """Return what `by_index` does, at a glance."""
        found = (self._objects.glance(key) for key in self._indexes[index].get(value, ()))
        return [glance for glance in found if glance is not None]

    def index_values(self, index: str) -> KeysView[str]:
        """Return a live view of the values that objects are found under."""
        return self._indexes[index].keys()

    def keys_in(self, namespace: str) -> list[ObjectKey]:
        """Return the keys of a namespace, all for ""."""
        return [key for key in self._objects if namespace in ("", key.namespace)]

    def keys(self) -> KeysView[ObjectKey]:
        """Return a live view of the keys."""
        return self._objects.keys()

    def values(self) -> ValuesView[JsonObject]:
        """Return a live view of the objects; packed ones are unpacked one by one, 15 us each."""
        return self._objects.values()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def last_deleted(self, uid: str) -> JsonObject | None:
        """Return the object of a deleted uid as it was last seen; see `deleted_is_final`."""
        found = self._deleted.get(uid)
        return self._objects.unpack(found.known) if found else None

    def deleted_is_final(self, uid: str) -> bool:
        """Tell whether `last_deleted` is the state at deletion, not merely the last one known.

        Objects that vanish between two listings, or by our own delete before its watch event,
        are the last known.
        """
        found = self._deleted.get(uid)
        return found is not None and found.final

    # --- the reflector's side ------------------------------------------------------------------

    def listed(self, item: JsonDict) -> Listed:
        """Make of an item what `replace` needs of it, so that a page of them can be let go."""
        metadata = metadata_of(item)
        known_by = {name: metadata[name] for name in _KNOWN_BY if name in metadata}
        return Listed({"metadata": known_by}, self._pack(item))

    def _pack(self, obj: JsonDict) -> Glance:
        return self._objects.pack(self._transform(obj))

    def replace(self, items: Iterable[JsonDict], *, namespace: str = "") -> list[Change]:
        """Take a fresh, full listing as the truth; return additions, changes, then deletions.

        One of a single namespace is the truth there, and says nothing of others. The
        listing wins over our own pending writes, and open tickets become doubtful: whether their
        reply is older or newer than the listing cannot be told; the watch that follows the listing
        brings it either way.
        """
        listed: dict[ObjectKey, JsonDict] = {key_of(item): item for item in items}
        kept = {
            key: item.glance if isinstance(item, Listed) else self._pack(item)
            for key, item in listed.items()
            if not _same_version(self._objects.glance(key), item)
        }
        self._forget_writes(namespace)
        changes = [self._replace(key, glance) for key, glance in kept.items()]
        vanished = [key for key in self.keys_in(namespace) if key not in listed]
        changes += [self._replace(key, None) for key in vanished]
        for item in listed.values():
            self._deleted.pop(uid_of(item), None)
        return changes

    def _forget_writes(self, namespace: str) -> None:
        """A listing of the namespace (of all for "") came: it outranks what we know of our own."""
        for ticket in self._tickets.values():
            ticket.in_doubt |= namespace in ("", ticket.key.namespace)
        if not namespace:
            self._pending.clear()
            self._gone_unseen.clear()
            return
        for key in [key for key in self._pending if key.namespace == namespace]:
            del self._pending[key]
        for uid in [uid for uid, where in self._gone_unseen.items() if where == namespace]:
            del self._gone_unseen[uid]

    def apply(self, event: WatchEvent) -> Change | None:
        """Take one watch event; return what readers see changed, if anything."""
        if event.type == "BOOKMARK":
            return None
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise ValueError(f"unknown watch event {event.type!r}")
        obj = event.object
        key, uid = key_of(obj), uid_of(obj)
        deleted = event.type == "DELETED"
        if ticket := self._tickets.get(key):
            if not self._is_shielded(key, obj):
                ticket.seen_versions.add(resource_version_of(obj))
            if deleted:
                ticket.deleted_uids.add(uid)
        if deleted:
            return self._apply_deleted(key, uid, obj)
        return self._apply_present(key, uid, obj)

    def _apply_present(self, key: ObjectKey, uid: str, obj: JsonDict) -> Change | None:
        if uid in self._gone_unseen:
            return None
        if self._is_shielded(key, obj):
            return None
        self._pending.pop(key, None)
        self._deleted.pop(uid, None)
        if _same_version(self._objects.glance(key), obj):
            return None
        return self._show(key, self._transform(obj))

    def _is_shielded(self, key: ObjectKey, obj: JsonDict) -> bool:
        """Tell whether a write of ours pends there, and this is not its own event."""
        pending = self._pending.get(key)
        return pending is not None and pending.version != resource_version_of(obj)

    def _apply_deleted(self, key: ObjectKey, uid: str, obj: JsonDict) -> Change | None:
        self._gone_unseen.pop(uid, None)
        pending = self._pending.get(key)
        if pending and pending.uid == uid:
            del self._pending[key]
        current = self._objects.glance(key)
        change = self._remove(key) if current and current.uid == uid else None
        seen = self._transform(obj)
        last = self._objects.pack(seen)
        self._objects.keep_at_hand(last, seen)
        self._remember_deleted(uid, _Deleted(last, final=True))
        return change

    # --- read your own writes ------------------------------------------------------------------

    def writing(self, key: ObjectKey) -> WriteTicket:
        """Open a ticket before a request that writes `key` is sent; close it with the reply.

        The watch brings every version of a key in order, and without gaps between two listings;
        the reply R of our own request overtakes it, or comes late. The rule:

        * R is the version shown when the ticket was opened, or one shown since, or R's uid was seen
          deleted: the store is at or past R, nothing is to be done. (A request that changes nothing
          answers with the version it found.)
        * Otherwise R is newer than all that was seen. It is shown at once and *pends*: whatever the
          watch brings for that key before R's own event is older, also where it is another uid,
          because a later object of that name can only follow our uid's DELETED. So events are
          ignored until R's own arrives, or the DELETED of its uid, which ends the pending.
        * A removal of an object shown here pends the same way; only its DELETED ends it. One never
          shown here is merely kept from appearing.
        * A listing ends it all; a ticket open across it commits nothing but removals of what the
          listing still shows, for a removed uid never comes back.

        It holds for objects the reflector selects. One that leaves the selection is DELETED to the
        watch, so its later replies are not shown (its uid was seen deleted). A quorum read under a
        ticket may be committed like a write.

        Raises RuntimeError where a ticket of that key is open: a key has one writer.
        """
        if key in self._tickets:
            raise RuntimeError(f"{key} is being written by someone else")
        current = self._objects.glance(key)
        ticket = WriteTicket(self, key, current.version if current else "")
        self._tickets[key] = ticket
        return ticket

    def _commit(self, ticket: WriteTicket, reply: JsonDict) -> Change | None:
        if key_of(reply) != ticket.key:
            raise ValueError(f"the reply is {key_of(reply)}, the ticket {ticket.key}")
        version, uid = resource_version_of(reply), uid_of(reply)
        seen = version in ticket.seen_versions or uid in ticket.deleted_uids
        # An object that merely was not in a listing is not gone for good: the reply knows better.
        if seen or ticket.in_doubt or self.deleted_is_final(uid):
            return None
        self._deleted.pop(uid, None)
        self._pending[ticket.key] = _Pending(uid, version)
        return self._show(ticket.key, self._transform(reply))

    def _commit_deleted(self, ticket: WriteTicket, uid: str) -> Change | None:
        current = self._objects.glance(ticket.key)
        if current is not None and current.uid == uid:
            self._pending[ticket.key] = _Pending(uid, None)
            return self._remove(ticket.key)
        if not (ticket.in_doubt or uid in ticket.deleted_uids or uid in self._deleted):
            self._gone_unseen[uid] = ticket.key.namespace
            _bound(self._gone_unseen, self._deleted_limit)
        return None

    # --- keeping -------------------------------------------------------------------------------

    def _show(self, key: ObjectKey, obj: JsonObject) -> Change:
        """Take one object, which is looked at next."""
        glance = self._objects.pack(obj)
        self._objects.keep_at_hand(glance, obj)
        return Change(key=key, old=self._put(key, glance), new=obj)

    def _remove(self, key: ObjectKey) -> Change:
        return Change(key=key, old=self._take(key), new=None)

    def _replace(self, key: ObjectKey, glance: Glance | None) -> Change:
        """Take one of many: nobody may look at it for long, so it stays packed."""
        known = self._objects.glance(key)
        if glance is None:
            self._take(key)
        else:
            self._put(key, glance)
        return Change(key=key, old=known, new=glance)

    def _put(self, key: ObjectKey, glance: Glance) -> JsonObject | None:
        """Keep an object, and return the one before."""
        known, old = self._objects.glance(key), None
        if known is not None:
            old = self._objects.peek(known)
            self._unindex(key, old)
            if known.uid != glance.uid:
                self._remember_deleted(known.uid, _Deleted(known, final=False))
        self._objects.put(key, glance)
        obj = self._objects.peek(glance)
        for name, indexer in self._indexers.items():
            for value in indexer(obj):
                self._indexes[name].setdefault(value, {})[key] = None
        return old

    def _take(self, key: ObjectKey) -> JsonObject:
        """Keep an object no longer, and return it."""
        known = self._objects.take(key)
        old = self._objects.peek(known)
        self._unindex(key, old)
        self._remember_deleted(known.uid, _Deleted(known, final=False))
        return old

    def _unindex(self, key: ObjectKey, obj: JsonObject) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in indexer(obj):
                members = index.get(value, {})
                members.pop(key, None)
                if not members:
                    index.pop(value, None)

    def _remember_deleted(self, uid: str, deleted: _Deleted) -> None:
        self._deleted[uid] = deleted
        self._deleted.move_to_end(uid)
        _bound(self._deleted, self._deleted_limit)


def _same_version(known: Glance | None, obj: JsonObject) -> bool:
    return (
        known is not None and known.version == resource_version_of(obj) and known.uid == uid_of(obj)
    )


def _bound(entries: OrderedDict[str, _Deleted] | OrderedDict[str, str], limit: int) -> None:
    while len(entries) > limit:
        entries.popitem(last=False)

"""Where a store keeps its objects: packed small, and unpacked when somebody looks.

A pod takes four times the memory of its JSON while it is a tree of dicts, and the garbage collector
walks through each of them. So big collections are kept as the bytes of their JSON; what was looked
at last stays unpacked, for a pod under way is looked at many times in a row. What is asked of many
objects at once (uid, version, whether it is being deleted) stands beside the bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, KeysView, Mapping, ValuesView
from typing import Any

import orjson

from federate.model.objects import (
    JsonObject,
    ObjectKey,
    as_plain,
    is_terminating,
    resource_version_of,
    uid_of,
)

UNPACKED_LIMIT = 128
"""Objects of a store that stay unpacked, 14 KB each. More than the workers have in hand together;
with fewer an object is unpacked again between two looks of one round (15 us)."""


class Glance:
    """What is known of an object without unpacking it; the same one as long as the object is."""

    __slots__ = ("_content", "terminating", "uid", "version")

    def __init__(self, obj: JsonObject, content: bytes | JsonObject) -> None:
        self.uid = uid_of(obj)
        self.version = resource_version_of(obj)
        self.terminating = is_terminating(obj)
        self._content = content

    def unpack(self) -> JsonObject:
        """Return the object, made anew where it is packed."""
        content = self._content
        if isinstance(content, bytes):
            unpacked: JsonObject = orjson.loads(content)
            return unpacked
        return content

    @property
    def is_packed(self) -> bool:
        """Tell whether `unpack` has something to do."""
        return isinstance(self._content, bytes)


class Listed(dict[str, Any]):
    """What stands for an item of a listing once it is packed: what it is known by, and no more."""

    def __init__(self, known_by: JsonObject, glance: Glance) -> None:
        super().__init__(known_by)
        self.glance = glance


class Shelf(Mapping[ObjectKey, JsonObject]):
    """Objects by key. With `packs` they are JSON as it came from the wire, and kept as bytes.

    What was read or put last is handed out as the same object again, the rest as an equal one.
    """

    def __init__(self, *, packs: bool = False, unpacked_limit: int = UNPACKED_LIMIT) -> None:
        self._glances: dict[ObjectKey, Glance] = {}
        self._packs = packs
        self._unpacked: OrderedDict[Glance, JsonObject] = OrderedDict()
        self._unpacked_limit = unpacked_limit

    # -- reading -----------------------------------------------------------------------------------

    def __getitem__(self, key: ObjectKey) -> JsonObject:
        return self.unpack(self._glances[key])

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._glances)

    def __len__(self) -> int:
        return len(self._glances)

    def __contains__(self, key: object) -> bool:
        return key in self._glances

    def keys(self) -> KeysView[ObjectKey]:
        """Return a live view of the keys."""
        return self._glances.keys()

    def values(self) -> ValuesView[JsonObject]:
        """Return a live view of the objects; each is unpacked when its turn comes."""
        return _Objects(self)

    def glance(self, key: ObjectKey) -> Glance | None:
        """Return what is known of an object at a glance."""
        return self._glances.get(key)

    def glances(self) -> ValuesView[Glance]:
        """Return a live view of what is known of all objects at a glance."""
        return self._glances.values()

    def unpack(self, glance: Glance) -> JsonObject:
        """Return the object, and keep it at hand."""
        if not glance.is_packed:
            return glance.unpack()
        unpacked = self._unpacked.get(glance)
        if unpacked is None:
            unpacked = glance.unpack()
            self.keep_at_hand(glance, unpacked)
        else:
            self._unpacked.move_to_end(glance)
        return unpacked

    def peek(self, glance: Glance) -> JsonObject:
        """Return the object for once: nothing that is at hand gives way to it."""
        return self._unpacked.get(glance) or glance.unpack()

    # -- keeping -----------------------------------------------------------------------------------

    def pack(self, obj: JsonObject) -> Glance:
        """Make what is kept of an object."""
        if not self._packs:
            return Glance(obj, obj)
        try:
            # orjson leaves its result in a buffer of a power of two; a copy takes what it needs.
            packed = bytes(memoryview(orjson.dumps(obj, default=as_plain)))
        except TypeError:
            return Glance(obj, obj)  # what a parser took and no writer can: nested without end
        return Glance(obj, packed)

    def keep_at_hand(self, glance: Glance, obj: JsonObject) -> None:
        """Let the next looks at a packed object be looks at this very one."""
        if not glance.is_packed:
            return
        self._unpacked[glance] = obj
        if len(self._unpacked) > self._unpacked_limit:
            self._unpacked.popitem(last=False)

    def put(self, key: ObjectKey, glance: Glance) -> None:
        """Keep an object in the place of the one before."""
        before = self._glances.get(key)
        if before is not None:
            self._unpacked.pop(before, None)
        self._glances[key] = glance

    def take(self, key: ObjectKey) -> Glance:
        """Give up an object; KeyError where there is none."""
        return self._glances.pop(key)


class _Objects(ValuesView[JsonObject]):
    """All objects, without those that are at hand giving way to those that are passed by."""

    _mapping: Shelf

    def __iter__(self) -> Iterator[JsonObject]:
        return map(self._mapping.peek, self._mapping.glances())

"""The lists in the anchors: each Secret stands there by name before it is made (decision 0020).

A list is one object that many companions write. While one request is under way the next entries
gather, and go together: a burst of a thousand costs some dozens of requests.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass, field

from federate.companions.ports import GroundPort
from federate.errors import FederateError, Unreachable


@dataclass(eq=False)
class _Batch:
    """Entries that go in one request, and what became of it."""

    entries: dict[str, str | None] = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    failure: FederateError | None = None


class Lists:
    """The lists of all target namespaces; satisfies `ListsPort`."""

    def __init__(self, ground: GroundPort) -> None:
        self._ground = ground
        self._under_way: dict[str, asyncio.Lock] = {}
        self._gathering: dict[tuple[str, bool], _Batch] = {}

    def entry(self, namespace: str, name: str) -> str | None:
        """Return what the namespace's anchor says beside a name; None where it is not listed."""
        anchor = self._ground.anchor(namespace)
        data = (anchor.get("data") or {}) if anchor is not None else {}
        said: str | None = data.get(name)
        return said

    async def enlist(self, namespace: str, name: str, entry: str) -> None:
        """Put a name on the list; returns once it is written.

        Raises:
            ClusterError: whatever the target answered; nothing may be made then.
        """
        await self._write(namespace, name, entry)

    async def strike(self, namespace: str, name: str) -> None:
        """Take a name off the list: what it names is gone for sure.

        Under the list's version: who led before and wakes up late must not take off the name of
        what was made again meanwhile.

        Raises:
            Conflict: somebody wrote the list meanwhile: look again.
            ClusterError: whatever the target answered.
        """
        await self._write(namespace, name, None)

    async def _write(self, namespace: str, name: str, entry: str | None) -> None:
        which = (namespace, entry is None)
        batch = self._gathering.get(which)
        if batch is not None:
            batch.entries[name] = entry
            await batch.ended.wait()
        else:
            batch = self._gathering[which] = _Batch({name: entry})
            await self._send(batch, which)
        if batch.failure is not None:
            raise copy(batch.failure) from batch.failure

    async def _send(self, batch: _Batch, which: tuple[str, bool]) -> None:
        """Wait for the request before, and send all that has gathered meanwhile."""
        namespace, is_strike = which
        # For whoever waits with us, should this task be cancelled.
        batch.failure = Unreachable("the request was given up", verb="patch", subject="anchor")
        try:
            async with self._under_way.setdefault(namespace, asyncio.Lock()):
                del self._gathering[which]
                await self._ground.note(namespace, batch.entries, exact=is_strike)
            batch.failure = None
        except FederateError as error:
            batch.failure = error
        finally:
            if self._gathering.get(which) is batch:
                del self._gathering[which]
            batch.ended.set()

"""Ask for what no watch tells of: metadata by name, at a bounded pace.

On the hub that is what is beyond the limit of watches, or may not be watched. In the target it is
everything: Secrets are never listed or watched there, and of ConfigMaps a word may be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.keys import Kind
from federate.errors import ClusterError, Forbidden, NotFound
from federate.model.objects import ObjectKey, resource_version_of

log = structlog.stdlib.get_logger(__name__)

LOOKS_PER_SECOND = 20
"""Requests a second, to hub and target together. Fewer, and changes beyond the limit of watches
come later; more, and a large virtual node is felt by its API servers."""
HUB_SECONDS = 30.0
"""How old what is known of an object of the hub may be: all are asked for within this, or within as
many seconds as their number by the pace."""
TARGET_SECONDS = 300.0
"""The same of what stands in the target: nobody but us has business there."""
PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One object to be asked for."""

    cluster: ClusterPort
    kind: Kind
    key: ObjectKey
    due_at: float
    known_version: str
    """"" where there was none."""
    confirmed: Callable[[], None]
    """It is as it was."""
    differs: Callable[[], None]


class Looking:
    """`run` it until cancelled; `due` lists what is to be asked for at a time."""

    def __init__(
        self,
        *,
        due: Callable[[float], Iterable[Look]],
        count_read: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._due = due
        self._count_read = count_read
        self._clock = clock

    async def run(self) -> None:
        """Ask, oldest first."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            looks = sorted(self._due(self._clock()), key=lambda look: look.due_at)
            async with asyncio.TaskGroup() as group:
                for look in looks[:LOOKS_PER_SECOND]:
                    group.create_task(self._look(look))

    async def _look(self, look: Look) -> None:
        self._count_read(look.cluster.name)
        try:
            found = await look.cluster.get(look.kind.resource, look.key, metadata_only=True)
            version = resource_version_of(found)
        except NotFound:
            version = ""
        except Forbidden:
            look.differs()  # whoever looks closer tells of it
            return
        except ClusterError as error:
            log.debug("could not ask", kind=str(look.kind), key=str(look.key), error=str(error))
            return
        if version == look.known_version:
            look.confirmed()
        else:
            look.differs()

"""Run parts together: the first that fails ends the others, and is raised bare."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from federate.errors import ConfigError, LeadershipLost


async def run_together(*parts: Callable[[], Awaitable[None]]) -> None:
    """Run parts until all have ended; a failure cancels the others and is raised, bare."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_await(part))
    except BaseExceptionGroup as failed:
        raise first_of(failed) from failed


async def _await(part: Callable[[], Awaitable[None]]) -> None:
    await part()


def first_of(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first leaf of a group of failures; what must be acted on comes first."""
    leaves: list[BaseException] = []
    todo: list[BaseException] = [failed]
    while todo:
        one = todo.pop(0)
        if isinstance(one, BaseExceptionGroup):
            todo = [*one.exceptions, *todo]
        else:
            leaves.append(one)
    urgent = [e for e in leaves if isinstance(e, (LeadershipLost, ConfigError))]
    return (urgent or leaves)[0]

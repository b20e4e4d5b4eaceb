"""Follow a configuration file while the process runs.

The file is read again and again by its path, whole: that sees a file that was replaced or written
over, and the links by which a kubelet swaps a ConfigMap. A content counts once two looks found it,
so half a file is never taken for a short one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from federate.errors import ConfigError
from federate.runtime.settings import Settings

log = structlog.stdlib.get_logger(__name__)

LOOK_SECONDS = 2.0
SETTLE_SECONDS = 0.5
READ_LIMIT = 2 * 1024 * 1024
"""More than is accepted; a file that grows without end is not read to its end."""


class Following:
    """One file, and what to make of its content."""

    def __init__(
        self,
        path: Path,
        content: bytes,
        read: Callable[[bytes], Settings],
        *,
        look_seconds: float = LOOK_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """`content` is what was taken over already; `read` raises ConfigError."""
        self._look_seconds = look_seconds
        self._settle_seconds = settle_seconds
        self._path = path
        self._known: bytes | OSError = content
        self._read = read
        self._asked = asyncio.Event()
        self.is_applied = True
        """Tells whether the virtual nodes are those of the file as it is."""

    def look_now(self) -> None:
        """Look at once, and tell again what is wrong; for a signal handler."""
        self._asked.set()

    async def run(self, take_over: Callable[[Settings], bool]) -> None:
        """Hand over what the file says whenever it changed; `take_over` tells whether it did.

        What is wrong with a file is told once, and changes nothing.
        """
        while True:
            asked = await self._wait()
            found = await self._settled()
            if not asked and _same(found, self._known):
                continue
            try:
                settings = await self._make(found)
            except ConfigError as error:
                self.is_applied = False
                _tell(self._path, error)
            else:
                self.is_applied = take_over(settings)
            # Not before: who is cancelled meanwhile has taken nothing over.
            self._known = found

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(self._look_seconds):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _settled(self) -> bytes | OSError:
        """Return what two looks in a row found; what is known needs but one."""
        found = await asyncio.to_thread(_look, self._path)
        while not _same(found, self._known):
            await asyncio.sleep(self._settle_seconds)
            again = await asyncio.to_thread(_look, self._path)
            if _same(found, again):
                break
            found = again
        return found

    async def _make(self, found: bytes | OSError) -> Settings:
        if isinstance(found, OSError):
            raise ConfigError(f"{self._path}: cannot be read: {found.strerror or found}")
        try:
            return await asyncio.to_thread(self._read, found)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  a file ends no virtual node, whatever is in it
            # Not what the error says: that may repeat what is in the file.
            raise ConfigError(f"{self._path}: cannot be read: {type(error).__name__}") from None


def _look(path: Path) -> bytes | OSError:
    try:
        with path.open("rb") as file:
            return file.read(READ_LIMIT)
    except OSError as error:
        return error


def _same(one: bytes | OSError, other: bytes | OSError) -> bool:
    if isinstance(one, OSError) and isinstance(other, OSError):
        return one.errno == other.errno
    return one == other


def _tell(path: Path, error: ConfigError) -> None:
    problems = str(error).splitlines()
    log.error(
        "the configuration is wrong and not taken over: all goes on as before",
        file=str(path),
        problems=len(problems),
    )
    for problem in problems:
        log.error("problem of the configuration", said=problem)

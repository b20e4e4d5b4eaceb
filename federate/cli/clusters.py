"""Open clients for commands that ask once, and run those commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from federate.errors import ConfigError

if TYPE_CHECKING:
    from federate.cluster.client import ClusterClient

T = TypeVar("T")

REQUEST_TIMEOUT_SECONDS = 10.0
"""A person waits for the answer: sooner than the process would give up, longer than a slow read."""


def run_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a short command to its end; only warnings are logged, to stderr."""
    from federate.runtime.telemetry import LogFormat, LogLevel, start_logging

    start_logging(level=LogLevel.WARNING, log_format=LogFormat.AUTO, stream=sys.stderr)
    return asyncio.run(work)


class _Stay:
    """A block that ends with a ConfigError once its kubeconfig leads to another cluster.

    A command has looked at one cluster, asked its user about it, and goes on there or nowhere.
    Whatever it waits for is cancelled: it may be patient with a cluster that is away.
    """

    def __init__(self, kubeconfig: Path | None, *, name: str) -> None:
        self._what = "the service account of this pod" if kubeconfig is None else str(kubeconfig)
        self._name = name
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        self._has_moved = False

    def on_moved(self) -> None:
        """End the block; called again and again."""
        if self._task is not None and not self._has_moved:
            self._has_moved = True
            self._task.cancel()

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        if self._task is not None:
            self._cancelled_before = self._task.cancelling()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        task, self._task = self._task, None
        if task is None or not self._has_moved:
            return
        # Who else cancels the command, as Ctrl-C does, is not to be kept from it.
        is_ours = task.uncancel() <= self._cancelled_before
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise ConfigError(
                f"{self._what} leads elsewhere now than when the command began, for {self._name}: "
                "nothing was asked or written there. Look what is in it, and run the command again"
            ) from None


@asynccontextmanager
async def opened(
    kubeconfig: Path | None, *, name: str, context: str | None = None
) -> AsyncIterator[ClusterClient]:
    """Connect, and close at the end.

    Raises:
        ConfigError: the kubeconfig is unusable, or leads to another cluster than at the start.
    """
    from federate.cluster.connect import connect

    stay = _Stay(kubeconfig, name=name)
    client = await connect(
        kubeconfig,
        name=name,
        context=context,
        on_moved=stay.on_moved,
        request_timeout_seconds=REQUEST_TIMEOUT_SECONDS,
    )
    try:
        with stay:
            yield client
    finally:
        await client.aclose()

"""Open clients for commands that ask once, and run those commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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


@asynccontextmanager
async def opened(
    kubeconfig: Path | None, *, name: str, context: str | None = None
) -> AsyncIterator[ClusterClient]:
    """Connect, and close at the end.

    Raises:
        ConfigError: the kubeconfig is unusable.
    """
    from federate.cluster.connect import connect

    client = await connect(
        kubeconfig, name=name, context=context, request_timeout_seconds=REQUEST_TIMEOUT_SECONDS
    )
    try:
        yield client
    finally:
        await client.aclose()

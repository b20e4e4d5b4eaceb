"""Wait for several things at once, and tell when each came true."""

import time
from collections.abc import Callable, Mapping

from .world import wait_for


def wait_each(
    what: str,
    probes: Mapping[str, Callable[[], bool]],
    *,
    timeout_seconds: float,
    explain: Callable[[list[str]], str],
) -> dict[str, float]:
    """Wait until each probe was true once; return when that was, on the monotonic clock.

    `explain` is given the names of those that never were.
    """
    seen_at: dict[str, float] = {}

    def missing() -> list[str]:
        return [name for name in probes if name not in seen_at]

    def probe() -> bool:
        for name in missing():
            if probes[name]():
                seen_at[name] = time.monotonic()
        return not missing()

    def explain_missing() -> str:
        return f"Not: {', '.join(missing())}\n{explain(missing())}"

    wait_for(what, probe, timeout_seconds=timeout_seconds, explain=explain_missing)
    return seen_at

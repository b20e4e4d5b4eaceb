"""Run `async def` tests on a fresh event loop each, in debug mode, bounded in time."""

from __future__ import annotations

import asyncio
import inspect

import pytest

ASYNC_TEST_TIMEOUT_SECONDS = 180.0
"""Five times what the longest takes alone: three processes share the cores with whole clusters."""
LONG_ASYNC_TEST_TIMEOUT_SECONDS = 3600.0
"""Of those that do not fit `make test`: tens of thousands of objects are made, and looked at."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    is_long = pyfuncitem.get_closest_marker("long") is not None
    seconds = LONG_ASYNC_TEST_TIMEOUT_SECONDS if is_long else ASYNC_TEST_TIMEOUT_SECONDS

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await pyfuncitem.obj(**arguments)

    with asyncio.Runner(debug=True) as runner:
        runner.run(bounded())
    return True

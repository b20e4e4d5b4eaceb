"""One suite, two servers: the fake always, the real one with the marker `contract`.

Where the real one cannot be started its half is skipped with the reason, unless the environment
says FEDERATE_REQUIRE_REAL=1.
"""

from __future__ import annotations

import os

import pytest

from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import TestbedFactory, testbed_factory
from e2e.testbed.provider import ClusterSpec
from tests.contract.servers import FakeServer, RealServer, Server
from tests.support.clock import run_virtual

__all__ = ["testbed_factory"]

SPEC = ClusterSpec(
    name="contract",
    service_range="10.95.0.0/16",
    with_controller_manager=False,
    with_scheduler=False,
)


@pytest.fixture(scope="session")
def real_server(request: pytest.FixtureRequest) -> RealServer:
    factory: TestbedFactory = request.getfixturevalue("testbed_factory")
    try:
        cluster = factory.cluster(SPEC)
        cluster.restart_apiserver()  # it remembers no version from before its start
        return RealServer(cluster.kubeconfig)
    except TestbedError as error:
        if os.environ.get("FEDERATE_REQUIRE_REAL") == "1":
            raise
        pytest.skip(f"no real API server: {error}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the fake's half in virtual time; the rest goes the common way."""
    if not isinstance(pyfuncitem.funcargs.get("server"), FakeServer):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    run_virtual(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.contract)])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "fake":
        return FakeServer()
    real: RealServer = request.getfixturevalue("real_server")
    return real

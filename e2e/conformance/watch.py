"""Look at what a run stands on while it goes on: clusters, their nodes, the federate process.

Without them every spec fails, and that says nothing of the virtual node: such a run is ended, and
of its results only those count that are older than the last look at which all was well. A virtual
node that is not ready is no such case: that is federate's doing, and counts against it.
"""

import json
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from e2e.support.process import FederateProcess
from e2e.testbed.errors import TestbedError
from e2e.testbed.provider import TestCluster

Look = Callable[[], str]
"""Say what is wrong; nothing where all is well."""

PATIENCE = timedelta(seconds=60)
"""A busy machine's API server may miss a look or two; specs wait for minutes themselves."""

LOOK_EVERY_SECONDS = 15.0
API_SECONDS = 20.0
COMPLAINT_CHARACTERS = 300

PRESSURES = frozenset({"DiskPressure", "MemoryPressure", "PIDPressure"})


class StageBrokenError(TestbedError):
    """What the tests run on is gone: what they say since is about nothing."""


def utc_now() -> datetime:
    """Tell the time as ginkgo's report does."""
    return datetime.now(UTC)


class Watch:
    """Whether all is well, and since when it is not."""

    def __init__(
        self,
        looks: Mapping[str, Look],
        *,
        patience: timedelta = PATIENCE,
        every_seconds: float = LOOK_EVERY_SECONDS,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._looks = dict(looks)
        self._patience = patience
        self.every_seconds = every_seconds
        """How often somebody should look."""
        self._clock = clock
        self.well_at = clock()
        """When the last look began at which all was well."""

    def look(self) -> str:
        """Look at everything once; returns what is wrong.

        Raises:
            StageBrokenError: something has been wrong for longer than the patience.
        """
        began = self._clock()
        said = {name: look() for name, look in self._looks.items()}
        wrong = "; ".join(f"{name}: {words}" for name, words in said.items() if words)
        if not wrong:
            self.well_at = began
        elif began - self.well_at > self._patience:
            raise StageBrokenError(
                f"Ended, as for {(began - self.well_at).total_seconds():.0f} s something is wrong "
                f"with what the tests run on. {wrong}"
            )
        return wrong


def look_at_process(federate: FederateProcess) -> Look:
    """Make sure that federate runs; nobody starts it again here."""

    def look() -> str:
        if federate.is_running:
            return ""
        return (
            f"it ended with {federate.exit_code}. Its log {federate.log} ends:\n"
            f"{federate.log_tail(15)}"
        )

    return look


def look_at_cluster(cluster: TestCluster, nodes: Collection[str]) -> Look:
    """Make sure that the API server answers and that the real nodes are fit to run pods.

    Specs make Nodes too, which nobody runs.
    """

    def look() -> str:
        try:
            said = cluster.kubectl("get", "nodes", "--output=json", timeout_seconds=API_SECONDS)
            found = {one["metadata"]["name"]: one for one in json.loads(said)["items"]}
        except (TestbedError, ValueError, KeyError) as error:
            return f"the API server does not answer: {shortened(str(error))}"
        return unfit_among({name: found.get(name) for name in nodes})

    return look


def unfit_among(nodes: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Say which of the nodes cannot run pods."""
    unfit = {
        name: unfitness_of(node) if node is not None else "is not there"
        for name, node in nodes.items()
    }
    return ", ".join(f"node {name} {words}" for name, words in unfit.items() if words)


def unfitness_of(node: Mapping[str, Any]) -> str:
    """Say why a node cannot run pods, if so."""
    conditions = {one["type"]: one for one in node.get("status", {}).get("conditions") or ()}
    if pressed := sorted(
        name for name in PRESSURES & conditions.keys() if conditions[name]["status"] == "True"
    ):
        return f"has {', '.join(pressed)}"
    ready = conditions.get("Ready", {"status": "Unknown"})
    if ready["status"] != "True":
        return f"is not ready: {shortened(ready.get('message') or 'it says nothing')}"
    return ""


def shortened(text: str) -> str:
    """Bring what somebody said to one line of bearable length, the end of which matters."""
    return " ".join(text.split())[-COMPLAINT_CHARACTERS:]

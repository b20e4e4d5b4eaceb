"""Wait between runs until the namespaces of the last one are gone, and name those that stay.

Specs delete their namespaces and do not wait for it. What still ends would take the next run's
time and room; what stays in the target when the hub has nothing left would be federate's garbage.
"""

import time
from collections.abc import Sequence

from e2e.testbed.progress import Progress
from e2e.testbed.provider import TestCluster
from federate.model.marks import HUB_LABEL

OF_SUITE = "e2e-run"
"""The label that Kubernetes' suite gives the namespaces it makes."""

GONE_SECONDS = 180.0
"""A namespace's pods may have a minute's grace, and federate gives its own back after that."""

POLL_SECONDS = 2.0


def namespaces_left(cluster: TestCluster) -> list[str]:
    """Name the namespaces that the suite or federate made."""
    found: set[str] = set()
    for label in (OF_SUITE, HUB_LABEL):
        said = cluster.kubectl("get", "namespaces", f"--selector={label}", "--output=name")
        found.update(said.split())
    return sorted(name.removeprefix("namespace/") for name in found)


def wait_for_empty(
    clusters: Sequence[TestCluster],
    progress: Progress,
    *,
    timeout_seconds: float = GONE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> dict[str, list[str]]:
    """Wait until nothing is left; returns what stays, by cluster."""
    deadline = time.monotonic() + timeout_seconds
    if not (left := all_left(clusters)):
        return {}
    with progress.long_step("Waiting until the namespaces of the last run are gone"):
        while left and time.monotonic() < deadline:
            time.sleep(poll_seconds)
            left = all_left(clusters)
    for cluster, names in left.items():
        progress.say(
            f"{cluster}: {len(names)} namespaces stay after {timeout_seconds:.0f} s: "
            f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}",
            always=True,
        )
    return left


def all_left(clusters: Sequence[TestCluster]) -> dict[str, list[str]]:
    """Name what is left in each cluster that has something left."""
    return {one.name: names for one in clusters if (names := namespaces_left(one))}

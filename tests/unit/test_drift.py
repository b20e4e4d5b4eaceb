"""The papers say what the code says: reasons and metrics are documented, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from federate.model.reasons import NodeReason, PodReason
from federate.runtime.telemetry import METRICS

OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def first_cells() -> str:
    return "\n".join(line.split("|")[1] for line in OPERATIONS.splitlines() if "|" in line)


@pytest.mark.parametrize("reason", list(PodReason))
def test_every_pod_reason_is_documented(reason: PodReason) -> None:
    """Each reason a pod may show stands first in a row of docs/operations.md."""
    assert f"`{reason}`" in first_cells()


@pytest.mark.parametrize("reason", list(NodeReason))
def test_every_node_reason_is_documented(reason: NodeReason) -> None:
    """Each reason of a node condition stands in docs/operations.md."""
    assert f"`{reason}`" in OPERATIONS


@pytest.mark.parametrize("name", [row.name for row in METRICS])
def test_every_metric_is_documented(name: str) -> None:
    """Each metric stands in docs/operations.md."""
    assert f"`{name}`" in first_cells()


def test_no_metric_is_documented_that_does_not_exist() -> None:
    """A metric that was renamed leaves no trace in the papers."""
    documented = set(re.findall(r"`(federate_[a-z_]+)`", first_cells()))
    assert documented == {row.name for row in METRICS}

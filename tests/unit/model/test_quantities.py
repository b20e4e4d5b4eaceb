"""Quantities, their arithmetic, and what a pod requests."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.model.quantities import (
    add,
    format_amounts,
    format_quantity,
    largest,
    parse_amounts,
    parse_quantity,
    pod_requests,
    quantity_of,
    scale,
    subtract,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", "0"),
        ("2", "2"),
        ("100m", "0.1"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+1", "1"),
        ("-1Ki", "-1024"),
        ("1n", "1e-9"),
        ("1u", "1e-6"),
        ("1k", "1000"),
        ("1M", "1e6"),
        ("1G", "1e9"),
        ("1T", "1e12"),
        ("1P", "1e15"),
        ("1E", "1e18"),
        ("1Ki", "1024"),
        ("1536Mi", "1610612736"),
        ("1Gi", "1073741824"),
        ("1Ti", "1099511627776"),
        ("1Pi", "1125899906842624"),
        ("8Ei", "9223372036854775808"),
        ("1.5Gi", "1610612736"),
        ("12e6", "12000000"),
        ("1E3", "1000"),
        ("12E-3", "0.012"),
        ("0.1n", "1e-9"),
        ("-0.1n", "-1e-9"),
    ],
)
def test_quantities_are_read_exactly(text: str, amount: str) -> None:
    """Every suffix and exponent is read without rounding; below a nano rounds up."""
    assert parse_quantity(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1K", "1.2.3", "1e", "--1", "1mm", "NaN"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """What the API server refuses is refused."""
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


def test_quantities_may_be_numbers() -> None:
    """A JSON number is a quantity too."""
    assert quantity_of(2) == 2
    assert quantity_of(0.5) == Decimal("0.5")
    assert quantity_of("2") == 2


@pytest.mark.parametrize(
    ("text", "binary"),
    [
        ("100m", False),
        ("2", False),
        ("1500m", False),
        ("2k", False),
        ("1536Mi", True),
        ("1Gi", True),
        ("100", True),
        ("1500m", True),
        ("-3Ki", True),
        ("0", True),
        ("1n", False),
        ("3E", False),
    ],
)
def test_canonical_text_stays_as_it_is(text: str, binary: bool) -> None:
    """Reading and writing keeps canonical text."""
    assert format_quantity(parse_quantity(text), binary=binary) == text


def test_text_becomes_canonical() -> None:
    """Fractions and needless zeros go away, as the API server writes it."""
    assert format_quantity(Decimal("0.5")) == "500m"
    assert format_quantity(Decimal("2000")) == "2k"
    assert format_quantity(Decimal(2048), binary=True) == "2Ki"
    assert format_quantity(Decimal(2000), binary=True) == "2k"
    assert format_quantity(Decimal("1e-12")) == "1n"


@given(st.integers(-(2**70), 2**70), st.integers(-9, 3), st.booleans())
def test_written_quantities_read_back(units: int, exponent: int, binary: bool) -> None:
    """Whatever is written reads back as the same amount."""
    amount = Decimal(units).scaleb(exponent)
    assert parse_quantity(format_quantity(amount, binary=binary)) == amount


# --- lists --------------------------------------------------------------------------------------


def amounts(**named: str) -> dict[str, Decimal]:
    return parse_amounts(named)


def test_lists_are_read_and_written() -> None:
    """Bytes are written in binary units, all else in decimal ones."""
    written = {
        "cpu": "1500m",
        "memory": "3Gi",
        "pods": "110",
        "hugepages-2Mi": "4Mi",
        "requests.storage": "1Ti",
        "nvidia.com/gpu": "8",
    }
    assert format_amounts(parse_amounts(written)) == written
    assert parse_amounts(None) == {}


def test_lists_add_and_subtract() -> None:
    """Missing resources count as zero; what is left may be floored at zero."""
    a, b = amounts(cpu="1", memory="1Gi"), amounts(cpu="1500m", pods="1")
    assert add(a, b) == amounts(cpu="2500m", memory="1Gi", pods="1")
    assert subtract(a, b) == amounts(cpu="-500m", memory="1Gi")
    assert subtract(a, b, floor_at_zero=True) == amounts(cpu="0", memory="1Gi")
    assert largest(a, b) == amounts(cpu="1500m", memory="1Gi", pods="1")


def test_a_share_is_rounded_down() -> None:
    """A share of a node is never more than it has, in units that exist."""
    share = scale(amounts(cpu="1", memory="1000", pods="7"), Decimal("0.3333"))
    assert share == amounts(cpu="333m", memory="333", pods="2")


# --- pods ---------------------------------------------------------------------------------------


def container(name: str = "c", *, sidecar: bool = False, **requests: str) -> dict[str, Any]:
    restart = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "resources": {"requests": requests}, **restart}


def requested(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, str]:
    found = pod_requests({"spec": spec, "status": status or {}})
    assert found.pop("pods") == 1
    return format_amounts(found)


def test_containers_add_up() -> None:
    """Containers run side by side."""
    pair = [container(cpu="100m", memory="1Mi"), container(cpu="200m"), {"name": "none"}]
    assert requested(containers=pair) == {"cpu": "300m", "memory": "1Mi"}
    assert pod_requests({}) == {"pods": 1}


def test_init_containers_count_by_the_largest() -> None:
    """Init containers run one by one, before the others."""
    init = [container(cpu="1"), container(cpu="300m", memory="5Mi")]
    found = requested(containers=[container(cpu="500m", memory="1Mi")], initContainers=init)
    assert found == {"cpu": "1", "memory": "5Mi"}


def test_sidecars_count_beside_all_that_starts_after_them() -> None:
    """A sidecar adds to the containers, and to init containers that come after it only."""
    init = [
        container(cpu="2"),
        container(sidecar=True, cpu="500m"),
        container(cpu="1800m"),
        container(sidecar=True, cpu="100m"),
    ]
    assert requested(containers=[container(cpu="1")], initContainers=init) == {"cpu": "2300m"}
    assert requested(containers=[container(cpu="3")], initContainers=init) == {"cpu": "3600m"}


def test_pod_level_requests_and_overhead() -> None:
    """Requests at pod level replace sums where Kubernetes allows them; overhead is added."""
    found = requested(
        containers=[
            {"resources": {"requests": {"cpu": "1", "memory": "1Mi", "example.com/x": "2"}}}
        ],
        resources={"requests": {"cpu": "2", "hugepages-2Mi": "2Mi", "example.com/x": "9"}},
        overhead={"cpu": "250m"},
    )
    assert found == {
        "cpu": "2250m",
        "memory": "1Mi",
        "example.com/x": "2",
        "hugepages-2Mi": "2Mi",
    }


def test_a_resize_holds_the_larger_of_old_and_new() -> None:
    """Until a resize is done the node holds both; one refused as infeasible holds the old."""
    statuses = [
        {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1"}},
        {"name": "other"},
    ]
    pair = [container(cpu="500m"), container("other", cpu="1")]
    assert requested({"containerStatuses": statuses}, containers=pair) == {"cpu": "3"}
    grown = [container(cpu="8")]
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    status: dict[str, Any] = {"containerStatuses": statuses, "conditions": [pending]}
    assert requested(status, containers=grown) == {"cpu": "8"}
    status["conditions"] = [{**pending, "reason": "Infeasible"}]
    assert requested(status, containers=grown) == {"cpu": "2"}


def test_a_resize_at_pod_level_holds_the_larger_of_old_and_new() -> None:
    """The same goes for requests at pod level, where the kubelet says what it has set."""
    held = {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"memory": "5Mi"}}
    level = {"requests": {"cpu": "2", "memory": "9Mi"}}
    assert requested(held, resources=level) == {"cpu": "3", "memory": "9Mi"}
    refused = {"type": "PodResizePending", "reason": "Infeasible"}
    found = requested({**held, "conditions": [refused]}, resources=level)
    assert found == {"cpu": "3", "memory": "5Mi"}

"""The text format of metrics, as scrapers and kubelets speak it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.kubelet.exposition import (
    LONGEST_LINE,
    Family,
    Sample,
    format_sample,
    format_value,
    gather,
    parse_families,
    parse_sample,
    render,
)

PAGE = """\
# HELP probes Probes by result
# TYPE probes counter
probes{namespace="one",pod="a",result="ok"} 3
probes{namespace="two",pod="b",result="ok"} 4
# HELP seconds How long
# TYPE seconds histogram
seconds_bucket{namespace="one",pod="a",le="0.1"} 1
seconds_bucket{namespace="one",pod="a",le="+Inf"} 2
seconds_sum{namespace="one",pod="a"} 0.3
seconds_count{namespace="one",pod="a"} 2
machine_cores 4
"""


def test_a_line_is_read_with_labels_value_and_time() -> None:
    """A line as a kubelet writes it is read whole."""
    line = r'cpu_total{container="c",pod="p",odd="a\"b\\c\nd}"} 1.25e+02 1767225600123'
    assert parse_sample(line) == Sample(
        name="cpu_total",
        labels={"container": "c", "pod": "p", "odd": 'a"b\\c\nd}'},
        value=125.0,
        at_ms=1767225600123,
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# TYPE a counter",
        "a",
        "a{",
        'a{b="c} 1',
        "a{b=c} 1",
        'a{b="c",,} 1',
        "a one",
        "a 1 soon",
        "a 1 2 3",
        "1a 1",
        f'a{{b="{"x" * LONGEST_LINE}"}} 1',
    ],
)
def test_what_is_no_line_is_left_out(line: str) -> None:
    """A malformed or overlong line is no sample."""
    assert parse_sample(line) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.5, "1.5"), (1e-6, "1e-06"), (2.0**40, "1099511627776")],
)
def test_numbers_are_written_as_every_reader_takes_them(value: float, text: str) -> None:
    """Whole numbers have no fraction, others are exact."""
    assert format_value(value) == text
    assert float(format_value(value)) == value


def test_what_is_no_number_has_a_name() -> None:
    """NaN and the infinities are written as Prometheus does."""
    assert [format_value(v) for v in (math.nan, math.inf, -math.inf)] == ["NaN", "+Inf", "-Inf"]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4
    ),
    st.floats(allow_nan=False),
    st.none() | st.integers(0, 2**53),
)
def test_what_is_written_is_read_alike(
    labels: dict[str, str], value: float, at_ms: int | None
) -> None:
    """Any sample survives the way out and in again, whatever its labels hold."""
    sample = Sample(name="a_b:c", labels=labels, value=value, at_ms=at_ms)
    line = format_sample(sample)
    assert parse_sample(line) == sample
    assert "\n" not in line


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    """A page of anything is read without a failure, and what is rendered of it is read again."""
    families = [family for family in parse_families(text.split("\n")) if family.samples]
    again = [f for f in parse_families("".join(render(families)).split("\n")) if f.samples]
    assert sum(len(f.samples) for f in again) == sum(len(f.samples) for f in families)


def test_families_keep_their_kind_and_their_lines() -> None:
    """Buckets, sums and counts stay with their histogram; a line without a family stands alone."""
    found = {family.name: family for family in parse_families(PAGE.split("\n"))}
    assert [found[name].kind for name in ("probes", "seconds")] == ["counter", "histogram"]
    assert len(found["seconds"].samples) == 4
    assert found["machine_cores"].kind == "untyped"


def test_only_translated_lines_are_gathered() -> None:
    """Of several pages only the lines that concern us are kept, once per family, renamed."""

    def translate(labels: dict[str, str]) -> dict[str, str] | None:
        return {**labels, "namespace": "hub"} if labels.get("namespace") == "one" else None

    gathered: dict[str, Family] = {}
    for page in (PAGE, PAGE.replace('"a"', '"c"')):
        for family in parse_families(page.split("\n")):
            gather(gathered, family, translate)  # type: ignore[arg-type]
    text = "".join(render(gathered.values()))
    assert text.count("# TYPE probes counter") == 1
    assert 'probes{namespace="hub",pod="a",result="ok"} 3' in text
    assert 'probes{namespace="hub",pod="c",result="ok"} 3' in text
    assert "two" not in text
    assert "machine" not in text


def test_an_empty_family_is_not_written() -> None:
    """A family without lines leaves no trace."""
    assert list(render([Family(name="a", kind="gauge", help="A")])) == []

"""The text format of metrics: read it line by line, write it family by family. Pure.

What is read comes from a target's kubelets and is not trusted: a line that is none is left out,
and a name or label of ours is never taken from it unseen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LONGEST_LINE = 16 * 1024
"""A line of a kubelet has some hundred characters; labels of images and volumes may be long."""

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+(-?[0-9]{1,18}))?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
_UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line: `at_ms` is when it was measured, in milliseconds since 1970."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The lines that belong together; `name` is that of the family, `kind` counter, gauge, ..."""

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)


def parse_sample(line: str) -> Sample | None:
    """Read one line; None where it is a comment, empty or malformed."""
    if len(line) > LONGEST_LINE or line.startswith("#"):
        return None
    found = _LINE.fullmatch(line.strip())
    if found is None:
        return None
    name, label_text, value_text, at_text = found.groups()
    labels = _parse_labels(label_text or "")
    value = _parse_value(value_text)
    if labels is None or value is None:
        return None
    return Sample(
        name=name, labels=labels, value=value, at_ms=int(at_text) if at_text is not None else None
    )


def _parse_labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _LABEL.match(text, position)
        if found is None:
            return None
        labels[found[1]] = re.sub(r"\\.", lambda m: _UNESCAPED.get(m[0], m[0]), found[2])
        position = found.end()
    return labels


def _parse_value(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


MOST_IN_FAMILY = 50
"""Samples of a family that are yielded together: between two of them others get their turn."""


def parse_families(lines: Iterable[str]) -> Iterator[Family]:
    """Read a page; lines in front of the first `# TYPE` are families of their own.

    A long family comes in several parts, one without samples as it is.
    """
    family = Family(name="", kind="untyped", help="")
    helped: dict[str, str] = {}
    for line in lines:
        if line.startswith("# HELP ") and len(line) <= LONGEST_LINE:
            _, _, name, *words = line.split(" ", 3)
            helped = {name: words[0] if words else ""}
        elif line.startswith("# TYPE ") and len(line) <= LONGEST_LINE:
            yield family
            _, _, name, *words = line.split(" ", 3)
            kind = words[0].strip() if words and words[0].strip() in _KINDS else "untyped"
            family = Family(name=name, kind=kind, help=helped.get(name, ""))
        elif (sample := parse_sample(line)) is not None:
            if family.name and sample.name.startswith(family.name):
                family.samples.append(sample)
                if len(family.samples) == MOST_IN_FAMILY:
                    yield family
                    family = replace(family, samples=[])
            else:
                yield Family(name=sample.name, kind="untyped", help="", samples=[sample])
    if family.samples:
        yield family


def gather(
    gathered: dict[str, Family],
    family: Family,
    translate: Callable[[Mapping[str, str]], Mapping[str, str] | None],
) -> None:
    """Add the lines of one family to what was gathered of other pages, their labels translated.

    `translate` answers None for a line that does not concern us. Of a family that several pages
    have, the first says its kind.
    """
    for sample in family.samples:
        labels = translate(sample.labels)
        if labels is not None:
            kept = gathered.setdefault(family.name, replace(family, samples=[]))
            kept.samples.append(replace(sample, labels=labels))


def render(families: Iterable[Family]) -> Iterator[str]:
    """Write a page line by line; families without samples are left out, as a kubelet does."""
    for family in families:
        if not family.samples:
            continue
        if family.help:
            yield f"# HELP {family.name} {_escape(family.help, quotes=False)}\n"
        yield f"# TYPE {family.name} {family.kind}\n"
        for sample in family.samples:
            yield format_sample(sample) + "\n"


def format_sample(sample: Sample) -> str:
    """Write one line, without its end."""
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels.items())
    labels = f"{{{pairs}}}" if pairs else ""
    at = f" {sample.at_ms}" if sample.at_ms is not None else ""
    return f"{sample.name}{labels} {format_value(sample.value)}{at}"


def format_value(value: float) -> str:
    """Write a number as every reader of the format takes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(value)


def _escape(text: str, *, quotes: bool = True) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped

"""What is known of each spec of a slice: how it ended on the target, and through the node.

A record is kept as a JSON file. What is run again takes the place of what was known; the rest
stays, so that a slice can be run in parts.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .results import NOTHING, Outcome, Result, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One spec."""

    direct: Result
    through: tuple[Result, ...] = ()
    """In order; the later ones because the first differed."""


Record = Mapping[str, Runs]
"""By the spec's whole name."""


def with_direct(record: Record, results: Results) -> dict[str, Runs]:
    """Take in a run on the target; what was known through the node was compared to another."""
    return {**record, **{name: Runs(direct=result) for name, result in results.items()}}


def with_through(record: Record, wanted: Iterable[str], results: Results) -> dict[str, Runs]:
    """Take in a first run through the node of the specs that were wanted."""
    fresh = {name: replace(record[name], through=(results.get(name, NOTHING),)) for name in wanted}
    return {**record, **fresh}


def with_again(record: Record, wanted: Iterable[str], results: Results) -> dict[str, Runs]:
    """Take in one more run through the node."""
    more = {
        name: replace(runs, through=(*runs.through, results.get(name, NOTHING)))
        for name in wanted
        for runs in [record[name]]
    }
    return {**record, **more}


def passing_directly(record: Record) -> list[str]:
    """Name what should pass through the node."""
    return sorted(name for name, runs in record.items() if runs.direct.outcome is Outcome.PASSED)


def render_record(record: Record, *, version: str) -> str:
    """Render the file."""
    specs = {
        name: {
            "feature": runs.direct.feature,
            "direct": result_as_json(runs.direct),
            "through": [result_as_json(one) for one in runs.through],
        }
        for name, runs in sorted(record.items())
    }
    return json.dumps({"version": version, "specs": specs}, indent=1, ensure_ascii=False) + "\n"


def read_record(text: str) -> tuple[str, dict[str, Runs]]:
    """Read the file: the version of Kubernetes, and the record."""
    content: dict[str, Any] = json.loads(text)
    record = {
        name: Runs(
            direct=replace(result_from_json(one["direct"]), feature=one.get("feature", "")),
            through=tuple(map(result_from_json, one["through"])),
        )
        for name, one in content["specs"].items()
    }
    return content["version"], record


def result_as_json(result: Result) -> dict[str, object]:
    """Render one result without its feature, which is the spec's; what is empty is left out."""
    rest = {"seconds": result.seconds, "message": result.message}
    return {"outcome": str(result.outcome), **{key: value for key, value in rest.items() if value}}


def result_from_json(content: Mapping[str, Any]) -> Result:
    """Read one result."""
    return Result(
        outcome=Outcome(content["outcome"]),
        seconds=content.get("seconds", 0.0),
        message=content.get("message", ""),
    )

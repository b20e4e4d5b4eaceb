"""What is known of each spec of a slice: how it ended on the target, and through the node.

A record is kept as a JSON file. What is run again takes the place of what was known; the rest
stays, so that a slice can be run in parts. Each result tells by a number of which run it is.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .origin import Origin
from .results import NOTHING, Outcome, Result, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One spec."""

    direct: Result
    through: tuple[Result, ...] = ()
    """In order; the later ones because the first differed."""


Record = Mapping[str, Runs]
"""By the spec's whole name."""


def with_direct(record: Record, results: Results, *, of_slice: Collection[str]) -> dict[str, Runs]:
    """Take in a run on the target; what was known through the node was compared to another.

    Specs that are none of the slice's any more go.
    """
    known = {name: runs for name, runs in record.items() if name in of_slice}
    return {**known, **{name: Runs(direct=result) for name, result in results.items()}}


def with_through(record: Record, results: Results) -> dict[str, Runs]:
    """Take in a first run through the node."""
    return {**record, **{name: replace(record[name], through=(results[name],)) for name in results}}


def with_again(record: Record, results: Results) -> dict[str, Runs]:
    """Take in one more run through the node.

    Earlier ones of another federate go; those of the same stay, so that nobody can run a spec
    until it passes and hide that.
    """
    more = {
        name: replace(
            record[name],
            through=(
                *(old for old in record[name].through if old.origin.source == new.origin.source),
                new,
            ),
        )
        for name, new in results.items()
    }
    return {**record, **more}


def answers(
    results: Results, wanted: Iterable[str], *, origin: Origin, is_over: bool
) -> dict[str, Result]:
    """Say how each of the wanted specs ended; of those that a run to its end has no word of, that.

    Whatever else was run because its name looks alike is left out.
    """
    found = {name: results.get(name, NOTHING) for name in wanted if is_over or name in results}
    return with_origin(found, origin)


def with_origin(results: Results, origin: Origin) -> dict[str, Result]:
    """Note of which run the results are."""
    return {name: replace(one, origin=origin) for name, one in results.items()}


def passing_directly(record: Record) -> list[str]:
    """Name what should pass through the node."""
    return sorted(name for name, runs in record.items() if runs.direct.outcome is Outcome.PASSED)


def origins_of(record: Record) -> list[Origin]:
    """Name the runs that the results are of, the earliest first."""
    found = {one.origin for runs in record.values() for one in (runs.direct, *runs.through)}
    return sorted(found, key=lambda one: (one.at, repr(one)))


def render_record(record: Record) -> str:
    """Render the file."""
    origins = origins_of(record)
    numbers = {origin: number for number, origin in enumerate(origins)}
    specs = {
        name: {
            "feature": runs.direct.feature,
            "direct": result_as_json(runs.direct, numbers),
            "through": [result_as_json(one, numbers) for one in runs.through],
        }
        for name, runs in sorted(record.items())
    }
    content = {"runs": [without_empty(asdict(one)) for one in origins], "specs": specs}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_record(text: str) -> dict[str, Runs]:
    """Read the file.

    Raises:
        ValueError: it is none, or not the whole of one.
    """
    try:
        content: dict[str, Any] = json.loads(text)
        origins = [Origin(**one) for one in content["runs"]]
        return {
            name: Runs(
                direct=replace(
                    result_from_json(one["direct"], origins), feature=one.get("feature", "")
                ),
                through=tuple(result_from_json(result, origins) for result in one["through"]),
            )
            for name, one in content["specs"].items()
        }
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"This is no record of ours: {error!r}") from error


def result_as_json(result: Result, numbers: Mapping[Origin, int]) -> dict[str, object]:
    """Render one result without its feature, which is the spec's; what is empty is left out."""
    rest = without_empty({"seconds": result.seconds, "message": result.message})
    return {"outcome": str(result.outcome), "run": numbers[result.origin], **rest}


def result_from_json(content: Mapping[str, Any], origins: Sequence[Origin]) -> Result:
    """Read one result."""
    return Result(
        outcome=Outcome(content["outcome"]),
        seconds=content.get("seconds", 0.0),
        message=content.get("message", ""),
        origin=origins[content.get("run", 0)],
    )


def without_empty(content: Mapping[str, object]) -> dict[str, object]:
    """Leave out what says nothing."""
    return {key: value for key, value in content.items() if value}

"""What was measured, and what is told of it: the JSON file and its summary."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from e2e.testbed.provider import NodePlay

from .audit import Writes, pod_writes
from .figures import Spread, paired_ratios, spread_of
from .plan import Plan
from .standing import Standing
from .streams import Streams
from .updown import Arm, Phase, Round

PHASES = ("up", "down")


@dataclass(slots=True, kw_only=True)
class Series:
    """The pairs of one number of pods on one kind of nodes."""

    play: NodePlay
    pods: int
    pairs: list[dict[Arm, Round]] = field(default_factory=list)

    @property
    def arms(self) -> list[Arm]:
        """The arms that were run, in their fixed order."""
        return [arm for arm in Arm if self.pairs and arm in self.pairs[0]]

    def phases(self, arm: Arm, phase: str) -> list[Phase]:
        """Return one phase of all rounds of an arm."""
        return [getattr(pair[arm], phase) for pair in self.pairs]

    def seconds(self, arm: Arm, phase: str) -> list[float]:
        """Return the seconds of one phase of all rounds of an arm."""
        return [found.seconds for found in self.phases(arm, phase)]

    def ratio_to(self, arm: Arm, phase: str) -> Spread | None:
        """Sum up federate's seconds in proportion to another arm's; None where one is missing."""
        if not self.pairs or not {arm, Arm.FEDERATE} <= set(self.arms):
            return None
        return paired_ratios(self.seconds(Arm.FEDERATE, phase), self.seconds(arm, phase))

    def busy(self, arm: Arm, phase: str) -> Spread:
        """Tell how much of the machine an arm used; 1.0: it waited for nothing but processors."""
        cores = os.cpu_count() or 1
        return spread_of(
            [p.machine_cpu_seconds / (p.seconds * cores) for p in self.phases(arm, phase)]
        )

    def free_ratio_to(self, arm: Arm, phase: str) -> Spread | None:
        """Tell the ratio of a federate that needs no processor itself, on a machine that is busy.

        The CPU seconds of everything but federate, in proportion to the other arm's: what the
        clusters do for its writes and watches.
        """
        if not self.pairs or not {arm, Arm.FEDERATE} <= set(self.arms):
            return None
        others = [
            p.machine_cpu_seconds - p.federate_cpu_seconds for p in self.phases(Arm.FEDERATE, phase)
        ]
        return paired_ratios(others, [p.machine_cpu_seconds for p in self.phases(arm, phase)])

    def writes_per_pod(self, side: str, phase: str) -> dict[str, float]:
        """Return federate's writes per pod by their kind, in all pairs together."""
        total: dict[str, int] = {}
        for found in self.phases(Arm.FEDERATE, phase):
            writes: Writes = getattr(found, f"{side}_writes")
            for kind, count in writes.items():
                total[kind] = total.get(kind, 0) + count
        pods = self.pods * len(self.pairs)
        return {kind: round(count / pods, 3) for kind, count in sorted(total.items())}

    def pod_writes_per_pod(self, side: str, phase: str) -> float:
        """Return federate's writes to pods per pod: no Events, no leases, no Node."""
        phases = self.phases(Arm.FEDERATE, phase)
        total = sum(pod_writes(getattr(found, f"{side}_writes")) for found in phases)
        return round(total / (self.pods * len(phases)), 3)

    def cpu_seconds_per_1000(self, phase: str) -> Spread:
        """Sum up federate's CPU seconds per thousand pods."""
        phases = self.phases(Arm.FEDERATE, phase)
        return spread_of([1000 * found.federate_cpu_seconds / self.pods for found in phases])

    def summary(self) -> dict[str, Any]:
        """Tell what counts."""
        told: dict[str, Any] = {"play": self.play, "pods": self.pods, "pairs": len(self.pairs)}
        for phase in PHASES:
            told[phase] = {
                "seconds": {str(a): asdict(spread_of(self.seconds(a, phase))) for a in self.arms},
                **self._told_of_federate(phase),
            }
        return told

    def _told_of_federate(self, phase: str) -> dict[str, Any]:
        if Arm.FEDERATE not in self.arms:
            return {}
        ratios = {f"to_{arm}": self.ratio_to(arm, phase) for arm in (Arm.TARGET, Arm.BOTH)}
        free = self.free_ratio_to(Arm.BOTH, phase)
        return {
            "ratio": {name: asdict(found) for name, found in ratios.items() if found},
            "machine_busy": {str(a): asdict(self.busy(a, phase)) for a in self.arms},
            **({"ratio_to_both_of_a_free_federate": asdict(free)} if free else {}),
            "federate_cpu_seconds_per_1000_pods": asdict(self.cpu_seconds_per_1000(phase)),
            "federate_writes_per_pod": {
                side: {
                    "pods": self.pod_writes_per_pod(side, phase),
                    "by_kind": self.writes_per_pod(side, phase),
                }
                for side in ("hub", "target")
            },
        }


@dataclass(slots=True, kw_only=True)
class Result:
    """All that a run of the benchmark has measured so far."""

    plan: Plan
    machine: Mapping[str, str | int | float]
    software: Mapping[str, str] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    standing: dict[NodePlay, Standing] = field(default_factory=dict)
    streams: Streams | None = None

    def document(self) -> dict[str, Any]:
        """Return everything as JSON: first what counts, then each single round."""
        return {
            "machine": self.machine,
            "software": self.software,
            "profiled": self.plan.profile_folder is not None,
            "summary": [series.summary() for series in self.measured],
            "standing": {play: asdict(found) for play, found in self.standing.items()},
            "streams": self.streams.document() if self.streams else None,
            "rounds": [
                {"play": series.play, "pair": number, **asdict(found)}
                for series in self.measured
                for number, pair in enumerate(series.pairs)
                for found in pair.values()
            ],
        }

    @property
    def measured(self) -> list[Series]:
        """The series of which there is at least one pair."""
        return [series for series in self.series if series.pairs]


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write it, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(orjson.dumps(document, option=options))
    temporary.replace(path)


def lines_of(series: Series) -> Sequence[Sequence[str]]:
    """Render the rows of a table: one per phase."""
    rows = []
    for phase in PHASES:
        seconds = [f"{spread_of(series.seconds(a, phase)).median:.2f}" for a in series.arms]
        ratios = [_in_words(series.ratio_to(arm, phase)) for arm in (Arm.TARGET, Arm.BOTH)]
        ours = ["", "", ""]
        if Arm.FEDERATE in series.arms:
            ours = [
                f"{series.cpu_seconds_per_1000(phase).median:.2f}",
                f"{series.pod_writes_per_pod('hub', phase):.2f}",
                f"{series.pod_writes_per_pod('target', phase):.2f}",
            ]
        rows.append([f"{series.pods} {series.play} {phase}", " / ".join(seconds), *ratios, *ours])
    return rows


def _in_words(ratio: Spread | None) -> str:
    return "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"

"""Carry out a plan: bed after bed, pair after pair; results are complete after each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from e2e.testbed.progress import Progress
from e2e.testbed.provider import NodePlay

from .bed import Bed, running_bed
from .machine import describe_machine, describe_software
from .plan import Part, Plan, arms_in_turn
from .profile import Profiler
from .results import Result, Series
from .standing import measure_standing
from .streambed import complaint, running_desk
from .streams import StreamPlan, Streams, measure_streams
from .updown import Arm, Round, run_round

WARM_UP_PODS = 10
"""Makes namespaces, opens connections, fills caches: what nobody wants to see in the first pair."""


def run_plan(
    plan: Plan, progress: Progress, *, keep: Callable[[Result], None] = lambda _result: None
) -> Result:
    """Measure all that is planned. `keep` is handed what there is so far, again and again."""
    result = Result(plan=plan, machine=describe_machine())
    profiler = Profiler(plan.profile_folder) if plan.profile_folder else None
    if {Part.UP_DOWN, Part.STANDING} & set(plan.parts):
        run_pods(plan, result, progress, keep=keep, profiler=profiler)
    if Part.STREAMS in plan.parts:
        run_streams(plan, result, progress, keep=keep, profiler=profiler)
    return result


def run_pods(
    plan: Plan,
    result: Result,
    progress: Progress,
    *,
    keep: Callable[[Result], None],
    profiler: Profiler | None,
) -> None:
    """Measure what becomes of pods, on bare control planes."""
    for play in plan.plays:
        with running_bed(play, progress) as bed:
            result.software = describe_software(bed.hub.version)
            warm_up(bed, plan.arms, progress)
            if Part.UP_DOWN in plan.parts:
                for pods in plan.sizes:
                    series = Series(play=play, pods=pods)
                    result.series.append(series)
                    for _ in measure_pairs(bed, plan, series, progress, profiler=profiler):
                        keep(result)
            if Part.STANDING in plan.parts:
                result.standing[play] = measure_standing(bed, plan, progress)
                keep(result)


def run_streams(
    plan: Plan,
    result: Result,
    progress: Progress,
    *,
    keep: Callable[[Result], None],
    profiler: Profiler | None,
) -> None:
    """Measure what goes through the kubelet API, on kind clusters; nothing where there is none."""
    if said := complaint():
        progress.say(
            f"The part streams is left out: it needs real containers, and Docker does not answer "
            f"({said}).",
            always=True,
        )
        return

    def keep_streams(streams: Streams) -> None:
        result.streams = streams
        keep(result)

    with running_desk(progress) as desk:
        result.software = describe_software(desk.hub.cluster.version)
        stream_plan = StreamPlan(pairs=plan.pairs)
        measure_streams(desk, stream_plan, progress, profiler=profiler, keep=keep_streams)


def warm_up(bed: Bed, arms: Sequence[Arm], progress: Progress) -> None:
    """Run every arm once, small and uncounted."""
    with progress.long_step("Warming up"):
        for arm in arms:
            run_round(bed, arm, WARM_UP_PODS)


def measure_pairs(
    bed: Bed, plan: Plan, series: Series, progress: Progress, *, profiler: Profiler | None
) -> Iterator[None]:
    """Run the pairs of one size; their arms take turns in coming first. Yields after each pair."""
    started_at = time.monotonic()
    for pair in range(plan.pairs):
        rounds: dict[Arm, Round] = {}
        for arm in arms_in_turn(plan.arms, pair):
            with progress.long_step(title(series.play, series.pods, pair, plan.pairs, arm)):
                rounds[arm] = run_round(bed, arm, series.pods, profiler=profiler)
        series.pairs.append(rounds)
        spent = time.monotonic() - started_at
        left = spent / (pair + 1) * (plan.pairs - pair - 1)
        progress.say(f"  {tell(rounds)}; {left / 60:.0f} min left for {series.pods} pods")
        yield


def title(play: NodePlay, pods: int, pair: int, pairs: int, arm: Arm) -> str:
    """Name a round for a person."""
    return f"{pods} pods, {play} nodes, pair {pair + 1} of {pairs}, {arm}"


def tell(rounds: dict[Arm, Round]) -> str:
    """Tell a pair's seconds in one line."""
    parts = [
        f"{arm} up {r.up.seconds:.2f} s, down {r.down.seconds:.2f} s" for arm, r in rounds.items()
    ]
    ours = rounds.get(Arm.FEDERATE)
    if ours is not None:
        cpu = f"federate's CPU {ours.up.federate_cpu_seconds:.2f} + "
        parts.append(cpu + f"{ours.down.federate_cpu_seconds:.2f} s")
    return "; ".join(parts)

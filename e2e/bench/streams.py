"""What goes through the kubelet API, against the same in the target itself: the part `streams`.

Real containers are needed. Each exec and each transfer is done through the hub and directly, one
after the other, every other time in reverse order; a ratio is of such a pair.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from e2e.support.desk import Desk, Side
from e2e.support.manifests import APP, container, pod, pod_spec
from e2e.support.world import wait_for
from e2e.testbed.errors import TestbedError
from e2e.testbed.progress import Progress

from .figures import paired_ratios, quantile, spread_of
from .machine import busy_seconds
from .profile import Profiler
from .streamclients import (
    PIECE,
    Reached,
    hear_ticks,
    seconds_of_input,
    seconds_of_output,
    stalled_log,
    timed_exec,
)

POD = "streams"
PORT = 8080
LINE_BYTES = 160
"""Of a log: as a web server writes them."""
MEBIBYTE = 1 << 20
WARM_UP_EXECS = 3
WRITTEN_SECONDS = 600.0
"""Until the container has written all of a large log."""
RESUMED_MEBIBYTES = 64


class Way(StrEnum):
    """How a container is reached."""

    HUB = "hub"
    """Through the hub, by federate."""
    TARGET = "target"
    """Directly."""


def ways_in_turn(pair: int) -> list[Way]:
    """Return the order within a pair."""
    return list(Way) if pair % 2 == 0 else list(reversed(Way))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """How much is done."""

    pairs: int = 7
    execs: int = 100
    """On each way."""
    mebibytes: int = 100
    log_mebibytes: int = 64
    """Less: kubelets pass lines on one by one, ten times slower than bytes."""
    followers: int = 200
    follow_pairs: int = 2
    follow_seconds: float = 30.0
    tick_milliseconds: int = 200
    stalled_mebibytes: int = 1024
    """0: no reader stalls."""
    stalled_seconds: Sequence[float] = (0.0, 10.0, 60.0)


@dataclass(slots=True, kw_only=True)
class Carried:
    """One transfer."""

    what: str
    way: Way
    mebibytes: int
    load_before: float
    """Of the machine, as the kernel averages it over a minute."""
    seconds: float
    federate_cpu_seconds: float
    machine_cpu_seconds: float
    """Of all cores, the clients and both clusters included."""

    @property
    def speed(self) -> float:
        """Mebibytes in a second."""
        return self.mebibytes / self.seconds


@dataclass(slots=True, kw_only=True)
class Followed:
    """Many followers of one log, for a while."""

    way: Way
    followers: int
    load_before: float
    seconds: float
    lines: int
    delay_p50_ms: float
    delay_p99_ms: float
    federate_cpu_seconds: float
    machine_cpu_seconds: float
    resident_mib_before: float
    resident_mib_most: float


@dataclass(slots=True, kw_only=True)
class Stalled:
    """A reader of a large log that takes nothing."""

    offered_mebibytes: int
    resident_mib_before: float
    resident_mib_after: dict[str, float] = field(default_factory=dict)
    """By seconds since it was asked for."""
    resumed_mebibytes: int = 0
    """What came at once when it read on."""


@dataclass(slots=True, kw_only=True)
class Streams:
    """All that was measured."""

    execs: list[dict[Way, float]] = field(default_factory=list)
    """Milliseconds of each pair."""
    load_before_execs: float = 0.0
    carried: list[dict[Way, Carried]] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    stalled: Stalled | None = None

    def pairs_of(self, what: str) -> list[dict[Way, Carried]]:
        """Return the pairs of one kind of transfer."""
        return [pair for pair in self.carried if pair[Way.HUB].what == what]

    def summary(self) -> dict[str, Any]:
        """Tell what counts."""
        kinds = dict.fromkeys(pair[Way.HUB].what for pair in self.carried)
        return {
            "exec_milliseconds": summary_of_execs(self.execs) if self.execs else {},
            "carried": {what: summary_of_carried(self.pairs_of(what)) for what in kinds},
            "followed": [asdict(found) for found in self.followed],
            "stalled": asdict(self.stalled) if self.stalled else None,
        }

    def document(self) -> dict[str, Any]:
        """Return all as JSON."""
        return {
            **self.summary(),
            "load_before_execs": self.load_before_execs,
            "every_exec": self.execs,
            "every_transfer": [asdict(one) for pair in self.carried for one in pair.values()],
        }


def summary_of_execs(execs: Sequence[Mapping[Way, float]]) -> dict[str, Any]:
    """Tell medians of both ways, and what the hub adds within a pair."""
    return {
        **{str(way): asdict(spread_of([pair[way] for pair in execs])) for way in Way},
        "added": asdict(spread_of([pair[Way.HUB] - pair[Way.TARGET] for pair in execs])),
    }


def summary_of_carried(pairs: Sequence[Mapping[Way, Carried]]) -> dict[str, Any]:
    """Tell speeds, their ratio, and what they cost."""
    through, direct = ([pair[way] for pair in pairs] for way in Way)
    return {
        "mebibytes": through[0].mebibytes,
        "mebibytes_per_second": {
            str(way): asdict(spread_of([pair[way].speed for pair in pairs])) for way in Way
        },
        "ratio": asdict(paired_ratios([c.speed for c in through], [c.speed for c in direct])),
        "federate_cpu_seconds_per_gibibyte": asdict(
            spread_of([1024 * c.federate_cpu_seconds / c.mebibytes for c in through])
        ),
        "machine_cpu_seconds_per_gibibyte": {
            str(way): asdict(
                spread_of([1024 * p[way].machine_cpu_seconds / p[way].mebibytes for p in pairs])
            )
            for way in Way
        },
    }


def rows_of(streams: Streams) -> list[tuple[str, str, str, str]]:
    """Render a table: what, through the hub, directly, and the two compared."""
    told = streams.summary()
    rows = []
    if found := told["exec_milliseconds"]:
        hub, target, added = (found[name]["median"] for name in ("hub", "target", "added"))
        rows.append(("exec, ms", f"{hub:.0f}", f"{target:.0f}", f"{added:+.1f} ms"))
    for what, one in told["carried"].items():
        hub, target = (one["mebibytes_per_second"][str(way)]["median"] for way in Way)
        ratio = one["ratio"]
        spread = f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
        rows.append((f"{what}, MiB/s", f"{hub:.0f}", f"{target:.0f}", spread))
    for way in Way:
        for one in (f for f in streams.followed if f.way is way):
            delays = f"{one.delay_p50_ms:.1f}, p99 {one.delay_p99_ms:.1f}"
            cpu = f"{one.federate_cpu_seconds:.1f} CPU s, {one.resident_mib_most:.0f} MiB"
            cells = (delays, "", cpu) if way is Way.HUB else ("", delays, "")
            rows.append((f"{one.followers} followers, ms", *cells))
    if streams.stalled is not None:
        grown = [f"{s} s: {m:.0f} MiB" for s, m in streams.stalled.resident_mib_after.items()]
        before = f"before: {streams.stalled.resident_mib_before:.0f} MiB"
        rows.append(("stalled reader", ", ".join([before, *grown]), "", ""))
    return rows


# -- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where it is measured; the pod runs already."""

    desk: Desk
    plan: StreamPlan
    progress: Progress
    profiler: Profiler | None = None

    def side(self, way: Way) -> Side:
        """Return kubectl on one of the ways."""
        return {Way.HUB: self.desk.hub, Way.TARGET: self.desk.target}[way]

    def reached(self, way: Way) -> Reached:
        """Return the pod for requests of our own."""
        return Reached.of(self.side(way), POD)

    def cpu_seconds(self) -> float:
        """Return what federate has used."""
        return self.desk.space.world.federate.usage().cpu_seconds

    def resident_mib(self) -> float:
        """Return federate's memory."""
        return round(self.desk.space.world.federate.usage().resident_bytes / MEBIBYTE, 1)


def measure_streams(
    desk: Desk,
    plan: StreamPlan,
    progress: Progress,
    *,
    profiler: Profiler | None = None,
    keep: Callable[[Streams], None] = lambda _streams: None,
) -> Streams:
    """Measure everything in the plan; `keep` is handed what there is so far, again and again."""
    bench = Bench(desk=desk, plan=plan, progress=progress, profiler=profiler)
    result = Streams()
    start_pod(desk, plan)
    for step in (measure_execs, measure_carried, measure_followed, measure_stalled):
        step(bench, result)
        keep(result)
    return result


def start_pod(desk: Desk, plan: StreamPlan) -> None:
    """Start one pod for all of it, and wait until its logs are written."""

    def app(name: str, *arguments: str) -> dict[str, object]:
        return container(name=name, command=[APP, *arguments])

    line = str(LINE_BYTES)
    sizes = {"log": plan.log_mebibytes, "flood": plan.stalled_mebibytes}
    writers = [app(name, "spill", str(size), line, "wait") for name, size in sizes.items() if size]
    ticker = app("tick", "tick", str(plan.tick_milliseconds))
    containers = [app("main", "echo"), ticker, *writers]
    desk.space.run_pod(pod(POD, pod_spec(desk.space.node, containers=containers)))
    for writer in writers:
        name = str(writer["name"])
        wait_for(
            f"the log of {name} is written",
            partial(is_written, desk, name),
            timeout_seconds=WRITTEN_SECONDS,
            explain=desk.space.explain,
        )


def is_written(desk: Desk, container_name: str) -> bool:
    """Tell whether `app spill` has printed its last line."""
    return desk.target.read("logs", POD, "-c", container_name, "--tail=1") == b"spilled\n"


def measure_execs(bench: Bench, result: Streams) -> None:
    """Time a command that does nothing, again and again."""
    ways = {way: bench.reached(way) for way in Way}
    result.load_before_execs = round(os.getloadavg()[0], 2)

    async def run() -> None:
        for number in range(-WARM_UP_EXECS, bench.plan.execs):
            took = {
                way: 1000 * await timed_exec(ways[way], "main", [APP, "version"])
                for way in ways_in_turn(number)
            }
            if number >= 0:
                result.execs.append(took)

    with bench.progress.long_step(f"{bench.plan.execs} pairs of execs"):
        asyncio.run(run())


def measure_carried(bench: Bench, result: Streams) -> None:
    """Carry the same bytes on both ways."""
    for pair in range(bench.plan.pairs):
        title = f"{bench.plan.mebibytes} MiB each, pair {pair + 1} of {bench.plan.pairs}"
        with bench.progress.long_step(title):
            for what in CARRYING:
                found = {way: carry(bench, what, way) for way in ways_in_turn(pair)}
                result.carried.append(found)
        told = [
            f"{pair[w].what} {w} {pair[w].speed:.0f}"
            for pair in result.carried[-len(CARRYING) :]
            for w in Way
        ]
        bench.progress.say(f"  MiB/s: {', '.join(told)}")


def carry(bench: Bench, what: str, way: Way) -> Carried:
    """Do one transfer."""
    profiler = bench.profiler if way is Way.HUB else None
    pid = bench.desk.space.world.federate.pid
    recording = profiler.record(pid, what.replace(" ", "-")) if profiler else None
    size = bench.plan.log_mebibytes if what == LOG else bench.plan.mebibytes
    load = os.getloadavg()[0]
    cpu, busy = bench.cpu_seconds(), busy_seconds()
    seconds = CARRYING[what](bench.side(way), size)
    busy, cpu = busy_seconds() - busy, bench.cpu_seconds() - cpu
    if recording is not None:
        recording.stop()
    return Carried(
        what=what,
        way=way,
        mebibytes=size,
        load_before=round(load, 2),
        seconds=round(seconds, 4),
        federate_cpu_seconds=round(cpu, 2),
        machine_cpu_seconds=round(busy, 2),
    )


def read_log(side: Side, mebibytes: int) -> float:
    """Read a whole log."""
    return seconds_of_output(side, "logs", POD, "-c", "log", wanted=mebibytes * MEBIBYTE)


def exec_out(side: Side, mebibytes: int) -> float:
    """Let a command print: what a copy from a container is."""
    command = [APP, "spill", str(mebibytes), str(LINE_BYTES)]
    arguments = ("exec", POD, "-c", "main", "--", *command)
    return seconds_of_output(side, *arguments, wanted=mebibytes * MEBIBYTE)


def exec_in(side: Side, mebibytes: int) -> float:
    """Send to a command: what a copy into a container is."""
    arguments = ("exec", "-i", POD, "-c", "main", "--", APP, "take")
    return seconds_of_input(side, *arguments, size=mebibytes * MEBIBYTE)


def forward_out(side: Side, mebibytes: int) -> float:
    """Fetch through a forwarded port. To the last byte: the end is told a second later, always."""
    size = mebibytes * MEBIBYTE
    with side.forwarded(POD, PORT) as port, socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(f"{-size}\n".encode())
        count, began = len(peer.recv(1)), time.monotonic()
        while count < size and (part := peer.recv(len(PIECE))):
            count += len(part)
        seconds = time.monotonic() - began
    if count != size:
        raise TestbedError(f"{count} bytes of {size} came through the port.")
    return seconds


def forward_in(side: Side, mebibytes: int) -> float:
    """Send through a forwarded port, until the other side has told its digest."""
    size = mebibytes * MEBIBYTE
    with side.forwarded(POD, PORT) as port:
        # The first connection opens the way: its time would be counted here, and not above.
        for part in (1, size):
            with socket.create_connection(("127.0.0.1", port)) as peer:
                began = time.monotonic()
                peer.sendall(f"{part}\n".encode())
                for start in range(0, part, len(PIECE)):
                    peer.sendall(PIECE[: part - start])
                answer = b""
                while not answer.endswith(b"\n") and (got := peer.recv(4096)):
                    answer += got
                seconds = time.monotonic() - began
    if not answer.startswith(f"{size} ".encode()):
        raise TestbedError(f"{size} bytes sent through the port were answered with {answer!r}.")
    return seconds


LOG = "log"
CARRYING: Mapping[str, Callable[[Side, int], float]] = {
    LOG: read_log,
    "exec out": exec_out,
    "exec in": exec_in,
    "port-forward out": forward_out,
    "port-forward in": forward_in,
}


def measure_followed(bench: Bench, result: Streams) -> None:
    """Let many follow one log."""
    for pair in range(bench.plan.follow_pairs):
        for way in ways_in_turn(pair):
            with bench.progress.long_step(f"{bench.plan.followers} followers, {way}"):
                result.followed.append(follow(bench, way))


def follow(bench: Bench, way: Way) -> Followed:
    """Let many follow on one way, for a while."""
    before, load = bench.resident_mib(), os.getloadavg()[0]
    resident = [before]
    marks = [0.0, 0.0]

    def began() -> None:
        marks[:] = [bench.cpu_seconds(), busy_seconds()]

    plan = bench.plan
    heard = asyncio.run(
        hear_ticks(
            bench.reached(way),
            "tick",
            followers=plan.followers,
            seconds=plan.follow_seconds,
            began=began,
            looked=lambda: resident.append(bench.resident_mib()),
        )
    )
    cpu, busy = bench.cpu_seconds() - marks[0], busy_seconds() - marks[1]
    milliseconds = [1000 * delay for delay in heard.delays]
    return Followed(
        way=way,
        followers=plan.followers,
        load_before=round(load, 2),
        seconds=round(heard.seconds, 1),
        lines=len(milliseconds),
        delay_p50_ms=round(quantile(milliseconds, 0.5), 1),
        delay_p99_ms=round(quantile(milliseconds, 0.99), 1),
        federate_cpu_seconds=round(cpu, 2),
        machine_cpu_seconds=round(busy, 2),
        resident_mib_before=before,
        resident_mib_most=max(resident),
    )


def measure_stalled(bench: Bench, result: Streams) -> None:
    """Offer a large log to a reader that takes nothing, and look at federate's memory."""
    size = bench.plan.stalled_mebibytes
    if not size:
        return
    found = Stalled(offered_mebibytes=size, resident_mib_before=bench.resident_mib())
    with (
        bench.progress.long_step(f"A stalled reader of {size} MiB"),
        stalled_log(bench.reached(Way.HUB), "flood") as read_on,
    ):
        began = time.monotonic()
        for after in bench.plan.stalled_seconds:
            time.sleep(max(0.0, began + after - time.monotonic()))
            found.resident_mib_after[f"{after:g}"] = bench.resident_mib()
        found.resumed_mebibytes = read_on(min(size, RESUMED_MEBIBYTES) * MEBIBYTE) // MEBIBYTE
    result.stalled = found

"""What a developer does with kubectl on a pod works on the hub as in the target itself (C60)."""

import fcntl
import hashlib
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.bench.streams import StreamPlan, Way, measure_streams, rows_of
from e2e.containers.crate import statuses_of
from e2e.support.desk import PROTOCOLS, Desk, address_for_containers, exchange, lines_of
from e2e.support.manifests import IMAGE, container, pod, pod_spec
from e2e.support.measuring import GENEROSITY, Measurements
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster
from e2e.testbed.progress import Progress

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "dock"
PORT = 8080
LINES = 50
CONNECTIONS = 100
ENOUGH_SECONDS = 60.0

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


def app(*arguments: str, name: str = "main", **more: object) -> dict[str, object]:
    return container(name=name, command=["/app", *arguments], **more)


@pytest.fixture(scope="module")
def desk(
    worlds: Worlds,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
) -> Iterator[Desk]:
    """Pods in a target whose virtual node the hub's API server reaches."""
    hub, target = real_hub_and_target
    address = address_for_containers(testbed_factory.places)
    with worlds.world(
        node=NODE, hub=hub, target=target, arguments=["--node-address", address]
    ) as world:
        space = Space(world, "kubectl")
        space.open()
        found = Desk.of(space, hub=hub, target=target)
        start_pods(space)
        found.wait_served()
        yield found
        space.close()


def start_pods(space: Space) -> None:
    """Start everything before the first test waits."""
    spec = pod_spec
    printing = spec(
        NODE,
        containers=[app("lines", str(LINES)), app("lines", "3", name="beside")],
        initContainers=[app("lines", "2", "0", "0", name="first")],
    )
    bodies = [
        pod("printing", printing),
        pod("falling", spec(NODE, containers=[app("lines", "3", "0", "7")])),
        pod("ticking", spec(NODE, containers=[app("lines", "100000", "50")])),
        pod("listening", spec(NODE, containers=[app("cat", stdin=True)])),
        pod("echoing", spec(NODE, containers=[app("echo")])),
        pod("working", spec(NODE)),
    ]
    for body in bodies:
        space.create(body)
    for body in bodies:
        if body["metadata"]["name"] != "falling":
            space.wait_running(body["metadata"]["name"])


# -- logs ------------------------------------------------------------------------------------------


def test_logs_are_those_of_the_target(desk: Desk, measured: Measurements) -> None:
    """Every option of `kubectl logs` gives byte for byte what the target gives."""
    whole = desk.same("logs", "printing", "-c", "main")
    assert lines_of(whole) == [f"line {n}" for n in range(1, LINES + 1)]
    since = "--since-time=2020-01-01T00:00:00Z"
    for options in (
        ["--tail=3"],
        ["--timestamps"],
        ["--since=1h"],
        [since],
        ["--limit-bytes=100"],
        ["--tail=5", "--timestamps", "--limit-bytes=60"],
        ["--container=beside"],
        ["--container=first"],
        ["--all-containers", "--prefix"],
        ["--insecure-skip-tls-verify-backend"],
    ):
        desk.same("logs", "printing", *options)
    began = time.monotonic()
    desk.hub.read("logs", "printing", "--tail=1")
    measured.seconds("kubectl logs", time.monotonic() - began, promise=3.0)


def test_logs_of_the_last_run(desk: Desk) -> None:
    """`--previous` tells what a container said before it was restarted."""

    def restarted() -> bool:
        found = statuses_of(desk.space.pod("falling") or {})
        return bool(found.get("main", {}).get("restartCount", 0) >= 1)

    def told() -> bool:
        said = desk.hub.read("logs", "falling", "--previous")
        return lines_of(said) == ["line 1", "line 2", "line 3"]

    desk.space.wait("the container was restarted", restarted)
    # It falls again at once; while a kubelet removes the run before the last it may find neither.
    desk.space.wait("the last run's lines are told", told)


def test_logs_are_followed(desk: Desk) -> None:
    """Lines come while they are written, and the follower may go at any time."""
    with desk.hub.running("logs", "ticking", "--follow", "--tail=1") as process:
        assert process.stdout is not None
        numbers = [int(process.stdout.readline().split()[1]) for _ in range(20)]
    assert numbers == list(range(numbers[0], numbers[0] + 20))


@pytest.mark.parametrize(
    "arguments",
    [
        ["logs", "printing", "-c", "nobody"],
        ["logs", "printing", "-c", "main", "--previous"],
        ["logs", "absent"],
        ["exec", "printing", "-c", "nobody", "--", "/app", "version"],
        ["exec", "working", "--", "/absent"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_had_is_told_as_in_the_target(desk: Desk, arguments: list[str]) -> None:
    """A wrong container, a run that never was, a program that is not there."""
    through, directly = desk.hub.run(*arguments), desk.target.run(*arguments)
    assert through.returncode == directly.returncode != 0, (through, directly)
    if "absent" in arguments or "nobody" in arguments:
        return  # the hub's API server says it by itself, or in the hub's words
    assert words(through.stderr, desk) == words(directly.stderr, desk)


def words(said: bytes, desk: Desk) -> str:
    """Return the last line, without what differs from one try, and from one side, to the other."""
    text = said.decode().replace(desk.space.target_namespace, desk.space.namespace)
    return re.sub(r"[0-9a-f]{64}", "ID", text.splitlines()[-1])


# -- exec and attach -------------------------------------------------------------------------------


@each_protocol
def test_exec_gives_output_and_exit_code(desk: Desk, protocol: Mapping[str, str]) -> None:
    """What the command prints, on both streams, and how it ends."""
    said = desk.hub.run("exec", "working", "--", "/app", "lines", "2", "0", "3", protocol=protocol)
    assert (said.returncode, said.stdout) == (3, b"line 1\nline 2\n")
    wrong = desk.hub.run("exec", "working", "--", "/app", "nonsense", protocol=protocol)
    assert wrong.returncode == 2
    assert b"usage: app" in wrong.stderr


@each_protocol
def test_exec_takes_stdin(desk: Desk, protocol: Mapping[str, str]) -> None:
    """All bytes arrive and come back in order, and the end of the input ends the command."""
    data = os.urandom(1 << 20)
    echoed = desk.hub.run("exec", "-i", "working", "--", "/app", "cat", stdin=data,
                          protocol=protocol)  # fmt: skip
    assert echoed.returncode == 0, echoed.stderr
    assert echoed.stdout == data


@each_protocol
def test_exec_has_a_terminal_that_is_resized(desk: Desk, protocol: Mapping[str, str]) -> None:
    """The program in the target sees the size of the user's window, and each change of it."""
    ours, theirs = pty.openpty()
    resize(ours, 33, 101)
    with subprocess.Popen(
        desk.hub.command("exec", "-it", "working", "--", "/app", "window"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **protocol},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        try:
            os.close(theirs)
            seen = read_until(ours, b"window 33x101")
            resize(ours, 44, 132)
            seen = read_until(ours, b"window 44x132", seen)
            os.write(ours, b"enough\n")
            assert process.wait(ENOUGH_SECONDS) == 0
        finally:
            process.kill()
            os.close(ours)


@each_protocol
def test_attach_reaches_the_running_program(desk: Desk, protocol: Mapping[str, str]) -> None:
    """What is typed arrives at the container's own stdin, and its answer comes back."""
    with desk.hub.running(
        "attach", "-i", "listening", protocol=protocol, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        word = f"hello over {sorted(protocol.values())[0]}\n".encode()
        process.stdin.write(word)
        process.stdin.flush()
        said = b""
        while word not in said:
            line = process.stdout.readline()
            assert line, said
            said += line


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(terminal: int, wanted: bytes, seen: bytes = b"") -> bytes:
    deadline = time.monotonic() + ENOUGH_SECONDS
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, seen
        seen += os.read(terminal, 4096)
    return seen


# -- port-forward ----------------------------------------------------------------------------------


@each_protocol
def test_many_connections_are_forwarded_at_once(desk: Desk, protocol: Mapping[str, str]) -> None:
    """A hundred at a time; each says that it has sent all, and still gets its answer."""
    data = [os.urandom(20_000 + n) for n in range(CONNECTIONS)]
    requests = [f"{len(sent)}\n".encode() + sent for sent in data]
    with (
        desk.hub.forwarded("echoing", PORT, protocol=protocol) as port,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        answers = list(pool.map(lambda sent: exchange(port, sent), requests))
    expected = [f"{len(sent)} {hashlib.sha256(sent).hexdigest()}\n".encode() for sent in data]
    assert answers == expected


# -- cp and debug ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mebibytes", [5, pytest.param(100, marks=pytest.mark.long)], ids=lambda n: f"{n}MB"
)
def test_files_are_copied_both_ways(
    desk: Desk, tmp_path: Path, measured: Measurements, mebibytes: int
) -> None:
    """`kubectl cp` brings a file there and back, and none of its bytes changes."""
    ours, back = tmp_path / "ours", tmp_path / "back"
    data = os.urandom(mebibytes << 20)
    ours.write_bytes(data)
    there = f"/tmp/copied-{mebibytes}"
    for what, source, goal in (
        ("there", str(ours), f"working:{there}"),
        ("back", f"working:{there}", str(back)),
    ):
        began = time.monotonic()
        desk.hub.read("cp", source, goal)
        measured.seconds(f"cp {what}", time.monotonic() - began, promise=60.0)
    digest = desk.target.read("exec", "working", "--", "/app", "digest", there)
    assert digest.strip().decode() == hashlib.sha256(data).hexdigest()
    assert back.read_bytes() == data


def test_a_debug_container_is_talked_to(desk: Desk) -> None:
    """`kubectl debug -i` starts a container beside the others and attaches to it."""
    with desk.hub.running(
        *("debug", "-i", "working", "--profile=baseline", f"--image={IMAGE}"),
        *("--container=look", "--", "/app", "cat"),
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"anybody there\n")
        process.stdin.flush()
        said = b""
        while b"anybody there" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        process.stdin.close()
        assert process.wait(ENOUGH_SECONDS) == 0


# -- speed -----------------------------------------------------------------------------------------

FEW = StreamPlan(
    pairs=3,
    execs=5,
    mebibytes=5,
    log_mebibytes=5,
    followers=5,
    follow_pairs=1,
    follow_seconds=3.0,
    stalled_mebibytes=6,
    stalled_seconds=(0.0, 2.0),
)
"""A kubelet begins a new file of a log after 10 MiB, and shows no more than that."""

ADDED_MILLISECONDS = 15.0
LEAST_RATIO = 0.75
HELD_MEBIBYTES = 8.0
"""What a reader that takes nothing may cost federate."""


@pytest.mark.long
def test_streams_are_nearly_as_fast_as_in_the_target(desk: Desk, measured: Measurements) -> None:
    """The benchmark of streams, small; a busy machine may be five times slower than promised."""
    found = measure_streams(desk, FEW, Progress(quiet=True))
    for row in rows_of(found):
        measured.note(row[0], ", ".join(row[1:]))
    told = found.summary()
    added = told["exec_milliseconds"]["added"]["median"] / 1000
    measured.seconds("added to an exec", added, promise=ADDED_MILLISECONDS / 1000)
    for what, one in told["carried"].items():
        assert one["ratio"]["median"] > LEAST_RATIO / GENEROSITY, (what, one)
    assert all(one.lines > 0 for one in found.followed)
    assert {one.way for one in found.followed} == set(Way)
    assert found.stalled is not None and found.stalled.resumed_mebibytes == FEW.stalled_mebibytes
    grown = max(found.stalled.resident_mib_after.values()) - found.stalled.resident_mib_before
    assert grown < HELD_MEBIBYTES, found.stalled

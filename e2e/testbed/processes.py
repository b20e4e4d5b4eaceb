"""Start servers, wait until they serve, and stop them so that nothing is left.

A server is tied to the test run that starts it (the kernel kills it when the run dies, even by
SIGKILL) or detached (it outlives the command that started it). Either way it leaves a record
(see `launch`), by which another process can find and end it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .errors import TestbedError
from .identity import Identity, command_line

POLL_SECONDS = 0.05
PAUSE_SECONDS = 10.0
LAUNCHER = Path(__file__).resolve().parent / "launch.py"
ADDRESS_TAKEN = "address already in use"


class AddressTakenError(TestbedError):
    """A server found its port taken: starting it again on another port helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a server's launcher wrote about it."""

    identity: Identity
    program: str

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        """Read a record; None when there is none or it makes no sense."""
        try:
            content = json.loads(path.read_text())
            identity = Identity(
                pid=content["pid"], start_ticks=content["start_ticks"], boot=content["boot"]
            )
            return cls(identity=identity, program=content["program"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    @property
    def is_alive(self) -> bool:
        """Tell whether that very server runs; another process with its pid does not count."""
        return self.identity.is_alive and self.program in command_line(self.identity.pid)


def signal_recorded(record: Record, number: signal.Signals) -> bool:
    """Signal the recorded server, and no other process; False when it is gone."""
    try:
        # A pidfd keeps meaning the same process between the check and the signal.
        descriptor = os.pidfd_open(record.identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not record.is_alive:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def end_recorded(records: Iterable[Record], *, grace_seconds: float = 0.0) -> int:
    """End recorded servers, kindly if there is grace, and wait until they are gone.

    Returns how many were running.
    """
    running = [record for record in records if record.is_alive]
    if grace_seconds:
        for record in running:
            signal_recorded(record, signal.SIGTERM)
            signal_recorded(record, signal.SIGCONT)
        wait_until(lambda: not any(_lingers(record) for record in running), grace_seconds)
    for record in running:
        signal_recorded(record, signal.SIGKILL)
    if not wait_until(lambda: not any(_lingers(record) for record in running), 10.0):
        raise TestbedError("Some servers did not die within 10 s of SIGKILL.")
    return len(running)


def _lingers(record: Record) -> bool:
    """Tell whether the process is still there: a dying one loses its command line first."""
    return record.identity.is_alive


class Server:
    """One program of a cluster: can be started, paused, killed and started again."""

    def __init__(
        self, name: str, command: Sequence[str | Path], *, folder: Path, launcher: "Launcher"
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = folder / "logs" / f"{name}.log"
        self.record_path = folder / "processes" / f"{name}.json"
        self._launcher = launcher
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program; returns at once. Does nothing when it runs already."""
        if self.is_running:
            return
        for path in (self.log, self.record_path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._process = self._launcher.launch(self.command, log=self.log, record=self.record_path)

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Wait until the server serves.

        Raises:
            AddressTakenError: it ended because its port was taken.
            TestbedError: it ended, or was not ready in time; the message quotes its log.
        """

        def is_settled() -> bool:
            return not self.is_running or is_ready()

        settled = wait_until(is_settled, timeout_seconds)
        if not self.is_running:
            code = self._process.returncode if self._process else None
            kind = AddressTakenError if ADDRESS_TAKEN in self.log_tail(40) else TestbedError
            raise kind(f"{self.name} ended with {code} while starting. {self._quote_log()}")
        if not settled:
            raise TestbedError(
                f"{self.name} was not ready after {timeout_seconds:.0f} s. {self._quote_log()}"
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the last start.

        Raises:
            TestbedError: it was never started.
        """
        if self._process is None:
            raise TestbedError(f"{self.name} was not started.")
        return self._process.pid

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing answers.

        When this returns all of its threads stand still: each has ended the system call it was in.
        """
        self._signal(signal.SIGSTOP)
        if not wait_until(lambda: stands_still(self.pid), PAUSE_SECONDS):
            raise TestbedError(f"{self.name} did not stand still. {self._quote_log()}")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the server as a power cut would; returns when it is gone."""
        self.stop(grace_seconds=0.0)

    def stop(self, *, grace_seconds: float = 2.0) -> None:
        """End the server, kindly within the grace and then not; twice does no harm."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        if grace_seconds:
            process.terminate()
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        else:
            process.kill()
        process.wait()

    def log_tail(self, lines: int = 15) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_running or self._process is None:
            raise TestbedError(f"{self.name} does not run. {self._quote_log()}")
        self._process.send_signal(number)

    def _quote_log(self) -> str:
        return f"The end of its log {self.log}:\n{self.log_tail()}"


class Launcher:
    """Start the servers of one cluster, tied to this process or detached."""

    def __init__(self, *, tied: bool) -> None:
        self._tied = tied
        # The kernel ties a child to the *thread* that forked it. This thread lives until
        # `close`, whichever thread asks for a start.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="testbed-launcher")

    def launch(self, command: Sequence[str], *, log: Path, record: Path) -> subprocess.Popen[bytes]:
        return self._thread.submit(self._fork, command, log, record).result()

    def close(self) -> None:
        """Let the thread go; tied servers that still run die with it."""
        self._thread.shutdown()

    def _fork(self, command: Sequence[str], log: Path, record: Path) -> subprocess.Popen[bytes]:
        parent = os.getpid() if self._tied else 0
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(record), str(parent)]
        # A detached server may not keep the folder of the shell that started it in use.
        with log.open("ab") as output:
            return subprocess.Popen(
                [*launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent.parent,
                # An interrupt at the terminal is for the test run, which then stops servers.
                start_new_session=True,
            )


def stands_still(pid: int) -> bool:
    """Tell whether every thread of the process is stopped."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return all(path.read_text().rpartition(")")[2].split()[0] in "Tt" for path in threads)
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended meanwhile, so not all stood still


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Poll until the condition holds; False when the time is over."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True

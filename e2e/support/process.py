"""The process under test: `python -m federate run`, started, hurt and stopped from outside."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError

from e2e.testbed.processes import Launcher, wait_until

STOP_LIMIT_SECONDS = 5.0
"""What federate promises for SIGTERM and Ctrl-C."""

READY_LIMIT_SECONDS = 40.0
"""A killed predecessor's leader lease has to run out first, on a machine that may be busy."""

CLI_TIMEOUT_SECONDS = 30.0

LISTENS = re.compile(rb'event="health and metrics" .*port=(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The command line of one federate process."""

    node: str
    hub: Path
    target: Path
    arguments: Sequence[str] = ()
    config: Path | None = None
    """A configuration file, which says hub and targets then."""

    def command(self) -> list[str]:
        """Render the command line; health and metrics are served on a port the kernel chooses."""
        return [
            *(sys.executable, "-m", "federate", "run"),
            *self._ends(),
            *("--listen", "127.0.0.1:0"),
            *self.arguments,
        ]

    def _ends(self) -> list[str]:
        if self.config is not None:
            return ["--config", str(self.config)]
        return ["--hub", str(self.hub), "--target", f"{self.node}={self.target}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used up so far, as the kernel counts it."""

    cpu_seconds: float
    resident_bytes: int
    peak_resident_bytes: int


def run_cli(
    *arguments: str, timeout_seconds: float = CLI_TIMEOUT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a federate command to its end, whatever its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "federate", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def run_sweep(options: RunOptions, *arguments: str) -> str:
    """Run `federate sweep` for the node of these options; returns what it says, without spaces.

    Lines break where the terminal ends, in the middle of a name too.
    """
    ended = run_cli(
        "sweep", "--hub", str(options.hub), "--target", f"{options.node}={options.target}",
        *arguments,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return "".join(ended.stdout.split())


class FederateProcess:
    """One federate process; a restart is the same command again. It dies with the test run."""

    def __init__(self, options: RunOptions, *, folder: Path) -> None:
        self.options = options
        self.log = folder / "logs" / "federate.log"
        self._record = folder / "federate.json"
        self._port = 0
        self._log_before = 0
        self._launcher = Launcher(tied=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.log.parent.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start the process; returns at once."""
        assert not self.is_running
        self._port = 0
        self._log_before = self.log.stat().st_size if self.log.exists() else 0
        command = self.options.command()
        self._process = self._launcher.launch(command, log=self.log, record=self._record)

    def wait_ready(self) -> None:
        """Wait until the process says that its virtual node works."""
        settled = wait_until(lambda: self.is_ready() or not self.is_running, READY_LIMIT_SECONDS)
        if not (settled and self.is_running):
            state = "is not ready" if self.is_running else f"ended with {self.exit_code}"
            raise AssertionError(f"federate {state}. Its log {self.log} ends:\n{self.log_tail()}")

    def is_ready(self) -> bool:
        """Ask the process once; a standby is ready too."""
        try:
            self.fetch("/readyz")
        except OSError:
            return False
        return True

    def fetch(self, path: str) -> str:
        """Read a page of the process's own port, say /metrics.

        Raises:
            OSError: nobody listens yet, or the answer has an error status.
        """
        url = f"http://127.0.0.1:{self._find_port()}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5.0) as answer:
                body: bytes = answer.read()
                return body.decode()
        except HTTPError as error:
            # An answer with an error status holds a socket that has to be closed.
            error.close()
            raise

    def freeze(self) -> None:
        """Stop the process between any two of its instructions."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on as if no time had passed."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """End the process in good order; returns the seconds that took, which keep the limit."""
        started = time.monotonic()
        self._signal(number)
        assert self._process is not None
        try:
            self._process.wait(STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"federate did not end within {STOP_LIMIT_SECONDS} s. Its log ends:\n"
                f"{self.log_tail()}"
            ) from None
        return time.monotonic() - started

    def restart(self) -> None:
        """Stop, start, and wait until the virtual node works again."""
        self.stop()
        self.start()
        self.wait_ready()

    def close(self) -> None:
        """End the process in whatever state it is; twice does no harm."""
        if self.is_running:
            self.kill()
        self._launcher.close()

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the last start."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run; None while it runs."""
        return self._process.poll() if self._process else None

    def usage(self) -> Usage:
        """Read what the process has used so far."""
        assert self._process is not None
        folder = Path(f"/proc/{self._process.pid}")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        # utime and stime, fields 14 and 15 of proc(5), counted from the one after the name.
        ticks = int(fields[11]) + int(fields[12])
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Usage(
            cpu_seconds=ticks / os.sysconf("SC_CLK_TCK"),
            resident_bytes=int(status["VmRSS"].split()[0]) * 1024,
            peak_resident_bytes=int(status["VmHWM"].split()[0]) * 1024,
        )

    def log_tail(self, lines: int = 50) -> str:
        """Return the end of the log, of all runs together."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _find_port(self) -> int:
        """Read from the log of this run where it listens."""
        if not self._port:
            with self.log.open("rb") as log:
                log.seek(self._log_before)
                told = LISTENS.search(log.read())
            if told is None:
                raise OSError("federate has not said yet where it listens")
            self._port = int(told[1])
        return self._port

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None and self.is_running, self.log_tail()
        self._process.send_signal(number)

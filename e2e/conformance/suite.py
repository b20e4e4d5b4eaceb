"""Run Kubernetes' suite with ginkgo against one cluster, and read its report."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from e2e.testbed.errors import TestbedError
from e2e.testbed.processes import Launcher, Server, wait_until
from e2e.testbed.progress import Progress

from .comparing import focus_on
from .results import Results, read_report, read_selection
from .slices import Slice
from .watch import StageBrokenError, Watch

TELL_EVERY_SECONDS = 30.0
POLL_SECONDS = 0.1
STOP_SECONDS = 60.0
"""Between an interrupt and a kill: specs clean up, each step of that for at most the grace
period that ginkgo is told, and ginkgo reports."""

REPORT = "report.json"
LIST_SECONDS = 120.0
LOG_LINES = 40

FOCUS_BYTES = 100_000
"""How long ginkgo's expression may be: Linux gives one argument 128 KiB."""

CHOSEN = re.compile(r"Will run (\d+) of (\d+) specs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What the suite is run with."""

    ginkgo: Path
    suite: Path
    kubectl: Path
    repository_list: Path | None = None
    """None: the tests' images are the originals."""

    def list_images(self) -> str:
        """Ask the suite which images its tests use.

        Raises:
            TestbedError: it does not answer.
        """
        with tempfile.TemporaryDirectory() as folder:
            return ask([*self.environment(), str(self.suite), "--list-images"], Path(folder))

    def names_of(self, one: Slice) -> list[str]:
        """Ask the suite which specs a slice has; no cluster is needed for that.

        Raises:
            TestbedError: it does not answer, or has none.
        """
        with tempfile.TemporaryDirectory() as folder:
            command = [
                *(str(self.ginkgo), "run", "--dry-run", "--no-color", "--silence-skips"),
                *(f"--label-filter={one.label_filter}", f"--json-report={REPORT}"),
                *(f"--output-dir={folder}", str(self.suite)),
                # It insists on one, and does not read it.
                *("--", "--kubeconfig=none"),
            ]
            said = ask(command, Path(folder))
            names = read_selection(text_of(Path(folder) / REPORT))
        if not names:
            raise TestbedError(
                f"The suite has no spec for the label filter {one.label_filter!r}. It said:\n{said}"
            )
        return [name for name in names if re.search(one.names, name)]

    def environment(self) -> list[str]:
        """Render the words before a command that tell it where images come from.

        The suite's flag for that is read after some of its manifests are made up.
        """
        if self.repository_list is None:
            return []
        return ["/usr/bin/env", f"KUBE_TEST_REPO_LIST={self.repository_list}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of some specs on one cluster."""

    title: str
    kubeconfig: Path
    names: Sequence[str]
    """The specs' whole names."""
    procs: int = 4

    def command(self, programs: Programs, output: Path) -> list[str]:
        """Render ginkgo's command line."""
        focus = focus_on(self.names)
        if len(focus.encode()) > FOCUS_BYTES:
            raise TestbedError(
                f"{self.title} has {len(self.names)} specs, which is more than fits a command "
                "line: run parts of it, by --focus."
            )
        return [
            *programs.environment(),
            *(str(programs.ginkgo), "run", "--no-color", "--silence-skips", "--keep-going"),
            *(f"--procs={self.procs}", f"--focus={focus}"),
            *(
                "--timeout=6h",
                "--grace-period=10s",
                f"--json-report={REPORT}",
                f"--output-dir={output}",
            ),
            *(str(programs.suite), "--", f"--kubeconfig={self.kubeconfig}"),
            f"--kubectl-path={programs.kubectl}",
            *("--disable-log-dump", "--dump-logs-on-failure=false"),
        ]


class Suite:
    """Run the suite, one run at a time; leaving the context ends what runs."""

    def __init__(self, programs: Programs, *, folder: Path, progress: Progress) -> None:
        self._programs = programs
        self._folder = folder
        self._progress = progress
        self._launcher = Launcher(tied=True)
        self.so_far: Results = {}
        """What was over when a run was ended before its time, and can be trusted."""

    def run(self, run: Run, start_watch: Callable[[], Watch]) -> Results:
        """Run the specs to their end, and say from time to time how far they are.

        Raises:
            TestbedError: no spec was run; the message quotes the log.
            StageBrokenError: what they run on is gone; `so_far` has what was over before.
        """
        folder = self._folder / run.title
        folder.mkdir(parents=True, exist_ok=True)
        report = folder / REPORT
        report.unlink(missing_ok=True)
        server = Server(
            "ginkgo", run.command(self._programs, folder), folder=folder, launcher=self._launcher
        )
        server.log.unlink(missing_ok=True)
        self.so_far = {}
        watch = start_watch()
        try:
            server.start()
            self._wait(server, run, watch)
        except StageBrokenError:
            self._end(server, run, until=watch.well_at)
            raise
        except (KeyboardInterrupt, SystemExit):
            self._end(server, run)
            raise
        finally:
            stop(server)
        return self._read(server, run)

    def close(self) -> None:
        """Let go; what still runs ends."""
        self._launcher.close()

    def _wait(self, server: Server, run: Run, watch: Watch) -> None:
        started = told = looked = time.monotonic()
        while server.is_running:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - looked >= watch.every_seconds:
                self._look(watch, run)
                looked = time.monotonic()
            if time.monotonic() - told >= TELL_EVERY_SECONDS:
                told = time.monotonic()
                said = how_far(server.log.read_text(errors="replace"))
                self._progress.say(f"{run.title}, {told - started:.0f} s: {said}", always=True)
        # What failed in the end may have failed for want of something to run on.
        while self._look(watch, run):
            time.sleep(watch.every_seconds)

    def _look(self, watch: Watch, run: Run) -> str:
        wrong = watch.look()
        if wrong:
            self._progress.say(f"{run.title}: {wrong}", always=True)
        return wrong

    def _end(self, server: Server, run: Run, *, until: datetime | None = None) -> None:
        """End a run before its time, and read what was over."""
        with self._progress.long_step("Ending what runs; it is kept unless interrupted once more"):
            stop(server)
        with suppress(ValueError):
            self.so_far = read_report(self._report_of(run), was_stopped=True, until=until)

    def _read(self, server: Server, run: Run) -> Results:
        why = "it ran no spec"
        try:
            if results := read_report(self._report_of(run)):
                return results
        except ValueError as error:
            why = f"its report is none: {error}"
        # Of a cluster that the suite cannot begin on nothing is known.
        raise TestbedError(
            f"Of {run.title} nothing is kept, for {why}. The end of its log {server.log}:\n"
            f"{server.log_tail(LOG_LINES)}"
        )

    def _report_of(self, run: Run) -> str:
        """Read a run's report, without where things lie on this machine: results are checked in."""
        text = text_of(self._folder / run.title / REPORT)
        folders = {
            self._folder,
            run.kubeconfig.parent,
            *(one.parent for one in (self._programs.kubectl, self._programs.suite)),
        }
        for folder in sorted(map(str, folders), key=len, reverse=True):
            if folder.startswith("/") and folder != "/":
                text = text.replace(f"{folder.rstrip('/')}/", "")
        return text


def ask(command: Sequence[str], folder: Path) -> str:
    """Run one of the programs in a folder to its end; returns what it prints.

    Raises:
        TestbedError: it failed, or took too long; the message has the end of what it said.
    """
    try:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIST_SECONDS,
            check=False,
            cwd=folder,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TestbedError(f"{' '.join(command)}: {error}") from error
    if finished.returncode != 0:
        said = "\n".join(finished.stdout.splitlines()[-LOG_LINES:])
        raise TestbedError(f"{' '.join(command)} ended with {finished.returncode}:\n{said}")
    return finished.stdout


def text_of(report: Path) -> str:
    """Read a report; one that is not there is one of nothing."""
    return report.read_text() if report.is_file() else "[]"


def how_far(log: str) -> str:
    """Read from ginkgo's output how many specs are over."""
    chosen = CHOSEN.search(log)
    if chosen is None:
        return "starting"
    over, failed = log.count("•"), log.count("• [FAILED]")
    return f"{over} of {chosen[1]} specs over, {failed} failed"


def stop(server: Server) -> None:
    """End ginkgo as a person at a terminal would, so that specs clean up; then not so kindly."""
    if not server.is_running:
        return
    # A terminal tells the whole session, and ginkgo leaves it to each process to end its specs.
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGINT)
    wait_until(lambda: not server.is_running, STOP_SECONDS)
    # Those that did not listen.
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.kill()

"""Run Kubernetes' suite with ginkgo against one cluster, and read its report."""

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from e2e.testbed.errors import TestbedError
from e2e.testbed.processes import Launcher, Server, wait_until
from e2e.testbed.progress import Progress

from .results import Results, read_report

TELL_EVERY_SECONDS = 30.0
POLL_SECONDS = 0.5
STOP_SECONDS = 60.0
"""Between an interrupt and a kill: specs clean up, each step of that for at most the grace
period that ginkgo is told, and ginkgo reports."""

REPORT = "report.json"
LIST_SECONDS = 120.0

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
        """Ask the suite which images its tests use."""
        finished = subprocess.run(
            [*self.environment(), self.suite, "--list-images"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIST_SECONDS,
            check=True,
        )
        return finished.stdout

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
    label_filter: str
    focus: str = ""
    procs: int = 4

    def command(self, programs: Programs, output: Path) -> list[str]:
        """Render ginkgo's command line."""
        focus = [f"--focus={self.focus}"] if self.focus else []
        return [
            *programs.environment(),
            *(str(programs.ginkgo), "run", "--no-color", "--silence-skips", "--keep-going"),
            *(f"--procs={self.procs}", f"--label-filter={self.label_filter}", *focus),
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
        """What was over when a run was interrupted."""

    def run(self, run: Run) -> Results:
        """Run the specs to their end, and say from time to time how far they are.

        Raises:
            TestbedError: no spec was run; the message quotes the log.
        """
        folder = self._folder / run.title
        folder.mkdir(parents=True, exist_ok=True)
        report = folder / REPORT
        report.unlink(missing_ok=True)
        server = Server(
            "ginkgo", run.command(self._programs, folder), folder=folder, launcher=self._launcher
        )
        server.log.unlink(missing_ok=True)
        try:
            server.start()
            self._wait(server, run)
        except (KeyboardInterrupt, SystemExit):
            stop(server)
            self.so_far = read_report(text_of(report), was_stopped=True)
            raise
        finally:
            stop(server)
        results = read_report(text_of(report))
        if not results:
            # Of a cluster that the suite cannot begin on nothing is known.
            raise TestbedError(f"{run.title} ran no spec. Its log ends:\n{server.log_tail(40)}")
        return results

    def close(self) -> None:
        """Let go; what still runs ends."""
        self._launcher.close()

    def _wait(self, server: Server, run: Run) -> None:
        started = told = time.monotonic()
        while server.is_running:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - told >= TELL_EVERY_SECONDS:
                told = time.monotonic()
                said = how_far(server.log.read_text(errors="replace"))
                self._progress.say(f"{run.title}, {told - started:.0f} s: {said}", always=True)


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

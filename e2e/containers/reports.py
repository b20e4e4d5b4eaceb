"""Hear what containers tell of themselves, from outside of both clusters.

The witness is a container in Docker's network `kind`, which pods of every kind cluster reach. It
prints what it hears; a copy of its output is followed into a file, and read from there.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from e2e.images.build import app_archives, tag_of
from e2e.testbed.docker import OWNER_LABEL, Docker, Owner
from e2e.testbed.places import Places
from e2e.testbed.processes import Launcher
from e2e.testbed.progress import Progress

PORT = 8080
NETWORK = "kind"
ADDRESS = f"{{{{.NetworkSettings.Networks.{NETWORK}.IPAddress}}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One thing that one life of a container, or a hook in it, told."""

    space: str
    pod: str
    """The host's name."""
    uid: str
    """The pod's, as the container sees it."""
    container: str
    run: str
    """Random, the same for everything that one process told."""
    version: str
    event: str
    detail: str
    heard_at: float
    """By the wall clock, in seconds."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a report that arrived twice, because the first answer was lost, has in common."""
        return self.run, self.event, self.detail


class Reports:
    """Everything that was told so far, in the order in which it was heard."""

    def __init__(self, output: Path, *, url: str) -> None:
        self.url = url
        """Where containers send their reports to."""
        self._output = output
        self._read_bytes = 0
        self._heard: dict[tuple[str, str, str], Report] = {}

    def all(self, *, space: str, pod: str = "", container: str = "") -> list[Report]:
        """Return the reports of a space, and only the pod's or container's where they are named."""
        self._read_on()
        return [
            report
            for report in self._heard.values()
            if report.space == space
            and pod in ("", report.pod)
            and container in ("", report.container)
        ]

    def starts(self, *, space: str) -> dict[tuple[str, str], list[Report]]:
        """Return the starts in a space by pod uid and container."""
        found: dict[tuple[str, str], list[Report]] = defaultdict(list)
        for report in self.all(space=space):
            if report.event == "started":
                found[report.uid, report.container].append(report)
        return found

    def _read_on(self) -> None:
        with self._output.open("rb") as output:
            output.seek(self._read_bytes)
            # The last line may be there in part.
            lines = [line for line in output if line.endswith(b"\n")]
        self._read_bytes += sum(map(len, lines))
        for line in lines:
            report = Report(**json.loads(line))
            self._heard.setdefault(report.key, report)


@contextmanager
def hear_reports(folder: Path, places: Places) -> Iterator[Reports]:
    """Run the witness until the block ends; a later start removes it should we be killed."""
    docker = Docker(places=places)
    docker.load(app_archives(places, Progress(quiet=True))[0])
    name = f"federate-witness-{uuid4().hex[:8]}"
    output = folder / "logs" / "reports.log"
    output.parent.mkdir(parents=True)
    with ExitStack() as stack:
        launcher = Launcher(tied=True)
        stack.callback(launcher.close)
        stack.callback(docker.remove_containers, [name])
        docker.run(
            *("run", "--detach", "--rm", "--network", NETWORK, "--name", name),
            *("--label", f"{OWNER_LABEL}={Owner.own().format()}"),
            *(tag_of("1"), "witness"),
        )
        address = docker.run("inspect", "--format", ADDRESS, name).strip()
        program = shutil.which(docker.program, path=places.search_path)
        assert program is not None
        follower = launcher.launch(
            [program, "logs", "--follow", name], log=output, record=folder / "reports.json"
        )
        stack.callback(follower.wait)
        stack.callback(docker.remove_containers, [name])
        yield Reports(output, url=f"http://{address}:{PORT}/")

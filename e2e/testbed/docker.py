"""Docker as the test bed uses it: through its own command line, and only what is labelled as ours.

Whoever starts something labels it with its owner, so that a later start can tell the leftovers of
a dead run from what somebody still uses, in whatever checkout that run was.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .errors import TestbedError
from .identity import Identity, boot_id, machine_id
from .places import Places

OWNER_LABEL = "federate.dev/owner"
CLUSTER_LABEL = "federate.dev/cluster"

ANSWER_SECONDS = 10.0
COMMAND_SECONDS = 300.0
ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who a container or cluster belongs to: a process, or a checkout that keeps it.

    A process is told by its machine and its pid's namespace too: other machines and containers
    may use the same Docker, and the same pid there is another process.
    """

    process: Identity | None = None
    pid_namespace: str = ""
    machine: str = ""
    """Empty where the machine has no id."""
    keeper: str = ""
    """Name of the folder whose `down` ends it."""

    @classmethod
    def own(cls) -> "Owner":
        """This process."""
        return cls(process=Identity.own(), pid_namespace=own_pid_namespace(), machine=machine_id())

    @classmethod
    def kept(cls, state: Path) -> "Owner":
        """The checkout whose clusters' state is in the folder."""
        return cls(keeper=state.name, machine=machine_id())

    def format(self) -> str:
        """Render as a label's value."""
        if self.process is None:
            return f"kept/{self.machine}/{self.keeper}"
        one = self.process
        process = f"{one.pid}/{one.start_ticks}/{one.boot}/{self.pid_namespace}"
        return f"process/{self.machine}/{process}"

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """Read a label's value; None where it makes no sense: then nobody may judge it."""
        match text.split("/"):
            case ["kept", machine, keeper] if keeper:
                return cls(keeper=keeper, machine=machine)
            case ["process", machine, pid, ticks, boot, namespace] if (
                pid.isdigit() and ticks.isdigit()
            ):
                identity = Identity(pid=int(pid), start_ticks=int(ticks), boot=boot)
                return cls(process=identity, pid_namespace=namespace, machine=machine)
            case _:
                return None

    @property
    def is_surely_dead(self) -> bool:
        """Tell whether nobody will come back for what the owner left.

        A process of an earlier boot is dead, even if its clusters run: Docker starts kind's nodes
        again. Another boot of who knows which machine is left alone.
        """
        if self.process is None:
            return False
        if self.process.boot != boot_id():
            return bool(self.machine) and self.machine == machine_id()
        return self.pid_namespace == own_pid_namespace() and not self.process.is_alive


def own_pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """The docker command of a user, with whatever daemon it is set to talk to."""

    places: Places
    program: str = field(default="docker")

    def answers(self) -> bool:
        """Tell whether there is a docker command and its daemon answers."""
        return not self.complaint()

    def complaint(self) -> str:
        """Say why Docker cannot be used, in its own words; empty where its daemon answers."""
        if shutil.which(self.program, path=self.places.search_path) is None:
            return "there is no docker on the search path"
        try:
            finished = self._run(["info", "--format", "{{.ServerVersion}}"], ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            return f"`docker info` took over {ANSWER_SECONDS:.0f} s"
        # An older client ends with 0 although the daemon does not answer.
        if finished.returncode == 0 and finished.stdout.strip():
            return ""
        said = finished.stderr.strip().splitlines()
        return said[-1].strip() if said else f"`docker info` ended with {finished.returncode}"

    def run(self, *arguments: str, timeout_seconds: float = COMMAND_SECONDS) -> str:
        """Run a docker command to its end and return what it prints.

        Raises:
            TestbedError: it failed or took too long; the message has its error output.
        """
        wording = f"docker {' '.join(arguments)}"
        try:
            finished = self._run(arguments, timeout_seconds)
        except FileNotFoundError as error:
            raise TestbedError("There is no docker on the search path.") from error
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"{wording} took over {timeout_seconds:.0f} s.") from error
        if finished.returncode != 0:
            said = finished.stderr.strip()[-ERROR_CHARACTERS:]
            raise TestbedError(f"{wording} ended with {finished.returncode}: {said}")
        return finished.stdout

    def lines(self, *arguments: str) -> list[str]:
        """Run a docker command that lists, and return its lines."""
        return self.run(*arguments).splitlines()

    def has_image(self, reference: str) -> bool:
        """Tell whether the daemon has the image."""
        return bool(self.lines("image", "ls", "--quiet", reference))

    def load(self, archive: Path) -> None:
        """Take in an image archive."""
        self.run("load", "--quiet", "--input", str(archive))

    def labelled_containers(self) -> dict[str, str]:
        """Return container id -> owner label, running or not."""
        template = "{{.ID}}\t{{.Label " + f'"{OWNER_LABEL}"' + "}}"
        rows = self.lines("ps", "--all", "--filter", f"label={OWNER_LABEL}", "--format", template)
        return dict(row.split("\t", 1) for row in rows)

    def remove_containers(self, ids: Iterable[str]) -> None:
        """End and delete containers; those that are gone already do no harm."""
        for container in ids:
            self._run(["rm", "--force", "--volumes", container], COMMAND_SECONDS)

    def remove_leftover_containers(self) -> int:
        """Remove the containers of dead owners, and nobody else's; returns how many."""
        dead = [
            container
            for container, label in self.labelled_containers().items()
            if (owner := Owner.parse(label)) is not None and owner.is_surely_dead
        ]
        self.remove_containers(dead)
        return len(dead)

    def _run(
        self, arguments: Iterable[str], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            env=dict(self.places.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

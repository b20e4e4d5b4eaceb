"""Where results come from: when they were made, of which federate, with which Kubernetes.

A record is made of many runs, so every result says of which it is. A commit alone would not do:
what is run may be changed since, and most commits leave federate itself as it is. The digest of
its files says whether two runs were of the same.
"""

import hashlib
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import federate

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = Path(federate.__file__).resolve().parent

DIGITS = 12
"""Of a commit and of a digest: enough to tell ours apart."""

GIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """One run; what is empty was not recorded."""

    kubernetes: str = ""
    at: str = ""
    """When it began, in UTC to the minute."""
    federate: str = ""
    """Its version."""
    source: str = ""
    """The digest of its files."""
    commit: str = ""
    """What was checked out; with a plus where federate's files were changed since."""
    images: str = ""
    """Whose images the tests used."""
    procs: int = 0
    """How many specs ran side by side."""

    @property
    def program(self) -> str:
        """Name the federate that was run."""
        if not self.source:
            return "not recorded"
        commit = f", {self.commit}" if self.commit else ""
        return f"{self.federate}{commit}, files {self.source}"


UNKNOWN = Origin()
"""Of a result that is in no record yet."""


def origin_now(*, kubernetes: str, images: str, procs: int) -> Origin:
    """Describe a run that begins now."""
    return Origin(
        kubernetes=kubernetes,
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        federate=federate.__version__,
        source=digest_of(PACKAGE),
        commit=commit_of(CHECKOUT, PACKAGE.name),
        images=images,
        procs=procs,
    )


def digest_of(package: Path) -> str:
    """Digest names and contents of a package's files, without what Python makes of them."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            content = file.read_bytes()
            digest.update(f"{file.relative_to(package)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:DIGITS]


def commit_of(checkout: Path, folder: str) -> str:
    """Name the commit that is checked out; empty where git does not know the folder."""
    # An archive of the sources may lie in a checkout of something else.
    if not ask_git(checkout, "ls-files", "--", folder):
        return ""
    commit = ask_git(checkout, "rev-parse", "HEAD")
    changed = ask_git(checkout, "status", "--porcelain", "--", folder)
    return f"{commit[:DIGITS]}{'+' if changed else ''}" if commit else ""


def ask_git(checkout: Path, *arguments: str) -> str:
    """Ask git; an archive of the sources, or a machine without git, has no answer."""
    try:
        finished = subprocess.run(
            ["git", *arguments],
            cwd=checkout,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return finished.stdout.strip() if finished.returncode == 0 else ""

"""Folders of running clusters, who owns them, and the removal of what dead owners left.

A bed is one folder with the clusters of one owner. An owned bed lives as long as the process that
made it; a kept bed has no owner and lives until `down`. Every start first removes the beds of
dead owners: records tell which servers are theirs.
"""

import json
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from .identity import Identity
from .locks import held
from .places import Places
from .processes import Record, end_recorded

OWNER_FILE = "owner.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """One folder of clusters."""

    folder: Path

    @property
    def owner(self) -> Identity | None:
        """The process the bed belongs to; None when it is kept or the file is unreadable."""
        try:
            return Identity(**json.loads((self.folder / OWNER_FILE).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    @property
    def is_kept(self) -> bool:
        try:
            return (self.folder / OWNER_FILE).read_text().strip() == "null"
        except FileNotFoundError:
            return False

    @property
    def is_leftover(self) -> bool:
        """Tell whether nobody will come back for the bed."""
        owner = self.owner
        return not self.is_kept and (owner is None or not owner.is_alive)

    def cluster_folder(self, name: str) -> Path:
        return self.folder / name

    def records(self) -> list[Record]:
        """Return what the launchers of the bed's servers wrote, running or not."""
        found = (Record.read(path) for path in sorted(self.folder.glob("*/processes/*.json")))
        return [record for record in found if record is not None]

    def keep(self) -> None:
        """Let the bed outlive this process."""
        write_owner(self.folder, None)

    def remove(self, *, grace_seconds: float = 0.0) -> int:
        """End the bed's servers and delete its folder; returns how many servers were running.

        Ending and listing are repeated, because a launcher may write its record meanwhile.
        """
        ended = 0
        while running := end_recorded(self.records(), grace_seconds=grace_seconds):
            ended += running
        shutil.rmtree(self.folder, ignore_errors=True)
        return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a removal of leftovers found."""

    beds: int
    servers: int


class Beds:
    """All beds of one checkout."""

    def __init__(self, places: Places) -> None:
        self._root = places.state / "beds"
        self._lock = places.state / "beds.lock"

    def create(self, name: str | None = None) -> Bed:
        """Make a bed owned by this process, after removing the leftovers of others."""
        self.remove_leftovers()
        with held(self._lock):
            folder = self._root / (name or f"run-{secrets.token_hex(4)}")
            folder.mkdir(parents=True, mode=0o700)
            write_owner(folder, Identity.own())
        return Bed(folder=folder)

    def named(self, name: str) -> Bed | None:
        folder = self._root / name
        return Bed(folder=folder) if folder.is_dir() else None

    def remove_leftovers(self) -> Removed:
        """Remove the beds of dead owners, and nobody else's."""
        with held(self._lock):
            beds = [Bed(folder=path) for path in sorted(self._root.glob("*")) if path.is_dir()]
            leftovers = [bed for bed in beds if bed.is_leftover]
            return Removed(beds=len(leftovers), servers=sum(bed.remove() for bed in leftovers))


def write_owner(folder: Path, owner: Identity | None) -> None:
    temporary = folder / f"{OWNER_FILE}.new"
    temporary.write_text(json.dumps(asdict(owner) if owner else None))
    temporary.replace(folder / OWNER_FILE)

"""Copy a cluster's storage at one instant, and put it back.

The storage is frozen while its folder is copied: every thread stands still between two system
calls, so the copy is what a power cut at that instant would have left to be found. etcd and SQLite
both keep a write-ahead log and are made to start from that. Nothing is asked of the storage itself,
so one way serves both.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from .processes import Server

_REBUILT = "*-shm"
"""SQLite's index of its log: shared memory of running processes, rebuilt from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The storage of one cluster as it was; lives as long as the cluster's bed."""

    cluster: str
    folder: Path


def take_snapshot(cluster: str, *, server: Server, storage: Path, folder: Path) -> Snapshot:
    """Copy the storage into the new folder; the cluster waits that long, a fraction of a second."""
    server.pause()
    try:
        shutil.copytree(storage, folder, ignore=shutil.ignore_patterns(_REBUILT))
    finally:
        server.resume()
    return Snapshot(cluster=cluster, folder=folder)


def put_back(snapshot: Snapshot, *, storage: Path) -> None:
    """Replace the storage of stopped servers; the snapshot stays and may be put back again."""
    shutil.rmtree(storage)
    shutil.copytree(snapshot.folder, storage)

"""What federate wrote, as an API server's audit log has it. Pure, but for reading the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

POLICY = Path(__file__).resolve().parent / "audit-policy.yaml"
LOG = "audit.log"
"""Relative to the cluster's folder, in which its API server runs."""

APISERVER_ARGUMENTS = (
    f"--audit-policy-file={POLICY}",
    f"--audit-log-path={LOG}",
    # Never rotated within a benchmark: 10,000 pods a round come to 100 MB.
    "--audit-log-maxsize=100000",
)

Writes = Mapping[str, int]
"""How often each kind of write was sent, like `patch pods/status`; refused ones count too."""


class AuditLog:
    """The audit log of one API server, which writes down nothing but federate's writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """Return where the log ends now."""
        return self._path.stat().st_size if self._path.exists() else 0

    def writes_since(self, mark: int) -> Writes:
        """Count the writes after a mark."""
        if not self._path.exists():
            return {}
        with self._path.open("rb") as log:
            log.seek(mark)
            return count_writes(orjson.loads(line) for line in log)


def count_writes(events: Iterable[Mapping[str, Any]]) -> Writes:
    """Count audit events by verb and resource."""
    return dict(sorted(Counter(map(kind_of, events)).items()))


def kind_of(event: Mapping[str, Any]) -> str:
    """Say what a write was, like `create pods` or `patch pods/status`."""
    about = event.get("objectRef") or {}
    resource = str(about.get("resource", event.get("requestURI", "?")))
    subresource = about.get("subresource")
    return f"{event['verb']} {resource}" + (f"/{subresource}" if subresource else "")


def pod_writes(writes: Writes) -> int:
    """Add up the writes to pods; what a virtual node costs by itself, and Events, stand apart."""
    return sum(count for kind, count in writes.items() if kind.split()[1].split("/")[0] == "pods")

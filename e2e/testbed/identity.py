"""Know a process again: a pid alone may belong to somebody else by now.

The kernel's start time of a process tells two users of one pid apart until the next boot, and the
boot's own id tells boots apart.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process, unmistakably."""

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """Identify the process that has `pid` now; None when there is none or it is a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command's name comes second, in parentheses, and may contain anything.
        fields = stat[stat.rindex(")") + 2 :].split()
        if fields[0] in "ZX":
            return None
        return cls(pid=pid, start_ticks=int(fields[19]), boot=boot_id())

    @classmethod
    def own(cls) -> "Identity":
        identity = cls.of(os.getpid())
        assert identity is not None, "a running process is in /proc"
        return identity

    @property
    def is_alive(self) -> bool:
        return Identity.of(self.pid) == self


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def machine_id(file: Path = Path("/etc/machine-id")) -> str:
    """Tell this machine from others, at every boot; empty where it has no id of its own.

    Hashed, because the id itself is not for others' eyes.
    """
    try:
        found = file.read_text().strip()
    except OSError:
        return ""
    is_given = re.fullmatch("[0-9a-f]{32}", found) is not None
    return hashlib.sha256(f"federate {found}".encode()).hexdigest()[:12] if is_given else ""


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []

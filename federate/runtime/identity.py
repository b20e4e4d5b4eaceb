"""Who holds a leader lease, in words that a process on the same host can check.

An identity names the host's boot, the process-id namespace, the process and its start. So a process
that was started again need not wait out the lease of its dead predecessor: it can see that nobody
is behind that name. A holder it cannot see is waited for as ever.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_START_FIELD = 19  # starttime, counted after the closing parenthesis of the command (proc(5))
_ENDED_STATES = ("Z", "X")  # dead, and merely not yet reaped by its parent


def process_start(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None where none is alive."""
    fields = _stat_fields(pid)
    return None if not fields or fields[0] in _ENDED_STATES else fields[_START_FIELD]


def process_exists(pid: int) -> bool:
    """Tell whether a living process has that pid, whoever's it is and whatever we may read."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    fields = _stat_fields(pid)
    return not fields or fields[0] not in _ENDED_STATES


def _stat_fields(pid: int) -> list[str]:
    """Read what follows the command's name in /proc/PID/stat; empty where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def own_identity() -> str:
    """Return this process's identity; unique even without /proc."""
    pid = os.getpid()
    start = process_start(pid)
    if start is None:
        return f"{socket.gethostname()}_{os.urandom(8).hex()}"
    return f"{_neighbourhood()}_{pid}_{start}"


def _neighbourhood() -> str:
    boot = _BOOT_ID.read_text(encoding="ascii").strip().partition("-")[0]
    namespace = os.readlink(_PID_NAMESPACE).strip("pid:[]")
    return f"{socket.gethostname()}_{boot}_{namespace}"


def is_dead_neighbour(
    holder: str,
    ours: str,
    start_of: Callable[[int], str | None] = process_start,
    exists: Callable[[int], bool] = lambda pid: process_exists(pid),
) -> bool:
    """Tell whether a holder was a process beside us, and surely is no more.

    A process whose /proc entry we may not read still exists.
    """
    place, pid, start = _split(holder)
    if not pid.isdigit() or not place or place != _split(ours)[0]:
        return False
    found = start_of(int(pid))
    return not exists(int(pid)) if found is None else found != start


def describe_holder(identity: str) -> str:
    """Say for people who holds a lease: host and process, where the identity tells them."""
    place, pid, start = _split(identity)
    host = place.rsplit("_", 2)[0]
    return f"{host} (pid {pid})" if host and pid.isdigit() and start.isdigit() else identity


def _split(identity: str) -> tuple[str, str, str]:
    rest, _, start = identity.rpartition("_")
    place, _, pid = rest.rpartition("_")
    return place, pid, start

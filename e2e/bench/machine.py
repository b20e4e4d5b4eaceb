"""What a measurement was made on: nobody can compare seconds without it. No names of hosts."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from e2e.testbed.places import CHECKOUT

LIBRARIES = ("aiohttp", "orjson")


def describe_machine() -> dict[str, str | int | float]:
    """Describe hardware and system, and how busy they are at the start."""
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else 0,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 2),
    }


def cpu_model(cpuinfo: str) -> str:
    """Read the model from /proc/cpuinfo, which not every architecture tells."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1] if found else platform.machine()


def describe_software(kubernetes: str) -> dict[str, str]:
    """Name the versions that matter, federate's commit among them."""
    libraries: Mapping[str, str] = {name: version(name) for name in LIBRARIES}
    return {
        "federate": f"{version('federate')} {commit()}".strip(),
        "python": platform.python_version(),
        "kubernetes": kubernetes,
        **libraries,
    }


def commit() -> str:
    """Return the commit of this checkout, with a mark if it was changed; empty without git."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=CHECKOUT, capture_output=True, text=True, timeout=10.0, check=False,
        )  # fmt: skip
    except OSError:
        return ""
    return described.stdout.strip()


def cpu_seconds(pid: int) -> float:
    """Return what a process has used so far; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # utime and stime, fields 14 and 15 of proc(5), counted from the one after the name.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Return how many seconds all cores together have worked since the start of the machine."""
    values = [int(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = values
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

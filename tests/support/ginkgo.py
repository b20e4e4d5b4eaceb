"""A program that plays ginkgo: it runs no specs, and reports what a test tells it to.

What it does stands in a plan beside it. An interrupt makes it report early, as the real one does;
the report comes into being slowly enough to be caught half written.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from e2e.conformance.suite import Programs

PLAYED = """#!{python} -IS
import json, os, signal, subprocess, sys, time
plan = json.load(open(__file__ + ".plan"))
output = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--output-dir="))
report = os.path.join(output, "report.json")
calls = open(__file__ + ".calls", "a")
print(json.dumps(sys.argv[1:]), file=calls, flush=True)
if "--dry-run" in sys.argv:
    json.dump(plan["report"], open(report, "w"))
    sys.exit(0)
if plan["leaves_child"]:
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-IS", "-c", stubborn])
    open(__file__ + ".child", "w").write(str(child.pid))
ended = []
signal.signal(signal.SIGINT, lambda *_: ended.append(True))
print("Will run", len(plan["report"][0]["SpecReports"]), "of 7144 specs", flush=True)
open(__file__ + ".started", "w").write(str(os.getpid()))
deadline = time.monotonic() + plan["seconds"]
while not ended and time.monotonic() < deadline:
    time.sleep(0.02)
if plan["says"]:
    print(plan["says"], flush=True)
text = json.dumps(plan["report"])
if not plan["reports"]:
    sys.exit(1)
open(report, "w").write(text[: len(text) // 2] if plan["breaks_off"] else text)
"""

A_DAY = "2026-11-30T12:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the program does."""

    report: Sequence[Mapping[str, Any]]
    seconds: float = 0.0
    """How long it runs unless it is interrupted."""
    says: str = ""
    """What it prints before it ends."""
    reports: bool = True
    breaks_off: bool = False
    """Whether only half of the report is written."""
    leaves_child: bool = False
    """Whether it starts a process that listens to no interrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ginkgo:
    """One such program."""

    path: Path

    @property
    def programs(self) -> Programs:
        """Everything a run needs."""
        return Programs(ginkgo=self.path, suite=Path("e2e.test"), kubectl=Path("kubectl"))

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of every call."""
        return [json.loads(line) for line in self._beside("calls").read_text().splitlines()]

    @property
    def has_started(self) -> bool:
        """Tell whether it runs specs, or did."""
        return self._beside("started").exists() and bool(self._beside("started").read_text())

    @property
    def pid(self) -> int:
        """The last one's."""
        return int(self._beside("started").read_text())

    @property
    def child(self) -> int:
        """The process that it left behind."""
        return int(self._beside("child").read_text())

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{ending}")


def played_ginkgo(folder: Path, plan: Plan) -> Ginkgo:
    """Write the program and its plan into a folder."""
    path = folder / "ginkgo"
    path.write_text(PLAYED.replace("{python}", sys.executable))
    path.chmod(0o755)
    path.with_name("ginkgo.plan").write_text(json.dumps(asdict(plan)))
    return Ginkgo(path=path)


def spec_report(name: str, state: str = "passed", **more: Any) -> dict[str, Any]:
    """Render what ginkgo reports of a spec."""
    return {
        "ContainerHierarchyTexts": ["[sig-node] Pods"],
        "LeafNodeType": "It",
        "LeafNodeText": name,
        "State": state,
        "NumAttempts": 1,
        "RunTime": 2_345_000_000,
        "EndTime": A_DAY,
        **more,
    }


def whole_report(*specs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Render what ginkgo reports of a run."""
    return [{"SuitePath": "e2e", "SpecReports": list(specs)}]

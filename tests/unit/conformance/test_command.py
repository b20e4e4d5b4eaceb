"""The command line: what it refuses before anything is started, and in which order it does what."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from e2e.conformance.__main__ import Side, Wish, app, choose, run_both
from e2e.conformance.runner import Runner
from e2e.conformance.slices import SLICES
from e2e.conformance.stage import Stage
from e2e.conformance.watch import Watch
from e2e.testbed.errors import TestbedError
from e2e.testbed.progress import Progress
from tests.support.ginkgo import Plan, played_ginkgo, spec_report, whole_report


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slice", "nodes"], ["There is no slice nodes", "there are node, storage"]),
        (["--focus", "[sig-node"], ["is no regular expression", "Names have brackets"]),
        (["--procs", "0"], ["'--procs'"]),
    ],
)
def test_a_mistake_is_told_before_anything_is_started(
    arguments: list[str], said: list[str]
) -> None:
    """Clusters and programs take minutes."""
    result = CliRunner(env={"COLUMNS": "400", "TERM": "dumb"}).invoke(app, arguments)
    assert result.exit_code == 2
    assert all(words in result.output for words in said)


def wish(**more: Any) -> Wish:
    given = {
        "slices": ["node", "apps"],
        "side": Side.BOTH,
        "focus": "",
        "procs": 1,
        "again": 5,
        "only_differing": False,
        "pull": False,
    }
    return Wish(**{**given, **more})


def chosen(folder: Path, **more: Any) -> dict[str, list[str]]:
    report = whole_report(spec_report("good"), spec_report("bad"))
    programs = played_ginkgo(folder, Plan(report=report)).programs
    found = choose(programs, wish(**more), Progress(quiet=True))
    return {name: list(one.wanted) for name, one in found.items()}


def test_a_focus_chooses_by_name(tmp_path: Path) -> None:
    """Without one all of the slice is run."""
    assert chosen(tmp_path) == {
        name: ["[sig-node] Pods good", "[sig-node] Pods bad"] for name in ("node", "apps")
    }
    assert chosen(tmp_path, focus=r"\] Pods g", slices=["apps"]) == {
        "apps": ["[sig-node] Pods good"]
    }


def test_a_focus_that_fits_nothing_is_told_before_clusters_are_started(tmp_path: Path) -> None:
    """With how many specs there are, and how to see them."""
    with pytest.raises(TestbedError, match=r"None of the 4 specs of node, apps .*'ugly'.*--list"):
        chosen(tmp_path, focus="ugly")


def test_every_slice_can_be_named() -> None:
    """--help names them all."""
    result = CliRunner(env={"COLUMNS": "400", "TERM": "dumb"}).invoke(app, ["--help"])
    assert all(name in result.output for name in SLICES)


# -- both sides ------------------------------------------------------------------------------------


class Cluster:
    """A cluster with a node of its own and no namespaces of a suite."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node_name = f"{name}-control-plane"
        self.kubeconfig = Path(name)

    def kubectl(self, *arguments: str, **_more: Any) -> str:
        if "nodes" not in arguments:
            return ""
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return json.dumps({"items": [{"metadata": {"name": self.node_name}, "status": ready}]})


@dataclass
class Played:
    """A stage and a runner that write down what is done, and whether all is well then."""

    known: frozenset[str] = frozenset()
    """Slices of which something is known."""
    is_ready: bool = True
    """Whether federate becomes ready."""
    done: list[str] = field(default_factory=list)

    progress = Progress(quiet=True)
    chosen = ("node", "apps")

    @property
    def keeping(self) -> SimpleNamespace:
        return SimpleNamespace(read=lambda name: name in self.known)

    def start_target(self) -> Cluster:
        self.done.append("target")
        return Cluster("target")

    def start_hub(self, _target: Cluster) -> Cluster:
        self.done.append("hub")
        return Cluster("hub")

    @contextmanager
    def federated(self, *_more: object, **_by_name: object) -> Iterator[SimpleNamespace]:
        if not self.is_ready:
            raise AssertionError("federate is not ready. Its log ends:")
        self.done.append("federate")
        yield SimpleNamespace(is_running=True)
        self.done.append("over")

    def run_direct(self, name: str, kubeconfig: Path, start_watch: Callable[[], Watch]) -> None:
        assert start_watch().look() == ""
        self.done.append(f"{name} on {kubeconfig}")

    def run_through(
        self, name: str, kubeconfig: Path, start_watch: Callable[[], Watch], *, again: int
    ) -> None:
        assert start_watch().look() == ""
        self.done.append(f"{name} on {kubeconfig}, {again}")


def played(tmp_path: Path, side: Side, **more: Any) -> list[str]:
    one = Played(**more)
    run_both(cast(Stage, one), cast(Runner, one), wish(side=side), tmp_path)
    return one.done


def test_all_slices_are_run_on_the_target_before_there_is_a_hub(tmp_path: Path) -> None:
    """The target alone has all of the machine then."""
    assert played(tmp_path, Side.BOTH) == [
        *("target", "node on target", "apps on target"),
        *("hub", "federate", "node on hub, 5", "apps on hub, 5", "over"),
    ]


def test_one_side_can_be_left_out(tmp_path: Path) -> None:
    """Through the node only that is compared of which the target's side is known."""
    assert played(tmp_path, Side.DIRECT) == ["target", "node on target", "apps on target"]
    through = played(tmp_path, Side.THROUGH, known=frozenset({"node"}))
    assert through[:4] == ["target", "apps on target", "hub", "federate"]
    assert through[4:] == ["node on hub, 5", "apps on hub, 5", "over"]


def test_a_federate_that_does_not_start_is_told_without_a_traceback(tmp_path: Path) -> None:
    """With the end of its log; what ran on the target is kept."""
    with pytest.raises(TestbedError, match=r"federate is not ready. Its log ends:"):
        played(tmp_path, Side.BOTH, is_ready=False)

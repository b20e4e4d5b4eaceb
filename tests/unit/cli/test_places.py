"""Where commands beside `federate run` find hub and target: its file, under flags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from federate.cli import leave as leave_module
from federate.cli import main
from federate.cli import sweep as sweep_module
from federate.cli.leave import Request, how_it_ended
from federate.cli.options import Complaints, TargetOption
from federate.cli.places import Places, read_places
from federate.cli.sources import Typed
from federate.errors import ConfigError

Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

FILE = """
apiVersion: federate.dev/v1alpha1
kind: Federation
hub: {kubeconfig: hub.yaml, context: h, identity: prod}
leaderLeaseNamespace: leases
virtualNodes:
- nodeName: edge
  target: {kubeconfig: edge.yaml, context: c}
- nodeName: west
  target: {kubeconfig: gone.yaml}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("hub.yaml", "edge.yaml", "other.yaml"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "federation.yaml").write_text(dedent(FILE))
    return tmp_path


def read(folder: Path, environ: Mapping[str, str] | None = None, **typed: str) -> Places:
    config = typed.pop("config", str(folder / "federation.yaml"))
    complaints = Complaints()
    places = read_places(
        complaints, Typed(environ=environ or {}, home=folder, config=config, **typed)
    )
    complaints.raise_any()
    return places


def test_all_of_it_stands_in_the_file(folder: Path) -> None:
    """Paths begin at the file's folder, as for a run; a neighbour's missing kubeconfig is his."""
    places = read(folder)
    assert places.settings.hub_kubeconfig == folder / "hub.yaml"
    assert places.settings.hub_context == "h"
    assert places.settings.hub_identity == "prod"
    assert places.settings.leader_lease_namespace == "leases"
    edge = TargetOption(name="edge", kubeconfig=folder / "edge.yaml", context="c")
    assert places.target("edge") == edge
    with pytest.raises(ConfigError, match=r"federation.yaml:10: .*gone.yaml"):
        places.target("west")


def test_flags_and_environment_go_over_it(folder: Path) -> None:
    """The flag first; and the context of the file's hub does not go with another kubeconfig."""
    environ = {"FEDERATE_LEADER_LEASE_NAMESPACE": "env", "FEDERATE_HUB_IDENTITY": "env"}
    places = read(folder, environ, hub=str(folder / "other.yaml"), hub_identity="flag")
    assert places.settings.hub_kubeconfig == folder / "other.yaml"
    assert places.settings.hub_context is None
    assert places.settings.hub_identity == "flag"
    assert places.settings.leader_lease_namespace == "env"
    assert read(folder, {"FEDERATE_CONFIG": str(folder / "federation.yaml")}, config="").has("edge")


def test_what_only_a_run_needs_is_not_read(folder: Path) -> None:
    """An address to listen on that is taken by nobody here may be wrong."""
    assert read(folder, {"FEDERATE_LISTEN": "nonsense"}).has("west")


def test_a_node_that_is_not_there_is_told_with_those_that_are(folder: Path) -> None:
    """Which file, and which names."""
    places = read(folder)
    with pytest.raises(
        ConfigError, match=r"federation.yaml has no virtual node ege; expected one of edge, west"
    ):
        places.target("ege")
    with pytest.raises(ConfigError, match="has edge, west; expected NODE"):
        places.only_node()


def test_all_that_is_wrong_is_told_at_once(folder: Path) -> None:
    """A wrong flag beside a wrong file; and a hub whose kubeconfig is missing."""
    (folder / "hub.yaml").unlink()
    with pytest.raises(ConfigError) as told:
        read(folder, leader_lease_namespace="No")
    assert "--leader-lease-namespace" in str(told.value)
    assert "hub.yaml" in str(told.value)
    with pytest.raises(ConfigError, match="is no file; expected a YAML file"):
        read(folder, config="/no/such")


@pytest.mark.parametrize(
    "words", [["leave", "ege"], ["leave", "ege", "--abandon"], ["sweep", "ege"], ["accept", "ege"]]
)
def test_each_command_tells_the_names(folder: Path, capsys: Captured, words: list[str]) -> None:
    """Exit code 2 before anything is asked of a cluster."""
    assert main([*words, "--config", str(folder / "federation.yaml")]) == 2
    assert "expected one of edge, west" in " ".join(capsys.readouterr().err.split())


def asked_of_leave(monkeypatch: Patch, *words: str) -> tuple[object, ...]:
    """Run the command up to where it would connect; returns what it would do there."""
    asked: list[tuple[object, ...]] = []

    async def note(*args: object, may_be_gone: bool) -> None:
        asked.append((*args, may_be_gone))

    monkeypatch.setattr(leave_module, "_leave", note)
    assert main(["leave", *words]) == 0
    return asked[0]


def test_leave_takes_hub_and_target_from_the_file(folder: Path, monkeypatch: Patch) -> None:
    """And the names that federate runs with; afterwards the file is named, to be changed."""
    config = folder / "federation.yaml"
    file, context, option, request, may_be_gone = asked_of_leave(
        monkeypatch, "edge", "--config", str(config)
    )
    assert (file, context, may_be_gone) == (folder / "hub.yaml", "h", False)
    assert option == TargetOption(name="edge", kubeconfig=folder / "edge.yaml", context="c")
    assert isinstance(request, Request)
    assert (request.lease_namespace, request.hub_identity) == ("leases", "prod")
    assert request.config == config
    assert f"remove it from {config}" in how_it_ended("edge", request.config)


def test_leave_puts_a_flag_over_the_file(folder: Path, monkeypatch: Patch) -> None:
    """A target that is given need not stand there; then there is nothing to take out either."""
    target = f"new={folder / 'other.yaml'}"
    _, _, option, request, _ = asked_of_leave(
        monkeypatch, "new", "--config", str(folder / "federation.yaml"), "--target", target
    )
    assert option == TargetOption(name="new", kubeconfig=folder / "other.yaml", context=None)
    assert isinstance(request, Request)
    assert request.config is None


@pytest.mark.parametrize(("node", "has_target"), [("edge", True), ("west", False)])
def test_a_target_to_be_abandoned_may_have_lost_its_kubeconfig(
    folder: Path, monkeypatch: Patch, node: str, has_target: bool
) -> None:
    """Where it is there, the target is asked whether it lives."""
    config = str(folder / "federation.yaml")
    _, _, option, _, may_be_gone = asked_of_leave(
        monkeypatch, node, "--config", config, "--abandon"
    )
    assert (option is not None) == has_target
    assert may_be_gone


async def test_a_kubeconfig_of_no_use_does_not_keep_from_abandoning(
    folder: Path, capsys: Captured
) -> None:
    """The file still names it; what the user gave himself has to be right."""
    option = TargetOption(name="edge", kubeconfig=folder / "edge.yaml", context=None)
    async with leave_module._target(option, may_be_gone=True) as target:
        assert target is None
    assert "is not asked" in capsys.readouterr().out
    with pytest.raises(ConfigError):
        async with leave_module._target(option, may_be_gone=False):
            pass


def test_sweep_needs_no_node_where_the_file_has_one(folder: Path, monkeypatch: Patch) -> None:
    """Of several one has to be named."""
    asked: list[tuple[object, ...]] = []

    async def note(*args: object, are_made: bool) -> None:
        asked.append((*args, are_made))

    monkeypatch.setattr(sweep_module, "_sweep", note)
    config = folder / "federation.yaml"
    assert main(["sweep", "--config", str(config)]) == 2
    assert main(["sweep", "edge", "--config", str(config), "--dry-run"]) == 0
    config.write_text(config.read_text().partition("- nodeName: west")[0])
    assert main(["sweep", "--config", str(config), "--dry-run"]) == 0
    option = TargetOption(name="edge", kubeconfig=folder / "edge.yaml", context="c")
    assert asked == [(folder / "hub.yaml", "h", option, None, ("",), "prod", True)] * 2
    assert main(["sweep", "west", "--target", f"edge={folder / 'edge.yaml'}"]) == 2
    assert main(["sweep", "--hub", str(folder / "hub.yaml")]) == 2

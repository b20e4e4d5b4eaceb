"""The command line as a user meets it: lines and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federate.cli import main

Captured = pytest.CaptureFixture[str]

COMMANDS = ("accept", "check", "rbac", "run", "status", "sweep", "version")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("{}")
    return file


def test_without_arguments_help_is_shown(capsys: Captured) -> None:
    """`federate` alone shows the commands and ends well."""
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capsys: Captured) -> None:
    """Every command explains itself and gives an example to copy."""
    assert main([command, "--help"]) == 0
    assert f"Example: federate {command}" in capsys.readouterr().out


def test_version_is_printed(capsys: Captured) -> None:
    """The version is for people, or for programs as JSON."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("federate ")
    assert main(["version", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"federate", "python"}


def test_every_wrong_option_is_one_line(kubeconfig: Path, capsys: Captured) -> None:
    """All wrong values are told at once, one line each, with exit code 2 and no traceback."""
    arguments = ["run", "--hub", "/no/such", "--target", f"edge={kubeconfig}"]
    arguments += ["--capacity", "cpu=x", "--label", "a", "--listen", "x", "--node-address", "y"]
    arguments += ["--namespaces", "q", "--identity", " ", "--log-level", "loud"]
    arguments += ["--log-format", "xml"]
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    options = ["hub", "capacity", "label", "namespaces", "node-address", "listen", "log-level"]
    options += ["log-format", "identity"]
    assert [line.split(": ")[:2] for line in lines] == [["federate", f"--{o}"] for o in options]
    assert 'federate: --capacity: "cpu=x": cpu is "x"; expected a quantity, as in 4' in lines[1]
    assert 'federate: --namespaces: "q": expected prefixed, suffixed, same, single=NAME' in lines[3]


def test_a_wrong_file_is_told_line_by_line(
    kubeconfig: Path, tmp_path: Path, capsys: Captured
) -> None:
    """Every line says file, line, key, what was found and expected; exit code 2."""
    file = tmp_path / "federation.yaml"
    file.write_text(
        "apiVersion: federate.dev/v1alpha1\nkind: Federation\n"
        f"hub: {{kubeconfig: {kubeconfig}}}\nlogLevl: debug\nlisten: x\n"
    )
    assert main(["run", "--config", str(file), "--label", "a"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'federate: --label: "a": expected KEY=VALUE, as in zone=north',
        f"federate: {file}:4: logLevl: unknown key; did you mean logLevel?",
        f'federate: {file}:5: listen: found "x"; expected HOST:PORT with a port from 0 '
        "(any free one) to 65535",
    ]


def test_unknown_commands_and_missing_options_are_usage_errors(capsys: Captured) -> None:
    """What the parser refuses ends with exit code 2 as well."""
    assert main(["bogus"]) == 2
    assert main(["run"]) == 2
    assert "--target" in capsys.readouterr().err


def test_a_kubeconfig_that_is_none_is_told(kubeconfig: Path, capsys: Captured) -> None:
    """A file that is no kubeconfig is a configuration error that names the file."""
    assert main(["status", "--hub", str(kubeconfig)]) == 2
    assert str(kubeconfig) in capsys.readouterr().err


def test_watching_is_for_people(capsys: Captured) -> None:
    """--watch and -o json do not go together."""
    assert main(["status", "--watch", "-o", "json"]) == 2
    assert "federate: --watch draws tables" in capsys.readouterr().err


def test_a_hub_that_does_not_answer_is_told_with_the_next_step(
    tmp_path: Path, capsys: Captured
) -> None:
    """An unreachable hub ends with code 1, what failed, and what to check."""
    file = tmp_path / "hub.yaml"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c"}}
    content = {"current-context": "x", "clusters": [cluster], "contexts": [context]}
    file.write_text(json.dumps(content))
    assert main(["status", "--hub", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("federate: list Node at hub: ")
    assert lines[1].startswith("federate: hub gave no answer: check the server address")


def test_sweep_checks_its_options(capsys: Captured) -> None:
    """A sweep with a wrong hub and target tells both and touches nothing."""
    assert main(["sweep", "--hub", "/no/such", "--target", "edge"]) == 2
    hub, target = capsys.readouterr().err.splitlines()
    assert hub.startswith("federate: --hub: ")
    assert target.startswith("federate: --target: ")

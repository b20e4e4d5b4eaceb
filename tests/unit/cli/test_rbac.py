"""`federate rbac`: what is printed for which options, and which options contradict (C1)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from federate.cli import main

Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    assert main(["rbac", *arguments]) == 0
    return [one for one in yaml.safe_load_all(capsys.readouterr().out) if one]


def rules(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for one in documents for rule in one.get("rules", ())]


def test_a_hub_gets_an_account_roles_and_bindings(capsys: Captured) -> None:
    made = printed(capsys, "--side", "hub", "--node", "edge")
    assert made[0]["metadata"] == {"name": "federate-hub", "namespace": "kube-system"}
    assert {one["kind"] for one in made} == {
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    }
    assert ["federate-edge"] in [rule.get("resourceNames") for rule in rules(made)]


def test_a_confined_target_gets_roles_in_its_namespaces(capsys: Captured) -> None:
    """The account stands in the first of them."""
    arguments = ["--side", "target", "--namespace", "a", "--namespace", "b"]
    made = printed(capsys, *arguments, "--namespaces", "map", "--capacity", "quota")
    assert made[0]["metadata"]["namespace"] == "a"
    assert {one["kind"] for one in made} == {"ServiceAccount", "Role", "RoleBinding"}
    quotas = [rule for rule in rules(made) if rule["resources"] == ["resourcequotas"]]
    assert len(quotas) == 1


def test_features_are_added_and_left_out(capsys: Captured) -> None:
    usual = printed(capsys, "--side", "target")
    assert ["*"] in [rule["resources"] for rule in rules(usual)]
    bare = printed(capsys, "--side", "target", "--without", "give-back", "--without", "events")
    resources = [rule["resources"] for rule in rules(bare)]
    assert ["*"] not in resources
    assert ["events"] not in resources
    checking = printed(capsys, "--side", "target", "--with", "check")
    assert ["poddisruptionbudgets"] in [rule["resources"] for rule in rules(checking)]


def test_names_can_be_chosen(capsys: Captured) -> None:
    arguments = ["--side", "hub", "--name", "it", "--account-namespace", "ops"]
    made = printed(capsys, *arguments, "--leader-lease-namespace", "ops")
    assert made[0]["metadata"] == {"name": "it", "namespace": "ops"}
    assert {one["metadata"]["name"] for one in made} == {"it"}
    assert "ops" in {one["metadata"].get("namespace") for one in made if one["kind"] == "Role"}


def test_a_user_who_is_there_is_bound(capsys: Captured) -> None:
    made = printed(capsys, "--side", "target", "--user", "jane")
    subjects = {s["name"] for one in made for s in one.get("subjects", ())}
    assert subjects == {"jane"}


def test_capacity_decides_about_nodes(capsys: Captured) -> None:
    def reads_nodes(*more: str) -> bool:
        made = printed(capsys, "--side", "target", *more)
        return ["nodes"] in [rule["resources"] for rule in rules(made)]

    assert reads_nodes()
    assert not reads_nodes("--capacity", "static", "--without", "addresses")
    assert reads_nodes("--capacity", "static")  # with addresses, whose ranges are told by nodes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--side", "hub", "--namespace", "a"], "--namespace: expected it with --side target"),
        (["--side", "target", "--node", "a"], "--node: expected it with --side hub"),
        (["--side", "target", "--capacity", "much"], '--capacity: "much": expected aggregate'),
        (
            ["--side", "target", "--namespace", "a", "--capacity", "aggregate"],
            "--capacity: aggregate reads the target's nodes",
        ),
        (["--side", "target", "--namespaces", "mine"], '--namespaces: "mine": expected prefixed'),
        (["--side", "target", "--namespaces", "single"], "--namespaces: single uses given"),
        (
            ["--side", "target", "--namespaces", "same", "--namespace", "a"],
            "--namespaces: same makes namespaces of its own",
        ),
    ],
)
def test_what_contradicts_is_told(arguments: list[str], said: str, capsys: Captured) -> None:
    assert main(["rbac", *arguments]) == 2
    assert f"federate: {said}" in capsys.readouterr().err

"""Manifests: what kubectl takes, exactly the table's rights, with their reasons (C1)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from federate.check.manifests import Account, account_namespace, render_manifests
from federate.check.rights import Circumstances, Feature, Side, rights, usual_features
from federate.node.capacity import CapacityMode

ACCOUNT = Account(name="federate-hub", namespace="kube-system")

CASES = {
    "hub": Circumstances(
        side=Side.HUB, node_names=("edge",), features=usual_features(is_confined=False)
    ),
    "target": Circumstances(side=Side.TARGET, features=frozenset(Feature)),
    "confined": Circumstances(
        side=Side.TARGET,
        confined_to=("team-a", "null"),
        capacity=CapacityMode.QUOTA,
        quota_namespace="team-a",
        features=usual_features(is_confined=True),
    ),
}


def documents(around: Circumstances, account: Account = ACCOUNT) -> list[dict[str, Any]]:
    return [d for d in yaml.safe_load_all(render_manifests(around, account, title="Rights")) if d]


@pytest.mark.parametrize("around", CASES.values(), ids=CASES)
def test_the_rules_are_the_rights(around: Circumstances) -> None:
    """Each right is one rule of a role where it is needed, and there is no other rule."""
    found = sorted(
        (
            document["metadata"].get("namespace", ""),
            *rule["apiGroups"],
            *rule["resources"],
            tuple(rule.get("resourceNames", ())),
            tuple(rule["verbs"]),
        )
        for document in documents(around)
        for rule in document.get("rules", ())
    )
    assert found == sorted(
        (right.namespace, right.group, right.resource, right.names, right.verbs)
        for right in rights(around)
    )


@pytest.mark.parametrize("around", CASES.values(), ids=CASES)
def test_every_role_is_bound_to_the_account(around: Circumstances) -> None:
    """By a binding of its own kind, beside it."""
    made = documents(around)
    assert made[0]["kind"] == "ServiceAccount"
    for role in [one for one in made if "rules" in one]:
        [binding] = [
            one
            for one in made
            if one["kind"] == f"{role['kind']}Binding"
            and one["metadata"].get("namespace") == role["metadata"].get("namespace")
        ]
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role["kind"],
            "name": role["metadata"]["name"],
        }
        [subject] = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", **made[0]["metadata"]}


def test_a_confined_target_gets_roles_alone() -> None:
    """No ClusterRole, and nothing outside of what was given."""
    around = CASES["confined"]
    account = Account(name="federate-target", namespace=account_namespace(around))
    made = documents(around, account)
    assert {one["kind"] for one in made} == {"ServiceAccount", "Role", "RoleBinding"}
    assert {one["metadata"]["namespace"] for one in made} == {"team-a", "null"}


def test_every_rule_says_why() -> None:
    """The comment above a rule has its reason and what is lost without it."""
    around = CASES["hub"]
    text = " ".join(render_manifests(around, ACCOUNT, title="Rights").replace("# ", "").split())
    for right in rights(around):
        assert right.why[1:] in text
        assert right.without in text


def test_a_user_who_is_there_gets_no_service_account() -> None:
    """Roles are bound to the user, who may be called anything."""
    around = CASES["hub"]
    account = Account(name="federate-hub", namespace="kube-system", user='o"neill: x')
    made = documents(around, account)
    assert "ServiceAccount" not in {one["kind"] for one in made}
    subjects = [one["subjects"] for one in made if "subjects" in one]
    expected = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": 'o"neill: x'}
    assert subjects and all(found == [expected] for found in subjects)


def test_comments_fit_a_page() -> None:
    for around in CASES.values():
        for line in render_manifests(around, ACCOUNT, title="Rights " * 40).splitlines():
            assert len(line) <= 100, line

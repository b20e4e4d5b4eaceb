"""Questions about rights, and what missing answers mean (C1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federate.check.access import (
    NOWHERE,
    Question,
    judge_rights,
    questions,
    rbac_command,
    rules_review,
    subject_review,
    user_of,
)
from federate.check.findings import FindingId, Severity
from federate.check.rights import Circumstances, Feature, Right, Side, rights, usual_features
from federate.node.capacity import CapacityMode

HUB = Circumstances(
    side=Side.HUB, node_names=("edge", "far"), features=usual_features(is_confined=False)
)
CONFINED = Circumstances(
    side=Side.TARGET,
    confined_to=("team-a",),
    capacity=CapacityMode.STATIC,
    features=usual_features(is_confined=True),
)


def right(**more: object) -> Right:
    fields: dict[str, object] = {
        "group": "",
        "resource": "pods/status",
        "verbs": ("patch",),
        "is_required": True,
        "why": "it is needed",
        "without": "nothing works",
        **more,
    }
    return Right(**fields)  # type: ignore[arg-type]


def test_each_verb_and_each_name_is_asked_for() -> None:
    asked = questions([right(verbs=("get", "patch"), names=("edge", "far"))])
    assert [(q.verb, q.name) for q in asked] == [
        ("get", "edge"),
        ("get", "far"),
        ("patch", "edge"),
        ("patch", "far"),
    ]


def test_a_question_names_resource_and_subresource_apart() -> None:
    [question] = questions([right(namespace="team-a", group="apps")])
    assert question.review()["spec"] == {
        "resourceAttributes": {
            "group": "apps",
            "resource": "pods",
            "subresource": "status",
            "verb": "patch",
            "namespace": "team-a",
        }
    }


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/status"]}, True),
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, True),
        ({"verbs": ["patch"], "apiGroups": [""], "resources": ["*/status"]}, True),
        ({"verbs": ["patch"], "apiGroups": [""], "resources": ["pods"]}, False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/status"]}, False),
        ({"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["pods/status"]}, False),
        (
            {
                "verbs": ["patch"],
                "apiGroups": [""],
                "resources": ["pods/status"],
                "resourceNames": ["edge"],
            },
            True,
        ),
        (
            {
                "verbs": ["patch"],
                "apiGroups": [""],
                "resources": ["pods/status"],
                "resourceNames": ["far"],
            },
            False,
        ),
    ],
)
def test_a_list_of_rules_answers_too(rule: dict[str, list[str]], expected: bool) -> None:
    question = Question(right=right(names=("edge",)), verb="patch", name="edge")
    assert question.is_allowed_by({"status": {"resourceRules": [rule]}}) is expected


def test_cluster_wide_rights_are_looked_for_where_no_role_is() -> None:
    assert rules_review(right())["spec"] == {"namespace": NOWHERE}
    assert rules_review(right(namespace="a"))["spec"] == {"namespace": "a"}


@pytest.mark.parametrize("around", [HUB, CONFINED])
def test_every_required_right_that_is_missing_stops_work(around: Circumstances) -> None:
    """Taking away any one of them is told, as that one and no other."""
    found = rights(around)
    for taken in found:
        answers = {q: q.right is not taken for q in questions(found)}
        [finding] = judge_rights(answers, around)
        expected = (
            FindingId.RIGHT_MISSING if taken.is_required else FindingId.OPTIONAL_RIGHT_MISSING
        )
        assert finding.id is expected
        assert taken.without in finding.what
        assert (finding.severity is Severity.FAIL) == taken.is_required
    assert judge_rights(dict.fromkeys(questions(found), True), around) == ()


def test_only_what_is_missing_is_named() -> None:
    one = right(verbs=("get", "list"), names=("edge", "far"), namespace="ns", group="apps")
    answers = {q: (q.verb, q.name) != ("list", "far") for q in questions([one])}
    [finding] = judge_rights(answers, HUB, user="system:serviceaccount:kube-system:federate")
    assert "may not list pods/status.apps far in ns." in finding.what


def test_the_command_grants_it_to_the_one_who_asked() -> None:
    account = rbac_command(HUB, user="system:serviceaccount:kube-system:fed")
    assert account == (
        "federate rbac --side hub --node edge --node far --account-namespace kube-system --name fed"
    )
    around = replace(HUB, node_names=(), leader_lease_namespace="ops")
    assert rbac_command(around, user="") == "federate rbac --side hub --leader-lease-namespace ops"
    person = rbac_command(CONFINED, user="jane")
    assert person == (
        "federate rbac --side target --namespace team-a --capacity static --user 'jane'"
    )


def test_the_command_grants_no_feature_that_is_not_used() -> None:
    """And every other one that is."""
    used = (HUB.features - {Feature.COMPANIONS, Feature.EVENTS}) | {Feature.APPROVE}
    assert rbac_command(replace(HUB, node_names=(), features=used), user="") == (
        "federate rbac --side hub --with approve --without companions --without events"
    )


def test_the_user_is_read_from_the_reply() -> None:
    assert subject_review()["kind"] == "SelfSubjectReview"
    assert user_of({"status": {"userInfo": {"username": "jane"}}}) == "jane"
    assert user_of({}) == ""

"""Ask an API server about our rights, and judge its answers.

Pure: the questions as objects to create, the answers as verdicts. `readers` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federate.check.findings import Finding, FindingId
from federate.check.rights import (
    SYSTEM_NAMESPACE,
    Circumstances,
    Right,
    Side,
    usual_features,
)
from federate.model.objects import JsonDict, JsonObject, status_of
from federate.model.resources import Resource

_AUTHORIZATION = "authorization.k8s.io/v1"

ACCESS_REVIEWS = Resource(
    group_version=_AUTHORIZATION,
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    namespaced=False,
)
RULES_REVIEWS = Resource(
    group_version=_AUTHORIZATION,
    plural="selfsubjectrulesreviews",
    kind="SelfSubjectRulesReview",
    namespaced=False,
)
SUBJECT_REVIEWS = Resource(
    group_version="authentication.k8s.io/v1",
    plural="selfsubjectreviews",
    kind="SelfSubjectReview",
    namespaced=False,
)

NOWHERE = "federate-asks-what-is-allowed-everywhere"
"""A namespace where no RoleBinding is: the rules that hold there hold cluster-wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May we do this one thing? `name` "" is any object."""

    right: Right
    verb: str
    name: str = ""

    def review(self) -> JsonDict:
        """Render the SelfSubjectAccessReview."""
        resource, _, subresource = self.right.resource.partition("/")
        attributes = {
            "group": self.right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "namespace": self.right.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": ACCESS_REVIEWS.group_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }

    def is_allowed_by(self, rules: JsonObject) -> bool:
        """Answer it by a SelfSubjectRulesReview of the right's namespace (or of `NOWHERE`)."""
        return any(self._is_granted(rule) for rule in status_of(rules).get("resourceRules") or ())

    def _is_granted(self, rule: Mapping[str, list[str]]) -> bool:
        _, slash, subresource = self.right.resource.partition("/")
        resources = {"*", self.right.resource} | ({f"*/{subresource}"} if slash else set())
        names = rule.get("resourceNames") or []
        return (
            bool({"*", self.verb} & set(rule.get("verbs") or ()))
            and bool({"*", self.right.group} & set(rule.get("apiGroups") or ()))
            and bool(resources & set(rule.get("resources") or ()))
            and (not names or self.name in names)
        )


def rules_review(right: Right) -> JsonDict:
    """Render the review that lists all we may do where the right is needed."""
    return {
        "apiVersion": RULES_REVIEWS.group_version,
        "kind": RULES_REVIEWS.kind,
        "spec": {"namespace": right.namespace or NOWHERE},
    }


def subject_review() -> JsonDict:
    """Render the question who we are."""
    return {"apiVersion": SUBJECT_REVIEWS.group_version, "kind": SUBJECT_REVIEWS.kind}


def questions(rights: Iterable[Right]) -> tuple[Question, ...]:
    """Ask for each verb, and each object where a right is limited to some."""
    return tuple(
        Question(right=right, verb=verb, name=name)
        for right in rights
        for verb in right.verbs
        for name in right.names or ("",)
    )


def user_of(review: JsonObject) -> str:
    """Read from the reply to `subject_review` who we are."""
    return str((status_of(review).get("userInfo") or {}).get("username") or "")


def judge_rights(
    answers: Mapping[Question, bool], around: Circumstances, *, user: str = ""
) -> tuple[Finding, ...]:
    """Make one finding of each right of which something is missing."""
    missing: dict[Right, list[Question]] = {}
    for question, is_allowed in answers.items():
        if not is_allowed:
            missing.setdefault(question.right, []).append(question)
    who = user or "the kubeconfig's user"
    return tuple(
        Finding(
            id=FindingId.RIGHT_MISSING if right.is_required else FindingId.OPTIONAL_RIGHT_MISSING,
            what=f"{who} may not {_said(right, asked)}. It is for: {right.why}. "
            f"Without it: {right.without}",
            fix=f"{rbac_command(around, user=user)} | kubectl apply -f -",
        )
        for right, asked in missing.items()
    )


def _said(right: Right, asked: Iterable[Question]) -> str:
    verbs = dict.fromkeys(question.verb for question in asked)
    names = tuple(dict.fromkeys(question.name for question in asked if question.name))
    where = f" in {right.namespace}" if right.namespace else " cluster-wide"
    which = f" {', '.join(names)}" if names else ""
    group = f".{right.group}" if right.group else ""
    return f"{', '.join(verbs)} {right.resource}{group}{which}{where}"


_SERVICE_ACCOUNT = "system:serviceaccount:"


def rbac_command(around: Circumstances, *, user: str) -> str:
    """Return the command that prints the rights of these circumstances for that user."""
    parts = ["federate rbac --side", str(around.side)]
    if around.side is Side.TARGET:
        parts += [f"--namespace {name}" for name in around.confined_to]
        parts += [f"--capacity {around.capacity}"]
    else:
        parts += [f"--node {name}" for name in around.node_names]
    if around.side is Side.HUB and around.leader_lease_namespace != SYSTEM_NAMESPACE:
        parts += [f"--leader-lease-namespace {around.leader_lease_namespace}"]
    usual = usual_features(is_confined=around.is_confined)
    parts += [f"--with {feature}" for feature in sorted(around.features - usual)]
    parts += [f"--without {feature}" for feature in sorted(usual - around.features)]
    if user.startswith(_SERVICE_ACCOUNT):
        namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
        parts += [f"--account-namespace {namespace} --name {name}"]
    elif user:
        parts += [f"--user '{user}'"]
    return " ".join(parts)

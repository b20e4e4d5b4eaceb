"""DaemonSets on the virtual node, budgets and Services on mirrors, namespaces (C22, C23, C26)."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from federate.check.findings import FindingId, Severity
from federate.check.workloads import (
    expected_traits,
    judge_budgets,
    judge_daemonsets,
    judge_services,
    judge_taints,
    judge_target_namespaces,
    selects,
)
from federate.model.marks import HUB_NAMESPACE_ANNOTATION
from federate.model.objects import JsonDict
from federate.model.taints import Taint, TaintEffect, taints_of_virtual_node
from federate.node.daemonsets import (
    NodeTraits,
    affinity_patch_command,
    matches,
    traits_of,
    wants_node,
)
from federate.policy.rules import DaemonSetMode

OWN_TAINT = taints_of_virtual_node(value="federate", effect=TaintEffect.NO_SCHEDULE, more=())
NODE = expected_traits("edge", labels={"zone": "north", "size": "7"}, taints=OWN_TAINT)
OPEN = expected_traits("edge", labels={}, taints=())
EVERYTHING = [{"operator": "Exists"}]
OURS = {"key": "virtual-kubelet.io/provider", "operator": "Exists"}


def daemonset(tolerations: list[JsonDict] | None = None, **pod: Any) -> JsonDict:
    spec: JsonDict = {"tolerations": EVERYTHING if tolerations is None else tolerations, **pod}
    return {
        "metadata": {"namespace": "kube-system", "name": "cni"},
        "spec": {"template": {"spec": spec}},
    }


def affinity(*terms: JsonDict) -> JsonDict:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def needs(key: str, operator: str, *values: str) -> JsonDict:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: JsonDict) -> JsonDict:
    return {"matchExpressions": list(expressions)}


KEPT_OFF = affinity(term(needs("type", "NotIn", "virtual-kubelet")))


@pytest.mark.parametrize(
    "tolerations",
    [
        EVERYTHING,
        [OURS],
        [{**OURS, "effect": "NoSchedule"}],
        [{"key": "virtual-kubelet.io/provider", "value": "federate"}],
    ],
)
def test_a_daemonset_that_tolerates_the_taint_is_found(tolerations: list[JsonDict]) -> None:
    [finding] = judge_daemonsets([daemonset(tolerations)], NODE, DaemonSetMode.PENDING)
    assert finding.id is FindingId.DAEMONSET_TOLERATES_NODE
    assert finding.severity is Severity.WARN
    assert "kube-system/cni" in finding.what
    assert finding.fix.startswith("kubectl -n kube-system patch daemonset cni")


@pytest.mark.parametrize(
    "tolerations",
    [
        [],
        [{"key": "another", "operator": "Exists"}],
        [{**OURS, "effect": "NoExecute"}],
        [{"key": "virtual-kubelet.io/provider", "value": "another"}],
        [{"operator": "Equal", "value": "federate"}],
    ],
)
def test_one_that_does_not_is_left_alone(tolerations: list[JsonDict]) -> None:
    assert judge_daemonsets([daemonset(tolerations)], NODE, DaemonSetMode.PENDING) == ()


def test_what_becomes_of_its_pod_is_as_the_policy_says() -> None:
    """Taken for ready it holds nothing up, and where it is mirrored nothing is to be told."""
    [finding] = judge_daemonsets([daemonset()], NODE, DaemonSetMode.PRETEND)
    assert (finding.id, finding.severity) == (FindingId.DAEMONSET_PRETENDED, Severity.NOTE)
    assert "runs nowhere" in finding.what
    assert judge_daemonsets([daemonset()], NODE, DaemonSetMode.MIRROR) == ()


@pytest.mark.parametrize("mode", DaemonSetMode)
def test_a_node_without_a_taint_is_tolerated_by_all_that_are_not_kept_off(
    mode: DaemonSetMode,
) -> None:
    """Also where they are mirrored: one that tolerates nothing does not mean to be there."""
    found = judge_daemonsets([daemonset([]), daemonset([], affinity=KEPT_OFF)], OPEN, mode)
    assert [finding.fix.split()[:6] for finding in found] == [
        ["kubectl", "-n", "kube-system", "patch", "daemonset", "cni"]
    ]
    assert found[0].severity is (Severity.WARN if mode is DaemonSetMode.PENDING else Severity.NOTE)


@pytest.mark.parametrize(
    ("effect", "more", "is_open"),
    [
        (TaintEffect.NO_SCHEDULE, (), False),
        (TaintEffect.NO_EXECUTE, (), False),
        (TaintEffect.PREFER_NO_SCHEDULE, (), True),
        (None, (), True),
        (None, [Taint(key="gpu", effect=TaintEffect.PREFER_NO_SCHEDULE)], True),
        (None, [Taint(key="gpu")], False),
    ],
)
def test_a_node_that_no_taint_keeps_pods_off_is_told(
    effect: TaintEffect | None, more: list[Taint], is_open: bool
) -> None:
    """Once for the node, with what becomes of the hub's own DaemonSets."""
    found = judge_taints("edge", taints_of_virtual_node(value="x", effect=effect, more=more))
    assert [(f.id, f.severity) for f in found] == (
        [(FindingId.NODE_NOT_TAINTED, Severity.NOTE)] if is_open else []
    )
    assert all("DaemonSet" in f.what and "kube-proxy" in f.fix for f in found)


def test_more_taints_have_to_be_tolerated_too() -> None:
    taints = [*NODE.taints, {"key": "gpu", "effect": "NoSchedule"}]
    node = NodeTraits(name="edge", labels=NODE.labels, taints=taints)
    assert not wants_node(daemonset([OURS]), node)
    assert wants_node(daemonset([OURS, {"key": "gpu", "operator": "Exists"}]), node)
    soft = [*NODE.taints, {"key": "gpu", "effect": "PreferNoSchedule"}]
    assert wants_node(daemonset([OURS]), NodeTraits(name="e", labels=NODE.labels, taints=soft))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"nodeSelector": {"zone": "north"}}, True),
        ({"nodeSelector": {"zone": "south"}}, False),
        ({"affinity": KEPT_OFF}, False),
        ({"affinity": affinity(term(needs("zone", "In", "north", "south")))}, True),
        ({"affinity": affinity(term(needs("zone", "NotIn", "north")))}, False),
        ({"affinity": affinity(term(needs("size", "Gt", "5")))}, True),
        ({"affinity": affinity(term(needs("size", "Lt", "5")))}, False),
        ({"affinity": affinity(term(needs("zone", "Gt", "5")))}, False),
        ({"affinity": affinity(term(needs("none", "Exists")))}, False),
        ({"affinity": affinity(term(needs("none", "DoesNotExist")))}, True),
        ({"affinity": affinity({}, term(needs("zone", "Exists")))}, True),
        ({"affinity": affinity({})}, False),
        ({"affinity": affinity()}, False),
        ({"affinity": {"podAntiAffinity": {}}}, True),
        (
            {"affinity": affinity({"matchFields": [needs("metadata.name", "In", "edge")]})},
            True,
        ),
        (
            {"affinity": affinity({"matchFields": [needs("metadata.name", "In", "other")]})},
            False,
        ),
    ],
)
def test_selectors_and_affinity_are_heeded(pod: JsonDict, expected: bool) -> None:
    """As the DaemonSet controller heeds them: terms are alternatives, what is in one holds all."""
    assert wants_node(daemonset(**pod), NODE) is expected


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"affinity": affinity(term(needs("zone", "In", "north")), term(needs("a", "Exists")))},
        {"affinity": affinity({"matchFields": [needs("metadata.name", "In", "edge")]})},
    ],
)
def test_the_patch_keeps_it_off_and_changes_nothing_else(pod: JsonDict) -> None:
    """Merged in as kubectl does, the DaemonSet no longer wants the node, and the rest stays."""
    before = daemonset(**pod)
    words = shlex.split(affinity_patch_command(before))
    assert words[:6] == ["kubectl", "-n", "kube-system", "patch", "daemonset", "cni"]
    patch = json.loads(words[words.index("-p") + 1])
    patched = patch["spec"]["template"]["spec"]["affinity"]
    assert not wants_node(daemonset(**{**pod, "affinity": patched}), NODE)
    real = NodeTraits(name="edge", labels={"zone": "north", "a": "b"}, taints=())
    assert wants_node(before, real)
    assert wants_node(daemonset(**{**pod, "affinity": patched}), real)


def test_a_node_that_is_not_there_yet_has_the_taints_of_its_settings() -> None:
    gpu = Taint(key="gpu", effect=TaintEffect.NO_EXECUTE)
    taints = taints_of_virtual_node(value="mine", effect=TaintEffect.NO_SCHEDULE, more=[gpu])
    node = expected_traits("edge", labels={}, taints=taints)
    assert wants_node(daemonset(), node)
    assert not wants_node(daemonset([OURS]), node)
    assert not wants_node(daemonset([{**OURS, "operator": "Equal", "value": "federate"}]), node)


def test_the_node_that_stands_tells_its_shape() -> None:
    """But for what comes and goes with its health."""
    found = traits_of(
        {
            "metadata": {"name": "edge", "labels": {"a": "b"}},
            "spec": {
                "taints": [
                    {"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                ]
            },
        }
    )
    assert [taint["key"] for taint in found.taints] == ["virtual-kubelet.io/provider"]
    assert found.labels == {"a": "b"}


def test_an_unknown_operator_matches_nothing() -> None:
    assert not matches({"key": "a", "operator": "Near"}, {"a": "b"})


# -- budgets and services --------------------------------------------------------------------------


def mirror(namespace: str = "ns", **labels: str) -> JsonDict:
    return {"metadata": {"namespace": namespace, "name": "m", "labels": labels}}


def selecting(spec: JsonDict, namespace: str = "ns") -> JsonDict:
    return {"metadata": {"namespace": namespace, "name": "it"}, "spec": spec}


WEB = {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxUnavailable": 1, "selector": WEB}, 1),
        ({"maxUnavailable": "10%", "selector": WEB}, 1),
        ({"minAvailable": "50%", "selector": WEB}, 1),
        ({"minAvailable": 1, "selector": WEB}, 0),
        ({"maxUnavailable": 1, "selector": {}}, 1),
        ({"maxUnavailable": 1}, 0),
        ({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}}}, 0),
        (
            {
                "maxUnavailable": 0,
                "selector": {"matchExpressions": [needs("app", "In", "web", "db")]},
            },
            1,
        ),
    ],
)
def test_budgets_that_need_a_controller_are_found(spec: JsonDict, expected: int) -> None:
    """maxUnavailable and percentages count by the controller, which mirrors do not have."""
    found = judge_budgets([selecting(spec)], [mirror(app="web"), mirror("other", app="web")])
    assert len(found) == expected
    for finding in found:
        assert finding.id is FindingId.BUDGET_COUNTS_MIRRORS
        assert "ns/it selects 1 mirrors" in finding.what


def test_services_that_select_mirrors_are_found() -> None:
    [finding] = judge_services([selecting({"selector": {"app": "web"}})], [mirror(app="web")])
    assert finding.id is FindingId.SERVICE_SELECTS_MIRRORS


def test_a_service_without_selector_selects_nothing() -> None:
    assert judge_services([selecting({}), selecting({"selector": {}})], [mirror(app="web")]) == ()
    other = selecting({"selector": {"app": "web"}}, "other")
    assert judge_services([other], [mirror(app="web")]) == ()


def test_selectors_are_both_labels_and_expressions() -> None:
    selector = {**WEB, "matchExpressions": [needs("tier", "Exists")]}
    assert selects(selector, {"app": "web", "tier": "a"})
    assert not selects(selector, {"app": "web"})


# -- namespaces ------------------------------------------------------------------------------------


def test_a_namespace_must_be_there_and_stay() -> None:
    ending = {"metadata": {"name": "b"}, "status": {"phase": "Terminating"}}
    missing, gone = judge_target_namespaces([ending], missing=["a"])
    assert missing.id is gone.id is FindingId.NAMESPACE_NOT_USABLE
    assert "kubectl create namespace a" in missing.fix
    assert missing.severity is Severity.FAIL
    made = {**ending, "metadata": {"name": "b", "annotations": {HUB_NAMESPACE_ANNOTATION: "x"}}}
    assert judge_target_namespaces([made]) == ()


def test_a_strict_level_is_a_warning() -> None:
    def namespace(level: str) -> JsonDict:
        return {
            "metadata": {"name": "a", "labels": {"pod-security.kubernetes.io/enforce": level}},
            "status": {"phase": "Active"},
        }

    [finding] = judge_target_namespaces([namespace("restricted"), namespace("baseline")])
    assert finding.id is FindingId.POD_SECURITY_STRICT

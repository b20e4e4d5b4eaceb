"""What a virtual node says of the DaemonSets that tolerate it (C26)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federate.model.objects import JsonDict, key_of
from federate.model.reasons import NodeReason
from federate.node.daemonsets import (
    LONGEST_COMMAND,
    MOST_NAMED,
    NodeTraits,
    affinity_patch_command,
    daemonsets_word,
    lean_daemonset,
    traits_of,
    wants_node,
)
from federate.policy.rules import DaemonSetMode

TAINT = {"key": "virtual-kubelet.io/provider", "value": "federate", "effect": "NoSchedule"}
NODE = NodeTraits(name="edge", labels={"type": "virtual-kubelet"}, taints=[TAINT])


def daemonset(name: str, *, tolerates: bool = True, **pod: Any) -> JsonDict:
    spec: JsonDict = {"containers": [{"name": "x", "env": [{"name": "A", "value": "b"}]}], **pod}
    if tolerates:
        spec["tolerations"] = [{"operator": "Exists"}]
    return {
        "metadata": {"namespace": "kube-system", "name": name, "labels": {"a": "b"}},
        "spec": {"template": {"spec": spec}},
    }


@pytest.mark.parametrize("mode", list(DaemonSetMode))
def test_all_is_well_where_none_tolerates_the_node(mode: DaemonSetMode) -> None:
    word = daemonsets_word([daemonset("cni", tolerates=False)], NODE, mode)
    assert (word.is_kept_off, word.reason) == (True, NodeReason.DAEMONSETS_KEPT_OFF)


@pytest.mark.parametrize(
    ("mode", "reason", "words"),
    [
        (DaemonSetMode.PENDING, NodeReason.DAEMONSETS_WAIT, "waits here"),
        (DaemonSetMode.PRETEND, NodeReason.DAEMONSETS_PRETENDED, "runs nowhere"),
        (DaemonSetMode.MIRROR, NodeReason.DAEMONSETS_MIRRORED, "runs in the target"),
    ],
)
def test_those_that_do_are_named_with_what_becomes_of_them(
    mode: DaemonSetMode, reason: NodeReason, words: str
) -> None:
    found = [daemonset("logs"), daemonset("cni"), daemonset("none", tolerates=False)]
    word = daemonsets_word(found, NODE, mode)
    assert (word.is_kept_off, word.reason) == (False, reason)
    assert word.message.startswith("kube-system/cni, kube-system/logs: ")
    assert words in word.message
    assert affinity_patch_command(found[1]) in word.message
    assert daemonsets_word(list(reversed(found)), NODE, mode) == word


def test_the_words_are_bounded() -> None:
    """However many there are, and whatever affinity they have already."""
    many = [daemonset(f"agent-{n:03}") for n in range(MOST_NAMED + 7)]
    message = daemonsets_word(many, NODE, DaemonSetMode.PENDING).message
    assert "and 7 more" in message
    assert f"agent-{MOST_NAMED:03}" not in message
    values = [f"zone-{n}" for n in range(200)]
    expressions = [{"key": "zone", "operator": "NotIn", "values": values}]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    wide = daemonset("wide", affinity={"nodeAffinity": node_affinity})
    assert len(affinity_patch_command(wide)) > LONGEST_COMMAND
    message = daemonsets_word([wide], NODE, DaemonSetMode.PENDING).message
    assert "federate check" in message
    assert len(message) < 2 * LONGEST_COMMAND


def test_a_lean_daemonset_is_judged_as_the_whole_one() -> None:
    """What is kept of it tells the same, and nothing of what its containers are given."""
    selected = daemonset("a", nodeSelector={"type": "virtual-kubelet"}, affinity={"podAffinity": 1})
    kept = {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [kept]}]}
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    off = daemonset("b", affinity={"nodeAffinity": node_affinity})
    for whole in (selected, off, daemonset("c", tolerates=False), {"metadata": {"name": "bare"}}):
        lean = lean_daemonset(whole)
        assert wants_node(lean, NODE) is wants_node(whole, NODE)
        assert key_of(lean) == key_of(whole)
        assert affinity_patch_command(lean) == affinity_patch_command(whole)
        assert "containers" not in json.dumps(lean)


def test_taints_of_a_nodes_health_do_not_count() -> None:
    """Every DaemonSet's pod tolerates them."""
    health = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    node = {"metadata": {"name": "edge"}, "spec": {"taints": [TAINT, health]}}
    assert traits_of(node).taints == [TAINT]

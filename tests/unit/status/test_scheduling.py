"""Which reason the words of a target's scheduler amount to (C46)."""

from __future__ import annotations

import pytest

from federate.model.reasons import PodReason
from federate.status.scheduling import unscheduled_reason

PREEMPTION = (
    " preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No "
    "preemption victims found for incoming pod."
)
ROOM = PodReason.TARGET_LACKS_ROOM
LABELS = PodReason.TARGET_NODES_DO_NOT_MATCH
TAINTS = PodReason.TARGET_NODES_TAINTED
UNTOLERATED = "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("3 Insufficient cpu.", ROOM),
        ("3 Insufficient nvidia.com/gpu.", ROOM),
        ("3 Insufficient cpu, 3 Insufficient memory.", ROOM),
        ("3 Too many pods.", ROOM),
        (f"1 {UNTOLERATED}, 2 Insufficient memory.", ROOM),
        ("1 Insufficient cpu, 2 node(s) didn't match pod topology spread constraints.", ROOM),
        (f"3 {UNTOLERATED}.", TAINTS),
        ("3 node(s) had untolerated taint(s).", TAINTS),
        ("3 node(s) had taint {dedicated: gpu}, that the pod didn't tolerate.", TAINTS),
        (f"1 node(s) were unschedulable, 2 {UNTOLERATED}.", TAINTS),
        ("3 node(s) didn't match Pod's node affinity/selector.", LABELS),
        (f"1 {UNTOLERATED}, 2 node(s) didn't match Pod's node affinity/selector.", LABELS),
        ("3 node(s) didn't match pod anti-affinity rules.", None),
        (f"2 {UNTOLERATED}, 1 node(s) didn't have free ports for the requested pod ports.", None),
        ("1 node(s) had volume node affinity conflict, 2 node(s) were unschedulable.", None),
        ("3 node(s) had something that nobody heard of before.", None),
    ],
)
def test_what_would_have_to_change_is_told(said: str, expected: PodReason | None) -> None:
    """Room comes before labels, labels before taints: in that order a scheduler gives nodes up."""
    message = f"0/3 nodes are available: {said}"
    assert unscheduled_reason(message) == expected
    assert unscheduled_reason(message + PREEMPTION) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("no nodes available to schedule pods", PodReason.TARGET_HAS_NO_NODES),
        ("", None),
        ("0/3 nodes are available.", None),
        ("running Bind plugin: etcdserver: 3 Insufficient things", None),
        ("Scheduling is blocked due to non-empty scheduling gates", None),
        ('persistentvolumeclaim "data" not found', None),
    ],
)
def test_other_words_are_left_to_speak_for_themselves(
    message: str, expected: PodReason | None
) -> None:
    assert unscheduled_reason(message) == expected

"""What a command takes over of a Node that it leads for a while: what the Node says of itself."""

from __future__ import annotations

import json

import pytest

from federate.companions.rules import CompanionRules
from federate.leave.replica import settings_of
from federate.model.marks import LAST_APPLIED_ANNOTATION
from federate.model.objects import JsonDict
from federate.model.taints import Taint, TaintEffect

OURS: JsonDict = {"key": "virtual-kubelet.io/provider", "value": "x", "effect": "NoExecute"}
GPU: JsonDict = {"key": "gpu", "effect": "PreferNoSchedule"}
THEIRS: JsonDict = {"key": "theirs", "effect": "NoSchedule"}


def node(*taints: JsonDict, applied: list[JsonDict] | None) -> JsonDict:
    """A Node with taints, and what of them is on record; None: the record is lost."""
    record = {} if applied is None else {"spec": {"taints": applied}}
    annotations = {LAST_APPLIED_ANNOTATION: json.dumps(record)} if record else {}
    return {
        "metadata": {"name": "edge", "annotations": annotations},
        "spec": {"taints": list(taints)},
    }


@pytest.mark.parametrize(
    ("found", "effect", "value", "more"),
    [
        (
            node(OURS, GPU, THEIRS, applied=[OURS, GPU]),
            TaintEffect.NO_EXECUTE,
            "x",
            (Taint(key="gpu", effect=TaintEffect.PREFER_NO_SCHEDULE),),
        ),
        (node(THEIRS, applied=[]), None, "", ()),
        (node(OURS, applied=[]), None, "", ()),
        (node(OURS, THEIRS, applied=None), TaintEffect.NO_EXECUTE, "x", ()),
        (node(THEIRS, applied=None), None, "", ()),
    ],
)
def test_taints_stay_as_they_were_applied(
    found: JsonDict, effect: TaintEffect | None, value: str, more: tuple[Taint, ...]
) -> None:
    """Also where there is none; without a record, the one of virtual nodes as it stands."""
    settings = settings_of(found, companions=CompanionRules())
    assert (settings.taint_effect, settings.taint_value) == (effect, value)
    assert settings.taints == more

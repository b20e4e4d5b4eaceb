"""Storage classes that do not fit are told of before a pod waits for ever (C33)."""

from __future__ import annotations

from typing import Any

import pytest

from federate.check.findings import FindingId, Severity
from federate.check.storage import judge_hub_classes, judge_target_classes
from federate.claims.render import render_storage_class
from federate.model.objects import JsonDict

SERVING = {"fast": ["berlin", "aachen"]}
GOOD = render_storage_class("fast", node_names=["aachen", "berlin"])


def changed(**fields: Any) -> JsonDict:
    return {**GOOD, **fields}


def hosts(*names: str, key: str = "kubernetes.io/hostname") -> list[JsonDict]:
    return [{"matchLabelExpressions": [{"key": key, "values": list(names)}]}]


def test_what_the_command_prints_is_good() -> None:
    assert judge_hub_classes({"fast": GOOD}, SERVING) == ()


def test_nodes_may_stand_in_several_terms() -> None:
    """They are joined by or."""
    terms = [*hosts("aachen"), *hosts("berlin")]
    assert judge_hub_classes({"fast": changed(allowedTopologies=terms)}, SERVING) == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "no storage class fast"),
        (changed(provisioner="rancher.io/local-path"), "is not federate.dev/target's"),
        (changed(volumeBindingMode="Immediate"), "binds at once"),
        (changed(allowedTopologies=None), "names no nodes"),
        (changed(allowedTopologies=hosts("north", key="zone")), "names no nodes"),
        (changed(allowedTopologies=hosts("berlin")), "never chooses: aachen"),
        (changed(allowedTopologies=hosts("aachen", "berlin", "own")), "nobody makes it"),
    ],
)
def test_a_class_of_the_hub_that_does_not_fit_is_found(found: JsonDict | None, said: str) -> None:
    """One finding, with the command that prints one that fits."""
    [finding] = judge_hub_classes({"fast": found}, SERVING)
    assert said in finding.what
    assert finding.id is FindingId.STORAGE_CLASS_UNFIT
    assert finding.severity is Severity.WARN
    assert "federate storage-class fast --node aachen --node berlin" in finding.fix


def test_a_class_that_the_target_lacks_is_found() -> None:
    found = judge_target_classes({"ssd": None, "disk": {}}, target_name="edge")
    assert ["edge has no storage class ssd" in one.what for one in found] == [True]

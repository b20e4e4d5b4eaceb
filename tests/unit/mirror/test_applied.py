"""The record of what was last applied: what is in it, and what is made of a broken one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federate.mirror.applied import (
    Part,
    changeable,
    format_applied,
    generation_of,
    is_readable,
    parse_applied,
    record_annotations,
)
from federate.model.marks import HUB_GENERATION_ANNOTATION, LAST_APPLIED_SPEC_ANNOTATION
from federate.model.objects import JsonDict, spec_of
from tests.support.views import hub_pod, mirror

SPEC: JsonDict = {
    "containers": [
        {"name": "app", "image": "app:1", "resources": {"limits": {"cpu": "1"}}},
        {"name": "log", "image": "log:1", "resources": {}},
    ],
    "initContainers": [{"name": "side", "image": "side:1", "restartPolicy": "Always"}],
    "resources": {"limits": {"memory": "1Gi"}},
    "activeDeadlineSeconds": 60,
    "ephemeralContainers": [{"name": "debug", "image": "busybox", "command": ["sh"]}],
    "nodeName": "edge",
}


def test_only_what_may_change_is_on_record() -> None:
    """Images, deadline, tolerations, resources of containers and pod, names of debug containers."""
    tolerations = [{"key": "a", "operator": "Exists"}]
    assert changeable(SPEC, tolerations=tolerations) == {
        Part.IMAGES: {
            "containers": {"app": "app:1", "log": "log:1"},
            "initContainers": {"side": "side:1"},
        },
        Part.DEADLINE: 60,
        Part.TOLERATIONS: tolerations,
        Part.RESOURCES: {
            "containers": {"app": {"limits": {"cpu": "1"}}},
            "pod": {"limits": {"memory": "1Gi"}},
        },
        Part.DEBUGGERS: ["debug"],
    }


def test_a_record_is_read_as_it_was_written() -> None:
    """What says nothing is left out, and read as nothing."""
    applied = changeable(SPEC, tolerations=[])
    annotations = {LAST_APPLIED_SPEC_ANNOTATION: format_applied(applied)}
    assert "tolerations" not in annotations[LAST_APPLIED_SPEC_ANNOTATION]
    assert parse_applied({"metadata": {"annotations": annotations}}) == applied


def test_the_record_of_an_ordinary_pod_is_small() -> None:
    """It stands on every mirror."""
    spec = spec_of(hub_pod().build())
    text = format_applied(changeable(spec, tolerations=spec["tolerations"]))
    assert len(text) < 400


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "1", "null", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 9999]
)
def test_an_unreadable_record_is_none(text: str) -> None:
    """Whoever may edit a mirror may write anything there."""
    built = mirror().with_annotations({LAST_APPLIED_SPEC_ANNOTATION: text}).build()
    assert parse_applied(built) is None
    assert not is_readable(built)
    assert parse_applied({"metadata": {}}) is None


@pytest.mark.parametrize("value", [{"a": "b"}, ["{}"], 7, None])
def test_a_record_that_is_no_text_is_none(value: Any) -> None:
    """An API server sends texts alone; who stands for one may send anything."""
    built = mirror().build()
    built["metadata"]["annotations"][LAST_APPLIED_SPEC_ANNOTATION] = value
    assert parse_applied(built) is None
    assert not is_readable(built)


def test_a_part_of_another_shape_says_nothing() -> None:
    """The parts around it are read all the same."""
    value: JsonDict = dict.fromkeys(Part, 7)
    value |= {Part.TOLERATIONS: [1, {"key": "a"}], Part.IMAGES: {"containers": 1}}
    built = mirror().with_annotations({LAST_APPLIED_SPEC_ANNOTATION: json.dumps(value)}).build()
    assert parse_applied(built) == {
        Part.IMAGES: {},
        Part.DEADLINE: 7,
        Part.TOLERATIONS: [{"key": "a"}],
        Part.RESOURCES: {},
        Part.DEBUGGERS: [],
    }


def test_a_generation_is_on_record_only_where_all_of_it_is_applied() -> None:
    """Pods before 1.33 have none."""
    assert HUB_GENERATION_ANNOTATION not in record_annotations({})
    assert record_annotations({}, "4")[HUB_GENERATION_ANNOTATION] == "4"
    assert generation_of(hub_pod().build()) == "1"
    assert generation_of({"metadata": {}}) == ""

"""Reading JSON objects safely: what is absent reads as empty."""

from __future__ import annotations

import pytest

from federate.model.objects import (
    ObjectKey,
    annotations_of,
    condition_of,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    metadata_of,
    resource_version_of,
    spec_of,
    status_of,
    uid_of,
)
from tests.support.builders import pod


def test_keys_are_written_with_their_namespace() -> None:
    """`namespace/name`, or the name alone."""
    assert str(ObjectKey("ns", "name")) == "ns/name"
    assert str(ObjectKey("", "name")) == "name"


def test_keys_have_an_order() -> None:
    """By namespace, then name."""
    keys = [ObjectKey("b", "a"), ObjectKey("a", "b"), ObjectKey("a", "a")]
    assert [str(key) for key in sorted(keys)] == ["a/a", "a/b", "b/a"]


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None, "spec": None, "status": None}, {"metadata": {}, "status": {}}]
)
def test_what_is_absent_reads_as_empty(obj: dict[str, None]) -> None:
    """No accessor fails on an object without parts."""
    assert metadata_of(obj) == spec_of(obj) == status_of(obj) == {}
    assert labels_of(obj) == annotations_of(obj) == {}
    assert key_of(obj) == ObjectKey("", "")
    assert uid_of(obj) == resource_version_of(obj) == ""
    assert not is_terminating(obj)
    assert controller_of(obj) is None
    assert condition_of(obj, "Ready") is None


def test_what_is_there_is_read() -> None:
    """Identity, deletion, controller and conditions."""
    built = pod("web").owned_by("Job", "j").terminating().running().build()
    assert (key_of(built), uid_of(built)) == (ObjectKey("default", "web"), "uid-web")
    assert resource_version_of(built) == "1"
    assert is_terminating(built)
    controller = controller_of(built)
    assert controller is not None
    assert controller["name"] == "j"
    ready = condition_of(built, "Ready")
    assert ready is not None
    assert ready["status"] == "True"


def test_an_owner_that_does_not_control_is_no_controller() -> None:
    """Only `controller: true` counts."""
    assert controller_of({"metadata": {"ownerReferences": [{"kind": "Job"}]}}) is None

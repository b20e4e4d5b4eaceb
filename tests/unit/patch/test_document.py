"""Edits as patch documents."""

from __future__ import annotations

import pytest

from federate.patch.document import MERGE, STRATEGIC, PatchBody, merge_patch, strategic_patch
from federate.patch.edits import (
    AddToSet,
    Edit,
    Edits,
    Element,
    Remove,
    RemoveFromSet,
    ReplaceList,
    SetValue,
)

CONDITIONS = ("status", "conditions")


def edits(*items: Edit) -> Edits:
    return Edits(edits=items)


def test_no_edits_are_no_patch() -> None:
    """Nothing to change sends nothing, whatever the preconditions."""
    assert strategic_patch(Edits(), uid="u") is None
    assert merge_patch(Edits(), resource_version="1") is None


def test_a_strategic_patch_says_every_edit() -> None:
    """Fields, elements, sets and whole lists are said in the server's directives."""
    ready = Element("type", "Ready")
    patch = strategic_patch(
        edits(
            SetValue(path=("metadata", "labels", "a"), value="1"),
            Remove(path=("metadata", "labels", "b")),
            AddToSet(path=("metadata", "finalizers"), values=("x",)),
            RemoveFromSet(path=("metadata", "finalizers"), values=("y",)),
            SetValue(path=(*CONDITIONS, ready, "status"), value="True"),
            Remove(path=(*CONDITIONS, ready, "message")),
            SetValue(path=(*CONDITIONS, Element("type", "New")), value={"type": "New"}),
            Remove(path=(*CONDITIONS, Element("type", "Old"))),
            ReplaceList(path=("status", "podIPs"), items=({"ip": "a"},), server_merges=True),
            ReplaceList(path=("status", "containerStatuses"), items=({"name": "c"},)),
        ),
        uid="u1",
        resource_version="7",
    )
    assert patch == PatchBody(
        media_type=STRATEGIC,
        body={
            "metadata": {
                "labels": {"a": "1", "b": None},
                "finalizers": ["x"],
                "$deleteFromPrimitiveList/finalizers": ["y"],
                "uid": "u1",
                "resourceVersion": "7",
            },
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True", "message": None},
                    {"type": "New"},
                    {"type": "Old", "$patch": "delete"},
                ],
                "podIPs": [{"$patch": "replace"}, {"ip": "a"}],
                "containerStatuses": [{"name": "c"}],
            },
        },
    )


def test_a_guarded_list_is_not_sent_without_precondition() -> None:
    """A list with others' elements in it is refused without a resourceVersion."""
    guarded = edits(ReplaceList(path=("spec", "taints"), items=(), guarded=True))
    with pytest.raises(ValueError, match="resourceVersion"):
        strategic_patch(guarded, uid="u")
    assert strategic_patch(guarded, resource_version="7") == PatchBody(
        media_type=STRATEGIC,
        body={"spec": {"taints": []}, "metadata": {"resourceVersion": "7"}},
    )


def test_a_merge_patch_says_maps_only() -> None:
    """Labels and annotations can go as a merge patch, lists cannot."""
    path = ("metadata", "annotations")
    of_maps = edits(SetValue(path=(*path, "a"), value="1"), Remove(path=(*path, "b")))
    assert merge_patch(of_maps, uid="u1") == PatchBody(
        media_type=MERGE,
        body={"metadata": {"annotations": {"a": "1", "b": None}, "uid": "u1"}},
    )
    for edit in (
        AddToSet(path=("metadata", "finalizers"), values=("x",)),
        Remove(path=(*CONDITIONS, Element("type", "Old"))),
    ):
        with pytest.raises(ValueError, match="merge patch"):
            merge_patch(edits(edit))

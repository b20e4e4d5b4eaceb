"""Edits are applied as a server applies their patch."""

from __future__ import annotations

from federate.patch.edits import Edits, Element, Remove, ReplaceList, SetValue, apply_edits


def test_no_edits_are_false() -> None:
    """Edits are false when empty, and apply to an equal copy."""
    theirs = {"a": [{"b": 1}]}
    result = apply_edits(theirs, Edits())
    assert not Edits()
    assert result == theirs
    assert result["a"] is not theirs["a"]


def test_only_guarded_lists_need_a_resource_version() -> None:
    """A list that carries others' elements needs the precondition, ours alone does not."""
    plain = ReplaceList(path=("a",), items=(1,))
    guarded = ReplaceList(path=("a",), items=(1,), guarded=True)
    assert not Edits(edits=(plain,)).needs_resource_version
    assert Edits(edits=(plain, guarded)).needs_resource_version


def test_steps_lead_through_elements() -> None:
    """A path may lead through the elements of lists that exist."""
    theirs = {"a": [{"n": 0}, {"n": 1, "b": [{"m": 1, "x": 1}, {"m": 2}]}]}
    inner = ("a", Element("n", 1), "b")
    edits = Edits(
        edits=(
            SetValue(path=(*inner, Element("m", 1), "x"), value=2),
            Remove(path=(*inner, Element("m", 2))),
            Remove(path=("a", Element("n", 0), "absent")),
        )
    )
    assert apply_edits(theirs, edits) == {"a": [{"n": 0}, {"n": 1, "b": [{"m": 1, "x": 2}]}]}

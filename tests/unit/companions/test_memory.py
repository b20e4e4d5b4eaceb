"""What is remembered of a change that was tried for a companion."""

from __future__ import annotations

from federate.companions.keys import Kind
from federate.companions.memory import Memory, change_of
from federate.companions.steps import (
    Blocked,
    CreateCompanion,
    DeleteCompanion,
    PatchCompanion,
    Strike,
)
from federate.patch.document import MERGE, PatchBody
from tests.support.companions import companion, hub_object, key_for

KEY = key_for(Kind.SECRET)
CREATE = CreateCompanion(reason="new", body=companion(KEY, hub_object(KEY)))
NO = Blocked(reason="CompanionRefused", message="no")


def patch(value: str, *, version: str = "1") -> PatchCompanion:
    body = {"metadata": {"uid": "u", "resourceVersion": version}, "data": {"a": value}}
    return PatchCompanion(reason="differs", patch=PatchBody(media_type=MERGE, body=body))


def test_the_same_change_of_another_version_is_the_same() -> None:
    assert change_of(patch("x", version="1")) == change_of(patch("x", version="2"))
    assert change_of(patch("x")) != change_of(patch("y"))
    assert change_of(patch("x")) != change_of(CREATE)
    strike = Strike(reason="x", entry=None)
    deletes = [
        change_of(DeleteCompanion(reason=why, uid="u", resource_version=why)) for why in "ab"
    ]
    assert deletes[0] == deletes[1] != change_of(strike)


def test_c73_changes_are_remembered_as_numbers() -> None:
    """Nothing of the contents stays."""
    memory = Memory()
    memory.refusals.is_made_again("create", change_of(CREATE), now=0.0)
    memory.refusals.note_refused(change_of(CREATE), NO, now=0.0)
    assert isinstance(change_of(CREATE), int)
    assert "hunter2" not in repr([vars(memory), vars(memory.refusals)])

"""What was tried for a companion: refused changes wait, repeated ones are found out."""

from __future__ import annotations

from federate.companions.keys import Kind
from federate.companions.memory import (
    REFUSED_AGAIN_CAP_SECONDS,
    REFUSED_AGAIN_SECONDS,
    Memory,
    change_of,
)
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


def test_a_refused_change_waits_longer_each_time() -> None:
    memory, now, waits = Memory(), 0.0, []
    for _ in range(10):
        memory.note_refused(CREATE, NO, now=now)
        refused = memory.refused(CREATE, now=now)
        assert refused is not None
        waits.append(refused.again_at - now)
        now = refused.again_at
        assert memory.refused(CREATE, now=now) is None
    assert waits[:3] == [5.0, 10.0, 20.0]
    assert waits[-1] == REFUSED_AGAIN_CAP_SECONDS


def test_another_change_is_tried_at_once() -> None:
    memory = Memory()
    memory.note_refused(patch("x"), NO, now=0.0)
    assert memory.refused(patch("x"), now=1.0) is not None
    assert memory.refused(patch("y"), now=1.0) is None
    memory.note_refused(patch("y"), NO, now=1.0)
    again = memory.refused(patch("y"), now=2.0)
    assert again is not None
    assert again.again_at == 1.0 + REFUSED_AGAIN_SECONDS


def test_what_was_refused_long_ago_begins_anew() -> None:
    memory = Memory()
    for _ in range(5):
        memory.note_refused(CREATE, NO, now=0.0)
    memory.note_refused(CREATE, NO, now=10_000.0)
    refused = memory.refused(CREATE, now=10_000.0)
    assert refused is not None
    assert refused.failures == 1


def test_the_same_change_made_again_soon_was_undone() -> None:
    """Whatever versions it names; one that goes to and fro is the user's own doing."""
    memory = Memory()
    assert not memory.is_made_again(patch("x", version="1"), now=0.0)
    assert memory.is_made_again(patch("x", version="2"), now=10.0)
    assert not memory.is_made_again(patch("x"), now=10.0 + REFUSED_AGAIN_CAP_SECONDS)
    assert not memory.is_made_again(patch("y"), now=400.0)
    assert not memory.is_made_again(patch("x"), now=401.0)
    assert not memory.is_made_again(CREATE, now=402.0)


def test_c73_changes_are_remembered_as_numbers() -> None:
    """Nothing of the contents stays."""
    memory = Memory()
    memory.is_made_again(CREATE, now=0.0)
    memory.note_refused(CREATE, NO, now=0.0)
    assert isinstance(change_of(CREATE), int)
    assert "hunter2" not in repr(vars(memory))
    delete = DeleteCompanion(reason="x", uid="u", resource_version="1")
    assert change_of(delete) != change_of(Strike(reason="x", entry=None))

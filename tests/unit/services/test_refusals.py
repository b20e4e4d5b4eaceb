"""What a target refused of a Service: which change it was, and the words."""

from __future__ import annotations

import pytest

from federate.errors import ClusterError, Conflict, Forbidden, Rejected, ServerFault, Unreachable
from federate.model.objects import JsonDict
from federate.patch.document import MERGE, PatchBody
from federate.services.following import ServiceKey
from federate.services.refusals import (
    change_of,
    refusal_of_write,
    stripped_words,
    undone_words,
)
from federate.services.steps import DeleteService, LookUpCompanion, PatchService

KEY = ServiceKey("there", "default", "web")


def patch(version: str, port: int = 80) -> PatchService:
    body: JsonDict = {
        "metadata": {"uid": "u", "resourceVersion": version},
        "spec": {"ports": [port]},
    }
    return PatchService(reason="x", patch=PatchBody(media_type=MERGE, body=body))


def test_the_same_change_of_another_version_is_the_same() -> None:
    assert change_of(patch("1")) == change_of(patch("2"))
    assert change_of(patch("1")) != change_of(patch("1", port=81))
    assert change_of(DeleteService(reason="x", uid="a", resource_version="1")) == change_of(
        DeleteService(reason="y", uid="a", resource_version="2")
    )
    assert change_of(LookUpCompanion(reason="why")) == "why"


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        (Forbidden("exceeded quota", status=403), True),
        (Rejected("spec.ports: invalid", status=422), True),
        (ServerFault("failed calling webhook", status=500), True),
        (ServerFault("bad gateway", status=502), False),
        (Unreachable("no answer"), False),
        (Conflict("changed", status=409), False),
    ],
)
def test_only_what_does_not_pass_is_a_refusal(error: ClusterError, is_refused: bool) -> None:
    blocked = refusal_of_write(error, KEY, target_name="edge-1")
    assert (blocked is not None) is is_refused
    if blocked is not None:
        assert error.detail in blocked.message
        assert "edge-1" in blocked.message


def test_the_words_say_what_happens() -> None:
    assert "each time" in undone_words(KEY, target_name="edge-1").message
    assert "federate.dev/" in stripped_words(KEY, target_name="edge-1").message

"""What the reply to a delete says: gone, or merely asked to go."""

from __future__ import annotations

import pytest

from federate.model.deletion import is_really_gone
from federate.model.objects import JsonDict
from tests.support.builders import pod


@pytest.mark.parametrize(
    ("reply", "gone"),
    [
        ({"kind": "Status", "status": "Success"}, True),
        ({"kind": "Status", "status": "Failure"}, False),
        (pod("web").build(), True),
        (pod("web").terminating(grace=30).build(), False),
        (pod("web").terminating(grace=0).build(), True),
        (pod("web").with_finalizers("example.com/x").build(), False),
        (pod("web").with_finalizers("example.com/x").terminating(grace=0).build(), False),
    ],
)
def test_replies(reply: JsonDict, gone: bool) -> None:
    """A grace left or a finalizer: still there."""
    assert is_really_gone(reply) is gone

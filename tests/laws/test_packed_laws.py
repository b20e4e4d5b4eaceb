"""Nothing depends on which objects of a store happen to be unpacked.

The laws of convergence hold where each look at an object is a look at a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings

from federate.cluster.shelf import Shelf
from federate.runtime import mirroring
from tests.support.histories import EVERYDAY, STOP, WATCH, Act, histories, live, run
from tests.support.quiet import quiet

EXAMPLES = 20


@pytest.fixture(autouse=True, scope="module")
def nothing_at_hand() -> Iterator[None]:
    """Let the stores of mirroring keep nothing unpacked."""
    with quiet(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirroring, "Shelf", partial(Shelf, unpacked_limit=0))
        yield


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
@given(histories(EVERYDAY, WATCH, STOP))
def test_any_history_is_lawful_where_nothing_is_at_hand(
    history: list[tuple[Act, float]],
) -> None:
    """Random users, targets, faults and crashes, as in the laws of convergence."""
    run(live([(Act("hub_create", "a", "Never"), 0.3), *history]))

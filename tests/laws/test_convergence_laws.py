"""Whatever users, targets and the network do: nothing forbidden happens, and it comes to rest.

Random acts and faults meet the product's mirroring between two clusters in memory, in virtual time.
A witness judges every single change; at the end, without faults, desired is actual and all is
quiet. `FEDERATE_LAW_EXAMPLES` says how many random histories are tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federate.model.marks import HUB_POD_UID_LABEL
from tests.support.histories import (
    CALAMITY,
    EVERYDAY,
    STOP,
    STOPS,
    WATCH,
    Act,
    histories,
    live,
    run,
)
from tests.support.quiet import quiet

EXAMPLES = int(os.environ.get("FEDERATE_LAW_EXAMPLES", "60"))


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    with quiet():
        yield


LAW = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


FIRST = (Act("hub_create", "a", "Never"), 0.3)


@LAW
@given(histories(EVERYDAY, WATCH), st.booleans())
def test_any_history_is_lawful_and_comes_to_rest(
    history: list[tuple[Act, float]], is_brisk: bool
) -> None:
    """Random users, targets, faults and crashes break no promise, and desired becomes actual."""
    run(live([FIRST, *history], is_brisk=is_brisk))


@LAW
@given(histories(STOP, STOP, EVERYDAY, WATCH), st.booleans())
def test_a_leader_that_comes_back_does_no_harm(
    history: list[tuple[Act, float]], is_brisk: bool
) -> None:
    """C70: stopped at any call while another leads, resumed later, noticing it or not."""
    run(live([FIRST, *history], is_brisk=is_brisk))


@LAW
@given(histories(CALAMITY, CALAMITY, STOP, WATCH), st.booleans())
def test_calamities_are_survived(history: list[tuple[Act, float]], is_brisk: bool) -> None:
    """Uninstalls, removed marks, lost namespaces and restored backups: nothing runs twice."""
    run(live([FIRST, *history], is_brisk=is_brisk))


ROADS: dict[str, list[tuple[Act, float]]] = {
    "a job runs and is deleted": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("play", "a", "Succeeded"), 1.0),
        (Act("hub_delete", "a", number=30), 1.0),
    ],
    "a server is deleted": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_relabel", "a", number=2), 1.0),
        (Act("hub_delete", "a", number=30), 2.0),
        (Act("target_finish"), 2.0),
    ],
    "a pod is changed while it runs": [
        (Act("hub_create", "a", "Always"), 0.0),
        (Act("hub_update", "a", "debug"), 0.0),
        (Act("hub_update", "a", "image"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_mutates", "a"), 1.0),
        (Act("hub_update", "a", "toleration"), 1.0),
        (Act("hub_update", "a", "debug"), 1.0),
        (Act("kill"), 1.0),
        (Act("hub_update", "a", "image"), 1.0),
    ],
    "a drain in the target": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_evict", "a"), 2.0),
        (Act("target_finish"), 2.0),
    ],
    "a successor of the same name": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_delete", "a", number=0), 0.0),
        (Act("hub_create", "a", "Always"), 3.0),
        (Act("target_finish"), 2.0),
    ],
}


STOPPED_LIFE: list[tuple[Act, float]] = [
    (Act("hub_create", "a", "Never"), 45.0),
    (Act("target_vanish", "a"), 45.0),
    (Act("hub_create", "b", "Never"), 2.0),
    (Act("hub_delete", "b", number=30), 45.0),
]
CLUSTERS = {"hub": "a", "target": "b"}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(
    "kind",
    [
        "crash before",
        "crash after",
        "late",
        "lost request",
        "lost reply",
        "conflict",
        "fault",
        "fault after",
        "forbidden",
    ],
)
def test_a_fault_at_every_call_of_a_road(road: str, cluster: str, kind: str) -> None:
    """Each of the usual roads survives each fault at each of its first seven calls."""
    for number in range(7):
        place = Act("fault", CLUSTERS[cluster], kind, number)
        run(live([(place, 0.0), *ROADS[road]]))


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_at_every_call_of_a_life(stop: str, cluster: str) -> None:
    """C70: a leader stopped in any of its next twelve calls comes back late and does no harm."""
    for number in range(12):
        place = Act("fault", CLUSTERS[cluster], stop, number)
        run(live([(place, 0.0), *STOPPED_LIFE], is_brisk=True))


EXAMPLES_FOUND: dict[str, list[tuple[Act, float]]] = {
    "a whole run between two processes": [
        (Act("fault", "b", "crash after", 4), 0.0),  # the create of the mirror
        (Act("hub_create", "a", "Never"), 0.05),
        (Act("outage", "a"), 1.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_vanish", "a"), 45.0),
        (Act("outage", "a"), 40.0),
        (Act("play", "a", "Running"), 1.0),
    ],
    "a mirror vanishes after its end": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("play", "a", "Succeeded"), 1.0),
        (Act("target_vanish", "a"), 5.0),
        (Act("kill"), 5.0),
    ],
    "a server's mirror vanishes": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_vanish", "a"), 5.0),
    ],
    "a hub controller fails a pod": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_fail", "a"), 1.0),
        (Act("play", "a", "Running"), 1.0),
    ],
    "a grace is shortened at once": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_delete", "a", number=30), 0.0),
        (Act("hub_delete", "a", number=1), 0.0),
    ],
    "two leaders, and a namespace that goes": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("fault", "a", "stop unnoticed"), 6.0),
        (Act("namespace_goes", "b"), 0.3),
        (Act("hub_create", "b", "Never"), 40.0),
    ],
    "an unmarked mirror goes with its namespace": [
        (Act("hub_create", "a", "Never"), 0.3),
        (Act("target_unmark", "a", HUB_POD_UID_LABEL), 0.0),
        (Act("namespace_goes", "a"), 0.02),
        (Act("fault", "b", "lost request"), 0.3),
        (Act("namespace_goes", "b"), 12.0),
    ],
    "an uninstall that no process saw": [
        (Act("hub_create", "a", "Never"), 0.3),
        (Act("target_uninstall", "a"), 0.0),
        (Act("namespace_goes", "a"), 45.0),
        (Act("fault", "a", "late", 1), 0.0),
        (Act("fault", "a", "stop unnoticed", 1), 12.0),
    ],
    "a new process lists while the target hangs": [
        (Act("hub_create", "a", "Never"), 0.3),
        (Act("outage", "a"), 12.0),
        (Act("hub_delete", "a", number=0), 0.0),
        (Act("fault", "b", "hang"), 0.0),
        (Act("kill"), 0.3),
    ],
}


@pytest.mark.parametrize("name", EXAMPLES_FOUND)
def test_a_history_that_once_went_wrong(name: str) -> None:
    """What a search or a broken variant of federate was caught by stays found."""
    run(live(EXAMPLES_FOUND[name]))


@pytest.mark.parametrize("road", ROADS)
def test_without_the_nets(road: str) -> None:
    """The usual roads need neither comparisons nor the sweeper."""
    run(live(ROADS[road], with_nets=False))

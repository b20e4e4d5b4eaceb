"""The printed rights suffice: whatever mirroring asks of two clusters in memory is granted (C1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from federate.check.rights import Circumstances, Right, Side, rights, usual_features
from federate.node.capacity import CapacityMode
from tests.support.fakeclient import Call
from tests.support.histories import Act, live, run
from tests.support.quiet import quiet
from tests.support.rights import ROLE
from tests.support.worlds import World

HUB = rights(
    Circumstances(side=Side.HUB, node_names=("edge",), features=usual_features(is_confined=False))
)
TARGET = rights(Circumstances(side=Side.TARGET, features=usual_features(is_confined=False)))
VERBS = {"replace": "update"}

STORIES = {
    "an everyday life": [
        (Act("hub_create", "a", "Always"), 1.0),
        (Act("hub_create", "b", "Never"), 1.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_update", "a", "image"), 1.0),
        (Act("hub_update", "a", "debug"), 1.0),
        (Act("hub_relabel", "a", number=2), 1.0),
        (Act("play", "b", "Succeeded"), 1.0),
        (Act("hub_delete", "a", number=30), 2.0),
        (Act("target_finish"), 2.0),
    ],
    "what goes wrong": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_vanish", "a"), 2.0),
        (Act("hub_create", "b", "Always"), 2.0),
        (Act("play", "b", "Running"), 1.0),
        (Act("hub_delete", "b", number=0), 1.0),
        (Act("kill"), 2.0),
        (Act("target_uninstall"), 2.0),
        (Act("namespace_goes", "a"), 90.0),
        (Act("controllers"), 90.0),
    ],
}


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    with quiet():
        yield


def is_granted(call: Call, granted: tuple[Right, ...]) -> bool:
    verb = VERBS.get(call.verb, call.verb)
    resource = "/".join(part for part in (call.resource.plural, call.subresource) if part)
    if resource.startswith("/"):
        return True  # a document, which every user may read
    return any(
        verb in right.verbs
        and right.resource in (resource, "*")
        and right.namespace in ("", call.key.namespace)
        and (not right.names or verb in ("list", "watch") or call.key.name in right.names)
        for right in granted
    )


def refused(world: World) -> list[str]:
    sides = ((world.hub, HUB), (world.target, TARGET))
    return [
        f"{cluster.name}: {call}"
        for cluster, granted in sides
        for call in cluster.calls
        if not is_granted(call, granted)
    ]


@pytest.mark.parametrize("story", STORIES)
def test_whatever_happens_to_pods_nothing_is_asked_for_that_is_not_granted(story: str) -> None:
    found: list[str] = []
    asked: list[int] = []

    def judge(world: World) -> bool:
        found.extend(refused(world))
        asked.append(len(world.hub.calls) + len(world.target.calls))
        return True

    run(live(STORIES[story], is_brisk=True, ends=judge))
    assert asked[0] > 20
    assert not found


def test_the_role_that_confined_tests_run_with_is_the_printed_one() -> None:
    around = Circumstances(
        side=Side.TARGET,
        confined_to=("team-a",),
        capacity=CapacityMode.STATIC,
        features=usual_features(is_confined=True),
    )
    found = {
        f"{right.resource}.{right.group}" if right.group else right.resource: right.verbs
        for right in rights(around)
    }
    assert found == ROLE

"""What the rules of a target refuse, or change, of a pod: each topic of its policy, by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.support.asks import ASKS, NEVER_ASKED
from federate.explain.road import road_of
from federate.explain.stations import Road
from federate.model.objects import JsonObject
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.topics import TOPIC_OF
from tests.support.explaining import RULES, facts, lines, web, with_rules


def road_by(policy: PolicyRules, spec: JsonObject) -> Road:
    rules = with_rules(render=replace(RULES.render, policy=policy))
    return road_of(facts(web().with_spec(**spec).build(), rules=rules))


def test_all_topics_are_asked() -> None:
    assert {*ASKS, *NEVER_ASKED} == {*TOPIC_OF}


@pytest.mark.parametrize("key", ASKS)
def test_each_topic_is_named_with_its_field(key: str) -> None:
    policy = PolicyRules(outcomes={key: Outcome.REFUSE})
    road = road_by(policy, ASKS[key].spec)
    assert road.verdict.startswith("it does not run: PolicyRefused: edge refuses ")
    assert f"{ASKS[key].path} (" in road.verdict
    assert f"policy.{key})" in road.verdict
    assert road.todo[0].startswith("leave it out; or, as operator of edge, ")


@pytest.mark.parametrize("key", ASKS)
def test_what_is_stripped_is_noted(key: str) -> None:
    """The pod runs, and is another there: the note names the rule."""
    policy = PolicyRules(outcomes=dict.fromkeys(TOPIC_OF, Outcome.STRIP))
    notes = [line for line in lines(road_by(policy, ASKS[key].spec)) if line.startswith("note r")]
    assert any(f"policy.{key}" in note for note in notes), notes


def test_what_a_message_has_no_room_for_is_told_beside() -> None:
    """Of many violations the first few are in the pod's own message, here all are."""
    volumes = [{"name": f"v{n}", "hostPath": {"path": "/"}} for n in range(9)]
    told = "\n".join(lines(road_by(PolicyRules(), {"volumes": volumes})))
    for n in range(9):
        assert f"spec.volumes[v{n}].hostPath (" in told

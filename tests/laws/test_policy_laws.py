"""Laws of policy, for random pods and random policies: shaping takes away, and never adds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.model.objects import JsonDict, copied
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.topics import TOPICS
from federate.policy.verdict import applied, applied_annotations, judge, refusals_of
from tests.support.askingpods import pods

LAW = settings(max_examples=60, deadline=None)
ALL_REFUSED = PolicyRules(outcomes={topic.key: Outcome.REFUSE for topic in TOPICS})


def policies(*outcomes: Outcome) -> st.SearchStrategy[PolicyRules]:
    drawn = st.fixed_dictionaries({t.key: st.sampled_from(outcomes) for t in TOPICS})
    return st.builds(
        PolicyRules,
        outcomes=drawn,
        capabilities=st.sampled_from([frozenset({"CHOWN"}), frozenset({"SYS_ADMIN"})]),
        devices=st.sampled_from([frozenset(), frozenset({"example.com/gpu"})]),
        toleration_keys=st.sampled_from([(), ("example.com/",)]),
    )


def shaped(pod: JsonDict, rules: PolicyRules) -> JsonDict:
    annotations = applied_annotations(pod["metadata"]["annotations"], rules)
    return {**pod, "metadata": {"annotations": annotations}, "spec": applied(pod["spec"], rules)}


def asked(pod: JsonDict, rules: PolicyRules = ALL_REFUSED) -> set[tuple[str, str, str]]:
    """All that a pod asks for, by topic."""
    return {(v.key, *v.spot) for v in refusals_of(pod, rules)}


@LAW
@given(pods(), policies(*Outcome))
def test_nothing_is_asked_for_that_was_not(pod: JsonDict, rules: PolicyRules) -> None:
    """What is shaped asks for no more than before."""
    strict = PolicyRules(outcomes=ALL_REFUSED.outcomes, capabilities=rules.capabilities)
    assert asked(shaped(pod, rules), strict) <= asked(pod, strict)


@LAW
@given(pods(), policies(Outcome.STRIP, Outcome.REFUSE))
def test_what_was_stripped_is_refused_nowhere(pod: JsonDict, rules: PolicyRules) -> None:
    """Shaped by a policy that strips, a pod passes the same policy when it refuses."""
    strips = PolicyRules(
        outcomes={t.key: Outcome.STRIP for t in TOPICS},
        capabilities=rules.capabilities,
        devices=rules.devices,
        toleration_keys=rules.toleration_keys,
    )
    left = shaped(pod, strips)
    assert refusals_of(left, rules) == ()
    assert refusals_of(pod, strips) == ()


@LAW
@given(pods(), policies(*Outcome))
def test_shaping_twice_is_shaping_once(pod: JsonDict, rules: PolicyRules) -> None:
    """A mirror of what is shaped already would be the same; and the hub pod stays as it was."""
    before = copied(pod)
    once = shaped(pod, rules)
    kept = copied(once)
    assert shaped(once, rules) == once == kept
    assert pod == before


@LAW
@given(pods(), policies(*Outcome))
def test_judging_twice_says_the_same(pod: JsonDict, rules: PolicyRules) -> None:
    """Messages do not change from look to look: each change would be a write."""
    assert judge(pod, rules) == judge(copied(pod), rules)
    assert not (judge(pod, rules).refused and judge(pod, rules).notes)

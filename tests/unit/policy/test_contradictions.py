"""Rules that cannot be kept together."""

from __future__ import annotations

from typing import Any

import pytest

from federate.policy.contradictions import contradictions_of


@pytest.mark.parametrize(
    ("process", "network", "fits"),
    [
        ("allow", "strip", False),
        ("allow", "allow", True),
        ("allow", "refuse", True),
        ("allow", None, True),
        ("strip", "strip", True),
        ("refuse", "strip", True),
        (None, "strip", True),
    ],
)
def test_a_process_of_the_node_is_in_its_network(process: Any, network: Any, fits: bool) -> None:
    """With one and without the other every such mirror would be invalid."""
    found = list(contradictions_of({"hostProcess": process, "hostNetwork": network}))
    assert (found == []) is fits


def test_two_keys_cannot_become_one() -> None:
    """A node selector has one value for a key."""
    assert list(contradictions_of({"nodeKeys": {"a": "x", "b": "y", "c": "x"}})) == [
        (("nodeKeys", "c"), "found x, which a has; expected another")
    ]


@pytest.mark.parametrize("junk", [{}, {"nodeKeys": None}, {"nodeKeys": ["a"]}, {"hostProcess": 3},
                                  {"nodeKeys": {"a": 1, "b": 1}}])  # fmt: skip
def test_what_is_wrong_in_other_ways_is_for_others_to_say(junk: dict[str, Any]) -> None:
    """A shape that is no policy has no contradictions."""
    assert list(contradictions_of(junk)) == []

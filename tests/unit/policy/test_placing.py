"""What of a pod's wishes about its node is asked in the target."""

from __future__ import annotations

from federate.model.objects import JsonDict, copied
from federate.policy.placing import left_node_keys, travelling_selector, travelling_term

KEYS = {"kubernetes.io/os": "kubernetes.io/os", "acme.com/pool": "cloud.com/nodepool"}
SPEC: JsonDict = {
    "nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": "edge"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "acme.com/pool", "operator": "In", "values": ["a"]},
                            {"key": "type", "operator": "In", "values": ["virtual-kubelet"]},
                        ],
                        "matchFields": [{"key": "metadata.name", "operator": "In"}],
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "zone"}]}}
            ],
        }
    },
}


def test_selectors_are_asked_by_the_targets_keys() -> None:
    """A key with a translation is translated, one of its own stays, others are left behind."""
    selector = {"acme.com/pool": "a", "kubernetes.io/os": "linux", "zone": "x"}
    assert travelling_selector(selector, KEYS) == {
        "cloud.com/nodepool": "a",
        "kubernetes.io/os": "linux",
    }
    assert travelling_selector(selector, {}) == {}


def test_terms_are_asked_by_the_targets_keys() -> None:
    """Operator and values stay; fields name nodes of the hub; a term with nothing left is empty."""
    affinity = SPEC["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    before = copied(term)
    assert travelling_term(term, KEYS) == {
        "matchExpressions": [{"key": "cloud.com/nodepool", "operator": "In", "values": ["a"]}]
    }
    assert term == before
    assert travelling_term(term, {}) == {}


def test_what_is_left_behind_is_named() -> None:
    """Once each, of selectors and of required and preferred affinity."""
    assert left_node_keys(SPEC, KEYS) == ("kubernetes.io/hostname", "type", "zone")
    assert left_node_keys({}, KEYS) == ()

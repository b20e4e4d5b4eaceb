"""What is kept of the hub's objects."""

from __future__ import annotations

from federate.companions.environment import Advertised, service_environment
from federate.model.marks import COMPANION_LABEL, FOLLOW_LABEL
from federate.services.facts import policy_facts, service_facts
from federate.services.following import is_followed
from federate.services.rules import FollowMode
from federate.services.selecting import policy_selects, service_selects

SERVICE = {
    "metadata": {
        "namespace": "default",
        "name": "web",
        "uid": "u",
        "resourceVersion": "1",
        "labels": {FOLLOW_LABEL: "true", "team": "x"},
        "annotations": {"long": "x" * 1000},
        "managedFields": [{}],
    },
    "spec": {
        "clusterIP": "10.96.0.7",
        "clusterIPs": ["10.96.0.7"],
        "selector": {"app": "web"},
        "ports": [{"port": 80}],
        "type": "ClusterIP",
    },
    "status": {"loadBalancer": {}},
}


def test_of_a_service_is_kept_what_anybody_asks_for() -> None:
    facts = service_facts(SERVICE)
    assert is_followed(facts, FollowMode.LABELLED)
    assert service_selects(facts, {"app": "web"})
    told = service_environment(
        [facts], namespace="default", has_links=True, advertised=Advertised(host="h", port=443)
    )
    assert told["WEB_SERVICE_HOST"] == "10.96.0.7"
    assert facts["metadata"]["labels"] == {FOLLOW_LABEL: "true"}
    assert "annotations" not in facts["metadata"]
    assert "status" not in facts


def test_what_federate_made_itself_stays_known_as_such() -> None:
    metadata = {"name": "web", "labels": {COMPANION_LABEL: "service"}}
    made = {**SERVICE, "metadata": metadata}
    assert not is_followed(service_facts(made), FollowMode.ALL)


def test_of_a_policy_is_kept_whom_it_selects() -> None:
    policy = {
        "metadata": {"namespace": "default", "name": "p", "uid": "u", "resourceVersion": "1"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{}]},
    }
    facts = policy_facts(policy)
    assert policy_selects(facts, {"app": "web"})
    assert not policy_selects(facts, {"app": "db"})
    assert set(facts["spec"]) == {"podSelector"}
    assert policy_facts({"metadata": {"name": "p"}})["spec"] == {}

"""How a virtual node stands, in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from federate.explain.facts import NodeRoadFacts, TargetSide, Unread
from federate.explain.noderoad import node_road_of
from tests.support.explaining import NOW, led, lines, node, web


def facts(**changes: Any) -> NodeRoadFacts:
    fields: dict[str, Any] = {
        "node": led(),
        "virtual_nodes": [node()],
        "target": TargetSide(identity="target-uid"),
        "pods": [web().with_requests(cpu="500m", memory="1Gi").build()],
    }
    return NodeRoadFacts(now=NOW, **{**fields, **changes})


def test_a_node_that_is_well() -> None:
    road = node_road_of(facts())
    assert (road.about, road.verdict, road.is_well) == ("node edge", "all is well", True)
    assert lines(road) == [
        "ok node: virtual node edge is Ready",
        "ok leader: host-1, heard of 2s ago",
        "ok target: edge answers",
        "ok room: 1 Pending; taken: cpu 500m of 8, memory 1Gi of 32Gi, pods 1 of 50",
    ]


def test_a_full_node_says_of_what() -> None:
    """Ended pods take nothing."""
    big = web().with_requests(cpu="8").build()
    road = node_road_of(facts(pods=[big, web().with_requests(cpu="4").succeeded().build()]))
    assert lines(road)[-1] == (
        "note room: 1 Pending, 1 Succeeded; taken: cpu 8 of 8, memory 0 of 32Gi, pods 1 of 50; "
        "full: cpu"
    )


def test_a_node_whose_target_refuses() -> None:
    refused = [
        {"type": kind, "status": "False", "reason": "TargetRefuses", "message": "401: expired"}
        for kind in ("Ready", "federate.dev/TargetReachable")
    ]
    ended = {
        "type": "federate.dev/CredentialsValid",
        "status": "False",
        "reason": "CredentialsExpired",
        "message": "the client certificate ended 2 h ago",
    }
    road = node_road_of(facts(node=led(node=node(*refused, ended))))
    assert lines(road)[0] == (
        "stop node: TargetRefuses: virtual node edge is NotReady: 401: expired"
    )
    assert lines(road)[2] == (
        "stop target: TargetRefuses: as federate last said: 401: expired; from here it does answer"
    )
    assert "stop credentials: CredentialsExpired: the client certificate ended 2 h ago" in lines(
        road
    )
    assert road.todo[-1] == ("renew the credentials of edge's kubeconfig; no restart is needed")


def test_a_node_that_fell_silent() -> None:
    unknown = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    road = node_road_of(facts(node=led(node=node(unknown), lease=None, holder="")))
    assert lines(road)[:2] == [
        "stop node: NodeStatusUnknown: virtual node edge is Ready unknown: Kubelet stopped posting "
        "node status.",
        "stop leader: no federate leads edge: nothing is started, ended or told",
    ]


def test_what_else_a_node_says_is_noted() -> None:
    cordoned = node(
        {
            "type": "Ready",
            "status": "True",
            "reason": "Uninstalled",
            "message": "anchor removed in edge, nothing is started in: hub-1-shop",
        },
        {
            "type": "federate.dev/KubeletServing",
            "status": "False",
            "reason": "KubeletPortTaken",
            "message": "port 10250 is taken",
        },
        spec={"unschedulable": True},
    )
    road = node_road_of(facts(node=led(node=cordoned)))
    assert lines(road)[0] == (
        "note node: Uninstalled: virtual node edge is Ready, cordoned: no new pod is bound there: "
        "anchor removed in edge, nothing is started in: hub-1-shop"
    )
    assert "note kubelet: KubeletPortTaken: port 10250 is taken" in lines(road)
    assert road.is_well


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (None, "the hub has no node edge; virtual nodes are: edge"),
        (
            {"metadata": {"name": "edge"}},
            "edge is a node of the hub, and none of federate's; virtual nodes are: edge",
        ),
    ],
)
def test_no_virtual_node(found: Any, verdict: str) -> None:
    road = node_road_of(facts(node=led(node=found)))
    assert road.verdict.startswith(verdict)
    assert not road.is_well


def test_a_node_seen_with_few_rights() -> None:
    """What is not known is not called well, nor wrong."""
    no = Unread(why="these credentials may not read it")
    side = TargetSide(trouble="no kubeconfig of edge is given", is_asked=False)
    road = node_road_of(facts(node=led(lease=no), pods=no, target=side))
    assert lines(road)[1:] == [
        "unknown leader: these credentials may not read it; the hub hears of the node, so some "
        "federate leads it",
        "unknown target: federate says that it answers; it was not looked at from here: no "
        "kubeconfig of edge is given",
        "unknown room: offers cpu 8, memory 32Gi, pods 50; these credentials may not read it",
    ]
    assert road.verdict == "nothing that can be seen with these credentials is wrong"


def test_a_node_that_may_not_be_read() -> None:
    """Then nobody can say that it is well."""
    no = Unread(why="these credentials may not read Node edge of hub")
    road = node_road_of(facts(node=led(node=no, lease=no)))
    assert road.verdict == (
        "nobody knows here: edge: these credentials may not read Node edge of hub"
    )
    assert not road.is_well


def test_a_lease_that_is_kept_elsewhere() -> None:
    """No lease where it was looked for does not mean that nobody leads."""
    road = node_road_of(facts(node=led(lease=None, holder="")))
    assert lines(road)[1] == (
        "unknown leader: there is no leader lease of edge where it was looked for; the hub hears "
        "of the node, so some federate leads it"
    )


def test_of_a_name_that_nobody_has_no_more_is_said() -> None:
    """A slip of the keyboard has no leader to be started."""
    road = node_road_of(facts(node=led(node=None, lease=None, holder="")))
    assert [station.id for station in road.stations] == ["node"]
    assert road.todo[0].startswith("is the name right?")

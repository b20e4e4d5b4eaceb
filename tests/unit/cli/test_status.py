"""`federate status`: what is read from the hub, and how it is drawn."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from rich.console import Console

from federate.cli.status import draw, how_hidden, how_left, node_row, read_hub, waiting_row
from federate.cli.view import HubView, NodeView, WaitingPod
from federate.errors import Forbidden, Unreachable
from federate.model.marks import LEAVING_ANNOTATION, LEFT_ANNOTATION
from federate.model.objects import JsonDict
from federate.model.resources import LEASES, NODES, PODS
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


def edge(**changes: object) -> NodeView:
    fields: dict[str, object] = {
        "name": "edge",
        "ready": "Ready",
        "target_reachable": "True",
        "reason": "",
        "message": "",
        "age_seconds": 300.0,
        "pods": {"Running": 3, "Pending": 1},
        "requested": {"cpu": "2", "memory": "1Gi"},
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "50"},
        "companions": 7,
        "leader": "host-1",
        "leader_silent_seconds": None,
    }
    return NodeView(**{**fields, **changes})  # type: ignore[arg-type]


def waiting(number: int) -> WaitingPod:
    return WaitingPod(
        node="edge",
        namespace="default",
        name=f"web-{number}",
        age_seconds=5,
        reason="QuotaExceeded",
        message="edge answered: [no] more",
    )


def drawn(view: HubView) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(draw(view))
    return captured.get()


@pytest.mark.parametrize(
    ("reason", "is_said"),
    [
        ("RangesOverlap", True),
        ("RangesUnknown", True),
        ("RangesApart", False),
        ("AddressesConfigured", False),
        ("RangesBeingRead", False),
        ("", False),
    ],
)
def test_hidden_addresses_are_told_where_nobody_asked_for_that(reason: str, is_said: bool) -> None:
    node = edge(addresses="hidden, since nobody tells", addresses_reason=reason)
    said = "edge: addresses of pods are hidden, since nobody tells"
    assert how_hidden(node) == (said if is_said else "")
    assert (said in drawn(HubView(nodes=(node,), waiting=()))) == is_said


def test_a_node_is_a_row() -> None:
    """A row says how full the node is and who leads it."""
    assert node_row(edge()) == (
        "edge",
        "Ready",
        "reachable",
        "5m",
        "3 running, 1 pending / 50",
        "2 / 8",
        "1Gi / 32Gi",
        "7",
        "host-1",
    )


def test_a_word_of_a_node_that_is_well_stands_below() -> None:
    """It says nothing against the target; its reason is what the documentation knows it by."""
    left = edge(reason="CompanionsLeft", message="3 are left")
    assert node_row(left)[2] == "reachable"
    assert "edge: CompanionsLeft: 3 are left" in drawn(HubView(nodes=(left,), waiting=()))


def test_short_words_stay_whole_on_a_small_terminal() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(draw(HubView(nodes=(edge(leader="vm (pid 30521)"),), waiting=())))
    shown = captured.get()
    assert "reachable " in shown and "BROUGHT" in shown
    assert "".join(shown.split()).count("30521") == 1


def test_what_is_wrong_stands_in_the_row() -> None:
    """Reason, silence of the leader and unknown sizes are told, not left out."""
    bad = edge(
        target_reachable="False",
        reason="Timeout",
        message="no answer",
        pods={},
        allocatable={},
        leader_silent_seconds=90.0,
    )
    row = node_row(bad)
    assert row[2] == "unreachable (Timeout)"
    assert "edge: no answer" in drawn(HubView(nodes=(bad,), waiting=()))
    assert node_row(edge(target_reachable="False", reason="TargetChanged"))[2] == (
        "another cluster (TargetChanged)"
    )
    assert row[4:] == ("0 / ?", "2 / ?", "1Gi / ?", "7", "none (host-1 silent for 90s)")
    assert node_row(edge(leader=""))[-1] == "none"
    assert node_row(edge(target_reachable="Unknown"))[2] == "unknown"


def test_a_pod_without_a_reason_says_so() -> None:
    """An empty cell would look like a mistake."""
    bare = WaitingPod(node="e", namespace="n", name="p", age_seconds=None, reason="", message="")
    assert waiting_row(bare) == ("n/p", "e", "?", "no reason given yet")


def test_at_most_twenty_pods_are_drawn() -> None:
    """The rest is counted; messages of servers are shown as they are."""
    text = drawn(HubView(nodes=(edge(),), waiting=tuple(waiting(n) for n in range(23))))
    assert text.count("QuotaExceeded: edge answered: [no] more") == 20
    assert "and 3 more that wait" in text
    assert "more that wait" not in drawn(HubView(nodes=(edge(),), waiting=(waiting(1),)))


def test_an_empty_hub_says_how_to_begin() -> None:
    """Without a virtual node the next step is shown instead of an empty table."""
    assert "federate run --hub" in drawn(HubView(nodes=(), waiting=()))


def virtual_node(name: str, **labels: str) -> JsonDict:
    annotations = {"federate.dev/hub": "uid"}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


@virtual_time
async def test_the_hub_is_read_by_node() -> None:
    """Nodes come with the pods bound to them and the holder of their lease, and nothing else."""
    hub = FakeCluster("hub", virtual_loop().time)
    hub.add(NODES, virtual_node("edge", type="virtual-kubelet"))
    hub.add(NODES, {"metadata": {"name": "foreign", "labels": {"type": "virtual-kubelet"}}})
    hub.add(PODS, pod("mine").bound_to("edge").build())
    hub.add(PODS, pod("other").bound_to("foreign").build())
    key = {"namespace": "kube-system", "name": "federate-edge"}
    hub.add(LEASES, {"metadata": key, "spec": {"holderIdentity": "host-1"}})
    view = await read_hub(hub.client(), now=NOW)
    assert [(n.name, n.leader) for n in view.nodes] == [("edge", "host-1")]
    assert [w.name for w in view.waiting] == ["mine"]
    assert hub.writes() == []


@virtual_time
async def test_a_node_without_a_lease_is_shown() -> None:
    """A missing lease leaves the leader open."""
    hub = FakeCluster("hub", virtual_loop().time)
    hub.add(NODES, virtual_node("edge", type="virtual-kubelet"))
    view = await read_hub(hub.client(), now=NOW)
    assert [(n.name, n.leader) for n in view.nodes] == [("edge", "")]


@virtual_time
async def test_a_hub_that_is_down_is_an_error() -> None:
    """Nothing is shown for what could not be read."""
    hub = FakeCluster("hub", virtual_loop().time)
    hub.go_down()
    with pytest.raises(Unreachable):
        await read_hub(hub.client(), now=NOW)


def marked_lease(**holder: str) -> JsonDict:
    metadata = {
        "name": "federate-edge",
        "namespace": "kube-system",
        "annotations": {LEFT_ANNOTATION: "2026-01-01T00:30:00Z"},
    }
    spec = {"leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:59:59.000000Z", **holder}
    return {"metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("is_marked", "holder", "word", "told"),
    [
        (False, "", "Ready,leaving", "is being left since 2026-01-01T00:29:00Z"),
        (True, "", "Ready,retired", "federate leave edge again goes on"),
        (True, "laptop", "Ready,retired", "laptop is at it"),
    ],
)
@virtual_time
async def test_a_virtual_node_that_is_left_says_how_far(
    is_marked: bool, holder: str, word: str, told: str
) -> None:
    """A word beside READY, and below the table since when and what to do."""
    hub = FakeCluster("hub", virtual_loop().time)
    hub.add(NODES, leaving_node())
    if is_marked:
        hub.add(LEASES, marked_lease(**({"holderIdentity": holder} if holder else {})))
    view = await read_hub(hub.client(), now=NOW)
    assert node_row(view.nodes[0])[1] == word
    assert told in " ".join(drawn(view).split())
    assert view.as_json()["nodes"][0]["leaving_since"] == "2026-01-01T00:29:00Z"


def leaving_node() -> JsonDict:
    annotations = {"federate.dev/hub": "h", LEAVING_ANNOTATION: "2026-01-01T00:29:00Z"}
    return {
        "metadata": {
            "name": "edge",
            "annotations": annotations,
            "labels": {"type": "virtual-kubelet"},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@virtual_time
async def test_a_lease_that_was_left_behind_is_told_without_its_node() -> None:
    """A command was killed right before the end; who may not list leases does not see it."""
    hub = FakeCluster("hub", virtual_loop().time)
    hub.add(LEASES, marked_lease())
    hub.add(LEASES, {"metadata": {"name": "federate-idle", "namespace": "kube-system"}})
    view = await read_hub(hub.client(), now=NOW)
    assert view.left == ("edge",)
    told = " ".join(drawn(view).split())
    assert "edge has no Node any more, and its leader lease is marked as left:" in told
    assert "federate leave edge again removes what is still there of it" in told

    def refuse(call: Call) -> Fault | None:
        is_listed = (call.verb, call.resource) == ("list", LEASES)
        return Refuse(Forbidden("no", status=403)) if is_listed else None

    hub.faults = refuse
    hub.add(NODES, leaving_node())
    view = await read_hub(hub.client(), now=NOW)
    assert view.nodes[0].left_since == "2026-01-01T00:30:00Z"
    assert view.left == ()


def test_a_node_that_nobody_leaves_says_nothing_of_it() -> None:
    """No line more than before."""
    assert how_left(edge()) == ""

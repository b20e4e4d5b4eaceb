"""What a target has left, followed live: nodes, pods of others, what admission added (C14)."""

from __future__ import annotations

from typing import Any

from federate.cluster.store import Change, Store
from federate.model.objects import JsonDict, ObjectKey, key_of
from federate.node.offer import AggregateOffer, StaticOffer, lean_foreign_pod, lean_node
from tests.support.builders import PodBuilder, pod
from tests.support.views import hub_pod, mirror


def target_node(
    name: str = "t-1", *, labels: dict[str, str] | None = None, **spec: Any
) -> JsonDict:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels or {}},
        "spec": {**spec, "podCIDR": "10.0.0.0/24"},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "x"},
                {"type": "DiskPressure", "status": "False"},
            ],
            "images": [{"names": ["a"]}],
        },
    }


class Bench:
    def __init__(self) -> None:
        self.nodes, self.pods = Store(transform=lean_node), Store(transform=lean_foreign_pod)
        self.hub_pods = Store()
        self.woken = 0
        self.synced = True
        self.offer = AggregateOffer(
            nodes=self.nodes,
            foreign_pods=self.pods,
            hub_pods=self.hub_pods,
            is_synced=lambda: self.synced,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    def node(self, *nodes: JsonDict) -> None:
        """Let the target have exactly these nodes."""
        for number, obj in enumerate(nodes):
            obj["metadata"]["resourceVersion"] = f"{self.woken}-{number}"
        for change in self.nodes.replace(nodes):
            self.offer.on_node(change)

    def foreign(self, *builders: PodBuilder) -> None:
        """Let the target have exactly these pods of others."""
        built = [b.build() for b in builders]
        for number, obj in enumerate(built):
            obj["metadata"]["resourceVersion"] = f"{self.woken}-{number}"
        for change in self.pods.replace(built):
            self.offer.on_foreign_pod(change)

    def mirror(self, new: JsonDict | None, old: JsonDict | None = None) -> None:
        key = key_of(new or old or {})
        self.offer.on_mirror(Change(key=key, old=old, new=new))

    def cpu(self) -> str:
        capacity = self.offer.capacity()
        assert capacity is not None
        return capacity["cpu"]


def on(node: str, cpu: str, name: str = "db") -> PodBuilder:
    return pod(name).with_requests(cpu=cpu).bound_to(node)


def test_a_static_offer_looks_at_nothing() -> None:
    """A fixed capacity, and no labels of nodes nobody listed."""
    offer = StaticOffer({"cpu": "2000m"})
    assert (offer.capacity(), offer.common_labels()) == ({"cpu": "2"}, {})


def test_nothing_is_offered_before_all_is_known() -> None:
    """A target whose pods are not listed yet has no size."""
    b = Bench()
    b.synced = False
    b.node(target_node())
    assert b.offer.capacity() is None


def test_c14_the_offer_follows_nodes() -> None:
    """Added, cordoned, gone: at once."""
    b = Bench()
    b.node(target_node("t-1"), target_node("t-2"))
    assert b.cpu() == "8"
    b.node(target_node("t-1"), target_node("t-2", unschedulable=True))
    assert b.cpu() == "4"
    woken = b.woken
    b.node(target_node("t-1"))
    assert b.cpu() == "4"
    assert b.woken >= woken


def test_c14_the_offer_follows_the_pods_of_others() -> None:
    """What they request is not ours; what has ended takes nothing."""
    b = Bench()
    b.node(target_node())
    b.foreign(on("t-1", "1"), on("t-1", "500m", "cache"))
    assert b.cpu() == "2500m"
    b.foreign(on("t-1", "1").succeeded(), on("t-1", "500m", "cache"))
    assert b.cpu() == "3500m"
    b.foreign()
    assert b.cpu() == "4"


def test_c14_pods_count_only_where_their_node_does() -> None:
    """A cordoned node takes its pods with it, and brings them back."""
    b = Bench()
    b.node(target_node("t-1"), target_node("t-2"))
    b.foreign(on("t-2", "1"), on("t-9", "1", "ghost"))
    assert b.cpu() == "7"
    b.node(target_node("t-1"), target_node("t-2", unschedulable=True))
    assert b.cpu() == "4"
    b.node(target_node("t-1"), target_node("t-2"))
    assert b.cpu() == "7"


def test_c14_a_pod_that_waits_for_a_node_is_counted() -> None:
    """It will take what it asks for somewhere."""
    b = Bench()
    b.node(target_node())
    b.foreign(pod("db").with_requests(cpu="1"))
    assert b.cpu() == "3"


def test_c14_what_admission_added_to_a_mirror_lowers_the_offer() -> None:
    """A mesh's sidecar takes room that the hub does not know of."""
    b = Bench()
    b.node(target_node())
    b.hub_pods.replace([hub_pod().with_requests(cpu="1").build()])
    plain = mirror().with_requests(cpu="1").build()
    b.mirror(plain)
    assert b.cpu() == "4"
    sidecar = {"requests": {"cpu": "500m"}}
    meshed = mirror().with_requests(cpu="1").with_container("mesh", resources=sidecar).build()
    b.mirror(meshed)
    assert b.cpu() == "3500m"
    b.mirror(None, old=meshed)
    assert b.cpu() == "4"


def test_c14_a_mirror_of_an_earlier_pod_counts_whole() -> None:
    """The hub counts the successor, so the predecessor's room is taken beside it."""
    b = Bench()
    b.node(target_node())
    b.hub_pods.replace([hub_pod().with_requests(cpu="1").build()])
    b.mirror(mirror(of_uid="uid-of-yesterday").with_requests(cpu="1").build())
    assert b.cpu() == "3"
    b.mirror(pod("unmarked").with_requests(cpu="1").build())
    assert b.cpu() == "2"


def test_c14_the_order_of_the_listings_does_not_matter() -> None:
    """A mirror that was listed before its hub pod lowers the offer by nothing afterwards."""
    b = Bench()
    b.node(target_node())
    b.mirror(mirror().with_requests(cpu="1").build())
    assert b.cpu() == "3"
    follow = getattr(b.offer, "on_hub_pod", None)
    assert follow is not None, "nobody tells the offer about hub pods"
    for change in b.hub_pods.replace([hub_pod().with_requests(cpu="1").build()]):
        follow(change)
    assert b.cpu() == "4"


def test_only_changes_wake_the_heartbeat() -> None:
    """A heartbeat of a target node, or a pod's new status, is no news."""
    b = Bench()
    b.node(target_node())
    b.foreign(on("t-1", "1"))
    woken = b.woken
    lean = b.nodes.get(ObjectKey("", "t-1"))
    b.offer.on_node(Change(key=ObjectKey("", "t-1"), old=lean, new=lean))
    [foreign] = b.pods.values()
    b.offer.on_foreign_pod(Change(key=key_of(foreign), old=foreign, new=foreign))
    assert b.woken == woken


def test_labels_that_all_nodes_share_are_news() -> None:
    """A label that changed wakes the heartbeat though no amount did."""
    b = Bench()
    b.node(target_node(labels={"zone": "a"}))
    assert b.offer.common_labels() == {"zone": "a"}
    woken = b.woken
    b.node(target_node(labels={"zone": "b"}))
    assert b.woken == woken + 1
    assert b.offer.common_labels() == {"zone": "b"}


def test_little_is_kept_of_what_there_is_much_of() -> None:
    """Of a target node and a stranger's pod only what counts stays in memory."""
    node = lean_node(target_node(unschedulable=True))
    assert set(node) == {"metadata", "spec", "status"}
    assert node["spec"] == {"unschedulable": True}
    assert node["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    built = on("t-1", "1").with_spec(overhead={"cpu": "1m"}).running().build()
    lean = lean_foreign_pod(built)
    assert lean["spec"] == {
        "nodeName": "t-1",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "overhead": {"cpu": "1m"},
    }
    assert lean["status"] == {"phase": "Running"}

"""What a target has left, followed live: nodes, pods of others, what admission added (C14)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from federate.cluster.store import Change, Store
from federate.mirror.ports import ORIGIN_INDEX, origin_index
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.node.capacity import CapacityMode, CapacityRules
from federate.node.offer import (
    FOREIGN_INDEXERS,
    AggregateOffer,
    MirrorSums,
    QuotaOffer,
    StaticOffer,
    lean_foreign_pod,
    lean_node,
)
from federate.node.quota import SETTLE_SECONDS
from federate.node.render import ASSUMED_LABELS
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


class Mirrors:
    """Hub pods and mirrors as their stores have them, and the sums over them."""

    def __init__(self, *, own_in: str = "") -> None:
        self.hub_pods = Store()
        self.standing = Store(indexers={ORIGIN_INDEX: origin_index})
        self.woken = 0
        self.sums = MirrorSums(
            hub_pods=self.hub_pods,
            mirrors_of=lambda key: self.standing.by_index(ORIGIN_INDEX, str(key)),
            wake=self.wake,
            own_in=own_in,
        )

    def wake(self) -> None:
        self.woken += 1

    def hub(self, *pods: JsonDict) -> None:
        """Let the virtual node have exactly these pods."""
        for change in self.hub_pods.replace(_anew(pods)):
            self.sums.on_hub_pod(change)

    def mirrors(self, *pods: JsonDict) -> None:
        """Let exactly these mirrors stand."""
        for change in self.standing.replace(_anew(pods)):
            self.sums.on_mirror(change)


_versions = itertools.count(1)


def _anew(pods: Sequence[JsonDict]) -> Sequence[JsonDict]:
    for each in pods:
        each["metadata"]["resourceVersion"] = str(next(_versions))
    return pods


class Bench(Mirrors):
    def __init__(self, rules: CapacityRules | None = None) -> None:
        super().__init__()
        self.nodes = Store(transform=lean_node)
        self.pods = Store(transform=lean_foreign_pod, indexers=FOREIGN_INDEXERS)
        self.synced = True
        self.offer = AggregateOffer(
            nodes=self.nodes,
            foreign_pods=self.pods,
            sums=self.sums,
            is_synced=lambda: self.synced,
            wake=self.wake,
            rules=rules or CapacityRules(),
        )

    def node(self, *nodes: JsonDict) -> None:
        """Let the target have exactly these nodes."""
        for change in self.nodes.replace(_anew(nodes)):
            self.offer.on_node(change)

    def foreign(self, *builders: PodBuilder) -> None:
        """Let the target have exactly these pods of others."""
        for change in self.pods.replace(_anew([b.build() for b in builders])):
            self.offer.on_foreign_pod(change)

    def cpu(self) -> str:
        capacity = self.offer.capacity()
        assert capacity is not None
        return capacity["cpu"]


def on(node: str, cpu: str, name: str = "db") -> PodBuilder:
    return pod(name).with_requests(cpu=cpu).bound_to(node)


def test_a_static_offer_looks_at_nothing() -> None:
    """A fixed capacity, and no labels of nodes nobody listed."""
    offer = StaticOffer({"cpu": "2000m"})
    assert (offer.capacity(), offer.common_labels()) == ({"cpu": "2"}, ASSUMED_LABELS)
    assert offer.trouble() == ""


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
    b.hub(hub_pod().with_requests(cpu="1").build())
    b.mirrors(mirror().with_requests(cpu="1").build())
    assert b.cpu() == "4"
    sidecar = {"requests": {"cpu": "500m"}}
    meshed = mirror().with_requests(cpu="1").with_container("mesh", resources=sidecar)
    b.mirrors()
    b.mirrors(meshed.build())
    assert b.cpu() == "3500m"
    b.mirrors(meshed.running().build())
    assert b.cpu() == "3500m"
    b.mirrors(meshed.succeeded().build())
    assert b.cpu() == "4"
    b.mirrors()
    assert b.cpu() == "4"


def test_c14_a_mirror_of_an_earlier_pod_counts_whole() -> None:
    """The hub counts the successor, so the predecessor's room is taken beside it."""
    b = Bench()
    b.node(target_node())
    b.hub(hub_pod().with_requests(cpu="1").build())
    earlier = mirror(of_uid="uid-of-yesterday").with_requests(cpu="1").build()
    b.mirrors(earlier)
    assert b.cpu() == "3"
    b.mirrors(earlier, pod("unmarked").with_requests(cpu="1").build())
    assert b.cpu() == "2"


def test_c14_the_order_of_the_listings_does_not_matter() -> None:
    """A mirror that was listed before its hub pod lowers the offer by nothing afterwards."""
    b = Bench()
    b.node(target_node())
    b.mirrors(mirror().with_requests(cpu="1").build())
    assert b.cpu() == "3"
    b.hub(hub_pod().with_requests(cpu="1").build())
    assert b.cpu() == "4"


def test_c14_a_mirror_that_outlives_its_hub_pod_counts_whole() -> None:
    """The hub has given its room away; it is still taken."""
    b = Bench()
    b.node(target_node())
    b.hub(hub_pod().with_requests(cpu="1").build())
    b.mirrors(mirror().with_requests(cpu="1").build())
    b.hub()
    assert b.cpu() == "3"
    b.mirrors()
    assert b.cpu() == "4"


def test_c14_a_hub_pod_that_shrank_before_its_mirror_leaves_the_rest_taken() -> None:
    """A resize that the target refuses, or has not done yet, is room that is not there."""
    b = Bench()
    b.node(target_node())
    b.hub(hub_pod().with_requests(cpu="2").build())
    b.mirrors(mirror().with_requests(cpu="2").build())
    shrunk = hub_pod().with_requests(cpu="1").build()
    shrunk["metadata"]["generation"] = 2
    b.hub(shrunk)
    assert b.cpu() == "3"
    follows = mirror().with_requests(cpu="1").build()
    follows["metadata"]["generation"] = 2
    b.mirrors(follows)
    assert b.cpu() == "4"


def test_events_that_bring_a_status_are_not_weighed() -> None:
    """Of the many events of a pod's life only those count that change what it takes."""
    b = Bench()
    b.node(target_node())
    b.hub(hub_pod().with_requests(cpu="1").build())
    b.mirrors(mirror().with_requests(cpu="1").build())
    weighed: list[ObjectKey] = []
    b.sums._hub_pods = CountingStore(weighed)
    b.mirrors(mirror().with_requests(cpu="1").running().build())
    b.hub(hub_pod().with_requests(cpu="1").running().build())
    assert weighed == []
    later = mirror().with_requests(cpu="1").running().build()
    later["metadata"]["generation"] = 2
    b.mirrors(later)
    assert len(weighed) == 1


class CountingStore(Store):
    def __init__(self, asked: list[ObjectKey]) -> None:
        super().__init__()
        self._asked = asked

    def get(self, key: ObjectKey) -> JsonObject | None:
        self._asked.append(key)
        return None


def test_c14_share_cap_and_growth_apply_to_what_is_left() -> None:
    """The rules reach the sums that are followed."""
    b = Bench(CapacityRules(share=Decimal("0.5"), cap={"memory": "1Gi"}, at_least={"gpu": "4"}))
    b.node(target_node())
    b.foreign(on("t-1", "1"))
    capacity = b.offer.capacity()
    assert capacity is not None
    assert (capacity["cpu"], capacity["memory"], capacity["gpu"]) == ("1500m", "1Gi", "2")
    assert capacity["pods"] == "54"


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
    assert b.offer.common_labels() == ASSUMED_LABELS
    b.node(target_node(labels={"zone": "a"}))
    assert b.offer.common_labels() == {"zone": "a"}
    woken = b.woken
    b.node(target_node(labels={"zone": "b"}))
    assert b.woken == woken + 1
    assert b.offer.common_labels() == {"zone": "b"}


def test_c14_only_nodes_that_count_say_what_the_node_is() -> None:
    """A cordoned node of another architecture takes no mirror; restarting nodes take no label."""
    b = Bench()
    amd64, arm64 = {"kubernetes.io/arch": "amd64"}, {"kubernetes.io/arch": "arm64"}
    b.node(target_node("t-1", labels=amd64), target_node("t-2", labels=arm64))
    assert b.offer.common_labels() == {}
    b.node(target_node("t-1", labels=amd64, unschedulable=True), target_node("t-2", labels=arm64))
    assert b.offer.common_labels() == arm64
    b.node(target_node("t-2", labels=arm64, unschedulable=True))
    assert b.offer.common_labels() == arm64


def test_c3_a_virtual_node_of_the_target_tells_nothing_of_it() -> None:
    """Tainted or not, and also where no other node counts."""
    b = Bench()
    virtual = {"type": "virtual-kubelet", "kubernetes.io/arch": "arm64", "zone": "far"}
    b.node(target_node("t-1", labels=virtual))
    assert b.offer.common_labels() == ASSUMED_LABELS
    b.node(target_node("t-2", labels={"zone": "near"}))
    assert b.offer.common_labels() == {"zone": "near"}
    assert (b.offer.capacity() or {})["cpu"] == "4"


def test_little_is_kept_of_what_there_is_much_of() -> None:
    """Of a target node and a stranger's pod only what counts stays in memory."""
    node = lean_node(target_node(unschedulable=True))
    assert set(node) == {"metadata", "spec", "status"}
    assert node["spec"] == {"unschedulable": True}
    assert node["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    built = on("t-1", "1").with_spec(overhead={"cpu": "1m"}).running()
    lean, same = (lean_foreign_pod(built.build()) for _ in range(2))
    assert lean["spec"] == {"nodeName": "t-1"}
    assert lean["takes"] == {"cpu": Decimal("1.001"), "pods": Decimal(1)}
    assert lean["takes"] is same["takes"]
    assert lean_foreign_pod(built.succeeded().build())["takes"] is None


def test_c14_what_others_hold_while_they_are_resized_is_taken() -> None:
    """The scheduler there counts the larger of what a pod has and what it asks for."""
    resized = on("t-1", "1").running().build()
    resized["status"]["containerStatuses"][0]["resources"] = {"requests": {"cpu": "3"}}
    assert lean_foreign_pod(resized)["takes"]["cpu"] == Decimal(3)


# -- quota -----------------------------------------------------------------------------------------

QUOTA = ObjectKey("team", "compute")


def quota(used: dict[str, str], hard: dict[str, str] | None = None) -> JsonDict:
    granted = hard or {"requests.cpu": "8", "memory": "8Gi", "pods": "20"}
    return {
        "metadata": {"namespace": "team", "name": "compute", "uid": "q"},
        "spec": {"hard": granted},
        "status": {"hard": granted, "used": {**dict.fromkeys(granted, "0"), **used}},
    }


class QuotaBench(Mirrors):
    def __init__(self) -> None:
        super().__init__(own_in="team")
        self.quotas = Store()
        self.synced = True
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.offer = QuotaOffer(
            quotas=self.quotas,
            sums=self.sums,
            rules=CapacityRules(mode=CapacityMode.QUOTA, quota=QUOTA),
            wanted=QUOTA,
            is_synced=lambda: self.synced,
            wake=self.wake,
            clock=lambda: self.now,
            call_later=lambda seconds, call: self.due.append((seconds, call)),
        )

    def quota(self, *quotas: JsonDict) -> None:
        """Let the namespace have exactly these quotas, for a while."""
        self.count(*quotas)
        self.offer.capacity()
        self.now += SETTLE_SECONDS

    def count(self, *quotas: JsonDict) -> None:
        """Let the namespace have exactly these quotas from now on."""
        for change in self.quotas.replace(_anew(quotas)):
            self.offer.on_quota(change)

    def cpu(self) -> str:
        capacity = self.offer.capacity()
        assert capacity is not None
        return capacity["cpu"]


def in_team(builder: PodBuilder) -> JsonDict:
    built = builder.build()
    built["metadata"]["namespace"] = "team"
    return built


def test_c14_nothing_is_offered_before_the_quota_is_known() -> None:
    """An empty store may be one that was not filled yet."""
    b = QuotaBench()
    b.synced = False
    assert (b.offer.capacity(), b.offer.trouble()) == (None, "")
    assert b.offer.common_labels() == ASSUMED_LABELS


def test_c14_a_quota_is_followed() -> None:
    """What it grants, less what others use, and each change wakes the heartbeat."""
    b = QuotaBench()
    b.quota(quota({"requests.cpu": "1"}))
    woken = b.woken
    assert b.cpu() == "7"
    b.quota(quota({"requests.cpu": "3"}))
    assert (b.cpu(), b.woken) == ("5", woken + 1)
    b.quota()
    assert b.cpu() == "0"
    assert "no ResourceQuota team/compute" in b.offer.trouble()


def test_c14_our_own_mirrors_use_of_a_quota_is_not_taken_twice() -> None:
    """The hub's scheduler counts their hub pods; mirrors elsewhere use nothing of it."""
    b = QuotaBench()
    b.hub(hub_pod().with_requests(cpu="2").build())
    b.mirrors(in_team(mirror().with_requests(cpu="2")), mirror("x").with_requests(cpu="1").build())
    b.quota(quota({"requests.cpu": "3", "pods": "2"}))
    assert b.cpu() == "7"
    assert (b.offer.capacity() or {})["pods"] == "19"
    b.mirrors(in_team(mirror().with_requests(cpu="2").succeeded()))
    b.quota(quota({"requests.cpu": "1", "pods": "1"}))
    assert b.cpu() == "7"


def test_c14_what_a_quota_leaves_sinks_only_if_it_stays_down() -> None:
    """The target counts our mirror before we hear of it: that is no change of the node's size."""
    b = QuotaBench()
    b.quota(quota({}))
    assert b.cpu() == "8"
    b.count(quota({"requests.cpu": "2", "pods": "1"}))
    assert (b.cpu(), b.due) == ("8", [(1.1 * SETTLE_SECONDS, b.wake)])
    b.hub(hub_pod().with_requests(cpu="2").build())
    b.mirrors(in_team(mirror().with_requests(cpu="2")))
    b.now += SETTLE_SECONDS
    assert b.cpu() == "8"
    b.count(quota({"requests.cpu": "5", "pods": "2"}))
    assert (b.cpu(), len(b.due)) == ("8", 2)
    b.now += SETTLE_SECONDS
    assert (b.cpu(), len(b.due)) == ("5", 2)


def test_c14_a_default_of_the_targets_lowers_what_a_quota_leaves() -> None:
    """A LimitRange there gives a request that the hub pod does not have."""
    b = QuotaBench()
    b.hub(hub_pod().build())
    b.mirrors(in_team(mirror().with_requests(cpu="1")))
    b.quota(quota({"requests.cpu": "1", "pods": "1"}))
    assert b.cpu() == "7"

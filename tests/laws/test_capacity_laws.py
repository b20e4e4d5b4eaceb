"""However a target changes, the virtual node is as large as a fresh look at it says (C14).

The sums are kept running, so one history of events is held against a count of what stands at its
end; and share, cap and quota keep what an administrator expects of them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from federate.cluster.port import WatchEvent
from federate.cluster.store import Change, Store
from federate.mirror.ports import ORIGIN_INDEX, origin_index
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of, metadata_of, uid_of
from federate.model.pods import is_terminal, node_name_of
from federate.model.quantities import Amounts, add, parse_amounts, pod_requests, subtract
from federate.node.capacity import CapacityMode, CapacityRules, aggregate_offer, is_offering
from federate.node.offer import (
    FOREIGN_INDEXERS,
    AggregateOffer,
    MirrorSums,
    lean_foreign_pod,
    lean_node,
)
from federate.node.quota import offer_by_quota
from tests.support.builders import pod
from tests.support.views import hub_pod, mirror

LAW = settings(max_examples=60, deadline=None)

NODES = ("t-1", "t-2", "t-3")
NAMES = ("a", "b", "c")
HOME = "team"
CPU = st.sampled_from(["100m", "1", "2"])
GENERATIONS = st.booleans()

_versions = itertools.count(1)


class Histories(RuleBasedStateMachine):
    """Nodes, pods of others, hub pods and mirrors come, change and go in any order."""

    @initialize(with_generations=GENERATIONS)
    def begin(self, with_generations: bool) -> None:
        self.with_generations = with_generations
        self.nodes = Store(transform=lean_node)
        self.foreign = Store(transform=lean_foreign_pod, indexers=FOREIGN_INDEXERS)
        self.hub_pods = Store()
        self.mirrors = Store(indexers={ORIGIN_INDEX: origin_index})
        self.plain: dict[ObjectKey, JsonDict] = {}
        """The pods of others as they are, and not as they are kept."""
        self.shown: object = None
        self.woken = True
        self.all, self.home = (
            MirrorSums(
                hub_pods=self.hub_pods,
                mirrors_of=lambda key: self.mirrors.by_index(ORIGIN_INDEX, str(key)),
                wake=self.wake,
                own_in=own_in,
            )
            for own_in in ("", HOME)
        )
        self.offer = AggregateOffer(
            nodes=self.nodes,
            foreign_pods=self.foreign,
            sums=self.all,
            is_synced=lambda: True,
            wake=self.wake,
        )

    def wake(self) -> None:
        self.woken = True

    def put(self, store: Store, obj: JsonDict) -> Change:
        """Add or change an object; its generation moves as a server's does."""
        known = store.get(key_of(obj))
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(next(_versions))
        if self.with_generations:
            metadata["generation"] = next(_versions)
        else:
            metadata.pop("generation", None)
        kind = "ADDED" if known is None else "MODIFIED"
        change = store.apply(WatchEvent(type=kind, object=copy.deepcopy(obj)))
        assert change is not None
        return change

    def retell(self, store: Store, key: ObjectKey, status: JsonObject) -> Change | None:
        """Let an object have another status, and the generation it had."""
        known = store.get(key)
        if known is None:
            return None
        metadata = {**metadata_of(known), "resourceVersion": str(next(_versions))}
        obj = {**known, "metadata": metadata, "status": {**known["status"], **status}}
        return store.apply(WatchEvent(type="MODIFIED", object=copy.deepcopy(obj)))

    def remove(self, store: Store, key: ObjectKey) -> Change | None:
        known = store.get(key)
        if known is None:
            return None
        return store.apply(WatchEvent(type="DELETED", object=dict(known)))

    def tell_mirror(self, change: Change | None) -> None:
        if change is not None:
            self.all.on_mirror(change)
            self.home.on_mirror(change)

    def tell_hub_pod(self, change: Change | None) -> None:
        if change is not None:
            self.all.on_hub_pod(change)
            self.home.on_hub_pod(change)

    @rule(name=st.sampled_from(NODES), cpu=CPU, cordoned=st.booleans(), zone=st.sampled_from("xy"))
    def node_is(self, name: str, cpu: str, cordoned: bool, zone: str) -> None:
        node = {
            "metadata": {"name": name, "uid": name, "labels": {"zone": zone}},
            "spec": {"unschedulable": cordoned},
            "status": {
                "allocatable": {"cpu": cpu, "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.offer.on_node(self.put(self.nodes, node))

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        change = self.remove(self.nodes, ObjectKey("", name))
        if change is not None:
            self.offer.on_node(change)

    @rule(name=st.sampled_from(NAMES), node=st.sampled_from(["", *NODES]), cpu=CPU)
    def foreign_is(self, name: str, node: str, cpu: str) -> None:
        body = pod(name).with_requests(cpu=cpu)
        built = (body.bound_to(node) if node else body).build()
        self.plain[key_of(built)] = copy.deepcopy(built)
        self.offer.on_foreign_pod(self.put(self.foreign, built))

    @rule(name=st.sampled_from(NAMES))
    def foreign_goes(self, name: str) -> None:
        self.plain.pop(ObjectKey("default", name), None)
        change = self.remove(self.foreign, ObjectKey("default", name))
        if change is not None:
            self.offer.on_foreign_pod(change)

    @rule(name=st.sampled_from(NAMES), cpu=CPU, uid=st.sampled_from(["1", "2"]))
    def hub_pod_is(self, name: str, cpu: str, uid: str) -> None:
        body = hub_pod(name).with_requests(cpu=cpu).with_uid(f"uid-{name}-{uid}").build()
        self.tell_hub_pod(self.put(self.hub_pods, body))

    @rule(name=st.sampled_from(NAMES))
    def hub_pod_goes(self, name: str) -> None:
        self.tell_hub_pod(self.remove(self.hub_pods, ObjectKey("default", name)))

    @rule(
        name=st.sampled_from(NAMES),
        cpu=CPU,
        uid=st.sampled_from(["1", "2"]),
        sidecar=st.booleans(),
        namespace=st.sampled_from([HOME, "elsewhere"]),
    )
    def mirror_is(self, name: str, cpu: str, uid: str, sidecar: bool, namespace: str) -> None:
        body = mirror(name, of_uid=f"uid-{name}-{uid}").with_requests(cpu=cpu)
        if sidecar:
            body = body.with_container("mesh", resources={"requests": {"cpu": "50m"}})
        built = body.build()
        built["metadata"] |= {"namespace": namespace, "uid": f"mirror-{name}-{uid}"}
        self.tell_mirror(self.put(self.mirrors, built))

    @rule(
        name=st.sampled_from(NAMES),
        namespace=st.sampled_from([HOME, "elsewhere"]),
        phase=st.sampled_from(["Running", "Succeeded"]),
        held=st.sampled_from(["", "3"]),
    )
    def mirror_tells(self, name: str, namespace: str, phase: str, held: str) -> None:
        key = ObjectKey(namespace, name)
        self.tell_mirror(self.retell(self.mirrors, key, status_of_one(phase, held)))

    @rule(
        name=st.sampled_from(NAMES),
        phase=st.sampled_from(["Running", "Succeeded"]),
        held=st.sampled_from(["", "3"]),
    )
    def hub_pod_tells(self, name: str, phase: str, held: str) -> None:
        key = ObjectKey("default", name)
        self.tell_hub_pod(self.retell(self.hub_pods, key, status_of_one(phase, held)))

    @rule(name=st.sampled_from(NAMES), namespace=st.sampled_from([HOME, "elsewhere"]))
    def mirror_goes(self, name: str, namespace: str) -> None:
        self.tell_mirror(self.remove(self.mirrors, ObjectKey(namespace, name)))

    # -- what holds after each of them -------------------------------------------------------------

    def weigh(self, one: JsonObject) -> Amounts:
        """Count what a mirror takes beyond its hub pod, from what stands now."""
        labels = metadata_of(one)["labels"]
        found = self.hub_pods.get(ObjectKey("default", metadata_of(one)["name"]))
        asked = pod_requests(one)
        is_its = found is not None and uid_of(found) == labels["federate.dev/hub-pod-uid"]
        if found is None or not is_its or is_terminal(found):
            return asked
        if specs_ask_alike(one, found):
            return {}
        known = pod_requests(found)
        return {n: a - known.get(n, Decimal(0)) for n, a in asked.items() if a > known.get(n, 0)}

    @invariant()
    def sums_are_what_a_fresh_count_says(self) -> None:
        able: Amounts = {}
        taken: Amounts = {}
        excess: Amounts = {}
        own: Amounts = {}
        own_excess: Amounts = {}
        offering = {key_of(n).name: n for n in self.nodes.values() if is_offering(n)}
        for node in offering.values():
            able = add(able, parse_amounts(node["status"]["allocatable"]))
        for each in self.plain.values():
            if node_name_of(each) in {"", *offering}:
                taken = add(taken, pod_requests(each))
        for one in self.mirrors.values():
            if is_terminal(one):
                continue
            excess = add(excess, self.weigh(one))
            if key_of(one).namespace == HOME:
                own, own_excess = add(own, pod_requests(one)), add(own_excess, self.weigh(one))
        assert self.offer.capacity() == aggregate_offer(able, taken, excess)
        assert nonzero(self.all.excess.total()) == nonzero(excess)
        assert nonzero(self.all.own.total()) == {}
        assert nonzero(self.home.own.total()) == nonzero(own)
        assert nonzero(self.home.excess.total()) == nonzero(own_excess)
        zones = {metadata_of(n)["labels"]["zone"] for n in offering.values()}
        if offering:
            assert self.offer.common_labels().get("zone") == (
                zones.pop() if len(zones) == 1 else None
            )

    @invariant()
    def no_change_goes_unsaid(self) -> None:
        """Whoever looks only when woken has seen everything."""
        now = (self.offer.capacity(), self.offer.common_labels(), self.home.own.total())
        assert self.woken or now == self.shown
        self.shown, self.woken = now, False


def status_of_one(phase: str, held: str) -> JsonDict:
    """Let a pod be in a phase, its container holding what a resize has not given back yet."""
    resources = {"resources": {"requests": {"cpu": held}}} if held else {}
    return {"phase": phase, "containerStatuses": [{"name": "main", **resources}]}


def specs_ask_alike(one: JsonObject, other: JsonObject) -> bool:
    """Tell whether two pods ask for the same; what each still holds follows by itself."""
    bare = [{"spec": pod["spec"]} for pod in (one, other)]
    return len({str(pod_requests(pod)) for pod in bare}) == 1


def nonzero(amounts: Mapping[str, Decimal]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# -- share, cap, quota -----------------------------------------------------------------------------

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
AMOUNTS = st.dictionaries(
    st.sampled_from(RESOURCES), st.decimals(0, 50, places=0).map(abs), max_size=4
)
SHARES = st.decimals("0.01", 1, places=2)


def texts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


@LAW
@given(able=AMOUNTS, taken=AMOUNTS, excess=AMOUNTS, cap=AMOUNTS, share=SHARES, less=SHARES)
def test_share_and_cap_are_bounds(
    able: Amounts, taken: Amounts, excess: Amounts, cap: Amounts, share: Decimal, less: Decimal
) -> None:
    """Never negative, never above cap, share or rest; whole devices; less share is never more."""

    def offer(**rules: object) -> Amounts:
        return parse_amounts(
            aggregate_offer(able, taken, excess, CapacityRules(**rules))  # type: ignore[arg-type]
        )

    whole, shared = offer(), offer(share=share)
    both, tighter = offer(share=share, cap=texts(cap)), offer(share=min(share, less))
    assert set(both) == set(whole)
    for name, amount in both.items():
        assert 0 <= amount <= shared[name] <= whole[name]
        assert amount <= cap.get(name, amount)
        assert tighter[name] <= shared[name]
        assert name == "cpu" or amount == amount.to_integral_value()
        rest = max(Decimal(0), able.get(name, Decimal(0)) - taken.get(name, Decimal(0)))
        assert shared[name] <= share * rest
        # What is offered, and what the target adds, stay within the bounds together.
        if amount:
            assert amount + excess.get(name, Decimal(0)) <= cap.get(name, rest)


@LAW
@given(hard=AMOUNTS, others=AMOUNTS, own=AMOUNTS, more=AMOUNTS)
def test_own_mirrors_do_not_change_what_a_quota_leaves(
    hard: Amounts, others: Amounts, own: Amounts, more: Amounts
) -> None:
    """However many of ours run, counted as they are, what is left for the hub stays the same."""
    wanted = ObjectKey("team", "q")
    rules = CapacityRules(mode=CapacityMode.QUOTA, quota=wanted)

    def offer(own: Amounts, used: Amounts) -> Mapping[str, str]:
        entries = {name if name == "pods" else f"requests.{name}": name for name in hard}
        quota = {
            "metadata": {"namespace": "team", "name": "q"},
            "spec": {},
            "status": {
                "hard": {entry: str(hard[name]) for entry, name in entries.items()},
                "used": {entry: str(used.get(name, 0)) for entry, name in entries.items()},
            },
        }
        said = offer_by_quota([quota], own=own, excess={}, rules=rules, wanted=wanted)
        assert said.capacity is not None
        return said.capacity

    alone = offer({}, others)
    assert offer(own, add(others, own)) == alone
    assert offer(add(own, more), add(add(others, own), more)) == alone
    left = subtract(hard, others, floor_at_zero=True)
    assert {name: Decimal(alone[name]) for name in left} == left

"""A leader with rights in single namespaces of its target only, wired as in the product (C22)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from federate.cluster.port import ClusterPort
from federate.errors import Forbidden, ServerFault, TargetChanged
from federate.model.marks import (
    ACCEPT_TARGET_ANNOTATION,
    ANCHORS_ANNOTATION,
    HUB_LABEL,
    RECORD_ANNOTATION,
    REINSTALL_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
    record_of,
)
from federate.model.naming import (
    NamespaceRules,
    NamespaceStrategy,
    anchor_name,
    mirror_key,
    prefixed_namespace,
)
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    key_of,
    labels_of,
    spec_of,
    uid_of,
)
from federate.model.pods import phase_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, SERVICEACCOUNTS
from federate.node.capacity import CapacityRules
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.rights import role_in
from tests.support.scene import SCOPE, NoEvents, agreed

NODE = ObjectKey("", "edge")
SYSTEM = ObjectKey("", "kube-system")
TEAM = "team-a"
SINGLE = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single=TEAM)
MAP = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"default": TEAM, "shop": "team-b"})
PREFIXED = NamespaceRules()
BEFORE = prefixed_namespace(SCOPE.hub_id, "default")
ACCOUNT = ObjectKey(TEAM, "default")
ANCHOR = ObjectKey(TEAM, anchor_name(SCOPE))
A, B = ObjectKey("default", "a"), ObjectKey("default", "b")


class Stage:
    """A hub, two clusters that could be its target, and leaders that follow one another."""

    def __init__(self, rules: NamespaceRules = SINGLE) -> None:
        clock = virtual_loop().time
        self.hub = FakeCluster("hub", clock)
        for name in ("kube-node-lease", "shop", "other"):
            self.hub.add_namespace(name)
        self.first, self.second = FakeCluster("first", clock), FakeCluster("second", clock)
        self.refused: list[str] = []
        for cluster in (self.first, self.second):
            cluster.documents["/version"] = {"gitVersion": "v1.34.4"}
            cluster.add_namespace(TEAM)
            cluster.faults = role_in(TEAM, refused=self.refused)
        self.target = self.first
        self.rules = rules
        self.events = NoEvents()
        self.leading: Leading | None = None
        self.remembers = True

    async def live(self) -> None:
        """Lead, and begin anew where the target changed, as `VirtualNode` does."""
        while True:
            before, self.leading = self.leading, self._build()
            del before
            try:
                await self.leading.run()
            except* TargetChanged:
                pass
            await asyncio.sleep(1.0)

    def _build(self) -> Leading:
        is_distinct = asyncio.Event()
        is_distinct.set()
        return Leading(
            TargetSettings(
                name="edge",
                kubeconfig=Path("x"),
                capacity=CapacityRules.fixed({"cpu": "4", "pods": "9"}),
                namespaces=self.rules,
            ),
            scope=SCOPE,
            ports=LeadingPorts(
                hub=self.hub.client(),
                target=cast(ClusterPort, Replaceable(self)),
                events=self.events,
                fence=lambda: None,
                confirm_hub=agreed,
                metrics=Metrics(version="0"),
                is_distinct=is_distinct,
            ),
            node_address="10.0.0.9",
            federate_version="0",
        )

    @asynccontextmanager
    async def leads(self, rules: NamespaceRules | None = None) -> AsyncIterator[None]:
        """Run one process, with these rules from now on."""
        self.rules = rules or self.rules
        task = asyncio.create_task(self.live())
        try:
            await asyncio.sleep(3.0)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def submit(self, name: str, *, namespace: str = "default") -> None:
        body = pod(name, namespace=namespace).bound_to("edge").build()
        del body["metadata"]["uid"]
        self.hub.add(PODS, body)

    def mirror_key(self, key: ObjectKey, rules: NamespaceRules | None = None) -> ObjectKey:
        found = mirror_key(rules or self.rules, SCOPE.hub_id, key)
        assert found is not None
        return found

    async def run_pod(self, name: str) -> None:
        """Submit a pod and play the target's scheduler and kubelet."""
        self.submit(name)
        await asyncio.sleep(3.0)
        key = self.mirror_key(ObjectKey("default", name))
        self.target.schedule(key, "worker")
        self.target.set_pod_status(key, phase="Running")
        await asyncio.sleep(2.0)
        assert phase_of(self.hub.read(PODS, ObjectKey("default", name))) == "Running"

    async def delete_pod(self, name: str, *, mirror: ObjectKey | None = None) -> None:
        """Delete a pod and play the target's kubelet; it must be gone on both sides."""
        hub_key = ObjectKey("default", name)
        key = mirror or self.mirror_key(hub_key)
        self.hub.delete_by_user(PODS, hub_key)
        await asyncio.sleep(2.0)
        self.target.finish_termination(key)
        await asyncio.sleep(2.0)
        assert self.hub.find(PODS, hub_key) is None
        assert self.target.find(PODS, key) is None

    def node(self) -> JsonDict:
        return self.hub.read(NODES, NODE)

    def told(self) -> tuple[str, str]:
        condition = condition_of(self.node(), "federate.dev/TargetReachable") or {}
        return condition.get("status", ""), condition.get("reason", "")

    def reason(self, key: ObjectKey) -> str:
        condition = condition_of(self.hub.read(PODS, key), "Ready") or {}
        return str(condition.get("reason", ""))

    def recorded_identity(self) -> str:
        return annotations_of(self.node()).get(TARGET_IDENTITY_ANNOTATION, "")

    def identity(self, cluster: FakeCluster, namespace: str = TEAM) -> str:
        account = cluster.read(SERVICEACCOUNTS, ObjectKey(namespace, "default"))
        return f"{namespace}/{uid_of(account)}"

    def say(self, annotation: str, value: str) -> None:
        word = {annotation: value}
        self.hub.edit(NODES, NODE, lambda n: n["metadata"]["annotations"].update(word))


class Replaceable:
    """A client whose kubeconfig may lead elsewhere from one request to the next."""

    name = "target"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.target.client("target"), name)


# -- the main job ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [SINGLE, replace(MAP, mapping={"default": TEAM})])
@virtual_time
async def test_c22_rights_in_one_namespace_are_enough(rules: NamespaceRules) -> None:
    """A pod goes up and away; one question is refused, once for ever; a restart asks no more."""
    s = Stage(rules)
    async with s.leads():
        await s.run_pod("a")
        assert s.recorded_identity() == s.identity(s.first)
        assert spec_of(s.first.read(PODS, s.mirror_key(A)))["hostname"] == "a"
        await s.delete_pod("a")
        await asyncio.sleep(200.0)
    assert s.refused == ["get namespaces kube-system"]
    async with s.leads():
        await s.run_pod("b.c")
        made = s.first.read(PODS, s.mirror_key(ObjectKey("default", "b.c")))
        # Under its own name the kubelet makes the hostname, dots and all.
        assert spec_of(made).get("hostname") == ("b-c" if rules is SINGLE else None)
        await asyncio.sleep(200.0)
    assert s.refused == ["get namespaces kube-system"]


@virtual_time
async def test_c22_a_namespace_that_was_there_is_only_used() -> None:
    """Neither made, labelled nor given back, however long its hub namespace is gone."""
    s = Stage()
    before = s.first.read(NAMESPACES, ObjectKey("", TEAM))
    async with s.leads():
        await s.run_pod("a")
        await s.delete_pod("a")
        s.hub.delete_by_user(NAMESPACES, ObjectKey("", "default"))
        s.hub.finish_namespace("default")
        await asyncio.sleep(300.0)
    assert s.first.read(NAMESPACES, ObjectKey("", TEAM)) == before
    assert {call.resource.plural for call in s.first.writes()} == {"pods", "configmaps"}


@virtual_time
async def test_c51_hub_pods_deleted_meanwhile_are_collected() -> None:
    """The orphan goes, and a pod of our marks in another namespace is not even seen."""
    s = Stage()
    async with s.leads():
        await s.run_pod("a")
    s.hub.store.remove(PODS, A)
    twin = s.first.read(PODS, s.mirror_key(A))
    twin["metadata"].update(namespace="elsewhere", uid="twin")
    s.first.add(PODS, twin)
    async with s.leads():
        await asyncio.sleep(70.0)
        s.first.finish_termination(s.mirror_key(A))
        await asyncio.sleep(70.0)
    assert s.first.find(PODS, s.mirror_key(A)) is None
    assert s.first.find(PODS, ObjectKey("elsewhere", key_of(twin).name)) is not None
    assert not any("elsewhere" in str(call) for call in s.first.calls)


@virtual_time
async def test_c22_a_map_with_a_namespace_that_is_not_there() -> None:
    """What has no entry waits and says so; what has one waits for its namespace to appear."""
    s = Stage(MAP)
    s.first.faults = role_in(TEAM, "team-b")
    async with s.leads():
        await s.run_pod("a")
        s.submit("c", namespace="other")
        s.submit("d", namespace="shop")
        await asyncio.sleep(10.0)
        assert s.reason(ObjectKey("other", "c")) == "NamespaceNotMapped"
        assert s.reason(ObjectKey("shop", "d")) == "NamespaceMissing"
        assert {key_of(p).namespace for r, p in s.first.store.all() if r == PODS} == {TEAM}
        s.first.add_namespace("team-b")
        await asyncio.sleep(120.0)
        assert s.first.find(PODS, ObjectKey("team-b", "d")) is not None
        s.hub.delete_by_user(PODS, ObjectKey("other", "c"))
        await asyncio.sleep(2.0)
        assert s.hub.find(PODS, ObjectKey("other", "c")) is None


@virtual_time
async def test_c22_a_namespace_that_is_closed_to_us_fails_alone() -> None:
    """Its pods stay as they are, through a restart too; the others go on, and so does the sweep."""
    s = Stage(MAP)
    shop = ObjectKey("shop", "d")
    s.first.add_namespace("team-b")
    s.first.faults = role_in(TEAM, "team-b")
    async with s.leads():
        await s.run_pod("a")
        s.submit("d", namespace="shop")
        await asyncio.sleep(3.0)
        s.first.schedule(s.mirror_key(shop), "worker")
        s.first.set_pod_status(s.mirror_key(shop), phase="Running")
        await asyncio.sleep(3.0)
    s.first.faults = role_in(TEAM)
    async with s.leads():
        await asyncio.sleep(60.0)
        assert s.told() == ("True", "TargetAnswers")
        await s.run_pod("b")
        s.submit("e", namespace="shop")
        s.hub.store.remove(PODS, A)
        s.hub.delete_by_user(PODS, shop)
        await asyncio.sleep(200.0)
        s.first.finish_termination(s.mirror_key(A))
        assert phase_of(s.hub.read(PODS, shop)) == "Running"
        assert s.first.find(PODS, s.mirror_key(shop)) is not None
        assert s.first.find(PODS, ObjectKey("team-b", "e")) is None
        s.first.faults = role_in(TEAM, "team-b")
        await asyncio.sleep(60.0)
        s.first.finish_termination(s.mirror_key(shop))
        await asyncio.sleep(400.0)
        assert s.hub.find(PODS, shop) is None
        assert s.first.find(PODS, ObjectKey("team-b", "e")) is not None


@virtual_time
async def test_c20_an_intent_is_settled_beside_a_namespace_that_was_never_open() -> None:
    """No mirror ever stood there, so none is looked for in vain."""
    s = Stage(MAP)
    granted = role_in(TEAM)
    s.first.faults = lambda call: (
        Refuse(Forbidden("exceeded quota", status=403))
        if call.verb == "create" and call.resource == PODS
        else granted(call)
    )
    async with s.leads():
        await asyncio.sleep(20.0)
        s.submit("a")
        await asyncio.sleep(5.0)
        assert record_of(s.hub.read(PODS, A)) is not None
    s.first.faults = granted
    async with s.leads():
        await asyncio.sleep(60.0)
        assert s.first.find(PODS, s.mirror_key(A)) is not None


@virtual_time
async def test_c13_a_namespace_that_is_only_slow_is_waited_for() -> None:
    """An API server that fails has not said that it is closed."""
    s = Stage(MAP)
    granted = role_in(TEAM, "team-b")
    s.first.faults = lambda call: (
        Refuse(ServerFault("etcd", status=500))
        if call.key.namespace == "team-b" and call.resource == PODS
        else granted(call)
    )
    async with s.leads():
        await asyncio.sleep(60.0)
        assert s.hub.find(NODES, NODE) is None
        s.first.faults = granted
        await asyncio.sleep(60.0)
        assert s.told() == ("True", "TargetAnswers")


@virtual_time
async def test_c13_the_only_namespace_must_be_open() -> None:
    """There is nothing to begin with before."""
    s = Stage()
    granted = role_in(TEAM)
    # What tells the cluster may be read from the start: else it could not be known again later.
    s.first.faults = lambda call: (
        Refuse(Forbidden("no", status=403)) if call.resource == PODS else granted(call)
    )
    async with s.leads():
        await asyncio.sleep(60.0)
        assert s.hub.find(NODES, NODE) is None
        s.first.faults = granted
        await asyncio.sleep(60.0)
        assert s.told() == ("True", "TargetAnswers")


# -- another cluster -------------------------------------------------------------------------------


@virtual_time
async def test_c5_another_cluster_with_that_namespace_is_told_and_never_written() -> None:
    """Before the first mirror and after it; an operator may accept it.

    It served this virtual node once: an anchor of our name stands there.
    """
    s = Stage()
    s.second.add(
        CONFIGMAPS, {"metadata": {"namespace": TEAM, "name": ANCHOR.name, "labels": SCOPE.labels()}}
    )
    async with s.leads():
        s.target = s.second  # no pod ever ran: there is no anchor anywhere
        await asyncio.sleep(6.0)
        assert s.told() == ("False", "TargetChanged")
        s.submit("a")
        await asyncio.sleep(100.0)
        assert s.second.writes() == []
        s.target = s.first
        await asyncio.sleep(6.0)
        key = s.mirror_key(A)
        s.first.schedule(key, "worker")
        s.first.set_pod_status(key, phase="Running")
        await asyncio.sleep(2.0)
        s.target = s.second
        await asyncio.sleep(100.0)
        assert s.told() == ("False", "TargetChanged")
        assert s.second.writes() == []
        assert phase_of(s.hub.read(PODS, A)) == "Running"
        s.say(ACCEPT_TARGET_ANNOTATION, s.identity(s.second))
        await asyncio.sleep(10.0)
        assert s.told() == ("True", "TargetAnswers")
        assert phase_of(s.hub.read(PODS, A)) == "Failed"
        await s.run_pod("b")


@virtual_time
async def test_c5_another_cluster_without_that_namespace_is_never_written() -> None:
    """It cannot be told from the first with its namespace removed: nothing is believed."""
    s = Stage()
    s.second.store.remove(SERVICEACCOUNTS, ACCOUNT)
    async with s.leads():
        await s.run_pod("a")
        s.target = s.second
        await asyncio.sleep(20.0)
        assert s.told() == ("False", "TargetUnreachable")
        s.hub.delete_by_user(PODS, A)
        s.submit("b")
        await asyncio.sleep(100.0)
        assert s.second.writes() == []
        assert s.hub.find(PODS, A) is not None
        s.target = s.first
        await asyncio.sleep(20.0)
        s.first.finish_termination(s.mirror_key(A))
        await asyncio.sleep(5.0)
        assert s.hub.find(PODS, A) is None
        assert s.first.find(PODS, s.mirror_key(B)) is not None


@virtual_time
async def test_c5_a_restart_elsewhere_writes_nothing() -> None:
    """What the Node remembers is asked for first."""
    s = Stage()
    async with s.leads():
        await s.run_pod("a")
    s.target = s.second
    async with s.leads():
        s.submit("b")
        await asyncio.sleep(100.0)
        assert s.told() == ("False", "TargetChanged")
    assert s.second.writes() == []
    assert phase_of(s.hub.read(PODS, A)) == "Running"


@virtual_time
async def test_c23_a_removed_anchor_is_an_uninstall_and_no_other_cluster() -> None:
    """The service account tells the two apart; an operator confirms, and all goes on."""
    s = Stage()
    async with s.leads():
        await s.run_pod("a")
        s.first.delete_by_user(CONFIGMAPS, ANCHOR)
        s.first.collect_garbage()
        await asyncio.sleep(2.0)
        s.first.finish_termination(s.mirror_key(A))
        s.submit("b")
        await asyncio.sleep(60.0)
        assert s.told() == ("True", "TargetAnswers")
        assert (condition_of(s.node(), "Ready") or {})["reason"] == "Uninstalled"
        assert phase_of(s.hub.read(PODS, A)) == "Running"
        assert s.reason(B) == "Uninstalled"
        s.say(REINSTALL_ANNOTATION, TEAM)
        await asyncio.sleep(10.0)
        assert s.first.find(PODS, s.mirror_key(B)) is not None
        assert s.hub.find(PODS, A) is None  # disrupted, for its owner to replace it


@virtual_time
async def test_c23_a_namespace_that_ends_is_no_disruption_of_its_pods() -> None:
    """Without a right to read it: hub pods stay as they are."""
    s = Stage()
    async with s.leads():
        await s.run_pod("a")
        s.first.delete_by_user(NAMESPACES, ObjectKey("", TEAM))
        s.first.delete_by_user(PODS, s.mirror_key(A))
        await asyncio.sleep(2.0)
        s.first.finish_termination(s.mirror_key(A))
        await asyncio.sleep(20.0)
        left = s.hub.read(PODS, A)
        assert phase_of(left) == "Running"
        assert "deletionTimestamp" not in left["metadata"]


@virtual_time
async def test_c5_a_service_account_made_anew_is_no_other_cluster() -> None:
    """The anchor on record stands: that says who it is."""
    s = Stage()
    async with s.leads():
        await s.run_pod("a")
        s.first.store.remove(SERVICEACCOUNTS, ACCOUNT)
        s.first.add(SERVICEACCOUNTS, {"metadata": {"name": "default", "namespace": TEAM}})
        await asyncio.sleep(10.0)
        assert s.told() == ("True", "TargetAnswers")
        assert s.recorded_identity() == s.identity(s.first)
        await s.run_pod("b")


@virtual_time
async def test_c5_with_more_rights_the_cluster_itself_says_who_it_is() -> None:
    """And when they are taken away, the anchor says that it is the same."""
    s = Stage()
    s.first.faults = None
    async with s.leads():
        await s.run_pod("a")
        assert s.recorded_identity() == uid_of(s.first.read(NAMESPACES, SYSTEM))
        s.first.faults = role_in(TEAM)
        await asyncio.sleep(20.0)
        assert s.told() == ("True", "TargetAnswers")
        assert s.recorded_identity() == s.identity(s.first)
        await s.delete_pod("a")


@virtual_time
async def test_c5_nothing_is_made_before_it_is_known_who_answers() -> None:
    """While the namespace is not there, the identity is unknown, and nothing is believed."""
    s = Stage()
    s.first.store.remove(SERVICEACCOUNTS, ACCOUNT)
    async with s.leads():
        s.submit("a")
        await asyncio.sleep(60.0)
        assert s.recorded_identity() == "unknown"
        assert s.reason(A) == "NamespaceMissing"
        assert s.first.writes() == []
        assert s.refused == ["get namespaces kube-system"]
        s.first.add(SERVICEACCOUNTS, {"metadata": {"name": "default", "namespace": TEAM}})
        await asyncio.sleep(5.0)
        assert s.recorded_identity() == s.identity(s.first)
        await asyncio.sleep(55.0)
        assert s.first.find(PODS, s.mirror_key(A)) is not None


@virtual_time
async def test_a_refused_kubeconfig_is_told() -> None:
    """Not even the service account may be read: the Node says so, once it is there."""
    s = Stage()
    async with s.leads():
        await s.run_pod("a")
        s.first.faults = lambda _call: Refuse(Forbidden("no", reason="Forbidden", status=403))
        await asyncio.sleep(20.0)
        assert s.told() == ("False", "TargetRefuses")
        assert (condition_of(s.node(), "Ready") or {})["status"] == "False"


# -- other rules than before -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"), [(PREFIXED, SINGLE), (SINGLE, PREFIXED), (SINGLE, MAP), (MAP, SINGLE)]
)
@virtual_time
async def test_c20_mirrors_stay_where_they_are_when_the_rules_change(
    before: NamespaceRules, after: NamespaceRules
) -> None:
    """What is on record is followed and removed there; new ones stand by the new rules."""
    s = Stage(before)
    s.first.faults = None
    s.first.add_namespace("team-b")
    async with s.leads(before):
        await s.run_pod("a")
        old = s.mirror_key(A, before)
        uid = uid_of(s.first.read(PODS, old))
    async with s.leads(after):
        assert s.told() == ("True", "TargetAnswers")
        await s.run_pod("b")
        s.first.set_pod_status(old, phase="Running", ready=False, restarts=3)
        await asyncio.sleep(30.0)
        counts = s.hub.read(PODS, A)["status"]["containerStatuses"][0]["restartCount"]
        assert counts == 3
        record = record_of(s.hub.read(PODS, A))
        assert record is not None
        assert (record.mirror, record.mirror_uid) == (old, uid)
        await s.delete_pod("a", mirror=old)
    async with s.leads(before):
        await s.delete_pod("b", mirror=s.mirror_key(B, after))
        await s.run_pod("a")


@virtual_time
async def test_c20_an_intent_by_other_rules_is_made_anew() -> None:
    """It came to nothing: what is created is where the record then says (intent before deed)."""
    s = Stage(PREFIXED)
    s.first.faults = lambda call: (
        Refuse(Forbidden("exceeded quota", status=403))
        if call.verb == "create" and call.resource == PODS
        else None
    )
    async with s.leads():
        s.submit("a")
        await asyncio.sleep(5.0)
        record = record_of(s.hub.read(PODS, A))
        assert record is not None
        assert record.mirror.namespace == BEFORE
    created: list[tuple[str, str]] = []

    def look(call: Call) -> None:
        if call.verb == "create" and call.resource == PODS:
            intent = record_of(s.hub.read(PODS, A))
            assert intent is not None
            created.append((str(call.key), str(intent.mirror)))

    s.first.faults = look
    async with s.leads(SINGLE):
        await asyncio.sleep(5.0)
        record = record_of(s.hub.read(PODS, A))
        assert record is not None
        made = s.first.read(PODS, s.mirror_key(A))
        assert created == [(str(key_of(made)), str(key_of(made)))]
        assert (record.mirror, record.mirror_uid) == (key_of(made), uid_of(made))
        assert s.first.find(PODS, ObjectKey(BEFORE, "a")) is None


@virtual_time
async def test_c23_the_anchor_where_the_mirror_stands_is_the_one_that_counts() -> None:
    """An uninstall in a namespace of before is one, whatever stands in the new one."""
    s = Stage(PREFIXED)
    s.first.faults = None
    async with s.leads():
        await s.run_pod("a")
        old = s.mirror_key(A)
    async with s.leads(SINGLE):
        await s.run_pod("b")
        s.first.delete_by_user(CONFIGMAPS, ObjectKey(BEFORE, ANCHOR.name))
        s.first.collect_garbage()
        await asyncio.sleep(2.0)
        s.first.finish_termination(old)
        await asyncio.sleep(20.0)
        left = s.hub.read(PODS, A)
        assert phase_of(left) == "Running"
        assert "deletionTimestamp" not in left["metadata"]
        assert phase_of(s.hub.read(PODS, B)) == "Running"


@virtual_time
async def test_a_record_that_leads_out_of_sight_is_told() -> None:
    """A user wrote it, or the Node lost its memory: nothing there is read or touched."""
    s = Stage()
    s.submit("a")
    body = s.hub.read(PODS, A)
    text = f'{{"podUID":"{uid_of(body)}","namespace":"kube-system","name":"a"}}'
    s.hub.edit(PODS, A, lambda p: p["metadata"].update(annotations={RECORD_ANNOTATION: text}))
    async with s.leads():
        await asyncio.sleep(30.0)
        assert "MirrorOutOfSight" in s.events.reasons
    assert [str(c) for c in s.first.calls if "kube-system" in str(c)] == [
        "get namespaces kube-system"
    ]
    assert s.first.find(PODS, s.mirror_key(A)) is None


@virtual_time
async def test_c22_prefixed_namespaces_of_before_are_not_given_back_unasked() -> None:
    """Confined, federate has no word on namespaces, not even on those it made."""
    s = Stage(PREFIXED)
    s.first.faults = None
    async with s.leads():
        await s.run_pod("a")
        await s.delete_pod("a")
    async with s.leads(SINGLE):
        s.hub.delete_by_user(NAMESPACES, ObjectKey("", "default"))
        s.hub.finish_namespace("default")
        await asyncio.sleep(300.0)
    left = s.first.read(NAMESPACES, ObjectKey("", BEFORE))
    assert labels_of(left)[HUB_LABEL] == SCOPE.hub_id
    assert set(annotations_of(s.node())[ANCHORS_ANNOTATION]) > set(BEFORE)

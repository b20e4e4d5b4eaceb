"""Sweeps against two clusters in memory: surely read, surely ours, one by one (C51)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from federate.cluster.identity import cluster_identity
from federate.cluster.port import Listing
from federate.errors import ConfigError, LeadershipLost, ServerFault, TargetChanged, Unreachable
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.plan import Orphan
from federate.garbage.sweeper import Sweeper, remove_orphan, survey, survey_scope
from federate.model.marks import NODE_HUB_ANNOTATION, Scope
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import NAMESPACES, NODES, PODS, Resource
from tests.support.builders import PodBuilder
from tests.support.clock import ManualClock, virtual_time
from tests.support.fakeclient import Call, FakeClient, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.rights import role_in
from tests.support.scene import agreed
from tests.support.views import OTHER_SCOPE, SCOPE, hub_pod, mirror, mirror_key

WEB = ObjectKey("default", "web")
MIRROR = mirror_key(WEB)


class Bench:
    def __init__(self) -> None:
        self.hub = FakeCluster("hub", ManualClock())
        self.hub.add(NAMESPACES, {"metadata": {"name": "kube-system", "uid": SCOPE.hub_id}})
        self.target = FakeCluster("berlin", ManualClock())
        self.woken: list[ObjectKey] = []
        self.is_elsewhere = False
        self.has_changed = False
        self.sweeper = Sweeper(
            hub=self.hub.client(),
            target=self.target.client(),
            scope=SCOPE,
            confirm_hub=self._agree,
            confirm_target=self._agree_on_target,
            enqueue=self.woken.append,
            keeper=NamespaceKeeper(
                hub=self.hub.client(),
                target=self.target.client(),
                scope=SCOPE,
                forget_anchor=self._forget,
                confirm_hub=self._agree,
                confirm_target=self._agree_on_target,
                fence=lambda: None,
            ),
        )

    async def _agree(self) -> None:
        if self.is_elsewhere:
            raise LeadershipLost("the hub is another cluster")

    async def _agree_on_target(self) -> None:
        if self.has_changed:
            raise TargetChanged("another cluster answers")

    async def _forget(self, _namespace: str) -> None:
        raise AssertionError("no namespace of these tests may be given back")

    def add_mirror(self, builder: PodBuilder) -> JsonDict:
        return self.target.add(PODS, builder.build())

    async def orphan(self) -> Orphan:
        found = await survey_scope(
            self.hub.client(), self.target.client(), SCOPE, confirm_hub=self._agree
        )
        [one] = found.orphans
        return one

    async def remove(self, orphan: Orphan) -> str:
        return await remove_orphan(self.hub.client(), self.target.client(), orphan)


async def test_a_hub_is_known_by_its_kube_system_uid() -> None:
    """The identity is the hub's own (C3)."""
    hub = FakeCluster("hub", ManualClock())
    system = hub.read(NAMESPACES, ObjectKey("", "kube-system"))
    assert await cluster_identity(hub.client()) == uid_of(system)


async def test_a_survey_reads_the_target_first() -> None:
    """A hub pod created meanwhile is then seen, and its mirror is no orphan."""
    b = Bench()
    b.add_mirror(mirror())

    def create_meanwhile(call: Call) -> Fault | None:
        if call.verb == "list":
            b.hub.add(PODS, hub_pod().build())
        return None

    b.target.faults = create_meanwhile
    found = await survey_scope(b.hub.client(), b.target.client(), SCOPE, confirm_hub=b._agree)
    assert (found.orphans, found.hub_pods) == ((), 1)
    assert b.hub.writes() == b.target.writes() == []


async def test_c51_a_survey_reads_the_quorum() -> None:
    """A lagging cache of the hub makes no orphan."""
    b = Bench()
    b.hub.cache_lag = 5
    b.hub.add(PODS, hub_pod().build())
    b.add_mirror(mirror())
    found = await survey_scope(b.hub.client(), b.target.client(), SCOPE, confirm_hub=b._agree)
    assert found.orphans == ()


async def test_the_command_line_surveys_by_node_name() -> None:
    """The hub's identity is read, and other nodes' mirrors are reported."""
    b = Bench()
    scope = Scope(hub_id=await cluster_identity(b.hub.client()), node_name="edge")
    other = Scope(hub_id=scope.hub_id, node_name="attic")
    b.add_mirror(mirror(scope=scope))
    b.add_mirror(mirror("db", scope=other))
    found = await survey(b.hub.client(), b.target.client(), node_name="edge")
    assert [o.mirror.name for o in found.orphans] == ["web"]
    assert [u.mirror.name for u in found.unknown] == ["db"]


async def test_c3_a_sweep_by_hand_goes_by_the_name_the_node_was_registered_with() -> None:
    """Under another hub's name all of that hub's mirrors would look like orphans."""
    b = Bench()
    b.add_mirror(mirror(scope=Scope(hub_id="copy-b", node_name="edge")))
    annotations = {NODE_HUB_ANNOTATION: "copy-b"}
    b.hub.add(NODES, {"metadata": {"name": "edge", "annotations": annotations}})
    found = await survey(b.hub.client(), b.target.client(), node_name="edge", hub_identity="copy-b")
    assert len(found.orphans) == 1
    for other in ("copy-a", None):
        with pytest.raises(ConfigError, match="expected --hub-identity copy-b"):
            await survey(b.hub.client(), b.target.client(), node_name="edge", hub_identity=other)


@pytest.mark.parametrize("registered", ["nothing", "a stranger"])
async def test_c51_a_hub_that_does_not_know_the_node_is_not_taken_at_a_given_word(
    registered: str,
) -> None:
    """With the name of one hub and the kubeconfig of another, all mirrors would look unwanted."""
    b = Bench()
    b.add_mirror(mirror(scope=Scope(hub_id="prod", node_name="edge")))
    if registered == "a stranger":
        b.hub.add(NODES, {"metadata": {"name": "edge"}})
    with pytest.raises(ConfigError, match="Node edge is not registered on this hub"):
        await survey(b.hub.client(), b.target.client(), node_name="edge", hub_identity="prod")
    uid = await cluster_identity(b.hub.client())
    await survey(b.hub.client(), b.target.client(), node_name="edge", hub_identity=uid)


async def test_c51_another_hubs_pod_of_the_name_does_not_confirm_an_orphan() -> None:
    """A pod of that name with another uid says nothing, unless it is still the same hub."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()
    stranger = hub_pod().build()
    stranger["metadata"]["uid"] = "of-another-hub"
    b.hub.add(PODS, stranger)
    b.is_elsewhere = True
    with pytest.raises(LeadershipLost):
        await remove_orphan(b.hub.client(), b.target.client(), orphan, confirm_hub=b._agree)
    assert b.target.writes() == []


async def test_c51_a_confirmed_orphan_is_deleted_under_its_uid() -> None:
    """The hub pod is gone, the mirror is the one that was seen."""
    b = Bench()
    b.add_mirror(mirror().bound_to("t-1").running())
    assert await b.remove(await b.orphan()) == "deleted"
    [delete] = b.target.writes()
    assert delete.body is not None
    assert delete.body["preconditions"]["uid"] == "mirror-web"
    assert b.target.read(PODS, MIRROR)["metadata"]["deletionTimestamp"]
    assert b.hub.writes() == []


async def test_c51_a_hub_pod_that_exists_keeps_its_mirror() -> None:
    """A direct read outranks the listing, wherever the pod is bound."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()
    b.hub.add(PODS, hub_pod().build())
    assert await b.remove(orphan) == "kept: its hub pod exists"
    assert b.target.writes() == []


class ListsNothing(FakeClient):
    """Answers every list with none, whatever there is."""

    async def list(self, resource: Resource, **_options: Any) -> Listing:
        return Listing(items=[], resource_version="1")


async def test_c51_a_hub_that_lists_nothing_is_not_believed() -> None:
    """What an empty list makes of every mirror is taken back by a direct read of each."""
    b = Bench()
    names = ["a", "b", "c"]
    for name in names:
        b.hub.add(PODS, hub_pod(name).build())
        b.add_mirror(mirror(name))
    empty = ListsNothing(b.hub, "hub")
    found = await survey_scope(empty, b.target.client(), SCOPE, confirm_hub=b._agree)
    assert [o.mirror.name for o in found.orphans] == names
    for orphan in found.orphans:
        assert await b.remove(orphan) == "kept: its hub pod exists"
    assert b.target.writes() == []


async def test_a_hub_pod_that_waits_for_its_mirror_is_no_finding() -> None:
    """A sweep looks for orphans; what is missing is made by the pod's own key."""
    b = Bench()
    b.hub.add(PODS, hub_pod().build())
    found = await b.sweeper.sweep()
    assert (found.orphans, found.unknown, found.hub_pods) == ((), (), 1)
    assert b.woken == []


async def test_c51_a_successor_of_the_name_does_not_keep_the_old_mirror() -> None:
    """Another uid of the name is another pod."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()
    b.hub.add(PODS, hub_pod().with_uid("uid-new").build())
    assert await b.remove(orphan) == "deleted"


async def test_c51_an_orphan_that_went_is_gone() -> None:
    """Somebody was faster."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()
    b.target.store.remove(PODS, MIRROR)
    assert await b.remove(orphan) == "already gone"


@pytest.mark.parametrize("what", ["uid", "marks", "origin"])
async def test_c51_another_pod_of_the_name_is_kept(what: str) -> None:
    """What stands there now is not what was seen."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()

    def change(pod: JsonDict) -> None:
        if what == "uid":
            pod["metadata"]["uid"] = "another"
        elif what == "marks":
            del pod["metadata"]["labels"]["federate.dev/hub"]
        else:
            pod["metadata"]["labels"]["federate.dev/hub-pod-uid"] = "another"

    b.target.edit(PODS, MIRROR, change)
    assert await b.remove(orphan) == "kept: another pod has its name now"
    assert b.target.writes() == []


async def test_c51_a_mirror_replaced_at_the_last_moment_is_kept() -> None:
    """The uid precondition of the delete is the last fence."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()

    def replace_now(call: Call) -> Fault | None:
        if call.verb == "delete":
            b.target.edit(PODS, MIRROR, lambda pod: pod["metadata"].update(uid="another"))
        return None

    b.target.faults = replace_now
    assert await b.remove(orphan) == "kept: another pod has its name now"
    assert b.target.find(PODS, MIRROR) is not None


async def test_c51_an_orphan_of_another_hub_is_kept() -> None:
    """Between survey and removal the hub's client came to speak to another cluster."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()
    b.hub.edit(
        NAMESPACES, ObjectKey("", "kube-system"), lambda n: n["metadata"].update(uid="another")
    )
    with suppress(LeadershipLost):
        await b.remove(orphan)
    assert b.target.writes() == []


@pytest.mark.parametrize("side", ["hub", "target"])
async def test_c51_without_a_complete_reading_nothing_is_deleted(side: str) -> None:
    """A side that does not answer ends the removal."""
    b = Bench()
    b.add_mirror(mirror())
    orphan = await b.orphan()
    (b.hub if side == "hub" else b.target).go_down()
    with pytest.raises(Unreachable):
        await b.remove(orphan)
    assert b.target.find(PODS, MIRROR) is not None


# -- the running pass ------------------------------------------------------------------------------


async def test_a_pass_wakes_orphans_and_deletes_nothing_itself() -> None:
    """The queue confirms and deletes: one hand for each pod (C71)."""
    b = Bench()
    b.add_mirror(mirror())
    b.add_mirror(mirror("db", scope=OTHER_SCOPE))
    for _ in range(2):
        found = await b.sweeper.sweep()
        assert len(found.orphans) == 1
    assert b.woken == [WEB, WEB]
    assert b.sweeper.unknown_mirrors == 1
    assert b.target.writes() == b.hub.writes() == []


async def test_c22_a_confined_pass_reads_its_namespaces_alone() -> None:
    """Nothing cluster-wide is asked for; one that is closed does not keep the others."""
    b = Bench()
    b.add_mirror(mirror())
    far = mirror("db").build()
    far["metadata"]["namespace"] = "elsewhere"
    b.target.add(PODS, far)
    b.target.faults = role_in(MIRROR.namespace)
    confined = Sweeper(
        hub=b.hub.client(),
        target=b.target.client(),
        scope=SCOPE,
        confirm_hub=agreed,
        confirm_target=agreed,
        enqueue=b.woken.append,
        keeper=None,
        watched=lambda: (MIRROR.namespace, "team-b"),
    )
    assert [orphan.mirror for orphan in (await confined.sweep()).orphans] == [MIRROR]
    assert b.woken == [WEB]
    by_hand = await survey(
        b.hub.client(), b.target.client(), node_name="edge", namespaces=[MIRROR.namespace]
    )
    assert [orphan.mirror for orphan in by_hand.orphans] == [MIRROR]


async def test_c51_a_pass_on_another_hub_finds_no_orphans() -> None:
    """What another cluster does not list wakes nothing, and ends the leadership."""
    b = Bench()
    b.add_mirror(mirror())
    b.is_elsewhere = True
    with pytest.raises(LeadershipLost):
        await b.sweeper.sweep()
    assert b.woken == []
    assert b.target.writes() == b.hub.writes() == []


async def test_c5_a_pass_on_another_target_finds_no_orphans() -> None:
    """Leftovers with our marks in another cluster are not told as this target's, nor touched."""
    b = Bench()
    b.add_mirror(mirror())
    b.add_mirror(mirror("db", scope=OTHER_SCOPE))
    b.has_changed = True
    with pytest.raises(TargetChanged):
        await b.sweeper.sweep()
    assert (b.woken, b.sweeper.unknown_mirrors) == ([], 0)
    assert b.target.writes() == []


@virtual_time
async def test_a_failed_pass_is_tried_again_a_period_later() -> None:
    """An outage of either side stops no later pass."""
    b = Bench()
    b.add_mirror(mirror())
    failed: list[Call] = []

    def fail_twice(call: Call) -> Fault | None:
        if call.verb == "list" and call.resource == PODS and len(failed) < 2:
            failed.append(call)
            return Refuse(ServerFault("etcd", status=500))
        return None

    b.hub.faults = fail_twice
    task = asyncio.create_task(b.sweeper.run())
    await asyncio.sleep(59.0)
    assert b.hub.calls == []
    await asyncio.sleep(62.0)
    assert b.woken == []
    assert len(failed) == 2
    await asyncio.sleep(60.0)
    assert b.woken == [WEB]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

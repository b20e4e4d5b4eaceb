"""Leave a target: what goes, in which order, and what stays whatever happens (C15, C51)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import suppress

import pytest

from federate.companions.environment import Advertised
from federate.companions.issued import place_of, token_key
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import (
    ClusterError,
    FederateError,
    Forbidden,
    LeadershipLost,
    TargetChanged,
)
from federate.garbage.namespaces import IN_FLIGHT_SECONDS
from federate.leave.drain import DrainRules, free_rest
from federate.leave.leaving import Leaving
from federate.leave.waiting import NO_ANSWER, Patience, looking
from federate.model.marks import (
    HUB_LABEL,
    LEAVING_ANNOTATION,
    RECORD_ANNOTATION,
    MirrorRecord,
    Scope,
)
from federate.model.naming import anchor_name
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.pods import phase_of
from federate.model.reasons import PodReason
from federate.model.resources import (
    CONFIGMAPS,
    ENDPOINT_SLICES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
)
from federate.node.leaving import leaving_patch
from federate.runtime.election import DURATION_SECONDS, Election
from federate.services.door import door_name, render_door
from federate.services.following import ServiceKey, owner_of, render_service
from federate.status.project import MIRRORED
from tests.support.clock import run_virtual, virtual_time
from tests.support.fakeclient import Call, Fault, LostRequest, Refuse
from tests.support.fakestore import Change, Eyes
from tests.support.issuestage import token_volume
from tests.support.leavestage import COMMAND, LEASE, NODE, LeaveStage, Said

A = ObjectKey("default", "a")


@virtual_time
async def test_nothing_is_left_and_nothing_else_is_touched() -> None:
    """With no federate running the command itself ends mirrors, and cleans both sides."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a", "b")
        before = stage.foreign()
        await stage.leave()
        assert stage.left_behind() == []
        assert stage.foreign() == before


@virtual_time
async def test_a_running_federate_and_its_standby_give_up_for_good() -> None:
    """They are retired by the mark on the lease, and the Node does not come back."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate("one"), stage.federate("two"):
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(5.0)
        before = stage.foreign()
        await stage.leave()
        assert stage.retired == 2
        await asyncio.sleep(120.0)
        assert stage.left_behind() == []
        assert stage.foreign() == before


@virtual_time
async def test_a_standby_that_looks_seldom_has_seen_the_mark() -> None:
    """The lease stays, marked, until everybody who stands by has looked at it."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("held")
        held = ObjectKey("default", "held")
        stage.hub.budgeted.add(held)
        leaving = asyncio.create_task(stage.leave())
        await asyncio.sleep(3.0)
        async with stage.federate("standby"):  # it looks every two seconds from now on
            await asyncio.sleep(4.05)
            stage.hub.store.remove(PODS, held)
            await leaving
            assert stage.retired == 1
            await asyncio.sleep(60.0)
            assert stage.left_behind() == []


@virtual_time
async def test_the_node_goes_after_everything_else() -> None:
    """What is killed before finds a Node that says what is to be done; then a marked lease."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        await stage.leave()
    hub = [call for call in stage.hub.writes() if call.client.startswith(COMMAND)]
    deletes = [call for call in hub if call.verb == "delete" and call.resource != PODS]
    assert [str(call) for call in deletes] == [
        "delete leases kube-node-lease/edge",
        "delete nodes edge",
        "delete leases kube-system/federate-edge",
    ]
    assert hub[-1] == deletes[-1]
    assert all("uid" in (call.body or {})["preconditions"] for call in deletes)
    target = [call for call in stage.target.writes() if call.client.startswith(COMMAND)]
    assert {call.verb for call in target} == {"delete"}
    assert all("uid" in (call.body or {})["preconditions"] for call in target)


def along(stage: LeaveStage, kind: Kind, name: str) -> CompanionKey:
    return CompanionKey(stage.namespace, kind, "default", name)


async def brought(stage: LeaveStage, *keys: CompanionKey, **metadata: object) -> None:
    """A pod has run, and what came along with it is there; nobody leads when its Node is gone."""
    await stage.used("a")
    stage.bring(*keys, **metadata)
    stage.hub.delete_by_user(NODES, NODE)
    stage.hub.store.remove(PODS, A)  # the hub's pod GC


DOOR_KINDS = (SERVICES, ENDPOINT_SLICES)


def follow(stage: LeaveStage, name: str, *anchors: JsonDict) -> ObjectKey:
    """A Service of the hub has followed, wanted by whoever these anchors are of."""
    key = ServiceKey(key_of(anchors[0]).namespace, "default", name)
    original = {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    body = render_service(key, original, scope=stage.scope, anchor=anchors[0])
    body["metadata"]["ownerReferences"] = [owner_of(anchor) for anchor in anchors]
    stage.target.add(SERVICES, body)
    return key.target_key


@pytest.mark.parametrize("has_node", [True, False])
@virtual_time
async def test_services_that_followed_go_and_those_of_others_stay(has_node: bool) -> None:
    """What another virtual node of this hub wants, too, is left to it: it loses an owner."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        own = stage.target.read(CONFIGMAPS, ObjectKey(stage.namespace, anchor_name(stage.scope)))
        west = Scope(hub_id=stage.hub_id, node_name="west")
        others = stage.target.read(CONFIGMAPS, ObjectKey(stage.shared, anchor_name(west)))
        body = {**own, "metadata": {**own["metadata"], "namespace": stage.shared}}
        del body["metadata"]["uid"]
        ours_there = stage.target.add(CONFIGMAPS, body)
        going = follow(stage, "web", own)
        shared = follow(stage, "shared", ours_there, others)
        wests = follow(stage, "wests", others)
        name = {"namespace": "default", "name": "web"}
        strangers = key_of(stage.target.add(SERVICES, {"metadata": name, "spec": {}}))
        if not has_node:
            stage.hub.delete_by_user(NODES, NODE)
            stage.hub.store.remove(PODS, A)  # the hub's pod GC
        before = [stage.target.find(SERVICES, key) for key in (wests, strangers)]
        await stage.leave()
        assert stage.left_behind() == []
        assert stage.target.find(SERVICES, going) is None
        assert [stage.target.find(SERVICES, key) for key in (wests, strangers)] == before
        left = stage.target.read(SERVICES, shared)
        assert left["metadata"]["ownerReferences"] == [owner_of(others)]
    asked = [
        (call.verb, call.resource.plural)
        for call in stage.target.writes()
        if call.client.startswith(COMMAND) and call.resource in (SERVICES, CONFIGMAPS)
    ]
    # By hand, and before the anchors: a garbage collector would do it, but nobody would know when.
    assert asked.index(("delete", "services")) < asked.index(("delete", "configmaps"))


@pytest.mark.parametrize("has_node", [True, False])
@virtual_time
async def test_what_came_along_goes_between_mirrors_and_anchors(has_node: bool) -> None:
    """The mirrors use it, and the anchors remember the Secrets; contents are never asked for.

    While the command leads it ends what no mirror uses as any leader does; the rest it clears.
    """
    stage = LeaveStage()
    async with stage.alive():
        keys = [along(stage, kind, f"it-{number}") for kind in Kind for number in range(15)]
        if has_node:
            await stage.used("a")
            stage.bring(*keys)
        else:
            await brought(stage, *keys)
        before = stage.foreign()
        found = await stage.leave()
        assert {one.key for one in found.brought} == set(keys)
        assert stage.left_behind() == []
        assert stage.foreign() == before
    kinds = {anchor_name(stage.scope): "anchor"} | {
        name_of(stage.scope, key).name: "companion" for key in keys
    }
    calls = [call for call in stage.target.calls if call.client.startswith(COMMAND)]
    deletes = [call for call in calls if call.verb == "delete"]
    order = [kinds.get(call.key.name, call.resource.plural) for call in deletes]
    # The anchor goes with its namespace, which is empty then.
    assert [name for name, _ in itertools.groupby(order)] == ["pods", "companion", "namespaces"]
    secrets = [key for key in keys if key.kind is Kind.SECRET]  # each has an entry
    assert order.count("companion") == len(keys) + len(secrets)
    for call in deletes:
        if kinds.get(call.key.name) == "companion":
            assert {"uid", "resourceVersion"} <= (call.body or {})["preconditions"].keys()
    lists = [call for call in calls if call.resource == SECRETS and call.verb == "list"]
    assert {call.key.namespace for call in lists} <= {stage.namespace}, "is it empty?"


@virtual_time
async def test_c30_a_strangers_secret_on_the_list_stays() -> None:
    """Who may write the list, or took a companion's name, loses nothing by it."""
    stage = LeaveStage()
    login = along(stage, Kind.SECRET, "login")
    place = name_of(stage.scope, login)
    async with stage.alive():
        await brought(stage, login)
        stage.target.store.remove(SECRETS, place)
        stage.target.add(SECRETS, {"metadata": {"name": place.name, "namespace": place.namespace}})
        await stage.leave()
        assert stage.target.find(SECRETS, place) is not None
    assert any(f"Secret {place.name} is in it" in note for note in stage.said.notes)


@virtual_time
async def test_a_companion_that_is_held_is_waited_for() -> None:
    stage = LeaveStage()
    login = along(stage, Kind.SECRET, "login")
    place = name_of(stage.scope, login)
    async with stage.alive():
        await brought(stage, login, finalizers=["example.com/keep"])
        leaving = asyncio.create_task(stage.leave())
        await asyncio.sleep(60.0)
        assert not leaving.done()
        assert any(f"Secret {place} (ending)" in state for state in stage.said.states)
        assert stage.target.find(CONFIGMAPS, ObjectKey(stage.namespace, anchor_name(stage.scope)))
        stage.target.store.remove(SECRETS, place)  # whoever held it let go
        await leaving
        assert stage.left_behind() == []


@virtual_time
async def test_secrets_that_may_not_be_touched_go_with_their_anchors() -> None:
    """Without that right, and that is said; ConfigMaps go as ever."""
    stage = LeaveStage()

    def closed(call: Call) -> Fault | None:
        if call.client.startswith(COMMAND) and call.resource == SECRETS:
            return Refuse(Forbidden("secrets are forbidden", status=403))
        return None

    async with stage.alive():
        await brought(
            stage, along(stage, Kind.SECRET, "login"), along(stage, Kind.CONFIGMAP, "site")
        )
        stage.target.faults = closed
        await stage.leave()
        await asyncio.sleep(2.0)
        assert stage.left_behind() == [f"target Namespace {stage.namespace}"]
    assert "Secrets that came along go with their anchors: secrets are forbidden" in (
        stage.said.notes
    )


@virtual_time
async def test_mirrors_that_have_come_meanwhile_keep_what_they_use() -> None:
    """And its anchor; once they are gone again, the same command goes on."""
    stage = LeaveStage()
    login = along(stage, Kind.SECRET, "login")
    async with stage.alive():
        await brought(stage, login)
        body = stage.target.read(PODS, ObjectKey(stage.namespace, "a"))
        for field in ("uid", "resourceVersion"):
            body["metadata"].pop(field)

        def bring_back(call: Call) -> Fault | None:
            is_late = any("companions in" in step for step in stage.said.steps)
            if call.client.startswith(COMMAND) and is_late:
                stage.target.faults = None
                stage.target.add(PODS, body)
            return None

        stage.target.faults = bring_back
        with pytest.raises(FederateError, match="mirrors have come"):
            await stage.leave()
        assert stage.target.find(SECRETS, name_of(stage.scope, login)) is not None
        await stage.leave()
        assert stage.left_behind() == []


@virtual_time
async def test_two_commands_at_once_come_to_one_end() -> None:
    """One leads, the other waits for it, and finds done what it would do."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        before = stage.foreign()
        await asyncio.gather(stage.leave(), stage.leave())
        await asyncio.sleep(30.0)
        assert stage.left_behind() == []
        assert stage.foreign() == before


@virtual_time
async def test_a_second_leave_finds_nothing() -> None:
    """It looks, and writes nothing."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        await stage.leave()
        writes = len(stage.hub.writes()), len(stage.target.writes())
        found = await stage.leave()
        assert found.is_nothing
        assert (len(stage.hub.writes()), len(stage.target.writes())) == writes


@virtual_time
async def test_a_namespace_that_others_use_stays() -> None:
    """Another virtual node's anchor keeps it; only our own anchor goes."""
    stage = LeaveStage()
    async with stage.alive():
        async with stage.federate():
            await asyncio.sleep(3.0)
            stage.submit("a", namespace="shared")
            await asyncio.sleep(5.0)
        before = stage.foreign()
        assert stage.target.find(PODS, ObjectKey(stage.shared, "a")) is not None
        await stage.leave()
        assert stage.left_behind() == []
        after = stage.foreign()
        used_at = ("target", "namespaces", ObjectKey("", stage.shared))
        assert after.pop(used_at)
        before.pop(used_at)
        assert after == before
        assert any("is in it" in note for note in stage.said.notes)


@virtual_time
async def test_a_namespace_that_federate_did_not_make_stays() -> None:
    """Where it is used as it was found (`same`, `map`, `single`), only the anchor goes."""
    stage = LeaveStage()
    key = ObjectKey("", stage.namespace)
    async with stage.alive():
        await stage.used("a")
        stage.target.edit(NAMESPACES, key, lambda n: n["metadata"]["labels"].pop(HUB_LABEL))
        await stage.leave()
        assert stage.left_behind() == [f"target Namespace {key}"]
        assert any("federate did not make it" in note for note in stage.said.notes)


@virtual_time
async def test_a_configmap_with_copied_labels_stays() -> None:
    """Our labels alone make no anchor: its name does too."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        copied = {"name": "copy", "namespace": "default", "labels": stage.scope.labels()}
        stage.target.add(CONFIGMAPS, {"metadata": copied})
        await stage.leave()
        assert stage.left_behind() == ["target ConfigMap default/copy"]
        assert (await stage.leave()).is_nothing


@virtual_time
async def test_bare_pods_need_force() -> None:
    """Nobody replaces them: they go only on a person's word."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.submit("bare", owner="")
        with pytest.raises(FederateError, match=r"bare pods.*default/bare"):
            await stage.leave()
        assert stage.hub_pod("bare") is not None
        await stage.leave(force=True)
        assert stage.left_behind() == []


@virtual_time
async def test_daemonset_pods_go_last() -> None:
    """A drain leaves them alone; they go with the Node, before pod GC would see to them."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("daemon", owner="DaemonSet")
        await asyncio.sleep(3.0)
        await stage.leave()
        assert stage.left_behind() == []
    gone = [c for c in stage.hub.writes() if c.key.name == "daemon" and c.verb == "delete"]
    node = [c for c in stage.hub.writes() if c.key == NODE and c.verb == "delete"]
    assert len(gone) == 1
    assert gone[0].number > node[0].number


@virtual_time
async def test_a_daemonset_pod_with_a_mirror_ends_as_any_other() -> None:
    """Once federate is retired it is deleted with its grace, and its mirror first."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        key = stage.submit("daemon")
        await asyncio.sleep(4.0)
        stage.hub.edit(
            PODS, key, lambda p: p["metadata"]["ownerReferences"][0].update(kind="DaemonSet")
        )
        await stage.leave(timeout_seconds=120.0)
        assert stage.left_behind() == []
    asked = [c for c in stage.hub.writes() if c.key == key and c.verb in ("create", "delete")]
    assert [(c.verb, c.subresource) for c in asked] == [("delete", ""), ("delete", "")]
    assert "gracePeriodSeconds" not in (asked[0].body or {})


@virtual_time
async def test_a_budget_is_waited_for() -> None:
    """An eviction that a PodDisruptionBudget forbids is asked for again; a bound ends the wait."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a", "b")
        stage.hub.budgeted.add(A)
        with pytest.raises(FederateError, match="not done within 30 s"):
            await stage.leave(timeout_seconds=30.0)
        assert any("PodDisruptionBudget: default/a" in state for state in stage.said.states)
        assert stage.hub_pod("a") is not None
        assert stage.hub_pod("b") is None
        asked = [c for c in stage.hub.writes() if c.subresource == "eviction" and c.key == A]
        assert 5 <= len(asked) <= 8
        stage.hub.budgeted.clear()
        await stage.leave()
        assert stage.left_behind() == []


@virtual_time
async def test_c31_tokens_of_pods_that_a_drain_waits_for_are_renewed() -> None:
    """By a command that was told nothing of `identity`: what came along tells of it."""
    stage = LeaveStage()
    stage.companions = CompanionRules(
        identity=IdentityMode.HUB, advertised=Advertised(host="192.0.2.1", port=6443)
    )
    async with stage.alive():
        async with stage.federate("before"):
            await asyncio.sleep(3.0)
            stage.submit("a", volumes=[token_volume(expirationSeconds=600)])
            await asyncio.sleep(6.0)
        secret = place_of(stage.scope, token_key(stage.hub_pod("a") or {}, stage.namespace))
        before = stage.target.read(SECRETS, secret)["data"]
        stage.hub.budgeted.add(A)
        with pytest.raises(FederateError, match="not done"):
            await stage.leave(timeout_seconds=430.0)  # it ends after 600 s
        assert stage.target.read(SECRETS, secret)["data"] != before
        stage.hub.budgeted.clear()
        await stage.leave()
        assert stage.left_behind() == []


@virtual_time
async def test_c31_where_there_are_no_tokens_none_is_asked_for() -> None:
    stage = LeaveStage()
    async with stage.alive():
        async with stage.federate("before"):
            await asyncio.sleep(3.0)
            stage.submit("a")
            await asyncio.sleep(6.0)
        await stage.leave()
        assert not [call for call in stage.hub.calls if call.subresource == "token"]


@virtual_time
async def test_another_cluster_is_not_touched() -> None:
    """A kubeconfig of another cluster than the one on record is refused before anything (C5)."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.target.edit(
            NAMESPACES,
            ObjectKey("", "kube-system"),
            lambda namespace: namespace["metadata"].update(uid="another"),
        )
        writes = len(stage.hub.writes()), len(stage.target.writes())
        with pytest.raises(TargetChanged, match="another cluster answers"):
            await stage.leave()
        assert (len(stage.hub.writes()), len(stage.target.writes())) == writes


@virtual_time
async def test_nothing_new_is_mirrored_meanwhile() -> None:
    """A pod that is bound past the cordon waits and says why; statuses and deletions go on."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        stage.hub.budgeted |= {A, ObjectKey("default", "late")}
        leaving = asyncio.create_task(stage.leave())
        await asyncio.sleep(3.0)
        assert spec_of(stage.node() or {})["unschedulable"]
        late = stage.submit("late")
        await asyncio.sleep(5.0)
        told = condition_of(stage.hub.read(PODS, late), MIRRORED)
        assert told is not None
        assert told["reason"] == PodReason.NODE_LEAVING
        assert stage.target.find(PODS, ObjectKey(stage.namespace, "late")) is None
        assert phase_of(stage.hub.read(PODS, A)) == "Running"
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving

        # Called off: the mark and the cordon are taken away, and all is as before.
        def call_off(node: dict[str, dict[str, object]]) -> None:
            node["spec"].pop("unschedulable")
            annotations = node["metadata"]["annotations"]
            assert isinstance(annotations, dict)
            annotations.pop(LEAVING_ANNOTATION)

        stage.hub.edit(NODES, NODE, call_off)
        await asyncio.sleep(5.0)
        assert phase_of(stage.hub.read(PODS, late)) == "Running"


@virtual_time
async def test_a_federate_that_dies_meanwhile_is_replaced_by_the_command() -> None:
    """Mirrors end all the same: the command stands by, and takes over."""
    stage = LeaveStage()
    async with stage.alive():
        async with stage.federate():
            await asyncio.sleep(3.0)
            stage.submit("a")
            await asyncio.sleep(3.0)
            stage.hub.budgeted.add(A)
            leaving = asyncio.create_task(stage.leave())
            await asyncio.sleep(3.0)
        stage.hub.budgeted.clear()
        await leaving
        assert stage.left_behind() == []


@virtual_time
async def test_a_node_that_is_gone_leaves_a_target_to_be_cleaned() -> None:
    """Where somebody deleted the Node, the marks alone tell what is to be removed."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        before = stage.foreign()
        stage.hub.delete_by_user(NODES, NODE)
        stage.hub.store.remove(PODS, A)  # the hub's pod GC
        await stage.leave()
        assert stage.left_behind() == []
        assert stage.foreign() == before


@virtual_time
async def test_a_mirror_whose_hub_pod_stands_is_waited_for() -> None:
    """Without a Node the hub's pod GC decides when the hub pods go; nobody else does."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.hub.delete_by_user(NODES, NODE)
        leaving = asyncio.create_task(stage.leave())
        await asyncio.sleep(30.0)
        assert stage.target.find(PODS, ObjectKey(stage.namespace, "a")) is not None
        stage.hub.store.remove(PODS, A)
        await leaving
        assert stage.left_behind() == []


@virtual_time
async def test_a_federate_that_registers_the_node_again_is_drained_after_all() -> None:
    """The Node was deleted by hand while federate runs: it is back before the command is."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        ports = stage.ports()
        stage.hub.delete_by_user(NODES, NODE)
        found = await stage.look(ports)
        assert found.node is None
        await asyncio.sleep(3.0)
        await stage.run_leaving(found, ports)
        await asyncio.sleep(30.0)
        assert stage.left_behind() == []


@virtual_time
async def test_rights_in_single_namespaces_are_enough() -> None:
    """Where the whole target may not be read, the namespaces on record are."""
    stage = LeaveStage()

    def confined(call: Call) -> Fault | None:
        listed = call.verb in ("list", "watch") and not call.key.namespace
        asked = call.resource == NAMESPACES
        if call.client.startswith(COMMAND) and (listed or asked):
            return Refuse(Forbidden("not allowed", status=403))
        return None

    async with stage.alive():
        await stage.used("a")
        stage.hub.edit(
            NODES,
            NODE,
            lambda n: n["metadata"]["annotations"].update(
                {"federate.dev/target-identity": "unknown"}
            ),
        )
        stage.target.faults = confined
        await stage.leave()
    assert stage.hub.find(NODES, NODE) is None
    assert stage.target.find(PODS, ObjectKey(stage.namespace, "a")) is None
    assert not [o for r, o in stage.target.store.all() if r == CONFIGMAPS and stage.scope.owns(o)]
    assert any("not to be looked into" in note for note in stage.said.notes)


@virtual_time
async def test_a_record_that_a_user_wrote_keeps_nobody_from_leaving() -> None:
    """It names a namespace that the operator has no rights in: it is passed over, and told."""
    stage = LeaveStage()

    def confined(call: Call) -> Fault | None:
        is_listed = call.verb in ("list", "watch") and call.key.namespace != stage.namespace
        if call.client.startswith(COMMAND) and (is_listed or call.resource == NAMESPACES):
            return Refuse(Forbidden("not allowed", status=403))
        return None

    async with stage.alive():
        await stage.used("a")
        stage.submit("b")
        uid = uid_of(stage.hub_pod("b") or {})
        record = MirrorRecord(pod_uid=uid, mirror=ObjectKey("elsewhere", "b"))
        forged = {RECORD_ANNOTATION: record.format()}
        stage.hub.edit(
            PODS, ObjectKey("default", "b"), lambda o: o["metadata"].update(annotations=forged)
        )
        stage.hub.edit(
            NODES,
            NODE,
            lambda n: n["metadata"]["annotations"].update(
                {"federate.dev/target-identity": "unknown"}
            ),
        )
        stage.target.faults = confined
        await stage.leave()
    assert stage.hub.find(NODES, NODE) is None
    assert stage.target.find(PODS, ObjectKey(stage.namespace, "a")) is None
    assert any("elsewhere may not be looked into" in note for note in stage.said.notes)


@virtual_time
async def test_leading_says_nothing_new_about_the_node() -> None:
    """The command leads with what the Node says of itself: labels, size and taints stay."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.hub.budgeted.add(A)
        before = stage.node()
        with pytest.raises(FederateError, match="not done"):
            await stage.leave(timeout_seconds=60.0)
        after = stage.node()
    assert before is not None and after is not None
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["status"] == before["status"]
    assert after["spec"] == {**before["spec"], "unschedulable": True}


def test_a_node_that_says_both_is_not_patched_again() -> None:
    """Cordon and mark are one patch, written once; half of it is completed."""
    node = {"metadata": {"uid": "u"}, "spec": {}}
    patch = leaving_patch(node, now="then")
    assert patch is not None
    assert json.loads(json.dumps(patch.body)) == {
        "metadata": {"uid": "u", "annotations": {LEAVING_ANNOTATION: "then"}},
        "spec": {"unschedulable": True},
    }
    marked = {"metadata": {"uid": "u", "annotations": {LEAVING_ANNOTATION: "then"}}}
    assert leaving_patch(marked, now="now") is not None
    assert leaving_patch({**marked, "spec": {"unschedulable": True}}, now="now") is None


# -- what a reviewer found -------------------------------------------------------------------------


class OldFederate:
    """Takes the lease in the very moment it is free or run out, as one that knows no mark."""

    def __init__(self, stage: LeaveStage) -> None:
        self._stage = stage
        self.led = False
        self.led_early = False
        """Whether there was a Node when it took the lease."""
        self.is_stopped = False
        self._changed_at = stage.clock()
        stage.hub.store.watches.append(Eyes(self._see))

    def _see(self, change: Change) -> None:
        if change.resource == LEASES and change.key == LEASE and change.new is not None:
            self._changed_at = self._stage.clock()
            if not spec_of(change.new).get("holderIdentity"):
                asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        if not self.is_stopped and self._stage.hub.find(LEASES, LEASE) is not None:
            self.led = True
            self.led_early = self.led_early or self._stage.node() is not None
            self.hold("old")

    def hold(self, holder: str) -> None:
        """Write the lease as an older federate does."""

        def write(lease: JsonDict) -> None:
            was = lease["spec"].get("holderIdentity")
            lease["spec"]["holderIdentity"] = holder
            if holder not in ("", was):
                lease["spec"]["leaseTransitions"] = lease["spec"].get("leaseTransitions", 0) + 1

        self._stage.hub.edit(LEASES, LEASE, write)

    async def run(self) -> None:
        """Wait out a silent holder."""
        while not self.is_stopped:
            await asyncio.sleep(0.1)
            is_silent = self._stage.clock() - self._changed_at > DURATION_SECONDS
            if self._stage.hub.find(LEASES, LEASE) is not None and (self.led or is_silent):
                self._take()


@virtual_time
async def test_an_older_federate_finds_no_free_lease_while_there_is_a_node() -> None:
    """The command holds the lease from the mark until the Node is gone."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        free: list[str] = []

        def see(change: Change) -> None:
            if change.resource != LEASES or change.key != LEASE or stage.node() is None:
                return
            marks = annotations_of(change.new or {})
            if not (change.new and (spec_of(change.new).get("holderIdentity") or not marks)):
                free.append(stage.said.steps[-1])

        stage.hub.store.watches.append(Eyes(see))
        await stage.leave()
        assert free == []
        assert stage.left_behind() == []


@virtual_time
async def test_an_older_federate_stands_by_until_all_is_done() -> None:
    """It takes whatever lease is free, and gets none before the Node is gone."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        leaving = asyncio.create_task(stage.leave())
        await until(lambda: bool(annotations_of(stage.hub.find(LEASES, LEASE) or {})))
        old = OldFederate(stage)
        task = asyncio.create_task(old.run())
        await until(lambda: old.led or leaving.done())
        assert not old.led_early
        old.is_stopped = True
        if old.led:
            assert not leaving.done()
            stage.hub.edit(LEASES, LEASE, lambda o: o["spec"].update(holderIdentity=""))
        await leaving
        await task
        assert stage.left_behind() == []


@pytest.mark.parametrize("is_back_first", [False, True])
@virtual_time
async def test_a_frozen_command_whose_lease_was_taken_removes_nothing_more(
    is_back_first: bool,
) -> None:
    """An older federate led meanwhile, and mirrored: it is told, though it is gone again."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        leaving = asyncio.create_task(stage.leave())
        await until(lambda: any("namespaces in" in step for step in stage.said.steps))
        freeze = lambda c: LostRequest() if c.client.startswith(COMMAND) else None  # noqa: E731
        stage.hub.faults = stage.target.faults = freeze
        old = OldFederate(stage)
        task = asyncio.create_task(old.run())
        await until(lambda: old.led)
        old.is_stopped = is_back_first
        if is_back_first:
            old.hold("")
        await asyncio.sleep(1.0)
        stage.hub.faults = stage.target.faults = None
        with pytest.raises(FederateError, match=r"was taken by|another led"):
            await leaving
        assert [
            c
            for c in stage.target.writes()
            if c.resource in (CONFIGMAPS, NAMESPACES) and c.client.startswith(COMMAND)
        ] == []
        old.is_stopped = True
        await task
        if not is_back_first:
            old.hold("")
        await stage.leave()
        assert stage.left_behind() == []


@virtual_time
async def test_a_hub_that_is_away_for_a_while_is_waited_for() -> None:
    """The lease runs out, and nobody else takes it: the command goes on."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        leaving = asyncio.create_task(stage.leave())
        await until(lambda: any("namespaces in" in step for step in stage.said.steps))
        stage.hub.faults = lambda c: LostRequest() if c.client.startswith(COMMAND) else None
        await asyncio.sleep(2 * DURATION_SECONDS)
        stage.hub.faults = None
        await leaving
        assert stage.left_behind() == []


@virtual_time
async def test_a_lease_that_loses_its_mark_stops_the_clearing() -> None:
    """Anybody may lead then: nothing more is removed in the target."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        leaving = asyncio.create_task(stage.leave())
        await until(lambda: any("namespaces in" in step for step in stage.said.steps))
        await asyncio.sleep(1.0)
        stage.hub.edit(LEASES, LEASE, lambda o: o["metadata"].pop("annotations"))
        with pytest.raises(FederateError, match="has lost its mark"):
            await leaving
        assert [
            c
            for c in stage.target.writes()
            if c.resource in (CONFIGMAPS, NAMESPACES) and c.client.startswith(COMMAND)
        ] == []


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (the clock is virtual)
        await asyncio.sleep(0.1)


@virtual_time
async def test_without_a_node_a_lease_that_has_come_meanwhile_counts() -> None:
    """A federate was started between the first look and the steps: it is retired first."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.hub.delete_by_user(NODES, NODE)
        stage.hub.store.remove(PODS, A)
        stage.hub.store.remove(LEASES, LEASE)
        ports = stage.ports()
        found = await stage.look(ports)
        assert not found.leases
        lease = {"metadata": {"namespace": LEASE.namespace, "name": LEASE.name}}
        stage.hub.add(LEASES, {**lease, "spec": {"holderIdentity": "dies at once"}})
        began = stage.clock()
        await stage.run_leaving(found, ports)
        assert stage.clock() - began > DURATION_SECONDS
        assert stage.left_behind() == []


@virtual_time
async def test_mirrors_that_have_come_meanwhile_keep_the_anchors() -> None:
    """Whatever made them: without their anchor they would be killed."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        seen = stage.target.read(PODS, ObjectKey(stage.namespace, "a"))

        def bring_back(call: Call) -> Fault | None:
            if call.client.startswith(COMMAND) and call.resource == NAMESPACES and late():
                stage.target.faults = None
                body = json.loads(json.dumps(seen))
                for field in ("uid", "resourceVersion"):
                    body["metadata"].pop(field)
                stage.target.add(PODS, body)
            return None

        def late() -> bool:
            return any("namespaces in" in step for step in stage.said.steps)

        stage.target.faults = bring_back
        with pytest.raises(FederateError, match="mirrors have come"):
            await stage.leave()
        assert [
            c
            for c in stage.target.writes()
            if c.resource == CONFIGMAPS and c.client.startswith(COMMAND)
        ] == []
        await stage.leave()
        assert stage.left_behind() == []


@virtual_time
async def test_the_wait_for_namespaces_is_paid_once() -> None:
    """All are looked at twice side by side."""
    stage = LeaveStage()
    async with stage.alive():
        async with stage.federate("before"):
            await asyncio.sleep(3.0)
            for namespace in ("default", "one", "two", "three"):
                stage.submit("a", namespace=namespace)
            await asyncio.sleep(6.0)
        began = stage.clock()
        await stage.leave()
        assert IN_FLIGHT_SECONDS <= stage.clock() - began < 2 * IN_FLIGHT_SECONDS
        assert stage.left_behind() == []


@virtual_time
async def test_no_wait_is_silent() -> None:
    """Whatever lasts longer than two seconds says each second what it waits for."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        began = stage.clock()
        await stage.leave()
        times = [began, *(at for at, _, _ in stage.said.at), stage.clock()]
    assert max(b - a for a, b in itertools.pairwise(times)) <= 2.0
    counted = [left for _, state, left in stage.said.at if "looked at again" in state]
    assert counted[0] > 30
    assert counted == sorted(counted, reverse=True)


@virtual_time
async def test_an_answer_that_is_long_in_coming_is_told() -> None:
    """A cluster that hangs is named by its step, not by silence."""
    said = Said()
    async with looking(said, "looking at edge"):
        await asyncio.sleep(3.5)
    assert said.states == [NO_ANSWER] * 3
    with pytest.raises(FederateError, match="not yet"):
        await Patience(0.0, said).until("x", _slow_failure)
    assert said.states == [NO_ANSWER] * 5
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "ticking"]


async def _slow_failure() -> str:
    await asyncio.sleep(2.5)
    raise FederateError("not yet")


@virtual_time
async def test_a_grace_of_none_is_a_second() -> None:
    """Grace 0 would take the hub pod away at once, before its mirror has ended (C50)."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        ports = stage.ports()
        leaving = Leaving(
            await stage.look(ports),
            target=stage.target_client(),
            rules=DrainRules(grace_seconds=0),
            ports=ports,
            patience=Patience(600.0, stage.said),
        )
        await leaving.run()
    [asked] = [c for c in stage.hub.writes() if c.subresource == "eviction"]
    assert (asked.body or {})["deleteOptions"]["gracePeriodSeconds"] == 1


@virtual_time
async def test_a_command_that_leads_mirrors_nothing_though_the_node_is_made_anew() -> None:
    """Its own leader registers a Node that is deleted meanwhile, which bears no mark yet."""
    stage = LeaveStage()
    late = ObjectKey("default", "late")

    def no_mark(call: Call) -> Fault | None:
        annotations = ((call.body or {}).get("metadata") or {}).get("annotations") or {}
        is_mark = call.resource == NODES and LEAVING_ANNOTATION in annotations
        return LostRequest() if is_mark and call.verb == "patch" else None

    async with stage.alive():
        await stage.used("a")
        stage.hub.budgeted.add(A)
        leaving = asyncio.create_task(stage.leave())
        await asyncio.sleep(25.0)
        stage.hub.faults = no_mark
        stage.hub.delete_by_user(NODES, NODE)
        await until(lambda: stage.node() is not None)
        stage.submit(late.name)
        await asyncio.sleep(10.0)
        assert LEAVING_ANNOTATION not in annotations_of(stage.node() or {})
        assert stage.target.find(PODS, ObjectKey(stage.namespace, late.name)) is None
        stage.hub.faults = None
        stage.hub.budgeted.clear()
        await leaving
        assert stage.left_behind() == []


@virtual_time
async def test_a_pod_that_got_a_mirror_in_the_last_moment_is_not_freed() -> None:
    """What is removed at once is the very version without a mirror on record."""
    stage = LeaveStage()
    stage.submit("a")
    hub = stage.hub.client(f"{COMMAND}-hub")
    assert await free_rest(hub, "edge") == 1
    [asked] = [c for c in stage.hub.writes() if c.verb == "delete"]
    assert "resourceVersion" in (asked.body or {})["preconditions"]


# -- killed anywhere -------------------------------------------------------------------------------

LATE_SECONDS = 8.0
"""A request on the wire outlives its sender, and meets the command that was given again."""


class Killer:
    """Kills the command at its k-th request: it is lost, or arrives late."""

    def __init__(self, stage: LeaveStage, number: int, *, late: bool) -> None:
        self._stage = stage
        self._left = number
        self._late = late
        self.killed = asyncio.Event()
        self.calls = 0

    def __call__(self, call: Call) -> Fault | None:
        if not call.client.startswith(COMMAND):
            return None
        self.calls += 1
        if self.killed.is_set():
            return LostRequest()
        self._left -= 1
        if self._left:
            return None
        self.killed.set()
        if self._late and call.is_write:
            asyncio.get_running_loop().call_later(LATE_SECONDS, self._arrive, call)
        return LostRequest()

    def _arrive(self, call: Call) -> None:
        cluster = self._stage.hub if call.client.endswith("hub") else self._stage.target
        with suppress(ClusterError):
            cluster.carry_out(call)


async def killed_and_repeated(number: int, *, late: bool, with_federate: bool) -> int:
    """Kill the command at that request, give it again, and judge; returns its requests."""
    stage = LeaveStage()
    async with stage.alive():
        async with stage.federate("one"):
            await asyncio.sleep(3.0)
            stage.submit("a")
            stage.submit("daemon", owner="DaemonSet")
            await asyncio.sleep(3.0)
            stage.bring(*(along(stage, kind, "it") for kind in Kind))
            if with_federate:
                return await _kill_and_repeat(stage, number, late=late)
        return await _kill_and_repeat(stage, number, late=late)


async def _kill_and_repeat(stage: LeaveStage, number: int, *, late: bool) -> int:
    before = stage.foreign()
    wrong: list[str] = []

    def see(change: Change) -> None:
        if change.resource == NODES and change.key == NODE and change.new is None:
            wrong.extend(one for one in stage.left_behind() if one.startswith("target"))
            holder = spec_of(stage.hub.read(LEASES, LEASE)).get("holderIdentity") or "nobody"
            if not holder.startswith(COMMAND):
                wrong.append(f"the lease is held by {holder}")

    stage.hub.store.watches.append(Eyes(see))
    killer = Killer(stage, number, late=late)
    stage.hub.faults = stage.target.faults = killer
    leaving = asyncio.create_task(stage.leave())
    killed = asyncio.create_task(killer.killed.wait())
    await asyncio.wait({leaving, killed}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    killed.cancel()
    with suppress(asyncio.CancelledError, FederateError):
        await leaving
    stage.hub.faults = stage.target.faults = None
    await stage.leave()
    await asyncio.sleep(40.0)
    # What never had a mirror may be left to the hub's pod GC.
    left = [one for one in stage.left_behind() if one != "hub pod default/daemon"]
    assert left == [], f"killed at request {number}"
    assert wrong == [], f"when the Node went, killed at request {number}"
    assert stage.foreign() == before, f"killed at request {number}"
    return killer.calls


def kill_at_each(*, late: bool, with_federate: bool, stride: int = 1) -> None:
    number = 1
    while (
        run_virtual(killed_and_repeated(number, late=late, with_federate=with_federate)) >= number
    ):
        number += stride


@pytest.mark.parametrize("with_federate", [False, True])
def test_killed_here_and_there_it_goes_on(with_federate: bool) -> None:
    """Given again, the command comes to the same end; every 17th request (each: `long`)."""
    kill_at_each(late=with_federate, with_federate=with_federate, stride=17)


@pytest.mark.long
@pytest.mark.parametrize(("late", "with_federate"), [(True, False), (False, True)])
def test_killed_anywhere_it_goes_on(late: bool, with_federate: bool) -> None:
    """At any single request of the command, lost or late."""
    kill_at_each(late=late, with_federate=with_federate)


@virtual_time
async def test_c5_a_target_that_never_told_its_name_is_known_by_its_anchors() -> None:
    """Another cluster that does tell its name is not believed while mirrors are on record."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.hub.edit(
            NODES,
            NODE,
            lambda node: node["metadata"]["annotations"].update(
                {"federate.dev/target-identity": "unknown"}
            ),
        )
        anchors = [key_of(o) for r, o in stage.target.store.all() if r == CONFIGMAPS]
        for key in anchors:
            stage.target.store.remove(CONFIGMAPS, key)
        with pytest.raises(TargetChanged, match="could not tell its name"):
            await stage.leave()
    assert stage.hub.find(NODES, NODE) is not None
    assert not [c for c in stage.target.writes() if c.client.startswith(COMMAND)]


@virtual_time
async def test_a_node_that_is_there_again_is_not_called_left() -> None:
    """An older federate took the lease in its last moment, and registered it: the mark stays."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        leaving = asyncio.create_task(stage.leave())
        await until(lambda: bool(annotations_of(stage.hub.find(LEASES, LEASE) or {})))
        seen = stage.hub.read(NODES, NODE)
        old = OldFederate(stage)
        await until(lambda: old.led)
        metadata = {"name": "edge", "annotations": annotations_of(seen)}
        stage.hub.add(NODES, {"metadata": metadata, "spec": {}, "status": {}})
        await asyncio.sleep(3.0)
        old.is_stopped = True
        old.hold("")
        with pytest.raises(FederateError, match="registered edge anew"):
            await leaving
        assert annotations_of(stage.hub.read(LEASES, LEASE))
        await stage.leave()
        assert stage.left_behind() == []


@virtual_time
async def test_no_mirror_goes_after_the_lease_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that was frozen between two of them looks at the lease before it goes on (C70)."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a", "b", "c")
        stage.hub.delete_by_user(NODES, NODE)
        for name in "abc":
            stage.hub.store.remove(PODS, ObjectKey("default", name))
        is_frozen = False
        deleted: list[Call] = []

        def freeze(call: Call) -> Fault | None:
            nonlocal is_frozen
            if call.client.startswith(COMMAND) and (call.verb, call.resource) == ("delete", PODS):
                is_frozen = is_frozen or not deleted
                deleted.append(call)
            return None

        def fence(_election: Election) -> None:
            if is_frozen:
                raise LeadershipLost("ran out")

        monkeypatch.setattr(Election, "fence", fence)
        stage.target.faults = freeze
        leaving = asyncio.create_task(stage.leave())
        await until(lambda: is_frozen)
        await asyncio.sleep(5.0)
        assert len(deleted) == 1
        is_frozen = False
        await leaving
        assert stage.left_behind() == []


@virtual_time
async def test_no_pod_is_freed_where_another_may_lead() -> None:
    """Without a Node pods that never had a mirror are removed: only while the lease is ours."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used()
        stage.hub.delete_by_user(NODES, NODE)
        fresh = stage.submit("fresh")
        begin = stage.said.begin

        def lose_mark(step: str) -> None:
            begin(step)
            if step == "removing the Node":
                stage.hub.edit(LEASES, LEASE, lambda o: o["metadata"].pop("annotations"))

        stage.said.begin = lose_mark  # type: ignore[method-assign]
        with pytest.raises(FederateError, match="has lost its mark"):
            await stage.leave()
        assert stage.hub.find(PODS, fresh) is not None


@virtual_time
async def test_the_way_to_the_hubs_api_server_goes_too() -> None:
    """By hand: a Service and its EndpointSlice, of this virtual node alone."""
    stage = LeaveStage()
    stage.companions = CompanionRules(
        identity=IdentityMode.HUB, advertised=Advertised(host="192.0.2.1", port=6443)
    )
    async with stage.alive():
        await stage.used("a")
        door = ObjectKey(stage.namespace, door_name(stage.scope))
        west = Scope(hub_id=stage.hub_id, node_name="west")
        others = stage.target.read(CONFIGMAPS, ObjectKey(stage.shared, anchor_name(west)))
        wests = render_door(west, stage.shared, addresses=["192.0.2.1"], port=6443, anchor=others)
        kept = [stage.target.add(r, b) for r, b in zip(DOOR_KINDS, wests, strict=True)]
        for resource in DOOR_KINDS:
            assert stage.target.find(resource, door) is not None
        await stage.leave()
        assert stage.left_behind() == []
        assert [stage.target.read(r, key_of(k)) for r, k in zip(DOOR_KINDS, kept, strict=True)] == (
            kept
        )
    asked = [
        (call.verb, call.resource.plural)
        for call in stage.target.writes()
        if call.client.startswith(COMMAND) and call.key == door
    ]
    assert asked == [("delete", "endpointslices"), ("delete", "services")]

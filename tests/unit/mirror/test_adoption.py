"""What never ran is let go only as today's leader would make it (C26, C30, C70)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from federate.claims.rules import ClaimMode, ClaimRules
from federate.companions.holding import Hold
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.companions.steps import Blocked
from federate.errors import ServerFault
from federate.mirror.plan import plan_pod
from federate.mirror.render import RenderRules, render_mirror
from federate.mirror.steps import (
    AnchorState,
    Created,
    CreateMirror,
    DeleteMirror,
    LookUpHubPod,
    LookUpShared,
    Nothing,
    PlanRules,
    PrepareGround,
    UngateMirror,
    WriteHubPod,
)
from federate.model.marks import (
    MADE_AS_ANNOTATION,
    RECORD_ANNOTATION,
    SHARED_LABEL,
    Origin,
    record_of,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    condition_of,
    copied,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.pods import is_gated, node_name_of, phase_of
from federate.model.resources import CLAIMS, PODS, SECRETS
from federate.policy.rules import DaemonSetMode, ImageRewrite, Outcome, PolicyRules
from federate.runtime.companions import identity_rules
from federate.services.hubnames import UNLED, HubApi
from federate.status.project import MIRRORED
from tests.support import claimstage
from tests.support.builders import PodBuilder, pod
from tests.support.clock import virtual_time
from tests.support.companions import ANCHOR, key_for
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call, CrashAfter, CrashBefore, Delay, Fault, Refuse
from tests.support.scene import TARGET_NAMESPACE
from tests.support.views import (
    NOW,
    RULES,
    SCOPE,
    hub_pod,
    intending,
    mirror,
    mirror_key,
    outcome,
    recording,
    sure,
    view,
)
from tests.support.worlds import Late, World

A = ObjectKey("default", "a")
LAX = PolicyRules(outcomes={"privileged": Outcome.ALLOW}, daemon_sets=DaemonSetMode.MIRROR)
STRICT = PolicyRules()
STRIPPING = PolicyRules(outcomes={"privileged": Outcome.STRIP})


def privileged(name: str = "a") -> PodBuilder:
    container = {"name": "main", "image": "busybox", "securityContext": {"privileged": True}}
    return pod(name).with_restart_policy("Never").with_spec(containers=[container])


def is_privileged(mirror: JsonObject) -> bool:
    context = spec_of(mirror)["containers"][0].get("securityContext") or {}
    return bool(context.get("privileged"))


def waits_for(world: World, key: ObjectKey = A) -> str:
    found = world.hub_pod(key)
    assert found is not None
    return (condition_of(found, MIRRORED) or {}).get("reason") or ""


def hub_phase(world: World, key: ObjectKey = A) -> str:
    found = world.hub_pod(key)
    assert found is not None
    return phase_of(found)


def writes(world: World, verb: str) -> list[Call]:
    """What federate sent to the target about pod `a`."""
    return [c for c in world.target.calls if (c.verb, c.resource, c.key.name) == (verb, PODS, "a")]


def stricter(world: World, policy: PolicyRules = STRICT) -> None:
    """The next process goes by that policy."""
    world.policy = policy


def dying(
    world: World, how: Fault, when: Callable[[Call], bool], then: Callable[[], None] | None = None
) -> Callable[[Call], Fault | None]:
    """The process dies over the first such request; `then` happens before the next one lives."""

    def fault_of(call: Call) -> Fault | None:
        if not when(call):
            return None
        world.fault_of = None
        if then is not None:
            then()
        return how

    return fault_of


def creates(call: Call) -> bool:
    return (call.client, call.verb, call.resource) == ("target", "create", PODS)


def records(call: Call) -> bool:
    """The write by which the mirror comes on record."""
    if (call.client, call.verb, call.resource) != ("hub", "patch", PODS):
        return False
    annotations = ((call.body or {}).get("metadata") or {}).get("annotations") or {}
    return bool(json.loads(annotations.get(RECORD_ANNOTATION, "{}")).get("uid"))


def ungates(call: Call) -> bool:
    is_patch = (call.client, call.verb, call.resource) == ("target", "patch", PODS)
    return is_patch and "schedulingGates" in str(call.body)


def never_ran(world: World) -> bool:
    """Nothing of the pod was ever bound."""
    return not any(world.witness.runs.values())


def sound(world: World) -> None:
    assert not world.broken, world.broken
    assert not world.differences(), world.differences()


# -- the decision ----------------------------------------------------------------------------------

PLACE = mirror_key(ObjectKey("default", "web"))
OURS = RenderRules(scope=SCOPE)
PULL = (Kind.SECRET, "pull")


def made(hub: JsonObject, rules: RenderRules, **claims: str) -> JsonDict:
    """The mirror that those rules make, as it stands in the target."""
    mirror = render_mirror(
        hub,
        origin=Origin(scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web"),
        mirror=PLACE,
        anchor=ANCHOR,
        rules=rules,
        claim_names=claims,
    )
    mirror["metadata"] |= {"uid": "mirror-web", "resourceVersion": "7"}
    return mirror


def ruled(rules: RenderRules) -> PlanRules:
    return replace(RULES, render=rules)


def by(policy: PolicyRules) -> RenderRules:
    return RenderRules(policy=policy)


def web(**spec: Any) -> PodBuilder:
    return hub_pod().with_spec(**spec)


NAMING = {"imagePullSecrets": [{"name": "pull"}], "containers": [{"name": "app", "image": "i"}]}
CLAIMING = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "db"}}],
    "containers": [{"name": "app", "image": "i"}],
}
PRIVILEGED = {
    "containers": [{"name": "app", "image": "i", "securityContext": {"privileged": True}}]
}
SOMEBODY = identity_rules(
    SCOPE, CompanionRules(identity=IdentityMode.TARGET, target_account="deployer")
)
EDGE = PolicyRules(images=(ImageRewrite(before="docker.io", after="edge:5000"),))

OTHERWISE: dict[str, tuple[PodBuilder, RenderRules, RenderRules]] = {
    "policy refuses": (web(**PRIVILEGED), by(LAX), by(STRICT)),
    "policy strips": (web(**PRIVILEGED), by(LAX), by(STRIPPING)),
    "a DaemonSet's": (hub_pod().owned_by("DaemonSet", "cni"), by(LAX), by(STRICT)),
    "it pretends": (
        hub_pod().owned_by("DaemonSet", "cni"),
        by(LAX),
        by(PolicyRules(daemon_sets=DaemonSetMode.PRETEND)),
    ),
    "its namespace": (hub_pod(), by(LAX), by(PolicyRules(namespaces=("team-*",)))),
    "a label": (
        hub_pod().with_labels({"team": "blue"}),
        by(LAX),
        by(PolicyRules(denied_labels=("team",))),
    ),
    "an annotation": (
        hub_pod().with_annotations({"team": "blue"}),
        by(LAX),
        by(PolicyRules(denied_annotations=("team",))),
    ),
    "its image": (hub_pod(), by(LAX), by(EDGE)),
    "who it is": (hub_pod(), replace(OURS, identity=SOMEBODY), OURS),
    "a name that is shared": (web(**NAMING), OURS.sharing(frozenset({PULL})), OURS),
    "companions are off": (web(**NAMING), OURS, RenderRules()),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_c26_what_was_made_by_other_rules_is_taken_back(case: str) -> None:
    """After a look at the hub pod, and only as it was seen; by the same rules it is recorded."""
    builder, before, now = OTHERWISE[case]
    hub = intending(builder).build()
    found = made(hub, before)
    shared = {PLACE.namespace: frozenset[tuple[Kind, str]]()}
    first = plan_pod(view(hub, found, shared=shared), ruled(now))
    assert isinstance(first, LookUpHubPod), first
    step = plan_pod(sure(hub, found), ruled(now))
    assert isinstance(step, DeleteMirror), step
    assert (step.mirror, step.as_seen) == (found, True)
    as_before = plan_pod(sure(hub, found), ruled(before))
    assert isinstance(as_before, WriteHubPod), as_before
    assert as_before.reason == "record the mirror"
    assert as_before.refusal is None


@pytest.mark.parametrize("case", OTHERWISE)
def test_c26_what_is_on_record_and_was_not_let_go_is_taken_back_too(case: str) -> None:
    """Then its record is an intent again; without proof that it never ran, it counts as a run."""
    builder, before, now = OTHERWISE[case]
    hub = recording(builder).build()
    found = made(hub, before)
    step = plan_pod(sure(hub, found), ruled(now))
    assert isinstance(step, DeleteMirror), step
    assert step.as_seen
    unproven = plan_pod(sure(hub), ruled(now))
    assert isinstance(unproven, WriteHubPod)
    assert unproven.refusal is not None
    assert unproven.refusal.reason == "MirrorLost"
    for mirrors in ((), (found,)):  # a finalizer of somebody's may keep it for a while
        written = plan_pod(sure(hub, *mirrors, taken_back="mirror-web"), ruled(now))
        assert isinstance(written, WriteHubPod), written
        assert written.intent is None, "nobody may take it for an attempt of his own"
        told = outcome(hub, written)
        record = record_of(told)
        assert record is not None
        assert (record.mirror, record.mirror_uid) == (PLACE, "")
        seen = sure(told, taken_back="mirror-web", shared={PLACE.namespace: frozenset()})
        again = plan_pod(seen, ruled(before))
        assert isinstance(again, CreateMirror)


@pytest.mark.parametrize("case", OTHERWISE)
def test_c70_what_a_late_request_let_go_is_left_alone(case: str) -> None:
    """On record or not: it runs, by the rules of then."""
    builder, before, now = OTHERWISE[case]
    for hub in (recording(builder).build(), intending(builder).build()):
        found = made(hub, before)
        del found["spec"]["schedulingGates"]
        found["spec"]["nodeName"] = "worker"
        step = plan_pod(sure(hub, found), ruled(now))
        assert isinstance(step, WriteHubPod), step
        assert "mirror-web" in annotations_of(outcome(hub, step))[RECORD_ANNOTATION]


def test_an_intent_is_written_only_where_the_hub_keeps_it() -> None:
    """Else the pod's next mirror would come beside a record of the first."""
    hub = recording(hub_pod()).build()
    written = plan_pod(sure(hub, taken_back="mirror-web"), RULES)
    assert isinstance(written, WriteHubPod)
    seen = sure(hub, taken_back="mirror-web", futile=written.write.fingerprint)
    assert isinstance(plan_pod(seen, RULES), Nothing)


def test_c30_what_names_another_claim_is_taken_back() -> None:
    """Only what `claims` says now counts, never what the mirror says."""
    rules = RenderRules(claims=ClaimRules(mode=ClaimMode.TARGET))
    hub = intending(web(**CLAIMING)).build()
    found = made(hub, rules, data="of-another")
    for names in ({"data": "ours"}, None):
        step = plan_pod(sure(hub, found, claim_names=names), ruled(rules))
        assert isinstance(step, DeleteMirror), step
    same = plan_pod(sure(hub, found, claim_names={"data": "of-another"}), ruled(rules))
    assert isinstance(same, WriteHubPod)


def test_c31_what_leads_elsewhere_than_the_hubs_api_server_is_taken_back() -> None:
    """Its aliases can never change; while it is not known where they ought to lead, it waits."""
    hub = intending(hub_pod()).build()
    found = made(hub, RenderRules().leading(HubApi("10.96.0.7")))
    for other in (UNLED, HubApi("10.96.0.8"), HubApi("10.96.0.7", "corp.example")):
        step = plan_pod(sure(hub, found, hub_api=other), RULES)
        assert isinstance(step, DeleteMirror), step
        assert step.as_seen
    same = plan_pod(sure(hub, found, hub_api=HubApi("10.96.0.7")), RULES)
    assert isinstance(same, WriteHubPod), same
    coming = Hold(coming=("the Service for the hub's API server",))
    waits = plan_pod(sure(hub, found, hub_api=None, hold=coming, held_since=NOW), RULES)
    assert isinstance(waits, Nothing), waits


def test_c30_the_target_is_asked_again_what_it_shares() -> None:
    """When the mirror was made it may have been another answer."""
    hub = intending(web(**NAMING)).build()
    found = made(hub, OURS.sharing(frozenset({PULL})))
    asked = plan_pod(view(hub, found), ruled(OURS))
    assert isinstance(asked, LookUpShared)
    assert asked.namespace == PLACE.namespace
    still = sure(hub, found, shared={PLACE.namespace: frozenset({PULL})})
    assert isinstance(plan_pod(still, ruled(OURS)), WriteHubPod)


@pytest.mark.parametrize(
    "fields",
    [
        {"leaving": True},
        {"anchor": AnchorState.GONE},
        {"weakened_by": "hostUsers"},
        {"network_refusal": Blocked(reason="NetworkPolicyNotEnforced", message="no")},
        {"hold": Hold(stuck=((key_for(Kind.SECRET, "db"), Blocked(reason="X", message="x")),))},
        {"mirror_key": ObjectKey("elsewhere", "web")},
        {"mirror_key": None},
    ],
    ids=str,
)
def test_c26_what_would_not_be_made_now_is_taken_back(fields: JsonDict) -> None:
    """It is judged as if it were to be made."""
    hub = intending(hub_pod()).build()
    found = made(hub, RULES.render)
    assert isinstance(plan_pod(sure(hub, found), RULES), WriteHubPod)
    step = plan_pod(sure(hub, found, **fields), RULES)
    assert isinstance(step, DeleteMirror), step


def test_c20_it_waits_for_an_earlier_pods_mirror() -> None:
    """As its create would have."""
    hub = intending(hub_pod()).build()
    earlier = mirror(of_uid="uid-of-yesterday", uid="earlier").terminating().build()
    earlier["metadata"]["namespace"] = "elsewhere"
    step = plan_pod(sure(hub, made(hub, RULES.render), earlier), RULES)
    assert isinstance(step, DeleteMirror)


def test_c30_it_waits_for_companions_and_for_ground() -> None:
    """Neither is a reason to take it back: the one is soon there, the other may not be read yet."""
    hub = intending(web(**NAMING)).build()
    found = made(hub, OURS)
    coming = sure(hub, found, hold=Hold(coming=(key_for(Kind.SECRET, "pull"),)), held_since=NOW)
    assert isinstance(plan_pod(coming, ruled(OURS)), Nothing)
    early = sure(hub, found, anchor=AnchorState.NEVER)
    assert isinstance(plan_pod(early, ruled(OURS)), PrepareGround)


def test_one_that_does_not_say_what_it_was_made_as_is_made_anew() -> None:
    """Of an older federate, or of a target that takes the annotation off."""
    hub = intending(hub_pod()).build()
    found = made(hub, RULES.render)
    del found["metadata"]["annotations"][MADE_AS_ANNOTATION]
    assert isinstance(plan_pod(sure(hub, found), RULES), DeleteMirror)


def test_what_this_process_made_itself_is_known_by_the_answer() -> None:
    """Whatever became of its annotations, and of the hub pod: it goes on record, and is let go."""
    hub = intending(hub_pod()).build()
    found = made(hub, RULES.render)
    created = Created(uid="mirror-web", spec=found["spec"])
    del found["metadata"]["annotations"][MADE_AS_ANNOTATION]
    changed = copied(hub)
    changed["spec"]["containers"][0]["image"] = "another"
    step = plan_pod(view(changed, found, created=created), RULES)
    assert isinstance(step, WriteHubPod)
    told = outcome(changed, step)
    assert isinstance(plan_pod(view(told, found, created=created), RULES), UngateMirror)
    other = Created(uid="another", spec=found["spec"])
    assert not isinstance(plan_pod(view(told, found, created=other), RULES), UngateMirror)


def test_what_it_sent_is_what_a_field_is_missed_of() -> None:
    """Not what would be sent now: between the two the hub pod may have changed."""
    hub = intending(hub_pod()).build()
    found = made(hub, RULES.render)
    created = Created(uid="mirror-web", spec=copied(found["spec"]))
    del found["spec"]["hostname"]
    step = plan_pod(view(hub, found, created=created), RULES)
    assert isinstance(step, WriteHubPod)
    assert step.refusal is not None
    assert step.refusal.reason == "FieldsDropped"


def test_what_the_targets_admission_adds_is_its_own_business() -> None:
    """A mesh's init container has capabilities that no hub pod may ask for."""
    hub = intending(hub_pod()).build()
    found = made(hub, RULES.render)
    mesh = {"name": "mesh", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
    found["spec"]["initContainers"] = [mesh]
    assert isinstance(plan_pod(sure(hub, found), RULES), WriteHubPod)


def test_a_hub_user_cannot_say_what_a_mirror_was_made_as() -> None:
    """His annotations of that prefix stay behind."""
    forged = hub_pod().with_annotations({MADE_AS_ANNOTATION: "forged"}).build()
    plain = hub_pod().build()
    assert made(forged, RULES.render)["metadata"] == made(plain, RULES.render)["metadata"]


# -- other rules than today's ----------------------------------------------------------------------


@virtual_time
async def test_c70_a_late_create_of_a_laxer_leader_never_runs() -> None:
    """It was sent before the policy became stricter, and arrives long after."""
    world = World(policy=LAX)
    async with world.running():
        world.fault_of = lambda call: _on_its_way(world, call)
        world.submit(privileged())
        await asyncio.sleep(20.0)
        assert world.processes == 2
        assert waits_for(world) == "PolicyRefused"
        await asyncio.sleep(60.0)
        assert [c.body["metadata"]["name"] for c in writes(world, "create") if c.body] == ["a"]
        assert len(writes(world, "delete")) == 1, "it did arrive"
        assert world.mirror(A) is None
        assert never_ran(world)
        assert waits_for(world) == "PolicyRefused"
        sound(world)


def _on_its_way(world: World, call: Call) -> Fault | None:
    if not creates(call):
        return None
    world.fault_of = None
    stricter(world)
    return world._on_its_way(call, Late(30.0))


@pytest.mark.parametrize("policy", [STRICT, STRIPPING], ids=["refuse", "strip"])
@pytest.mark.parametrize("when", [creates, records], ids=["created", "on record"])
@virtual_time
async def test_c26_what_a_laxer_process_died_over_never_runs(
    policy: PolicyRules, when: Callable[[Call], bool]
) -> None:
    """Also where it was on record: nobody let it go. Its hub pod is as one that has no mirror."""
    world = World(policy=LAX, is_brisk=True)
    async with world.running():
        world.fault_of = dying(world, CrashAfter(), when, lambda: stricter(world, policy))
        world.submit(privileged())
        await asyncio.sleep(60.0)
        assert world.processes == 2
        assert not any(is_privileged(mirror) for mirror in ran(world))
        if policy is STRICT:
            assert waits_for(world) == "PolicyRefused"
            assert world.mirror(A) is None
            stricter(world, LAX)
            world.kill()
            await asyncio.sleep(30.0)
        assert hub_phase(world) == "Running"
        sound(world)


def ran(world: World) -> list[JsonObject]:
    """The target's pods that have a node."""
    return [mirror for mirror in world.witness.target_pods() if node_name_of(mirror)]


@virtual_time
async def test_c26_a_daemonsets_pod_of_a_laxer_process_never_runs() -> None:
    world = World(policy=LAX)
    async with world.running():
        world.fault_of = dying(world, CrashAfter(), creates, lambda: stricter(world))
        world.submit(pod("a").owned_by("DaemonSet", "cni"))
        await asyncio.sleep(60.0)
        assert waits_for(world) == "DaemonSetNotMirrored"
        assert world.mirror(A) is None
        assert never_ran(world)


@virtual_time
async def test_c30_a_mirror_that_names_what_is_shared_no_more_never_runs() -> None:
    """A process died over it; the label was taken off before the next one looked."""
    world = CompanionWorld()
    place = ObjectKey(TARGET_NAMESPACE, "pull")

    def unshare() -> None:
        with world.others():
            world.target.edit(SECRETS, place, lambda obj: obj["metadata"].update(labels={}))

    async with world.running():
        world.submit(needing("first", (Kind.SECRET, "nothing")))
        await world.until(lambda: world.mirror(ObjectKey("default", "first")) is not None)
        with world.others():
            meta = {"namespace": place.namespace, "name": "pull", "labels": {SHARED_LABEL: "true"}}
            world.target.add(SECRETS, {"metadata": meta, "data": {}})
        world.fault_of = dying(world, CrashAfter(), creates, unshare)
        world.submit(needing("a", (Kind.SECRET, "pull")))
        await world.until(lambda: world.processes == 2 and bool(let_go(world)))
        [source] = spec_of(let_go(world)[0])["containers"][0]["envFrom"]
        assert source["secretRef"]["name"] != "pull"
        assert len(writes(world, "create")) == 2
        assert not world.broken


def let_go(world: World) -> list[JsonDict]:
    found = world.mirror(A)
    return [found] if found is not None and not is_gated(found) else []


@pytest.mark.parametrize("when", [creates, records], ids=["created", "on record"])
@pytest.mark.parametrize("after", range(8))
@virtual_time
async def test_c20_who_dies_while_it_is_taken_back_lets_nothing_run(
    after: int, when: Callable[[Call], bool]
) -> None:
    """The one after it comes to the same; or says that one on record is lost, which is no run."""
    world = World(policy=LAX, is_brisk=True)

    def become_strict() -> None:
        stricter(world)
        for cluster in ("hub", "target"):
            world.plan_fault(cluster, CrashBefore() if after % 2 else CrashAfter(), after=after)

    async with world.running():
        world.fault_of = dying(world, CrashAfter(), when, become_strict)
        world.submit(privileged())
        await asyncio.sleep(120.0)
        assert world.processes > 2
        found = world.hub_pod(A) or {}
        is_lost = when is records and status_of(found).get("reason") == "MirrorLost"
        assert is_lost or waits_for(world) == "PolicyRefused"
        assert world.mirror(A) is None
        assert never_ran(world)
        sound(world)


# -- what is let go all the same -------------------------------------------------------------------


@pytest.mark.parametrize("when", [creates, records], ids=["created", "on record"])
@virtual_time
async def test_c20_what_a_process_of_the_same_rules_died_over_is_let_go(
    when: Callable[[Call], bool],
) -> None:
    """Made once, by the dead one; with labels, annotations and what comes along."""
    world = CompanionWorld(is_brisk=True)
    world.give(Kind.SECRET, "db", password="x")
    async with world.running():
        world.fault_of = dying(world, CrashAfter(), when)
        builder = needing("a", (Kind.SECRET, "db")).with_labels({"app": "web"})
        world.submit(builder.with_annotations({"team": "blue", MADE_AS_ANNOTATION: "forged"}))
        await world.until(lambda: world.processes == 2 and bool(let_go(world)))
        assert len(writes(world, "create")) == 1
        assert not writes(world, "delete")
        assert annotations_of(let_go(world)[0]).get(MADE_AS_ANNOTATION) != "forged"
        assert not world.broken


@pytest.mark.parametrize("when", [creates, records], ids=["created", "on record"])
@virtual_time
async def test_c33_with_its_claims(when: Callable[[Call], bool]) -> None:
    """They are called today as they were then."""
    world = World(is_brisk=True, claims=claimstage.RULES)
    with world.others():
        storage = claimstage.Storage(world.hub, world.target, acting=world.others)
        world.hub.add(CLAIMS, claimstage.hub_claim(storageClassName="fed"))
    control = asyncio.create_task(storage.run())
    async with world.running():
        world.fault_of = dying(world, CrashAfter(), when)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        world.submit(pod("a").with_spec(volumes=[volume]))
        await asyncio.sleep(60.0)
        assert world.processes == 2
        assert len(writes(world, "create")) == 1
        assert hub_phase(world) == "Running"
    control.cancel()


@virtual_time
async def test_c30_it_waits_for_companions_that_went_meanwhile() -> None:
    """What a dead process made starts with no less than what is made now."""
    world = CompanionWorld(is_brisk=True)
    world.give(Kind.SECRET, "db", password="x")
    started_with: list[JsonDict | None] = []

    def slow(call: Call) -> Fault | None:
        if ungates(call):
            started_with.append(world.companion(Kind.SECRET, "db"))
        is_bringing = (call.client, call.verb, call.resource) == ("target", "create", SECRETS)
        return Delay(3.0) if is_bringing else None

    def then() -> None:
        world.admin_deletes(Kind.SECRET, "db")
        world.fault_of = slow

    async with world.running():
        world.fault_of = dying(world, CrashAfter(), creates, then)
        world.submit(needing("a", (Kind.SECRET, "db")))
        await world.until(lambda: bool(let_go(world)))
        assert len(started_with) == 1
        assert started_with[0] is not None
        assert len(writes(world, "create")) == 1


@virtual_time
async def test_c26_a_mirror_that_runs_is_left_alone_by_a_stricter_process() -> None:
    world = World(policy=LAX, is_brisk=True)
    async with world.running():
        world.submit(privileged())
        await asyncio.sleep(10.0)
        assert len(ran(world)) == 1
        stricter(world)
        world.kill()
        await asyncio.sleep(120.0)
        assert world.processes == 2
        assert len(ran(world)) == 1
        assert not writes(world, "delete")
        sound(world)


def strip_annotation(call: Call) -> Fault | None:
    """A webhook of the target lets no annotation through that it does not know."""
    if creates(call):
        assert call.body is not None
        call.body["metadata"]["annotations"].pop(MADE_AS_ANNOTATION, None)
    return None


@pytest.mark.parametrize("dies", [None, creates, records], ids=["", "created", "on record"])
@virtual_time
async def test_a_target_that_takes_the_fingerprint_off_starts_no_storm(
    dies: Callable[[Call], bool] | None,
) -> None:
    """What a process made itself it knows by the answer; only after a crash one is made anew."""
    world = World(is_brisk=True)
    crashed: list[Call] = []

    def fault_of(call: Call) -> Fault | None:
        strip_annotation(call)
        if dies is not None and not crashed and dies(call):
            crashed.append(call)
            return CrashAfter()
        return None

    async with world.running():
        world.fault_of = fault_of
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(300.0)
        assert len(writes(world, "create")) == (1 if dies is None else 2)
        assert len(writes(world, "delete")) == (0 if dies is None else 1)
        assert [phase_of(mirror) for mirror in ran(world)] == ["Running"]
        sound(world)


@virtual_time
async def test_c20_a_hub_pod_that_changes_while_its_mirror_is_made_keeps_it() -> None:
    """Between create and record, and between record and gate: the change follows as ever."""
    world = World(is_brisk=True)
    left = [creates, records, ungates]

    def change(pod_: JsonDict) -> None:
        pod_["metadata"]["labels"] = {"round": str(len(left))}
        pod_["spec"]["containers"][0]["image"] = f"busybox:{len(left)}"

    def fault_of(call: Call) -> Fault | None:
        if left and left[0](call):
            del left[0]
            with world.others():
                world.hub.edit(PODS, A, change)
        return None

    async with world.running():
        world.fault_of = fault_of
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(120.0)
        assert not left
        assert len(writes(world, "create")) == 1
        assert not writes(world, "delete")
        sound(world)


@virtual_time
async def test_a_gated_mirror_of_an_older_federate_is_made_anew() -> None:
    """It says nothing of what it was made as; those that run are left alone, and none is lost."""
    world = World(is_brisk=True)
    names = [f"b{number}" for number in range(5)]

    def older(call: Call) -> Fault | None:
        strip_annotation(call)
        # All but the first are on record, and not let go when it is stopped.
        return Refuse(ServerFault("etcd", status=500)) if ungates(call) and ran(world) else None

    async with world.running():
        world.fault_of = older
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(5.0)
        kept = uid_of(ran(world)[0])
        for name in names:
            world.submit(pod(name).with_restart_policy("Never"))
        await asyncio.sleep(5.0)
        assert len(ran(world)) == 1
        world.fault_of = None
        world.kill()
        await asyncio.sleep(60.0)
        assert len(ran(world)) == 1 + len(names)
        assert kept in {uid_of(mirror) for mirror in ran(world)}
        for name in ("a", *names):
            assert hub_phase(world, ObjectKey("default", name)) == "Running"
        sound(world)


@virtual_time
async def test_c70_one_that_was_let_go_just_then_is_not_taken_back() -> None:
    """A former leader's late patch lifts the gate before the delete arrives: it runs, and stays."""
    world = World(policy=LAX, is_brisk=True)
    lifted: list[str] = []

    def lift(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "delete", PODS) and not lifted:
            lifted.append(call.key.name)
            with world.others():
                key = world.mirror_key(A)
                world.target.edit(PODS, key, lambda p: p["spec"].pop("schedulingGates"))
                world.target.schedule(key, "worker")
        return None

    def then() -> None:
        stricter(world)
        world.fault_of = lift

    async with world.running():
        world.fault_of = dying(world, CrashAfter(), records, then)
        world.submit(privileged())
        await asyncio.sleep(120.0)
        assert lifted
        assert [is_privileged(mirror) for mirror in ran(world)] == [True]
        record = record_of(world.hub_pod(A) or {})
        assert record is not None
        assert record.mirror_uid == uid_of(ran(world)[0])
        assert hub_phase(world) == "Running"
        sound(world)


@virtual_time
async def test_c20_one_on_record_that_went_in_another_way_counts_as_a_run() -> None:
    """It was let go, ran and was removed before the delete arrived: no second one is made."""
    world = World(policy=LAX, is_brisk=True)
    done: list[str] = []

    def overtake(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "delete", PODS) and not done:
            done.append(call.key.name)
            with world.others():
                key = world.mirror_key(A)
                world.target.edit(PODS, key, lambda p: p["spec"].pop("schedulingGates"))
                world.target.schedule(key, "worker")
                world.target.store.remove(PODS, key)
        return None

    def then() -> None:
        stricter(world, STRIPPING)
        world.fault_of = overtake

    async with world.running():
        world.fault_of = dying(world, CrashAfter(), records, then)
        world.submit(privileged())
        await asyncio.sleep(120.0)
        assert done
        assert len(writes(world, "create")) == 1
        assert status_of(world.hub_pod(A) or {})["reason"] == "MirrorLost"
        assert not world.broken, world.broken

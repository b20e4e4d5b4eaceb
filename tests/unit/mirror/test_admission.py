"""Host ports of pods that were bound past the scheduler: who is admitted, waits, or is rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.errors import Forbidden, ServerFault
from federate.mirror.admission import Applicant, Claim, PortClash, applicant_of, find_clash
from federate.mirror.plan import HELD_AGAIN, PORTS_AGAIN, plan_pod
from federate.mirror.ports import PodMemories, PodPorts, PortRegistry
from federate.mirror.render import RenderRules
from federate.mirror.steps import (
    AnchorState,
    Lane,
    LookUpHubPod,
    LookUpRival,
    LookUpRivalMirror,
    Nothing,
    PlanRules,
    PrepareGround,
    WriteHubPod,
    lane_of,
    touches_target,
)
from federate.model.hostports import HostPort
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    condition_of,
    key_of,
    status_of,
    uid_of,
)
from federate.model.pods import phase_of
from federate.model.resources import PODS
from federate.policy.rules import DaemonSetMode, Outcome, PolicyRules
from federate.status.project import MIRRORED
from tests.support.builders import PodBuilder, pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Fault, LostRequest, Refuse
from tests.support.scene import SCOPE as STAGE_SCOPE
from tests.support.views import (
    OTHER_SCOPE,
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
from tests.support.worlds import World

ALLOWING = PolicyRules(outcomes={"hostPorts": Outcome.ALLOW})
OPEN: PlanRules = replace(RULES, render=RenderRules(policy=ALLOWING))
WORDS = (
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: "
    "TCP 80 is taken by another pod of this node"
)


def port(number: int = 80, **more: Any) -> list[JsonDict]:
    ports = [{"containerPort": 1, "hostPort": number, "protocol": "TCP", **more}]
    return [{"name": "main", "image": "busybox", "ports": ports}]


def asking(name: str = "web", number: int = 80, *, second: int = 0, **more: Any) -> PodBuilder:
    """A pod that its creator bound to the node, made in that second."""
    built = hub_pod(name).with_spec(containers=port(number, **more)).with_status(conditions=[])
    metadata = {**built.pod["metadata"], "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
    return replace(built, pod={**built.pod, "metadata": metadata})


def placed(name: str = "web", number: int = 80, *, second: int = 0) -> PodBuilder:
    """The same, bound by the scheduler."""
    return asking(name, number, second=second).with_condition("PodScheduled", "True")


def told(builder: PodBuilder, reason: str) -> PodBuilder:
    return builder.with_condition(MIRRORED, "False", reason=reason)


@dataclass(frozen=True, slots=True)
class Known:
    """A registry of these pods."""

    pods: tuple[Applicant, ...]
    mirrors: Mapping[str, JsonObject] = field(default_factory=dict)
    """By the uid that is on record."""
    read: frozenset[str] = frozenset()
    mirrors_read: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)

    def applicants(self, port: HostPort) -> Iterable[Applicant]:
        self.asked.append(port.place)
        return [one for one in self.pods if any(p.place == port.place for p in one.ports)]

    def mirror_of(self, holder: Applicant) -> JsonObject | None:
        return self.mirrors.get(holder.mirror_uid)

    def was_read(self, uid: str) -> bool:
        return uid in self.read

    def was_mirror_read(self, uid: str) -> bool:
        return uid in self.mirrors_read


def applicant(built: PodBuilder, policy: PolicyRules = ALLOWING) -> Applicant:
    """One that a label marks as refused is so by the rules."""
    made = built.build()
    is_refused = annotations_of(made).get("refused") == "yes"
    return applicant_of(made, policy, is_refused=is_refused)


def refused(builder: PodBuilder) -> PodBuilder:
    return told(builder.with_annotations({"refused": "yes"}), "PolicyRefused")


def running(name: str, number: int = 80, **more: Any) -> PodBuilder:
    """One that was admitted, and has a mirror on record: `mirror-NAME`."""
    return recording(asking(name, number, **more), uid=f"mirror-{name}").running()


def mirrors_of(*names: str, number: int = 80) -> dict[str, JsonObject]:
    """Their mirrors, which live."""
    made = {f"mirror-{name}": mirror(name).with_spec(containers=port(number)) for name in names}
    return {uid: built.running().build() for uid, built in made.items()}


def known(*pods: PodBuilder, policy: PolicyRules = ALLOWING, **fields: Any) -> Known:
    return Known(tuple(applicant(one, policy) for one in pods), **fields)


def clash_of(mine: PodBuilder, *others: PodBuilder, **fields: Any) -> PortClash | None:
    policy = fields.pop("policy", ALLOWING)
    registry = known(mine, *others, policy=policy, **fields)
    return find_clash(applicant(mine, policy), registry)


def claim_of(mine: PodBuilder, *others: PodBuilder, **fields: Any) -> Claim | None:
    clash = clash_of(mine, *others, **fields)
    return None if clash is None else clash.claim


# -- who has a port --------------------------------------------------------------------------------


def test_who_has_a_living_mirror_holds_its_ports() -> None:
    """Whoever is older, whatever the rules say of it by now."""
    mine, mirrors = asking(second=1), mirrors_of("b")
    assert claim_of(mine, running("b", second=9), mirrors=mirrors) is Claim.HOLDS
    assert claim_of(mine, refused(running("b")), mirrors=mirrors) is Claim.HOLDS
    assert claim_of(mine) is None
    assert clash_of(mine, running("b", 81), mirrors=mirrors) is None


def test_a_mirror_that_has_not_the_port_itself_takes_it_from_nobody() -> None:
    """It was made when the policy stripped ports, say: only the mirror tells what is taken."""
    assert claim_of(asking(), running("b"), mirrors=mirrors_of("b", number=81)) is None


def test_c42_a_record_alone_makes_others_wait_and_no_more() -> None:
    """It is an annotation: its user can write it, and a target may refuse what was intended."""
    mine = asking()
    assert claim_of(mine, intending(asking("b", second=9))) is Claim.MAY_HOLD
    assert claim_of(mine, running("b")) is Claim.MAY_HOLD


def test_whom_the_rules_refuse_makes_nobody_wait() -> None:
    """It has no mirror, and gets none: whatever it has on record, and whoever placed it."""
    mine = asking(second=5)
    for other in (asking("b"), placed("b"), intending(asking("b")), running("b")):
        assert claim_of(mine, refused(other)) is None
        assert claim_of(mine, refused(other).terminating()) is None


def test_who_ends_holds_them_until_it_has_ended() -> None:
    """Also where its mirror ended, goes or is gone, and it does not say so yet."""
    mine = asking()
    assert claim_of(mine, intending(asking("b")).terminating()) is Claim.ENDS
    ends = running("b").terminating()
    assert claim_of(mine, ends, mirrors=mirrors_of("b")) is Claim.ENDS
    for state in ("terminating", "failed", "succeeded"):
        goes = getattr(mirror("b").with_spec(containers=port()), state)().build()
        assert claim_of(mine, running("b"), mirrors={"mirror-b": goes}) is Claim.MAY_HOLD
    ended = recording(asking("b"), uid="mirror-b").failed()
    assert claim_of(mine, ended, mirrors=mirrors_of("b")) is None


def test_of_two_that_are_new_the_older_comes_first() -> None:
    """Those of one second by their uid; whoever waits for something else stands in nobody's way."""
    older, younger = asking("a", second=1), asking("b", second=2)
    assert claim_of(younger, older) is Claim.COMES_FIRST
    assert claim_of(older, younger) is None
    same = asking("b", second=1)
    assert (claim_of(older, same), claim_of(same, older)) == (None, Claim.COMES_FIRST)
    assert claim_of(younger, told(older, "NodePorts")) is Claim.COMES_FIRST
    assert claim_of(younger, told(older, "CompanionMissing")) is None
    assert claim_of(younger, older.terminating()) is None
    nowhere = older.with_status(phase="Running", reason="NotRunHere")
    assert claim_of(younger, nowhere) is None


def test_whom_the_scheduler_gave_a_port_comes_before_who_was_bound_past_it() -> None:
    """However young it is, and whatever it waits for."""
    old, young = asking("a", second=1), placed("b", second=2)
    assert claim_of(old, young) is Claim.COMES_FIRST
    assert claim_of(old, told(young, "CompanionMissing")) is Claim.COMES_FIRST
    assert claim_of(young, old) is None
    assert claim_of(placed("c", second=3), young) is Claim.COMES_FIRST


def test_who_waits_for_another_port_itself_does_not_come_first() -> None:
    """Else one that may never be admitted would keep others from a port that nobody has."""
    both = asking("a", second=1)
    ports = [*port(80)[0]["ports"], *port(90)[0]["ports"]]
    both = both.with_spec(containers=[{"name": "main", "image": "busybox", "ports": ports}])
    mine, holder = asking("b", second=2), intending(asking("c", 90))
    assert claim_of(mine, told(both, "NodePorts")) is Claim.COMES_FIRST
    assert claim_of(mine, told(both, "NodePorts"), holder) is None


def test_only_what_the_policy_lets_through_counts() -> None:
    mine, other = asking(), intending(asking("b"))
    stripping = PolicyRules(outcomes={"hostPorts": Outcome.STRIP})
    assert clash_of(mine, other, policy=stripping) is None
    assert clash_of(mine, other) is not None


def test_a_port_of_another_address_or_protocol_is_another() -> None:
    mine = asking()
    assert clash_of(mine, intending(asking("b", protocol="UDP"))) is None
    assert clash_of(mine, intending(asking("b", hostIP="10.0.0.1"))) is not None
    here = asking(hostIP="10.0.0.2")
    assert clash_of(here, intending(asking("b", hostIP="10.0.0.1"))) is None


def test_the_strongest_claim_counts_and_of_equal_ones_what_was_read() -> None:
    """So little is read, and one that was read is enough."""
    mine = asking(second=5)
    ends, may = intending(asking("b")).terminating(), intending(asking("e"))
    first, mirrors = asking("a", second=1), mirrors_of("c", "d")
    found = clash_of(mine, first, may, ends, running("c"), mirrors=mirrors)
    assert found is not None
    assert (found.claim, found.rival.name, found.is_sure) == (Claim.HOLDS, "c", False)
    assert (found.mirror, found.is_mirror_sure) == (mirror_key(found.rival), False)
    for others, claim in (
        ((first, may, ends), Claim.ENDS),
        ((first, may), Claim.MAY_HOLD),
        ((first,), Claim.COMES_FIRST),
    ):
        weaker = clash_of(mine, *others)
        assert weaker is not None
        assert (weaker.claim, weaker.mirror) == (claim, None)
    both = running("c"), running("d")
    read = clash_of(mine, *both, mirrors=mirrors, read=frozenset({"uid-d"}))
    assert read is not None
    assert (read.rival, read.rival_uid, read.is_sure, read.is_mirror_sure) == (
        ObjectKey("default", "d"),
        "uid-d",
        True,
        False,
    )
    one = frozenset({"uid-d"})
    sure_of = clash_of(mine, *both, mirrors=mirrors, read=one, mirrors_read=one)
    assert sure_of is not None
    assert (sure_of.rival_uid, sure_of.is_mirror_sure) == ("uid-d", True)


def test_a_pod_without_host_ports_asks_nobody() -> None:
    registry = known(intending(asking("b")))
    assert find_clash(applicant(hub_pod("web")), registry) is None
    assert registry.asked == []


STATES: dict[str, Callable[[PodBuilder], PodBuilder]] = {
    "new": lambda made: made,
    "told": lambda made: told(made, "NodePorts"),
    "waits": lambda made: told(made, "CompanionMissing"),
    "refused": refused,
    "intended": intending,
    "ending": lambda made: intending(made).terminating(),
    "over": lambda made: made.failed(),
}
PODS_ST = st.lists(
    st.tuples(
        st.sampled_from(sorted(STATES)),
        st.integers(0, 2),
        st.integers(80, 82),
        st.booleans(),
    ),
    max_size=6,
)


def crowd(drawn: list[tuple[str, int, int, bool]]) -> list[Applicant]:
    made = []
    for number, (state, second, wanted, is_placed) in enumerate(drawn):
        make = placed if is_placed else asking
        built = STATES[state](make(f"p{number}", wanted, second=second))
        made.append(applicant(built))
    return made


@given(drawn=PODS_ST)
def test_of_those_that_are_not_admitted_no_two_of_one_port_may_go_on(
    drawn: list[tuple[str, int, int, bool]],
) -> None:
    """And none where somebody has it; but one may, where nobody has and somebody is to."""
    pods = crowd(drawn)
    registry = Known(tuple(pods))
    waiting = [one for one in pods if not (one.is_recorded or one.is_over or one.is_refused)]
    free = [one for one in waiting if find_clash(one, registry) is None]
    for wanted in (80, 81, 82):

        def wants(one: Applicant, wanted: int = wanted) -> bool:
            return any(port.port == wanted for port in one.ports)

        is_held = any(one.is_recorded and not one.is_over and wants(one) for one in pods)
        going = [one for one in free if wants(one)]
        if is_held:
            assert not going
            continue
        # Those that wait for something else are not about to go on: the plan refuses them before.
        told_else = [one for one in going if not one.is_next]
        assert len(going) - len(told_else) <= 1
        if any(one.is_next and wants(one) for one in waiting) and not any(
            one.is_scheduled and wants(one) for one in waiting
        ):
            assert len([one for one in going if one.is_next]) == 1


@given(drawn=PODS_ST, data=st.data())
def test_who_goes_first_does_not_rest_on_the_order_of_a_listing(
    drawn: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    pods = crowd(drawn)
    shuffled = data.draw(st.permutations(pods))
    for one in pods:
        before, after = (find_clash(one, Known(tuple(order))) for order in (pods, shuffled))
        assert before == after


def test_three_of_one_second_have_one_order() -> None:
    trio = [asking(name, second=1) for name in "abc"]
    for order in permutations(trio):
        going = [one for one in trio if clash_of(one, *order) is None]
        assert [uid_of(one.build()) for one in going] == ["uid-a"]


# -- what becomes of the pod -----------------------------------------------------------------------

HOLDER = PortClash(
    port=HostPort(port=80),
    claim=Claim.HOLDS,
    rival=ObjectKey("default", "b"),
    rival_uid="uid-b",
    mirror=mirror_key(ObjectKey("default", "b")),
)
SURE = replace(HOLDER, is_sure=True, is_mirror_sure=True)


def said(step: object, hub: JsonObject) -> Mapping[str, Any]:
    assert isinstance(step, WriteHubPod), step
    assert step.refusal is not None
    assert step.refusal.reason == "NodePorts"
    return status_of(outcome(hub, step))


def test_a_pod_is_rejected_in_a_kubelets_words_once_all_is_read_anew() -> None:
    """Itself, whoever has its port, and that one's mirror: then it is Failed, as on any node.

    In the lane of creates, so that a target that hangs holds up no status (C2).
    """
    hub = asking().build()
    look = plan_pod(view(hub, port_clash=HOLDER, anchor=AnchorState.NEVER), OPEN)
    assert look == LookUpHubPod(reason=look.reason, lane=Lane.SYNC)
    look = plan_pod(sure(hub, port_clash=HOLDER), OPEN)
    assert look == LookUpRival(reason=look.reason, rival=HOLDER.rival, uid="uid-b")
    assert (lane_of(look), touches_target(look)) == (Lane.SYNC, False)
    look = plan_pod(sure(hub, port_clash=replace(HOLDER, is_sure=True)), OPEN)
    assert HOLDER.mirror is not None
    assert look == LookUpRivalMirror(reason=look.reason, mirror=HOLDER.mirror, uid="uid-b")
    assert (lane_of(look), touches_target(look)) == (Lane.SYNC, True)
    step = plan_pod(sure(hub, port_clash=SURE), OPEN)
    assert isinstance(step, WriteHubPod) and step.fails
    status = said(step, hub)
    assert (status["phase"], status["message"]) == ("Failed", f"Pod was rejected: {WORDS}")
    assert "containerStatuses" not in status
    after = outcome(hub, step)
    assert isinstance(plan_pod(sure(after, port_clash=SURE), OPEN), Nothing)


def test_c26_one_of_an_owners_pods_is_rejected_in_each_back_off() -> None:
    """The others wait, say why, and read nothing meanwhile."""
    hub = asking().owned_by("StatefulSet", "ss").build()
    waits = view(hub, port_clash=HOLDER, fail_wait_seconds=7.5)
    status = said(step := plan_pod(waits, OPEN), hub)
    assert (status["phase"], status["message"]) == ("Pending", WORDS)
    assert isinstance(step, WriteHubPod) and not step.fails
    again = plan_pod(replace(waits, hub_pod=outcome(hub, step)), OPEN)
    assert isinstance(again, Nothing)
    assert again.again_at == waits.now + timedelta(seconds=7.5)


@pytest.mark.parametrize(
    ("claim", "after"),
    [
        (Claim.ENDS, HELD_AGAIN),
        (Claim.MAY_HOLD, PORTS_AGAIN),
        (Claim.COMES_FIRST, PORTS_AGAIN),
    ],
)
def test_c27_what_passes_rejects_nobody(claim: Claim, after: timedelta) -> None:
    """One that ends, that may not have it, or that is not admitted yet, is waited for."""
    hub = asking().with_restart_policy("Never").build()
    seen = sure(hub, port_clash=replace(SURE, claim=claim))
    status = said(step := plan_pod(seen, OPEN), hub)
    assert status["phase"] == "Pending"
    again = plan_pod(replace(seen, hub_pod=outcome(hub, step)), OPEN)
    assert isinstance(again, Nothing)
    assert again.again_at == seen.now + after


def test_c27_other_refusals_come_first() -> None:
    """A target that does not answer, or a policy that refuses, rejects nobody for good."""
    hub = asking().build()
    clash = SURE
    for seen, rules, reason in (
        (sure(hub, port_clash=clash, target_reachable=False), OPEN, "TargetUnreachable"),
        (sure(hub, port_clash=clash), RULES, "PolicyRefused"),
        (sure(hub, port_clash=clash, leaving=True), OPEN, "NodeLeaving"),
    ):
        step = plan_pod(seen, rules)
        assert isinstance(step, WriteHubPod) and step.refusal is not None
        assert step.refusal.reason == reason
        assert phase_of(outcome(hub, step)) == "Pending"


def test_a_pod_that_was_admitted_is_not_asked_again() -> None:
    """Its intent is its admission: also where another got hold of the port since."""
    hub = intending(asking()).build()
    step = plan_pod(sure(hub, port_clash=SURE), OPEN)
    assert not isinstance(step, (WriteHubPod, LookUpRival, LookUpRivalMirror))
    free = plan_pod(sure(asking().build(), anchor=AnchorState.NEVER), OPEN)
    assert isinstance(free, PrepareGround)


# -- between two clusters --------------------------------------------------------------------------

A, B = ObjectKey("default", "a"), ObjectKey("default", "b")


def bind(world: World, name: str, number: int = 80, **more: Any) -> ObjectKey:
    """A user makes a pod that names the node itself."""
    built = pod(name).with_spec(containers=port(number), nodeName=STAGE_SCOPE.node_name, **more)
    body = built.build()
    del body["metadata"]["uid"]
    with world.others():
        world.hub.add(PODS, body)
    return ObjectKey("default", name)


def own(world: World, name: str, owner: str = "ss") -> ObjectKey:
    """The same, of a controller that replaces what failed."""
    key = bind(world, name)
    reference = {"kind": "StatefulSet", "name": owner, "uid": owner, "controller": True}
    with world.others():
        world.hub.edit(PODS, key, lambda p: p["metadata"].update(ownerReferences=[reference]))
    return key


def delete(world: World, key: ObjectKey) -> None:
    with world.others():
        world.hub.store.remove(PODS, key)


def phase(world: World, key: ObjectKey) -> str:
    found = world.hub_pod(key)
    return "" if found is None else phase_of(found)


def reason(world: World, key: ObjectKey) -> str:
    found = world.hub_pod(key)
    return str((condition_of(found or {}, MIRRORED) or {}).get("reason") or "")


def sound(world: World) -> None:
    assert not world.broken, world.broken


async def holding(world: World) -> None:
    """Pod `a` has the port and runs."""
    bind(world, "a")
    await asyncio.sleep(2.0)
    world.play(A, "Running")
    await asyncio.sleep(1.0)
    assert phase(world, A) == "Running"


@virtual_time
async def test_a_pod_that_clashes_is_failed_with_one_write_and_three_reads() -> None:
    world = World(policy=ALLOWING)
    async with world.running():
        await holding(world)
        world.hub.calls.clear()
        world.target.calls.clear()
        bind(world, "b")
        await asyncio.sleep(3.0)
        assert phase(world, B) == "Failed"
        assert world.mirror(B) is None
        asked = [(c.verb, c.key.name) for c in world.hub.calls if c.verb not in ("watch", "list")]
        assert asked == [("get", "b"), ("get", "a"), ("patch", "b")]
        there = [(c.verb, c.key) for c in world.target.calls if c.verb not in ("watch", "list")]
        assert there == [("get", key_of(world.mirror(A) or {}))]
        assert phase(world, A) == "Running"
        sound(world)


@virtual_time
async def test_c27_a_stale_view_of_who_has_the_port_fails_nobody() -> None:
    """The hub let the other go, and nobody has heard of it yet: the pod is admitted."""
    for is_gone in (True, False):
        world = World(policy=ALLOWING, with_nets=False)
        async with world.running():
            await holding(world)
            silent = [w for w in world.hub.store.watches if w.client == "hub"]
            for watching in silent:
                world.hub.store.watches.remove(watching)
            with world.others():
                if is_gone:
                    world.hub.store.remove(PODS, A)
                else:
                    world.hub.edit(PODS, A, lambda p: p["status"].update(phase="Succeeded"))
            for watching in silent:
                world.hub.store.watches.append(watching)
            bind(world, "b")
            await asyncio.sleep(3.0)
            assert phase(world, B) == "Pending"
            assert world.mirror(B) is not None
            sound(world)


@virtual_time
async def test_c26_a_controller_makes_no_storm_and_runs_when_the_port_is_free() -> None:
    """Ten minutes of replacing what failed at once: a failure in each back-off, then it runs."""
    world = World(policy=ALLOWING)
    async with world.running():
        await holding(world)
        made = 0
        for _ in range(600):
            if phase(world, B) in ("", "Failed"):
                if made:
                    delete(world, B)
                own(world, "b")
                made += 1
            await asyncio.sleep(1.0)
        # After 0, 10, 30, 70, 150 and 310 s one fails: each wait is twice the last.
        assert made == 7
        assert (phase(world, B), reason(world, B)) == ("Pending", "NodePorts")
        writes = [c for c in world.hub.calls if c.verb == "patch" and c.key == B]
        assert len(writes) <= 2 * made
        delete(world, A)
        await asyncio.sleep(1.5)
        assert world.mirror(B) is not None
        sound(world)


@virtual_time
async def test_of_two_that_are_new_one_is_admitted_whichever_is_looked_at_first() -> None:
    for names in (("old", "new"), ("new", "old")):
        world = World(policy=ALLOWING, workers=2)
        with world.others():
            world.hub.add(PODS, {**_bound("old"), "metadata": _metadata("old", 1)})
            world.hub.add(PODS, {**_bound("new"), "metadata": _metadata("new", 2)})
        async with world.running():
            for name in names:
                world.process.mirroring.enqueue(ObjectKey("default", name))
            await asyncio.sleep(12.0)
            assert world.mirror(ObjectKey("default", "old")) is not None
            assert phase(world, ObjectKey("default", "new")) == "Failed"
            sound(world)


def _bound(name: str) -> JsonDict:
    return pod(name).with_spec(containers=port(), nodeName=STAGE_SCOPE.node_name).build()


def _metadata(name: str, second: int) -> JsonDict:
    return {
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:00:0{second}Z",
    }


@virtual_time
async def test_c27_a_hub_that_does_not_answer_fails_nobody() -> None:
    """What is not known for sure is asked for until it is."""
    world = World(policy=ALLOWING)
    mute: list[bool] = [True]

    def no_reads(call: Call) -> Fault | None:
        is_read = call.client == "hub" and call.verb == "get" and call.key == A
        return LostRequest() if is_read and mute[0] else None

    async with world.running():
        await holding(world)
        world.fault_of = no_reads
        bind(world, "b")
        await asyncio.sleep(30.0)
        assert phase(world, B) == "Pending"
        mute[0] = False
        await asyncio.sleep(30.0)
        assert phase(world, B) == "Failed"
        sound(world)


@virtual_time
async def test_c26_daemonsets_in_mode_pending_hold_no_port_of_the_target() -> None:
    """They are not run, whoever placed them: one that names the node itself has the port."""
    world = World(policy=replace(ALLOWING, daemon_sets=DaemonSetMode.PENDING))
    async with world.running():
        reference = {"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
        built = pod("a").with_spec(containers=port())
        body = replace(
            built,
            pod={
                **built.pod,
                "metadata": {**built.pod["metadata"], "ownerReferences": [reference]},
            },
        )
        world.submit(body)
        await asyncio.sleep(2.0)
        bind(world, "b")
        await asyncio.sleep(2.0)
        assert reason(world, A) == "DaemonSetNotMirrored"
        assert world.mirror(B) is not None
        sound(world)


# -- whom to believe -------------------------------------------------------------------------------


def bind_refused(world: World) -> None:
    """Pod `a` wants the port too, and the policy refuses it for ever."""
    containers = [{**port()[0], "securityContext": {"privileged": True}}]
    body = pod("a").with_spec(containers=containers, nodeName=STAGE_SCOPE.node_name).build()
    del body["metadata"]["uid"]
    with world.others():
        world.hub.add(PODS, body)


def forge(world: World, key: ObjectKey, place: ObjectKey, uid: str = "") -> None:
    """The user of a hub pod writes its record."""

    def change(found: JsonDict) -> None:
        record = MirrorRecord(pod_uid=uid_of(found), mirror=place, mirror_uid=uid)
        found["metadata"].setdefault("annotations", {})[RECORD_ANNOTATION] = record.format()

    with world.others():
        world.hub.edit(PODS, key, change)


@virtual_time
async def test_c42_a_forged_intent_of_a_refused_pod_neither_fails_nor_holds_up_another() -> None:
    world = World(policy=ALLOWING)
    async with world.running():
        bind_refused(world)
        await asyncio.sleep(2.0)
        assert reason(world, A) == "PolicyRefused"
        forge(world, A, ObjectKey("anything", "at-all"))
        await asyncio.sleep(2.0)
        bind(world, "b")
        await asyncio.sleep(2.0)
        assert phase(world, B) == "Pending"
        assert world.mirror(B) is not None
        sound(world)


@pytest.mark.parametrize("whose", ["another pods", "a strangers"])
@virtual_time
async def test_c42_a_record_that_names_a_pod_of_somebody_else_fails_nobody(whose: str) -> None:
    """That pod lives in the target, and has the very port; its marks do not name the forger."""
    world = World(policy=ALLOWING)
    async with world.running():
        bind(world, "other", 81)
        await asyncio.sleep(2.0)
        theirs: JsonObject | None = world.mirror(ObjectKey("default", "other"))
        if whose == "a strangers":
            place = key_of(theirs or {}).namespace
            plain = pod("plain", namespace=place).with_spec(containers=port()).with_uid("strange")
            theirs = world.target.add(PODS, plain.build())
        assert theirs is not None
        bind_refused(world)
        await asyncio.sleep(2.0)
        forge(world, A, key_of(theirs), uid_of(theirs))
        await asyncio.sleep(5.0)
        bind(world, "b")
        await asyncio.sleep(2.0)
        assert phase(world, B) == "Pending"
        assert world.mirror(B) is not None


def test_c42_a_mirror_is_believed_where_it_names_the_very_pod() -> None:
    """By its marks: this virtual node's, of that hub pod; by its uid the one on record."""
    hub = recording(asking("b"), uid="mirror-b").running().build()
    made = mirror("b").with_spec(containers=port())
    for found, is_believed in (
        (made, True),
        (made.with_uid("another"), False),
        (mirror("b", of_uid="uid-before"), False),
        (mirror("b", scope=OTHER_SCOPE), False),
        (pod("b").with_uid("mirror-b"), False),
    ):
        standing = {mirror_key(ObjectKey("default", "b")): found.build()}
        ground = SimpleNamespace(mirror_key=mirror_key)
        ports = cast(PodPorts, SimpleNamespace(mirrors=standing, ground=ground))
        registry = PortRegistry(ports, PodMemories(ports), scope=SCOPE, rules=OPEN)
        holder = registry.applicant(hub)
        assert (registry.mirror_of(holder) is not None) is is_believed
        registry.note_mirror_read(holder.uid, None)
        assert registry.mirror_of(holder) is None


@virtual_time
async def test_c27_whose_mirror_the_target_refuses_holds_the_port_against_nobody_for_good() -> None:
    """The next pod waits; when the first is there after all, that one has the port."""
    world = World(policy=ALLOWING)
    refusing = [True]

    def no_creates(call: Call) -> Fault | None:
        if refusing[0] and call.verb == "create" and call.resource == PODS:
            return Refuse(Forbidden("exceeded quota", status=403, cluster="target"))
        return None

    world.fault_of = no_creates
    async with world.running():
        bind(world, "a")
        await asyncio.sleep(3.0)
        assert reason(world, A) == "QuotaExceeded"
        bind(world, "b")
        await asyncio.sleep(60.0)
        assert (phase(world, B), reason(world, B)) == ("Pending", "NodePorts")
        delete(world, A)
        refusing[0] = False
        await asyncio.sleep(1.0)
        assert world.mirror(B) is not None
        sound(world)


@pytest.mark.parametrize("what", ["Failed", "removed"])
@virtual_time
async def test_c27_a_silent_watch_of_the_target_fails_nobody(what: str) -> None:
    """The holder's mirror has ended, and the watch did not tell yet: the port is free."""
    world = World(policy=ALLOWING, with_nets=False)
    async with world.running():
        await holding(world)
        silent = [w for w in world.target.store.watches if w.client == "target"]
        assert silent
        for watching in silent:
            world.target.store.watches.remove(watching)
        if what == "Failed":
            world.play(A, what)
        else:
            world.target.store.remove(PODS, key_of(world.mirror(A) or {}))
        for watching in silent:
            world.target.store.watches.append(watching)
        bind(world, "b")
        await asyncio.sleep(12.0)
        assert phase(world, A) == "Running"
        assert (phase(world, B), reason(world, B)) == ("Pending", "NodePorts")
        with world.others():
            world.hub.edit(PODS, A, lambda p: p["status"].update(phase="Succeeded"))
        await asyncio.sleep(1.0)
        assert world.mirror(B) is not None


@virtual_time
async def test_c27_a_target_that_does_not_answer_fails_nobody() -> None:
    """It says why it waits, and is failed when the target has said that the other still runs."""
    world = World(policy=ALLOWING)
    mute: list[bool] = [True]

    def no_reads(call: Call) -> Fault | None:
        is_read = call.client == "target" and call.verb == "get" and call.resource == PODS
        return (
            Refuse(ServerFault("no", status=500, cluster="target")) if is_read and mute[0] else None
        )

    async with world.running():
        await holding(world)
        world.fault_of = no_reads
        bind(world, "b")
        await asyncio.sleep(30.0)
        assert (phase(world, B), reason(world, B)) == ("Pending", "TargetError")
        mute[0] = False
        await asyncio.sleep(60.0)
        assert phase(world, B) == "Failed"
        sound(world)

"""Companions of a virtual node between two clusters in memory, as its mirroring runs them."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from federate.companions.demand import listing_entry
from federate.companions.entries import render_entry
from federate.companions.environment import Advertised
from federate.companions.keys import (
    CompanionKey,
    Kind,
    companion_annotations,
    companion_labels,
    name_of,
)
from federate.companions.reconciler import LINGER_SECONDS
from federate.companions.render import render_companion
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import Forbidden, Rejected, ServerFault, Unreachable
from federate.model.marks import COMPANION_LABEL
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    condition_of,
    key_of,
    labels_of,
    spec_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, SECRETS
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.companions import encoded
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call, Delay, Fault, Refuse
from tests.support.fakestore import Change, Eyes
from tests.support.issuestage import token_volume
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE

A, B = ObjectKey("default", "a"), ObjectKey("default", "b")
CM, SECRET = Kind.CONFIGMAP, Kind.SECRET
BOTH = ((CM, "settings"), (SECRET, "db"))


def mirrored(world: CompanionWorld, key: ObjectKey) -> bool:
    return world.mirror(key) is not None


def reads(world: CompanionWorld, cluster: str) -> int:
    calls = (world.hub if cluster == "hub" else world.target).calls
    return sum(call.verb == "get" and call.resource in (CONFIGMAPS, SECRETS) for call in calls)


@virtual_time
async def test_c30_what_a_pod_refers_to_is_there_before_its_mirror() -> None:
    """The mirror names companions, which have the hub's values, our marks, and the anchor."""
    world = CompanionWorld()
    world.give(CM, "settings", colour="blue")
    world.give(SECRET, "db", password="hunter2")
    seen_before_mirror: list[bool] = []

    def look(call: Call) -> Fault | None:
        if call.client == "target" and call.verb == "create" and call.resource == PODS:
            seen_before_mirror.append(all(world.companion(*each) for each in BOTH))
        return None

    world.fault_of = look
    async with world.running():
        world.submit(needing("a", *BOTH))
        assert await world.until(lambda: mirrored(world, A)) < 1.0
        assert seen_before_mirror == [True]
        assert world.values(CM, "settings") == {"colour": "blue"}
        assert world.values(SECRET, "db") == {"password": encoded("hunter2")}
        mirror = world.mirror(A)
        assert mirror is not None
        sources = spec_of(mirror)["containers"][0]["envFrom"]
        names = {name_of(SCOPE, world.key_of(*each)).name for each in BOTH}
        assert {next(iter(source.values()))["name"] for source in sources} == names
        assert world.listed() == {"Secret default/db"}
        made = world.companion(SECRET, "db")
        entry = world.target.find(CONFIGMAPS, name_of(SCOPE, world.key_of(SECRET, "db")))
        assert made is not None and entry is not None
        assert made["metadata"]["ownerReferences"][0]["uid"] == uid_of(entry)
        assert entry["metadata"]["ownerReferences"][0]["uid"] == world.recorded_anchor()
        assert not world.broken


@virtual_time
async def test_c30_many_pods_share_what_they_refer_to() -> None:
    """Two hundred pods that share three objects cost three, and no read of contents a pod.

    And an entry for the Secret among them.
    """
    world = CompanionWorld()
    names = ((CM, "one"), (CM, "two"), (SECRET, "three"))
    for kind, name in names:
        world.give(kind, name, key="value")
    async with world.running():
        for number in range(200):
            world.submit(needing(f"p{number}", *names))
        await world.until(
            lambda: all(mirrored(world, ObjectKey("default", f"p{n}")) for n in range(200))
        )
        await asyncio.sleep(30.0)
        made = [call for call in world.target.writes() if call.resource in (CONFIGMAPS, SECRETS)]
        creates = [call for call in made if call.verb == "create" and call.key != ANCHOR]
        assert len(creates) == 4
        assert reads(world, "hub") <= 9
        assert reads(world, "target") <= 30  # of these some are of the ground
        assert not world.broken


@virtual_time
async def test_secrets_are_never_listed_nor_watched_in_the_target() -> None:
    """Nor listed on the hub; a watch there is for names that pods refer to, metadata only."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="hunter2")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(400.0)
        for cluster in (world.hub, world.target):
            verbs = {call.verb for call in cluster.calls if call.resource == SECRETS}
            assert "list" not in verbs
        assert "watch" not in {c.verb for c in world.target.calls if c.resource == SECRETS}


@pytest.mark.parametrize("kind", [CM, SECRET])
@virtual_time
async def test_a_change_on_the_hub_arrives_at_once(kind: Kind) -> None:
    """By one write, and what was added in the target by others does not stay."""
    world = CompanionWorld()
    world.give(kind, "x", a="1")
    async with world.running():
        world.submit(needing("a", (kind, "x")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(10.0)
        before = len(world.target.writes())
        world.give(kind, "x", b="2")
        took = await world.until(lambda: "b" in (world.values(kind, "x") or {}))
        print(f"{kind}: changed within {took:.2f} virtual seconds")
        assert took < 1.0
        assert "a" not in (world.values(kind, "x") or {})
        assert len(world.target.writes()) == before + 1


@virtual_time
async def test_what_is_deleted_on_the_hub_is_deleted_in_the_target() -> None:
    """Though a pod still refers to it: revoked is revoked. The list forgets it as well."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="hunter2")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(10.0)
        world.take(SECRET, "db")
        assert await world.until(lambda: world.companion(SECRET, "db") is None) < 1.0
        await world.until(lambda: not world.listed())
        world.give(SECRET, "db", password="other")
        took = await world.until(lambda: world.companion(SECRET, "db") is not None)
        assert took < 1.0
        assert world.listed() == {"Secret default/db"}


@virtual_time
async def test_a_pod_does_not_wait_for_what_the_hub_lacks() -> None:
    """A kubelet of the target says what is missing; it comes when the user makes it."""
    world = CompanionWorld()
    async with world.running():
        world.submit(needing("a", *BOTH))
        await world.until(lambda: mirrored(world, A))
        assert world.companion(CM, "settings") is None
        await asyncio.sleep(100.0)
        world.give(CM, "settings", colour="red")
        world.give(SECRET, "db", password="x")
        assert await world.until(lambda: all(world.companion(*each) for each in BOTH)) < 1.0


@virtual_time
async def test_an_object_that_cannot_change_is_made_anew() -> None:
    """Another type, or immutable values: deleted and made again under the same name."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="old")
    with world.others():
        world.hub.edit(SECRETS, ObjectKey("default", "db"), lambda o: o.update(immutable=True))
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        first = world.companion(SECRET, "db")
        assert first is not None
        assert first["immutable"] is True
        world.take(SECRET, "db")
        world.give(SECRET, "db", password="new")
        await world.until(lambda: world.values(SECRET, "db") == {"password": encoded("new")})
        second = world.companion(SECRET, "db")
        assert second is not None
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert second["metadata"]["name"] == first["metadata"]["name"]


@pytest.mark.parametrize("kind", [CM, SECRET])
@virtual_time
async def test_what_nobody_refers_to_any_more_goes(kind: Kind) -> None:
    """A while after the last pod; one that comes meanwhile finds it there."""
    world = CompanionWorld(is_brisk=True)
    world.give(kind, "x", a="1")
    async with world.running():
        world.submit(needing("a", (kind, "x")).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        world.delete(A)
        await world.until(lambda: not mirrored(world, A))
        gone_at = world.clock()
        await asyncio.sleep(LINGER_SECONDS / 2)
        assert world.companion(kind, "x") is not None
        world.submit(needing("b", (kind, "x")))
        await world.until(lambda: mirrored(world, B))
        await asyncio.sleep(2 * LINGER_SECONDS)
        assert world.companion(kind, "x") is not None
        world.delete(B)
        await world.until(lambda: not mirrored(world, B))
        gone_at = world.clock()
        await world.until(lambda: world.companion(kind, "x") is None)
        await world.until(lambda: not world.listed())
        assert LINGER_SECONDS - 1.0 <= world.clock() - gone_at < LINGER_SECONDS + 10.0
        await asyncio.sleep(5.0)
        companions = world.comers.companions
        assert companions.counts() == {}
        assert companions.watches == 0
        assert not companions._known and not companions._memories
        assert not companions.configmaps._deleted  # ten thousand would take 26 MB
        assert not world.broken


@virtual_time
async def test_an_orphans_companions_stay_while_it_lives() -> None:
    """A mirror that still runs may read its files: what it refers to is in use."""
    world = CompanionWorld(with_nets=False)
    world.give(SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(1.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        with world.others():
            world.hub.delete_by_user(PODS, A, grace_seconds=0)
        await asyncio.sleep(3 * LINGER_SECONDS)
        assert mirrored(world, A)  # its kubelet takes its time
        assert world.companion(SECRET, "db") is not None
        world.kubelets_finish()
        await world.until(lambda: world.companion(SECRET, "db") is None)


@virtual_time
async def test_c30_a_mirror_robbed_of_its_marks_keeps_what_it_has() -> None:
    """Its containers run, and may start again: what they read stays until the pod is over."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="one")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        world.play(A, "Running")
        await asyncio.sleep(5.0)
        with world.others():
            world.target.edit(
                PODS, world.mirror_key(A), lambda pod: pod["metadata"].update(labels={})
            )
        await asyncio.sleep(10 * LINGER_SECONDS)
        assert world.values(SECRET, "db") == {"password": encoded("one")}


@pytest.mark.parametrize("kind", [CM, SECRET])
@virtual_time
async def test_what_somebody_in_the_target_changed_or_deleted_comes_back(kind: Kind) -> None:
    """A ConfigMap at once, for its changes are told; a Secret within five minutes."""
    world = CompanionWorld()
    world.give(kind, "x", a="1")
    async with world.running():
        world.submit(needing("a", (kind, "x")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        world.admin_edits(kind, "x", lambda obj: obj["data"].update(LD_PRELOAD="evil"))
        bound = 1.0 if kind is CM else 310.0
        took = await world.until(
            lambda: "LD_PRELOAD" not in (world.values(kind, "x") or {}), seconds=600.0
        )
        assert took < bound
        await asyncio.sleep(400.0)
        world.admin_deletes(kind, "x")
        took = await world.until(lambda: world.companion(kind, "x") is not None, seconds=600.0)
        print(f"{kind}: made again after {took:.1f} virtual seconds")
        assert took < bound


@virtual_time
async def test_a_new_pod_finds_again_a_secret_that_was_deleted_in_the_target() -> None:
    """Nothing tells of it, so whoever comes a minute later has it looked at first."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(70.0)
        world.admin_deletes(SECRET, "db")
        world.submit(needing("b", (SECRET, "db")))
        await world.until(lambda: mirrored(world, B))
        assert world.companion(SECRET, "db") is not None


@virtual_time
async def test_c30_a_foreign_object_of_the_name_is_not_touched() -> None:
    """The pod waits and says so; once it is gone the pod starts."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")
    place = name_of(SCOPE, world.key_of(SECRET, "db"))
    with world.others():
        world.target.add(
            SECRETS, {"metadata": {"namespace": place.namespace, "name": place.name}, "data": {}}
        )
        world.target.edit(
            NAMESPACES,
            ObjectKey("", TARGET_NAMESPACE),
            lambda o: o["metadata"].update(
                labels={"federate.dev/hub": SCOPE.hub_id},
                annotations={"federate.dev/hub-namespace": "default"},
            ),
        )
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await asyncio.sleep(20.0)
        assert not mirrored(world, A)
        assert waits(world, A) == "NameTaken"
        assert not labels_of(world.target.read(SECRETS, place)).get(COMPANION_LABEL)
        with world.others():
            world.target.delete_by_user(SECRETS, place)
        await world.until(lambda: mirrored(world, A))


def waits(world: CompanionWorld, key: ObjectKey) -> str:
    """Why a hub pod says that it waits."""
    found = world.hub_pod(key)
    condition = condition_of(found or {}, "federate.dev/Mirrored") or {}
    return str(condition.get("reason") or "")


def said(world: CompanionWorld, key: ObjectKey) -> str:
    found = world.hub_pod(key)
    condition = condition_of(found or {}, "federate.dev/Mirrored") or {}
    return str(condition.get("message") or "")


def refusing(world: CompanionWorld, cluster: str, verb: str, error: Exception) -> None:
    """Let requests about Secrets be refused until `fault_of` is taken away."""

    def refuse(call: Call) -> Fault | None:
        is_meant = (call.client, call.verb, call.resource) == (cluster, verb, SECRETS)
        return Refuse(error) if is_meant else None  # type: ignore[arg-type]

    world.fault_of = refuse


@virtual_time
async def test_a_pod_whose_secret_may_not_be_read_says_so() -> None:
    """And starts within about a minute of the right being given."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")
    refusing(world, "hub", "get", Forbidden('User "federate" cannot get secrets', status=403))
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == "CompanionUnreadable")
        assert "cannot get secrets" in said(world, A)
        await asyncio.sleep(200.0)
        before = reads(world, "hub")
        await asyncio.sleep(600.0)
        assert reads(world, "hub") - before <= 12  # no storm
        world.fault_of = None
        assert await world.until(lambda: mirrored(world, A)) < 70.0


@virtual_time
async def test_a_target_that_lets_nobody_look_is_told() -> None:
    """Nothing is made on trust; it goes on when the right is given."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    refusing(world, "target", "get", Forbidden("cannot get secrets", status=403))
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == "CompanionRefused")
        assert "does not let federate read what stands there" in said(world, A)
        assert not world.listed()
        world.fault_of = None
        await world.until(lambda: mirrored(world, A), seconds=400.0)


@virtual_time
async def test_c73_a_refusal_is_told_without_the_secrets_contents() -> None:
    """A webhook that quotes the object does not get its values onto the hub, or into a log."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="hunter2-very-secret")
    words = 'denied: value "hunter2-very-secret" is weak'
    refusing(world, "target", "create", Forbidden(words, status=403))
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == "CompanionRefused")
        assert "hunter2" not in said(world, A)
        assert "not repeated" in said(world, A)
        creates = [c for c in world.target.calls if c.verb == "create" and c.resource == SECRETS]
        await asyncio.sleep(600.0)
        creates = [c for c in world.target.calls if c.verb == "create" and c.resource == SECRETS]
        gaps = [b.sent_at - a.sent_at for a, b in itertools.pairwise(creates)]
        print(f"tried {len(creates)} times, gaps {[round(gap, 1) for gap in gaps]}")
        assert gaps == sorted(gaps) or max(gaps) >= 300.0
        assert len(creates) <= 10
        world.fault_of = None
        assert await world.until(lambda: mirrored(world, A), seconds=400.0) <= 301.0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Forbidden("exceeded quota: count/secrets", status=403), "CompanionRefused"),
        (Rejected("invalid: name", status=422), "CompanionRefused"),
        (ServerFault("failed calling webhook", status=500), "CompanionRefused"),
        (ServerFault("bad gateway", status=502), "CompanionComing"),
    ],
)
@virtual_time
async def test_why_the_target_does_not_take_it_is_told(error: Exception, reason: str) -> None:
    """Refusals in the server's words; what may pass only when it lasts."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="hunter2")
    refusing(world, "target", "create", error)
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == reason)
        world.fault_of = None
        await world.until(lambda: mirrored(world, A), seconds=400.0)


@virtual_time
async def test_a_change_that_is_undone_each_time_is_not_made_for_ever() -> None:
    """A webhook or controller that fights gets a write every few minutes, not every moment."""
    world = CompanionWorld()
    world.give(CM, "x", a="1")
    async with world.running():
        world.submit(needing("a", (CM, "x")))
        await world.until(lambda: mirrored(world, A))

        async def fight() -> None:
            while True:
                await asyncio.sleep(0.2)
                if (world.values(CM, "x") or {}).get("a") == "1":
                    world.admin_edits(CM, "x", lambda obj: obj["data"].update(a="2"))

        fighting = asyncio.create_task(fight())
        before = len(world.target.writes())
        await asyncio.sleep(1200.0)
        fighting.cancel()
        writes = len(world.target.writes()) - before
        print(f"{writes} writes in 20 minutes of a fight")
        assert 5 <= writes <= 15
        world.submit(needing("b", (CM, "x")))
        await world.until(lambda: mirrored(world, B), seconds=400.0)


@virtual_time
async def test_a_stripped_companion_is_taken_back() -> None:
    """What has no marks nobody could find again: it is deleted by the uid of the reply."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")

    def strip(obj: dict[str, object]) -> None:
        obj["metadata"].pop("labels", None)  # type: ignore[attr-defined]

    create = world.target.create

    def stripping(resource, body, key=None):  # type: ignore[no-untyped-def]
        if resource == SECRETS:
            body = {**body, "metadata": {**body["metadata"], "labels": {}}}
        return create(resource, body, key)

    world.target.create = stripping  # type: ignore[method-assign]
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == "MarksRemoved")
        await asyncio.sleep(1.0)
        assert world.companion(SECRET, "db") is None
        world.target.create = create  # type: ignore[method-assign]
        await world.until(lambda: mirrored(world, A), seconds=400.0)


@virtual_time
async def test_c23_nothing_is_made_where_federate_was_uninstalled() -> None:
    """With the anchor all companions go (garbage collection), and none comes back by itself."""
    world = CompanionWorld()
    for each in BOTH:
        world.give(*each, key="value")
    async with world.running():
        world.submit(needing("a", *BOTH))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(2.0)
        with world.others():
            world.target.delete_by_user(CONFIGMAPS, ANCHOR)
        while world.controllers_act():  # entries go with the anchor, Secrets with their entries
            pass
        await asyncio.sleep(400.0)
        assert world.companion(CM, "settings") is None
        assert world.companion(SECRET, "db") is None


@virtual_time
async def test_pods_that_are_refused_bring_nothing_along() -> None:
    """A Secret of a pod that will never run in the target does not travel there."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).owned_by("DaemonSet", "agents"))
        await asyncio.sleep(100.0)
        assert world.companion(SECRET, "db") is None
        assert reads(world, "hub") == 0


@virtual_time
async def test_pods_that_are_refused_are_issued_no_token() -> None:
    """A DaemonSet's agent may do much on the hub: nothing of its account goes to the target."""
    advertised = Advertised(host="192.0.2.1", port=6443)
    rules = CompanionRules(identity=IdentityMode.HUB, advertised=advertised)
    world = CompanionWorld(companions=rules)

    def asked() -> set[str]:
        calls = (call for call in world.hub.calls if call.subresource == "token" and call.body)
        return {call.body["spec"]["boundObjectRef"]["name"] for call in calls if call.body}

    async with world.running():
        agent = needing("a").with_spec(volumes=[token_volume()])
        world.submit(agent.owned_by("DaemonSet", "agents"))
        world.submit(needing("b").with_spec(volumes=[token_volume()]))
        await world.until(lambda: "b" in asked())
        await asyncio.sleep(100.0)
        assert asked() == {"b"}


@virtual_time
async def test_shared_objects_are_left_to_the_target() -> None:
    """What the target's operator shares is used by its own name, and not even read."""
    world = CompanionWorld(companions=CompanionRules(shared=frozenset({(SECRET, "db")})))
    world.give(SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        mirror = world.mirror(A)
        assert mirror is not None
        assert spec_of(mirror)["containers"][0]["envFrom"][0]["secretRef"]["name"] == "db"
        assert reads(world, "hub") == 0


@virtual_time
async def test_without_companions_pods_are_refused_as_before() -> None:
    """Feature off: today's words, and no request about Secrets at all."""
    world = CompanionWorld(companions=CompanionRules(are_made=False))
    world.give(SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == "CompanionMissing")
        await asyncio.sleep(100.0)
        assert not [c for c in (*world.hub.calls, *world.target.calls) if c.resource == SECRETS]


@virtual_time
async def test_an_unreachable_target_keeps_what_is_known() -> None:
    """Nothing is planned meanwhile; what changed on the hub arrives when it is back."""
    world = CompanionWorld()
    world.give(CM, "x", a="1")
    async with world.running():
        world.submit(needing("a", (CM, "x")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        world.target_reachable = False
        world.target.is_down = True
        world.give(CM, "x", a="2")
        await asyncio.sleep(120.0)
        world.target.come_up()
        world.target_reachable = True
        world.process.wake_all()
        took = await world.until(lambda: world.values(CM, "x") == {"a": "2"})
        print(f"arrived {took:.1f} s after the target was back")


@virtual_time
async def test_the_next_process_finds_what_the_last_one_left() -> None:
    """Companions that nobody wants any more are found by marks and list, and removed."""
    world = CompanionWorld(is_brisk=True)
    for each in BOTH:
        world.give(*each, key="value")
    async with world.running():
        world.submit(needing("a", *BOTH).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        world.delete(A)
        await world.until(lambda: not mirrored(world, A))
        world.kill()
        await asyncio.sleep(5.0)
        assert world.processes == 2
        await world.until(lambda: not any(world.companion(*e) for e in BOTH), seconds=300.0)
        await world.until(lambda: not world.listed())
        assert not world.broken


@pytest.mark.parametrize("late", ["hub", "target"])
@virtual_time
async def test_the_next_process_finds_what_changed_meanwhile(late: str) -> None:
    """Whichever side it is told of first: a Secret is on no list of objects, so pods lead to it."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        world.fault_of = lambda call: (
            Delay(1.0) if (call.client, call.verb, call.resource) == (late, "list", PODS) else None
        )
        world.kill()
        world.give(SECRET, "db", a="2")
        took = await world.until(lambda: world.values(SECRET, "db") == {"a": encoded("2")})
        assert world.processes == 2
        assert took < 10.0


@virtual_time
async def test_a_pod_without_references_costs_nothing() -> None:
    """No request about ConfigMaps or Secrets beyond those of the ground."""
    world = CompanionWorld()
    async with world.running():
        world.submit(pod("a"))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(100.0)
        assert reads(world, "hub") == 0
        assert world.comers.companions.asked() == 0


@pytest.mark.parametrize("kind", [CM, SECRET])
@virtual_time
async def test_a_change_that_comes_while_another_is_under_way_is_not_lost(kind: Kind) -> None:
    """The target is slow; what it has in the end is what the hub has."""
    world = CompanionWorld()
    world.give(kind, "x", a="1")
    async with world.running():
        world.submit(needing("a", (kind, "x")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        world.target.latency_seconds = 1.0
        for value in ("2", "3", "4"):
            world.give(kind, "x", a=value)
            await asyncio.sleep(0.7)
        wanted = encoded("4") if kind is SECRET else "4"
        assert await world.until(lambda: world.values(kind, "x") == {"a": wanted}) < 15.0


@virtual_time
async def test_c51_what_a_pod_wants_that_no_event_told_of_is_not_deleted() -> None:
    """The complete listing shows the pod, though the watch is deaf."""
    world = CompanionWorld(is_brisk=True, with_nets=False)
    world.give(SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        world.delete(A)
        await world.until(lambda: not mirrored(world, A))
        await asyncio.sleep(5.0)
        for watching in list(world.hub.store.watches):
            if getattr(watching, "resource", None) == PODS:
                watching.messages = asyncio.Queue()
        world.submit(needing("b", (SECRET, "db")))
        await asyncio.sleep(3 * LINGER_SECONDS)
        assert world.companion(SECRET, "db") is not None


@virtual_time
async def test_c5_nothing_is_deleted_in_a_cluster_that_is_not_the_target() -> None:
    """Where it cannot be confirmed, a revoked Secret waits for a better day."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")
    sure = [True]

    async def confirm() -> None:
        if not sure[0]:
            raise Unreachable("another cluster answers")

    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        companions = world.comers.companions
        companions._ports = replace(companions._ports, confirm_target=confirm)
        sure[0] = False
        world.take(SECRET, "db")
        await asyncio.sleep(30.0)
        assert world.companion(SECRET, "db") is not None
        sure[0] = True
        await world.until(lambda: world.companion(SECRET, "db") is None)


@virtual_time
async def test_c70_who_leads_no_more_writes_nothing() -> None:
    """The fence is asked before each write; the process ends with it."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        first = world.process
        first.close_fence()
        world.give(SECRET, "db", a="2")
        await world.until(lambda: world.process is not first)
        assert not [call for call in world.target.writes() if call.is_unlawful]
        await world.until(lambda: world.values(SECRET, "db") == {"a": encoded("2")})


@virtual_time
async def test_an_entry_that_somebody_removes_is_made_again() -> None:
    """Kubernetes removes the Secret with it, or federate was faster: it is there, and on record."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)
        place = name_of(SCOPE, world.key_of(SECRET, "db"))
        for is_collected in (True, False):
            with world.others():
                world.target.delete_by_user(CONFIGMAPS, place)
                assert world.target.collect_garbage() == 1 if is_collected else True
            assert await world.until(lambda: world.listed() == {"Secret default/db"}) < 1.0
            await asyncio.sleep(1.0)
            assert world.target.collect_garbage() == 0
            assert world.values(SECRET, "db") == {"a": encoded("1")}


@virtual_time
async def test_c70_a_create_that_comes_after_the_end_leaves_nothing() -> None:
    """Who led before sent it, and it was on its way while all of it was removed."""
    world = CompanionWorld(is_brisk=True)
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        creates = [call for call in world.target.writes() if call.verb == "create"]
        (late,) = (call for call in creates if call.resource == SECRETS)
        world.delete(A)
        await world.until(lambda: not mirrored(world, A))
        await world.until(lambda: not world.listed())
        world.target.carry_out(late)
        assert world.companion(SECRET, "db") is not None
        assert world.target.collect_garbage() == 1
        assert world.companion(SECRET, "db") is None
        await asyncio.sleep(2 * LINGER_SECONDS)
        assert not world.listed()


@virtual_time
async def test_c70_an_entry_that_is_taken_up_during_the_look_is_not_struck() -> None:
    """Another process is about to make the Secret that was just seen not to be there."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    place = name_of(SCOPE, world.key_of(SECRET, "db"))
    mark = {"federate.dev/taken-up": "7"}

    def take_up(call: Call) -> Fault | None:
        if (call.verb, call.resource, call.key) != ("get", SECRETS, place):
            return None
        world.fault_of = None
        with world.others():
            world.target.edit(
                CONFIGMAPS, place, lambda obj: obj["metadata"]["annotations"].update(mark)
            )
        return Delay(1.0)

    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        with world.others():
            world.target.delete_by_user(SECRETS, place)
        world.fault_of = take_up
        world.take(SECRET, "db")
        await world.until(lambda: not world.listed())
        strikes = [c for c in world.target.writes() if c.verb == "delete" and c.key == place]
        assert len(strikes) == 2, "the first named a version that is no more"


def make_as_before(world: CompanionWorld, key: CompanionKey) -> None:
    """A Secret of ours on the list in the anchor, which owns it."""
    anchor = world.target.read(CONFIGMAPS, ANCHOR)
    world.target.add(SECRETS, render_companion(key, {}, scope=SCOPE, owner=anchor))
    line = {name_of(SCOPE, key).name: listing_entry(key)}
    world.target.edit(CONFIGMAPS, ANCHOR, lambda obj: obj["data"].update(line))


@virtual_time
async def test_what_an_earlier_version_left_on_the_anchors_list_goes() -> None:
    """And what a pod wants of it gets an entry, which owns it."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
    wanted, left = (world.key_of(SECRET, name) for name in ("db", "old"))
    with world.others():
        world.target.delete_by_user(CONFIGMAPS, name_of(SCOPE, wanted))
        world.admin_deletes(SECRET, "db")
        for key in (wanted, left):
            make_as_before(world, key)
    async with world.running():
        await world.until(lambda: world.companion(SECRET, "old") is None)
        await world.until(lambda: world.listed() == {"Secret default/db"})
        await asyncio.sleep(1.0)
        made = world.companion(SECRET, "db")
        entry = world.target.find(CONFIGMAPS, name_of(SCOPE, wanted))
        assert made is not None and entry is not None
        assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [uid_of(entry)]
        assert name_of(SCOPE, left).name not in world.target.read(CONFIGMAPS, ANCHOR)["data"]
        world.delete(A)
        await world.until(lambda: not world.listed(), seconds=600.0)


@virtual_time
async def test_one_that_was_stripped_before_a_crash_is_found_and_removed() -> None:
    """The target's admission takes our marks off, and the process dies before it takes it back."""
    world = CompanionWorld(is_brisk=True)
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        world.kill()
        with world.others():
            world.admin_edits(SECRET, "db", lambda obj: obj["metadata"].update(labels={}))
        world.delete(A)
        await world.until(lambda: world.companion(SECRET, "db") is None, seconds=600.0)
        await world.until(lambda: not world.listed())


@virtual_time
async def test_a_secret_on_record_that_tells_of_nobody_is_left_and_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Marks and owner are gone: it may be anybody's. It stays on record, and the log says so."""
    world = CompanionWorld(is_brisk=True)
    world.give(SECRET, "db", a="1")
    bare: JsonDict = {"labels": {}, "annotations": {}, "ownerReferences": []}
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        world.admin_edits(SECRET, "db", lambda obj: obj["metadata"].update(bare))
        world.delete(A)
        await world.until(lambda: not mirrored(world, A))
        await asyncio.sleep(4 * LINGER_SECONDS)
        assert world.companion(SECRET, "db") is not None
        assert world.listed() == {"Secret default/db"}
        assert capsys.readouterr().out.count("a Secret on record is left alone") == 1
        world.admin_deletes(SECRET, "db")
        await world.until(lambda: not world.listed(), seconds=600.0)


@pytest.mark.parametrize("kind", [CM, SECRET])
@virtual_time
async def test_who_writes_in_the_target_reads_nothing_of_the_hub_by_it(kind: Kind) -> None:
    """The attack: an admin of the target (or a federate of another hub) says by marks or by an
    entry that there is a companion, and lets a mirror refer to it."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    prey = CompanionKey(TARGET_NAMESPACE, kind, "kube-system", "admin")
    place, body = name_of(SCOPE, prey), {"data": {"token": encoded("x")}}
    with world.others():
        found = {"namespace": prey.namespace, "name": prey.name}
        world.hub.add(kind.resource, {**body, "metadata": found})
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(5.0)

        def lure(mirror: JsonDict) -> None:
            field = "configMapRef" if kind is CM else "secretRef"
            source = {field: {"name": place.name}}
            mirror["spec"]["ephemeralContainers"] = [{"name": "lure", "envFrom": [source]}]

        with world.others():
            if kind is SECRET:
                anchor = world.target.read(CONFIGMAPS, ANCHOR)
                said = listing_entry(prey)
                world.target.add(CONFIGMAPS, render_entry(place, said, scope=SCOPE, anchor=anchor))
            else:
                marks = {
                    "labels": companion_labels(SCOPE, prey),
                    "annotations": companion_annotations(SCOPE, prey),
                }
                bait = {"namespace": place.namespace, "name": place.name, **marks}
                world.target.add(CONFIGMAPS, {"metadata": bait, "data": {}})
        mirror = world.mirror(A)
        assert mirror is not None
        await asyncio.sleep(1.0)  # by then it is taken for one that is left over
        with world.others():
            world.target.edit(PODS, key_of(mirror), lure)
        await asyncio.sleep(4 * LINGER_SECONDS)
        assert not [call for call in world.hub.calls if call.key == prey.hub_key]
        there = world.target.find(kind.resource, place)
        assert there is None if kind is SECRET else not (there or {}).get("data")


@virtual_time
async def test_a_pod_that_comes_to_what_only_a_mirror_used_waits_for_what_the_hub_has_now() -> None:
    """What an orphan uses is not followed; nothing that is known of it counts for a new pod."""
    world = CompanionWorld(with_nets=False)
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(1.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        with world.others():
            world.hub.delete_by_user(PODS, A, grace_seconds=0)
        await asyncio.sleep(LINGER_SECONDS)
        world.give(SECRET, "db", b="2")
        await asyncio.sleep(LINGER_SECONDS)
        assert mirrored(world, A)
        assert "b" not in (world.values(SECRET, "db") or {})
        born = values_at_birth(world, SECRET, "db")
        world.submit(needing("b", (SECRET, "db")))
        await world.until(lambda: mirrored(world, B))
        assert born["b"] == encoded("2")


@virtual_time
async def test_a_virtual_node_that_is_left_makes_nothing_new() -> None:
    """And what no mirror refers to goes without lingering."""
    world = CompanionWorld(is_brisk=True)
    world.give(SECRET, "db", a="1")
    world.give(CM, "settings", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: mirrored(world, A))
        companions = world.comers.companions
        companions._ports = replace(companions._ports, leaving=lambda: True)
        world.submit(needing("b", (CM, "settings")))
        world.delete(A)
        await world.until(lambda: not mirrored(world, A))
        assert await world.until(lambda: world.companion(SECRET, "db") is None) < 35.0


@virtual_time
async def test_what_cannot_be_a_name_is_never_asked_for() -> None:
    """API servers do not check the names in volumes: one may be a path."""
    world = CompanionWorld()
    evil = "../../kube-system/secrets/admin"
    async with world.running():
        world.submit(
            pod("a").with_spec(
                containers=[{"name": "main", "image": "busybox"}],
                volumes=[{"name": "v", "secret": {"secretName": evil}}],
            )
        )
        await world.until(lambda: mirrored(world, A))
        assert not [call for call in world.hub.calls if evil in call.key.name]
        assert not [call for call in world.target.calls if evil in call.key.name]


def values_at_birth(world: CompanionWorld, kind: Kind, name: str) -> dict[str, str]:
    """What each mirror found in a companion when it was made, by the mirror's name."""
    found: dict[str, str] = {}

    def look(change: Change) -> None:
        if change.resource == PODS and change.old is None:
            found[change.key.name] = next(iter((world.values(kind, name) or {}).values()), "")

    world.target.store.watches.append(Eyes(look))
    return found


@virtual_time
async def test_a_new_pod_starts_with_what_an_unwatched_object_is_now() -> None:
    """Nothing tells of its changes, so it is read again before the mirror is made."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    found = values_at_birth(world, SECRET, "db")
    refusing(world, "hub", "watch", Forbidden("cannot watch", status=403))
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(10.0)
        world.give(SECRET, "db", a="2")
        world.submit(needing("b", (SECRET, "db")))
        await world.until(lambda: mirrored(world, B))
        assert found["b"] == encoded("2")


@virtual_time
async def test_pods_that_come_after_a_change_wait_for_the_change() -> None:
    """Though the target takes its time with it: the environment is read once."""
    world = CompanionWorld()
    world.give(CM, "settings", a="1")
    found = values_at_birth(world, CM, "settings")
    async with world.running():
        world.submit(needing("a", (CM, "settings")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(10.0)
        world.fault_of = lambda call: (
            Delay(3.0) if call.verb == "patch" and call.resource == CONFIGMAPS else None
        )
        world.give(CM, "settings", a="2")
        await asyncio.sleep(0.1)
        world.submit(needing("b", (CM, "settings")))
        await world.until(lambda: mirrored(world, B))
        assert found == {"a": "1", "b": "2"}


@virtual_time
async def test_contents_are_not_kept_among_the_anchors() -> None:
    """Companions carry the labels of anchors, and are shown without what is in them."""
    world = CompanionWorld()
    world.give(CM, "settings", a="1")
    async with world.running():
        world.submit(needing("a", (CM, "settings")))
        await world.until(lambda: mirrored(world, A))
        await asyncio.sleep(1.0)
        assert set(world.process.mirroring.anchors.keys()) == {ANCHOR}
        shown = list(world.comers.companions.configmaps.values())
        assert len(shown) == 1
        assert "data" not in shown[0]


async def wait_in_vain(world: CompanionWorld, name: str) -> None:
    """A pod waits for a Secret that federate may not read, and is deleted."""
    key = world.submit(needing(name, (SECRET, "db")))
    await world.until(lambda: waits(world, key) == "CompanionUnreadable")
    world.delete(key)
    await world.until(lambda: world.hub_pod(key) is None)


@virtual_time
async def test_pods_that_are_gone_are_not_woken_any_more() -> None:
    """Jobs come and go while another pod waits for what cannot come."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="x")
    refusing(world, "hub", "get", Forbidden("cannot get", status=403))
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        for number in range(5):
            await wait_in_vain(world, f"job-{number}")
        [waiting] = world.comers.companions._waiting.values()
        assert waiting == {A}


@virtual_time
async def test_a_foreign_object_that_nobody_waits_for_any_more_is_left_alone() -> None:
    """It has the name of what would stand for a Secret; with the pod our interest in it ends."""
    world = CompanionWorld(is_brisk=True)
    world.give(SECRET, "db", password="x")
    place = name_of(SCOPE, world.key_of(SECRET, "db"))
    async with world.running():
        world.submit(needing("b"))
        await world.until(lambda: mirrored(world, B))
        with world.others():
            metadata = {"namespace": place.namespace, "name": place.name}
            world.target.add(SECRETS, {"metadata": metadata, "data": {}})
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: waits(world, A) == "NameTaken")
        world.delete(A)
        await asyncio.sleep(3 * LINGER_SECONDS)
        before = reads(world, "target")
        await asyncio.sleep(300.0)
        assert reads(world, "target") == before
        assert world.target.find(SECRETS, place) is not None
        assert not world.broken


@virtual_time
async def test_a_finalizer_in_the_target_is_waited_for() -> None:
    """What is revoked while somebody there holds it is gone for new pods, and comes back anew."""
    world = CompanionWorld()
    world.give(SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: mirrored(world, A))
        world.admin_edits(SECRET, "db", lambda o: o["metadata"].update(finalizers=["x/y"]))
        world.admin_deletes(SECRET, "db")
        await asyncio.sleep(70.0)
        world.submit(needing("b", (SECRET, "db")))
        await world.until(lambda: waits(world, B) == "CompanionEnding")
        world.admin_edits(SECRET, "db", lambda o: o["metadata"].pop("finalizers"))
        with world.others():
            world.target.store.remove(SECRETS, name_of(SCOPE, world.key_of(SECRET, "db")))
        assert await world.until(lambda: mirrored(world, B)) < 10.0

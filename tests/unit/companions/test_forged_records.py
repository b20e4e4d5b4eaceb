"""A hub pod's record is an annotation that its user can write: how far it is believed (C30)."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from federate.companions.environment import Advertised
from federate.companions.keys import CompanionKey, Kind, companion_of, name_of
from federate.companions.rules import CompanionRules, IdentityMode
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, record_of
from federate.model.naming import NamespaceRules, NamespaceStrategy, prefixed_namespace
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.pods import phase_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, SECRETS, SERVICEACCOUNTS
from tests.support.builders import PodBuilder, pod
from tests.support.clock import virtual_time
from tests.support.companions import encoded
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.issuestage import token_volume
from tests.support.scene import SCOPE, TARGET_NAMESPACE

A, VICTIM = ObjectKey("default", "a"), ObjectKey("payments", "victim")
SECRET = Kind.SECRET
PAYMENTS = prefixed_namespace(SCOPE.hub_id, "payments")


class AttackedWorld(CompanionWorld):
    """Beside `default`, where the attacker is, namespace `payments` runs a pod with a mirror."""

    async def settle_victim(self) -> None:
        with self.others():
            if self.hub.find(NAMESPACES, ObjectKey("", "payments")) is None:
                self.hub.add(NAMESPACES, {"metadata": {"name": "payments"}})
                account = {"metadata": {"namespace": "payments", "name": "default"}}
                self.hub.add(SERVICEACCOUNTS, account)
        self.submit(pod("victim", namespace="payments"))
        await self.until(lambda: self.mirror(VICTIM) is not None)
        await asyncio.sleep(2.0)
        self.broken_before = self.broken  # the witness knows of one target namespace

    def forge(self, key: ObjectKey, mirror: ObjectKey, uid: str) -> None:
        """The user of a hub pod writes its record."""

        def change(found: JsonDict) -> None:
            record = MirrorRecord(pod_uid=uid_of(found), mirror=mirror, mirror_uid=uid)
            written = {**annotations_of(found), RECORD_ANNOTATION: record.format()}
            found["metadata"]["annotations"] = written

        with self.others():
            self.hub.edit(PODS, key, change)

    def brought_to(self) -> dict[str, set[str]]:
        """Target namespace -> names of what came along there from namespace `default`."""
        found: dict[str, set[str]] = {}
        for resource, obj in self.target.store.all():
            if resource in (SECRETS, CONFIGMAPS):
                key = companion_of(SCOPE, obj)
                if key is not None and key.namespace == "default":
                    found.setdefault(key_of(obj).namespace, set()).add(key.name)
        return found


def refused(name: str) -> PodBuilder:
    """A pod that gets no mirror, ever: it waits on the hub for as long as its user likes."""
    return needing(name, (SECRET, "db")).owned_by("DaemonSet", "agents")


@pytest.mark.parametrize("whose", ["nobodys", "the victims", "a strangers"])
@virtual_time
async def test_c30_a_forged_record_brings_nothing_into_a_strangers_namespace(whose: str) -> None:
    """Not even one that names a pod which stands there: the mirror of another, or nobody's mirror.

    With the latter the hub pod waits for ever, for its mirror seems to have lost its marks.
    """
    world = AttackedWorld()
    world.give(SECRET, "db", password="x")
    async with world.running():
        await world.settle_victim()
        theirs = world.mirror(VICTIM)
        assert theirs is not None
        place, uid = ObjectKey(PAYMENTS, "a"), "made-up"
        if whose == "the victims":
            place, uid = key_of(theirs), uid_of(theirs)
        if whose == "a strangers":
            with world.others():
                plain = pod("a", namespace=PAYMENTS).with_uid("strangers-uid").build()
                uid = uid_of(world.target.add(PODS, plain))
        world.submit(refused("a"))
        await asyncio.sleep(1.0)
        world.forge(A, place, uid)
        await asyncio.sleep(100.0)
        assert world.brought_to() == {}
        assert uid_of(world.mirror(VICTIM) or {}) == uid_of(theirs)
        if whose == "a strangers":
            assert phase_of(world.hub_pod(A) or {}) == "Pending"
        assert world.broken == world.broken_before


@virtual_time
async def test_c30_a_pod_that_runs_cannot_have_its_companions_moved() -> None:
    """Its record is written anew as it is, and what it names stays where its mirror is."""
    world = AttackedWorld()
    world.give(SECRET, "db", password="x")
    async with world.running():
        await world.settle_victim()
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: world.mirror(A) is not None)
        await asyncio.sleep(2.0)
        mirror, theirs = world.mirror(A), world.mirror(VICTIM)
        assert mirror is not None
        assert theirs is not None
        for place in (ObjectKey(PAYMENTS, "a"), key_of(theirs)):
            world.forge(A, place, uid_of(mirror))
            await asyncio.sleep(100.0)
            assert world.brought_to() == {TARGET_NAMESPACE: {"db"}}
            found = record_of(world.hub_pod(A) or {})
            assert found is not None
            assert (found.mirror, found.mirror_uid) == (key_of(mirror), uid_of(mirror))
        assert world.broken == world.broken_before


@virtual_time
async def test_c22_a_forged_record_opens_no_system_namespace() -> None:
    """With `same` a hub user of kube-system would have an anchor made in the target's."""
    world = AttackedWorld(namespaces=NamespaceRules(strategy=NamespaceStrategy.SAME))
    key = ObjectKey("kube-system", "a")
    with world.others():
        world.hub.add(SECRETS, {"metadata": {"namespace": "kube-system", "name": "db"}, "data": {}})
    async with world.running():
        world.submit(
            pod("a", namespace="kube-system").with_spec(
                containers=spec_of(needing("a", (SECRET, "db")).build())["containers"]
            )
        )
        await asyncio.sleep(1.0)
        world.forge(key, key, "made-up")
        await asyncio.sleep(100.0)
        there = [
            str(key_of(obj))
            for resource, obj in world.target.store.all()
            if resource in (SECRETS, CONFIGMAPS)
            and key_of(obj).namespace == "kube-system"
            and SCOPE.owns(obj)
        ]
        assert there == []


@virtual_time
async def test_c31_a_forged_record_gets_no_token_issued() -> None:
    """For a pod that is refused nothing of its account goes to the target."""
    advertised = Advertised(host="192.0.2.1", port=6443)
    world = AttackedWorld(
        companions=CompanionRules(identity=IdentityMode.HUB, advertised=advertised)
    )
    async with world.running():
        await world.settle_victim()
        agent = needing("a").with_spec(volumes=[token_volume()])
        world.submit(agent.owned_by("DaemonSet", "agents"))
        await asyncio.sleep(1.0)
        world.forge(A, ObjectKey(PAYMENTS, "a"), "made-up")
        await asyncio.sleep(100.0)
        asked = [call for call in world.hub.calls if call.subresource == "token"]
        bound = {call.body["spec"]["boundObjectRef"]["name"] for call in asked if call.body}
        assert bound == {"victim"}


@virtual_time
async def test_a_forged_record_leads_no_request_anywhere_but_to_a_pod() -> None:
    """`x/proxy/...` for a name would have the target's API server ask any pod for anything."""
    world = AttackedWorld()
    async with world.running():
        await world.settle_victim()
        places = [
            ObjectKey(PAYMENTS, "victim/proxy/admin"),
            ObjectKey(PAYMENTS, "victim/log"),
            ObjectKey(f"{PAYMENTS}/secrets", "x"),
            ObjectKey("", "victim"),
        ]
        for number, place in enumerate(places):
            key = world.submit(refused(f"a{number}"))
            await asyncio.sleep(1.0)
            world.forge(key, place, "made-up")
            with world.others():
                world.hub.delete_by_user(PODS, key)
        await asyncio.sleep(100.0)
        asked = {str(call.key) for call in world.target.calls}
        assert not {str(place) for place in places} & asked
        assert not [call for call in world.target.calls if call.subresource]


@virtual_time
async def test_a_forged_record_has_no_anchor_looked_for_where_federate_never_was() -> None:
    """A pod of that name is asked for, for it may be the mirror without its marks; no more."""
    world = AttackedWorld()
    async with world.running():
        await world.settle_victim()
        world.submit(refused("a"))
        await asyncio.sleep(1.0)
        world.forge(A, ObjectKey("kube-system", "a"), "made-up")
        await asyncio.sleep(100.0)
        asked = {
            (call.verb, call.resource)
            for call in world.target.calls
            if "kube-system" in (call.key.namespace, call.key.name)
        }
        assert asked <= {("get", PODS)}


@virtual_time
async def test_c30_companions_stay_with_a_mirror_that_earlier_rules_placed() -> None:
    """Across a restart as well, whichever side is told of first: changes go on to arrive there."""
    world = CompanionWorld()
    world.give(SECRET, "db", password="old")
    async with world.running():
        world.submit(needing("a", (SECRET, "db")))
        await world.until(lambda: world.mirror(A) is not None)
        await asyncio.sleep(2.0)
        place = name_of(SCOPE, CompanionKey(TARGET_NAMESPACE, SECRET, "default", "db"))
        world.namespaces = NamespaceRules(strategy=NamespaceStrategy.SUFFIXED)
        for password in ("new", "newer"):
            world.kill()
            await asyncio.sleep(10.0)
            world.give(SECRET, "db", password=password)
            expected = {"password": encoded(password)}
            async with asyncio.timeout(20.0):
                while (  # noqa: ASYNC110
                    world.target.find(SECRETS, place) or {}
                ).get("data") != expected:
                    await asyncio.sleep(0.1)
        standing = [
            key_of(obj)
            for resource, obj in world.target.store.all()
            if resource == SECRETS and companion_of(SCOPE, obj) is not None
        ]
        assert standing == [place]


# -- who reads records -----------------------------------------------------------------------------

READERS: Mapping[str, str] = {
    "federate/cli/accept.py": "counts pods for an operator",
    "federate/cli/view.py": "counts what came along for an operator",
    "federate/companions/demand.py": "believes it only where that very mirror stands",
    "federate/companions/wanted.py": "orders work by it; brings nothing until the mirror stands",
    "federate/events/relay.py": "compares it with the pod that an Event is about",
    "federate/explain/mirrored.py": "words for who asks",
    "federate/explain/needed.py": "words for who asks",
    "federate/explain/reader.py": "reads the mirror by name, with the rights of who asks",
    "federate/explain/ruled.py": "words for who asks",
    "federate/leave/abandoning.py": "words for the pod's own end",
    "federate/leave/drain.py": "whether the pod itself may be removed",
    "federate/leave/plan.py": "words for an operator",
    "federate/leave/survey.py": "more namespaces to look into, passed over where they are closed",
    "federate/mirror/admission.py": "believes it where that very mirror lives; else others wait",
    "federate/mirror/plan.py": "the pod's own life; a mirror is made where the rules say",
    "federate/mirror/ports.py": "whose end counts for the pod itself",
    "federate/mirror/round.py": "reads of a pod by name; of anchors where federate ever was",
    "federate/runtime/hosted.py": "believes it only where that mirror says the same",
    "federate/runtime/lags.py": "a measurement",
    "federate/runtime/mirroring.py": "wakes the pod itself; compares it with the mirror's marks",
    "federate/services/population.py": "where Services may follow; they do where the rules say",
    "federate/services/round.py": "leaves a Service where it stands",
}
"""Each module that reads records, and how far it believes them."""


def test_each_reader_of_records_says_how_far_it_believes_them() -> None:
    """Whoever adds one must say so here, after a thought about who can write the annotation."""
    root = Path(__file__).parents[3]
    found = set()
    for path in (root / "federate").rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "federate.model.marks"
            for alias in node.names
        }
        if names & {"record_of", "claims_mirror"}:
            found.add(path.relative_to(root).as_posix())
    assert found == set(READERS)

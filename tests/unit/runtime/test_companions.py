"""How companions are wired to mirroring: rules, ground, and whom an anchor's change wakes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from federate.cluster.store import Change, Store
from federate.companions.environment import Advertised
from federate.companions.issued import place_of, services_key
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.companions.steps import Ground as Standing
from federate.errors import Conflict, Unreachable
from federate.mirror.ground import Ground, GroundRules
from federate.mirror.render import RenderRules
from federate.model.naming import NamespaceRules
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import CONFIGMAPS
from federate.runtime.companions import CompanionGround, with_companions
from tests.support.clock import ManualClock, virtual_time
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE, agreed

HUB = CompanionRules(identity=IdentityMode.HUB, advertised=Advertised(host="192.0.2.1", port=443))


def test_without_companions_nothing_is_renamed_and_nobody_is_somebody() -> None:
    render = RenderRules()
    assert with_companions(render, SCOPE, CompanionRules(are_made=False)) == render
    off = CompanionRules(are_made=False, identity=IdentityMode.HUB)
    assert with_companions(render, SCOPE, off) == render


def test_to_be_somebody_of_the_target_takes_no_companions() -> None:
    rules = CompanionRules(are_made=False, identity=IdentityMode.TARGET, target_account="runner")
    render = with_companions(RenderRules(), SCOPE, rules)
    assert render.scope is None
    assert render.identity is not None
    assert not render.brings_tokens
    assert render.travelling_tokens


def test_what_is_shared_and_who_pods_are_goes_into_the_rules_of_a_mirror() -> None:
    shared = frozenset({(Kind.SECRET, "pull")})
    render = with_companions(RenderRules(keeps_names=False), SCOPE, CompanionRules(shared=shared))
    assert (render.scope, render.shared, render.keeps_names) == (SCOPE, shared, False)
    assert render.identity is None
    assert with_companions(RenderRules(), SCOPE, HUB).brings_tokens


class Register:
    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def recorded(self) -> dict[str, str]:
        return self.known

    async def record(self, namespace: str, uid: str) -> None:
        self.known[namespace] = uid


class Stage:
    def __init__(self) -> None:
        self.target = FakeCluster("target", ManualClock())
        self.anchors, self.register = Store(), Register()
        self.is_fenced = False
        self.ground = CompanionGround(
            Ground(
                rules=GroundRules(scope=SCOPE, namespaces=NamespaceRules()),
                target=self.target.client(),
                anchors=self.anchors,
                register=self.register,
                confirm_target=agreed,
                fence=self.fence,
                now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            )
        )

    def fence(self) -> None:
        if self.is_fenced:
            raise Unreachable("not ours")

    def data(self) -> dict[str, str]:
        return dict(self.target.read(CONFIGMAPS, ANCHOR)["data"])


@virtual_time
async def test_c23_companions_stand_on_the_ground_of_mirrors() -> None:
    stage = Stage()
    assert stage.ground.state(TARGET_NAMESPACE) is Standing.NOT_YET
    assert stage.ground.anchor(TARGET_NAMESPACE) is None
    await stage.ground.prepare("default")
    assert stage.ground.state(TARGET_NAMESPACE) is Standing.READY
    assert stage.ground.anchor(TARGET_NAMESPACE) is not None
    stage.register.known[TARGET_NAMESPACE] = "another"
    assert stage.ground.state(TARGET_NAMESPACE) is Standing.UNINSTALLED


@virtual_time
async def test_entries_of_the_list_are_seen_at_once() -> None:
    """Before any watch tells of them; what others wrote there stays."""
    stage = Stage()
    await stage.ground.prepare("default")
    await stage.ground.note(TARGET_NAMESPACE, {"a": "Secret d/a", "b": "Secret d/b"}, exact=False)
    anchor = stage.ground.anchor(TARGET_NAMESPACE)
    assert anchor is not None
    assert set(anchor["data"]) == {"README", "a", "b"}
    await stage.ground.note(TARGET_NAMESPACE, {"a": None}, exact=True)
    assert set(stage.data()) == {"README", "b"}


@virtual_time
async def test_an_entry_is_struck_off_only_from_the_list_that_is_known() -> None:
    stage = Stage()
    await stage.ground.prepare("default")
    await stage.ground.note(TARGET_NAMESPACE, {"a": "Secret d/a"}, exact=False)
    stage.target.edit(CONFIGMAPS, ANCHOR, lambda obj: obj["data"].update(c="Secret d/c"))
    with pytest.raises(Conflict):
        await stage.ground.note(TARGET_NAMESPACE, {"a": None}, exact=True)
    await stage.ground.note(TARGET_NAMESPACE, {"d": "Secret d/d"}, exact=False)
    assert set(stage.data()) == {"README", "a", "c", "d"}


@virtual_time
async def test_nothing_is_noted_in_an_anchor_of_another_time() -> None:
    """Made anew by somebody, gone, or never there: what is to be listed may not be made."""
    stage = Stage()
    with pytest.raises(Conflict):
        await stage.ground.note(TARGET_NAMESPACE, {"a": "Secret d/a"}, exact=False)
    await stage.ground.prepare("default")
    body = stage.target.read(CONFIGMAPS, ANCHOR)
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    with pytest.raises(Conflict):
        await stage.ground.note(TARGET_NAMESPACE, {"a": "Secret d/a"}, exact=False)
    fresh: JsonDict = {"metadata": {k: body["metadata"][k] for k in ("name", "namespace")}}
    stage.target.add(CONFIGMAPS, fresh)
    with pytest.raises(Conflict):
        await stage.ground.note(TARGET_NAMESPACE, {"a": "Secret d/a"}, exact=False)


@virtual_time
async def test_c70_who_may_not_act_notes_nothing() -> None:
    stage = Stage()
    await stage.ground.prepare("default")
    stage.is_fenced = True
    with pytest.raises(Unreachable):
        await stage.ground.note(TARGET_NAMESPACE, {"a": "Secret d/a"}, exact=False)
    assert set(stage.data()) == {"README"}


@virtual_time
async def test_a_change_of_the_list_wakes_no_pod() -> None:
    """A thousand Secrets come and go there; an anchor that goes wakes all that stand by it."""
    world = CompanionWorld(with_nets=False)
    world.give(Kind.SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")))
        await world.until(lambda: world.mirror(ObjectKey("default", "a")) is not None)
        mirroring = world.process.mirroring
        woken: list[ObjectKey] = []
        mirroring.enqueue = lambda key: woken.append(key)  # type: ignore[method-assign]
        anchor = world.target.read(CONFIGMAPS, ANCHOR)
        other = {**anchor, "data": {"README": "x"}}
        mirroring._on_anchor(Change(key=ANCHOR, old=anchor, new=other))
        assert not woken
        mirroring._on_anchor(Change(key=ANCHOR, old=anchor, new=None))
        assert woken
        assert uid_of(anchor)


@virtual_time
async def test_a_round_that_fails_in_a_way_nobody_thought_of_is_tried_again() -> None:
    """It ends neither the virtual node nor the pods that wait for it."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", a="1")
    crashed: list[Call] = []

    def crash_once(call: Call) -> Fault | None:
        if call.verb == "create" and call.resource.plural == "secrets" and not crashed:
            crashed.append(call)
            return Refuse(RuntimeError("a bug"))  # type: ignore[arg-type]
        return None

    world.fault_of = crash_once
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")))
        await world.until(lambda: world.mirror(ObjectKey("default", "a")) is not None)
        await asyncio.sleep(1.0)
    assert crashed


@virtual_time
async def test_what_is_issued_stays_while_a_mirror_refers_to_it() -> None:
    """Who issues it asks those who know what mirrors refer to, and unpacks none for that."""
    world = CompanionWorld(companions=HUB)
    news = place_of(SCOPE, services_key(TARGET_NAMESPACE, "default", has_links=True))
    async with world.running():
        issuer = world.comers.issuer
        assert not issuer._tools.is_used(Kind.CONFIGMAP, news)
        key = world.submit(needing("a"))
        await world.until(lambda: world.mirror(key) is not None)
        await asyncio.sleep(1.0)
        assert issuer._tools.is_used(Kind.CONFIGMAP, news)

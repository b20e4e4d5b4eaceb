"""The ground of mirrors: namespace, service account and anchor, made once and never by force."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from federate.cluster.store import Store
from federate.errors import (
    Forbidden,
    NotFound,
    NotOurs,
    ServerFault,
    TargetChanged,
    Unreachable,
)
from federate.mirror.ground import NOTE_SECONDS, POD_SECURITY_LABEL, Ground, GroundRules
from federate.mirror.steps import AnchorState
from federate.model.marks import HUB_LABEL, HUB_NAMESPACE_ANNOTATION, USED_AT_ANNOTATION
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import (
    ObjectKey,
    annotations_of,
    labels_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS
from federate.patch.document import MERGE, PatchBody
from federate.policy.level import PodSecurityLevel
from tests.support.clock import ManualClock, virtual_time
from tests.support.fakeclient import Call, Delay, Fault, LostReply, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.rights import role_in
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE


class Register:
    """Remembers in memory; `fails` makes the hub unreachable."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.fails = False

    def recorded(self) -> Mapping[str, str]:
        return self.known

    async def record(self, namespace: str, uid: str) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise Unreachable("no answer", cluster="hub")
        self.known[namespace] = uid


class Stage:
    def __init__(self, strategy: NamespaceStrategy = NamespaceStrategy.PREFIXED) -> None:
        self.target = FakeCluster("target", ManualClock())
        self.register = Register()
        self.anchors = Store()
        self.is_another = False
        self.ground = self.fresh(strategy)

    async def confirm(self) -> None:
        """Say whether the target is still the cluster it was."""
        if self.is_another:
            raise TargetChanged("another cluster", cluster="target")

    def fresh(
        self,
        strategy: NamespaceStrategy = NamespaceStrategy.PREFIXED,
        level: PodSecurityLevel = PodSecurityLevel.BASELINE,
    ) -> Ground:
        """The ground of a process that knows nothing yet."""
        self.anchors = Store()
        namespaces = NamespaceRules(strategy=strategy)
        return Ground(
            rules=GroundRules(scope=SCOPE, namespaces=namespaces, level=level),
            target=self.target.client(),
            anchors=self.anchors,
            register=self.register,
            confirm_target=self.confirm,
            fence=lambda: None,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )

    def confined(self, *namespaces: str) -> Ground:
        """The ground of a process with rights in these namespaces only; the first is used."""
        self.anchors = Store()
        self.refused: list[str] = []
        self.target.faults = role_in(*namespaces, refused=self.refused)
        rules = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single=namespaces[0])
        return Ground(
            rules=GroundRules(scope=SCOPE, namespaces=rules),
            target=self.target.client(),
            anchors=self.anchors,
            register=self.register,
            confirm_target=self.confirm,
            fence=lambda: None,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )

    def state(self) -> AnchorState:
        return self.ground.anchor_state(TARGET_NAMESPACE)


@virtual_time
async def test_the_first_pod_makes_all_that_is_needed() -> None:
    """Namespace with marks and PodSecurity level, anchor with marks, and the memory of it."""
    stage = Stage()
    assert stage.state() is AnchorState.NEVER
    await stage.ground.prepare("default")
    namespace = stage.target.read(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
    assert labels_of(namespace)[HUB_LABEL] == SCOPE.hub_id
    assert labels_of(namespace)[POD_SECURITY_LABEL] == "baseline"
    assert annotations_of(namespace)[HUB_NAMESPACE_ANNOTATION] == "default"
    anchor = stage.target.read(CONFIGMAPS, ANCHOR)
    assert SCOPE.owns(anchor)
    assert stage.register.known == {TARGET_NAMESPACE: uid_of(anchor)}
    assert stage.state() is AnchorState.PRESENT
    assert stage.ground.anchor(TARGET_NAMESPACE) == anchor
    assert stage.ground.uninstalled() == []


@virtual_time
async def test_many_pods_at_once_make_it_once() -> None:
    """Sixty first pods of a namespace ask the target once, and later ones not at all."""
    stage = Stage()
    await asyncio.gather(*(stage.ground.prepare("default") for _ in range(60)))
    assert len(stage.target.writes()) == 2
    calls = len(stage.target.calls)
    await stage.ground.prepare("default")
    assert len(stage.target.calls) == calls


@virtual_time
async def test_it_may_die_between_any_two_requests() -> None:
    """Whichever reply is lost, a fresh process ends with the same one namespace and anchor."""
    for number in range(5):
        stage = Stage()

        def lose(call: Call, number: int = number) -> Fault | None:
            return LostReply() if call.number == number else None

        stage.target.faults = lose
        stage.register.fails = number == 4
        with suppress(Unreachable):
            await stage.ground.prepare("default")
        stage.target.faults, stage.register.fails = None, False
        stage.ground = stage.fresh()
        await stage.ground.prepare("default")
        assert await stage.ground.look_up_anchor(TARGET_NAMESPACE) is AnchorState.PRESENT
        anchor = stage.target.read(CONFIGMAPS, ANCHOR)
        assert stage.register.known == {TARGET_NAMESPACE: uid_of(anchor)}


@virtual_time
async def test_a_foreign_namespace_of_our_name_is_left_alone() -> None:
    """Without this hub's label nothing is made in it, and it is not labelled."""
    stage = Stage()
    before = stage.target.add_namespace(TARGET_NAMESPACE)
    with pytest.raises(NotOurs, match="not federate's"):
        await stage.ground.prepare("default")
    assert not stage.target.writes()
    assert stage.target.read(NAMESPACES, ObjectKey("", TARGET_NAMESPACE)) == before


@pytest.mark.parametrize(
    ("present", "wanted", "after"),
    [
        ("baseline", "privileged", "privileged"),
        ("baseline", "baseline", "baseline"),
        ("privileged", "baseline", "privileged"),
        ("restricted", "privileged", "restricted"),
        (None, "privileged", None),
    ],
)
@virtual_time
async def test_c22_a_level_is_raised_and_never_lowered(
    present: str | None, wanted: str, after: str | None
) -> None:
    """From what federate set to what the policy asks for; what somebody else chose stays."""
    stage = Stage()
    await stage.ground.prepare("default")
    key = ObjectKey("", TARGET_NAMESPACE)
    labels = {POD_SECURITY_LABEL: present}
    body = {"metadata": {"labels": labels}}
    await stage.target.client().patch(NAMESPACES, key, PatchBody(media_type=MERGE, body=body))
    ground = stage.fresh(level=PodSecurityLevel(wanted))
    writes = len(stage.target.writes())
    assert await ground.admit_more(TARGET_NAMESPACE) is (after != present)
    assert len(stage.target.writes()) - writes == (after != present)
    assert labels_of(stage.target.read(NAMESPACES, key)).get(POD_SECURITY_LABEL) == after
    assert await ground.admit_more(TARGET_NAMESPACE) is False


@virtual_time
async def test_c22_the_level_of_a_strangers_namespace_stays() -> None:
    """What federate did not make it does not label."""
    stage = Stage()
    stage.target.add_namespace(TARGET_NAMESPACE)
    ground = stage.fresh(level=PodSecurityLevel.PRIVILEGED)
    assert await ground.admit_more(TARGET_NAMESPACE) is False
    assert not stage.target.writes()


@virtual_time
async def test_c22_a_namespace_is_made_with_the_level_of_the_policy() -> None:
    """So nothing is to be raised."""
    stage = Stage()
    await stage.fresh(level=PodSecurityLevel.PRIVILEGED).prepare("default")
    made = stage.target.read(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
    assert labels_of(made)[POD_SECURITY_LABEL] == "privileged"


@virtual_time
async def test_the_same_name_needs_no_label() -> None:
    """With the strategy `same` the namespace belongs to the users of both sides."""
    stage = Stage(NamespaceStrategy.SAME)
    await stage.ground.prepare("default")
    assert stage.ground.anchor_state("default") is AnchorState.PRESENT
    assert stage.ground.mirror_key(ObjectKey("default", "a")) == ObjectKey("default", "a")
    assert HUB_LABEL not in labels_of(stage.target.read(NAMESPACES, ObjectKey("", "default")))


@virtual_time
async def test_a_terminating_namespace_is_not_used() -> None:
    """It says so with a reason, and nothing is made."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.target.delete_by_user(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
    stage.register.known.clear()
    stage.ground = stage.fresh()
    with pytest.raises(Forbidden) as told:
        await stage.ground.prepare("default")
    assert told.value.reason == "NamespaceTerminating"


@virtual_time
async def test_the_default_service_account_is_waited_for() -> None:
    """Without it there is no anchor yet: the pod would be refused."""
    stage = Stage()
    stage.target.provisions_namespaces = False
    with pytest.raises(Forbidden) as told:
        await stage.ground.prepare("default")
    assert told.value.reason == "ServiceAccountMissing"
    assert stage.state() is AnchorState.NEVER
    account = {"metadata": {"name": "default", "namespace": TARGET_NAMESPACE}}
    stage.target.add(SERVICEACCOUNTS, account)
    await stage.ground.prepare("default")
    assert stage.state() is AnchorState.PRESENT


@virtual_time
async def test_a_stranger_with_the_anchors_name_is_left_alone() -> None:
    """A ConfigMap without our marks is neither adopted nor replaced."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.register.known.clear()
    stage.target.edit(CONFIGMAPS, ANCHOR, lambda c: c["metadata"].update(labels={"x": "y"}))
    stage.ground = stage.fresh()
    with pytest.raises(NotOurs, match="marks"):
        await stage.ground.prepare("default")
    assert labels_of(stage.target.read(CONFIGMAPS, ANCHOR)) == {"x": "y"}


@virtual_time
async def test_a_removed_anchor_is_an_uninstall_and_stays_one() -> None:
    """What is on record and not there is GONE: nothing is made, another uid does not count."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    assert await stage.ground.look_up_anchor(TARGET_NAMESPACE) is AnchorState.GONE
    writes = len(stage.target.writes())
    await stage.ground.prepare("default")
    assert len(stage.target.writes()) == writes
    assert stage.ground.uninstalled() == [TARGET_NAMESPACE]
    assert stage.ground.anchor(TARGET_NAMESPACE) is None
    labels = SCOPE.labels()
    stage.target.add(
        CONFIGMAPS,
        {"metadata": {"name": ANCHOR.name, "namespace": TARGET_NAMESPACE, "labels": labels}},
    )
    assert await stage.ground.look_up_anchor(TARGET_NAMESPACE) is AnchorState.GONE


@virtual_time
async def test_a_terminating_anchor_owns_nothing() -> None:
    """An anchor that ends would take new mirrors with it."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.target.edit(CONFIGMAPS, ANCHOR, lambda c: c["metadata"].update(finalizers=["x.com/y"]))
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    assert await stage.ground.look_up_anchor(TARGET_NAMESPACE) is AnchorState.GONE


@virtual_time
@pytest.mark.parametrize("way", ["terminating", "absent"])
async def test_a_namespace_that_goes_takes_its_anchor_along(way: str) -> None:
    """It is an uninstall even while the anchor still stands: nothing new is made there."""
    stage = Stage()
    await stage.ground.prepare("default")
    if way == "terminating":
        stage.target.delete_by_user(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
    else:
        stage.target.store.remove(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
    assert await stage.ground.look_up_anchor(TARGET_NAMESPACE) is AnchorState.GONE
    assert stage.target.find(CONFIGMAPS, ANCHOR) is not None
    assert stage.ground.anchor(TARGET_NAMESPACE) is None
    assert stage.ground.uninstalled() == [TARGET_NAMESPACE]


@virtual_time
async def test_a_namespace_that_is_used_anew_changes_its_version() -> None:
    """Whoever found it empty before cannot delete it after; a new one needs no such word."""
    stage = Stage()
    key = ObjectKey("", TARGET_NAMESPACE)
    await stage.ground.prepare("default")
    made = stage.target.read(NAMESPACES, key)
    assert USED_AT_ANNOTATION not in annotations_of(made)
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    stage.register.known.clear()
    stage.ground = stage.fresh()
    await stage.ground.prepare("default")
    used = stage.target.read(NAMESPACES, key)
    assert annotations_of(used)[USED_AT_ANNOTATION].startswith("2026-01-01T00:00:00")
    assert resource_version_of(used) != resource_version_of(made)
    [note] = [c for c in stage.target.writes() if c.verb == "patch"]
    assert (note.body or {})["metadata"]["uid"] == uid_of(made)


@virtual_time
async def test_an_anchor_in_place_is_found_by_a_direct_read() -> None:
    """A fresh process whose store is still empty sees it."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.ground = stage.fresh()
    assert stage.state() is AnchorState.GONE  # the store alone would say so
    assert await stage.ground.look_up_anchor(TARGET_NAMESPACE) is AnchorState.PRESENT


@virtual_time
async def test_a_failure_of_one_namespace_leaves_the_others_alone() -> None:
    """A hanging or failing namespace neither blocks nor breaks another."""
    stage = Stage()

    def refuse(call: Call) -> Fault | None:
        hit = call.verb == "create" and call.key.name.endswith("bad")
        return Refuse(ServerFault("etcd", status=500)) if hit else None

    stage.target.faults = refuse
    bad, good = await asyncio.gather(
        stage.ground.prepare("bad"), stage.ground.prepare("good"), return_exceptions=True
    )
    assert isinstance(bad, ServerFault)
    assert good is None


@virtual_time
async def test_a_request_about_the_list_that_hangs_holds_up_the_anchor_for_seconds_only() -> None:
    """Whether it was carried out is seen by the watch; what is asked for waits no longer."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.target.faults = lambda call: Delay(1000.0) if call.verb == "patch" else None
    began_at = asyncio.get_running_loop().time()
    noted, looked = await asyncio.gather(
        stage.ground.note(TARGET_NAMESPACE, {"a": None}, exact=True),
        stage.ground.look_up_anchor(TARGET_NAMESPACE),
        return_exceptions=True,
    )
    assert isinstance(noted, Unreachable)
    assert looked is AnchorState.PRESENT
    assert asyncio.get_running_loop().time() - began_at <= NOTE_SECONDS + 1.0


@virtual_time
async def test_c5_absence_in_another_cluster_says_nothing() -> None:
    """Neither is an anchor missing there, nor is anything made there."""
    stage = Stage()
    await stage.ground.prepare("default")
    elsewhere = Stage()
    elsewhere.register.known, elsewhere.anchors = stage.register.known, stage.anchors
    elsewhere.is_another = True
    elsewhere.ground = elsewhere.fresh()
    with pytest.raises(TargetChanged):
        await elsewhere.ground.look_up_anchor(TARGET_NAMESPACE)
    elsewhere.register.known = {}
    with pytest.raises(TargetChanged):
        await elsewhere.ground.prepare("default")
    assert elsewhere.target.writes() == []


@virtual_time
async def test_c70_a_namespace_of_ours_is_marked_in_use_under_every_strategy() -> None:
    """A leader frozen before it gives the namespace back finds another version than it knew."""
    stage = Stage(NamespaceStrategy.SAME)
    await stage.ground.prepare("shop")
    key = ObjectKey("", "shop")
    found_empty = resource_version_of(stage.target.read(NAMESPACES, key))
    stage.register.known.clear()
    await stage.fresh(NamespaceStrategy.SAME).prepare("shop")
    assert resource_version_of(stage.target.read(NAMESPACES, key)) != found_empty


@virtual_time
async def test_c23_a_dying_anchor_owns_nothing_new() -> None:
    """It is still being removed when the namespace is used anew: wait, and make another."""
    stage = Stage()
    await stage.ground.prepare("default")
    stage.target.edit(CONFIGMAPS, ANCHOR, lambda c: c["metadata"].update(finalizers=["x.y/z"]))
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    stage.register.known.clear()
    with pytest.raises(Forbidden, match="still being removed"):
        await stage.fresh().prepare("default")
    assert stage.register.known == {}


# -- confined to namespaces ------------------------------------------------------------------------

TEAM = "team-a"
TEAMS_ANCHOR = ObjectKey(TEAM, ANCHOR.name)


@virtual_time
async def test_c22_a_named_namespace_is_used_as_it_is_found() -> None:
    """An anchor is all that is made there, with rights in that namespace alone."""
    stage = Stage()
    before = stage.target.add_namespace(TEAM)
    ground = stage.confined(TEAM)
    await ground.prepare("default")
    assert ground.anchor_state(TEAM) is AnchorState.PRESENT
    assert stage.register.known == {TEAM: uid_of(stage.target.read(CONFIGMAPS, TEAMS_ANCHOR))}
    assert await ground.look_up_anchor(TEAM) is AnchorState.PRESENT
    assert [str(call) for call in stage.target.writes()] == [f"create configmaps {TEAMS_ANCHOR}"]
    assert stage.target.read(NAMESPACES, ObjectKey("", TEAM)) == before
    assert stage.refused == []


@virtual_time
async def test_c22_a_named_namespace_is_never_made() -> None:
    """It is said that it is not there, and waited for."""
    stage = Stage()
    ground = stage.confined(TEAM)
    with pytest.raises(NotFound, match="federate makes none"):
        await ground.prepare("default")
    assert stage.target.writes() == []
    stage.target.add_namespace(TEAM)
    await ground.prepare("default")
    assert ground.anchor_state(TEAM) is AnchorState.PRESENT


@virtual_time
@pytest.mark.parametrize("way", ["terminating", "absent"])
async def test_c23_a_named_namespace_that_goes_is_seen_without_reading_it(way: str) -> None:
    """A create that is only tried is refused there: an uninstall, while the anchor still stands."""
    stage = Stage()
    stage.target.add_namespace(TEAM)
    ground = stage.confined(TEAM)
    await ground.prepare("default")
    key = ObjectKey("", TEAM)
    if way == "terminating":
        stage.target.delete_by_user(NAMESPACES, key)
    else:
        stage.target.store.remove(NAMESPACES, key)
    assert await ground.look_up_anchor(TEAM) is AnchorState.GONE
    assert stage.target.find(CONFIGMAPS, TEAMS_ANCHOR) is not None
    assert ground.uninstalled() == [TEAM]
    assert stage.refused == []


@virtual_time
async def test_c23_a_try_that_a_quota_refuses_is_no_end_of_the_namespace() -> None:
    """Any other refusal says nothing, and is not believed to say something."""
    stage = Stage()
    stage.target.add_namespace(TEAM)
    ground = stage.confined(TEAM)
    await ground.prepare("default")

    def refuse(words: str) -> None:
        stage.target.faults = lambda call: (
            Refuse(Forbidden(words, status=403)) if call.dry_run else None
        )

    refuse("exceeded quota: count/configmaps")
    assert await ground.look_up_anchor(TEAM) is AnchorState.PRESENT
    refuse('User "x" cannot create resource "configmaps"')
    with pytest.raises(Forbidden):
        await ground.look_up_anchor(TEAM)
    assert ground.anchor_state(TEAM) is AnchorState.PRESENT


@virtual_time
async def test_c51_namespaces_on_record_are_watched_too() -> None:
    """Mirrors of before stand there; a namespace of nobody's is not looked at."""
    stage = Stage()
    stage.register.known = {TARGET_NAMESPACE: "uid"}
    ground = stage.confined(TEAM)
    assert list(ground.watched) == [TEAM]
    ground.watch_recorded()
    assert list(ground.watched) == [TARGET_NAMESPACE, TEAM]
    assert ground.is_watched(TARGET_NAMESPACE)
    assert not ground.is_watched("kube-system")
    assert stage.fresh().is_watched("kube-system")

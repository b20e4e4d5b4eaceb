"""What came along and nobody wants: found by marks and entries, removed by version (C51)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.companions.demand import Demand, listing_entry
from federate.companions.issued import (
    IssuedKey,
    IssuedKind,
    listing_of,
    place_of,
    render_issued,
)
from federate.companions.keys import CompanionKey, Kind, companion_name, name_of
from federate.companions.render import owner_reference
from federate.errors import Forbidden, LeadershipLost, Unreachable
from federate.garbage.brought import Brought, brought
from federate.garbage.companions import (
    NOT_OURS,
    SWEEP_PERIOD_SECONDS,
    CompanionSweeper,
    remove_brought,
    survey_brought,
)
from federate.model.marks import COMPANION_OF_ANNOTATION, Scope
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, SECRETS
from tests.support.builders import pod
from tests.support.clock import ManualClock, virtual_time
from tests.support.companions import (
    ANCHOR,
    TARGET_NAMESPACE,
    companion,
    entry_for,
    hub_object,
    key_for,
)
from tests.support.fakeclient import Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.rights import role_in
from tests.support.views import OTHER_SCOPE, SCOPE, hub_pod, mirror

LOGIN = key_for(Kind.SECRET, "login")
OLD = key_for(Kind.SECRET, "old")
SITE = key_for(Kind.CONFIGMAP, "site")
TOKENS = IssuedKey(TARGET_NAMESPACE, IssuedKind.TOKENS, "default", "web", "uid-web")
SERVICES = IssuedKey(TARGET_NAMESPACE, IssuedKind.SERVICES, "default", "linked")


def entry_of(key: CompanionKey, scope: Scope = SCOPE) -> dict[str, str]:
    return {name_of(scope, key).name: listing_entry(key)}


def anchor_with(*entries: dict[str, str], scope: Scope = SCOPE) -> JsonDict:
    metadata = {**ANCHOR["metadata"], "name": anchor_name(scope), "labels": scope.labels()}
    return {"metadata": metadata, "data": {k: v for one in entries for k, v in one.items()}}


class Bench:
    """A hub without pods, and a target with a Secret and a ConfigMap that came along."""

    def __init__(self) -> None:
        self.hub = FakeCluster("hub", ManualClock())
        self.hub.add(NAMESPACES, {"metadata": {"name": "kube-system", "uid": SCOPE.hub_id}})
        self.target = FakeCluster("berlin", ManualClock())
        self.target.add(CONFIGMAPS, anchor_with(entry_of(LOGIN)))
        for key in (LOGIN, SITE):
            self.add(key)
        self.is_elsewhere = False

    def add(self, key: CompanionKey, scope: Scope = SCOPE) -> JsonDict:
        made = companion(key, hub_object(key), scope=scope)
        del made["metadata"]["uid"]
        return self.target.add(key.kind.resource, made)

    def find(self, key: CompanionKey) -> JsonDict | None:
        return self.target.find(key.kind.resource, name_of(SCOPE, key))

    async def _agree(self) -> None:
        if self.is_elsewhere:
            raise LeadershipLost("the hub is another cluster")

    async def unwanted(self, *namespaces: str) -> list[Any]:
        found = await survey_brought(
            self.hub.client(),
            self.target.client(),
            SCOPE,
            confirm_hub=self._agree,
            namespaces=namespaces or ("",),
        )
        return [one.key for one in found.unwanted]

    async def remove(self, key: CompanionKey) -> str:
        one = Brought(key.kind, name_of(SCOPE, key), key)
        return await remove_brought(self.target.client(), SCOPE, one, fence=lambda: None)


# -- the inventory ---------------------------------------------------------------------------------


def test_marks_and_entries_tell_what_came_along() -> None:
    """ConfigMaps by their marks, Secrets by their entries, or by an old anchor's lines."""
    anchor = anchor_with(
        entry_of(OLD),
        {place_of(SCOPE, one).name: listing_of(one) for one in (TOKENS, SERVICES)},
    )
    services = render_issued(SERVICES, {"A": "b"}, scope=SCOPE, owner=ANCHOR)
    found = brought(
        SCOPE,
        configmaps=[companion(SITE, hub_object(SITE)), services, entry_for(LOGIN)],
        anchors=[anchor],
    )
    assert {one.key: (one.kind, one.place) for one in found} == {
        LOGIN: (Kind.SECRET, name_of(SCOPE, LOGIN)),
        OLD: (Kind.SECRET, name_of(SCOPE, OLD)),
        SITE: (Kind.CONFIGMAP, name_of(SCOPE, SITE)),
        TOKENS: (Kind.SECRET, place_of(SCOPE, TOKENS)),
        SERVICES: (Kind.CONFIGMAP, place_of(SCOPE, SERVICES)),
    }


def test_c30_what_is_not_wholly_marked_is_not_in_it() -> None:
    """Nor what a list of a stranger, or an entry that leads elsewhere, says."""
    copied = companion(SITE, hub_object(SITE))
    copied["metadata"]["name"] = "theirs"
    foreign = companion(SITE, hub_object(SITE), scope=OTHER_SCOPE)
    strangers = anchor_with(entry_of(LOGIN), entry_of(LOGIN, OTHER_SCOPE), scope=OTHER_SCOPE)
    edited = anchor_with({"treasure": listing_entry(LOGIN), "x": "Secret ../../y"})
    assert brought(SCOPE, configmaps=[copied, foreign], anchors=[strangers, edited]) == ()


def test_a_name_that_nothing_can_have_is_nobodys() -> None:
    """It would stand on a terminal as somebody in the target wrote it."""
    keys = [
        CompanionKey(TARGET_NAMESPACE, Kind.SECRET, namespace, name)
        for namespace, name in (("default", "\x1b[2J"), ("..", "login"), ("a\nb", "login"))
    ]
    marked = [companion(key._replace(kind=Kind.CONFIGMAP), hub_object(SITE)) for key in keys]
    assert brought(SCOPE, configmaps=marked, anchors=[anchor_with(*map(entry_of, keys))]) == ()


# -- removing one ----------------------------------------------------------------------------------


@virtual_time
async def test_c51_it_is_deleted_by_uid_and_version() -> None:
    """And read by name, its metadata alone, right before."""
    bench = Bench()
    assert await bench.remove(LOGIN) == "asked to go"
    assert bench.find(LOGIN) is None
    (delete,) = bench.target.writes()
    there = (delete.body or {})["preconditions"]
    assert there.keys() == {"uid", "resourceVersion"}
    assert await bench.remove(LOGIN) == ""


@virtual_time
async def test_c30_an_object_that_is_not_ours_stays() -> None:
    """Whatever the list says: somebody took the name, or took our marks off."""
    bench = Bench()
    for label in ("federate.dev/companion", "federate.dev/virtual-node"):
        bench.target.store.remove(SECRETS, name_of(SCOPE, LOGIN))
        made = companion(LOGIN, hub_object(LOGIN))
        del made["metadata"]["labels"][label]
        bench.target.add(SECRETS, made)
        assert await bench.remove(LOGIN) == NOT_OURS
        bench.target.store.remove(SECRETS, name_of(SCOPE, LOGIN))
        other = companion(LOGIN, hub_object(LOGIN))
        told = companion(key_for(name="another"), hub_object(LOGIN))["metadata"]["annotations"]
        other["metadata"]["annotations"][COMPANION_OF_ANNOTATION] = told[COMPANION_OF_ANNOTATION]
        bench.target.add(SECRETS, other)
        assert await bench.remove(LOGIN) == NOT_OURS
    assert not bench.target.writes()


@virtual_time
async def test_a_secret_goes_with_its_entry() -> None:
    """One that waits for somebody's finalizer keeps it; one without a Secret goes alone."""
    bench = Bench()
    entry = bench.target.add(CONFIGMAPS, entry_for(LOGIN))
    finalizers = ["example.com/keep"]
    where = name_of(SCOPE, LOGIN)
    bench.target.edit(SECRETS, where, lambda obj: obj["metadata"].update(finalizers=finalizers))
    assert await bench.remove(LOGIN) == "asked to go"
    assert await bench.remove(LOGIN) == "ending"
    assert bench.target.find(CONFIGMAPS, where) == entry
    bench.target.store.remove(SECRETS, where)
    assert await bench.remove(LOGIN) == ""
    assert bench.target.find(CONFIGMAPS, where) is None
    bench.target.add(CONFIGMAPS, entry_for(LOGIN))
    bench.add(LOGIN)
    assert await bench.remove(LOGIN) == "asked to go"
    assert bench.find(LOGIN) is None
    assert bench.target.find(CONFIGMAPS, where) is None


@virtual_time
async def test_one_that_lost_its_marks_is_known_by_its_entry() -> None:
    """Not so where the entry is another one, or tells of something else."""
    bench = Bench()
    where = name_of(SCOPE, LOGIN)
    bench.target.edit(SECRETS, where, lambda obj: obj["metadata"].update(labels={}))
    assert await bench.remove(LOGIN) == NOT_OURS
    entry = entry_for(LOGIN)
    del entry["metadata"]["uid"]
    bench.target.add(CONFIGMAPS, entry)
    assert await bench.remove(LOGIN) == NOT_OURS
    bench.target.store.remove(CONFIGMAPS, where)
    told = {COMPANION_OF_ANNOTATION: "Secret default/another"}
    bench.target.add(
        CONFIGMAPS, {"metadata": {**entry_for(LOGIN)["metadata"], "annotations": told}}
    )
    assert await bench.remove(LOGIN) == NOT_OURS
    assert not bench.target.writes()
    bench.target.store.remove(CONFIGMAPS, where)
    owner = bench.target.add(CONFIGMAPS, entry)
    bench.target.edit(
        SECRETS,
        where,
        lambda obj: obj["metadata"].update(ownerReferences=[owner_reference(owner)]),
    )
    assert await bench.remove(LOGIN) == "asked to go"


@virtual_time
async def test_an_entry_that_is_put_to_use_meanwhile_stays() -> None:
    """Somebody takes it up after it was seen, to make the Secret anew."""
    bench = Bench()
    where = name_of(SCOPE, LOGIN)
    bench.target.add(CONFIGMAPS, entry_for(LOGIN))
    bench.target.store.remove(SECRETS, where)
    one = Brought(Kind.SECRET, where, LOGIN)

    def touch() -> None:
        mark = {"federate.dev/taken-up": "1"}
        bench.target.edit(CONFIGMAPS, where, lambda obj: obj["metadata"].update(annotations=mark))

    said = await remove_brought(bench.target.client(), SCOPE, one, fence=touch)
    assert said == "changed meanwhile"
    assert bench.target.find(CONFIGMAPS, where) is not None


@virtual_time
async def test_one_that_changes_meanwhile_is_looked_at_again() -> None:
    bench = Bench()
    before = bench.find(SITE)
    assert before is not None

    def touch() -> None:
        bench.target.store.remove(CONFIGMAPS, name_of(SCOPE, SITE))
        bench.add(SITE)

    one = Brought(Kind.CONFIGMAP, name_of(SCOPE, SITE), SITE)
    said = await remove_brought(bench.target.client(), SCOPE, one, fence=touch)
    assert said == "changed meanwhile"
    after = bench.find(SITE)
    assert after is not None and uid_of(after) != uid_of(before)


@virtual_time
async def test_one_that_is_held_is_ending() -> None:
    bench = Bench()
    bench.target.store.remove(CONFIGMAPS, name_of(SCOPE, SITE))
    held = companion(SITE, hub_object(SITE))
    held["metadata"]["finalizers"] = ["example.com/keep"]
    bench.target.add(CONFIGMAPS, held)
    assert await bench.remove(SITE) == "asked to go"
    assert await bench.remove(SITE) == "ending"


# -- by hand ---------------------------------------------------------------------------------------


@virtual_time
async def test_what_nobody_wants_is_found_and_no_secret_is_listed() -> None:
    bench = Bench()
    assert await bench.unwanted() == [SITE, LOGIN]
    assert not [
        call
        for cluster in (bench.hub, bench.target)
        for call in cluster.calls
        if call.resource == SECRETS
    ]


@virtual_time
async def test_what_a_hub_pod_names_is_wanted_wherever_its_mirror_would_stand() -> None:
    """A terminal pod needs nothing any more (C42)."""
    bench = Bench()
    spec = {"volumes": [{"name": "v", "secret": {"secretName": "login"}}]}
    bench.hub.add(PODS, hub_pod().with_spec(**spec).build())
    assert await bench.unwanted() == [SITE]
    bench.hub.add(
        PODS,
        pod("over")
        .bound_to(SCOPE.node_name)
        .with_spec(imagePullSecrets=[{"name": "site"}])
        .succeeded()
        .build(),
    )
    elsewhere = pod("elsewhere").bound_to("worker")
    reference = {"envFrom": [{"configMapRef": {"name": "site"}}], "name": "app", "image": "x"}
    bench.hub.add(PODS, elsewhere.with_spec(containers=[reference]).build())
    assert await bench.unwanted() == [SITE]


@virtual_time
async def test_what_a_mirror_uses_is_wanted() -> None:
    """Though its hub pod is gone: it still runs."""
    bench = Bench()
    name = companion_name(SCOPE, Kind.CONFIGMAP, SITE.hub_key)
    volumes = [{"name": "v", "configMap": {"name": name}}]
    bench.target.add(PODS, mirror().with_spec(volumes=volumes).build())
    assert await bench.unwanted() == [LOGIN]


@virtual_time
async def test_tokens_go_with_their_pod_and_services_with_the_last_one() -> None:
    bench = Bench()
    anchor = ObjectKey(TARGET_NAMESPACE, anchor_name(SCOPE))
    bench.target.store.remove(CONFIGMAPS, anchor)
    issued = {place_of(SCOPE, one).name: listing_of(one) for one in (TOKENS, SERVICES)}
    bench.target.add(CONFIGMAPS, anchor_with(issued))
    bench.target.store.remove(CONFIGMAPS, name_of(SCOPE, SITE))
    assert set(await bench.unwanted()) == {TOKENS, SERVICES}
    other = hub_pod().build()
    other["metadata"]["uid"] = "another"
    bench.hub.add(PODS, other)
    assert await bench.unwanted() == [TOKENS]


@virtual_time
async def test_c51_without_a_complete_reading_nothing_is_unwanted() -> None:
    """On another hub, where a listing fails, or in a namespace that is closed to us."""
    bench = Bench()
    bench.is_elsewhere = True
    with pytest.raises(LeadershipLost):
        await bench.unwanted()
    bench.is_elsewhere = False
    bench.hub.faults = lambda call: (
        Refuse(Unreachable("gone", cluster="hub")) if call.verb == "list" else None
    )
    with pytest.raises(Unreachable):
        await bench.unwanted()
    bench.hub.faults = None
    bench.target.faults = role_in("open")
    assert await bench.unwanted("open", TARGET_NAMESPACE) == []
    with pytest.raises(Forbidden):
        await bench.unwanted()


@virtual_time
async def test_other_virtual_nodes_are_counted_and_not_touched() -> None:
    """By name, where something that came along tells it; an anchor alone has only a label."""
    bench = Bench()
    other = Scope(hub_id=SCOPE.hub_id, node_name="west")
    third = Scope(hub_id=SCOPE.hub_id, node_name="north")
    bench.add(SITE, other)
    bench.target.add(CONFIGMAPS, anchor_with(entry_of(LOGIN, other), scope=other))
    lines = {**entry_of(LOGIN, third), "README": "to people"}
    bench.target.add(CONFIGMAPS, anchor_with(lines, scope=third))
    found = await survey_brought(
        bench.hub.client(), bench.target.client(), SCOPE, confirm_hub=bench._agree
    )
    assert found.unknown == {"west": 2, f"the one of label {third.virtual_node_hash}": 1}
    assert {one.key for one in found.unwanted} == {LOGIN, SITE}
    assert all(one.place == name_of(SCOPE, one.key) for one in found.unwanted)  # type: ignore[arg-type]


# -- while federate runs ---------------------------------------------------------------------------


class Companions:
    def __init__(
        self, there: Iterable[CompanionKey], wanted: Iterable[CompanionKey] = (), used: Any = ()
    ) -> None:
        self.there, self.wanted = frozenset(there), frozenset(wanted)
        self.used = frozenset(used)
        self.known: set[CompanionKey] = set()
        self.queued: list[CompanionKey] = []

    def inventory(self) -> frozenset[CompanionKey]:
        return self.there

    def demand(self) -> Demand:
        return Demand(keys=self.wanted, used=self.used)

    def missing(self) -> list[CompanionKey]:
        return [key for key in self.wanted if key not in self.known]

    def enqueue(self, key: CompanionKey) -> None:
        self.queued.append(key)


KEYS = st.builds(
    CompanionKey,
    st.sampled_from(["t", "u"]),
    st.sampled_from(list(Kind)),
    st.sampled_from(["default", "shop"]),
    st.sampled_from(["a", "b", "c"]),
)


@given(there=st.sets(KEYS), wanted=st.sets(KEYS), used=st.sets(KEYS), known=st.sets(KEYS))
def test_law_a_pass_looks_at_what_differs_and_at_nothing_else(
    there: set[CompanionKey],
    wanted: set[CompanionKey],
    used: set[CompanionKey],
    known: set[CompanionKey],
) -> None:
    companions = Companions(there, wanted, {(key.kind, name_of(SCOPE, key)) for key in used})
    companions.known = known
    CompanionSweeper(companions, SCOPE).sweep()
    assert set(companions.queued) == (there - wanted - used) | (wanted - known)
    assert len(companions.queued) == len(set(companions.queued))


@virtual_time
async def test_a_pass_is_made_every_minute() -> None:
    companions = Companions([LOGIN])
    task = asyncio.create_task(CompanionSweeper(companions, SCOPE).run())
    await asyncio.sleep(SWEEP_PERIOD_SECONDS - 1)
    assert companions.queued == []
    await asyncio.sleep(2)
    assert companions.queued == [LOGIN]
    await asyncio.sleep(SWEEP_PERIOD_SECONDS)
    assert companions.queued == [LOGIN, LOGIN]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@virtual_time
async def test_where_companions_are_off_only_mirrors_want_any() -> None:
    """A pod that waits keeps nothing there; by hand too what a mirror uses stays."""
    bench = Bench()
    refers = [{"name": "v", "secret": {"secretName": LOGIN.name}}]
    waiting = pod("waits").bound_to(SCOPE.node_name).with_spec(volumes=refers).build()
    bench.hub.add(PODS, waiting)
    volumes = [{"name": "v", "configMap": {"name": name_of(SCOPE, SITE).name}}]
    bench.target.add(PODS, mirror("runs").with_spec(volumes=volumes).build())
    for are_made, expected in ((True, []), (False, [LOGIN])):
        found = await survey_brought(
            bench.hub.client(),
            bench.target.client(),
            SCOPE,
            confirm_hub=bench._agree,
            are_made=are_made,
        )
        assert [one.key for one in found.unwanted] == expected

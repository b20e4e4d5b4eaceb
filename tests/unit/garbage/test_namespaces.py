"""Target namespaces are given back: only ours, only unused, only empty (C22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from federate.companions.entries import render_entry
from federate.companions.keys import CompanionKey, Kind, companion_labels, name_of
from federate.errors import ClusterError, Forbidden, LeadershipLost, TargetChanged
from federate.garbage.namespaces import IN_FLIGHT_SECONDS, NamespaceKeeper
from federate.model.marks import HUB_LABEL, HUB_NAMESPACE_ANNOTATION
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import (
    CONFIGMAPS,
    ENDPOINT_SLICES,
    EVENTS,
    NAMESPACES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    Resource,
)
from federate.services.door import door_name, render_door
from tests.support.builders import pod
from tests.support.clock import ManualClock
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.views import OTHER_SCOPE, SCOPE

NAME = "hub-0a-shop"
KEY = ObjectKey("", NAME)
ANCHOR = ObjectKey(NAME, anchor_name(SCOPE))


def served(plural: str, kind: str, **fields: Any) -> JsonDict:
    return {"name": plural, "kind": kind, "namespaced": True, "verbs": ["list"], **fields}


DOCUMENTS: dict[str, JsonDict] = {
    "/api/v1": {
        "resources": [
            served("pods", "Pod"),
            served("pods/log", "Pod"),
            served("configmaps", "ConfigMap"),
            served("serviceaccounts", "ServiceAccount"),
            served("bindings", "Binding", verbs=["create"]),
            served("nodes", "Node", namespaced=False),
        ]
    },
    "/apis": {
        "groups": [
            {
                "name": "events.k8s.io",
                "preferredVersion": {"groupVersion": "events.k8s.io/v1"},
                "versions": [{"groupVersion": "events.k8s.io/v1"}],
            }
        ]
    },
    "/apis/events.k8s.io/v1": {"resources": [served("events", "Event")]},
}


class Bench:
    """A target namespace whose hub namespace is gone, empty but for its anchor."""

    def __init__(self) -> None:
        self.hub = FakeCluster("hub", ManualClock())
        self.target = FakeCluster("berlin", ManualClock())
        self.target.documents.update(DOCUMENTS)
        self.forgotten: list[str] = []
        self.leads = True
        self.is_elsewhere = False
        self.has_changed = False
        self.slept: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.target.add_namespace(NAME)
        self.mark(labels={HUB_LABEL: SCOPE.hub_id}, annotations={HUB_NAMESPACE_ANNOTATION: "shop"})
        self.add_anchor()
        self.keeper = NamespaceKeeper(
            hub=self.hub.client(),
            target=self.target.client(),
            scope=SCOPE,
            forget_anchor=self._forget,
            confirm_hub=self._confirm,
            confirm_target=self._confirm_target,
            fence=self._fence,
            sleep=self._sleep,
        )

    async def _confirm(self) -> None:
        if self.is_elsewhere:
            raise LeadershipLost("the hub is another cluster")

    async def _confirm_target(self) -> None:
        if self.has_changed:
            raise TargetChanged("another cluster answers")

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.meanwhile()

    async def _forget(self, namespace: str) -> None:
        self.forgotten.append(namespace)

    def _fence(self) -> None:
        if not self.leads:
            raise LeadershipLost("another replica leads")

    def mark(self, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        def change(namespace: JsonDict) -> None:
            namespace["metadata"].update(labels=labels, annotations=annotations)

        self.target.edit(NAMESPACES, KEY, change)

    def add_anchor(self, *, labels: dict[str, str] | None = None, name: str = ANCHOR.name) -> None:
        marks = SCOPE.labels() if labels is None else labels
        self.target.add(
            CONFIGMAPS, {"metadata": {"namespace": NAME, "name": name, "labels": marks}}
        )

    async def assert_kept(self) -> None:
        assert await self.keeper.give_back() == []
        assert self.target.writes() == []
        assert self.forgotten == []


async def test_c22_an_unused_namespace_is_given_back() -> None:
    """Its anchor is forgotten first, and the version that was found empty guards the delete."""
    b = Bench()
    assert await b.keeper.give_back() == [NAME]
    assert b.forgotten == [NAME]
    assert [(c.verb, c.resource.kind) for c in b.target.writes()] == [("delete", "Namespace")]
    [delete] = b.target.writes()
    assert set((delete.body or {})["preconditions"]) == {"uid", "resourceVersion"}
    assert b.target.read(NAMESPACES, KEY)["status"]["phase"] == "Terminating"
    assert await b.keeper.give_back() == []


async def test_c22_a_namespace_without_an_anchor_is_given_back_too() -> None:
    """An earlier pass may have died between the two deletes."""
    b = Bench()
    b.target.delete_by_user(CONFIGMAPS, ANCHOR)
    assert await b.keeper.give_back() == [NAME]


async def test_c22_a_namespace_whose_hub_namespace_lives_is_kept() -> None:
    """Empty is not unused."""
    b = Bench()
    b.hub.add_namespace("shop")
    await b.assert_kept()


@pytest.mark.parametrize("missing", ["label", "annotation", "another hub"])
async def test_c3_a_namespace_that_is_not_ours_is_kept(missing: str) -> None:
    """Only this hub's mark, with the name of its hub namespace, makes it federate's."""
    b = Bench()
    hub_id = "another" if missing == "another hub" else SCOPE.hub_id
    b.mark(
        labels={} if missing == "label" else {HUB_LABEL: hub_id},
        annotations={} if missing == "annotation" else {HUB_NAMESPACE_ANNOTATION: "shop"},
    )
    await b.assert_kept()


async def test_c22_a_pod_keeps_its_namespace() -> None:
    """Whoever's it is."""
    b = Bench()
    b.target.add(PODS, pod("db", namespace=NAME).build())
    await b.assert_kept()


@pytest.mark.parametrize("resource", [CONFIGMAPS, SERVICEACCOUNTS])
async def test_c22_content_of_others_keeps_the_namespace(resource: Any) -> None:
    """Nothing of any kind may be left but what Kubernetes itself makes."""
    b = Bench()
    b.target.add(resource, {"metadata": {"namespace": NAME, "name": "somebody's"}})
    await b.assert_kept()


async def test_c22_what_came_along_keeps_the_namespace() -> None:
    """Until nobody wants it: one that is left over must not go unseen."""
    b = Bench()
    key = CompanionKey(NAME, Kind.CONFIGMAP, "shop", "settings")
    place = name_of(SCOPE, key)
    labels = companion_labels(SCOPE, key)
    metadata = {"namespace": NAME, "name": place.name, "labels": labels}
    b.target.add(CONFIGMAPS, {"metadata": metadata})
    await b.assert_kept()
    b.target.store.remove(CONFIGMAPS, place)
    assert await b.keeper.give_back() == [NAME]


async def test_c22_an_entry_keeps_no_namespace_but_another_virtual_nodes_does() -> None:
    """It says that there may be a Secret; the Secret itself would be found."""
    b = Bench()
    for scope in (OTHER_SCOPE, SCOPE):
        place = ObjectKey(NAME, "login-aaaaaaaaaaaaaaaa")
        anchor = {"metadata": {"name": anchor_name(scope), "uid": "uid-anchor"}}
        entry = render_entry(place, "Secret shop/login", scope=scope, anchor=anchor)
        b.target.add(CONFIGMAPS, entry)
        if scope == OTHER_SCOPE:
            await b.assert_kept()
            b.target.store.remove(CONFIGMAPS, place)
    assert await b.keeper.give_back() == [NAME]


@pytest.mark.parametrize("resource", [SERVICES, ENDPOINT_SLICES])
async def test_c22_a_door_keeps_no_namespace_but_another_virtual_nodes_does(resource: Any) -> None:
    """It stands as long as the anchor does, for mirrors that may come."""
    b = Bench()
    listed = {"resources": [served(resource.plural, resource.kind)]}
    b.target.documents["/apis"] = {"groups": [{"versions": [{"groupVersion": "x/v1"}]}]}
    b.target.documents["/apis/x/v1"] = {"resources": []}
    if resource == SERVICES:
        b.target.documents["/api/v1"] = listed
    else:
        b.target.documents["/apis"]["groups"][0]["versions"][0]["groupVersion"] = (
            resource.group_version
        )
        b.target.documents[resource.root] = listed
    for scope in (OTHER_SCOPE, SCOPE):
        anchor = {"metadata": {"name": anchor_name(scope), "uid": "uid-anchor"}}
        bodies = render_door(scope, NAME, addresses=["192.0.2.1"], port=6443, anchor=anchor)
        body = next(one for one in bodies if one["kind"] == resource.kind)
        b.target.add(resource, body)
        if scope == OTHER_SCOPE:
            await b.assert_kept()
            b.target.store.remove(resource, ObjectKey(NAME, door_name(scope)))
    assert await b.keeper.give_back() == [NAME]


async def test_c22_another_virtual_nodes_anchor_keeps_the_namespace() -> None:
    """Two virtual nodes of one hub share the namespace: the last one gives it back."""
    b = Bench()
    b.add_anchor(labels=OTHER_SCOPE.labels(), name=anchor_name(OTHER_SCOPE))
    await b.assert_kept()


async def test_c3_a_strangers_object_of_the_anchors_name_keeps_the_namespace() -> None:
    """Without our marks it is not the anchor, whatever it is called."""
    b = Bench()
    b.target.delete_by_user(CONFIGMAPS, ANCHOR)
    b.add_anchor(labels={})
    await b.assert_kept()
    assert b.target.find(CONFIGMAPS, ANCHOR) is not None


async def test_c22_events_are_no_content() -> None:
    """They speak of what was there."""
    b = Bench()
    b.target.add(EVENTS, {"metadata": {"namespace": NAME, "name": "web.1"}})
    assert await b.keeper.give_back() == [NAME]


@pytest.mark.parametrize("kind", ["Event", "PodMetrics"])
async def test_c22_a_kind_of_others_that_is_called_so_is_content(kind: str) -> None:
    """A calendar's Event does not go with a pod: only the group tells."""
    b = Bench()
    group = "calendar.example.com/v1"
    b.target.documents["/apis"] = {"groups": [{"versions": [{"groupVersion": group}]}]}
    b.target.documents[f"/apis/{group}"] = {"resources": [served("things", kind)]}
    things = Resource(group_version=group, plural="things", kind=kind, namespaced=True)
    b.target.add(things, {"metadata": {"namespace": NAME, "name": "birthday"}})
    await b.assert_kept()


async def test_c22_what_cannot_be_read_counts_as_being_there() -> None:
    """A kind that federate may not list keeps the namespace."""
    b = Bench()

    def refuse(call: Call) -> Fault | None:
        if call.verb == "list" and call.resource.kind == "ServiceAccount":
            return Refuse(Forbidden("no", status=403))
        return None

    b.target.faults = refuse
    try:
        removed = await b.keeper.give_back()
    except ClusterError:
        removed = []
    assert removed == []
    assert b.target.writes() == []


async def test_c70_a_lost_leadership_removes_nothing() -> None:
    """The fence stands before the first write."""
    b = Bench()
    b.leads = False
    with pytest.raises(LeadershipLost):
        await b.keeper.give_back()
    assert b.target.writes() == []
    assert b.forgotten == []


async def test_c22_a_namespace_made_anew_meanwhile_is_kept() -> None:
    """The uid that was judged is the uid that goes."""
    b = Bench()

    def replace_now(call: Call) -> Fault | None:
        if call.verb == "delete" and call.resource == NAMESPACES:
            b.target.edit(NAMESPACES, KEY, lambda obj: obj["metadata"].update(uid="another"))
        return None

    b.target.faults = replace_now
    await b.keeper.give_back()
    assert "deletionTimestamp" not in b.target.read(NAMESPACES, KEY)["metadata"]


async def test_c22_pods_that_arrive_during_the_wait_keep_the_namespace() -> None:
    """A create that was under way when the anchor was forgotten shows before the delete."""
    b = Bench()
    b.meanwhile = lambda: b.target.add(PODS, pod("late", namespace=NAME).build())
    assert await b.keeper.give_back() == []
    assert b.slept == [IN_FLIGHT_SECONDS]
    assert b.target.writes() == []


async def test_c22_a_hub_namespace_that_comes_back_during_the_wait_keeps_the_namespace() -> None:
    """All looks are repeated at the last moment."""
    b = Bench()
    b.meanwhile = lambda: b.hub.add_namespace("shop")
    assert await b.keeper.give_back() == []
    assert b.target.writes() == []


async def test_c22_a_namespace_used_during_the_wait_is_kept_by_its_version() -> None:
    """The delete names uid and version that were found empty, so any use since defeats it."""
    b = Bench()
    found = b.target.read(NAMESPACES, KEY)["metadata"]
    b.meanwhile = lambda: b.target.edit(
        NAMESPACES, KEY, lambda n: n["metadata"]["annotations"].update(used="now")
    )
    assert await b.keeper.give_back() == []
    [delete] = b.target.writes()
    named = {name: found[name] for name in ("uid", "resourceVersion")}
    assert (delete.body or {})["preconditions"] == named
    assert "deletionTimestamp" not in b.target.read(NAMESPACES, KEY)["metadata"]


async def test_c51_absence_on_another_hub_gives_nothing_back() -> None:
    """Where the hub's client speaks to another cluster its NotFound says nothing."""
    b = Bench()
    b.is_elsewhere = True
    with pytest.raises(LeadershipLost):
        await b.keeper.give_back()
    assert b.target.writes() == []
    assert b.forgotten == []


@pytest.mark.parametrize("when", ["before", "during the wait"])
async def test_c5_another_cluster_loses_no_namespace(when: str) -> None:
    """What is empty in another cluster than the one on record is not ours to remove."""
    b = Bench()
    if when == "before":
        b.has_changed = True
    else:
        b.meanwhile = lambda: setattr(b, "has_changed", True)
    with pytest.raises(TargetChanged):
        await b.keeper.give_back()
    assert b.target.writes() == []
    assert b.forgotten == ([] if when == "before" else [NAME])


# -- a virtual node that is left -------------------------------------------------------------------


async def test_c22_a_namespace_is_left_after_a_second_look() -> None:
    """Its hub namespace may live; but who just begins to use it has its time to be seen."""
    b = Bench()
    b.hub.add_namespace("shop")
    assert await b.keeper.leave(NAME) == ""
    assert b.slept == [IN_FLIGHT_SECONDS]
    [delete] = b.target.writes()
    assert set((delete.body or {})["preconditions"]) == {"uid", "resourceVersion"}


async def test_c22_an_anchor_that_arrives_meanwhile_keeps_the_namespace() -> None:
    """Another virtual node began to use it: its anchor was on the wire at the first look."""
    b = Bench()
    b.meanwhile = lambda: b.add_anchor(labels=OTHER_SCOPE.labels(), name=anchor_name(OTHER_SCOPE))
    assert "is in it" in await b.keeper.leave(NAME)
    assert b.target.writes() == []


async def test_c5_a_changed_cluster_keeps_the_namespace_that_is_left() -> None:
    """What is asked right before the delete is asked after the wait."""
    b = Bench()
    b.meanwhile = lambda: setattr(b, "has_changed", True)
    with pytest.raises(TargetChanged):
        await b.keeper.leave(NAME)
    assert b.target.writes() == []


async def test_what_stays_is_not_waited_for() -> None:
    """Only a namespace that may go is looked at twice."""
    b = Bench()
    b.add_anchor(labels=OTHER_SCOPE.labels(), name=anchor_name(OTHER_SCOPE))
    assert "is in it" in await b.keeper.leave(NAME)
    assert b.slept == []

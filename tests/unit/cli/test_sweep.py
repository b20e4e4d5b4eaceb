"""`federate sweep`: what is shown and what is deleted."""

from __future__ import annotations

import pytest

from federate.cli.sweep import remove_all, remove_unwanted, show, show_brought
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.errors import FederateError
from federate.garbage.brought import Brought
from federate.garbage.companions import BroughtSurvey
from federate.garbage.plan import Orphan, Survey
from federate.garbage.sweeper import survey
from federate.model.marks import TAKEN_UP_ANNOTATION, Origin, Scope
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, SECRETS
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.companions import companion, entry_for, hub_object, key_for
from tests.support.fakecluster import FakeCluster
from tests.support.views import SCOPE

Captured = pytest.CaptureFixture[str]


def worlds() -> tuple[FakeCluster, FakeCluster]:
    """A hub without pods, and a target with two mirrors of its node `edge`."""
    clock = virtual_loop().time
    hub, target = FakeCluster("hub", clock), FakeCluster("edge", clock)
    hub_id = uid_of(hub.read(NAMESPACES, ObjectKey("", "kube-system")))
    for name in ("a", "b"):
        origin = Origin(
            scope=Scope(hub_id=hub_id, node_name="edge"),
            pod=ObjectKey("shop", name),
            pod_uid=f"uid-{name}",
        )
        mirror = pod(name).with_labels(origin.labels()).with_annotations(origin.annotations())
        target.add(PODS, mirror.build())
    return hub, target


@virtual_time
async def test_orphans_are_removed_with_progress(capsys: Captured) -> None:
    """Each orphan is one line that counts, and is gone afterwards."""
    hub, target = worlds()
    found = await survey(hub.client(), target.client(), node_name="edge")
    await remove_all(hub.client(), target.client(), found.orphans)
    assert capsys.readouterr().out.splitlines() == [
        "[1/2] default/a: deleted",
        "[2/2] default/b: deleted",
    ]
    left = await survey(hub.client(), target.client(), node_name="edge")
    assert all(orphan.reason == "already ending" for orphan in left.orphans)


@virtual_time
async def test_one_failure_does_not_keep_the_others(capsys: Captured) -> None:
    """What could not be removed is told at the end, as an error."""
    hub, target = worlds()
    found = await survey(hub.client(), target.client(), node_name="edge")
    target.go_down()
    with pytest.raises(FederateError, match="2 of 2 orphans stay"):
        await remove_all(hub.client(), target.client(), found.orphans)
    assert capsys.readouterr().out.count("failed: ") == 2


def orphan(name: str) -> Orphan:
    return Orphan(
        mirror=ObjectKey("ns", name),
        uid="u",
        hub_id="hub",
        hub_pod=ObjectKey("shop", name),
        hub_pod_uid="h",
        node_name="edge",
        phase="Running",
        reason="gone",
    )


def test_orphans_and_strangers_are_shown_apart(capsys: Captured) -> None:
    """What a sweep may delete stands under its own title."""
    show(
        Survey(orphans=(orphan("a"),), unknown=(orphan("b"),), mirrors=2, hub_pods=0),
        node_name="edge",
    )
    first, second = capsys.readouterr().out.split("Not touched")
    assert "Orphans of edge" in first
    assert "ns/a" in first
    assert "ns/b" in second


LOGIN = key_for(name="login")
SITE = key_for(Kind.CONFIGMAP, "site")


def along(*keys: CompanionKey) -> tuple[Brought, ...]:
    return tuple(Brought(key.kind, name_of(SCOPE, key), key) for key in keys)


def test_what_nobody_wants_is_named(capsys: Captured) -> None:
    """With what it stands for; of other virtual nodes only how much there is."""
    survey_ = BroughtSurvey(found=along(LOGIN, SITE), unwanted=along(LOGIN), unknown={"west": 3})
    show_brought(survey_, node_name="edge")
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        f"Nobody wants Secret {name_of(SCOPE, LOGIN)}, which stands for Secret default/login."
    )
    assert second.startswith("Not touched: 3 ConfigMaps and Secrets")
    show_brought(BroughtSurvey(found=along(LOGIN), unwanted=(), unknown={}), node_name="edge")
    assert capsys.readouterr().out == "All that came along with pods of edge is wanted (1).\n"
    show_brought(BroughtSurvey(found=(), unwanted=(), unknown={}), node_name="edge")
    assert capsys.readouterr().out == ""


@virtual_time
async def test_what_is_wanted_again_is_kept(capsys: Captured) -> None:
    """A pod may have come while a person read; one that fails does not keep the others."""
    target = FakeCluster("edge", virtual_loop().time)
    for key in (LOGIN, SITE):
        target.add(key.kind.resource, companion(key, hub_object(key)))

    async def look() -> BroughtSurvey:
        return BroughtSurvey(found=(), unwanted=along(SITE), unknown={})

    await remove_unwanted(target.client(), SCOPE, along(LOGIN, SITE), look)
    assert capsys.readouterr().out.splitlines() == [
        f"[1/2] Secret {name_of(SCOPE, LOGIN)}: kept: it is wanted again",
        f"[2/2] ConfigMap {name_of(SCOPE, SITE)}: asked to go",
    ]
    assert target.find(SECRETS, name_of(SCOPE, LOGIN)) is not None
    assert target.find(CONFIGMAPS, name_of(SCOPE, SITE)) is None
    target.go_down()
    with pytest.raises(FederateError, match="1 of 2 stay"):
        await remove_unwanted(target.client(), SCOPE, along(LOGIN, SITE), look)


@virtual_time
async def test_what_a_running_federate_takes_up_meanwhile_is_kept(capsys: Captured) -> None:
    """After the last look a pod came: what its mirror is about to use has another version now.

    So does the entry of a Secret that is about to be made.
    """
    target = FakeCluster("edge", virtual_loop().time)
    coming = key_for(name="coming")
    for key in (LOGIN, SITE):
        target.add(key.kind.resource, companion(key, hub_object(key)))
    for key in (LOGIN, coming):
        target.add(CONFIGMAPS, entry_for(key))

    async def look() -> BroughtSurvey:
        for resource, key in ((SECRETS, LOGIN), (CONFIGMAPS, SITE), (CONFIGMAPS, coming)):
            target.edit(
                resource,
                name_of(SCOPE, key),
                lambda obj: obj["metadata"]["annotations"].update({TAKEN_UP_ANNOTATION: "1"}),
            )
        return BroughtSurvey(found=(), unwanted=along(LOGIN, SITE, coming), unknown={})

    await remove_unwanted(target.client(), SCOPE, along(LOGIN, SITE, coming), look)
    said = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[2] for line in said] == ["changed meanwhile"] * 3
    for resource, key in ((SECRETS, LOGIN), (CONFIGMAPS, LOGIN), (CONFIGMAPS, SITE)):
        assert target.find(resource, name_of(SCOPE, key)) is not None
    assert target.find(CONFIGMAPS, name_of(SCOPE, coming)) is not None


def test_no_orphans_is_said(capsys: Captured) -> None:
    """An empty result is a sentence."""
    show(Survey(orphans=(), unknown=(), mirrors=0, hub_pods=0), node_name="edge")
    assert capsys.readouterr().out == "No orphans of edge.\n"

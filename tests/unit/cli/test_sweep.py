"""`federate sweep`: what is shown and what is deleted."""

from __future__ import annotations

import pytest

from federate.cli.sweep import remove_all, show
from federate.errors import FederateError
from federate.garbage.plan import Orphan, Survey
from federate.garbage.sweeper import survey
from federate.model.marks import Origin, Scope
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import NAMESPACES, PODS
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakecluster import FakeCluster

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


def test_no_orphans_is_said(capsys: Captured) -> None:
    """An empty result is a sentence."""
    show(Survey(orphans=(), unknown=(), mirrors=0, hub_pods=0), node_name="edge")
    assert capsys.readouterr().out == "No orphans of edge.\n"

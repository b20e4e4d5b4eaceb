"""The hub's DaemonSets are looked at now and then, by one for all, and told by the Node (C26)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from federate.errors import ClusterError, Forbidden, Unreachable
from federate.model.objects import JsonDict, ObjectKey, condition_of
from federate.model.resources import DAEMONSETS, NODES
from federate.node.capacity import CapacityRules
from federate.node.render import DAEMONSETS_KEPT_OFF
from federate.policy.rules import DaemonSetMode, PolicyRules
from federate.runtime.daemonsets import (
    GOOD_FOR_SECONDS,
    LOOK_SECONDS,
    DaemonSetsView,
    HubDaemonSets,
)
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.scene import SCOPE, NoEvents

CNI = ObjectKey("kube-system", "cni")
NODE = {
    "metadata": {"name": "edge", "labels": {"type": "virtual-kubelet"}},
    "spec": {"taints": [{"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}]},
}


def daemonset() -> JsonDict:
    template = {"spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "x"}]}}
    return {
        "metadata": {"namespace": CNI.namespace, "name": CNI.name},
        "spec": {"template": template},
    }


def keep_off(found: JsonDict) -> None:
    found["spec"]["template"]["spec"]["nodeSelector"] = {"type": "real"}


class Stage:
    """A hub, what is read of it, and one who tells."""

    def __init__(self) -> None:
        self.cluster = FakeCluster("hub", virtual_loop().time)
        self.shared = HubDaemonSets(self.cluster.client(), clock=virtual_loop().time)
        self.told = 0
        self.view = self.another()

    def another(self) -> DaemonSetsView:
        return DaemonSetsView(
            self.shared.read, mode=DaemonSetMode.PENDING, tell=self._tell, random=Random(7)
        )

    def _tell(self) -> None:
        self.told += 1

    def word(self) -> str:
        word = self.view.word(NODE)
        return word.reason if word is not None else ""

    @property
    def listed(self) -> int:
        return sum(1 for call in self.cluster.calls if call.verb == "list")

    @contextmanager
    def looking(self) -> Iterator[None]:
        task = asyncio.ensure_future(self.view.run())
        try:
            yield
        finally:
            task.cancel()


@virtual_time
async def test_what_changes_is_told_within_two_minutes() -> None:
    """And what does not change wakes nobody."""
    stage = Stage()
    stage.cluster.add(DAEMONSETS, daemonset())
    assert stage.word() == ""
    with stage.looking():
        await asyncio.sleep(1.0)
        assert (stage.word(), stage.told) == ("DaemonSetsWait", 1)
        await asyncio.sleep(5 * LOOK_SECONDS)
        assert stage.told == 1
        stage.cluster.edit(DAEMONSETS, CNI, keep_off)
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert (stage.word(), stage.told) == ("DaemonSetsKeptOff", 2)


@virtual_time
async def test_many_virtual_nodes_are_one_question() -> None:
    """Those that ask together or soon after another have the same answer."""
    stage = Stage()
    stage.cluster.add(DAEMONSETS, daemonset())
    views = [stage.another() for _ in range(20)]
    await asyncio.gather(*(view.look() for view in views))
    assert (stage.listed, stage.told) == (1, 20)
    await asyncio.sleep(GOOD_FOR_SECONDS + 1.0)
    await asyncio.gather(*(view.look() for view in views))
    assert (stage.listed, stage.told) == (2, 20)


@virtual_time
@pytest.mark.parametrize(
    ("error", "reason"),
    [(Forbidden("no", status=403), ""), (Unreachable("no answer"), "DaemonSetsWait")],
)
async def test_without_the_right_nothing_is_told_and_without_an_answer_what_was_known(
    error: ClusterError, reason: str
) -> None:
    """Neither ends the looking: what comes back is told again."""
    stage = Stage()
    stage.cluster.add(DAEMONSETS, daemonset())
    with stage.looking():
        await asyncio.sleep(1.0)
        assert stage.word() == "DaemonSetsWait"
        stage.cluster.faults = lambda call: Refuse(error)
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert stage.word() == reason
        stage.cluster.faults = None
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert stage.word() == "DaemonSetsWait"


async def agree() -> None:
    pass


@virtual_time
async def test_the_node_tells_of_them_wired_as_in_the_product() -> None:
    """From the hub's listing to the Node's condition, with the mode of the settings."""
    stage = Stage()
    stage.cluster.add_namespace("kube-node-lease")
    stage.cluster.add(DAEMONSETS, daemonset())
    target = FakeCluster("target", virtual_loop().time)
    target.documents["/version"] = {"gitVersion": "v1.34.4"}
    distinct = asyncio.Event()
    distinct.set()
    leading = Leading(
        TargetSettings(
            name="edge",
            kubeconfig=Path("x"),
            capacity=CapacityRules.fixed({"cpu": "1"}),
            policy=PolicyRules(daemon_sets=DaemonSetMode.PRETEND),
        ),
        scope=SCOPE,
        ports=LeadingPorts(
            hub=stage.cluster.client(),
            target=target.client(),
            events=NoEvents(),
            fence=lambda: None,
            confirm_hub=agree,
            metrics=Metrics(version="0"),
            is_distinct=distinct,
            read_daemonsets=stage.shared.read,
        ),
        node_address="10.0.0.9",
        federate_version="0",
    )

    def told() -> str:
        node = stage.cluster.read(NODES, ObjectKey("", "edge"))
        return (condition_of(node, DAEMONSETS_KEPT_OFF) or {}).get("reason") or ""

    task = asyncio.ensure_future(leading.run())
    try:
        await asyncio.sleep(5.0)
        assert told() == "DaemonSetsPretended"
        stage.cluster.edit(DAEMONSETS, CNI, keep_off)
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert told() == "DaemonSetsKeptOff"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

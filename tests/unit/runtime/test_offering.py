"""How large the virtual node is, wired as in the product, between two clusters in memory (C14)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    condition_of,
    labels_of,
    spec_of,
    status_of,
)
from federate.model.resources import NODES, PODS, RESOURCEQUOTAS
from federate.model.taints import Taint
from federate.node.capacity import CapacityMode, CapacityRules
from federate.policy.rules import Outcome, PolicyRules
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from federate.services.rules import AddressMode, NetworkRules
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakecluster import FakeCluster
from tests.support.scene import SCOPE, TARGET_NAMESPACE, NoEvents

NODE = ObjectKey("", "edge")
QUOTA = ObjectKey(TARGET_NAMESPACE, "compute")
MIRROR = ObjectKey(TARGET_NAMESPACE, "a")
FOLLOWED = CapacityRules(mode=CapacityMode.QUOTA, quota=QUOTA)


class Stage:
    """Two clusters, and a leader between them whose node has a size of the test's own."""

    def __init__(self, rules: CapacityRules, policy: PolicyRules | None = None) -> None:
        self.hub = FakeCluster("hub", virtual_loop().time)
        self.target = FakeCluster("target", virtual_loop().time)
        self.hub.add_namespace("kube-node-lease")
        self.target.documents["/version"] = {"gitVersion": "v1.34.4"}
        distinct = asyncio.Event()
        distinct.set()
        self.leading = Leading(
            TargetSettings(
                name="edge",
                kubeconfig=Path("x"),
                capacity=rules,
                policy=policy or PolicyRules(),
                network=NetworkRules(addresses=AddressMode.HIDE),
                taint_value="mine",
                taints=(Taint(key="gpu"),),
                provider_id="cloud://7",
            ),
            scope=SCOPE,
            ports=LeadingPorts(
                hub=self.hub.client(),
                target=self.target.client(),
                events=NoEvents(),
                fence=lambda: None,
                confirm_hub=self._agree,
                metrics=Metrics(version="0"),
                is_distinct=distinct,
            ),
            node_address="10.0.0.9",
            federate_version="0",
        )

    async def _agree(self) -> None:
        pass

    async def __aenter__(self) -> Stage:
        self._task = asyncio.create_task(self.leading.run())
        await asyncio.sleep(3.0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def submit(self, cpu: str) -> None:
        body = pod("a").with_requests(cpu=cpu).bound_to("edge").build()
        del body["metadata"]["uid"]
        self.hub.add(PODS, body)

    def count(self, **used: str) -> None:
        """Let the target's quota controller have counted."""
        self.target.edit(RESOURCEQUOTAS, QUOTA, lambda q: q["status"]["used"].update(used))

    def node(self) -> JsonObject:
        return self.hub.read(NODES, NODE)

    def offered(self) -> JsonObject:
        allocatable: JsonObject = status_of(self.node())["allocatable"]
        return allocatable

    def ready(self) -> tuple[str, str, str]:
        ready = condition_of(self.node(), "Ready") or {}
        return ready["status"], ready["reason"], ready["message"]


def worker(name: str, cpu: str = "8", **labels: str) -> JsonDict:
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "3"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def quota(*, namespace: str = QUOTA.namespace, **hard: str) -> JsonDict:
    granted = hard or {"requests.cpu": "8", "requests.memory": "8Gi", "pods": "20"}
    return {
        "metadata": {"namespace": namespace, "name": QUOTA.name},
        "spec": {"hard": granted},
        "status": {"hard": granted, "used": dict.fromkeys(granted, "0")},
    }


@virtual_time
async def test_c14_only_selected_nodes_count() -> None:
    """Their size, their labels, and the pods of others on them; share and cap on top."""
    rules = CapacityRules(
        node_selector="pool=batch", share=Decimal("0.5"), cap={"memory": "1Gi", "gpu": "9"}
    )
    stage = Stage(rules)
    stage.target.add(NODES, worker("w1", pool="batch", zone="a"))
    stage.target.add(NODES, worker("w2", pool="web", zone="b"))
    for name, node, cpu in (("one", "w1", "2"), ("two", "w2", "1"), ("three", "", "1")):
        body = pod(name).with_requests(cpu=cpu)
        stage.target.add(PODS, (body.bound_to(node) if node else body).build())
    async with stage:
        assert stage.offered() == {
            "cpu": "2500m",
            "memory": "1Gi",
            "pods": "54",
            "nvidia.com/gpu": "1",
            "ephemeral-storage": "0",
        }
        assert (labels_of(stage.node())["pool"], labels_of(stage.node())["zone"]) == ("batch", "a")
        stage.target.edit(
            NODES, ObjectKey("", "w2"), lambda n: n["metadata"]["labels"].update(pool="batch")
        )
        await asyncio.sleep(1.0)
        assert stage.offered()["cpu"] == "6"
        assert "zone" not in labels_of(stage.node())


@virtual_time
async def test_c26_devices_that_pods_are_refused_for_are_not_offered() -> None:
    """The hub's scheduler would go on placing pods there that wait for ever."""
    policy = PolicyRules(outcomes={"devices": Outcome.REFUSE}, devices=frozenset({"amd.com/gpu"}))
    stage = Stage(CapacityRules(), policy)
    body = worker("w1")
    body["status"]["allocatable"]["amd.com/gpu"] = "2"
    stage.target.add(NODES, body)
    async with stage:
        assert stage.offered()["cpu"] == "8"
        assert stage.offered()["amd.com/gpu"] == "2"
        assert "nvidia.com/gpu" not in stage.offered()


@virtual_time
async def test_c10_the_node_looks_as_the_settings_say() -> None:
    """Taints and provider id reach the Node."""
    async with Stage(CapacityRules.fixed({"cpu": "1", "pods": "1"})) as stage:
        spec = spec_of(stage.node())
        assert spec["providerID"] == "cloud://7"
        assert [(t["key"], t.get("value")) for t in spec["taints"]] == [
            ("virtual-kubelet.io/provider", "mine"),
            ("gpu", None),
        ]


@virtual_time
@pytest.mark.parametrize("name", [QUOTA.name, ""])
async def test_c14_a_quota_is_followed_live(name: str) -> None:
    """With rights in one namespace: own mirrors count once, pods of others at once."""
    stage = Stage(CapacityRules(mode=CapacityMode.QUOTA, quota=ObjectKey(QUOTA.namespace, name)))
    stage.target.add_namespace(QUOTA.namespace)
    stage.target.add(RESOURCEQUOTAS, quota())
    stage.target.add(RESOURCEQUOTAS, quota(namespace="default", pods="1"))
    async with stage:
        assert stage.offered()["cpu"] == "8"
        stage.count(**{"requests.cpu": "1", "pods": "1"})
        await asyncio.sleep(2.0)
        assert (stage.offered()["cpu"], stage.offered()["pods"]) == ("7", "19")
        stage.target.edit(
            RESOURCEQUOTAS, QUOTA, lambda q: q["status"]["hard"].update({"requests.cpu": "4"})
        )
        await asyncio.sleep(2.0)
        assert stage.offered()["cpu"] == "3"
        assert stage.ready()[:2] == ("True", "FederateReady")


@virtual_time
async def test_c14_own_mirrors_are_not_taken_off_a_quota() -> None:
    """From the create's reply to its end, whatever the target counts first. No node is read."""
    stage = Stage(FOLLOWED)
    async with stage:
        stage.submit("2")
        await asyncio.sleep(3.0)
        assert stage.target.find(PODS, MIRROR) is not None
        stage.target.add(RESOURCEQUOTAS, quota())
        await asyncio.sleep(2.0)
        assert stage.offered()["cpu"] == "8"
        stage.count(**{"requests.cpu": "2", "pods": "1"})
        await asyncio.sleep(2.0)
        assert (stage.offered()["cpu"], stage.offered()["pods"]) == ("8", "20")
        stage.count(**{"requests.cpu": "5", "pods": "2"})
        await asyncio.sleep(2.0)
        assert (stage.offered()["cpu"], stage.offered()["pods"]) == ("5", "19")
        stage.target.set_pod_status(MIRROR, phase="Succeeded")
        stage.count(**{"requests.cpu": "3", "pods": "1"})
        await asyncio.sleep(2.0)
        assert (stage.offered()["cpu"], stage.offered()["pods"]) == ("5", "19")
        assert not [call for call in stage.target.calls if call.resource == NODES]


@virtual_time
async def test_c14_a_missing_quota_is_told_by_the_node() -> None:
    """Ready, but of no size, until it is there; when it is gone again, the same."""
    stage = Stage(FOLLOWED)
    async with stage:
        status, reason, message = stage.ready()
        assert (status, reason) == ("True", "CapacityUnknown")
        assert f"no ResourceQuota {QUOTA}" in message
        assert stage.offered()["pods"] == "0"
        stage.target.add_namespace(QUOTA.namespace)
        stage.target.add(RESOURCEQUOTAS, quota())
        await asyncio.sleep(2.0)
        assert stage.ready()[1] == "FederateReady"
        assert stage.offered()["pods"] == "20"
        stage.target.delete_by_user(RESOURCEQUOTAS, QUOTA)
        await asyncio.sleep(2.0)
        assert stage.ready()[1] == "CapacityUnknown"
        assert stage.offered()["pods"] == "0"

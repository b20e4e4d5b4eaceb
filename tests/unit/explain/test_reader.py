"""What is read of two clusters: with all rights, with few, and where one of them is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federate.claims.keys import claim_annotations, claim_key, target_claim_name, volume_name
from federate.claims.places import ClaimUse
from federate.claims.protocol import DRIVER, PROVISIONER
from federate.claims.rules import ClaimMode, ClaimRules
from federate.claims.steps import GiveUp, Rest
from federate.cluster.port import ClusterPort
from federate.companions.keys import Kind
from federate.errors import ConfigError, Forbidden, Unauthorized
from federate.explain import reader
from federate.explain.facts import ClaimFacts, PodFacts, TargetSide, Unread, listed, seen
from federate.explain.reader import HubSide, TargetAccess, read_node, read_pod
from federate.explain.road import road_of
from federate.model.marks import (
    ANCHORS_ANNOTATION,
    NODE_HUB_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
)
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import (
    CLAIMS,
    CONFIGMAPS,
    CORE_EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    STORAGE_CLASSES,
    VOLUMES,
)
from federate.runtime.settings import TargetSettings
from tests.support.builders import pod as build_pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.explaining import (
    HUB,
    KEY,
    NOW,
    PLACE,
    RULES,
    SCOPE,
    anchor,
    facts,
    led,
    lines,
    mirror,
    recorded,
    web,
    with_rules,
)
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster


class Clusters:
    """Hub and target as they stand while a pod waits for its image, with a virtual node `edge`."""

    def __init__(self) -> None:
        self.hub = FakeCluster("hub", virtual_loop().time)
        self.target = FakeCluster("edge", virtual_loop().time)
        self.opened = 0
        self.refuses: ConfigError | None = None
        identity = uid_of(self.target.read(NAMESPACES, ObjectKey("", "kube-system")))
        there = self.target.add(CONFIGMAPS, anchor())
        annotations = {
            NODE_HUB_ANNOTATION: HUB,
            TARGET_IDENTITY_ANNOTATION: identity,
            ANCHORS_ANNOTATION: f'{{"{PLACE.namespace}":"{uid_of(there)}"}}',
        }
        metadata = {
            "name": "edge",
            "labels": {"type": "virtual-kubelet"},
            "annotations": annotations,
        }
        ready = {"type": "Ready", "status": "True", "reason": "FederateReady", "message": "well"}
        self.hub.add(NODES, {"metadata": metadata, "status": {"conditions": [ready]}, "spec": {}})
        lease = {"namespace": "kube-system", "name": "federate-edge"}
        spec = {
            "holderIdentity": "host-1",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:04:58.000000Z",
        }
        self.hub.add(LEASES, {"metadata": lease, "spec": spec})

    def target_of(self, name: str) -> TargetAccess | None:
        if name != "edge":
            return None
        return TargetAccess(
            settings=TargetSettings(name="edge", kubeconfig=Path("edge.yaml")), open=self._open
        )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[ClusterPort]:
        self.opened += 1
        if self.refuses is not None:
            raise self.refuses
        yield self.target.client()

    @property
    def side(self) -> HubSide:
        return HubSide(client=self.hub.client(), lease_namespace="kube-system")

    async def read(self, **changes: Any) -> PodFacts:
        arguments = {"target_of": self.target_of, "now": NOW, **changes}
        return await read_pod(self.side, KEY, **arguments)


def needing() -> JsonDict:
    volumes = [
        {"name": "app", "configMap": {"name": "app"}},
        {"name": "key", "secret": {"secretName": "key", "optional": True}},
    ]
    return recorded(web().with_spec(volumes=volumes)).build()


@virtual_time
async def test_all_is_read_and_nothing_written() -> None:
    """Of ConfigMaps and Secrets metadata alone: their values are nobody's business here."""
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    secret = {"metadata": {"namespace": "shop", "name": "key"}, "data": {"k": "czNjcmV0"}}
    clusters.hub.add(SECRETS, secret)
    clusters.target.add(PODS, mirror().bound_to("n1").build())
    event = {
        "metadata": {"namespace": PLACE.namespace, "name": "e1"},
        "involvedObject": {"uid": "m-1", "kind": "Pod"},
        "type": "Warning",
        "message": "no such image",
    }
    clusters.target.add(CORE_EVENTS, event)
    found = await clusters.read()
    assert found.rules is not None and found.rules.scope == SCOPE
    assert found.mirror_key == PLACE
    assert found.node.holder == "host-1"
    assert found.target.trouble == "" and found.target.identity == found.node.recorded_identity
    assert seen(found.at_key) is not None and seen(found.anchor) is not None
    assert [e["message"] for e in listed(found.mirror_events)] == ["no such image"]
    brought = {one.key.kind: one for one in found.brought}
    assert brought[Kind.CONFIGMAP].hub is None and not brought[Kind.CONFIGMAP].is_optional
    assert brought[Kind.SECRET].is_optional and brought[Kind.SECRET].target is None
    assert "czNjcmV0" not in repr(found)
    assert clusters.hub.writes() == [] and clusters.target.writes() == []
    assert not [c for c in clusters.target.calls if c.verb == "list" and c.resource == SECRETS]


@virtual_time
async def test_what_is_named_twice_is_needed_where_one_place_needs_it() -> None:
    clusters = Clusters()
    volumes = [
        {"name": "a", "secret": {"secretName": "key", "optional": True}},
        {"name": "b", "secret": {"secretName": "key"}},
    ]
    clusters.hub.add(PODS, web().with_spec(volumes=volumes).build())
    found = await clusters.read()
    assert [one.is_optional for one in found.brought] == [False]


@virtual_time
async def test_what_the_targets_people_share_is_looked_for() -> None:
    """The hub has no such object, and the pod needs none."""
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    shared = {"federate.dev/shared": "true"}
    metadata = {"namespace": PLACE.namespace, "name": "app", "labels": shared}
    clusters.target.add(CONFIGMAPS, {"metadata": metadata})
    found = await clusters.read()
    assert {one.key.name: one.is_shared for one in found.brought} == {"app": True, "key": False}


@virtual_time
async def test_a_caller_without_rights_learns_the_rest() -> None:
    """Every single read may be forbidden but that of the pod."""
    clusters = Clusters()
    clusters.hub.add(PODS, needing())

    def refuse(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("hub", "get", PODS):
            return None
        return Refuse(Forbidden("no", cluster=call.client, status=403))

    clusters.hub.faults = clusters.target.faults = refuse
    found = await read_pod(
        replace(clusters.side, identity=HUB), KEY, target_of=clusters.target_of, now=NOW
    )
    assert found.node.node == Unread(why="these credentials may not read Node edge of hub")
    assert found.at_key == Unread(why=f"these credentials may not read Pod {PLACE} of edge")
    assert found.target.trouble == ""
    said = lines(road_of(found))
    assert "ok bound: to node edge" in said
    assert (
        "unknown companions: ConfigMap shop/app of the hub: these credentials may not read "
        "ConfigMap shop/app of hub" in said
    )


@virtual_time
async def test_a_target_that_is_away_is_asked_once() -> None:
    """Each question would cost its patience."""
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    clusters.target.go_down()
    before = len(clusters.target.calls)
    found = await clusters.read()
    assert found.target == TargetSide(trouble="edge does not answer")
    assert len(clusters.target.calls) - before == 1
    node = await read_node(clusters.side, "edge", target_of=clusters.target_of, now=NOW)
    assert node.target == TargetSide(trouble="edge does not answer")


@virtual_time
async def test_a_kubeconfig_that_is_no_good_is_said() -> None:
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    clusters.refuses = ConfigError("edge.yaml: no such context")
    found = await clusters.read()
    assert found.target == TargetSide(trouble="edge.yaml: no such context", is_asked=False)
    node = await read_node(clusters.side, "edge", target_of=clusters.target_of, now=NOW)
    assert node.target == found.target


@virtual_time
async def test_without_a_target_the_record_tells_where_the_mirror_is() -> None:
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    found = await clusters.read(target_of=lambda name: None)
    assert (found.rules, found.mirror_key, clusters.opened) == (None, PLACE, 0)
    assert found.target == TargetSide(trouble="no kubeconfig of edge is given", is_asked=False)


@virtual_time
async def test_a_pod_that_is_not_there_ends_the_search() -> None:
    clusters = Clusters()
    found = await clusters.read()
    assert found.hub_pod is None
    assert len(clusters.hub.calls) == 1


@virtual_time
async def test_a_record_that_somebody_forged_leads_nowhere() -> None:
    """Who may edit the pod may write anything there; only a mirror of this pod is shown."""
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    stranger = build_pod(PLACE.name, namespace=PLACE.namespace).with_uid("m-1").running().build()
    clusters.target.add(PODS, stranger)
    found = await clusters.read()
    assert found.mirror_events == ()
    assert not [c for c in clusters.target.calls if c.resource == CORE_EVENTS]
    assert any(line.startswith("stop mirror: NameTaken") for line in lines(road_of(found)))


# -- storage ---------------------------------------------------------------------------------------

USE = ClaimUse(volume="data", claim=ObjectKey("shop", "data"))
CLAIM: JsonDict = {
    "metadata": {
        "namespace": "shop",
        "name": "data",
        "uid": "c-1",
        "annotations": {
            "volume.kubernetes.io/selected-node": "edge",
            "volume.kubernetes.io/storage-provisioner": PROVISIONER,
        },
    },
    "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    "status": {"phase": "Pending"},
}
HUB_CLASS: JsonDict = {"metadata": {"name": "fast"}, "provisioner": PROVISIONER}


async def planned(clusters: Clusters, classes: dict[str, str]) -> ClaimFacts:
    made = ClaimRules(mode=ClaimMode.TARGET, storage_classes=classes)
    rules = with_rules(render=replace(RULES.render, claims=made))
    claim = ClaimFacts(use=USE, claim=clusters.hub.find(CLAIMS, USE.claim))
    base = facts(web().build(), node=led(), rules=rules, claims=[claim])
    found = await reader._with_claims(clusters.side, clusters.target.client(), base)
    return found.claims[0]


@virtual_time
async def test_storage_is_explained_by_the_products_own_plan() -> None:
    """It is asked until it wants to write: that is the next step, and its words are federate's."""
    clusters = Clusters()
    clusters.hub.add(CLAIMS, CLAIM)
    clusters.hub.add(STORAGE_CLASSES, HUB_CLASS)
    step = (await planned(clusters, {"slow": ""})).step
    assert isinstance(step, GiveUp)
    assert step.blocked.message == (
        "PersistentVolumeClaim shop/data: storage class fast stands for no class of edge "
        "(volumes.storageClasses); take another, or ask its operator"
    )
    step = (await planned(clusters, {"fast": ""})).step
    assert not isinstance(step, (GiveUp, Rest, Unread))
    assert clusters.hub.writes() == [] and clusters.target.writes() == []


@virtual_time
async def test_a_claim_that_waits_in_the_target_has_its_words() -> None:
    clusters = Clusters()
    key = claim_key(CLAIM)
    name = target_claim_name(SCOPE, key)
    there = clusters.target.add(
        CLAIMS,
        {
            "metadata": {
                "namespace": PLACE.namespace,
                "name": name,
                "labels": SCOPE.labels(),
                "annotations": claim_annotations(SCOPE, key),
            },
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"},
        },
    )
    handle = f"{PLACE.namespace}/{name}/{uid_of(there)}"
    volume: JsonDict = {
        "metadata": {"name": volume_name(key), "labels": SCOPE.labels()},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": dict(zip(("namespace", "name", "uid"), key, strict=True)),
            "capacity": {"storage": "1Gi"},
        },
    }
    clusters.hub.add(VOLUMES, volume)
    bound = {**CLAIM, "spec": {**CLAIM["spec"], "volumeName": volume_name(key)}}
    clusters.hub.add(CLAIMS, {**bound, "status": {"phase": "Bound"}})
    event = {
        "metadata": {"namespace": PLACE.namespace, "name": "e1"},
        "involvedObject": {"uid": uid_of(there)},
        "type": "Warning",
        "message": "no provisioner",
    }
    clusters.target.add(CORE_EVENTS, event)
    claim = await planned(clusters, {"fast": ""})
    assert isinstance(claim.step, Rest) and not claim.step.is_bound_there
    assert [e["message"] for e in listed(claim.target_events)] == ["no provisioner"]


@virtual_time
async def test_a_pod_without_a_node_is_led_by_its_claim() -> None:
    """The scheduler writes the node on the claim before it binds the pod."""
    clusters = Clusters()
    source = {"persistentVolumeClaim": {"claimName": "data"}}
    unplaced = build_pod("web-0", namespace="shop").with_spec(volumes=[{"name": "data", **source}])
    clusters.hub.add(PODS, unplaced.build())
    clusters.hub.add(CLAIMS, CLAIM)
    found = await clusters.read()
    assert found.node.name == "edge"
    assert [uid_of(seen(one.claim) or {}) for one in found.claims] == ["c-1"]


@pytest.mark.parametrize(
    "faults", [lambda call: Refuse(Forbidden("no", cluster="edge", status=403))]
)
@virtual_time
async def test_storage_that_may_not_be_read_is_said(
    faults: Callable[[Call], Fault | None],
) -> None:
    clusters = Clusters()
    clusters.hub.add(CLAIMS, CLAIM)
    clusters.hub.faults = faults
    step = (await planned(clusters, {"fast": ""})).step
    assert isinstance(step, Unread)
    assert step.why.startswith("these credentials may not read ")


@virtual_time
async def test_credentials_that_the_target_does_not_take() -> None:
    """It answers: what they lack is not the target's."""
    clusters = Clusters()
    clusters.hub.add(PODS, needing())
    unauthorized = Unauthorized("Unauthorized", cluster="edge", status=401)
    clusters.target.faults = lambda call: Refuse(unauthorized)
    found = await clusters.read()
    assert found.target == TargetSide(
        trouble="edge does not take the credentials given here: Unauthorized", is_refused=True
    )


@virtual_time
async def test_a_mirror_on_record_is_looked_at_whatever_the_hub_is_called() -> None:
    """One that was not looked at would be taken for lost."""
    clusters = Clusters()
    clusters.hub.add(PODS, recorded(web()).build())
    clusters.target.add(PODS, mirror().bound_to("n1").build())
    no = Forbidden("no", cluster="hub", status=403)
    clusters.hub.faults = lambda call: None if call.resource == PODS else Refuse(no)
    found = await clusters.read()
    assert found.rules is None
    said = lines(road_of(found))
    assert f"ok mirror: {PLACE} of edge, Pending" in said
    assert "ok scheduler: node n1 of edge" in said


@virtual_time
async def test_what_only_a_refused_debug_container_names_is_not_looked_for() -> None:
    """It does not come along, and nothing waits for it."""
    clusters = Clusters()
    debugger = {
        "name": "debug",
        "image": "busybox",
        "securityContext": {"privileged": True},
        "envFrom": [{"secretRef": {"name": "debug"}}],
    }
    clusters.hub.add(PODS, recorded(web().with_spec(ephemeralContainers=[debugger])).build())
    assert not (await clusters.read()).brought

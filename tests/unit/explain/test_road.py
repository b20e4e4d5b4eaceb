"""The road of a pod in plain words: the texts are what users read, so they are checked whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federate.claims.keys import Handle
from federate.claims.places import ClaimUse
from federate.claims.rules import ClaimMode, ClaimRules
from federate.claims.steps import Rest as ClaimRest
from federate.claims.steps import Standing as ClaimStanding
from federate.companions.keys import (
    CompanionKey,
    Kind,
    companion_annotations,
    companion_labels,
    name_of,
)
from federate.errors import Forbidden
from federate.explain.facts import Brought, ClaimFacts, TargetRules, TargetSide, Unread
from federate.explain.road import road_of
from federate.mirror.refusal import Refusal, create_failure_of, refusal_of
from federate.model.marks import LEAVING_ANNOTATION, NODE_HUB_ANNOTATION
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import JsonDict, ObjectKey
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.verdict import judge, refusal_words
from federate.services.rules import NetworkPolicyMode, NetworkRules
from federate.status.project import Addresses, project_status
from federate.status.unmirrored import pretended_status
from tests.support.builders import PodBuilder
from tests.support.explaining import (
    KEY,
    NOW,
    PLACE,
    RULES,
    SCOPE,
    TOLERATION,
    anchor,
    facts,
    led,
    lines,
    mirror,
    node,
    recorded,
    refused,
    unbound,
    web,
    with_rules,
)

BEGINNING = [
    "ok pod: Pending, made 5m ago",
    "ok bound: to node edge",
    "ok node: virtual node edge is Ready",
    "ok leader: host-1, heard of 2s ago",
    "ok target: edge answers",
]
GROUND = f"ok namespace: {PLACE.namespace} of edge"
NAMES_NONE = "ok companions: it names no ConfigMap and no Secret"
REFUSES_NONE = "ok rules: edge refuses nothing of it"
READY = [*BEGINNING, REFUSES_NONE, GROUND, NAMES_NONE]


def privileged() -> PodBuilder:
    main = {"name": "main", "image": "busybox", "securityContext": {"privileged": True}}
    return web().with_spec(containers=[main])


def with_host_path() -> PodBuilder:
    return web().with_spec(volumes=[{"name": "logs", "hostPath": {"path": "/var/log"}}])


def with_claim(builder: PodBuilder) -> PodBuilder:
    source = {"persistentVolumeClaim": {"claimName": "data"}}
    return builder.with_spec(volumes=[{"name": "data", **source}])


def mirrored(there: PodBuilder) -> Any:
    """A hub pod on record that shows what its mirror does, and the mirror."""
    hub_pod, target_pod = recorded(web()), there.build()
    status = project_status(hub_pod.build(), target_pod, Addresses(node_address="10.9.9.9"))
    return facts(hub_pod.with_status(**status).build(), at_key=target_pod)


def waiting_in_target(reason: str, message: str = "") -> PodBuilder:
    waiting = {"reason": reason} | ({"message": message} if message else {})
    status = {
        "name": "main",
        "image": "busybox",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
    }
    return mirror().bound_to("n1").with_status(containerStatuses=[status])


def gated_once() -> PodBuilder:
    """The mirror with its gate open, of which the scheduler has said nothing since."""
    return mirror().with_condition("PodScheduled", "False", reason="SchedulingGated")


# -- the seven of the issue ------------------------------------------------------------------------


def test_a_privileged_pod() -> None:
    """The rule, the field and whom to ask are named, though no federate said a word."""
    road = road_of(facts(privileged().build()))
    assert road.verdict == (
        "it does not run: PolicyRefused: edge refuses "
        "spec.containers[main].securityContext.privileged (a privileged container, "
        "policy.privileged). "
        "Leave it out, or ask the operator of edge to allow it"
    )
    assert lines(road)[:5] == BEGINNING
    assert road.todo == (
        "leave it out; or, as operator of edge, change what stands in brackets in federate's file "
        "(docs/policy.md)",
    )
    assert not road.is_well


def test_a_pod_with_a_host_path() -> None:
    road = road_of(facts(with_host_path().build()))
    assert road.verdict == (
        "it does not run: PolicyRefused: edge refuses spec.volumes[logs].hostPath "
        "(a folder of the node, policy.hostPath). "
        "Leave it out, or ask the operator of edge to allow it"
    )


def test_a_pod_that_exceeds_a_quota() -> None:
    """The target's own words, as federate told them on the pod, and since when."""
    error = Forbidden(
        'pods "web-0" is forbidden: exceeded quota: team, requested: limits.cpu=2, used: '
        "limits.cpu=3, limited: limits.cpu=4",
        cluster="edge",
    )
    failure = create_failure_of(error, target_name="edge")
    road = road_of(facts(refused(recorded(web(), uid=""), failure.refusal).build()))
    assert lines(road) == [
        *READY,
        'stop told: QuotaExceeded: edge answered: pods "web-0" is forbidden: exceeded quota: team, '
        "requested: limits.cpu=2, used: limits.cpu=3, limited: limits.cpu=4 (for 4m)",
        f"ahead mirror: not made yet: it is to be {PLACE} of edge",
    ]
    assert road.verdict.startswith("it does not run: QuotaExceeded: edge answered: ")
    assert road.todo == (
        "free some of the quota, have it raised, or ask for less; it is tried again every few "
        f"minutes. In edge: kubectl -n {PLACE.namespace} describe resourcequota",
    )


def test_a_pod_that_is_too_big_for_every_node_of_the_target() -> None:
    """The target's scheduler speaks, and the hub's is done."""
    words = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available"
    there = mirror().with_condition("PodScheduled", "False", reason="Unschedulable", message=words)
    road = road_of(facts(recorded(web()).build(), at_key=there.build()))
    assert lines(road) == [
        *READY,
        f"ok mirror: {PLACE} of edge, Pending",
        f"stop scheduler: MirrorUnschedulable: edge finds no node: {words}",
    ]
    assert road.verdict == f"it does not run: MirrorUnschedulable: edge finds no node: {words}"
    assert road.todo == (
        "do as the words of edge's scheduler say: ask for less, or have nodes, taints or room "
        "changed. In edge: kubectl describe nodes",
    )


def test_what_federate_reads_out_of_the_schedulers_words_goes_first() -> None:
    """Without a look at the target the hub pod's own condition says it."""
    words = "0/2 nodes are available: 2 Insufficient cpu."
    told = recorded(web()).with_condition(
        "federate.dev/MirrorScheduled", "False", reason="TargetLacksRoom", message=words
    )
    side = TargetSide(trouble="no kubeconfig of edge is given", is_asked=False)
    road = road_of(facts(told.build(), target=side))
    assert road.verdict == f"it does not run: TargetLacksRoom: edge finds no node: {words}"
    assert road.todo[0].startswith("ask for less, or make room: it is placed by itself")


def test_a_pod_that_is_too_big_for_the_virtual_node() -> None:
    """Then the hub never binds it: what the virtual node offers is said beside."""
    words = "0/2 nodes are available: 2 Insufficient cpu."
    big = (
        unbound()
        .with_requests(cpu="12")
        .with_condition("PodScheduled", "False", reason="Unschedulable", message=words)
    )
    road = road_of(facts(big.build()))
    assert lines(road) == [
        "ok pod: Pending, made 5m ago",
        f"stop bound: to no node: the hub's default-scheduler: {words}; the pod asks for cpu 12, "
        "and virtual node edge offers 8 in all",
    ]


def test_a_pod_that_a_webhook_refuses() -> None:
    error = Forbidden(
        'admission webhook "gate.example.com" denied the request: label team is missing',
        cluster="edge",
    )
    failure = create_failure_of(error, target_name="edge")
    road = road_of(facts(refused(web(), failure.refusal).build()))
    assert road.verdict == (
        'it does not run: AdmissionDenied: edge answered: admission webhook "gate.example.com" '
        "denied the request: label team is missing"
    )
    assert road.todo == (
        "do as the words say, or ask the people of edge who run that webhook or policy; it is "
        "tried again every few minutes",
    )


def test_a_pod_whose_image_is_missing() -> None:
    """The target's kubelet speaks; its nodes pull for themselves."""
    message = 'Back-off pulling image "shop/web:2": not found'
    road = road_of(mirrored(waiting_in_target("ImagePullBackOff", message)))
    assert lines(road) == [
        *READY,
        f"ok mirror: {PLACE} of edge, Pending",
        "ok scheduler: node n1 of edge",
        f"stop kubelet: ImagePullBackOff: container main waits: {message}",
    ]
    assert road.todo == (
        "is the image's name right, can nodes of edge reach its registry, and has the pod a pull "
        "secret for it? The nodes of the hub may have had the image; those of edge pull it anew. "
        "What they tried: kubectl describe pod -n shop web-0",
    )


def claims_made() -> TargetRules:
    made = ClaimRules(mode=ClaimMode.TARGET, storage_classes={"edge": ""})
    return with_rules(render=replace(RULES.render, claims=made))


HUB_CLAIM: JsonDict = {
    "metadata": {"namespace": "shop", "name": "data", "uid": "c-1"},
    "spec": {"volumeName": "pvc-c-1"},
    "status": {"phase": "Bound"},
}
USE = ClaimUse(volume="data", claim=ObjectKey("shop", "data"))
HANDLE = Handle(PLACE.namespace, "data-abcdefgh23456777", "t-1")


def test_a_pod_whose_claim_is_pending_in_the_target() -> None:
    """Both ends of the storage are told, with the target's words in the hub's names."""
    rest = ClaimRest(
        reason="the hub's volume leads to our claim",
        standing=ClaimStanding.SETTLED,
        handle=HANDLE,
        is_bound_there=False,
    )
    warning = {
        "type": "Warning",
        "message": 'storageclass.storage.k8s.io "fast" not found',
        "lastTimestamp": "2026-01-01T00:02:00Z",
    }
    claim = ClaimFacts(use=USE, claim=HUB_CLAIM, step=rest, target_events=[warning])
    words = f'0/1 nodes are available: persistentvolumeclaim "{HANDLE.name}" not found.'
    there = mirror().with_condition("PodScheduled", "False", reason="Unschedulable", message=words)
    pod = with_claim(recorded(web())).build()
    road = road_of(facts(pod, rules=claims_made(), claims=[claim], at_key=there.build()))
    assert lines(road)[7:] == [
        NAMES_NONE,
        f"stop claims: ClaimPending: PersistentVolumeClaim shop/data has no storage in edge yet "
        f"(claim {HANDLE.key} is Pending there); edge says: storageclass.storage.k8s.io "
        '"fast" not found',
        f"ok mirror: {PLACE} of edge, Pending",
        "stop scheduler: MirrorUnschedulable: edge finds no node: 0/1 nodes are available: "
        'persistentvolumeclaim "data" not found.',
    ]
    assert road.todo[0] == (
        f"see storage class and provisioner. In edge: kubectl -n {HANDLE.namespace} describe pvc "
        f"{HANDLE.name}"
    )


def test_a_pod_whose_claim_is_not_bound_on_the_hub() -> None:
    """The hub's scheduler waits for storage before it binds; the claim's last warning says why."""
    words = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    warning = {"type": "Warning", "message": "storage class fast stands for no class of edge"}
    claim = ClaimFacts(
        use=USE,
        claim={**HUB_CLAIM, "spec": {}, "status": {"phase": "Pending"}},
        claim_events=[warning],
    )
    pod = with_claim(unbound()).with_condition("PodScheduled", "False", message=words).build()
    road = road_of(facts(pod, node=led(), claims=[claim]))
    assert lines(road)[1:] == [
        f"stop bound: to no node: the hub's default-scheduler: {words}",
        "note claims: PersistentVolumeClaim shop/data: the hub has it, Pending; last warning: "
        "storage class fast stands for no class of edge",
    ]


def test_a_pod_with_a_claim_where_storage_is_refused() -> None:
    """One thing is told once: not as a missing companion besides."""
    road = road_of(facts(with_claim(web()).build()))
    assert road.verdict == (
        "it does not run: ClaimRefused: spec.volumes[0].persistentVolumeClaim: storage by claims "
        "is refused in edge (volumes.claims: refuse); leave it out, or ask its operator for "
        "`volumes.claims: target`"
    )
    assert not any("CompanionMissing" in line for line in lines(road))


def test_a_claim_that_is_gone() -> None:
    claim = ClaimFacts(use=USE, claim=None)
    road = road_of(facts(with_claim(web()).build(), rules=claims_made(), claims=[claim]))
    assert road.todo == ("make PersistentVolumeClaim shop/data on the hub",)
    assert (
        "stop claims: ClaimPending: PersistentVolumeClaim shop/data is not on the hub: it is "
        "waited for" in lines(road)
    )


def test_what_nobody_says_of_storage_is_told_as_it_is_said() -> None:
    """No warning comes where nobody provisions; and the scheduler is silent until there is some."""
    rest = ClaimRest(
        reason="the hub's volume leads to our claim",
        standing=ClaimStanding.SETTLED,
        handle=HANDLE,
        is_bound_there=False,
    )
    event = {
        "type": "Normal",
        "message": "Waiting for a volume of nobody.example.com",
    }
    claim = ClaimFacts(use=USE, claim=HUB_CLAIM, step=rest, target_events=[event])
    pod = with_claim(recorded(web())).build()
    road = road_of(facts(pod, rules=claims_made(), claims=[claim], at_key=gated_once().build()))
    assert road.verdict == (
        "it is on its way: ClaimPending: PersistentVolumeClaim shop/data has no storage in edge "
        f"yet (claim {HANDLE.key} is Pending there); edge says: {event['message']}"
    )
    assert lines(road)[-1] == (
        "wait scheduler: the scheduler of edge has said nothing yet, as long as the claim has no "
        "storage (for 5m)"
    )


# -- the road to the node --------------------------------------------------------------------------


def test_a_pod_that_no_scheduler_looked_at() -> None:
    road = road_of(facts(unbound().build()))
    assert road.verdict == (
        "it does not run: to no node: the hub's default-scheduler: it has said nothing yet"
    )
    assert road.todo == ("is the hub's scheduler running? kubectl get pods -n kube-system",)


def test_a_pod_that_does_not_tolerate_virtual_nodes() -> None:
    shy = (
        unbound()
        .with_spec(tolerations=[])
        .with_condition(
            "PodScheduled",
            "False",
            message="0/1 nodes are available: 1 node(s) had untolerated taint",
        )
    )
    road = road_of(facts(shy.build()))
    assert "the pod does not tolerate virtual nodes" in road.verdict
    assert road.todo == (
        "to have it run in a target, let it tolerate the taint virtual-kubelet.io/provider "
        "(operator Exists)",
    )


def test_a_pod_that_tolerates_nothing_where_a_virtual_node_has_no_taint() -> None:
    """The scheduler's own words tell more than a taint that is not there."""
    shy = (
        unbound()
        .with_spec(tolerations=[], nodeSelector={"zone": "x"})
        .with_condition("PodScheduled", "False", message="0/2 nodes are available")
    )
    for taints in ([], [{"key": TOLERATION["key"], "effect": "PreferNoSchedule"}]):
        bare = node(spec={"taints": taints})
        road = road_of(facts(shy.build(), virtual_nodes=[node(), bare]))
        assert "tolerate" not in " ".join((road.verdict, *road.todo))


def test_a_pod_behind_scheduling_gates() -> None:
    gated = unbound().with_spec(schedulingGates=[{"name": "example.com/quota"}])
    road = road_of(facts(gated.build()))
    assert road.verdict == (
        "it does not run: to no node: its scheduling gates are closed (example.com/quota)"
    )


FREE: JsonDict = {"metadata": {"name": "federate-edge"}, "spec": {"holderIdentity": ""}}


def hub_node() -> JsonDict:
    return {"metadata": {"name": "n7", "annotations": {}}, "status": {}, "spec": {}}


def test_a_pod_on_another_node() -> None:
    """No station of federate is made up for it."""
    pod = unbound().bound_to("n7")
    road = road_of(facts(pod.build(), node=led(name="n7", node=hub_node())))
    assert lines(road)[1:] == [
        "ok bound: to node n7",
        "stop node: n7 is a node of the hub, and none of federate's; virtual nodes are: edge",
    ]
    running = road_of(facts(pod.running().build(), node=led(name="n7", node=hub_node())))
    assert (running.verdict, running.is_well) == ("it runs on n7", True)


def test_a_pod_whose_node_is_gone() -> None:
    road = road_of(facts(web().build(), node=led(node=None), virtual_nodes=[]))
    assert road.verdict == "it does not run: the hub has no node edge"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"lease": FREE, "holder": ""},
            "no federate leads edge: nothing is started, ended or told",
        ),
        (
            {"is_holder_dead": True},
            "host-1 led edge and is no more, silent for 2s: nothing is started, ended or told",
        ),
    ],
)
def test_a_pod_while_no_federate_leads(changes: dict[str, Any], said: str) -> None:
    road = road_of(facts(web().build(), node=led(**changes)))
    assert road.verdict == f"it does not run: {said}"
    assert road.todo[0] == (
        "start federate run for edge, or see its log; running pods go on meanwhile"
    )


def test_a_pod_while_the_leader_is_silent() -> None:
    late = led()
    road = road_of(replace(facts(web().build(), node=late), now=NOW.replace(minute=9)))
    assert road.verdict == (
        "it does not run: host-1 led edge, and is silent for 4m: nothing is started, ended or told"
    )


def test_a_pod_on_a_node_that_is_left() -> None:
    annotations = {LEAVING_ANNOTATION: "2026-01-01T00:00:00Z", NODE_HUB_ANNOTATION: "hub-uid"}
    left = node(metadata={"name": "edge", "annotations": annotations})
    road = road_of(facts(web().build(), node=led(node=left)))
    assert road.verdict == (
        "it does not run: NodeLeaving: virtual node edge is being left since 2026-01-01T00:00:00Z: "
        "nothing new is started there"
    )


# -- the road into the target ----------------------------------------------------------------------

AWAY = {
    "type": "federate.dev/TargetReachable",
    "status": "False",
    "reason": "TargetUnreachable",
    "message": "no answer within 3 s",
}


def test_a_pod_while_the_target_is_away() -> None:
    """What federate last said, what is seen from here, and nothing guessed of what is behind."""
    side = TargetSide(trouble="edge does not answer")
    road = road_of(facts(web().build(), node=led(node=node(AWAY)), target=side))
    assert lines(road)[4:] == [
        "stop target: TargetUnreachable: as federate last said: no answer within 3 s; from here: "
        "edge does not answer",
        REFUSES_NONE,
        NAMES_NONE,
        "ahead mirror: none is on record",
    ]
    assert road.todo == (
        "bring edge back, or its network: `federate check` says where the way ends. Nothing is "
        "lost meanwhile",
    )


@pytest.mark.parametrize(
    ("node_facts", "side"),
    [
        (led(), TargetSide(trouble="edge does not answer")),
        (
            led(),
            TargetSide(
                trouble="edge does not take the credentials given here: Unauthorized",
                is_refused=True,
            ),
        ),
        (
            led(node=Unread(why="these credentials may not read Node edge of hub")),
            TargetSide(trouble="edge does not answer"),
        ),
        (
            led(node=node({**AWAY, "status": "Unknown"})),
            TargetSide(trouble="edge does not take the credentials given here", is_refused=True),
        ),
    ],
)
def test_our_own_way_to_the_target_is_no_cause(node_facts: Any, side: TargetSide) -> None:
    """Whoever explains from elsewhere, or with other credentials, is told what federate told."""
    error = Forbidden('pods "web-0" is forbidden: exceeded quota: team', cluster="edge")
    failure = create_failure_of(error, target_name="edge")
    pod = refused(recorded(web(), uid=""), failure.refusal).build()
    road = road_of(facts(pod, node=node_facts, target=side))
    assert road.verdict.startswith("it does not run: QuotaExceeded: edge answered: ")
    (target,) = (line for line in lines(road) if "target:" in line)
    assert target.startswith(f"unknown target: from here: {side.trouble}")


def test_a_target_that_nobody_reaches() -> None:
    """Two who do not reach it: it is away."""
    silent = led(node=node({**AWAY, "status": "Unknown"}))
    side = TargetSide(trouble="edge does not answer")
    road = road_of(facts(web().build(), node=silent, target=side))
    assert road.verdict == ("it does not run: TargetUnreachable: from here: edge does not answer")


def test_another_cluster_answers() -> None:
    road = road_of(facts(web().build(), target=TargetSide(identity="other-uid")))
    assert road.verdict == (
        "it does not run: TargetChanged: another cluster answers than the one on record "
        "(other-uid, not target-uid): nothing is written there"
    )


def test_a_pod_where_federate_was_uninstalled() -> None:
    """The anchor on record is gone, or another stands there."""
    for there in (None, anchor(uid="a-2")):
        road = road_of(facts(web().build(), anchor=there))
        assert road.verdict == (
            f"it does not run: Uninstalled: federate was uninstalled from namespace "
            f"{PLACE.namespace} of edge (its anchor was deleted there); an operator must confirm"
        )
        assert road.todo == (
            "where federate shall go on there: kubectl annotate node edge "
            f"federate.dev/reinstall={PLACE.namespace}",
        )


def test_a_namespace_that_federate_does_not_make() -> None:
    mapped = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"shop": PLACE.namespace})
    pod = facts(web().build(), node=led(), namespace=None, anchor=None)
    assert (
        f"ahead namespace: {PLACE.namespace} is not made yet: federate makes it for the first "
        "pod" in lines(road_of(pod))
    )
    road = road_of(replace(pod, rules=with_rules(namespaces=mapped)))
    assert road.verdict == (
        f"it does not run: NamespaceMissing: namespace {PLACE.namespace} of edge is missing, and "
        "not federate's to make"
    )


def test_a_name_that_is_taken() -> None:
    """A stranger's pod is named, and nothing of it shown."""
    stranger = mirror().build()
    stranger["metadata"]["labels"] = {}
    stranger["status"] = {"phase": "Running", "message": "secret plans"}
    road = road_of(facts(recorded(web(), uid="").build(), at_key=stranger))
    assert road.verdict == (
        f"it does not run: NameTaken: a pod {PLACE} that is not this virtual node's exists in "
        "edge; federate does not touch it. Remove or rename it there, or rename this pod"
    )
    assert "secret plans" not in str(road.as_json())


def test_a_predecessor_that_ends() -> None:
    road = road_of(facts(web().build(), at_key=mirror(pod_uid="earlier").terminating().build()))
    assert road.verdict == (
        "it is on its way: PredecessorTerminating: the mirror of an earlier pod of this name still "
        "ends in edge"
    )


def test_a_mirror_that_is_lost() -> None:
    road = road_of(facts(recorded(web()).build()))
    assert (
        f"stop mirror: MirrorLost: the mirror pod {PLACE}, on record, is not in edge any more"
        in lines(road)
    )


# -- what it needs ---------------------------------------------------------------------------------


def needing(**reference: Any) -> PodBuilder:
    source = {"configMapRef": {"name": "app", **reference}}
    return web().with_spec(containers=[{"name": "main", "image": "busybox", "envFrom": [source]}])


APP = CompanionKey(PLACE.namespace, Kind.CONFIGMAP, "shop", "app")
ON_HUB: JsonDict = {"metadata": {"namespace": "shop", "name": "app"}}


def companion() -> JsonDict:
    namespace, name = name_of(SCOPE, APP)
    marks = {
        "labels": companion_labels(SCOPE, APP),
        "annotations": companion_annotations(SCOPE, APP),
    }
    return {"metadata": {"namespace": namespace, "name": name, **marks}}


@pytest.mark.parametrize(
    ("brought", "said"),
    [
        (
            Brought(key=APP, is_optional=False),
            "stop companions: ConfigMap shop/app is not on the hub: containers that need it wait, "
            "as on a node of the hub",
        ),
        (
            Brought(key=APP, is_optional=False, is_shared=True),
            "ok companions: 1 of 1 ConfigMaps and Secrets are in edge",
        ),
        (
            Brought(key=APP, is_optional=True),
            "note companions: ConfigMap shop/app is not on the hub; the pod does without (it is "
            "optional), and it comes when it is made",
        ),
        (
            Brought(key=APP, is_optional=False, hub=ON_HUB),
            "wait companions: CompanionComing: ConfigMap shop/app is not in edge yet (there it is "
            f"{name_of(SCOPE, APP)})",
        ),
        (
            Brought(key=APP, is_optional=False, hub=ON_HUB, target={"metadata": {}}),
            f"stop companions: NameTaken: ConfigMap {name_of(SCOPE, APP)} of edge has the name of "
            "what stands for ConfigMap shop/app, but not federate's marks: it stays untouched. "
            "Remove or rename it there",
        ),
        (
            Brought(key=APP, is_optional=False, hub=Unread(why="these credentials may not")),
            "unknown companions: ConfigMap shop/app of the hub: these credentials may not",
        ),
        (
            Brought(key=APP, is_optional=False, hub=ON_HUB, target=Unread(why="nobody may")),
            "unknown companions: ConfigMap shop/app: is it in edge? nobody may",
        ),
        (
            Brought(key=APP, is_optional=False, hub=ON_HUB, target=companion()),
            "ok companions: 1 of 1 ConfigMaps and Secrets are in edge",
        ),
    ],
)
def test_a_companion(brought: Brought, said: str) -> None:
    """The one that lacks is named, with its name in the target."""
    assert said in lines(road_of(facts(needing().build(), brought=[brought])))


def test_a_mount_that_fails() -> None:
    """A kubelet says so in Events alone; generated names become the hub's."""
    there = name_of(SCOPE, APP).name
    event = {
        "type": "Warning",
        "message": f'MountVolume.SetUp failed for volume "c" : configmap "{there}" not found',
        "lastTimestamp": "2026-01-01T00:02:00Z",
    }
    pod = recorded(needing()).build()
    target_pod = waiting_in_target("ContainerCreating").build()
    road = road_of(facts(pod, at_key=target_pod, mirror_events=[event]))
    assert lines(road)[-1] == (
        "stop kubelet: ContainerCreating: container main cannot start: MountVolume.SetUp failed "
        'for volume "c" : configmap "app" not found'
    )


# -- and what is well ------------------------------------------------------------------------------


def test_a_pod_that_runs_well() -> None:
    there = mirror().bound_to("n1").running()
    found = mirrored(there)
    reflected = {**found.hub_pod, "status": {**found.hub_pod["status"], "podIP": "10.1.0.7"}}
    road = road_of(replace(found, hub_pod=reflected))
    assert road.verdict == "it runs on edge, a virtual node"
    assert road.is_well
    assert road.todo == ()
    assert lines(road)[-3:] == [
        f"ok mirror: {PLACE} of edge, Running",
        "ok scheduler: node n1 of edge",
        "ok kubelet: 1 of 1 containers run",
    ]


def test_a_pod_that_runs_while_nobody_leads() -> None:
    """It goes on, and what the hub shows may be old."""
    found = mirrored(mirror().bound_to("n1").running())
    road = road_of(replace(found, node=led(lease=FREE, holder="")))
    assert road.verdict == (
        "it runs on edge, a virtual node, as last told; but no federate leads edge: nothing is "
        "started, ended or told"
    )
    assert not road.is_well


def test_a_hidden_address() -> None:
    hidden = {
        "type": "federate.dev/AddressesReflected",
        "status": "False",
        "reason": "RangesOverlap",
        "message": "hidden: pods 10.42.0.0/16 of both",
    }
    found = mirrored(mirror().bound_to("n1").running())
    road = road_of(replace(found, node=led(node=node(hidden))))
    assert lines(road)[-1] == (
        "note status: RangesOverlap: it shows no address, so Services of the hub do not reach it: "
        "hidden: pods 10.42.0.0/16 of both"
    )


def test_a_pod_that_has_ended() -> None:
    """Nothing that is wrong with the target matters to it any more."""
    road = road_of(facts(web().succeeded().build(), node=led(node=node(AWAY))))
    assert (road.verdict, road.is_well) == ("it has ended: Succeeded", True)
    assert [station.id for station in road.stations] == ["pod", "bound", "node"]


def test_a_pod_that_was_rejected() -> None:
    """Another like it would be too: what is to be done is told, though it has ended."""
    words = "Pod was rejected: Predicate NodePorts failed: TCP 80 is taken by another pod"
    ended = web().with_status(phase="Failed", reason="NodePorts", message=words)
    road = road_of(facts(ended.build()))
    assert (road.verdict, road.is_well) == ("it has ended: Failed (NodePorts)", False)
    assert lines(road)[0] == (
        "stop pod: Failed: it has ended, and is never started again, made 5m ago "
        f"(NodePorts: {words})"
    )
    assert road.todo == (
        "give it another hostPort, or none, or bind it to no node by name: a scheduler finds one "
        "that has the port",
    )
    lost = web().with_status(phase="Failed", reason="MirrorLost")
    assert road_of(facts(lost.build())).todo == ()


def test_a_pod_of_a_daemonset_that_is_taken_for_ready() -> None:
    """It says Running; that it runs would be a lie."""
    pod = web().owned_by("DaemonSet", "agent")
    words = {"reason": "NotRunHere", "message": "DaemonSet pods are not run in targets"}
    status = pretended_status(pod.build(), now="2026-01-01T00:01:00Z", **words)
    road = road_of(facts(pod.with_status(**status).build()))
    assert road.verdict == (
        "it runs nowhere, and counts as ready: DaemonSet pods are not run in targets"
    )
    assert road.is_well
    assert not any("no address" in line for line in lines(road))


def test_a_pod_that_crashes() -> None:
    there = waiting_in_target("CrashLoopBackOff", "back-off 40s restarting failed container")
    there.pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 3}}
    road = road_of(mirrored(there))
    assert road.verdict == (
        "it does not run: CrashLoopBackOff: container main waits: back-off 40s restarting failed "
        "container; it last ended with 3"
    )
    assert road.todo == ("kubectl logs -n shop web-0 --previous",)


# -- the rules -------------------------------------------------------------------------------------


def test_the_words_are_the_products_own() -> None:
    """Explain and federate cannot say different things of a refusal."""
    pod = privileged().build()
    words = refusal_words(judge(pod, PolicyRules()).refused, "edge")
    assert words in road_of(facts(pod)).verdict
    needy = web().with_spec(resourceClaims=[{"name": "gpu"}]).build()
    general = refusal_of(needy, mirror_key=PLACE, rules=RULES.render, target_name="edge")
    assert general is not None
    assert general.message in road_of(facts(needy)).verdict


def test_what_was_told_already_is_not_told_twice() -> None:
    pod = privileged()
    words = refusal_words(judge(pod.build(), PolicyRules()).refused, "edge")
    from federate.mirror.refusal import Refusal

    told = refused(pod, Refusal(reason="PolicyRefused", message=words)).build()
    assert sum("PolicyRefused" in line for line in lines(road_of(facts(told)))) == 1


def test_a_mirror_stays_though_the_rules_changed() -> None:
    there = mirror().bound_to("n1").running().build()
    road = road_of(facts(recorded(privileged()).running().build(), at_key=there))
    assert road.is_well
    assert any(
        line.startswith("note rules: PolicyRefused: it has its mirror, and keeps it; made today")
        for line in lines(road)
    )


def test_what_is_another_in_the_target_is_noted() -> None:
    policy = PolicyRules(outcomes={"hostPath": Outcome.STRIP})
    rules = with_rules(render=replace(RULES.render, policy=policy))
    road = road_of(facts(with_host_path().build(), rules=rules))
    assert any(
        line.startswith("note rules: spec.volumes[logs].hostPath stays") for line in lines(road)
    )
    assert road.verdict == "nothing is in its way: federate is about to go on"


POLICY: JsonDict = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}}}


def test_network_policies_are_told_or_refuse() -> None:
    warned = road_of(facts(web().build(), policies=[POLICY]))
    assert (
        "note rules: NetworkPolicy deny: this policy selects pods that run in edge; it is not "
        "enforced there. The target's own NetworkPolicies are" in lines(warned)
    )
    rules = with_rules(network=NetworkRules(network_policies=NetworkPolicyMode.REFUSE))
    road = road_of(facts(web().build(), rules=rules, policies=[POLICY]))
    assert road.verdict.startswith(
        "it does not run: NetworkPolicyNotEnforced: NetworkPolicy deny selects this pod"
    )


# -- without rights --------------------------------------------------------------------------------


def test_what_may_not_be_read_is_said_and_the_rest_goes_on() -> None:
    """A user of the hub, with no kubeconfig of the target and few rights, learns what he may."""
    no = Unread(why="these credentials may not read it")
    side = TargetSide(trouble="no kubeconfig of edge is given", is_asked=False)
    error = Forbidden('pods "web-0" is forbidden: exceeded quota: team', cluster="edge")
    pod = refused(recorded(web(), uid=""), create_failure_of(error, target_name="edge").refusal)
    road = road_of(
        facts(
            pod.build(),
            node=led(node=no, lease=no, holder=""),
            virtual_nodes=no,
            policies=no,
            rules=None,
            target=side,
        )
    )
    assert lines(road) == [
        "ok pod: Pending, made 5m ago",
        "ok bound: to node edge",
        "unknown node: edge: these credentials may not read it",
        "unknown leader: these credentials may not read it",
        "unknown target: not looked at: no kubeconfig of edge is given",
        "unknown rules: how edge is configured is not known here",
        'stop told: QuotaExceeded: edge answered: pods "web-0" is forbidden: exceeded quota: team '
        "(for 4m)",
        f"unknown mirror: {PLACE} of edge is intended; no kubeconfig of edge is given",
    ]


def test_a_pod_that_is_not_there_or_may_not_be_read() -> None:
    road = road_of(facts(None))
    assert (road.verdict, road.is_well) == (f"the hub has no pod {KEY}", False)
    why = "these credentials may not read Pod shop/web-0 of hub"
    assert road_of(replace(facts(None), hub_pod=Unread(why=why))).verdict == why


def test_json_has_all_of_it() -> None:
    road = road_of(facts(privileged().build()))
    told = road.as_json()
    assert told["about"] == "pod shop/web-0"
    assert told["ok"] is False
    stopped = [s for s in told["stations"] if s["standing"] == "stop"]
    assert [s["reason"] for s in stopped] == ["PolicyRefused"]
    assert told["todo"] == [stopped[0]["todo"]]


def test_long_words_of_others_are_cut_and_stay_on_one_line() -> None:
    noisy = unbound().with_condition("PodScheduled", "False", message="x\n" * 3000)
    (station,) = [s for s in road_of(facts(noisy.build())).stations if s.id == "bound"]
    assert "\n" not in station.said
    assert len(station.said) < 1200


def test_tolerations_of_everything_count() -> None:
    anything = unbound().with_spec(tolerations=[{"operator": "Exists"}])
    assert "does not tolerate" not in road_of(facts(anything.build())).verdict
    assert TOLERATION["key"] == "virtual-kubelet.io/provider"


# -- a scheduler that says nothing -----------------------------------------------------------------


def test_a_scheduler_of_the_target_that_is_silent() -> None:
    """Its last word is that the gate is closed, which is open: soon that is odd."""
    for there in (gated_once(), mirror()):
        road = road_of(facts(recorded(web()).build(), at_key=there.build()))
        assert road.verdict == (
            "it does not run: SchedulerSilent: the scheduler of edge has said nothing yet"
        )
        assert road.todo == (
            "is the scheduler of edge running, and is it the one that the mirror names "
            f"(policy.schedulers)? In edge: kubectl -n {PLACE.namespace} get pods -o wide",
        )


def test_a_scheduler_that_has_had_no_time_yet() -> None:
    there = facts(recorded(web()).build(), at_key=gated_once().build())
    road = road_of(replace(there, now=NOW.replace(minute=0, second=3)))
    assert lines(road)[-1] == "wait scheduler: the scheduler of edge has said nothing yet (for 3s)"


def test_gates_that_somebody_put_there_in_the_target() -> None:
    gate = {"schedulingGates": [{"name": "queue.example.com/turn"}]}
    road = road_of(facts(recorded(web()).build(), at_key=gated_once().with_spec(**gate).build()))
    assert road.verdict == (
        "it does not run: the scheduler of edge does not look at it as long as gates that somebody "
        "put there are closed: queue.example.com/turn"
    )


# -- few rights ------------------------------------------------------------------------------------

NO_NODES = Unread(why="these credentials may not read nodes of hub")


def test_nodes_that_may_not_be_read_are_not_called_none() -> None:
    words = "0/3 nodes are available: 3 node(s) had untolerated taint(s)."
    plain = (
        unbound()
        .with_spec(tolerations=[])
        .with_condition("PodScheduled", "False", reason="Unschedulable", message=words)
    )
    road = road_of(facts(plain.build(), virtual_nodes=NO_NODES))
    assert road.verdict == (
        f"it does not run: to no node: the hub's default-scheduler: {words}; the pod does not "
        "tolerate virtual nodes (taint virtual-kubelet.io/provider)"
    )
    road = road_of(facts(plain.build(), virtual_nodes=[]))
    assert road.verdict.endswith("the hub has no virtual node")


def test_where_nothing_is_known_what_would_tell_more_is_next() -> None:
    """A pod that waits, of which these credentials see nothing but that."""
    side = TargetSide(trouble="no kubeconfig of edge is given", is_asked=False)
    road = road_of(facts(recorded(web()).build(), rules=None, target=side))
    assert road.verdict == "nothing that can be seen with these credentials is in its way"
    assert road.todo == (
        "give --config FILE, or --target edge=KUBECONFIG",
        "give --config FILE, the file of federate run",
    )


def test_what_a_running_pod_would_need_again_does_not_hold_it_up() -> None:
    ready = recorded(web()).with_status(phase="Running").with_condition("Ready", "True")
    gone = [Brought(key=APP, is_optional=False)]
    there = mirror().bound_to("n1").with_status(phase="Running").build()
    road = road_of(facts(ready.build(), at_key=there, brought=gone))
    assert road.is_well
    assert (
        "note companions: ConfigMap shop/app is not on the hub: what runs goes on, and would not "
        "start again" in lines(road)
    )


def test_a_pod_that_runs_has_nothing_to_be_done() -> None:
    """What is not known of one that runs is no task."""
    ready = recorded(web()).with_status(phase="Running").with_condition("Ready", "True")
    side = TargetSide(trouble="no kubeconfig of edge is given", is_asked=False)
    road = road_of(facts(ready.build(), rules=None, target=side))
    assert road.is_well
    assert road.todo == ()


def test_a_companion_of_which_federate_said_why_it_does_not_come() -> None:
    """It is not called on its way then; the target's words are the cause."""
    words = "edge does not take Secret shop/key; it answered: exceeded quota: none"
    held = refused(web(), Refusal(reason="CompanionRefused", message=words)).build()
    key = CompanionKey(PLACE.namespace, Kind.SECRET, "shop", "key")
    brought = [Brought(key=key, is_optional=False, hub=ON_HUB)]
    road = road_of(facts(held, brought=brought))
    assert road.verdict == f"it does not run: CompanionRefused: {words}"
    assert (
        f"wait companions: Secret shop/key is not in edge (there it is {name_of(SCOPE, key)}); "
        "why is told below" in lines(road)
    )

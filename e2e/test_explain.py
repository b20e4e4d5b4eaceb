"""`federate explain` on whole clusters: each way a pod can be held up, by the command as typed.

One world for all: a virtual node whose target refuses and lacks this and that, and one whose
target's network can be cut. What is checked is what somebody reads at night: the first line, and
what to do next.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.support.accounts import kubeconfig_with_token
from e2e.support.manifests import container, pod, pod_spec, quota
from e2e.support.pods import condition_of, name_of, phase_of, waiting_reason
from e2e.support.process import run_cli
from e2e.support.refusing import asking, causes, namespace_of, wait_refused
from e2e.support.witness import Json
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE, AWAY, OTHER = "explained", "explained-away", "explained-other"
"""Two virtual nodes, and a node of the hub's own."""
CLASS, TARGET_CLASS = "explained", "explained-slow"
GOLD, BULLION = "explained-gold", "explained-bullion"
"""A priority class of the hub, and what the policy maps it to, which nobody made."""
AT_ONCE = 4
"""Commands that run side by side: each is busy for a second."""
CLI_SECONDS = 120.0


def document(hub: LocalCluster, target: LocalCluster, way: FaultProxy) -> Json:
    def virtual_node(name: str, kubeconfig: Path, **more: Any) -> Json:
        return {
            "nodeName": name,
            "target": {"kubeconfig": str(kubeconfig)},
            # More than the target has: the hub's scheduler binds what finds no room there.
            "capacity": {"mode": "static", "static": {"cpu": 8000, "memory": "64Gi", "pods": 50}},
            **more,
        }

    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [
            virtual_node(
                NODE,
                target.kubeconfig,
                volumes={"claims": "target", "storageClasses": {CLASS: TARGET_CLASS}},
                policy={"priorityClasses": {GOLD: BULLION}},
            ),
            virtual_node(AWAY, way.kubeconfig),
        ],
    }


def storage_class(name: str, provisioner: str) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


OF_HUB: tuple[Json, ...] = (
    storage_class(CLASS, "federate.dev/target"),
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": GOLD},
        "value": 5,
    },
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}},
)
OF_TARGET: tuple[Json, ...] = (storage_class(TARGET_CLASS, "nobody.example.com"),)
OF_USER: tuple[Json, ...] = (
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}},
)


@pytest.fixture(scope="module")
def way(local_target: LocalCluster) -> Iterator[FaultProxy]:
    with FaultProxy.before(local_target) as found:
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Two virtual nodes of one federate, a namespace of users, and how it was configured."""

    world: World
    space: Space
    config: Path

    def explain(self, *arguments: str) -> Json:
        """Ask with the operator's configuration."""
        return explain(*arguments, "--config", str(self.config))

    def pod(self, name: str) -> str:
        return f"{self.space.namespace}/{name}"


def explain(*arguments: str) -> Json:
    """Run the command; its exit code says what its JSON does."""
    told = run_cli("explain", *arguments, "-o", "json", timeout_seconds=CLI_SECONDS)
    assert told.returncode in (0, 1) and not told.stderr, told.stderr
    found: Json = json.loads(told.stdout)
    assert found["ok"] == (told.returncode == 0)
    return found


@pytest.fixture(scope="module")
def stage(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    way: FaultProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    config = tmp_path_factory.mktemp("explain") / "federate.yaml"
    config.write_text(yaml.safe_dump(document(local_hub, local_target, way)))
    with ExitStack() as stack:
        for cluster, objects in ((local_hub, OF_HUB), (local_target, OF_TARGET)):
            lend(stack, cluster, objects)
        world = stack.enter_context(
            worlds.world(node=NODE, hub=local_hub, target=local_target, config=config, also=[AWAY])
        )
        space = Space(world, "explain")
        space.open()
        stack.callback(space.close)
        lend(stack, local_hub, OF_USER, namespace=space.namespace)
        space.run_pod(pod("runs", pod_spec(NODE)))
        space.run_pod(pod("away", pod_spec(AWAY)))
        target = space.target_namespace
        refusing = [cause for cause in causes(target) if cause["kind"] != "LimitRange"]
        secrets = quota("no-secrets", **{"count/secrets": "0"})
        for cause in (*refusing, secrets):
            name, namespace = name_of(cause), namespace_of(cause, target)
            space.target.create(cause, namespace)
            stack.callback(space.target.delete, cause["kind"], namespace, name)
        for name in ("counted", "denied", "hooked"):
            wait_refused(space, asking("nowhere")[name][0])
        yield Stage(world=world, space=space, config=config)


def lend(
    stack: ExitStack, cluster: TestCluster, objects: tuple[Json, ...], *, namespace: str = "default"
) -> None:
    """Have objects in a cluster until the stack is unwound."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=text)
    stack.callback(
        cluster.kubectl,
        *("-n", namespace, "delete", "--ignore-not-found", "--wait=false", "-f", "-"),
        stdin=text,
    )


# -- pods that do not run --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pod that is held up: how that shows on the hub, and what is to be said of it.

    In texts `…` stands for anything, NS and THERE for the namespaces of both sides.
    """

    body: Json
    shows: Callable[[Json], object]
    verdict: str
    todo: tuple[str, ...]


def tells(reason: str) -> Callable[[Json], object]:
    return lambda found: waiting_reason(found) == reason


def is_unbound(found: Json) -> bool:
    return condition_of(found, "PodScheduled").get("reason") == "Unschedulable"


def waits_for(reason: str) -> Callable[[Json], object]:
    def probe(found: Json) -> bool:
        statuses = found["status"].get("containerStatuses") or [{}]
        waiting: Json = statuses[0].get("state", {}).get("waiting", {})
        return waiting.get("reason") == reason

    return probe


def is_unscheduled(found: Json) -> object:
    return condition_of(found, "federate.dev/MirrorScheduled")


def spec(**more: Any) -> Json:
    return pod_spec(NODE, **more)


def main(**fields: Any) -> Json:
    return spec(containers=[container(**fields)])


def of_claim(name: str) -> Json:
    return spec(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])


def requesting(cpu: str) -> Json:
    return main(resources={"requests": {"cpu": cpu}})


LEAVE_OUT = (
    "leave it out; or, as operator of explained, change what stands in brackets in federate's file "
    "(docs/policy.md)",
)
CASES: Mapping[str, Case] = {
    "privileged": Case(
        body=pod("privileged", main(securityContext={"privileged": True})),
        shows=tells("PolicyRefused"),
        verdict="it does not run: PolicyRefused: explained refuses "
        "spec.containers[main].securityContext.privileged (a privileged container, "
        "policy.privileged). Leave it out, or ask the operator of explained to allow it",
        todo=LEAVE_OUT,
    ),
    "hostpath": Case(
        body=pod("hostpath", spec(volumes=[{"name": "logs", "hostPath": {"path": "/var/log"}}])),
        shows=tells("PolicyRefused"),
        verdict="it does not run: PolicyRefused: explained refuses spec.volumes[logs].hostPath "
        "(a folder of the node, policy.hostPath). Leave it out, or ask the operator of explained "
        "to allow it",
        todo=LEAVE_OUT,
    ),
    "counted": Case(
        body=asking(NODE)["counted"][0],
        shows=tells("QuotaExceeded"),
        verdict='it does not run: QuotaExceeded: explained answered: pods "counted" is forbidden: '
        "exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0",
        todo=(
            "free some of the quota, have it raised, or ask for less; it is tried again every few "
            "minutes. In explained: kubectl -n THERE describe resourcequota",
        ),
    ),
    "denied": Case(
        body=asking(NODE)["denied"][0],
        shows=tells("AdmissionDenied"),
        verdict='it does not run: AdmissionDenied: explained answered: pods "denied" is forbidden: '
        "ValidatingAdmissionPolicy 'THERE' with binding 'THERE' denied request: pods of this app "
        "have no place here",
        todo=(
            "do as the words say, or ask the people of explained who run that webhook or policy; "
            "it is tried again every few minutes",
        ),
    ),
    "hooked": Case(
        body=asking(NODE)["hooked"][0],
        shows=tells("AdmissionFailed"),
        verdict="it does not run: AdmissionFailed: explained answered: Internal error occurred: "
        'failed calling webhook "away.example.com": …',
        todo=(
            "bring that webhook of explained back, and it is tried again by itself. In explained: "
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
        ),
    ),
    "gold": Case(
        body=pod("gold", spec(priorityClassName=GOLD)),
        shows=tells("ClassMissing"),
        verdict='it does not run: ClassMissing: explained answered: pods "gold" is forbidden: no '
        f"PriorityClass with name {BULLION} was found",
        todo=(
            "make the class in explained; or, as its operator, map it to one that is there "
            "(policy.priorityClasses, policy.runtimeClasses)",
        ),
    ),
    "secretive": Case(
        body=pod("secretive", main(envFrom=[{"secretRef": {"name": "password"}}])),
        shows=tells("CompanionRefused"),
        verdict="it does not run: CompanionRefused: explained does not take Secret NS/password; …"
        "exceeded quota: no-secrets, requested: count/secrets=1, used: count/secrets=0, limited: "
        "count/secrets=0",
        todo=(
            "do in explained what the words ask for (its namespace there is THERE); the copy is "
            "tried again by itself, ever more seldom",
        ),
    ),
    "wide": Case(
        body=pod("wide", requesting("4000")),
        shows=is_unscheduled,
        verdict="it does not run: TargetLacksRoom: explained finds no node: 0/… nodes are "
        "available: … Insufficient cpu…",
        todo=(
            "ask for less, or make room: it is placed by itself then. In explained: kubectl "
            "describe nodes",
        ),
    ),
    "noimage": Case(
        body=pod(
            "noimage",
            main(image="registry.test/nothing:1"),
            annotations={"testbed.federate/image": "missing"},
        ),
        shows=waits_for("ImagePullBackOff"),
        verdict="it does not run: ImagePullBackOff: container main waits: Back-off pulling image "
        '"registry.test/nothing:1": …: not found',
        todo=(
            "is the image's name right, can nodes of explained reach its registry, and has the pod "
            "a pull secret for it? The nodes of the hub may have had the image; those of explained "
            "pull it anew. What they tried: kubectl describe pod -n NS noimage",
        ),
    ),
    "stored": Case(
        body=pod("stored", of_claim("data")),
        shows=lambda found: found["spec"].get("nodeName"),
        verdict="it is on its way: ClaimPending: PersistentVolumeClaim NS/data has no storage in "
        "explained yet (claim THERE/data-… is Pending there); explained says: …nobody.example.com…",
        todo=(
            "nothing where it is new; else see storage class and provisioner. In explained: "
            "kubectl -n THERE describe pvc data-…",
        ),
    ),
    "noclaim": Case(
        body=pod("noclaim", of_claim("gone")),
        shows=is_unbound,
        verdict="it does not run: to no node: the hub's default-scheduler: …"
        'persistentvolumeclaim "gone" not found…',
        todo=(
            "do as the scheduler's words say: federate takes over when the pod is bound",
            "make PersistentVolumeClaim NS/gone on the hub",
        ),
    ),
    "plain": Case(
        body=pod("plain", {"containers": [container()]}),
        shows=is_unbound,
        verdict="it does not run: to no node: the hub's default-scheduler: … had untolerated "
        "taint…; the pod does not tolerate virtual nodes (taint virtual-kubelet.io/provider)",
        todo=(
            "to have it run in a target, let it tolerate the taint virtual-kubelet.io/provider "
            "(operator Exists)",
        ),
    ),
    "large": Case(
        body=pod("large", requesting("9000")),
        shows=is_unbound,
        verdict="it does not run: to no node: the hub's default-scheduler: … Insufficient cpu…; "
        "the pod asks for cpu 9k, and virtual node explained offers 8k in all…",
        todo=("do as the scheduler's words say: federate takes over when the pod is bound",),
    ),
    "elsewhere": Case(
        body=pod("elsewhere", {"containers": [container()], "nodeName": OTHER}),
        shows=phase_of,
        verdict="it does not run: explained-other is a node of the hub, and none of federate's; "
        "virtual nodes are: …explained…",
        todo=("kubectl describe node explained-other: its own kubelet runs what is bound there",),
    ),
}


@pytest.fixture(scope="module")
def told(stage: Stage) -> Iterator[Mapping[str, Json]]:
    """What is said of each pod, once it is held up."""
    space = stage.space
    for case in CASES.values():
        space.create(case.body)
    try:
        for name, case in CASES.items():
            space.wait(f"{name} is held up", partial(shown, space, case))
        space.wait("the target asks for storage", lambda: words_of_claim(space))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(lambda name: stage.explain("pod", stage.pod(name)), CASES)
            yield dict(zip(CASES, answers, strict=True))
    finally:
        # No kubelet is there that would let it go.
        space.delete_pod("elsewhere", grace_seconds=0)


def shown(space: Space, case: Case) -> object:
    """Tell whether a pod shows on the hub that it is held up."""
    return case.shows(space.pod(name_of(case.body)) or {})


def words_of_claim(space: Space) -> list[Json]:
    """List what the target said of a claim: that it waits for a provisioner comes after a while."""
    events = space.target.list("Event", space.target_namespace)
    return [event for event in events if "nobody.example.com" in (event.get("message") or "")]


def fits(space: Space, template: str, text: str) -> bool:
    """Tell whether a text is as a case says."""
    names = template.replace("THERE", space.target_namespace).replace("NS", space.namespace)
    return re.fullmatch(re.escape(names).replace("…", ".*"), text) is not None


@pytest.mark.parametrize("name", CASES)
def test_a_pod_that_is_held_up(name: str, stage: Stage, told: Mapping[str, Json]) -> None:
    """The first line names cause and place; what to do next is what helps."""
    case, found = CASES[name], told[name]
    assert found["about"] == f"pod {stage.pod(name)}"
    assert not found["ok"]
    assert fits(stage.space, case.verdict, found["verdict"]), found["verdict"]
    assert len(found["todo"]) == len(case.todo), found["todo"]
    for template, text in zip(case.todo, found["todo"], strict=True):
        assert fits(stage.space, template, text), text


# -- and those that do -----------------------------------------------------------------------------


def test_a_pod_that_runs(stage: Stage) -> None:
    """All is well, and so says each station that there is, in lines for people."""
    told = run_cli(
        *("explain", "pod", "runs", "-n", stage.space.namespace, "--config", str(stage.config)),
        timeout_seconds=CLI_SECONDS,
    )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == f"pod {stage.pod('runs')}: it runs on explained, a virtual node"
    stations = dict(line.split(maxsplit=1) for line in map(str.strip, lines[1:]))
    assert "stop" not in stations and "unknown" not in stations, told.stdout
    place = f"{stage.space.target_namespace}/runs"
    for line in (
        "  ok       node         virtual node explained is Ready",
        "  ok       target       explained answers",
        "  ok       rules        explained refuses nothing of it",
        f"  ok       mirror       {place} of explained, Running",
        "  ok       kubelet      1 of 1 containers run",
    ):
        assert line in lines, told.stdout
    assert not any(line.startswith("Next:") for line in lines), told.stdout


# -- nodes -----------------------------------------------------------------------------------------


def said_of(found: Json, station: str) -> str:
    """Return what was said at a station, with how it stands."""
    (one,) = [s for s in found["stations"] if s["id"] == station]
    return f"{one['standing']}: {one['said']}"


def test_a_node_that_is_well(stage: Stage) -> None:
    found = stage.explain("node", NODE)
    assert found["ok"] and found["verdict"] == "all is well", found
    assert said_of(found, "node") == "ok: virtual node explained is Ready"
    assert re.fullmatch(r"ok: .+ \(pid \d+\), heard of \ds ago", said_of(found, "leader"))
    assert said_of(found, "target") == "ok: explained answers"


def test_a_node_whose_target_is_away(stage: Stage, way: FaultProxy) -> None:
    """Both it and its waiting pods say so, and what a look from here adds."""
    space = stage.space
    with way.refuse():
        space.create(pod("left", pod_spec(AWAY, nodeName=AWAY)))
        space.wait(
            "the pod says why it waits", lambda: tells("TargetUnreachable")(space.pod("left") or {})
        )
        # The pod is told a moment before the node is.
        space.wait("the node says so", lambda: is_away(space))
        for found in (stage.explain("node", AWAY), stage.explain("pod", stage.pod("left"))):
            verdict = found["verdict"].removeprefix("it does not run: ")
            assert verdict.startswith("TargetUnreachable: as federate last said: get "), verdict
            assert verdict.endswith("; from here: explained-away does not answer"), verdict
            assert found["todo"] == [
                "bring explained-away back, or its network: `federate check` says where the way "
                "ends. Nothing is lost meanwhile"
            ]
    space.wait_running("left")


def is_away(space: Space) -> bool:
    """Tell whether the node's own condition says that its target does not answer."""
    node = space.hub.get("Node", "", AWAY)
    return condition_of(node or {}, "federate.dev/TargetReachable").get("status") == "False"


# -- few rights ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guest(stage: Stage, local_hub: LocalCluster) -> Path:
    """Who may read the pods of the namespace on the hub, and nothing else."""
    namespace = stage.space.namespace
    kubectl = ("-n", namespace, "create")
    local_hub.kubectl(*kubectl, "serviceaccount", "guest")
    local_hub.kubectl(*kubectl, "role", "guest", "--verb=get", "--resource=pods")
    account = f"--serviceaccount={namespace}:guest"
    local_hub.kubectl(*kubectl, "rolebinding", "guest", "--role=guest", account)
    token = local_hub.kubectl(*kubectl, "token", "guest").strip()
    return kubeconfig_with_token(local_hub, token, stage.config.parent / "guest.yaml")


def test_who_sees_but_the_pod(stage: Stage, told: Mapping[str, Json], guest: Path) -> None:
    """What federate told on the pod is told as to its operator; what is not seen is said."""
    del told
    for name in ("counted", "wide", "plain"):
        found = explain("pod", stage.pod(name), "--hub", str(guest))
        assert fits(stage.space, CASES[name].verdict, found["verdict"]), found["verdict"]
        if name == "plain":
            continue
        for station, said in (
            ("node", "explained: these credentials may not read Node explained of hub"),
            ("target", "not looked at: no kubeconfig of explained is given"),
            ("rules", "how explained is configured is not known here"),
        ):
            assert said_of(found, station) == f"unknown: {said}"


def test_who_is_nobody_in_the_target(
    stage: Stage, told: Mapping[str, Json], guest: Path, local_target: LocalCluster
) -> None:
    """With a token that the target takes and lends nothing, and with one that it does not take."""
    del told
    there = stage.space.target_namespace
    local_target.kubectl("-n", there, "create", "serviceaccount", "guest")
    token = local_target.kubectl("-n", there, "create", "token", "guest").strip()
    file = kubeconfig_with_token(local_target, token, stage.config.parent / "target-guest.yaml")
    asked = ("pod", stage.pod("wide"), "--hub", str(guest), "--target", f"{NODE}={file}")
    found = explain(*asked)
    assert fits(stage.space, CASES["wide"].verdict, found["verdict"]), found["verdict"]
    assert said_of(found, "mirror") == (
        f"unknown: {there}/wide of explained is on record; these credentials may not read Pod "
        f"{there}/wide of explained"
    )
    kubeconfig_with_token(local_target, "no-token", file)
    found = explain(*asked)
    assert fits(stage.space, CASES["wide"].verdict, found["verdict"]), found["verdict"]
    assert said_of(found, "target") == (
        "unknown: from here: explained does not take the credentials given here: Unauthorized"
    )


# -- nobody leads ----------------------------------------------------------------------------------


def test_while_no_federate_runs(stage: Stage, told: Mapping[str, Json]) -> None:
    """It is said of the node and of what waits; what the target says is told all the same.

    The last one: it stops what the others need.
    """
    del told
    stage.world.federate.stop()
    try:
        node = stage.explain("node", NODE)
        waits = stage.explain("pod", stage.pod("wide"))
    finally:
        stage.world.start_federate()
    nobody = "no federate leads explained: nothing is started, ended or told"
    start = "start federate run for explained, or see its log; running pods go on meanwhile"
    assert (node["verdict"], node["todo"]) == (nobody, [start])
    assert waits["verdict"] == f"it does not run: {nobody}"
    assert waits["todo"][0] == start
    assert "Insufficient cpu" in said_of(waits, "scheduler")

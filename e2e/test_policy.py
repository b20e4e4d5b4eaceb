"""What a target runs, and in which shape: each topic with each outcome, on whole clusters (C26).

One federate process serves a virtual node for each outcome, one for lists and maps, and one where
refused pods fail. The target writes down whatever is asked of it: what is refused leaves nothing
there, whoever keeps asking.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
import yaml
from kubernetes.dynamic.exceptions import UnprocessibleEntityError

from e2e.support.asks import ASKS, CLASSES, LISTS, UNMASKED, everything
from e2e.support.audit import AuditLog, arguments_for
from e2e.support.companions import companions
from e2e.support.manifests import (
    IMAGE,
    container,
    daemon_set,
    deployment,
    job,
    pod,
    pod_spec,
    stateful_set,
)
from e2e.support.matrix import secret
from e2e.support.pods import is_ready, name_of, phase_of, uid_of, waiting_reason, waiting_words
from e2e.support.storage import TARGET_CLASS, claim, claims_there, classes, of_claim, told_of
from e2e.support.witness import STRATEGIC_PATCH, Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

REFUSING, STRIPPING, ALLOWING, LISTING, FAILING = (
    "policy-refuse",
    "policy-strip",
    "policy-allow",
    "policy-list",
    "policy-fail",
)

CALM_SECONDS = 5.0
BACK_OFF_SECONDS = 10.0
WRITES_EACH = 6
"""Of a hub pod until it waits: it is created, bound, and told of, by several."""

HUB_CLASS = "e2e-policy"
DRIVEN = {"driver": "csi.example.com", "nodePublishSecretRef": {"name": "treasure"}}


def document(hub: LocalCluster, target: LocalCluster) -> Json:
    policies: Mapping[str, Json] = {
        REFUSING: everything("refuse"),
        STRIPPING: {
            **everything("strip"),
            "images": LISTS["images"].value,
        },
        ALLOWING: everything("allow"),
        LISTING: {
            **everything("refuse"),
            **{key: listed.value for key, listed in LISTS.items()},
            "namespaces": ["e2e-policy-*"],
            "daemonSets": "pretend",
        },
        FAILING: {"onRefusal": "fail", "daemonSets": "mirror"},
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [
            {
                "nodeName": name,
                "target": {"kubeconfig": str(target.kubeconfig)},
                "policy": policy,
                "volumes": {"claims": "target", "storageClasses": {HUB_CLASS: TARGET_CLASS}},
            }
            for name, policy in policies.items()
        ],
    }


# -- the stage -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A target that keeps an audit log, and the virtual nodes that stand for it."""

    world: World
    log: AuditLog

    def traces_of(self, space: Space, pod_name: str = "") -> list[str]:
        """What federate asked for in, or of, the space's target namespace; or a pod's name there.

        Wherever it stands in the request: selectors and parameters count.
        """
        name = space.target_namespace
        return [
            str(request)
            for request in self.log.requests(program="federate")
            if name in (request.namespace, request.name) or space.namespace in str(request)
            if pod_name in ("", request.name) or f"%3D{pod_name}" in str(request)
        ]


@pytest.fixture(scope="module")
def audited(
    testbed_factory: TestbedFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, AuditLog]]:
    folder = tmp_path_factory.mktemp("audit")
    spec = replace(
        TARGET,
        name="policy-target",
        nodes=1,
        service_range="10.107.0.0/16",
        apiserver_arguments=arguments_for(folder),
    )
    cluster = testbed_factory.cluster(spec)
    yield cluster, AuditLog(folder=folder)
    cluster.stop()


@pytest.fixture(scope="module")
def stage(
    worlds: Worlds,
    local_hub: LocalCluster,
    audited: tuple[LocalCluster, AuditLog],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    target, log = audited
    file = tmp_path_factory.mktemp("policy") / "federation.yaml"
    file.write_text(yaml.safe_dump(document(local_hub, target)))
    others = (STRIPPING, ALLOWING, LISTING, FAILING)
    with worlds.world(
        node=REFUSING, hub=local_hub, target=target, config=file, also=others
    ) as world:
        for name in others:
            wait_up(world, name)
        for body in CLASSES:
            world.hub.create(body)
            world.target.create(body)
        yield Stage(world=world, log=log)
        for body in CLASSES:
            world.hub.delete(body["kind"], "", name_of(body))
    worlds.forget(target)


def wait_up(world: World, name: str) -> None:
    def probe() -> bool:
        found = world.hub.get("Node", "", name)
        return found is not None and is_ready(found)

    wait_for(f"node {name} is ready", probe, explain=world.federate.log_tail)


@pytest.fixture
def policy_space(stage: Stage) -> Iterator[Space]:
    found = Space(stage.world, "policy")
    found.open()
    yield found
    found.close()


def submit(space: Space, node: str) -> None:
    """Create a pod for each topic, bound by hand: no scheduler of the hub has such a node."""
    for key, ask in ASKS.items():
        space.create(pod(pod_name(key, node), pod_spec(node, nodeName=node, **ask.spec)))


def pod_name(key: str, node: str) -> str:
    return f"{node.removeprefix('policy-')}-{key.lower()}"


# -- outcomes --------------------------------------------------------------------------------------


def test_c26_each_topic_is_refused_and_leaves_no_trace(policy_space: Space, stage: Stage) -> None:
    """Each pod names its field and rule; the target never heard of them, nor of their namespace."""
    submit(policy_space, REFUSING)
    policy_space.create(secret("hoard", {"word": "of the hub"}))
    needy = container(envFrom=[{"secretRef": {"name": "hoard"}}])
    spec = pod_spec(REFUSING, nodeName=REFUSING, hostPID=True, containers=[needy])
    policy_space.create(pod("needy", spec))
    for key, ask in ASKS.items():
        assert_refused(policy_space, pod_name(key, REFUSING), ask.path, key)
    assert_refused(policy_space, "needy", "spec.hostPID", "hostPID")
    assert stage.traces_of(policy_space) == []
    assert policy_space.target.get("Namespace", "", policy_space.target_namespace) is None


def test_c26_each_topic_is_stripped_or_allowed(policy_space: Space, stage: Stage) -> None:
    """What is stripped is taken by the target without; what is allowed as it is.

    Both are in one target namespace, whose PodSecurity level is raised for what is allowed.
    """
    submit(policy_space, STRIPPING)
    for key, ask in ASKS.items():
        assert not ask.has(mirror_spec(policy_space, pod_name(key, STRIPPING))), key
    assert level(policy_space) == "baseline"
    assert stage.traces_of(policy_space), "the audit log tells nothing"
    submit(policy_space, ALLOWING)
    for key, ask in ASKS.items():
        assert ask.has(mirror_spec(policy_space, pod_name(key, ALLOWING))), key
    assert level(policy_space) == "privileged"


def test_c33_a_refused_pod_has_no_storage(
    policy_space: Space, stage: Stage, local_hub: LocalCluster
) -> None:
    """Its claim is handed back, and served as soon as a pod asks for it that may run; a driver of
    the target hears of no pod."""
    space, volumes = policy_space, [of_claim("data")]
    driven = [{"name": "driven", "csi": DRIVEN}]
    space.create(pod("driven", pod_spec(REFUSING, nodeName=REFUSING, volumes=driven)))
    with classes(stage.world, local_hub, **{HUB_CLASS: "Delete"}):
        space.create(claim("data", HUB_CLASS))
        space.create(pod("eager", pod_spec(REFUSING, hostPID=True, volumes=volumes)))
        space.wait("the claim is handed back", lambda: "ClaimRefused" in told_of(space, "data"))
        space.wait_waiting("driven", "VolumeRefused")
        assert stage.traces_of(space) == []
        space.create(pod("calm", pod_spec(REFUSING, volumes=volumes)))
        [volume] = mirror_spec(space, "calm")["volumes"]
        [made] = claims_there(space)
        assert volume["persistentVolumeClaim"] == {"claimName": name_of(made)}
        space.wait_waiting("eager", "PolicyRefused")


def assert_refused(space: Space, name: str, path: str, key: str) -> None:
    """Make sure that the pod waits, and that field and rule are told."""
    words = waiting_words(space.wait_waiting(name, "PolicyRefused"))
    assert f"{path} (" in words, words
    assert f"policy.{key})" in words, words


def mirror_of(space: Space, name: str) -> Json:
    return space.wait(f"{name} has a mirror", lambda: space.mirror(name))


def mirror_spec(space: Space, name: str) -> Json:
    found: Json = mirror_of(space, name)["spec"]
    return found


def level(space: Space) -> str:
    namespace = space.target.get("Namespace", "", space.target_namespace)
    assert namespace is not None
    return str(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"])


def test_c26_the_one_topic_that_no_pod_asks_for(policy_space: Space) -> None:
    """An API server of the hub takes no unmasked /proc but where it is harmless."""
    with pytest.raises(UnprocessibleEntityError, match="procMount"):
        policy_space.create(pod("unmasked", pod_spec(REFUSING, nodeName=REFUSING, **UNMASKED)))


def test_c30_a_storage_that_is_allowed_has_the_pods_own_secret(policy_space: Space) -> None:
    """Whatever kind names it: never a Secret of the target that is called so."""
    space = policy_space
    space.create(secret("login", {"password": "of-the-hub"}))
    named = {"secretRef": {"name": "login"}}
    monitors = {"monitors": ["192.0.2.1"]}
    portal = {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.test:x", "lun": 0}
    kinds: Mapping[str, Json] = {
        "azureFile": {"secretName": "login", "shareName": "x"},
        "rbd": {**monitors, "image": "x", **named},
        "cephfs": {**monitors, **named},
        "iscsi": {**portal, "chapAuthSession": True, **named},
        "flexVolume": {"driver": "example.com/x", **named},
    }
    volumes = [{"name": kind.lower(), kind: source} for kind, source in kinds.items()]
    space.create(pod("stored", pod_spec(ALLOWING, nodeName=ALLOWING, volumes=volumes)))
    found = {v["name"]: v for v in mirror_spec(space, "stored")["volumes"]}
    sources = [found[kind.lower()][kind] for kind in kinds]
    names = {s.get("secretName") or s["secretRef"]["name"] for s in sources}
    assert len(names) == 1
    assert "login" not in names
    assert space.target.get("Secret", space.target_namespace, names.pop()) is not None


def test_c30_what_stays_behind_brings_nothing(
    policy_space: Space, stage: Stage, local_hub: LocalCluster
) -> None:
    """A debug container that is refused, a volume that is stripped: their Secrets stay, too."""
    space = policy_space
    space.create(secret("hoard", {"word": "of the hub"}))
    volume = {"name": "v", "flexVolume": {"driver": "x.test/x", "secretRef": {"name": "hoard"}}}
    space.create(pod("bare", pod_spec(STRIPPING, nodeName=STRIPPING, volumes=[volume])))
    space.run_pod(pod("calm", pod_spec(REFUSING)))
    look = {
        "name": "look",
        "image": IMAGE,
        "envFrom": [{"secretRef": {"name": "hoard"}}],
        "securityContext": {"privileged": True},
    }
    space.hub.patch(
        *("Pod", space.namespace, "calm"),
        {"spec": {"ephemeralContainers": [look]}},
        subresource="ephemeralcontainers",
        media_type=STRATEGIC_PATCH,
    )
    space.wait("it is refused", lambda: "policy.privileged" in str(space.pod("calm")))
    assert mirror_spec(space, "bare")["volumes"] == [{"name": "v", "emptyDir": {}}]
    asked = stage.log.requests(program="federate")
    asked = [r for r in asked if r.namespace == space.target_namespace]
    assert any(request.is_write for request in asked)
    told = [str(r) for r in asked if r.resource in ("secrets", "pods/ephemeralcontainers")]
    assert [line for line in told if not line.startswith(("list ", "watch "))] == []
    assert companions(space, "Secret") == []


# -- lists and maps --------------------------------------------------------------------------------


def test_c21_what_a_list_has_travels_by_its_name_in_the_target(
    policy_space: Space, stage: Stage
) -> None:
    """And what it has not is refused, beside pods that run: the target never hears of it."""
    space = policy_space
    for key, listed in LISTS.items():
        metadata = {"labels": listed.labels, "annotations": listed.annotations}
        spec = pod_spec(LISTING, **{"nodeName": LISTING, **listed.spec})
        space.create(pod(f"in-{key.lower()}", spec, **metadata))
        if listed.other:
            other = pod_spec(LISTING, **{"nodeName": LISTING, **listed.other})
            space.create(pod(f"not-in-{key.lower()}", other))
    for key, listed in LISTS.items():
        mirror = mirror_of(space, f"in-{key.lower()}")
        assert listed.has(mirror), (key, mirror["metadata"], mirror["spec"])
        assert stage.traces_of(space, f"in-{key.lower()}"), "the audit log tells nothing"
        if listed.other:
            name = f"not-in-{key.lower()}"
            assert_refused(space, name, listed.path, listed.topic)
            assert stage.traces_of(space, name) == []
    running = space.wait_running("in-images")
    assert running["status"]["containerStatuses"][0]["image"] == "federate.test/app:1"


def test_c26_pods_of_other_namespaces_do_not_run(stage: Stage) -> None:
    """Whatever they ask for, or do not."""
    elsewhere = Space(stage.world, "elsewhere")
    elsewhere.open()
    elsewhere.create(pod("web", pod_spec(LISTING)))
    words = waiting_words(elsewhere.wait_waiting("web", "PolicyRefused"))
    assert f"pods of namespace {elsewhere.namespace} (policy.namespaces)" in words
    assert stage.traces_of(elsewhere) == []
    elsewhere.close()


# -- no storm --------------------------------------------------------------------------------------


def test_c26_refused_pods_make_no_storm(policy_space: Space, stage: Stage) -> None:
    """Of a Deployment, a StatefulSet, a Job and a DaemonSet: each has the pods it asked for."""
    spec = pod_spec(REFUSING, hostPID=True)
    policy_space.create(deployment("web", spec, replicas=2))
    policy_space.create(stateful_set("db", spec))
    once = job("once", REFUSING, completions=2)
    once["spec"]["template"]["spec"]["hostPID"] = True
    policy_space.create(once)
    policy_space.create(daemon_set("agent", spec))
    expected = ["DaemonSetNotMirrored", *["PolicyRefused"] * 5]

    def reasons() -> list[str]:
        return sorted(map(waiting_reason, policy_space.pods()))

    policy_space.wait("six pods wait", lambda: reasons() == expected)
    policy_space.hold("they go on waiting", lambda: reasons() == expected, seconds=CALM_SECONDS)
    histories = stage.world.hub_record.histories(policy_space.namespace)
    assert len(histories) == 6, policy_space.explain()
    assert max(map(len, histories.values())) <= WRITES_EACH, histories
    assert stage.traces_of(policy_space) == []


def test_c26_refused_pods_fail_one_at_a_time(policy_space: Space, stage: Stage) -> None:
    """Where refused pods fail, one of an owner's does, and the next not before ten seconds.

    Every kind of owner puts another in its place, at its own pace.
    """
    spec = pod_spec(FAILING, hostPID=True)
    once = job("once", FAILING, completions=1)
    once["spec"]["template"]["spec"]["hostPID"] = True
    once["spec"]["backoffLimit"] = 6
    owners = {"web": 3, "db": 1, "agent": 1, "once": 1}
    begun = time.monotonic()
    policy_space.create(deployment("web", spec, replicas=3))
    policy_space.create(stateful_set("db", spec))
    policy_space.create(daemon_set("agent", spec))
    policy_space.create(once)

    def failed() -> dict[str, int]:
        return {owner: count_of(policy_space, owner, "Failed") for owner in owners}

    def replaced() -> bool:
        waiting = [phase_of(p) for p in policy_space.pods() if not name_of(p).startswith("once")]
        return all(failed().values()) and waiting.count("Pending") == 5

    policy_space.wait("one of each failed and was replaced", replaced)
    policy_space.hold("no storm", lambda: len(policy_space.pods()) < 12, seconds=CALM_SECONDS)
    turns = 1 + int((time.monotonic() - begun) / BACK_OFF_SECONDS)
    for owner, count in failed().items():
        made = count_of(policy_space, owner)
        assert count <= turns, f"{count} pods of {owner} failed.\n{policy_space.explain()}"
        assert made <= owners[owner] + turns, f"{made} pods of {owner}.\n{policy_space.explain()}"
    assert stage.traces_of(policy_space) == []


def count_of(space: Space, owner: str, phase: str = "") -> int:
    """Count the pods that an owner ever had, or those that were ever in a phase."""
    histories = space.world.hub_record.histories(space.namespace).values()
    own = [events for events in histories if events[0].name.startswith(f"{owner}-")]
    return sum(any(phase in ("", event.phase) for event in events) for events in own)


# -- DaemonSets ------------------------------------------------------------------------------------


def test_c26_a_pretended_daemonset_rolls_out(policy_space: Space, stage: Stage) -> None:
    """Its pod on the virtual node runs nowhere, and holds up neither the first roll-out nor the
    next."""
    policy_space.create(daemon_set("agent", pod_spec(LISTING)))
    before = {uid_of(policy_space.wait("the DaemonSet is available", lambda: agent(policy_space)))}
    template = {"metadata": {"annotations": {"test": "again"}}}
    policy_space.hub.patch(
        "DaemonSet", policy_space.namespace, "agent", {"spec": {"template": template}}
    )

    def replaced() -> Json | None:
        found = agent(policy_space)
        return found if found is not None and uid_of(found) not in before else None

    found = policy_space.wait("the roll-out is over", replaced)
    assert found["status"]["reason"] == "NotRunHere"
    assert "podIP" not in found["status"]
    assert stage.traces_of(policy_space) == []


def test_c26_a_daemonset_is_mirrored_where_its_operator_says_so(policy_space: Space) -> None:
    """Its pod there is one like others."""
    policy_space.create(daemon_set("agent", pod_spec(FAILING)))
    found = policy_space.wait("the DaemonSet is available", lambda: agent(policy_space))
    assert [name_of(mirror) for mirror in policy_space.mirrors()] == [name_of(found)]


def agent(space: Space) -> Json | None:
    """The DaemonSet's only pod, once all is rolled out."""
    daemon = space.hub.get("DaemonSet", space.namespace, "agent")
    assert daemon is not None
    status, pods = daemon.get("status", {}), space.pods()
    is_seen = status.get("observedGeneration") == daemon["metadata"]["generation"]
    wanted = status.get("desiredNumberScheduled")
    counts = (status.get("updatedNumberScheduled"), status.get("numberAvailable"))
    is_over = bool(wanted) and counts == (wanted, wanted)
    return pods[0] if is_seen and is_over and len(pods) == 1 else None

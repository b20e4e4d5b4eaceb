"""A hub user who is after Secrets that are not his; the audit logs of both clusters judge (C30).

federate has what `federate rbac` prints for both, cluster-wide: what it leaves alone it leaves by
itself. A victim runs pods first; then a thief, who may do anything in a hub namespace of his own,
names, forges and plants whatever could lead him further; then each test reads what federate asked.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
import yaml

from e2e.support.accounts import account_of
from e2e.support.audit import AuditLog, Request, arguments_for
from e2e.support.companions import (
    ANCHOR_PREFIX,
    COMPANION_LABEL,
    COMPANION_OF,
    ENTRY,
    companion,
    companions,
    wait_companion,
)
from e2e.support.manifests import IMAGE, container, pod, pod_spec
from e2e.support.matrix import (
    configmap,
    encoded,
    from_configmap,
    from_secret,
    keyed,
    mounted,
    quiet,
    secret,
)
from e2e.support.pods import annotations_of, is_ready, labels_of, name_of, uid_of
from e2e.support.witness import STRATEGIC_PATCH, Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import HUB, TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from federate.companions.keys import Kind, companion_name
from federate.model.marks import Scope
from federate.model.objects import ObjectKey

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

MARKET, DEPOT = "market", "depot"
"""Virtual nodes: all hub namespaces in one of the target, and each in one of its own."""
STALL = "e2e-stall"
"""The one namespace of the first."""

SHARED_LABEL = "federate.dev/shared"
HOUSE = "house"
"""What the target's admin shares, for a while."""
MARK = "federate.dev/hub"

TREASURE, CROWN = "canary-of-the-target", "canary-of-the-hub"
"""The contents of a Secret of the target, and of one of the hub that no pod names."""

DRIVEN = {"driver": "csi.example.com", "nodePublishSecretRef": {"name": "treasure"}}
"""A volume that the market lends, and the depot does not."""

GENERATED = re.compile(r"[a-z0-9-]+-[a-z2-7]{16}")
ODD = (
    "../configmaps/x",
    "..",
    "a/b",
    "treasure?limit=1",
    "%2e%2e%2fsecrets%2ftreasure",
    "A_B",
    "tréasure",
)
"""What API servers let pass as names in volumes and pull secrets."""

NOT_FOUND = 404

OPTIONAL = {"optional": True}
FORGOTTEN_SECONDS = 30.0
"""From a label that is taken off to pods that notice: 5 s."""
QUIET_SECONDS = 4.0
"""How long nothing may happen. All that is to happen has by then, on an idle machine in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All is done, and written down."""

    world: World
    victim: Space
    thief: Space
    users: dict[str, str]
    """As whom federate came, by cluster."""
    logs: dict[str, AuditLog]
    before: dict[str, str]
    """uids of what the victim had in the target before the thief came, by name."""
    depots: dict[str, str]
    """Where the pods of both stand that are at the depot, by hub namespace."""

    def asked(self, cluster: str) -> list[Request]:
        """Return what federate asked a cluster for."""
        return self.logs[cluster].requests(user=self.users[cluster])

    @property
    def target_namespaces(self) -> set[str]:
        """Where federate may be at work in the target."""
        return {STALL, *self.depots.values()}


@pytest.fixture(scope="module")
def scene(
    worlds: Worlds, testbed_factory: TestbedFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("theft")
    logs = {name: AuditLog(folder=folder / name) for name in ("hub", "target")}
    for log in logs.values():
        log.folder.mkdir()
    hub, target = testbed_factory.clusters(
        replace(HUB, name="audited-hub", apiserver_arguments=arguments_for(logs["hub"].folder)),
        replace(
            TARGET,
            name="audited-target",
            nodes=1,
            apiserver_arguments=arguments_for(logs["target"].folder),
        ),
    )
    with ExitStack() as stack:
        stack.callback(target.stop)
        stack.callback(hub.stop)
        for cluster in (hub, target):
            stack.callback(worlds.forget, cluster)
        nodes = ("--node", MARKET, "--node", DEPOT)
        rights = {
            "hub": account_of(
                hub, "--side", "hub", *nodes, "--with", "pod-identity", folder=folder
            ),
            "target": account_of(target, "--side", "target", folder=folder),
        }
        files = {name: stack.enter_context(each) for name, each in rights.items()}
        file = folder / "federation.yaml"
        file.write_text(yaml.safe_dump(configuration(hub, files)))
        world = stack.enter_context(
            worlds.world(node=MARKET, hub=hub, target=target, config=file, started=False)
        )
        world.target.create(namespace(STALL))
        world.start_federate()
        yield play(
            Scene(
                world=world,
                victim=Space(world, "victim"),
                thief=Space(world, "thief"),
                users={n: f"system:serviceaccount:kube-system:{f.stem}" for n, f in files.items()},
                logs=logs,
                before={},
                depots={},
            )
        )


def configuration(hub: LocalCluster, files: Mapping[str, Path]) -> Json:
    """Render two virtual nodes that give pods the hub's identity."""
    identity = {"identity": "hub", "hubAddress": hub.api_url.removeprefix("https://")}
    target = {"target": {"kubeconfig": str(files["target"])}, **identity}
    single = {"strategy": "single", "single": STALL}
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(files["hub"])},
        "virtualNodes": [
            {
                "nodeName": MARKET,
                "namespaces": single,
                "volumes": {"csiDrivers": [DRIVEN["driver"]]},
                **target,
            },
            {"nodeName": DEPOT, **target},
        ],
    }


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


# -- what they do ----------------------------------------------------------------------------------


def play(scene: Scene) -> Scene:
    """Let both act, one after the other; returns when all has settled."""
    victim, thief = scene.victim, scene.thief
    for each in (victim, thief):
        each.open()
        scene.depots[each.namespace] = each.target_namespace
    wait_for("the depot takes pods", lambda: takes_pods(scene.world, DEPOT))
    move_in(scene)
    for where in (STALL, victim.target_namespace, "default", "kube-system"):
        scene.world.target.create(secret("treasure", {"word": TREASURE}), where)
        scene.world.target.create(configmap("treasure", {"word": TREASURE}), where)
    scene.before.update(possessions(scene))
    plant(scene)
    disguise(thief)
    name_everything(scene)
    forge_records(scene)
    return scene


def takes_pods(world: World, node: str) -> bool:
    found = world.hub.get("Node", "", node)
    return found is not None and is_ready(found)


def move_in(scene: Scene) -> None:
    """Let the victim run a pod at each node, with a Secret and an identity."""
    victim = scene.victim
    victim.create(secret("crown", {"word": CROWN}))
    for node, name in ((MARKET, "owner"), (DEPOT, "depositor")):
        victim.create(secret(name, {"word": f"the victim's at the {node}"}))
        victim.create(pod(name, needing(node, name)))
    for name in ("owner", "depositor"):
        victim.wait_running(name)


def needing(node: str, *names: str, **fields: object) -> Json:
    """Render the spec of a pod that has Secrets as folders."""
    volumes, mounts = mounted({f"s{n}": from_secret(each) for n, each in enumerate(names)})
    containers = [container(volumeMounts=mounts)]
    return pod_spec(node, **{"volumes": volumes, "containers": containers, **fields})


def at_the_market(space: Space) -> Space:
    """Look at what stands for a hub namespace in the one namespace that all share."""
    found = Space(space.world, "")
    found.namespace, found.target_namespace = space.namespace, STALL
    return found


def mirrors_of(scene: Scene, space: Space, name: str) -> list[Json]:
    """Find the mirrors of a hub pod, wherever they are."""
    hub_pod = space.pod(name)
    assert hub_pod is not None, space.explain()
    label = f"federate.dev/hub-pod-uid={uid_of(hub_pod)}"
    return scene.world.target.list("Pod", labels=label)


def possessions(scene: Scene) -> dict[str, str]:
    """Return the uids of what stands in the target for the victim, by kind and name."""
    found: dict[str, str] = {}
    for name in ("owner", "depositor"):
        for mirror in mirrors_of(scene, scene.victim, name):
            found[f"Pod {name_of(mirror)}"] = uid_of(mirror)
    for space in (at_the_market(scene.victim), scene.victim):
        for each in (*companions(space, "Secret"), *tokens_of(space)):
            found[f"Secret {name_of(each)}"] = uid_of(each)
    return found


def tokens_of(space: Space) -> list[Json]:
    """Find the Secrets with tokens of a hub namespace's pods."""
    found = space.target.list("Secret", space.target_namespace, labels=MARK)
    told = f" {space.namespace}/"
    return [s for s in found if told in annotations_of(s).get(COMPANION_OF, "")]


def plant(scene: Scene) -> None:
    """Write in the target what federate could take for its own.

    Nobody but who may write there can do that, and even then nothing of the hub may come of it.
    """
    target, victim = scene.world.target, scene.victim
    (mirror,) = mirrors_of(scene, victim, "owner")
    marks = labels_of(mirror)
    scope = Scope(hub_id=marks[MARK], node_name=MARKET)
    name = companion_name(scope, Kind.SECRET, ObjectKey(victim.namespace, "crown"))
    anchors = [c for c in target.list("ConfigMap", STALL) if name_of(c).startswith(ANCHOR_PREFIX)]
    claims = {name: f"Secret {victim.namespace}/crown", "entry": "Secret kube-system/treasure"}
    for anchor in anchors:
        target.patch("ConfigMap", STALL, name_of(anchor), {"data": claims})
    metadata = {
        key: mirror["metadata"][key] for key in ("labels", "annotations", "ownerReferences")
    }
    for claimed, said in claims.items():
        body = configmap(claimed, {})
        body["metadata"] |= {
            "labels": {**marks, COMPANION_LABEL: ENTRY},
            "annotations": {**annotations_of(mirror), COMPANION_OF: said},
            "ownerReferences": metadata["ownerReferences"],
        }
        target.create(body, STALL)
    spec = needing(MARKET, name, nodeSelector={}, schedulingGates=[{"name": "example.com/held"}])
    body = pod("planted", spec)
    target.create({**body, "metadata": {**metadata, "name": "planted"}}, STALL)


def disguise(thief: Space) -> None:
    """Make a Secret that says to be federate's, the victim's, and the target's to share."""
    body = secret("bait", {"word": "the thief's"})
    told = {"kind": "Secret", "namespace": "e2e-victim", "name": "owner"}
    body["metadata"] |= {
        "labels": {SHARED_LABEL: "true", COMPANION_LABEL: "secret", MARK: "x", "app": "x"},
        "annotations": {COMPANION_OF: json.dumps(told), SHARED_LABEL: "true"},
    }
    thief.create(body)


def name_everything(scene: Scene) -> None:
    """Run a pod that names in all ways what it could like to read, and a debug container too."""
    thief, names = scene.thief, wanted_names(scene)
    folders = {f"s{n}": from_secret(name, **OPTIONAL) for n, name in enumerate((*names, *ODD))}
    folders |= {f"m{n}": from_configmap(name, **OPTIONAL) for n, name in enumerate(names)}
    sources = [{"secret": {"name": name, **OPTIONAL}} for name in names]
    folders |= {"all": {"projected": {"sources": sources}}, "csi": {"csi": DRIVEN}}
    volumes, mounts = mounted(folders)
    env = [
        keyed(f"{kind}{n}", kind, name, "word", **OPTIONAL)
        for kind in ("Secret", "ConfigMap")
        for n, name in enumerate(names)
    ]
    env_from = [{"secretRef": {"name": name, **OPTIONAL}} for name in names]
    first = container(name="first", env=env, command=["/app", "lines", "1"])
    main = container(env=env, envFrom=env_from, volumeMounts=mounts)
    pulling = [{"name": name} for name in (*names, *ODD)]
    spec = quiet(
        volumes=volumes, initContainers=[first], containers=[main], imagePullSecrets=pulling
    )
    labels, annotations = {SHARED_LABEL: "true"}, {SHARED_LABEL: "true"}
    thief.create(pod("greedy", pod_spec(MARKET, **spec), labels=labels, annotations=annotations))
    thief.create(pod("baited", needing(MARKET, "bait")))
    for name in ("greedy", "baited"):
        thief.wait_running(name)
    thief.create(secret("hoard", {"word": "of a pod that does not run"}))
    refused = needing(DEPOT, "hoard")
    refused["volumes"].append({"name": "csi", "csi": DRIVEN})
    thief.create(pod("driven", refused))
    thief.wait_waiting("driven", "VolumeRefused")
    looking = {"name": "look", "image": IMAGE, "env": env, "envFrom": env_from}
    thief.hub.patch(
        *("Pod", thief.namespace, "greedy"),
        {"spec": {"ephemeralContainers": [looking]}},
        subresource="ephemeralcontainers",
        media_type=STRATEGIC_PATCH,
    )
    thief.wait(
        "the debug container is in the mirror",
        lambda: mirrors_of(scene, thief, "greedy")[0]["spec"].get("ephemeralContainers"),
    )


def wanted_names(scene: Scene) -> list[str]:
    """List what a thief would like to have: by the hub's names, and by those of the target."""
    stall = at_the_market(scene.victim)
    anchors = scene.world.target.list("ConfigMap", STALL)
    return [
        *("treasure", "crown", "owner", "login"),
        name_of(companion(stall, "Secret", "owner")),
        *map(name_of, tokens_of(stall)),
        *(name_of(each) for each in anchors if name_of(each).startswith(ANCHOR_PREFIX)),
    ]


def forge_records(scene: Scene) -> None:
    """Have pods claim to have their mirrors where they do not, and let them go again.

    A user may write all annotations of his pods; a gate gives him the time to learn their uids.
    """
    thief, victim = scene.thief, scene.victim
    (mirror,) = mirrors_of(scene, victim, "depositor")
    claims = {
        "takes-a-mirror": {"name": name_of(mirror), "uid": uid_of(mirror)},
        "invents-one": {"name": "invented", "uid": uid_of(victim.pod("owner") or {})},
        "intends-one": {"name": "intended"},
        "intends-a-mirror": {"name": name_of(mirror)},
        "goes-to-the-system": {"name": "any", "uid": uid_of(mirror), "namespace": "kube-system"},
    }
    gates = [{"name": "example.com/not-yet"}]
    for name, claim in claims.items():
        made = thief.create(pod(name, needing(DEPOT, "bait", schedulingGates=gates)))
        record = {"podUID": uid_of(made), "namespace": scene.depots[victim.namespace], **claim}
        annotations = {"federate.dev/mirror": json.dumps(record)}
        body = {"metadata": {"annotations": annotations}, "spec": {"schedulingGates": None}}
        thief.hub.patch("Pod", thief.namespace, name, body)
    thief.run_pod(pod("honest", needing(DEPOT, "bait")))
    wait_companion(thief, "Secret", "bait")
    thief.hold("the victim has what it had", lambda: unharmed(scene), seconds=QUIET_SECONDS)
    for name in claims:
        thief.delete_pod(name)
    for name in claims:
        thief.wait_pod_gone(name)


def unharmed(scene: Scene) -> bool:
    """Tell whether the victim has what it had."""
    return scene.before.items() <= possessions(scene).items()


# -- what is shared --------------------------------------------------------------------------------


def test_the_targets_admin_shares_an_object_by_a_label(scene: Scene) -> None:
    """With the label on it pods get the target's own; once it is off, the next pods do not."""
    target, body = scene.world.target, secret(HOUSE, {"word": TREASURE})
    body["metadata"]["labels"] = {SHARED_LABEL: "true"}
    target.create(body, STALL)
    assert lodge(scene, "lodger") == {HOUSE}
    target.patch("Secret", STALL, HOUSE, {"metadata": {"labels": {SHARED_LABEL: "no"}}})
    number = count()
    named = wait_for(
        "pods get their own again",
        lambda: lodge(scene, f"lodger-{next(number)}") - {HOUSE},
        timeout_seconds=FORGOTTEN_SECONDS,
    )
    assert all(map(GENERATED.fullmatch, named))


def lodge(scene: Scene, name: str) -> set[str]:
    """Run a pod that names what may be shared; returns what its mirror names."""
    scene.thief.run_pod(pod(name, needing(MARKET, HOUSE, automountServiceAccountToken=False)))
    (mirror,) = theirs(scene, name)
    (volume,) = mirror["spec"]["volumes"]
    return {volume["secret"]["secretName"]}


# -- how they are judged ---------------------------------------------------------------------------


def test_no_secret_of_anybody_else_is_read_in_the_target(scene: Scene) -> None:
    """federate asks by name, for generated names, where it has an anchor, and never for all.

    Of what pods name it sees at most whether the target's admin lets them: metadata.
    """
    asked = [r for r in scene.asked("target") if r.resource.startswith("secrets")]
    assert {r.verb for r in asked} >= {"get", "create"}
    elsewhere = [r for r in asked if r.namespace not in scene.target_namespaces]
    assert not elsewhere, [*map(str, elsewhere)]
    strange = [r for r in asked if not GENERATED.fullmatch(r.name) and not is_look(scene, r)]
    assert not strange, [*map(str, strange)]
    for cluster in ("hub", "target"):
        told = [r for r in scene.asked(cluster) if tells_of(r, TREASURE) or tells_of(r, CROWN)]
        assert not told, [*map(str, told)]


def is_look(scene: Scene, request: Request) -> bool:
    """Tell whether it asks for the labels of what a pod of that namespace names, and no more."""
    answer = request.event.get("responseObject") or {}
    is_metadata = answer.get("kind") == "PartialObjectMetadata"
    return (
        request.verb == "get"
        and any(request.name in names for names in written_by_users(scene).values())
        and (is_metadata or request.code == NOT_FOUND)
    )


def written_by_users(scene: Scene) -> dict[str, set[str]]:
    """Return what the pods of the hub namespaces name, as far as it may be a name."""
    return {
        scene.victim.namespace: {"owner", "depositor"},
        scene.thief.namespace: {"bait", HOUSE, *wanted_names(scene)},
    }


def tells_of(request: Request, content: str) -> bool:
    """Tell whether a request or its answer had the content."""
    text = json.dumps(request.event)
    return content in text or encoded(content) in text


def test_nothing_is_written_in_the_target_but_what_is_federates(scene: Scene) -> None:
    """Each write is of a mirror, a companion or an anchor, and what others have stays."""
    writes = [r for r in scene.asked("target") if r.is_write]
    strange = [r for r in writes if not is_own(scene, r)]
    assert not strange, [*map(str, strange)]
    assert unharmed(scene)
    for where in (STALL, scene.victim.target_namespace, "default", "kube-system"):
        for kind in ("Secret", "ConfigMap"):
            found = scene.world.target.get(kind, where, "treasure")
            assert found is not None and MARK not in labels_of(found)
            writers = {entry["manager"] for entry in found["metadata"]["managedFields"]}
            assert "federate" not in writers


def is_own(scene: Scene, write: Request) -> bool:
    """Tell whether federate may send that write to the target."""
    if write.resource.startswith("selfsubject"):
        return True  # a question
    if write.resource == "namespaces":
        return write.name in scene.depots.values()
    if write.namespace not in scene.target_namespaces or write.verb == "deletecollection":
        return False
    if write.resource == "configmaps" and write.name.startswith(ANCHOR_PREFIX):
        return True
    if write.resource in ("secrets", "configmaps"):
        return GENERATED.fullmatch(write.name) is not None
    return write.resource.partition("/")[0] == "pods" and write.name in mirrors_ever(scene)


def mirrors_ever(scene: Scene) -> set[str]:
    """Return the names of all pods with marks that the target had."""
    record = scene.world.target_record
    return {
        event.name
        for namespace in scene.target_namespaces
        for event in record.events(namespace=namespace)
        if event.hub_pod_uid
    }


def test_a_thiefs_pods_name_nothing_in_the_target_but_their_own(scene: Scene) -> None:
    """All that their mirrors name is generated, and none of it is the victim's."""
    taken = {name.partition(" ")[2] for name in scene.before}
    for mirror in [m for name in ("greedy", "baited", "honest") for m in theirs(scene, name)]:
        named = names_in(mirror["spec"])
        assert named
        assert [name for name in named if not GENERATED.fullmatch(name)] == []
        assert not named & taken
        assert SHARED_LABEL not in {**labels_of(mirror), **annotations_of(mirror)}


def theirs(scene: Scene, name: str) -> list[Json]:
    found = mirrors_of(scene, scene.thief, name)
    assert len(found) == 1
    return found


REFERENCES = re.compile(
    r'"(?:secretKeyRef|configMapKeyRef|secretRef|configMapRef|nodePublishSecretRef|secret|configMap)'
    r'": \{[^{}]*?"(?:name|secretName)": "([^"]*)"'
)


def names_in(spec: Json) -> set[str]:
    """Return all names of Secrets and ConfigMaps in a pod's spec."""
    pulled = {each["name"] for each in spec.get("imagePullSecrets", ())}
    # Beside a name only texts and numbers stand, once the items of volumes are gone.
    text = re.sub(r'"items": \[[^\]]*\](, )?', "", json.dumps(spec))
    return {*REFERENCES.findall(text), *pulled}


def test_a_pod_whose_volume_is_refused_leaves_no_trace(scene: Scene) -> None:
    """It has no mirror, and nothing comes along for it."""
    told = [
        request
        for cluster, names in (("hub", ("hoard",)), ("target", ("hoard", "driven")))
        for request in scene.asked(cluster)
        if request.name.startswith(names)
    ]
    assert not told, [*map(str, told)]


def test_the_victims_namespace_has_nothing_of_the_thiefs(scene: Scene) -> None:
    """Where a pod's things stand is decided by the namespace rules, not by what a pod claims."""
    depot = scene.depots[scene.victim.namespace]
    told = scene.thief.namespace
    for kind in ("Pod", "Secret", "ConfigMap"):
        for found in scene.world.target.list(kind, depot, labels=MARK):
            assert told not in json.dumps(annotations_of(found)), found["metadata"]
    record = scene.world.target_record
    assert {e.name for e in record.events(namespace=depot) if e.hub_pod_uid} == {"depositor"}


def test_what_a_hub_user_writes_on_a_secret_does_not_travel(scene: Scene) -> None:
    """A copy has federate's own marks only: it cannot pass for shared, or for somebody else's."""
    for space in (scene.thief, at_the_market(scene.thief)):
        copy = companion(space, "Secret", "bait")
        marks = {**labels_of(copy), **annotations_of(copy)}
        assert SHARED_LABEL not in marks and "app" not in marks
        assert marks[MARK] != "x"
        assert json.loads(marks[COMPANION_OF])["name"] == "bait"


def test_nothing_of_the_hub_is_read_that_no_pod_there_names(scene: Scene) -> None:
    """Secrets by name, for pods of the virtual nodes; tokens for those pods; no writes."""
    asked = [r for r in scene.asked("hub") if r.resource.startswith("secrets")]
    named = written_by_users(scene)
    wrong = [r for r in asked if r.name not in named.get(r.namespace, set()) and not is_watch(r)]
    assert not wrong, [*map(str, wrong)]
    assert {r.verb for r in asked} <= {"get", "watch"}
    assert {r.namespace for r in asked} == set(named)
    tokens = [r for r in scene.asked("hub") if r.resource == "serviceaccounts/token"]
    assert {(r.namespace, r.name) for r in tokens} <= {(n, "default") for n in named}
    written = {r.resource for r in scene.asked("hub") if r.is_write}
    assert not {"secrets", "configmaps"} & written


def is_watch(request: Request) -> bool:
    """Tell whether somebody watches the metadata of a namespace: many of it are named by pods."""
    return request.verb == "watch" and not request.name

"""A pod finds the same environment and files through the virtual node as on a real one (C30, C32).

Each pod runs twice, beside each other: on a real node of the hub, and through the virtual node.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.containers.crate import PULL_FAILED, statuses_of
from e2e.support.companions import (
    KINDS,
    companion,
    companions,
    value_of,
    wait_companion,
    wait_no_companion,
    wait_value,
)
from e2e.support.desk import Desk, address_for_containers
from e2e.support.manifests import APP, IMAGE, container, deployment, pod, pod_spec
from e2e.support.matrix import (
    configmap,
    from_configmap,
    from_secret,
    keyed,
    mounted,
    objects,
    quiet,
    rows,
    secret,
    showing,
)
from e2e.support.measuring import Measurements
from e2e.support.pods import annotations_of, condition_of, name_of, phase_of
from e2e.support.registry import registry_on
from e2e.support.twins import LAST_LINE, Both, Twins
from e2e.support.witness import STRATEGIC_PATCH, Json
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "berth"

CHANGE_SECONDS = 2.0
"""From a change on the hub to the target's object."""
KUBELET_SECONDS = 100.0
"""From there to the container: a kubelet looks each 60 to 90 s, at what it heard by then."""

DIFFERENCES: Mapping[str, str] = {
    "The address of the API server": r"variable KUBERNETES_",
    "Variables of Services": r"variable WEB_",
    "The service account's token": r"(file|content) /(var/)?run/secrets\b",
    "The node's address": r"variable HOST_IPS? ",
    "Names in the cluster's DNS": r"content /etc/resolv\.conf ",
    "A kubelet's own annotations": r'content \S+ "kubernetes\.io/config\.(seen|source)=',
}
"""What a container may find otherwise than on a real node, by what docs/companions.md calls it."""

USUAL = (DIFFERENCES["The address of the API server"],)
"""What differs in pods that ask for nothing of the kind."""


@pytest.fixture(scope="module")
def twins(
    worlds: Worlds,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
) -> Iterator[Twins]:
    """Everything is created before the first test waits: kubelets are slow."""
    hub, target = real_hub_and_target
    address = address_for_containers(testbed_factory.places)
    with worlds.world(
        node=NODE, hub=hub, target=target, arguments=["--node-address", address]
    ) as world:
        space = Space(world, "companions")
        space.open()
        found = Twins(desk=Desk.of(space, hub=hub, target=target), nodes=(hub.node_name, NODE))
        for body in objects():
            space.create(body)
        for name, row in rows().items():
            found.create(name, labels=row.labels, annotations=row.annotations, **row.fields)
        start_others(found)
        found.desk.wait_served()
        yield found
        space.close()


def start_others(twins: Twins) -> None:
    """Start what single tests are about."""
    space = twins.space
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    space.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service}
    )
    for body in (
        configmap("moving", {"word": "one"}),
        secret("moving", {"word": "one"}),
        configmap("pinned", {"word": "one"}, immutable=True),
        secret("retyped", {"username": "a", "password": "one"}),
        secret("revoked", {"word": "one"}),
    ):
        space.create(body)
    twins.create("usual", containers=[whatever()])
    twins.create("moving", **moving())
    twins.create("late", **late())
    twins.create("wanting", **wanting())
    twins.create("unmountable", **unmountable())


# -- the matrix ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rows())
def test_a_pod_finds_what_it_finds_on_a_real_node(twins: Twins, name: str) -> None:
    """Environment, arguments, user and files with modes and owners are the same, line by line."""
    fields = rows()[name].fields
    for each in (*fields.get("initContainers", ()), *fields["containers"]):
        shown = twins.shown(name, each["name"])
        here, there = shown.without([*USUAL, DIFFERENCES["A kubelet's own annotations"]])
        assert there == here
        assert len(here) > 5, here
        assert not [line for line in there if "federate.dev/" in line]


def whatever() -> Json:
    """Render a container that shows also what nobody asked for."""
    paths = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/var/run/secrets")
    addresses = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (("HOST_IP", "status.hostIP"), ("HOST_IPS", "status.hostIPs"))
    ]
    return showing(*paths, env=addresses)


def test_what_differs_is_documented(twins: Twins) -> None:
    """Everything that an ordinary pod finds otherwise is on the short list in the documentation."""
    found = twins.shown("usual")
    differing = found.only_on_one_side() + twins.shown("facts").only_on_one_side()
    unexplained = Both(differing, []).without(DIFFERENCES.values()).here
    assert not unexplained
    page = (Path(__file__).parents[1] / "docs" / "companions.md").read_text()
    for what, pattern in DIFFERENCES.items():
        assert any(re.match(pattern, line) for line in differing), f"no such difference: {what}"
        assert f"**{what}**" in page, f"not documented: {what}"


# -- changes ---------------------------------------------------------------------------------------


def moving() -> Json:
    """Render a pod that sees objects that change by environment, folder and single file."""
    volumes, mounts = mounted({"map": from_configmap("moving"), "secret": from_secret("moving")})
    single = {"name": "map", "mountPath": "/single/word", "subPath": "word"}
    env = [keyed("MAP", "ConfigMap", "moving", "word"), keyed("SECRET", "Secret", "moving", "word")]
    noticing = [
        container(name=name, command=[APP, "notice", f"/given/{name}/word"], volumeMounts=mounts)
        for name in ("map", "secret")
    ]
    shown = showing("/given", "/single", env=env, volumeMounts=[*mounts, single])
    return quiet(volumes=volumes, containers=[shown, *noticing])


def change(twins: Twins, word: str) -> None:
    """Change what the pod `moving` sees."""
    hub, namespace = twins.space.hub, twins.space.namespace
    hub.patch("ConfigMap", namespace, "moving", {"data": {"word": word, "more": word}})
    hub.patch("Secret", namespace, "moving", {"stringData": {"word": word}})


def test_a_change_reaches_running_containers_as_on_a_real_node(
    twins: Twins, measured: Measurements
) -> None:
    """Folders follow; the environment and single files stay as they were at the start."""
    twins.wait_running("moving")
    began = time.monotonic()
    change(twins, "two")
    for kind in KINDS:
        wait_value(twins.space, kind, "moving", "word", "two")
    measured.seconds("change in the target", time.monotonic() - began, promise=CHANGE_SECONDS)
    for name in ("map", "secret"):
        wait_noticed(twins, name, "two", awake=True)
    here, there = twins.run("moving", APP, "show", "/given", "/single").without(USUAL)
    assert there == here
    assert 'content /given/map/more "two"' in there
    assert 'content /single/word "one"' in there
    assert 'variable MAP "one"' in there and 'variable SECRET "one"' in there


def wait_noticed(twins: Twins, name: str, word: str, *, awake: bool = False) -> tuple[float, float]:
    """Wait until both see a word in a folder; returns when they first did."""

    def noticed(hub_pod: Json) -> float | None:
        said = twins.desk.hub.read("logs", name_of(hub_pod), f"--container={name}").decode()
        found = [line.split() for line in said.splitlines()]
        return next((float(at) for at, seen in found if seen == f'"{word}"'), None)

    what = f"see {word} in {name}"
    return twins.wait("moving", what, noticed, timeout_seconds=KUBELET_SECONDS, awake=awake)


def test_what_cannot_be_changed_is_replaced(twins: Twins) -> None:
    """What is made anew on the hub, where it could not be changed, is replaced in the target."""
    space = twins.space
    spec = quiet(
        containers=[
            showing(
                env=[
                    keyed("PINNED", "ConfigMap", "pinned", "word"),
                    keyed("RETYPED", "Secret", "retyped", "password"),
                ]
            )
        ]
    )
    space.run_pod(pod("before", pod_spec(NODE, **spec)))
    assert companion(space, "ConfigMap", "pinned").get("immutable") is True
    for again in (
        configmap("pinned", {"word": "two"}),
        secret("retyped", {"username": "a", "password": "two"}, kind="kubernetes.io/basic-auth"),
    ):
        assert space.hub.delete(again["kind"], space.namespace, name_of(again))
        space.create(again)
    wait_value(space, "ConfigMap", "pinned", "word", "two")
    typed = wait_companion(
        space, "Secret", "retyped", lambda c: c["type"] == "kubernetes.io/basic-auth"
    )
    assert value_of(typed, "password") == "two"
    assert not companion(space, "ConfigMap", "pinned").get("immutable")
    # A kubelet keeps what is immutable for as long as a pod of its node uses it.
    space.delete_pod("before")
    space.wait_pod_gone("before")
    space.run_pod(pod("after", pod_spec(NODE, **spec)))
    lines = twins.desk.hub.read("logs", "after").decode().splitlines()
    assert {'variable PINNED "two"', 'variable RETYPED "two"'} <= set(lines)


def test_a_deployment_is_rolled_out_with_a_changed_configuration(twins: Twins) -> None:
    """New pods of a Deployment start with the new values, and with nothing else."""
    space = twins.space
    space.create(configmap("release", {"number": "1"}))
    shown = showing(env=[keyed("RELEASE", "ConfigMap", "release", "number")])
    space.create(deployment("web", pod_spec(NODE, **quiet(containers=[shown])), replicas=2))
    wait_rolled_out(twins, "web")
    assert releases(twins) == {"1"}
    space.hub.patch("ConfigMap", space.namespace, "release", {"data": {"number": "2"}})
    template = {"metadata": {"annotations": {"example.com/release": "2"}}}
    space.hub.patch("Deployment", space.namespace, "web", {"spec": {"template": template}})
    wait_rolled_out(twins, "web")
    assert releases(twins) == {"2"}
    space.scale("web", 0)


def wait_rolled_out(twins: Twins, name: str) -> None:
    twins.desk.hub.read("rollout", "status", f"deployment/{name}", "--timeout=90s")


def releases(twins: Twins) -> set[str]:
    """Return what the newest pods were told."""
    space = twins.space
    newest = max(
        space.hub.list("ReplicaSet", space.namespace, labels="app=web"),
        key=lambda each: int(annotations_of(each)["deployment.kubernetes.io/revision"]),
    )
    label = newest["metadata"]["labels"]["pod-template-hash"]
    found = space.hub.list("Pod", space.namespace, labels=f"pod-template-hash={label}")
    assert len(found) == 2
    said = [twins.desk.hub.read("logs", name_of(each)).decode() for each in found]
    return {told[1] for each in said for told in re.finditer(r'variable RELEASE "(.*)"', each)}


# -- what is missing -------------------------------------------------------------------------------


def late() -> Json:
    """Render a pod whose optional references nobody has made; `again` can be restarted."""
    env = [
        keyed("MAP", "ConfigMap", "later", "word", optional=True),
        keyed("SECRET", "Secret", "later", "word", optional=True),
    ]
    optional = {
        "map": from_configmap("later", optional=True),
        "secret": from_secret("later", optional=True),
    }
    volumes, mounts = mounted(optional)
    again = showing(name="again", env=env)
    return quiet(
        volumes=volumes, containers=[showing("/given", env=env, volumeMounts=mounts), again]
    )


def test_optional_objects_may_come_late(twins: Twins) -> None:
    """Without them the pod starts; their files come later, their variables at the next start."""
    begun = twins.shown("late").without(USUAL)
    assert begun.there == begun.here
    assert not [line for line in begun.there if re.match("variable (MAP|SECRET) |content", line)]
    twins.space.create(configmap("later", {"word": "late"}))
    twins.space.create(secret("later", {"word": "late"}))
    for kind in KINDS:
        wait_value(twins.space, kind, "later", "word", "late")

    def has_files(hub_pod: Json) -> list[str] | None:
        said = twins.desk.hub.read(
            "exec", name_of(hub_pod), "-c", "main", "--", APP, "show", "/given"
        )
        lines = twins.in_words(hub_pod, said.decode().splitlines())
        return lines if sum(line.startswith("content") for line in lines) == 2 else None

    found = twins.wait("late", "have the files", has_files, awake=True)
    here, there = Both(*found).without(USUAL)
    assert there == here

    for twin in twins.names("late"):
        ended = twins.desk.hub.run("exec", twin, "--container=again", "--", APP, "end")
        # What ends a container may be ended with it before it is done.
        assert ended.returncode in (0, 137), ended

    def has_variables(hub_pod: Json) -> bool | None:
        said = twins.desk.hub.run("logs", name_of(hub_pod), "-c", "again").stdout.decode()
        return ('variable MAP "late"' in said and 'variable SECRET "late"' in said) or None

    twins.wait("late", "have the variables", has_variables)


def wanting() -> Json:
    """Render a pod whose containers need what nobody has made, and an init container that runs."""
    needing = {
        "no-map": keyed("WORD", "ConfigMap", "required", "word"),
        "no-secret": keyed("WORD", "Secret", "required", "word"),
        "no-key": keyed("WORD", "ConfigMap", "settings", "required"),
    }
    first = container(name="first", command=[APP, "show"])
    containers = [showing(name=name, env=[variable]) for name, variable in needing.items()]
    whole = showing(name="no-set", envFrom=[{"secretRef": {"name": "required"}}])
    return quiet(initContainers=[first], containers=[*containers, whole])


def unmountable() -> Json:
    """Render a pod whose volumes nobody can fill."""
    required = {"no-map": from_configmap("required"), "no-secret": from_secret("required")}
    volumes, mounts = mounted(required)
    return quiet(volumes=volumes, containers=[showing("/given", volumeMounts=mounts)])


def test_a_pod_waits_for_what_is_required_in_a_kubelets_words(twins: Twins) -> None:
    """State, message and Events are those of a real node, with the hub's names; then it starts."""
    twins.shown("wanting", "first")
    here, there = twins.wait("wanting", "wait with a message", waiting_messages)
    assert there == here
    assert here["no-map"] == ("CreateContainerConfigError", 'configmap "required" not found')
    for name, reason in (("wanting", "Failed"), ("unmountable", "FailedMount")):
        wait_same_events(twins, name, reason)
    twins.space.create(configmap("required", {"word": "there"}))
    twins.space.create(secret("required", {"word": "there"}))
    body = {"data": {"required": "there"}}
    twins.space.hub.patch("ConfigMap", twins.space.namespace, "settings", body)
    for kind in KINDS:
        wait_value(twins.space, kind, "required", "word", "there")
    for name in ("wanting", "unmountable"):
        twins.wait(name, "run", runs, awake=True)
    shown = twins.shown("unmountable").without(USUAL)
    assert shown.there == shown.here


def runs(hub_pod: Json) -> bool | None:
    return phase_of(hub_pod) == "Running" or None


def waiting_messages(hub_pod: Json) -> dict[str, tuple[str, str]] | None:
    """Return reason and message by container, once all wait for their configuration."""
    found = {
        name: status["state"].get("waiting", {})
        for name, status in statuses_of(hub_pod).items()
        if name != "first"
    }
    told = {
        name: (waiting.get("reason", ""), waiting.get("message", ""))
        for name, waiting in found.items()
    }
    all_wait = told and all(r == "CreateContainerConfigError" for r, _ in told.values())
    return told if all_wait else None


def wait_same_events(twins: Twins, name: str, reason: str) -> None:
    """Wait until Kubernetes says the same of both."""

    def told(hub_pod: Json) -> set[tuple[str, str]]:
        field = f"involvedObject.name={name_of(hub_pod)}"
        found = twins.space.hub.list("Event", twins.space.namespace, fields=field)
        return {
            (event["type"], twins.in_words(hub_pod, [event["message"]])[0])
            for event in found
            if event["reason"] == reason and "required" in event["message"]
        }

    def same() -> bool:
        here, there = map(told, twins.pods(name))
        return bool(here) and here == there

    twins.space.wait(
        f"the Events {reason} of both {name} are the same: "
        f"{[told(each) for each in twins.pods(name)]}",
        same,
    )


def test_what_is_deleted_on_the_hub_is_revoked(twins: Twins, measured: Measurements) -> None:
    """A Secret that is deleted is gone in the target in seconds, although a pod still uses it."""
    space = twins.space
    volumes, mounts = mounted({"revoked": from_secret("revoked")})
    spec = quiet(volumes=volumes, containers=[showing("/given", volumeMounts=mounts)])
    running = space.run_pod(pod("revoked", pod_spec(NODE, **spec)))
    assert companions(space, "Secret", "revoked")
    began = time.monotonic()
    assert space.hub.delete("Secret", space.namespace, "revoked")
    wait_no_companion(space, "Secret", "revoked")
    measured.seconds("revoked in the target", time.monotonic() - began, promise=CHANGE_SECONDS)
    found = space.pod("revoked")
    assert found is not None and phase_of(found) == "Running"
    assert found["metadata"]["uid"] == running["metadata"]["uid"]


# -- debug containers, images ----------------------------------------------------------------------


def test_a_debug_container_has_its_own_references(twins: Twins) -> None:
    """A container added to a running pod may name objects that the pod did not."""
    twins.space.create(secret("extra", {"word": "added"}))
    twins.wait_running("usual")
    added = {
        "name": "look",
        "image": IMAGE,
        "command": [APP, "show"],
        "env": [
            keyed("WORD", "Secret", "extra", "word"),
            keyed("MAP", "ConfigMap", "few", "COLOUR"),
        ],
    }
    for twin in twins.names("usual"):
        twins.space.hub.patch(
            *("Pod", twins.space.namespace, twin),
            {"spec": {"ephemeralContainers": [added]}},
            subresource="ephemeralcontainers",
            media_type=STRATEGIC_PATCH,
        )
    patterns = [*USUAL, DIFFERENCES["Variables of Services"]]
    here, there = twins.shown("usual", "look").without(patterns)
    assert there == here
    assert {'variable WORD "added"', 'variable MAP "red"'} <= set(there)


def test_images_are_pulled_with_the_pods_secrets(
    twins: Twins,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
) -> None:
    """A private image comes with the pod's Secret or its service account's, and not without."""
    space = twins.space
    with registry_on(real_hub_and_target, testbed_factory.places) as registry:
        space.create(registry.login("pull"))
        space.create(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "puller"},
                "imagePullSecrets": [{"name": "pull"}],
            }
        )
        private = showing(image=registry.image, imagePullPolicy="Always")
        plain = quiet(containers=[private])
        twins.create("stranger", **plain)
        twins.create("early", **plain, imagePullSecrets=[{"name": "not-yet"}])
        twins.create("private", **plain, imagePullSecrets=[{"name": "pull"}])
        twins.create("account", **plain, serviceAccountName="puller")
        twins.wait_running("private", "account")
        shown = twins.shown("private").without(USUAL)
        assert shown.there == shown.here
        for name in ("stranger", "early"):
            twins.wait(name, "cannot be pulled", pull_failure)
        assert any("known=true" in line for line in registry.asked(1))
        # What comes late is used at the kubelet's next try.
        space.create(registry.login("not-yet"))
        twins.wait_running("early")
        for name in ("stranger", "early", "private", "account"):
            for twin in twins.names(name):
                space.delete_pod(twin)


def pull_failure(hub_pod: Json) -> str | None:
    """Return why the image cannot be had."""
    waiting = statuses_of(hub_pod).get("main", {}).get("state", {}).get("waiting", {})
    return waiting.get("message") if waiting.get("reason") in PULL_FAILED else None


# -- what is not the hub's -------------------------------------------------------------------------


def test_a_hub_user_cannot_read_the_targets_own_secrets(twins: Twins) -> None:
    """Whatever a pod calls them, by their own names or by generated ones, it sees nothing."""
    space, canary = twins.space, "canary-of-the-target"
    for kind, body in (
        ("Secret", secret("treasure", {"word": canary})),
        ("ConfigMap", configmap("treasure", {"word": canary})),
    ):
        space.target.create(body, space.target_namespace)
        assert space.target.get(kind, space.target_namespace, "treasure")
    known = companions(space, "Secret", "login") + companions(space, "ConfigMap", "settings")
    assert len(known) == 2
    optional, names = {"optional": True}, ["treasure", *map(name_of, known)]
    folders = {
        f"{kind}{n}": source(name, **optional)
        for n, name in enumerate(names)
        for kind, source in (("map", from_configmap), ("secret", from_secret))
    }
    everything = [{"secret": {"name": name, **optional}} for name in names]
    folders["all"] = {"projected": {"sources": everything}}
    volumes, mounts = mounted(folders)
    env_from = [
        {ref: {"name": name, **optional}} for name in names for ref in ("secretRef", "configMapRef")
    ]
    thief = showing("/given", envFrom=env_from, volumeMounts=mounts)
    spec = quiet(volumes=volumes, containers=[thief], imagePullSecrets=[{"name": "treasure"}])
    space.run_pod(pod("thief", pod_spec(NODE, **spec)))
    asking = showing(env=[keyed("WORD", "Secret", "treasure", "word")])
    space.create(pod("asking", pod_spec(NODE, **quiet(containers=[asking]))))

    seen = twins.desk.hub.read("logs", "thief").decode()
    assert seen.splitlines()[-1] == LAST_LINE
    assert canary not in seen
    assert not [line for line in seen.splitlines() if line.startswith("content ")]

    def waits() -> str | None:
        status = statuses_of(space.pod("asking") or {}).get("main", {})
        return (status.get("state", {}).get("waiting") or {}).get("message")

    assert space.wait("the other pod waits", waits) == 'secret "treasure" not found'
    mirror = json.dumps(space.mirror("thief"))
    assert '"treasure"' not in mirror
    assert condition_of(space.pod("thief") or {}, "Ready").get("status") == "True"

"""A pod in a target is itself on the hub: its own service account, with tokens of its own (C31).

As in test_companions each pod runs twice: on a real node of the hub and through the virtual node.
"""

import base64
import json
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml

from e2e.containers.reports import ADDRESS
from e2e.support.companions import COMPANION_OF
from e2e.support.desk import Desk, address_for_containers
from e2e.support.manifests import APP, container, pod, pod_spec
from e2e.support.matrix import configmap, showing
from e2e.support.measuring import Measurements
from e2e.support.pods import annotations_of, name_of, uid_of
from e2e.support.twins import Twins
from e2e.support.witness import Json
from e2e.support.world import Space, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.docker import Docker
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE, LONG_NODE = "passport", "passport-long"
API_PORT = 6443
"""Where API servers of kind listen in Docker's network."""

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
OWN = "/given/tokens"
MOUNT = {"name": "tokens", "mountPath": OWN, "readOnly": True}

LIFE_SECONDS = 600
"""As short as API servers let a token's life be."""
SOON = 0.02
"""The part of its life after which a token is renewed in most of these tests: 12 s."""

DIFFERENT = (
    r"variable KUBERNETES_",  # another way to the same API server
    r"content \S+/(token|vault) ",  # no two tokens are alike
)


@pytest.fixture(scope="module")
def twins(
    worlds: Worlds,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Twins]:
    """Twins whose tokens are renewed much more often than anybody needs."""
    hub, target = real_hub_and_target
    file = tmp_path_factory.mktemp("identity") / "federation.yaml"
    file.write_text(yaml.safe_dump(configuration(hub, target, testbed_factory, tokenRenewal=SOON)))
    with worlds.world(node=NODE, hub=hub, target=target, config=file) as world:
        space = Space(world, "identity")
        space.open()
        found = Twins(desk=Desk.of(space, hub=hub, target=target), nodes=(hub.node_name, NODE))
        grant(space)
        settings = f"/api/v1/namespaces/{space.namespace}/configmaps/settings"
        secrets = f"/api/v1/namespaces/{space.namespace}/secrets"
        asking = container(name="asking", command=[APP, "ask", settings, secrets])
        shown = showing(ACCOUNT, OWN, volumeMounts=[MOUNT])
        user = {"runAsUser": 1234, "runAsGroup": 3000, "fsGroup": 2000, "runAsNonRoot": True}
        for name, context in (("plain", {}), ("owned", user)):
            fields = account(initContainers=[asking], containers=[shown])
            found.create(name, securityContext=context, **fields)
        space.create(renewing(NODE))
        found.desk.wait_served()
        yield found
        space.close()


def configuration(
    hub: RealCluster, target: RealCluster, factory: TestbedFactory, **more: object
) -> Json:
    """Render federate's configuration; pods reach the hub by its address in Docker's network."""
    docker = Docker(places=factory.places)
    api = docker.run("inspect", "--format", ADDRESS, hub.node_name).strip()
    node = {
        "nodeName": NODE,
        "target": {"kubeconfig": str(target.kubeconfig)},
        "nodeAddress": address_for_containers(factory.places),
        "identity": "hub",
        "hubAddress": f"{api}:{API_PORT}",
        **more,
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [node],
    }


def account(**more: object) -> Json:
    """Render the fields of a pod that is `robot`, and has a token of its own wish."""
    volume = {"name": "tokens", "projected": {"sources": [token("vault", "vault"), told()]}}
    return {
        "serviceAccountName": "robot",
        "enableServiceLinks": False,
        "volumes": [volume],
        **more,
    }


def renewing(node: str) -> Json:
    """Render a pod that notices each of its tokens."""
    notices = container(command=[APP, "notice", f"{OWN}/vault"], volumeMounts=[MOUNT])
    return pod("renewing", pod_spec(node, **account(containers=[notices])))


def grant(space: Space) -> None:
    """Let the account read one ConfigMap, and nothing else."""
    space.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    space.create(configmap("settings", {"word": "one"}))
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"]}
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "robot"}}
    space.create({**about, "kind": "Role", "rules": [{**rule, "verbs": ["get"]}]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": space.namespace}
    space.create({**about, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})
    wait_for(
        "the account is there", lambda: space.hub.get("ServiceAccount", space.namespace, "robot")
    )


def token(path: str, audience: str) -> Json:
    """Render a token of the pod's own wish."""
    wish = {"path": path, "audience": audience, "expirationSeconds": LIFE_SECONDS}
    return {"serviceAccountToken": wish}


def told() -> Json:
    """Render a source beside the token's."""
    item = {"path": "whose", "fieldRef": {"fieldPath": "metadata.name"}}
    return {"downwardAPI": {"items": [item]}}


@pytest.mark.parametrize("name", ["plain", "owned"])
def test_the_hub_knows_the_pod_by_its_own_account(twins: Twins, name: str) -> None:
    """What the account may do on the hub it may do from the target, and nothing more."""
    said = twins.wait(name, "were answered", lambda hub_pod: answers(twins, hub_pod))
    here, there = said
    assert there == here
    allowed, denied = there
    assert " 200 ConfigMap" in allowed
    assert " 403 Status" in denied
    assert f"system:serviceaccount:{twins.space.namespace}:robot" in denied


def answers(twins: Twins, hub_pod: Json) -> list[str] | None:
    """Return what the API server answered, once it did."""
    said = twins.desk.hub.run("logs", name_of(hub_pod), "--container=asking")
    lines = twins.in_words(hub_pod, said.stdout.decode().splitlines())
    return lines if len(lines) == 2 else None


@pytest.mark.parametrize("name", ["plain", "owned"])
def test_tokens_lie_where_they_lie_on_a_real_node(twins: Twins, name: str) -> None:
    """The same files at the same paths; the container's user reads them."""
    here, there = twins.shown(name).without(DIFFERENT)
    if name == "owned":  # a kubelet gives a token to its user, a Secret's files are root's
        here, there = (
            [re.sub(r" \S+ \d+:\d+", "", line) for line in lines] for lines in (here, there)
        )
    assert there == here
    assert not [line for line in there if "cannot be read" in line]


def test_a_token_is_for_whom_and_as_long_as_the_pod_wishes(twins: Twins) -> None:
    """Audience and life are the pod's wish, and the token is bound to the hub pod."""
    for hub_pod in twins.pods("plain"):
        lines = twins.desk.hub.read("logs", name_of(hub_pod), "--container=main").decode()
        for path, audience in ((f"{OWN}/vault", ["vault"]), (f"{ACCOUNT}/token", None)):
            found = re.search(rf'^content {path} "(.*)"$', lines, re.MULTILINE)
            assert found is not None
            claims = claims_of(found[1])
            assert claims["kubernetes.io"]["pod"]["uid"] == uid_of(hub_pod)
            assert claims["kubernetes.io"]["serviceaccount"]["name"] == "robot"
            if audience:
                assert claims["aud"] == audience
                assert claims["exp"] - claims["iat"] == LIFE_SECONDS
            assert claims["exp"] > time.time()


def claims_of(text: str) -> Json:
    """Read what a token says of itself."""
    middle = text.split(".")[1]
    claims: Json = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


def test_tokens_are_renewed_in_the_running_container(twins: Twins, measured: Measurements) -> None:
    """A container that goes on finds a later token in the same file."""
    space, began = twins.space, time.monotonic()
    space.wait_running("renewing")
    turn = count()

    def renewed() -> list[tuple[float, Json]] | None:
        # A kubelet looks at a changed pod at once, and at others every minute or so.
        body = {"metadata": {"annotations": {"example.com/turn": str(next(turn))}}}
        space.hub.patch("Pod", space.namespace, "renewing", body)
        found = tokens_noticed(twins.desk.hub.read("logs", "renewing"))
        return found if len(found) > 1 else None

    (_, first), (_, second) = space.wait("a second token", renewed)[:2]
    measured.note("second token", f"after {time.monotonic() - began:.0f} s")
    assert second["iat"] > first["iat"]
    assert second["kubernetes.io"] == first["kubernetes.io"]
    running = space.pod("renewing")
    assert running is not None and running["status"]["containerStatuses"][0]["restartCount"] == 0


def tokens_noticed(said: bytes) -> list[tuple[float, Json]]:
    """Return when a container noticed a token, and what that says of itself, in order."""
    found = [line.split(maxsplit=1) for line in said.decode().splitlines()]
    return [(float(at), claims_of(text.strip('"'))) for at, text in found if text.count(".") == 2]


@pytest.mark.long
def test_a_token_is_renewed_before_it_ends(
    worlds: Worlds,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    tmp_path: Path,
    measured: Measurements,
) -> None:
    """With nothing set and nobody touching the pod, it always has a token that is good."""
    hub, target = real_hub_and_target
    file = tmp_path / "federation.yaml"
    document = configuration(hub, target, testbed_factory)
    document["virtualNodes"][0]["nodeName"] = LONG_NODE
    file.write_text(yaml.safe_dump(document))
    with worlds.world(node=LONG_NODE, hub=hub, target=target, config=file) as world:
        space = Space(world, "renewal")
        space.open()
        desk = Desk.of(space, hub=hub, target=target)
        grant(space)
        space.run_pod(renewing(LONG_NODE))
        desk.wait_served()

        def renewed() -> list[tuple[float, Json]] | None:
            found = tokens_noticed(desk.hub.read("logs", "renewing"))
            return found if len(found) > 1 else None

        (_, first), (seen, _) = space.wait(
            "a second token", renewed, timeout_seconds=LIFE_SECONDS / space.pace.patience + 60.0
        )[:2]
        measured.note("seen before the first ended", f"{first['exp'] - seen:.0f} s")
        assert seen < first["exp"]
        space.close()


def test_tokens_go_with_the_pod(twins: Twins) -> None:
    """Nothing of a pod's tokens is left in the target when the pod is gone."""
    space = twins.space
    twins.wait_running("owned")
    _, hub_pod = twins.pods("owned")

    def tokens() -> list[Json]:
        found = space.target.list("Secret", space.target_namespace)
        told = [annotations_of(each).get(COMPANION_OF, "") for each in found]
        return [each for each, of in zip(found, told, strict=True) if uid_of(hub_pod) in of]

    assert tokens()
    for twin in twins.names("owned"):
        space.delete_pod(twin)
    space.wait("its tokens are gone", lambda: not tokens())

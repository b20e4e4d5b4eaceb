"""Who may not ask gets nothing out of the kubelet API, through the product's own wiring (C60)."""

import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import annotations_of, condition_of, uid_of
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.local import LocalCluster
from e2e.testbed.pki import Authority, KeyPair

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "guarded"
NEIGHBOUR = "neighbour"
CROWDED = "crowded"
SERVING = "federate.dev/KubeletServing"
ANSWER_SECONDS = 30.0
MIRROR = "federate.dev/mirror"

PATHS = (
    "/pods",
    "/runningpods/",
    "/containerLogs/default/web/main",
    "/exec/default/web/main?command=id&output=1",
    "/attach/default/web/main",
    "/portForward/default/web",
    "/run/default/web/main?cmd=id",
    "/metrics/resource",
    "/stats/summary",
    "/configz",
    "/debug/pprof/heap",
    "/absent",
    "/",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the kubelet API said."""

    status: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The kubelet API of a virtual node, as somebody beside the hub's API server sees it."""

    world: World
    space: Space
    hub: LocalCluster
    port: int

    def ask(
        self,
        path: str,
        *,
        client: KeyPair | None = None,
        token: str = "",
        method: str = "GET",
    ) -> Answer:
        """Ask once, byte for byte what is given as the path.

        Raises:
            OSError: the connection was refused by TLS, or ended without an answer.
        """
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: kubelet\r\n{bearer}Connection: close\r\n\r\n"
        with (
            socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS) as plain,
            context_of(client).wrap_socket(plain) as connection,
        ):
            connection.sendall(head.encode("latin-1"))
            said = b""
            while part := connection.recv(65536):
                said += part
        if not said:
            raise ConnectionError("no answer")
        return Answer(status=int(said.split()[1]), text=said.decode(errors="replace"))

    @property
    def trusted(self) -> KeyPair:
        """What the hub's API server itself asks with."""
        return self.hub.pki.kubelet_client

    def token_of(self, account: str) -> str:
        """Make a service account's token."""
        namespace = self.space.namespace
        return self.hub.kubectl("-n", namespace, "create", "token", account).strip()


def context_of(client: KeyPair | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


@pytest.fixture(scope="module")
def door(worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster) -> Iterator[Door]:
    """A virtual node with one pod, and another virtual node with another."""
    with (
        worlds.world(node=NODE, hub=local_hub, target=local_target) as world,
        worlds.world(node=NEIGHBOUR, hub=local_hub, target=local_target) as other,
    ):
        space, beside = Space(world, "guarded"), Space(other, "neighbour")
        space.open()
        beside.open()
        space.run_pod(pod("mine", pod_spec(NODE)))
        beside.run_pod(pod("theirs", pod_spec(NEIGHBOUR)))
        yield Door(world=world, space=space, hub=local_hub, port=port_of(world))
        beside.close()
        space.close()


def port_of(world: World) -> int:
    """Wait until the Node says where it answers."""

    def told() -> int:
        node = world.read_node()
        serves = condition_of(node, SERVING).get("status") == "True"
        port: int = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        return port if serves else 0

    return wait_for("the node answers as a kubelet", told, explain=world.federate.log_tail)


def test_nobody_gets_nothing(door: Door) -> None:
    """Without a certificate and a token every path is 401, those that are not there too."""
    assert {path: door.ask(path).status for path in PATHS} == dict.fromkeys(PATHS, 401)
    assert door.ask("/pods", token="wrong").status == 401
    assert door.ask("/exec/default/web/main", method="POST").status == 401


def test_a_certificate_of_another_authority_is_worth_nothing(door: Door, tmp_path: Path) -> None:
    """Whatever it says of itself: TLS refuses it, or the answer is 401."""
    impostor = Authority(tmp_path, "impostor").issue_client(
        "admin", user="kube-apiserver-kubelet-client", groups=["system:masters"]
    )
    try:
        assert door.ask("/pods", client=impostor).status == 401
    except (ssl.SSLError, ConnectionError):
        return


def test_rights_decide_what_is_answered(door: Door) -> None:
    """A token without rights gets 403; with the rights of a kubelet's client it gets the pods."""
    hub, namespace = door.hub, door.space.namespace
    token = door.token_of("default")
    for path in ("/pods", f"/containerLogs/{namespace}/mine/main", "/metrics/resource"):
        answer = door.ask(path, token=token)
        assert answer.status == 403, answer
        assert token not in answer.text
    hub.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    grant = f"kubelet-reader-{namespace}"
    hub.kubectl(
        *("create", "clusterrolebinding", grant, "--clusterrole=system:kubelet-api-admin"),
        f"--serviceaccount={namespace}:reader",
    )
    try:
        allowed = door.ask("/pods", token=door.token_of("reader"))
    finally:
        hub.kubectl("delete", "clusterrolebinding", grant)
    assert allowed.status == 200
    pods = json.loads(allowed.text.partition("\r\n\r\n")[2])["items"]
    assert [found["metadata"]["name"] for found in pods] == ["mine"]
    log = door.world.federate.log.read_text(errors="replace")
    assert token not in log


def test_other_pods_are_as_if_they_were_not_there(door: Door) -> None:
    """A stranger's pod, a neighbour's, a mirror by its own name, a container nobody asked for."""
    hub_space, target_namespace = door.space.namespace, door.space.target_namespace
    for path in (
        "/containerLogs/kube-system/absent/main",
        f"/containerLogs/{target_namespace}/mine/main",
        f"/containerLogs/{hub_space}/theirs/main",
        f"/containerLogs/{hub_space}/mine/injected",
        f"/exec/{hub_space}/mine/00000000-0000-0000-0000-000000000000/main?command=id&output=1",
        f"/portForward/{target_namespace}/mine",
    ):
        method = "GET" if path.startswith("/containerLogs") else "POST"
        assert door.ask(path, client=door.trusted, method=method).status == 404, path


def test_paths_lead_nowhere_else(door: Door) -> None:
    """Dots, encoded slashes and NULs never become a part of a path at the target."""
    good = f"/containerLogs/{door.space.namespace}/mine/main"
    for path in (
        f"/containerLogs/{door.space.namespace}/../kube-system/mine/main",
        f"/containerLogs/{door.space.namespace}/mine%2f..%2f..%2fsecrets/main",
        f"/containerLogs/{door.space.namespace}/mine/..%2f..%2flog",
        f"/containerLogs//{door.space.namespace}/mine/main",
        f"/containerLogs/{door.space.namespace}/mine/main%00",
        "/containerLogs/%2e%2e/%2e%2e/secrets",
        good.replace("mine", "mine?x=/"),
        "/api/v1/secrets",
        "/pods/../api/v1/secrets",
    ):
        answer = door.ask(path, client=door.trusted)
        assert 400 <= answer.status < 500, (path, answer)


def test_an_annotation_does_not_lead_to_another_pod(door: Door) -> None:
    """Whoever may annotate a hub pod cannot reach another pod of the target with that."""
    space = door.space
    space.run_pod(pod("forged", pod_spec(NODE)))
    mine = space.pod("mine")
    assert mine is not None
    forged = space.pod("forged")
    assert forged is not None
    record = {**json.loads(annotations_of(mine)[MIRROR]), "podUID": uid_of(forged)}
    path = f"/containerLogs/{space.namespace}/forged/main"
    seen = set()
    for _ in range(20):
        space.hub.patch(
            "Pod",
            space.namespace,
            "forged",
            {"metadata": {"annotations": {MIRROR: json.dumps(record)}}},
        )
        answer = door.ask(path, client=door.trusted)
        seen.add(answer.status)
        # What the target says of the mirror's log names the mirror.
        assert "/mine/" not in answer.text and '"mine"' not in answer.text, answer
    assert seen <= {404, 400, 500, 502, 503}


def test_a_taken_port_stops_nothing_else(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, tmp_path: Path
) -> None:
    """Pods run, the Node says what is wrong, and the port is taken once it is free (C62)."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = tmp_path / "federation.yaml"
        file.write_text(
            "apiVersion: federate.dev/v1alpha1\n"
            "kind: Federation\n"
            f"hub: {{kubeconfig: {local_hub.kubeconfig}}}\n"
            "virtualNodes:\n"
            f"- nodeName: {CROWDED}\n"
            f"  target: {{kubeconfig: {local_target.kubeconfig}}}\n"
            f"  kubelet: {{port: {port}}}\n"
        )
        with worlds.world(node=CROWDED, hub=local_hub, target=local_target, config=file) as world:
            space = Space(world, CROWDED)
            space.open()
            space.run_pod(pod("runs", pod_spec(CROWDED)))
            told = condition_of(world.read_node(), SERVING)
            assert (told["status"], told["reason"]) == ("False", "KubeletPortTaken")
            assert str(port) in told["message"]
            taken.close()
            assert port_of(world) == port
            space.close()


def test_it_is_well_after_all_that(door: Door) -> None:
    """The process serves on, and counted what it refused."""
    assert door.ask("/healthz", client=door.trusted).status == 200
    assert door.world.federate.is_ready()
    counted = door.world.federate.fetch("/metrics")
    assert f'federate_kubelet_serving{{node="{NODE}"}} 1.0' in counted
    assert 'status="401"' in counted and 'status="403"' in counted

"""Access and certificate of a kubelet API against a real API server and its signer (C60-C62)."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cryptography import x509

from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.check.findings import FindingId
from federate.check.kubeletapi import judge_probe
from federate.check.manifests import Account, render_manifests
from federate.check.readers import probe_kubelet
from federate.check.rights import Circumstances, Feature, Side
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.errors import ClusterError, ServerFault
from federate.kubelet.access import HubAccess
from federate.kubelet.csr import USAGES, approved, new_key, request_object, signing_request
from federate.kubelet.ports import NodeAccess, Unauthenticated
from federate.kubelet.rules import CertificateMode, ServingRules
from federate.kubelet.serving import ServingTls
from federate.model.objects import ObjectKey
from federate.model.reasons import NodeReason
from federate.model.resources import CERTIFICATE_REQUESTS, NODES
from federate.patch.document import MERGE, PatchBody
from tests.support.realworld import until

pytestmark = pytest.mark.integration

LOGS = NodeAccess("get", "log")
PROXY = NodeAccess("get", "proxy")


@pytest.fixture(scope="module")
def cluster(testbed_factory: TestbedFactory) -> Iterator[LocalCluster]:
    """A hub with a controller manager: its signer signs what somebody approved."""
    spec = ClusterSpec(name="kubelet-hub", service_range="10.107.0.0/16", with_scheduler=False)
    found = testbed_factory.cluster(spec)
    yield found
    found.stop()


@asynccontextmanager
async def account(
    cluster: LocalCluster, folder: Path, *features: Feature
) -> AsyncIterator[ClusterClient]:
    """A client with exactly the rights that are printed for the hub, and these features."""
    name = f"federate-{uuid4().hex[:8]}"
    around = Circumstances(side=Side.HUB, node_names=("edge",), features=frozenset(features))
    holder = Account(name=name, namespace="kube-system")
    printed = render_manifests(around, holder, title="for a test")
    await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", stdin=printed)
    token = await asyncio.to_thread(token_of, cluster, name)
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in content["users"]:
        user["user"] = {"token": token}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    client = await connect(file, name="hub")
    try:
        yield client
    finally:
        await client.aclose()


def token_of(cluster: LocalCluster, account_name: str, *arguments: str) -> str:
    return cluster.kubectl("-n", "kube-system", "create", "token", account_name, *arguments).strip()


def make_account(cluster: LocalCluster, *, role: str = "") -> str:
    name = f"caller-{uuid4().hex[:8]}"
    cluster.kubectl("-n", "kube-system", "create", "serviceaccount", name)
    if role:
        cluster.kubectl(
            *("create", "clusterrolebinding", name, f"--clusterrole={role}"),
            f"--serviceaccount=kube-system:{name}",
        )
    return name


async def eventually(question: Callable[[], Any], *, seconds: float = 120.0) -> None:
    """Ask until it is true: authorizers see a new binding a moment later."""
    async with asyncio.timeout(seconds):
        while not await question():  # noqa: ASYNC110
            await asyncio.sleep(0.2)


@asynccontextmanager
async def keeping(tls: ServingTls) -> AsyncIterator[None]:
    running = asyncio.create_task(tls.run())
    try:
        await until(lambda: tls.authority.bundle is not None)
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def serving_of(hub: ClusterClient, rules: ServingRules, name: str = "edge") -> ServingTls:
    return ServingTls(node_name=name, addresses=("127.0.0.1", "fd00::9"), rules=rules, hub=hub)


def leaf(tls: ServingTls) -> x509.Certificate:
    pair = tls._served()
    assert pair is not None
    return x509.load_pem_x509_certificates(pair.certificate)[0]


async def test_tokens_are_whose_the_hub_says(cluster: LocalCluster, tmp_path: Path) -> None:
    """With the printed rights alone; one for another audience, or a made-up one, is nobody's."""
    name = await asyncio.to_thread(make_account, cluster)
    async with account(cluster, tmp_path, Feature.KUBELET) as hub:
        access = HubAccess(hub=hub, node_name="edge", vouches=lambda _: True)
        token = await asyncio.to_thread(token_of, cluster, name)

        async def is_granted() -> bool:
            with suppress(ClusterError):
                return bool((await access.authenticate(None, token)).user)
            return False

        await eventually(is_granted)
        caller = await access.authenticate(None, token)
        assert caller.user == f"system:serviceaccount:kube-system:{name}"
        assert {"system:serviceaccounts", "system:authenticated"} <= set(caller.groups)
        assert caller.uid
        assert caller.extra
        other = await asyncio.to_thread(token_of, cluster, name, "--audience=elsewhere")
        for bad in (other, token[:-4] + "AAAA", "made-up"):
            with pytest.raises(Unauthenticated):
                await access.authenticate(None, bad)


async def test_the_hubs_authorizer_decides_as_for_a_kubelet(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The role of API servers may do all, a caller without one nothing."""
    admin = await asyncio.to_thread(make_account, cluster, role="system:kubelet-api-admin")
    nobody = await asyncio.to_thread(make_account, cluster)
    async with account(cluster, tmp_path, Feature.KUBELET) as hub:
        access = HubAccess(hub=hub, node_name="edge", vouches=lambda _: True)
        callers = {}

        async def all_known() -> bool:
            for name in (admin, nobody):
                token = await asyncio.to_thread(token_of, cluster, name)
                with suppress(ClusterError):
                    callers[name] = await access.authenticate(None, token)
            return len(callers) == 2

        await eventually(all_known)
        fresh = HubAccess(hub=hub, node_name="edge", vouches=lambda _: True)

        async def is_allowed() -> bool:
            fresh._denied.clear()
            return await fresh.may(callers[admin], [LOGS])

        await eventually(is_allowed)
        for verb in ("get", "create"):
            for subresource in ("proxy", "log", "stats", "metrics"):
                asked = [NodeAccess(verb, subresource)]
                assert await fresh.may(callers[admin], asked), asked
                assert not await fresh.may(callers[nobody], asked), asked
        assert await fresh.may(callers[admin], [NodeAccess("get", "nothing"), PROXY])


async def test_without_the_rights_the_hub_does_not_answer(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with account(cluster, tmp_path) as hub:
        access = HubAccess(hub=hub, node_name="edge", vouches=lambda _: True)
        with pytest.raises(ServerFault) as told:
            await access.authenticate(None, "made-up")
        assert "made-up" not in str(told.value)


async def test_the_hubs_client_ca_lets_its_api_server_in_and_not_the_front_proxy(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Both authorities stand in one ConfigMap; only one is for kubelets."""
    async with account(cluster, tmp_path, Feature.KUBELET) as hub:
        tls = serving_of(hub, ServingRules(mode=CertificateMode.SELF_SIGNED))
        async with keeping(tls):
            context = tls.context()
            assert context is not None
            for pair, is_good in (
                (cluster.pki.kubelet_client, True),
                (cluster.pki.front_proxy, False),
            ):
                client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
                client.load_cert_chain(pair.certificate, pair.key)
                assert await is_let_in(context, client) is is_good


async def is_let_in(context: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(await reader.read(1))
            await writer.drain()
        await ended(writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncExitStack() as held:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                held.push_async_callback(ended, writer)
                writer.write(b"x")
                return await reader.read(1) == b"x"
            except OSError:
                return False


async def ended(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and see its socket closed: else a later test is told of it."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def test_a_certificate_is_signed_once_somebody_approves(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """With the printed rights alone; the command that the Node names is what it takes."""
    async with account(cluster, tmp_path, Feature.KUBELET) as hub:
        tls = serving_of(hub, ServingRules())
        async with keeping(tls):
            await until(lambda: "kubectl certificate approve" in tls.word.message)
            assert leaf(tls).issuer == leaf(tls).subject
            command = tls.word.message.partition("kubectl ")[2].partition(".")[0].split()
            said = await asyncio.to_thread(cluster.kubectl, *command)
            assert "approved" in said
            await until(lambda: tls.word.reason is NodeReason.KUBELET_SERVING)
            certificate = leaf(tls)
            authority = x509.load_pem_x509_certificate(cluster.ca_certificate.read_bytes())
            certificate.verify_directly_issued_by(authority)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            found = {str(one) for one in names.value.get_values_for_type(x509.IPAddress)}
            assert found == {"127.0.0.1", "fd00::9"}
            await answers_verified(tls, cluster)


async def answers_verified(tls: ServingTls, cluster: LocalCluster) -> None:
    """A client that insists on the cluster's authority and the address is content."""
    context = tls.context()
    assert context is not None
    client = ssl.create_default_context(cafile=str(cluster.ca_certificate))
    client.verify_flags &= ~ssl.VERIFY_X509_STRICT
    assert await is_let_in(context, client)


async def test_a_denied_request_is_told(cluster: LocalCluster, tmp_path: Path) -> None:
    async with account(cluster, tmp_path, Feature.KUBELET) as hub:
        tls = serving_of(hub, ServingRules())
        async with keeping(tls):
            await until(lambda: "kubectl certificate approve" in tls.word.message)
            name = tls.word.message.partition("certificate approve ")[2].partition(".")[0]
            await asyncio.to_thread(cluster.kubectl, "certificate", "deny", name)
            await until(lambda: tls.word.reason is NodeReason.KUBELET_CERTIFICATE_DENIED)
            assert tls.context() is not None


async def test_federate_approves_for_itself_with_the_printed_rights(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """And not without: then the Node names what is missing, and serves all the same."""
    rules = ServingRules(approves=True)
    async with account(cluster, tmp_path, Feature.KUBELET) as hub:
        tls = serving_of(hub, rules)
        async with keeping(tls):
            await until(lambda: "--with approve" in tls.word.message)
            assert tls.context() is not None
    async with account(cluster, tmp_path, Feature.KUBELET, Feature.APPROVE) as hub:
        tls = serving_of(hub, rules)
        async with keeping(tls):
            await until(lambda: tls.word.reason is NodeReason.KUBELET_SERVING)
            await answers_verified(tls, cluster)


async def test_a_node_with_the_longest_name_gets_its_certificate(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    name = ".".join(["n" * 62] * 4)
    async with account(cluster, tmp_path, Feature.KUBELET, Feature.APPROVE) as hub:
        tls = serving_of(hub, ServingRules(approves=True), name)
        async with keeping(tls):
            await until(lambda: tls.word.reason is NodeReason.KUBELET_SERVING)


async def test_the_approver_may_sign_for_no_other_signer(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A request for a client certificate stays unapproved, with all that is printed."""
    async with account(cluster, tmp_path, Feature.KUBELET, Feature.APPROVE) as hub:
        request = signing_request(node_name="edge", key=new_key(), names=frozenset({"10.0.0.9"}))
        body = request_object(name=f"client-{uuid4().hex[:6]}", request=request)
        body["spec"]["signerName"] = "kubernetes.io/kube-apiserver-client"
        body["spec"]["usages"] = ["client auth", *USAGES[:1]]
        key = ObjectKey("", body["metadata"]["name"])

        async def is_made() -> bool:
            with suppress(ClusterError):
                await hub.create(CERTIFICATE_REQUESTS, body)
                return True
            return False

        await eventually(is_made)
        found = await hub.get(CERTIFICATE_REQUESTS, key)
        with pytest.raises(ClusterError, match="not permitted to approve"):
            await hub.replace(
                CERTIFICATE_REQUESTS,
                key,
                approved(found, now="2026-01-01T00:00:00Z"),
                subresource="approval",
            )


# -- a hub that tunnels to kubelets, as K3s does ---------------------------------------------------


@asynccontextmanager
async def tunnel(path: Path) -> AsyncIterator[list[str]]:
    """Play the tunnel of K3s for a node without an agent: every CONNECT gets 502."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head.split(b"\r\n")[0].decode())
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        yield asked


async def test_a_hub_that_tunnels_to_kubelets_is_recognised(
    testbed_factory: TestbedFactory, tmp_path: Path
) -> None:
    """`federate check` says why `kubectl logs` fails there, and both ways out."""
    socket = tmp_path / "t.sock"
    configuration = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {
                "name": "cluster",
                "connection": {
                    "proxyProtocol": "HTTPConnect",
                    "transport": {"uds": {"udsName": str(socket)}},
                },
            }
        ],
    }
    (tmp_path / "egress.yaml").write_text(json.dumps(configuration))
    spec = ClusterSpec(
        name="tunnelling",
        service_range="10.108.0.0/16",
        with_controller_manager=False,
        with_scheduler=False,
        apiserver_arguments=(f"--egress-selector-config-file={tmp_path / 'egress.yaml'}",),
    )
    hub_cluster = await asyncio.to_thread(testbed_factory.cluster, spec)
    hub = await connect(hub_cluster.kubeconfig, name="hub")
    try:
        async with tunnel(socket) as asked:
            await hub.create(NODES, {"metadata": {"name": "edge"}})
            status = {
                "addresses": [{"type": "InternalIP", "address": "10.9.9.9"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            }
            patch = PatchBody(media_type=MERGE, body={"status": status})
            await hub.patch(NODES, ObjectKey("", "edge"), patch, subresource="status")
            probe = await probe_kubelet(hub.stream, "edge")
        [found] = judge_probe(probe, name="edge", address="10.9.9.9:10250", version="v1.34.4+k3s1")
        print(probe)
        assert found.id is FindingId.KUBELET_TUNNELLED
        assert "egress-selector-mode: disabled" in found.fix
        assert any("10.9.9.9:10250" in line for line in asked)
    finally:
        await hub.aclose()
        await asyncio.to_thread(hub_cluster.stop)

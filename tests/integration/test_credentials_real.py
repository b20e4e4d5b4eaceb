"""Every kubeconfig style and its rotation against a real kube-apiserver (C72).

What kubectl makes of a file is the yardstick: both have to be the same user with the same groups. A
user of a running reflector is then taken away while another takes its place.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.reflector import Reflector
from federate.cluster.store import Store
from federate.errors import Unauthorized, Unreachable
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS, Resource
from tests.support.credentials import Authority, Issued, embed, exec_credential, issue, plugin_of
from tests.support.oidcprovider import CLIENT, OidcProvider, provider_of
from tests.support.realworld import until
from tests.support.relays import QUOTED_PASSWORD, USER, Relay, http_relay, socks_relay

pytestmark = pytest.mark.integration

RBAC = "rbac.authorization.k8s.io"
REVIEWS = Resource(
    group_version="authentication.k8s.io/v1",
    plural="selfsubjectreviews",
    kind="SelfSubjectReview",
    namespaced=False,
)
ROLES = Resource(group_version=f"{RBAC}/v1", plural="roles", kind="Role", namespaced=True)
BINDINGS = Resource(
    group_version=f"{RBAC}/v1", plural="rolebindings", kind="RoleBinding", namespaced=True
)
SECRETS = Resource(group_version="v1", plural="secrets", kind="Secret", namespaced=True)

STATIC_TOKEN = "a-token-of-a-static-file"


class Behind:
    """An event loop in a thread: what has to answer while tests come and go."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30.0)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@dataclass
class World:
    """An API server that takes every kind of user, and where files are put."""

    cluster: LocalCluster
    authority: Authority
    provider: OidcProvider
    behind: Behind
    folder: Path

    @property
    def server(self) -> str:
        return self.cluster.api_url

    @property
    def trust(self) -> dict[str, Any]:
        return {"certificate-authority-data": embed(self.authority.ca.pem)}

    def write(self, user: dict[str, Any], *, name: str = "kubeconfig", **cluster: Any) -> Path:
        """Write a kubeconfig for a user, whole, as a tool would."""
        settings = {"server": self.server, **(cluster or self.trust)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": settings}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        replace(self.folder / name, yaml.safe_dump(content))
        return self.folder / name

    def pair(self, user: str) -> dict[str, Any]:
        """A client certificate, embedded."""
        issued = issue(user, self.authority.ca)
        return {
            "client-certificate-data": embed(issued.pem),
            "client-key-data": embed(issued.key_pem),
        }

    def kubectl_is(self, kubeconfig: Path) -> JsonDict:
        """Ask kubectl who it is with that file."""
        said = self.cluster.kubectl(
            "auth", "whoami", f"--kubeconfig={kubeconfig}", "--output=json", timeout_seconds=120
        )
        user: JsonDict = json.loads(said)["status"]["userInfo"]
        return user


def replace(path: Path, content: str | bytes) -> None:
    """Replace a file at once: nobody reads half of it."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.rename(path)


def authority_of(cluster_files: Any) -> Authority:
    """The cluster's own authority, to sign with."""
    key = serialization.load_pem_private_key(cluster_files.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(cluster_files.certificate.read_bytes())
    return Authority(Issued(certificate, key))


def authentication(provider: OidcProvider, authority: Authority) -> JsonDict:
    """Whose tokens the API server takes, beside its own."""
    issuer = {
        "url": provider.url,
        "audiences": [CLIENT],
        "certificateAuthority": authority.ca.pem.decode(),
    }
    names = {"username": {"claim": "sub", "prefix": "oidc:"}}
    return {
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{"issuer": issuer, "claimMappings": names}],
    }


@pytest.fixture(scope="module")
def standing(
    testbed_factory: TestbedFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """An API server with its storage, and a provider whose tokens it takes."""
    folder = tmp_path_factory.mktemp("standing")
    behind, provider, outsider = Behind(), OidcProvider(), Authority()
    serving = provider_of(outsider, folder, provider)
    behind.run(serving.__aenter__())
    (folder / "tokens.csv").write_text(f'{STATIC_TOKEN},walter,7,"crew,deck"\n')
    (folder / "authentication.yaml").write_text(json.dumps(authentication(provider, outsider)))
    cluster = testbed_factory.cluster(
        ClusterSpec(
            name="credentials",
            service_range="10.106.0.0/16",
            with_controller_manager=False,
            with_scheduler=False,
            apiserver_arguments=(
                f"--token-auth-file={folder / 'tokens.csv'}",
                f"--authentication-config={folder / 'authentication.yaml'}",
            ),
        )
    )
    yield World(
        cluster=cluster,
        authority=authority_of(cluster.pki.authority),
        provider=provider,
        behind=behind,
        folder=folder,
    )
    cluster.stop()
    behind.run(serving.__aexit__(None, None, None))
    behind.close()


@pytest.fixture
def world(standing: World, tmp_path: Path) -> World:
    """The same, with a folder of the test's own."""
    return dataclasses.replace(standing, folder=tmp_path)


async def whoami(client: ClusterClient) -> JsonDict:
    """Ask the API server who it takes us for."""
    review: JsonDict = await client.create(REVIEWS, {"metadata": {}})
    user: JsonDict = review["status"]["userInfo"]
    return user


async def is_taken_for(world: World, kubeconfig: Path) -> JsonDict:
    """Return who we are with that file; kubectl must be the same."""
    client = await connect(kubeconfig, name="credentials", environ={"PATH": "/usr/bin:/bin"})
    try:
        found = await whoami(client)
    finally:
        await client.aclose()
    theirs = await asyncio.to_thread(world.kubectl_is, kubeconfig)
    for one in (found, theirs):
        one["groups"] = sorted(one["groups"])
        # Each certificate and token has an id; plugins and providers give kubectl another one.
        one.get("extra", {}).pop("authentication.kubernetes.io/credential-id", None)
    assert found == theirs
    return found


@asynccontextmanager
async def admin_of(world: World) -> AsyncIterator[ClusterClient]:
    client = await connect(world.cluster.kubeconfig, name="admin")
    try:
        yield client
    finally:
        await client.aclose()


# --- styles ------------------------------------------------------------------------------------


def in_files(world: World) -> dict[str, Any]:
    """A client certificate in files beside the kubeconfig."""
    alice = issue("alice", world.authority.ca)
    (world.folder / "me").mkdir(exist_ok=True)
    (world.folder / "me" / "alice.crt").write_bytes(alice.pem)
    (world.folder / "alice.key").write_bytes(alice.key_pem)
    return {
        "client-certificate": "me/alice.crt",
        "client-key": str(world.folder / "alice.key"),
    }


def token_file(world: World) -> dict[str, Any]:
    (world.folder / "token").write_text(f"{STATIC_TOKEN}\n")
    return {"tokenFile": "token", "token": "an old one"}


def certificate_plugin(world: World) -> dict[str, Any]:
    alice = issue("alice", world.authority.ca)
    said = exec_credential(
        clientCertificateData=alice.pem.decode(), clientKeyData=alice.key_pem.decode()
    )
    return plugin_of(world.folder, f"print({said!r})", interactiveMode="Never")


def token_plugin(world: World) -> dict[str, Any]:
    said = exec_credential(token=STATIC_TOKEN)
    return plugin_of(world.folder, f"print({said!r})", interactiveMode="IfAvailable")


def openid_plugin(world: World) -> dict[str, Any]:
    """As kubelogin does it: a plugin that brings an id token."""
    token = world.provider.sign("jane")
    return plugin_of(
        world.folder, f"print({exec_credential(token=token)!r})", interactiveMode="Never"
    )


def openid_provider(world: World) -> dict[str, Any]:
    """kubectl's own: an id token that is over, and what renews it."""
    config = {
        "client-id": CLIENT,
        "client-secret": "s3cret",
        "id-token": world.provider.sign("jane", exp=int(time.time()) - 10),
        "refresh-token": world.provider.refresh_token,
        "idp-issuer-url": world.provider.url,
        "idp-certificate-authority-data": embed(world.provider.authority_pem),
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


def as_somebody(world: World) -> dict[str, Any]:
    admin = yaml.safe_load(world.cluster.kubeconfig.read_text())["users"][0]["user"]
    extra = {"example.org/scope": ["a", "b%c"], "reason": ["x"]}
    return {**admin, "as": "jane", "as-uid": "9", "as-groups": ["a", "b"], "as-user-extra": extra}


STYLES: dict[str, tuple[Callable[[World], dict[str, Any]], str]] = {
    "client certificate": (lambda world: world.pair("alice"), "alice"),
    "client certificate in files": (in_files, "alice"),
    "token": (lambda _: {"token": STATIC_TOKEN}, "walter"),
    "tokenFile": (token_file, "walter"),
    "exec, token": (token_plugin, "walter"),
    "exec, certificate": (certificate_plugin, "alice"),
    "exec, OpenID": (openid_plugin, "oidc:jane"),
    "auth-provider oidc": (openid_provider, "oidc:jane"),
    "as": (as_somebody, "jane"),
    "token and certificate": (lambda w: {**w.pair("alice"), "token": STATIC_TOKEN}, "alice"),
}


@pytest.mark.parametrize("style", STYLES)
async def test_c72_whoever_kubectl_is_we_are(world: World, style: str) -> None:
    """A kubeconfig makes us the very user, with the groups, that it makes kubectl."""
    user_of, expected = STYLES[style]
    found = await is_taken_for(world, world.write(user_of(world)))
    assert found["username"] == expected
    if style == "as":
        assert {"a", "b"} <= set(found["groups"])
        assert found["extra"] == {"example.org/scope": ["a", "b%c"], "reason": ["x"]}


async def test_c72_ways_to_trust_the_server(world: World) -> None:
    """An authority in a file beside the kubeconfig, none at all, and another name to expect."""
    (world.folder / "ca.crt").write_bytes(world.authority.ca.pem)
    user = {"token": STATIC_TOKEN}
    for trust in (
        {"certificate-authority": "ca.crt"},
        {"insecure-skip-tls-verify": True},
        {**world.trust, "tls-server-name": "kubernetes.default.svc"},
    ):
        assert (await is_taken_for(world, world.write(user, **trust)))["username"] == "walter"
    for distrust in (
        {"certificate-authority-data": embed(Authority().ca.pem)},
        {**world.trust, "tls-server-name": "somewhere.else"},
    ):
        path = world.write(user, **distrust)
        with pytest.raises(Unreachable):
            await is_taken_for(world, path)
        with pytest.raises(TestbedError, match=r"x509|certificate"):
            await asyncio.to_thread(world.kubectl_is, path)


@asynccontextmanager
async def relay_of(world: World, kind: str) -> AsyncIterator[Relay]:
    if kind == "socks5":
        async with socks_relay() as relay:
            yield relay
        return
    tls = world.authority.server_tls(world.folder, "proxy") if kind == "https" else None
    async with http_relay(tls) as relay:
        yield relay


@pytest.mark.parametrize("kind", ["http", "https", "socks5"])
async def test_c72_ways_through_a_proxy(world: World, kind: str) -> None:
    """`proxy-url` with a user: HTTP, HTTPS (trusted as the server is) and SOCKS5."""
    async with relay_of(world, kind) as relay:
        for password, passes in ((QUOTED_PASSWORD, True), ("wrong", False)):
            url = f"{kind}://{USER}:{password}@127.0.0.1:{relay.port}"
            path = world.write({"token": STATIC_TOKEN}, **world.trust, **{"proxy-url": url})
            if passes:
                assert (await is_taken_for(world, path))["username"] == "walter"
                assert relay.tunnels >= 2  # ours and kubectl's
            else:
                with pytest.raises(Unreachable) as caught:
                    await is_taken_for(world, path)
                assert "wrong" not in str(caught.value)
                assert relay.refused >= 1


async def test_c72_a_name_only_the_proxy_knows(world: World) -> None:
    """SOCKS5 proxies resolve names; the server's certificate has to be of that name."""
    async with socks_relay() as relay:
        url = f"socks5://{USER}:{QUOTED_PASSWORD}@127.0.0.1:{relay.port}"
        server = world.server.replace("127.0.0.1", "localhost")
        path = world.write(
            {"token": STATIC_TOKEN}, **world.trust, server=server, **{"proxy-url": url}
        )
        assert (await is_taken_for(world, path))["username"] == "walter"
        assert set(relay.asked_for) == {"localhost"}


# --- rotation ----------------------------------------------------------------------------------


@dataclass
class Running:
    """A reflector of ConfigMaps behind a proxy, requests all the time, and what came of them."""

    client: ClusterClient
    reflector: Reflector
    store: Store
    relay: Relay
    outcomes: Counter[str]
    admin: ClusterClient
    namespace: str
    made: int = 0

    async def sees_another(self) -> None:
        """Another ConfigMap is made, and is seen, on a new connection too."""
        for cut in (False, True):
            if cut:
                self.relay.cut()
            self.made += 1
            key = ObjectKey(self.namespace, f"n{self.made}")
            await self.admin.create(
                CONFIGMAPS, {"metadata": {"name": key.name}}, namespace=key.namespace
            )
            await until(lambda key=key: self.store.get(key) is not None, seconds=30)  # type: ignore[misc]

    def has_no_gap(self) -> bool:
        """Nothing was refused for good, and the collection was listed once."""
        return self.reflector.relists == 1 and self.outcomes["Unauthorized"] == 0


async def allowed(admin: ClusterClient, *users: str) -> str:
    """Make a namespace in which these users may follow and read ConfigMaps."""
    namespace = f"rotation-{uuid4().hex[:8]}"
    await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    await admin.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule]}, namespace=namespace)
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user} for user in users]
    subjects.append(
        {"apiGroup": RBAC, "kind": "Group", "name": f"system:serviceaccounts:{namespace}"}
    )
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "r"}
    binding = {"metadata": {"name": "r"}, "subjects": subjects, "roleRef": reference}
    await admin.create(BINDINGS, binding, namespace=namespace)
    return namespace


@asynccontextmanager
async def running(
    world: World,
    admin: ClusterClient,
    namespace: str,
    user: dict[str, Any],
    *,
    on_moved: Callable[[], None] | None = None,
) -> AsyncIterator[Running]:
    """Let a reflector run inside, and ask for its first ConfigMap again and again."""
    outcomes: Counter[str] = Counter()

    def observe(*, verb: str, resource: str, outcome: str, seconds: float) -> None:
        outcomes[outcome] += 1

    async with http_relay() as relay:
        path = world.write(user, **through(world, relay))
        client = await connect(path, name="target", observer=observe, on_moved=on_moved)
        store = Store()
        reflector = Reflector(
            client, CONFIGMAPS, store, name="cm", namespace=namespace, on_change=lambda _: None
        )
        await admin.create(CONFIGMAPS, {"metadata": {"name": "n0"}}, namespace=namespace)
        tasks = [
            asyncio.create_task(reflector.run()),
            asyncio.create_task(keep_asking(client, ObjectKey(namespace, "n0"))),
        ]
        try:
            async with asyncio.timeout(30):
                await reflector.synced.wait()
            yield Running(client, reflector, store, relay, outcomes, admin, namespace)
            assert not any(task.done() for task in tasks), tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.aclose()


async def keep_asking(client: ClusterClient, key: ObjectKey) -> None:
    """A refusal ends this task, and with it the test; a broken connection does not."""
    while True:
        with suppress(Unreachable):
            await client.get(CONFIGMAPS, key)
        await asyncio.sleep(0.1)


def through(world: World, relay: Relay) -> dict[str, Any]:
    url = f"http://{USER}:{QUOTED_PASSWORD}@127.0.0.1:{relay.port}"
    return {**world.trust, "proxy-url": url}


async def token_of(admin: ClusterClient, namespace: str, account: str, bound: str) -> str:
    """Ask for a token that dies with a Secret."""
    await admin.create(SECRETS, {"metadata": {"name": bound}}, namespace=namespace)
    reference = {"apiVersion": "v1", "kind": "Secret", "name": bound}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": account},
        "spec": {"expirationSeconds": 3600, "boundObjectRef": reference},
    }
    tokens = Resource(
        group_version="v1", plural=f"serviceaccounts/{account}/token", kind="X", namespaced=True
    )
    said = await admin.create(tokens, body, namespace=namespace)
    return str(said["status"]["token"])


async def is_refused(world: World, user: dict[str, Any]) -> None:
    """Wait until the API server refuses that user: it remembers whom it knew for some seconds."""
    client = await connect(world.write(user, name="old"), name="old")
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await whoami(client)
                except Unauthorized:
                    return
                await asyncio.sleep(0.25)
    finally:
        await client.aclose()


async def a_token_file_is_rewritten(world: World) -> None:
    """The token is another, the old one dies: not one request is refused, nothing is missed."""
    async with admin_of(world) as admin:
        namespace = await allowed(admin)
        await admin.create(SERVICEACCOUNTS, {"metadata": {"name": "a"}}, namespace=namespace)
        old = await token_of(admin, namespace, "a", "one")
        replace(world.folder / "token", old)
        async with running(world, admin, namespace, {"tokenFile": "token"}) as now:
            await now.sees_another()
            expiry = now.client.credential_expiry()
            assert expiry is not None
            assert abs(expiry.at - time.time() - 3600) < 60
            replace(world.folder / "token", await token_of(admin, namespace, "a", "two"))
            await dies(admin, namespace, "one")
            await is_refused(world, {"token": old})
            await now.sees_another()
            assert now.has_no_gap(), (now.reflector.relists, now.outcomes)


async def dies(admin: ClusterClient, namespace: str, bound: str) -> None:
    secret = await admin.get(SECRETS, ObjectKey(namespace, bound))
    uid = secret["metadata"]["uid"]
    await admin.delete(SECRETS, ObjectKey(namespace, bound), uid=uid)


async def a_token_dies_before_its_file_is_rewritten(world: World) -> None:
    """A 401 has the file read at once: the very request that was refused is repeated."""
    async with admin_of(world) as admin:
        namespace = await allowed(admin)
        await admin.create(SERVICEACCOUNTS, {"metadata": {"name": "a"}}, namespace=namespace)
        old = await token_of(admin, namespace, "a", "one")
        replace(world.folder / "token", old)
        path = world.write({"tokenFile": "token"})
        client = await connect(path, name="target")
        try:
            new = await token_of(admin, namespace, "a", "two")
            await dies(admin, namespace, "one")
            await is_refused(world, {"token": old})
            await client.server_url()  # has the file read, which is trusted for some seconds now
            replace(world.folder / "token", new)
            found = await whoami(client)
            assert found["username"] == f"system:serviceaccount:{namespace}:a"
        finally:
            await client.aclose()


async def a_plugins_credential_ends(world: World) -> None:
    """It is asked again before its token ends, which is refused then; nothing else happens."""
    async with admin_of(world) as admin:
        namespace = await allowed(admin, "oidc:jane")
        calls, life = world.folder / "calls", 12
        (world.folder / "next").write_text("")

        def give() -> None:
            token = world.provider.sign("jane", exp=int(time.time()) + life)
            replace(world.folder / "next", token)

        give()
        user = plugin_of(
            world.folder,
            "import datetime, json, pathlib",
            f"open({str(calls)!r}, 'a').write('x')",
            "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=12)",
            f"token = pathlib.Path({str(world.folder / 'next')!r}).read_text()",
            f"said = json.loads({exec_credential()!r})",
            "said['status'] = {'token': token, 'expirationTimestamp': end.isoformat()}",
            "print(json.dumps(said))",
        )
        async with running(world, admin, namespace, user) as now, again_and_again(give):
            first = (world.folder / "next").read_text()
            await until(lambda: len(calls.read_text()) > 1, seconds=40)
            await is_refused(world, {"token": first})
            await now.sees_another()
            assert now.has_no_gap(), (now.reflector.relists, now.outcomes)


@asynccontextmanager
async def again_and_again(work: Callable[[], None]) -> AsyncIterator[None]:
    """Do something each second meanwhile."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(1.0)
            work()

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def an_openid_token_ends(world: World) -> None:
    """The provider renews it, again and again, and no request is refused."""
    async with admin_of(world) as admin:
        namespace = await allowed(admin, "oidc:jane")
        provider, before = world.provider, len(world.provider.asked)
        async with running(world, admin, namespace, openid_provider(world)) as now:
            await until(lambda: len(provider.asked) >= before + 3, seconds=50)
            await now.sees_another()
            assert now.has_no_gap(), (now.reflector.relists, now.outcomes)


async def certificate_files_are_replaced(world: World) -> None:
    """Certificate and key, one after the other: new connections are another user's."""
    async with admin_of(world) as admin:
        namespace = await allowed(admin, "alice", "bob")
        async with running(world, admin, namespace, in_files(world)) as now:
            await now.sees_another()
            assert (await whoami(now.client))["username"] == "alice"
            life = (datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(days=9))
            bob = issue("bob", world.authority.ca, life=life)
            replace(world.folder / "me" / "alice.crt", bob.pem)
            await asyncio.sleep(6.0)  # long enough that the pair is read while it does not fit
            replace(world.folder / "alice.key", bob.key_pem)
            async with asyncio.timeout(40):
                while (await whoami(now.client))["username"] != "bob":  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            expiry = now.client.credential_expiry()
            assert expiry is not None
            assert abs(expiry.at - life[1].timestamp()) < 2
            await now.sees_another()
            assert now.has_no_gap(), (now.reflector.relists, now.outcomes)


async def the_whole_file_is_replaced(world: World) -> None:
    """Another user of the same server is taken on; another authority means another client."""
    async with admin_of(world) as admin:
        namespace = await allowed(admin, "alice", "walter")
        moved: list[float] = []
        tell = lambda: moved.append(time.monotonic())  # noqa: E731
        async with running(world, admin, namespace, world.pair("alice"), on_moved=tell) as now:
            await now.sees_another()
            world.write({"token": STATIC_TOKEN}, **through(world, now.relay))
            async with asyncio.timeout(40):
                while (await whoami(now.client))["username"] != "walter":  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            await now.sees_another()
            assert now.has_no_gap(), (now.reflector.relists, now.outcomes)
            assert not moved
            both = world.authority.ca.pem + Authority().ca.pem
            trust = {**through(world, now.relay), "certificate-authority-data": embed(both)}
            path = world.write({"token": STATIC_TOKEN}, **trust)
            await until(lambda: bool(moved), seconds=40)
            await now.sees_another()  # until its owner begins anew, it goes on as it was
            anew = await connect(path, name="target", environ={})
            assert (await whoami(anew))["username"] == "walter"
            await anew.aclose()


ROTATIONS = (
    a_token_file_is_rewritten,
    a_token_dies_before_its_file_is_rewritten,
    a_plugins_credential_ends,
    an_openid_token_ends,
    certificate_files_are_replaced,
    the_whole_file_is_replaced,
)


async def test_c72_credentials_rotate_under_a_running_reflector(world: World) -> None:
    """Whatever rotates, no request is refused and nothing is missed. Side by side: they wait."""
    world.provider.seconds = 14.0
    try:
        async with asyncio.TaskGroup() as group:
            for rotation in ROTATIONS:
                folder = world.folder / rotation.__name__
                folder.mkdir()
                group.create_task(rotation(dataclasses.replace(world, folder=folder)))
    finally:
        world.provider.seconds = 3600.0

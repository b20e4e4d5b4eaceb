"""As whom a pod in a target speaks to an API server, and which one it is told of (C31, C32).

With identity `hub` it is itself: as in test_companions each pod runs twice, on a real node of the
hub and through the virtual node. With identity `target` it is who the target lets it be: beside it
runs a pod that somebody made in the target itself.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest
import yaml
from kubernetes.dynamic.exceptions import ForbiddenError

from e2e.support.companions import COMPANION_OF, KINDS
from e2e.support.desk import Desk, Side
from e2e.support.identity import claims_of, federation, token_source, tokens_noticed
from e2e.support.manifests import APP, container, pod, pod_spec
from e2e.support.matrix import configmap, keyed, literal, quiet, secret, showing
from e2e.support.measuring import Measurements
from e2e.support.pods import annotations_of, name_of, uid_of, waiting_words
from e2e.support.twins import LAST_LINE, Both, Twins
from e2e.support.witness import Json
from e2e.support.world import Space, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "passport"
GUESTS = "visa"
"""The virtual node of identity `target`."""
CLERK = "clerk"
"""The account that the target has for its pods."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
OWN = "/given/tokens"
MOUNT = {"name": "tokens", "mountPath": OWN, "readOnly": True}

NAMES = (
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""By which programs dial the API server of their cluster, at port 443."""

LIFE_SECONDS = 600
"""As short as API servers let a token's life be."""
SOON = 0.02
"""The part of its life after which a token is renewed in most of these tests: 12 s."""

HOUSE = "house"
"""What the target shares with them, by configuration. The hub has objects of that name too."""

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
    places = testbed_factory.places
    document = federation(NODE, hub=hub, target=target, places=places, tokenRenewal=SOON)
    document["virtualNodes"].append(for_guests(document["virtualNodes"][0]))
    file.write_text(yaml.safe_dump(document))
    with worlds.world(node=NODE, hub=hub, target=target, config=file, also=[GUESTS]) as world:
        space = Space(world, "identity")
        space.open()
        found = Twins(desk=Desk.of(space, hub=hub, target=target), nodes=(hub.node_name, NODE))
        grant(space)
        start_others(found)
        asking = asking_about(space.namespace)
        shown = showing(ACCOUNT, OWN, volumeMounts=[MOUNT])
        user = {"runAsUser": 1234, "runAsGroup": 3000, "fsGroup": 2000, "runAsNonRoot": True}
        for name, context in (("plain", {}), ("owned", user)):
            fields = account(initContainers=[asking], containers=[shown])
            found.create(name, securityContext=context, **fields)
        space.create(renewing(NODE))
        found.desk.wait_served()
        let_guests_in(space)
        yield found
        space.close()
        space.target.delete("Namespace", "", space.target_namespace)


def for_guests(node: Json) -> Json:
    """Render a virtual node of the same target that gives its pods an account there."""
    shared = [{"kind": kind, "name": HOUSE} for kind in KINDS]
    kept = {key: node[key] for key in ("target", "nodeAddress")}
    identity = {"identity": "target", "targetServiceAccount": CLERK}
    return {"nodeName": GUESTS, "shared": shared, **kept, **identity}


def account(**more: object) -> Json:
    """Render the fields of a pod that is `robot`, and has a token of its own wish."""
    volume = {"name": "tokens", "projected": {"sources": [vaults(), told()]}}
    return {
        "serviceAccountName": "robot",
        "enableServiceLinks": False,
        "volumes": [volume],
        **more,
    }


def asking_about(namespace: str) -> Json:
    """Render a container that asks the API server it is told of for what it may and may not see."""
    paths = (
        f"/api/v1/namespaces/{namespace}/{path}" for path in ("configmaps/settings", "secrets")
    )
    return container(name="asking", command=[APP, "ask", *paths])


def renewing(node: str) -> Json:
    """Render a pod that notices each of its tokens."""
    notices = container(command=[APP, "notice", f"{OWN}/vault"], volumeMounts=[MOUNT])
    return pod("renewing", pod_spec(node, **account(containers=[notices])))


def grant(space: Space) -> None:
    """Let the account of the hub read one ConfigMap there, and nothing else."""
    space.create(configmap("settings", {"word": "one"}))
    for body in reader("robot", space.namespace):
        space.create(body)
    wait_for(
        "the account is there", lambda: space.hub.get("ServiceAccount", space.namespace, "robot")
    )


def reader(name: str, namespace: str) -> Iterator[Json]:
    """Render an account that may read one ConfigMap of its namespace."""
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"]}
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    yield {**about, "kind": "Role", "rules": [{**rule, "verbs": ["get"]}]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    yield {**about, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}


def vaults() -> Json:
    """Render a token of the pod's own wish."""
    return token_source("vault", "vault", seconds=LIFE_SECONDS)


def told() -> Json:
    """Render a source beside the token's."""
    item = {"path": "whose", "fieldRef": {"fieldPath": "metadata.name"}}
    return {"downwardAPI": {"items": [item]}}


def start_others(twins: Twins) -> None:
    """Start what single tests are about."""
    space = twins.space
    for body in services():
        space.create(body)
    space.create(configmap("words", {"WEB_SERVICE_PORT": "from a ConfigMap"}))
    twins.create("linked", **linked())
    twins.create("unlinked", **linked(), enableServiceLinks=False)
    for kind, name in ((configmap, HOUSE), (secret, HOUSE), (secret, "private")):
        space.create(kind(name, {"word": "the hub's"}))
    callers = [by_name(space.namespace, number) for number in range(len(NAMES))]
    twins.create("caller", **account(initContainers=callers))
    space.create(pod("visitor", pod_spec(GUESTS, **visiting(space))))
    space.create(pod("silent", pod_spec(GUESTS, **quiet(containers=[showing(ACCOUNT)]))))


@pytest.mark.parametrize("name", ["plain", "owned"])
def test_the_hub_knows_the_pod_by_its_own_account(twins: Twins, name: str) -> None:
    """What the account may do on the hub it may do from the target, and nothing more."""
    here, there = twins.wait(name, "were answered", lambda one: answers(twins, one))
    assert there == here
    assert_reader(there, f"{twins.space.namespace}:robot")


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_the_names_of_the_api_server_are_the_hubs(twins: Twins, number: int) -> None:
    """Who dials a name at port 443 meets the hub's API server, by its certificate and its words."""
    asking = named(number)
    here, there = twins.wait(
        "caller", "were answered", lambda one: answers(twins, one, container=asking)
    )
    assert there == here
    assert_reader(there, f"{twins.space.namespace}:robot")


def test_the_way_to_the_hub_is_one_service_of_the_target(twins: Twins) -> None:
    """Marked and owned as all that federate makes there; mirrors carry its address."""
    space = twins.space
    mirror = space.read_mirror(twins.names("caller")[1])
    [door] = space.target.list(
        "Service", space.target_namespace, labels="federate.dev/companion=hub-api"
    )
    assert [alias["ip"] for alias in mirror["spec"]["hostAliases"]] == [door["spec"]["clusterIP"]]
    [owner] = door["metadata"]["ownerReferences"]
    [mirrors_owner] = mirror["metadata"]["ownerReferences"]
    assert owner["uid"] == mirrors_owner["uid"]


def named(number: int) -> str:
    """Name the container that asks by one of the names."""
    return f"asking-{number}"


def by_name(namespace: str, number: int) -> Json:
    """Render a container that asks what it may see of the API server that has this name."""
    told = [
        literal("KUBERNETES_SERVICE_HOST", NAMES[number]),
        literal("KUBERNETES_SERVICE_PORT", "443"),
    ]
    return {**asking_about(namespace), "name": named(number), "env": told}


def answers(twins: Twins, hub_pod: Json, *, container: str = "asking") -> list[str] | None:
    """Return what the API server answered, once it did."""
    lines = twins.in_words(hub_pod, logs(twins.desk.hub, name_of(hub_pod), container))
    return lines if len(lines) == 2 else None


def logs(side: Side, name: str, container: str) -> list[str]:
    """Return what a container has said so far."""
    return side.run("logs", name, f"--container={container}").stdout.decode().splitlines()


def assert_reader(answers: list[str], account: str) -> None:
    """Make sure that somebody was answered as that account, which may read one ConfigMap."""
    allowed, denied = answers
    assert " 200 ConfigMap" in allowed
    assert " 403 Status" in denied
    assert f"system:serviceaccount:{account}" in denied


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
    twins.shown("plain")
    for hub_pod in twins.pods("plain"):
        lines = logs(twins.desk.hub, name_of(hub_pod), "main")
        for path, audience in ((f"{OWN}/vault", ["vault"]), (f"{ACCOUNT}/token", None)):
            claims = claims_of(content_of(lines, path))
            assert claims["kubernetes.io"]["pod"]["uid"] == uid_of(hub_pod)
            assert claims["kubernetes.io"]["serviceaccount"]["name"] == "robot"
            if audience:
                assert claims["aud"] == audience
                assert claims["exp"] - claims["iat"] == LIFE_SECONDS
            assert claims["exp"] > time.time()


def test_tokens_are_renewed_in_the_running_container(twins: Twins, measured: Measurements) -> None:
    """A container that goes on finds a later token in the same file."""
    space, began = twins.space, time.monotonic()
    space.wait_running("renewing")
    turn = count()

    def renewed() -> list[tuple[float, Json]] | None:
        # A kubelet looks at a changed pod at once, and at others every minute or so.
        body = {"metadata": {"annotations": {"example.com/turn": str(next(turn))}}}
        space.hub.patch("Pod", space.namespace, "renewing", body)
        found = tokens_noticed(logs(twins.desk.hub, "renewing", "main"))
        return found if len(found) > 1 else None

    (_, first), (_, second) = space.wait("a second token", renewed)[:2]
    measured.note("second token", f"after {time.monotonic() - began:.0f} s")
    assert second["iat"] > first["iat"]
    assert second["kubernetes.io"] == first["kubernetes.io"]
    running = space.pod("renewing")
    assert running is not None and running["status"]["containerStatuses"][0]["restartCount"] == 0


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


# -- the environment of Services -------------------------------------------------------------------


def services() -> Iterator[Json]:
    """Render Services of all kinds that a kubelet tells of, or does not."""
    web = [{"name": "http", "port": 80}, {"name": "web-metrics", "port": 9100, "protocol": "TCP"}]
    dns = [{"name": n, "port": 53, "protocol": n.upper()} for n in ("udp", "tcp")]
    for name, spec in {
        "web": {"ports": web},
        "my-db": {"ports": [{"port": 5432}]},
        "dns": {"ports": dns},
        "headless": {"clusterIP": "None", "ports": [{"port": 80}]},
        "elsewhere": {"type": "ExternalName", "externalName": "example.com"},
    }.items():
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def linked() -> Json:
    """Render a pod that is told of Services, and says some of it otherwise; `again` may end."""
    told: Json = {
        "env": [
            literal("DNS_PORT", "my own"),
            literal("WHERE", "$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT_WEB_METRICS) $(DNS_PORT)"),
            literal("WHOSE", "$(WEB_SERVICE_PORT) $(MY_DB_PORT_5432_TCP) $(HEADLESS_SERVICE_HOST)"),
        ],
        "envFrom": [{"configMapRef": {"name": "words"}}],
    }
    containers = [showing(**told), showing(name="again", **told)]
    return {"automountServiceAccountToken": False, "containers": containers}


@pytest.mark.parametrize("name", ["linked", "unlinked"])
def test_containers_are_told_of_the_hubs_services(twins: Twins, name: str) -> None:
    """Variable by variable as on a real node, and of the API server at its advertised address."""
    here, there = told_of_services(twins, twins.shown(name))
    assert there == here
    assert 'variable KUBERNETES_SERVICE_PORT "<port>"' in there
    links = [
        line for line in there if line.startswith(("variable WEB_SERVICE_HOST", "variable DNS"))
    ]
    assert len(links) > (10 if name == "linked" else 0)
    assert ("variable WEB_SERVICE_HOST" in "".join(there)) is (name == "linked")


def told_of_services(twins: Twins, shown: Both) -> Both:
    """Put words for the addresses of the API server, which are not the same on purpose."""
    service = twins.space.hub.get("Service", "default", "kubernetes")
    assert service is not None
    advertised = configured_address(twins)
    # What the target's kubelet says of its own API server under names that have the port in them.
    left_over = re.compile("variable KUBERNETES_PORT_443_TCP")
    there = [line for line in shown.there if not left_over.match(line)]
    return Both(
        with_words(shown.here, (service["spec"]["clusterIP"], "443")),
        with_words(there, advertised),
    )


def configured_address(twins: Twins) -> tuple[str, str]:
    config = twins.space.world.federate.options.config
    assert config is not None
    node = yaml.safe_load(config.read_text())["virtualNodes"][0]
    host, _, port = node["hubAddress"].partition(":")
    return host, port


def with_words(lines: list[str], address: tuple[str, str]) -> list[str]:
    """Put words for host and port in what is said of the API server; sorted anew."""
    words = dict(zip(address, ("<host>", "<port>"), strict=True))
    said = re.compile("|".join(rf"(?<![\d.]){re.escape(word)}(?![\d.])" for word in address))

    def worded(line: str) -> str:
        is_about = line.startswith("variable KUBERNETES_")
        return said.sub(lambda found: words[found[0]], line) if is_about else line

    return sorted(map(worded, lines))


def test_a_new_service_is_told_at_the_next_start(twins: Twins) -> None:
    """A container that starts again is told of what came since, as on a real node."""
    twins.wait_running("linked")
    spec = {"ports": [{"port": 8080}]}
    twins.space.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "late"}, "spec": spec}
    )
    twins.space.wait("the target knows of it", lambda: "LATE_PORT" in environment_brought(twins))
    for twin in twins.names("linked"):
        ended = twins.desk.hub.run("exec", twin, "--container=again", "--", APP, "end")
        # What ends a container may be ended with it before it is done.
        assert ended.returncode in (0, 137), ended

    def told(hub_pod: Json) -> list[str] | None:
        lines = logs(twins.desk.hub, name_of(hub_pod), "again")
        found = [line for line in lines if line.startswith("variable LATE_")]
        return found if found and lines[-1] == LAST_LINE else None

    here, there = twins.wait("linked", "are told of it", told)
    assert there == here


def environment_brought(twins: Twins) -> Json:
    """Read what the target has of the environment of Services for pods that want all of it."""
    space = twins.space
    found = space.target.list("ConfigMap", space.target_namespace)
    (brought,) = [each for each in found if name_of(each).startswith("services-linked-")]
    data: Json = brought["data"]
    return data


# -- the target's own account ----------------------------------------------------------------------


def visiting(space: Space, *, account: str = "robot") -> Json:
    """Render a pod that asks its API server, and names what the target shares and what not."""
    env = [keyed(f"{kind.upper()}", kind, HOUSE, "word") for kind in KINDS]
    env.append(keyed("PRIVATE", "Secret", "private", "word"))
    volume = {"name": "tokens", "projected": {"sources": [vaults(), told()]}}
    shown = showing(ACCOUNT, OWN, env=env, volumeMounts=[MOUNT])
    return {
        "serviceAccountName": account,
        "enableServiceLinks": False,
        "volumes": [volume],
        "initContainers": [asking_about(space.target_namespace)],
        "containers": [shown],
    }


def test_a_pod_is_in_the_target_who_the_target_lets_it_be(twins: Twins) -> None:
    """Once the target has the account, it is in all a pod of that account made there."""
    space, side = twins.space, twins.desk.target
    space.wait_running("visitor")
    mirror = space.read_mirror("visitor")

    answers = [logs(side, name, "asking") for name in ("visitor", "native")]
    assert answers[0] == answers[1]
    assert_reader(answers[0], f"{space.target_namespace}:{CLERK}")

    shown = [shown_there(twins, name) for name in ("visitor", "native")]
    both = Both(shown[1], shown[0]).without((r"content \S+/(token|vault) ", "variable PRIVATE "))
    assert both.there == both.here
    assert {'variable SECRET "the target\'s"', 'variable CONFIGMAP "the target\'s"'} <= {*shown[0]}
    assert 'variable PRIVATE "the hub\'s"' in shown[0]
    assert 'variable PRIVATE "the target\'s"' in shown[1]

    for path, audience in ((f"{OWN}/vault", ["vault"]), (f"{ACCOUNT}/token", None)):
        claims = claims_of(content_of(shown[0], path))
        assert claims["kubernetes.io"]["pod"]["name"] == "visitor"
        assert claims["kubernetes.io"]["pod"]["uid"] == uid_of(mirror)
        assert claims["kubernetes.io"]["serviceaccount"]["name"] == CLERK
        assert audience is None or claims["aud"] == audience


def let_guests_in(space: Space) -> None:
    """Do what the target's admin does for guests, who wait; run a pod of their account there."""
    waits = space.wait_waiting("visitor", "ServiceAccountMissing")
    assert CLERK in waiting_words(waits)
    namespace = space.target_namespace
    space.target.create(configmap("settings", {"word": "two"}), namespace)
    for kind, name in ((configmap, HOUSE), (secret, HOUSE), (secret, "private")):
        space.target.create(kind(name, {"word": "the target's"}), namespace)
    for body in reversed([*reader(CLERK, namespace)]):
        space.target.create(body, namespace)
    spec = {**visiting(space, account=CLERK), "terminationGracePeriodSeconds": 1}

    def made() -> Json | None:
        with suppress(ForbiddenError):  # its account is not known everywhere yet
            return space.target.create(pod("native", spec), namespace)
        return None

    space.wait("the target takes a pod of the account", made)


def shown_there(twins: Twins, name: str) -> list[str]:
    """Return what a pod of the target shows of itself, its facts put in words."""

    def whole() -> list[str] | None:
        lines = logs(twins.desk.target, name, "main")
        return lines if lines[-1:] == [LAST_LINE] else None

    lines = twins.space.wait(f"{name} shows all", whole)
    return twins.in_words(twins.space.read_mirror(name), lines)


def content_of(lines: list[str], path: str) -> str:
    """Return what a file has, by what was shown of it."""
    (found,) = [line for line in lines if line.startswith(f"content {path} ")]
    return found.split(" ", 2)[2].strip('"')


def test_who_wants_no_token_is_given_none_in_the_target(twins: Twins) -> None:
    """A pod that mounts no token on the hub has none of the target's account either."""
    twins.space.wait_running("silent")
    mirror = twins.space.read_mirror("silent")
    assert mirror["spec"]["serviceAccountName"] == CLERK
    missing = f"file {ACCOUNT} cannot be read: no such file or directory"
    assert missing in shown_there(twins, "silent")

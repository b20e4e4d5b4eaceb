"""The default policy and the PodSecurity admission of real API servers say the same of any pod.

Random pods, and one for each check and each place, are put to both: to a server's admission by a
dry run in a namespace of level `baseline`, and to the policy as the hub's API server made them. Two
minors, since the checks grow.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings

from e2e.testbed.api import Api
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.model.objects import JsonDict, JsonObject, copied
from federate.policy.hostside import RULED_ELSEWHERE
from federate.policy.level import level_of
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.topics import TOPIC_OF, TOPICS
from federate.policy.verdict import (
    applied,
    applied_annotations,
    applied_debugger,
    judge_debugger,
    refusals_of,
)
from tests.support.askingpods import CONTAINER_CONTEXT, pods

pytestmark = pytest.mark.integration

NEXT = ClusterSpec(
    name="spec-fields-next", minor="1.36", with_controller_manager=False, with_scheduler=False
)
DEFAULT = PolicyRules()
STRIPPED = PolicyRules(outcomes={topic.key: Outcome.STRIP for topic in TOPICS})
LAW = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=False,
)
STRATEGIC = "application/strategic-merge-patch+json"
FORBIDDEN = 403
INVALID = 422


class InvalidPod(Exception):
    """A server takes no such pod anywhere: a random one of that kind is no example."""


@dataclass
class Server:
    """One API server, asked over one connection."""

    api: Api
    minor: str
    said: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        context = ssl.create_default_context(cafile=str(self.api.authority))
        context.load_cert_chain(self.api.user.certificate, self.api.user.key)
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", self.api.port, timeout=30, context=context
        )

    def close(self) -> None:
        self._connection.close()

    def ask(
        self, verb: str, path: str, body: JsonObject, media_type: str = "application/json"
    ) -> tuple[int, JsonDict]:
        self._connection.request(verb, path, json.dumps(body), {"Content-Type": media_type})
        answer = self._connection.getresponse()
        found: JsonDict = json.loads(answer.read())
        return answer.status, found

    def made(self, level: str, pod: JsonObject) -> JsonDict | None:
        """What the server makes of a pod in a namespace of that level; None: it is refused."""
        path = f"/api/v1/namespaces/{level}/pods?dryRun=All"
        status, found = self.ask("POST", path, pod)
        return self._admitted(status, found)

    def debugs(self, level: str, name: str, debugger: JsonObject) -> bool:
        """Tell whether a debug container may be added."""
        path = f"/api/v1/namespaces/{level}/pods/{name}/ephemeralcontainers?dryRun=All"
        body = {"spec": {"ephemeralContainers": [debugger]}}
        status, found = self.ask("PATCH", path, body, STRATEGIC)
        return self._admitted(status, found) is not None

    def _admitted(self, status: int, found: JsonDict) -> JsonDict | None:
        if status == INVALID:
            raise InvalidPod(found["message"])
        if status == FORBIDDEN:
            assert "violates PodSecurity" in found["message"], found["message"]
            self.said["refused"] += 1
            return None
        assert status in (200, 201), found
        self.said["admitted"] += 1
        return found


@pytest.fixture(scope="module", params=["1.34", "1.36"])
def server(request: pytest.FixtureRequest, testbed_factory: TestbedFactory) -> Iterator[Server]:
    cluster: LocalCluster = (
        request.getfixturevalue("light_hub")
        if request.param == "1.34"
        else testbed_factory.cluster(NEXT)
    )
    found = Server(cluster.api, request.param)
    for level in ("baseline", "privileged"):
        labels = {"pod-security.kubernetes.io/enforce": level}
        namespace = {"metadata": {"name": level, "labels": labels}}
        found.ask("POST", "/api/v1/namespaces", namespace)
        account = {"metadata": {"name": "default"}}
        found.ask("POST", f"/api/v1/namespaces/{level}/serviceaccounts", account)
    yield found
    found.close()


@contextmanager
def suppress_invalid() -> Iterator[None]:
    """Let a random pod go that no server takes."""
    try:
        yield
    except InvalidPod:
        reject()


def in_user_namespace_of_1_34(server: Server, pod: JsonObject) -> bool:
    """Tell whether 1.34 and the policy may differ: it did not know yet that this is harmless."""
    return server.minor == "1.34" and any(
        (container.get("securityContext") or {}).get("procMount") == "Unmasked"
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    )


def agree(server: Server, written: JsonObject) -> None:
    """Put a pod to both, and what is left of it after stripping to the server once more."""
    hub_pod = server.made("privileged", written)
    assert hub_pod is not None
    if in_user_namespace_of_1_34(server, hub_pod):
        return
    refused = [v for v in refusals_of(hub_pod, DEFAULT) if TOPIC_OF[v.key].is_baseline]
    admitted = server.made("baseline", written)
    assert (admitted is None) == bool(refused), (hub_pod["spec"], refused)
    shaped = stripped(hub_pod)
    status, answer = server.ask("POST", "/api/v1/namespaces/baseline/pods?dryRun=All", shaped)
    assert status == 201, (answer["message"], shaped)


def stripped(hub_pod: JsonObject) -> JsonDict:
    spec = applied(hub_pod["spec"], STRIPPED)
    annotations = applied_annotations(hub_pod["metadata"].get("annotations") or {}, STRIPPED)
    return {"metadata": {"name": "web", "annotations": annotations}, "spec": spec}


def test_c26_the_default_policy_is_podsecurity_baseline(server: Server) -> None:
    """Random pods: refused there is refused here, and the other way; what is stripped is taken."""
    server.said.clear()

    @LAW
    @given(pods())
    def law(written: JsonDict) -> None:
        with suppress_invalid():
            agree(server, written)

    law()
    print(f"{server.minor}: PodSecurity said {dict(server.said)}")
    assert min(server.said["refused"], server.said["admitted"]) >= 10


def windows(**fields: Any) -> JsonDict:
    options = {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}
    container = {"name": "a", "image": "busybox"}
    spec = {"os": {"name": "windows"}, "hostNetwork": True, "containers": [container]}
    if fields.get("of") == "pod":
        return {**spec, "securityContext": {"windowsOptions": options}}
    return {
        **spec,
        "containers": [{**container, "securityContext": {"windowsOptions": options}}],
    }


def of_container(kind: str = "containers", /, **fields: Any) -> JsonDict:
    """A spec with an ordinary container and one that is not."""
    spec: JsonDict = {"containers": [{"name": "a", "image": "busybox"}]}
    spec.setdefault(kind, []).append({"name": "b", "image": "busybox", **fields})
    return spec


def of_pod(**fields: Any) -> JsonDict:
    return {"containers": [{"name": "a", "image": "busybox"}], **fields}


CONTEXTS: tuple[JsonDict, ...] = (
    {"privileged": True},
    {"privileged": False},
    {"capabilities": {"add": ["SYS_ADMIN"]}},
    {"capabilities": {"add": ["CHOWN"], "drop": ["ALL"]}},
    {"seLinuxOptions": {"type": "spc_t"}},
    {"seLinuxOptions": {"type": "container_engine_t"}},
    {"seLinuxOptions": {"user": "system_u", "level": "s0"}},
    {"seLinuxOptions": {"role": "system_r"}},
    {"seccompProfile": {"type": "Unconfined"}},
    {"appArmorProfile": {"type": "Unconfined"}},
)
HANDLERS: tuple[JsonDict, ...] = (
    {"httpGet": {"port": 80, "host": "192.0.2.1"}},
    {"tcpSocket": {"port": 80, "host": "192.0.2.1"}},
    {"tcpSocket": {"port": 80}},
)
STORAGE: JsonDict = {
    "awsElasticBlockStore": {"volumeID": "x"},
    "azureDisk": {"diskName": "x", "diskURI": "https://x.blob.core.windows.net/x/x.vhd"},
    "azureFile": {"secretName": "x", "shareName": "x"},
    "cephfs": {"monitors": ["192.0.2.1"]},
    "cinder": {"volumeID": "x"},
    "fc": {"targetWWNs": ["x"], "lun": 0},
    "flexVolume": {"driver": "example.com/x"},
    "flocker": {"datasetName": "x"},
    "gcePersistentDisk": {"pdName": "x"},
    "gitRepo": {"repository": "x"},
    "glusterfs": {"endpoints": "x", "path": "x"},
    "iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.test:x", "lun": 0},
    "nfs": {"server": "192.0.2.1", "path": "/"},
    "photonPersistentDisk": {"pdID": "x"},
    "portworxVolume": {"volumeID": "x"},
    "quobyte": {"registry": "192.0.2.1:80", "volume": "x"},
    "rbd": {"monitors": ["192.0.2.1"], "image": "x"},
    "scaleIO": {"gateway": "x", "system": "x", "volumeName": "x", "secretRef": {"name": "x"}},
    "storageos": {"volumeName": "x"},
    "vsphereVolume": {"volumePath": "x"},
}
"""Each kind of volume that the API of both minors has, and that `restricted` refuses."""
BOTH = ("initContainers", "containers")
EXAMPLES: tuple[JsonDict, ...] = (
    *(of_container(k, securityContext=c) for k in BOTH for c in CONTEXTS),
    *(of_pod(securityContext=c) for c in CONTEXTS if not {"privileged", "capabilities"} & {*c}),
    *(of_pod(**{host: True}) for host in ("hostNetwork", "hostPID", "hostIPC")),
    of_pod(hostNetwork=True) | of_container(ports=[{"containerPort": 80}]) | {"hostNetwork": True},
    *(of_container(**{p: h}) for p in ("livenessProbe", "readinessProbe") for h in HANDLERS),
    *(of_container(startupProbe=h) for h in HANDLERS),
    *(of_container("initContainers", restartPolicy="Always", startupProbe=h) for h in HANDLERS),
    *(of_container(lifecycle={k: HANDLERS[0]}) for k in ("postStart", "preStop")),
    *(of_container(k, ports=[{"containerPort": 80, "hostPort": 80}]) for k in BOTH),
    of_pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    of_pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}]),
    of_pod(volumes=[{"name": kind.lower(), kind: source} for kind, source in STORAGE.items()]),
    of_pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    of_pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
    of_pod(hostUsers=False) | of_container(securityContext={"procMount": "Unmasked"})
    | {"hostUsers": False},
    windows(of="pod"),
    windows(of="container"),
)  # fmt: skip


def test_c26_each_check_is_known_in_each_place(server: Server) -> None:
    """Every check of PodSecurity, in pods and in both kinds of containers of a create."""
    server.said.clear()
    for spec in EXAMPLES:
        agree(server, {"metadata": {"name": "web"}, "spec": spec})
    for value in ("unconfined", "runtime/default", "localhost/x"):
        annotations = {"container.apparmor.security.beta.kubernetes.io/a": value}
        hub_pod = {"metadata": {"name": "web", "annotations": annotations}, "spec": of_pod()}
        admitted = server.made("baseline", hub_pod)
        assert (admitted is None) == bool(refusals_of(hub_pod, DEFAULT)), value
    print(f"{server.minor}: PodSecurity said {dict(server.said)}")
    assert server.said["refused"] >= 40


def test_each_storage_that_a_pod_names_is_a_topic(server: Server) -> None:
    """Whatever kind of volume API servers have that is none of those that other rules are about."""
    schemas = server.ask("GET", "/openapi/v3/api/v1", {})[1]["components"]["schemas"]
    kinds = set(schemas["io.k8s.api.core.v1.Volume"]["properties"]) - {"name"}
    assert kinds - RULED_ELSEWHERE == set(STORAGE)
    assert kinds >= RULED_ELSEWHERE
    volumes = [{"name": kind.lower(), kind: source} for kind, source in STORAGE.items()]
    hub_pod = server.made(
        "privileged", {"metadata": {"name": "web"}, "spec": of_pod(volumes=volumes)}
    )
    assert hub_pod is not None
    paths = {violation.spot.path for violation in refusals_of(hub_pod, DEFAULT)}
    assert paths == {f"spec.volumes[{kind.lower()}].{kind}" for kind in STORAGE}


def test_c26_debug_containers_are_judged_as_podsecurity_does(server: Server) -> None:
    """A debug container is refused here where it is there; what is left of it is taken."""
    server.said.clear()
    pod = {"metadata": {"name": "standing"}, "spec": of_pod()}
    for level in ("baseline", "privileged"):
        server.ask("POST", f"/api/v1/namespaces/{level}/pods", pod)
    contexts = [*CONTEXTS, {"windowsOptions": {"hostProcess": False}}]

    def agree_on(context: JsonDict) -> None:
        debugger = {"name": "look", "image": "busybox", "securityContext": context}
        server.debugs("privileged", "standing", debugger)
        refused = judge_debugger(debugger, pod, DEFAULT)
        assert server.debugs("baseline", "standing", debugger) != bool(refused), context
        assert server.debugs("baseline", "standing", applied_debugger(debugger, pod, STRIPPED))

    for context in contexts:
        agree_on(context)
    assert server.said["refused"] == 7

    @LAW
    @given(CONTAINER_CONTEXT)
    def law(context: JsonDict) -> None:
        with suppress_invalid():
            agree_on(copied(context))

    law()
    print(f"{server.minor}: PodSecurity said {dict(server.said)}")


@pytest.mark.parametrize("topic", [t for t in TOPICS if t.is_baseline], ids=lambda t: t.key)
def test_c22_the_level_admits_what_the_policy_allows(topic: Any) -> None:
    """Whoever allows one thing that `baseline` refuses gets namespaces that admit it."""
    assert level_of(DEFAULT) == "baseline"
    assert level_of(PolicyRules(outcomes={topic.key: Outcome.ALLOW})) == "privileged"
    assert level_of(PolicyRules(outcomes={topic.key: Outcome.STRIP})) == "baseline"

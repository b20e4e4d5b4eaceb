"""Each topic by itself: what it finds, what it lets pass, and what is left without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from federate.model.objects import JsonDict, copied
from federate.policy.placing import PREFERRED, REQUIRED
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.topics import TOPIC_OF, TOPICS

DEFAULT = PolicyRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A spec that asks for something, where it is found, and what is left of it."""

    key: str
    spec: JsonDict
    paths: tuple[str, ...]
    left: JsonDict
    rules: PolicyRules = DEFAULT


def app(**fields: Any) -> JsonDict:
    return {"containers": [{"name": "app", **fields}]}


def confined(**fields: Any) -> JsonDict:
    return app(securityContext=fields)


def wished(**term: Any) -> JsonDict:
    return {"weight": 1, "podAffinityTerm": term}


CONTEXT = "spec.containers[app].securityContext"
HARMLESS_VOLUMES = ("configMap", "csi", "ephemeral", "image", "projected", "secret", "downwardAPI")
OF_CLASS = "deviceclass.resource.kubernetes.io/"
NEAR: JsonDict = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}

CASES = (
    Case(
        key="hostNetwork",
        spec={
            "hostNetwork": True,
            **app(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]),
        },
        paths=("spec.hostNetwork",),
        left=app(ports=[{"containerPort": 80}]),
    ),
    Case(key="hostPID", spec={"hostPID": True}, paths=("spec.hostPID",), left={}),
    Case(key="hostIPC", spec={"hostIPC": True}, paths=("spec.hostIPC",), left={}),
    Case(
        key="hostPath",
        spec={"volumes": [{"name": "logs", "hostPath": {"path": "/"}}, {"name": "x"}]},
        paths=("spec.volumes[logs].hostPath",),
        left={"volumes": [{"name": "logs", "emptyDir": {}}, {"name": "x"}]},
    ),
    Case(
        key="storageVolumes",
        spec={
            "volumes": [
                {"name": "share", "nfs": {"server": "10.0.0.1", "path": "/"}},
                {"name": "new", "quantumDisk": {"id": "7"}},
                {"name": "x", "emptyDir": {}, "nfs": None},
                *({"name": kind, kind: {}} for kind in HARMLESS_VOLUMES),
            ]
        },
        paths=("spec.volumes[share].nfs", "spec.volumes[new].quantumDisk"),
        left={
            "volumes": [
                {"name": "share", "emptyDir": {}},
                {"name": "new", "emptyDir": {}},
                {"name": "x", "emptyDir": {}, "nfs": None},
                *({"name": kind, kind: {}} for kind in HARMLESS_VOLUMES),
            ]
        },
    ),
    Case(
        key="hostPorts",
        spec=app(ports=[{"containerPort": 1}, {"containerPort": 80, "hostPort": 8080}]),
        paths=("spec.containers[app].ports[1].hostPort",),
        left=app(ports=[{"containerPort": 1}, {"containerPort": 80}]),
    ),
    Case(
        key="hostProbes",
        spec=app(
            livenessProbe={"httpGet": {"host": "x", "port": 1}, "periodSeconds": 3},
            startupProbe={"exec": {"command": ["true"]}},
            readinessProbe={"tcpSocket": {"host": "", "port": 1}},
            lifecycle={"preStop": {"tcpSocket": {"host": "y", "port": 2}}},
        ),
        paths=(
            "spec.containers[app].livenessProbe.httpGet.host",
            "spec.containers[app].lifecycle.preStop.tcpSocket.host",
        ),
        left=app(
            livenessProbe={"httpGet": {"port": 1}, "periodSeconds": 3},
            startupProbe={"exec": {"command": ["true"]}},
            readinessProbe={"tcpSocket": {"port": 1}},
            lifecycle={"preStop": {"tcpSocket": {"port": 2}}},
        ),
    ),
    Case(
        key="hostProcess",
        spec={
            "securityContext": {"windowsOptions": {"hostProcess": True}},
            **confined(windowsOptions={"hostProcess": True, "runAsUserName": "me"}),
        },
        paths=(
            "spec.securityContext.windowsOptions.hostProcess",
            f"{CONTEXT}.windowsOptions.hostProcess",
        ),
        left=confined(windowsOptions={"runAsUserName": "me"}),
    ),
    Case(
        key="privileged",
        spec={
            "containers": [
                {
                    "name": "app",
                    "securityContext": {"privileged": True},
                    "volumeMounts": [
                        {"name": "a", "mountPropagation": "Bidirectional"},
                        {"name": "b", "mountPropagation": "HostToContainer"},
                    ],
                },
                {"name": "tame", "securityContext": {"privileged": False}},
            ]
        },
        paths=(f"{CONTEXT}.privileged",),
        left={
            "containers": [
                {
                    "name": "app",
                    "volumeMounts": [
                        {"name": "a"},
                        {"name": "b", "mountPropagation": "HostToContainer"},
                    ],
                },
                {"name": "tame", "securityContext": {"privileged": False}},
            ]
        },
    ),
    Case(
        key="capabilities",
        spec=confined(capabilities={"add": ["CHOWN", "BPF", "chown"], "drop": ["ALL"]}),
        paths=(f"{CONTEXT}.capabilities.add", f"{CONTEXT}.capabilities.add"),
        left=confined(capabilities={"add": ["CHOWN"], "drop": ["ALL"]}),
    ),
    Case(
        key="capabilities",
        spec=confined(capabilities={"add": ["SYS_ADMIN"]}, runAsUser=3),
        paths=(f"{CONTEXT}.capabilities.add",),
        left=confined(runAsUser=3),
    ),
    Case(
        key="capabilities",
        spec=confined(capabilities={"add": ["SYS_PTRACE", "CHOWN"]}),
        paths=(f"{CONTEXT}.capabilities.add",),
        left=confined(capabilities={"add": ["SYS_PTRACE"]}),
        rules=PolicyRules(capabilities=frozenset({"SYS_PTRACE"})),
    ),
    Case(
        key="sysctls",
        spec={
            "securityContext": {
                "sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}],
                "fsGroup": 1,
            }
        },
        paths=("spec.securityContext.sysctls",),
        left={"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}], "fsGroup": 1}},
    ),
    Case(
        key="sysctls",
        spec={"securityContext": {"sysctls": [{"name": "net/ipv4/tcp_rmem"}]}},
        paths=("spec.securityContext.sysctls",),
        left={},
    ),
    Case(
        key="procMount",
        spec=confined(procMount="Unmasked"),
        paths=(f"{CONTEXT}.procMount",),
        left=app(),
    ),
    Case(
        key="seLinux",
        spec={
            "securityContext": {"seLinuxOptions": {"type": "spc_t"}},
            **confined(seLinuxOptions={"user": "u", "role": "r", "type": "container_t"}),
        },
        paths=(
            "spec.securityContext.seLinuxOptions.type",
            f"{CONTEXT}.seLinuxOptions.user",
            f"{CONTEXT}.seLinuxOptions.role",
        ),
        left=confined(seLinuxOptions={"type": "container_t"}),
    ),
    Case(
        key="appArmor",
        spec={
            "securityContext": {"appArmorProfile": {"type": "Unconfined"}},
            **confined(appArmorProfile={"type": "Mystery"}),
        },
        paths=("spec.securityContext.appArmorProfile.type", f"{CONTEXT}.appArmorProfile.type"),
        left=app(),
    ),
    Case(
        key="seccomp",
        spec={
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            **confined(seccompProfile={"type": "Unconfined"}, runAsUser=3),
        },
        paths=(f"{CONTEXT}.seccompProfile.type",),
        left={
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            **confined(runAsUser=3),
        },
    ),
    Case(
        key="devices",
        spec=app(
            resources={
                "limits": {"nvidia.com/gpu": "1", "cpu": "1", "amd.com/gpu": "1"},
                "requests": {"nvidia.com/gpu": "1", "kubernetes.io/batch": "1", "memory": "1"},
            }
        ),
        paths=(
            "spec.containers[app].resources.limits[nvidia.com/gpu]",
            "spec.containers[app].resources.limits[kubernetes.io/batch]",
        ),
        left=app(
            resources={
                "limits": {"cpu": "1", "amd.com/gpu": "1"},
                "requests": {"memory": "1"},
            }
        ),
        rules=PolicyRules(devices=frozenset({"amd.com/gpu"})),
    ),
    Case(
        key="devices",
        spec=app(resources={"limits": {"nvidia.com/gpu": "1"}}),
        paths=("spec.containers[app].resources.limits[nvidia.com/gpu]",),
        left=app(resources={}),
    ),
    Case(
        key="deviceClasses",
        spec=app(
            resources={
                "limits": {f"{OF_CLASS}gpu": "1", f"{OF_CLASS}nic": "1", "cpu": "1"},
                "requests": {f"{OF_CLASS}gpu": "1"},
            }
        ),
        paths=(f"spec.containers[app].resources.limits[{OF_CLASS}gpu]",),
        left=app(resources={"limits": {f"{OF_CLASS}nic": "1", "cpu": "1"}}),
        rules=PolicyRules(devices=frozenset({f"{OF_CLASS}nic"})),
    ),
    Case(
        key="otherNamespaces",
        spec={
            "affinity": {
                "podAffinity": {
                    REQUIRED: [{**NEAR, "namespaces": ["shop"]}, NEAR],
                    PREFERRED: [wished(**NEAR, namespaces=["a"])],
                },
                "podAntiAffinity": {
                    REQUIRED: [{**NEAR, "namespaceSelector": {}}],
                    PREFERRED: [wished(**NEAR, namespaces=["a", "b"])],
                },
            }
        },
        paths=("spec.affinity.podAffinity", "spec.affinity.podAntiAffinity"),
        left={
            "affinity": {
                "podAffinity": {REQUIRED: [NEAR]},
                "podAntiAffinity": {
                    REQUIRED: [NEAR],
                    PREFERRED: [wished(**NEAR)],
                },
            }
        },
    ),
    Case(
        key="otherNamespaces",
        spec={"affinity": {"podAntiAffinity": {PREFERRED: [wished(**NEAR, namespaceSelector={})]}}},
        paths=("spec.affinity.podAntiAffinity",),
        left={"affinity": {"podAntiAffinity": {PREFERRED: [wished(**NEAR)]}}},
    ),
    Case(
        key="otherNamespaces",
        spec={"affinity": {"podAffinity": {REQUIRED: [{**NEAR, "namespaces": ["shop"]}]}}},
        paths=("spec.affinity.podAffinity",),
        left={},
    ),
    Case(
        key="tolerations",
        spec={
            "tolerations": [
                {"key": "a.com/x", "operator": "Exists"},
                {"key": "b.com/x"},
                {"key": "c.com/x"},
                {"key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300},
            ]
        },
        paths=("spec.tolerations[c.com/x]",),
        left={
            "tolerations": [
                {"key": "a.com/x", "operator": "Exists"},
                {"key": "b.com/x"},
                {"key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300},
            ]
        },
        rules=PolicyRules(toleration_keys=("a.com/", "b.com/x")),
    ),
    Case(
        key="runtimeClass",
        spec={"runtimeClassName": "gvisor"},
        paths=("spec.runtimeClassName",),
        left={},
    ),
    Case(
        key="priorityClass",
        spec={"priorityClassName": "gold"},
        paths=("spec.priorityClassName",),
        left={},
        rules=PolicyRules(priority_classes={"silver": "high"}),
    ),
    Case(
        key="scheduler", spec={"schedulerName": "volcano"}, paths=("spec.schedulerName",), left={}
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_each_topic_finds_and_strips(case: Case) -> None:
    """All of it is found by its path, and what is left has nothing of it and the rest."""
    topic, before = TOPIC_OF[case.key], copied(case.spec)
    assert tuple(spot.path for spot in topic.find(case.spec, case.rules)) == case.paths
    assert all(spot.words for spot in topic.find(case.spec, case.rules))
    assert case.spec == before
    left = copied(case.spec)
    topic.strip(left, case.rules)
    assert left == case.left
    assert list(topic.find(left, case.rules)) == []


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.key)
def test_each_topic_leaves_others_alone(topic: Any) -> None:
    """What is asked for under other topics is neither found nor stripped."""
    kin = {"hostNetwork": {"hostPorts"}}.get(topic.key, set())
    for case in CASES:
        if case.key == topic.key or case.key in kin:
            continue
        spec = copied(case.spec)
        assert list(topic.find(spec, PolicyRules())) == [], case.key
        topic.strip(spec, PolicyRules())
        if case.key != "hostNetwork":
            assert spec == case.spec, case.key


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.key)
@pytest.mark.parametrize("kind", ["initContainers", "containers", "ephemeralContainers"])
def test_every_kind_of_container_is_looked_at(topic: Any, kind: str) -> None:
    """An init container or a debug container asks for the same in vain."""
    for case in CASES:
        if case.key == topic.key and "containers" in case.spec and kind != "containers":
            spec = copied(case.spec)
            spec[kind] = spec.pop("containers")
            paths = tuple(spot.path for spot in topic.find(spec, case.rules))
            assert paths == tuple(path.replace("containers", kind) for path in case.paths)
            topic.strip(spec, case.rules)
            assert list(topic.find(spec, case.rules)) == []


HARMLESS = (
    ("hostPorts", {"hostNetwork": True, **app(ports=[{"containerPort": 80, "hostPort": 80}])}),
    ("hostPorts", app(ports=[{"containerPort": 80, "hostPort": 0}])),
    ("procMount", {"hostUsers": False, **confined(procMount="Unmasked")}),
    ("procMount", confined(procMount="Default")),
    ("seLinux", confined(seLinuxOptions={"type": "", "user": "", "level": "s0"})),
    ("appArmor", confined(appArmorProfile={"type": "Localhost", "localhostProfile": "x"})),
    ("scheduler", {"schedulerName": "default-scheduler"}),
    ("tolerations", {"tolerations": [{"operator": "Exists"}]}),
    ("tolerations", {"tolerations": [{"key": "virtual-kubelet.io/provider"}]}),
    ("devices", app(resources={"limits": {"cpu": "1", "hugepages-2Mi": "1Gi"}})),
    ("storageVolumes", {"volumes": [{"name": "x"}, {"name": "y", "emptyDir": {}}]}),
    ("otherNamespaces", {"affinity": {"podAffinity": {REQUIRED: [NEAR]}, "nodeAffinity": {}}}),
    ("otherNamespaces", {"affinity": {"podAntiAffinity": None}}),
    ("privileged", {"securityContext": None, **app(securityContext=None)}),
)


@pytest.mark.parametrize(("key", "spec"), HARMLESS)
def test_what_asks_for_nothing_passes(key: str, spec: JsonDict) -> None:
    """Values that are the default, or harmless where they stand, are not found."""
    assert list(TOPIC_OF[key].find(spec, DEFAULT)) == []


def test_every_topic_has_a_case() -> None:
    """A topic that is added is tested."""
    assert {case.key for case in CASES} == set(TOPIC_OF)


def test_mapped_names_are_not_found() -> None:
    """A name that the target has another for is mapped, not stripped or refused."""
    rules = PolicyRules(
        runtime_classes={"gvisor": "runsc"}, schedulers={"volcano": "kueue", "mine": "mine"}
    )
    for spec in ({"runtimeClassName": "gvisor"}, {"schedulerName": "mine"}):
        for key in ("runtimeClass", "scheduler"):
            left = dict(spec)
            assert list(TOPIC_OF[key].find(spec, rules)) == []
            TOPIC_OF[key].strip(left, rules)
            assert left == spec


def test_defaults_equal_podsecurity_baseline_and_c21() -> None:
    """What `baseline` refuses is refused, classes stay behind, the rest travels."""
    for topic in TOPICS:
        expected = Outcome.REFUSE if topic.is_baseline else topic.default
        assert topic.outcome(DEFAULT) is expected
        assert topic.outcome(PolicyRules(outcomes={topic.key: Outcome.ALLOW})) is Outcome.ALLOW
    stripped = {t.key for t in TOPICS if t.default is Outcome.STRIP}
    assert stripped == {"runtimeClass", "priorityClass", "scheduler", "otherNamespaces"}
    stricter = {t.key for t in TOPICS if t.default is Outcome.REFUSE and not t.is_baseline}
    assert stricter == {"storageVolumes", "deviceClasses"}

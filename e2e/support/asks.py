"""What pods ask for that a policy is about, and what their mirrors have of it.

A test holds these tables to the configuration's keys: whoever adds one shows it on real clusters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .manifests import IMAGE, container
from .pods import annotations_of, labels_of
from .witness import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Something a pod asks for, where, and whether a mirror's spec has it."""

    spec: Json
    path: str
    has: Callable[[Json], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A list or map of a policy: what is in it, and a pod that asks for that and for more."""

    value: Any
    """What the configuration says."""
    has: Callable[[Json], Any]
    """Whether a mirror has it, as the target calls it."""
    spec: Json = field(default_factory=dict)
    labels: Json = field(default_factory=dict)
    annotations: Json = field(default_factory=dict)
    other: Json = field(default_factory=dict)
    """What is not in the list, and so refused by `topic`; empty: nothing ever is."""
    path: str = ""
    topic: str = ""


def main(**fields: Any) -> Json:
    """Render a spec with one container."""
    return {"containers": [container(**fields)]}


def confined(**context: Any) -> Json:
    """Render a spec whose container has that securityContext."""
    return main(securityContext=context)


def limited(*resources: str) -> Json:
    """Render a spec whose container asks for one of each."""
    return main(resources={"limits": dict.fromkeys(resources, "1")})


def setting(*sysctls: tuple[str, str]) -> Json:
    """Render a spec that sets something in the kernel."""
    named = [{"name": name, "value": value} for name, value in sysctls]
    return {"securityContext": {"sysctls": named}}


def tolerating(key: str) -> Json:
    """Render a spec that tolerates a taint."""
    return {"tolerations": [{"key": key, "operator": "Exists"}]}


def first(spec: Json) -> Json:
    """Return the first container."""
    found: Json = spec["containers"][0]
    return found


def _context(spec: Json) -> Json:
    found: Json = first(spec).get("securityContext") or {}
    return found


def _limits(spec: Json) -> Json:
    found: Json = (first(spec).get("resources") or {}).get("limits") or {}
    return found


def _tolerated(spec: Json) -> set[str]:
    return {toleration.get("key", "") for toleration in spec.get("tolerations", ())}


HOST_PORT = {"containerPort": 8080, "hostPort": 8080}
PROBE = {"httpGet": {"host": "192.0.2.1", "port": 8080}}
WINDOWS = {"windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}
OF_CLASS = "deviceclass.resource.kubernetes.io"
STORAGE = (
    {"name": "share", "nfs": {"server": "192.0.2.1", "path": "/exports"}},
    {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-of-somebody-else"}},
    {"name": "code", "gitRepo": {"repository": "https://192.0.2.1/x.git"}},
)
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "apart"}},
                "namespaceSelector": {},
            }
        ]
    }
}
MAIN = "spec.containers[main]"

ASKS: Mapping[str, Ask] = {
    "hostNetwork": Ask(
        spec={"hostNetwork": True}, path="spec.hostNetwork", has=lambda s: s.get("hostNetwork")
    ),
    "hostPID": Ask(spec={"hostPID": True}, path="spec.hostPID", has=lambda s: s.get("hostPID")),
    "hostIPC": Ask(spec={"hostIPC": True}, path="spec.hostIPC", has=lambda s: s.get("hostIPC")),
    "hostPath": Ask(
        spec={"volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]},
        path="spec.volumes[logs].hostPath",
        has=lambda s: "hostPath" in s["volumes"][0],
    ),
    "storageVolumes": Ask(
        spec={"volumes": [*STORAGE]},
        path="spec.volumes[disk].awsElasticBlockStore",
        has=lambda s: not any("emptyDir" in volume for volume in s["volumes"]),
    ),
    "hostPorts": Ask(
        spec=main(ports=[HOST_PORT]),
        path=f"{MAIN}.ports[0].hostPort",
        has=lambda s: first(s)["ports"][0].get("hostPort"),
    ),
    "hostProbes": Ask(
        spec=main(livenessProbe=PROBE),
        path=f"{MAIN}.livenessProbe.httpGet.host",
        has=lambda s: first(s)["livenessProbe"]["httpGet"].get("host"),
    ),
    "hostProcess": Ask(
        spec={"hostNetwork": True, "os": {"name": "windows"}, "securityContext": WINDOWS},
        path="spec.securityContext.windowsOptions.hostProcess",
        has=lambda s: s["securityContext"]["windowsOptions"].get("hostProcess"),
    ),
    "privileged": Ask(
        spec=confined(privileged=True),
        path=f"{MAIN}.securityContext.privileged",
        has=lambda s: _context(s).get("privileged"),
    ),
    "capabilities": Ask(
        spec=confined(capabilities={"add": ["SYS_ADMIN", "CHOWN"]}),
        path=f"{MAIN}.securityContext.capabilities.add",
        has=lambda s: "SYS_ADMIN" in _context(s)["capabilities"]["add"],
    ),
    "sysctls": Ask(
        spec=setting(("kernel.msgmax", "65536")),
        path="spec.securityContext.sysctls",
        has=lambda s: (s.get("securityContext") or {}).get("sysctls"),
    ),
    "seLinux": Ask(
        spec=confined(seLinuxOptions={"type": "spc_t"}),
        path=f"{MAIN}.securityContext.seLinuxOptions.type",
        has=lambda s: _context(s).get("seLinuxOptions"),
    ),
    "appArmor": Ask(
        spec=confined(appArmorProfile={"type": "Unconfined"}),
        path=f"{MAIN}.securityContext.appArmorProfile.type",
        has=lambda s: _context(s).get("appArmorProfile"),
    ),
    "seccomp": Ask(
        spec=confined(seccompProfile={"type": "Unconfined"}),
        path=f"{MAIN}.securityContext.seccompProfile.type",
        has=lambda s: _context(s).get("seccompProfile"),
    ),
    "devices": Ask(
        spec=limited("example.com/gpu"),
        path=f"{MAIN}.resources.limits[example.com/gpu]",
        has=_limits,
    ),
    "deviceClasses": Ask(
        spec=limited(f"{OF_CLASS}/gpu"),
        path=f"{MAIN}.resources.limits[{OF_CLASS}/gpu]",
        has=_limits,
    ),
    "otherNamespaces": Ask(
        spec={"affinity": APART},
        path="spec.affinity.podAntiAffinity",
        has=lambda s: s["affinity"].get("podAntiAffinity") == APART["podAntiAffinity"],
    ),
    "tolerations": Ask(
        spec=tolerating("example.com/old"),
        path="spec.tolerations[example.com/old]",
        has=lambda s: "example.com/old" in _tolerated(s),
    ),
    "runtimeClass": Ask(
        spec={"runtimeClassName": "sandbox"},
        path="spec.runtimeClassName",
        has=lambda s: s.get("runtimeClassName") == "sandbox",
    ),
    "priorityClass": Ask(
        spec={"priorityClassName": "gold"},
        path="spec.priorityClassName",
        has=lambda s: s.get("priorityClassName") == "gold",
    ),
    "scheduler": Ask(
        spec={"schedulerName": "volcano"},
        path="spec.schedulerName",
        has=lambda s: s.get("schedulerName") == "volcano",
    ),
}
"""Each topic but those of `NEVER_ASKED`."""

UNMASKED = confined(procMount="Unmasked")
NEVER_ASKED = frozenset({"procMount"})
"""`UNMASKED`, which API servers take with `hostUsers: false` alone: then it is harmless."""

LISTS: Mapping[str, Listed] = {
    "allowedCapabilities": Listed(
        value=["SYS_PTRACE"],
        spec=confined(capabilities={"add": ["SYS_PTRACE"]}),
        has=lambda m: _context(m["spec"])["capabilities"]["add"] == ["SYS_PTRACE"],
        other=confined(capabilities={"add": ["CHOWN"]}),
        path=f"{MAIN}.securityContext.capabilities.add",
        topic="capabilities",
    ),
    "allowedSysctls": Listed(
        value=["kernel.msgmax"],
        spec=setting(("kernel.msgmax", "65536")),
        has=lambda m: m["spec"]["securityContext"]["sysctls"],
        other=setting(("net.ipv4.tcp_syncookies", "1")),
        path="spec.securityContext.sysctls",
        topic="sysctls",
    ),
    "allowedDevices": Listed(
        value=["example.com/gpu", f"{OF_CLASS}/gpu"],
        spec=limited("example.com/gpu", f"{OF_CLASS}/gpu"),
        has=lambda m: len(_limits(m["spec"])) == 2,
        other=limited(f"{OF_CLASS}/nic"),
        path=f"{MAIN}.resources.limits[{OF_CLASS}/nic]",
        topic="deviceClasses",
    ),
    "allowedTolerations": Listed(
        value=["example.com/"],
        spec=tolerating("example.com/old"),
        has=lambda m: "example.com/old" in _tolerated(m["spec"]),
        other=tolerating("example.net/old"),
        path="spec.tolerations[example.net/old]",
        topic="tolerations",
    ),
    "runtimeClasses": Listed(
        value={"sandbox": "vault"},
        spec={"runtimeClassName": "sandbox"},
        has=lambda m: m["spec"].get("runtimeClassName") == "vault",
        other={"runtimeClassName": "vault"},
        path="spec.runtimeClassName",
        topic="runtimeClass",
    ),
    "priorityClasses": Listed(
        value={"gold": "high"},
        spec={"priorityClassName": "gold"},
        has=lambda m: m["spec"].get("priorityClassName") == "high" and m["spec"]["priority"] == 7,
        other={"priorityClassName": "high"},
        path="spec.priorityClassName",
        topic="priorityClass",
    ),
    "schedulers": Listed(
        value={"volcano": "kueue"},
        spec={"schedulerName": "volcano"},
        has=lambda m: m["spec"].get("schedulerName") == "kueue",
        other={"schedulerName": "kueue"},
        path="spec.schedulerName",
        topic="scheduler",
    ),
    "nodeKeys": Listed(
        value={"acme.test/pool": "cloud.test/nodepool"},
        spec={"nodeSelector": {"acme.test/pool": "a", "acme.test/rack": "b"}},
        has=lambda m: m["spec"].get("nodeSelector") == {"cloud.test/nodepool": "a"},
    ),
    "images": Listed(
        value=[{"from": "federate.test", "to": "edge.test:5000/hub"}],
        spec=main(image=IMAGE),
        has=lambda m: first(m["spec"])["image"] == "edge.test:5000/hub/app:1",
    ),
    "deniedLabels": Listed(
        value=["inject.test/"],
        labels={"inject.test/on": "yes", "app": "web"},
        annotations={"inject.test/on": "yes"},
        has=lambda m: (
            "inject.test/on" not in labels_of(m)
            and labels_of(m)["app"] == "web"
            and "inject.test/on" in annotations_of(m)
        ),
    ),
    "deniedAnnotations": Listed(
        value=["note.test/secret"],
        labels={"note.test/secret": "yes"},
        annotations={"note.test/secret": "yes", "note.test/other": "yes"},
        has=lambda m: (
            "note.test/secret" not in annotations_of(m)
            and "note.test/other" in annotations_of(m)
            and "note.test/secret" in labels_of(m)
        ),
    ),
    "allowedMetadata": Listed(
        value=["spiffe.io/"],
        labels={"spiffe.io/spiffe-id": "web", "aadpodidbinding": "admin"},
        annotations={
            "iam.amazonaws.com/role": "admin",
            "vault.hashicorp.com/agent-inject": "true",
            "prometheus.io/scrape": "true",
        },
        has=lambda m: (
            labels_of(m).get("spiffe.io/spiffe-id") == "web"
            and "aadpodidbinding" not in labels_of(m)
            and annotations_of(m).get("prometheus.io/scrape") == "true"
            and not {"iam.amazonaws.com/role", "vault.hashicorp.com/agent-inject"}
            & {*annotations_of(m)}
        ),
    ),
}
"""Each list and map but `namespaces`: what it refuses is a pod of elsewhere, whatever it asks."""

CLASSES: tuple[Json, ...] = (
    *(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": "runc",
        }
        for name in ("sandbox", "vault")
    ),
    *(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("gold", 5), ("high", 7))
    ),
)
"""What pods name has to be there, on the hub and where it is allowed."""


def everything(outcome: str) -> Json:
    """Render a policy with that outcome for each topic."""
    return dict.fromkeys([*ASKS, *NEVER_ASKED], outcome)

"""Pods that ask for much, or for a little: random ones, most of which an API server takes as valid.

What needs something else to be valid comes with it often enough.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from federate.model.objects import JsonDict

CAPABILITIES = ("CHOWN", "NET_RAW", "SYS_ADMIN", "ALL", "NET_BIND_SERVICE", "CAP_CHOWN", "chown")
SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "kernel.msgmax",
    "net.core.somaxconn",
)
PROFILES = (
    {"type": "RuntimeDefault"},
    {"type": "Localhost", "localhostProfile": "mine"},
    {"type": "Unconfined"},
)
WORDS = ("runtime/default", "localhost/mine", "unconfined")
VOLUMES: JsonDict = {
    "data": {"emptyDir": {}},
    "host": {"hostPath": {"path": "/var/log"}},
    "share": {"nfs": {"server": "192.0.2.1", "path": "/"}},
}
RESOURCES = ("example.com/gpu", "deviceclass.resource.kubernetes.io/gpu")
HOSTS = st.sampled_from([None, None, "192.0.2.1"])


def rarely(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw nothing in most cases: of many questions few are to be asked at once."""
    return st.integers(0, 9).flatmap(lambda n: strategy if n == 0 else st.none())


def _some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[JsonDict]:
    """Draw a mapping of the fields that are not None."""
    return st.fixed_dictionaries(fields).map(
        lambda drawn: {name: value for name, value in drawn.items() if value is not None}
    )


SELINUX = _some(
    {
        "type": rarely(st.sampled_from(["container_t", "container_engine_t", "spc_t"])),
        "user": rarely(st.sampled_from(["", "system_u"])),
        "role": rarely(st.sampled_from(["", "system_r"])),
        "level": st.just("s0:c1,c2"),
    }
)
PROFILE = st.sampled_from(PROFILES)
SOURCES = {
    "seccompProfile": rarely(PROFILE),
    "appArmorProfile": rarely(PROFILE),
    "seLinuxOptions": rarely(SELINUX),
}
CONTAINER_CONTEXT = _some(
    {
        **SOURCES,
        "privileged": rarely(st.booleans()),
        "procMount": rarely(st.sampled_from(["Default", "Unmasked"])),
        "capabilities": rarely(
            _some({"add": st.lists(st.sampled_from(CAPABILITIES), max_size=3, unique=True)})
        ),
        "runAsUser": rarely(st.just(0)),
    }
)
POD_CONTEXT = _some(
    {
        **SOURCES,
        "sysctls": rarely(
            st.lists(st.sampled_from(SYSCTLS), min_size=1, max_size=2, unique=True).map(
                lambda names: [{"name": name, "value": "1"} for name in names]
            )
        ),
    }
)


@st.composite
def handlers(draw: st.DrawFn) -> JsonDict:
    """A call that a probe makes."""
    call: JsonDict = {"port": 8080}
    if host := draw(HOSTS):
        call["host"] = host
    return {draw(st.sampled_from(["httpGet", "tcpSocket"])): call}


@st.composite
def containers(draw: st.DrawFn, name: str, *, volumes: list[str]) -> JsonDict:
    """An ordinary container, with a mount of each volume."""
    context = draw(CONTAINER_CONTEXT)
    container: JsonDict = {"name": name, "image": "busybox", "securityContext": context}
    if draw(st.booleans()):
        port: JsonDict = {"containerPort": 8080}
        if host_port := draw(rarely(st.just(8080))):
            port |= {"hostPort": host_port, "hostIP": "127.0.0.1"}
        container["ports"] = [port]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if handler := draw(rarely(handlers())):
            container[probe] = handler
    if handler := draw(rarely(handlers())):
        hook = draw(st.sampled_from(["postStart", "preStop"]))
        container["lifecycle"] = {hook: {"httpGet": next(iter(handler.values()))}}
    container["volumeMounts"] = [
        {"name": volume, "mountPath": f"/{volume}", "mountPropagation": propagation}
        if (propagation := _propagation(draw, context))
        else {"name": volume, "mountPath": f"/{volume}"}
        for volume in volumes
    ]
    if gpus := draw(rarely(st.sampled_from(["1", "2"]))):
        resource = draw(st.sampled_from(RESOURCES))
        container["resources"] = {"limits": {resource: gpus, "cpu": "2"}}
    return container


@st.composite
def affinities(draw: st.DrawFn) -> JsonDict:
    """Required or preferred, to pods of the own namespace and of others."""
    others: list[JsonDict] = [{}, {"namespaces": ["a", "b"]}, {"namespaceSelector": {}}]
    term = {"topologyKey": "zone", **draw(st.sampled_from(others))}
    rules = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
    }
    rule = draw(st.sampled_from(sorted(rules)))
    return {draw(st.sampled_from(["podAffinity", "podAntiAffinity"])): {rule: rules[rule]}}


def _propagation(draw: st.DrawFn, context: JsonDict) -> str | None:
    kinds = ["HostToContainer", *(["Bidirectional"] if context.get("privileged") else [])]
    drawn: str | None = draw(st.none() | st.sampled_from(kinds))
    return drawn


@st.composite
def pods(draw: st.DrawFn) -> JsonDict:
    """A pod as a user writes it."""
    volumes = draw(st.sampled_from([[], [], ["data"], ["data", "host"], ["share"]]))
    spec: JsonDict = {"securityContext": draw(POD_CONTEXT), "automountServiceAccountToken": False}
    spec["containers"] = [
        draw(containers(name, volumes=volumes)) for name in draw(st.sampled_from(["a", "ab"]))
    ]
    if draw(st.booleans()):
        # Without probes: only those of sidecars may have some.
        setup = draw(containers("setup", volumes=[]))
        kept = ("name", "image", "securityContext", "ports", "resources")
        spec["initContainers"] = [{k: v for k, v in setup.items() if k in kept}]
    spec["volumes"] = [{"name": name, **VOLUMES[name]} for name in volumes]
    if affinity := draw(rarely(affinities())):
        spec["affinity"] = affinity
    for field in ("hostPID", "hostIPC", "hostNetwork"):
        if (drawn := draw(rarely(st.booleans()))) is not None:
            spec[field] = drawn
    if any((c.get("securityContext") or {}).get("procMount") == "Unmasked" for c in _all(spec)):
        # Only valid where root in the container is nobody on the node.
        for field in ("hostPID", "hostIPC", "hostNetwork"):
            spec.pop(field, None)
        spec["hostUsers"] = False
    for field, names in (("tolerations", _tolerations(draw)), ("nodeSelector", _selector(draw))):
        if names:
            spec[field] = names
    return {"metadata": {"name": "web", "annotations": _annotations(draw)}, "spec": spec}


def _all(spec: JsonDict) -> list[JsonDict]:
    return [*spec["containers"], *spec.get("initContainers", ())]


def _tolerations(draw: st.DrawFn) -> list[JsonDict]:
    keys = draw(st.lists(st.sampled_from(["example.com/a", "other.com/b"]), unique=True))
    blanket = [{"operator": "Exists"}] if draw(st.booleans()) else []
    return [*({"key": key, "operator": "Exists"} for key in keys), *blanket]


def _selector(draw: st.DrawFn) -> JsonDict:
    keys = draw(st.lists(st.sampled_from(["kubernetes.io/os", "example.com/zone"]), unique=True))
    return dict.fromkeys(keys, "x")


def _annotations(draw: st.DrawFn) -> JsonDict:
    found = {}
    for key in (
        "container.apparmor.security.beta.kubernetes.io/a",
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/a",
    ):
        if word := draw(rarely(st.sampled_from(WORDS))):
            found[key] = word
    return found

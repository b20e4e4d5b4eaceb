"""What of its node, or of what is around it, a pod asks for: folders, disks, devices. Pure.

Each pair finds something and takes it out again. What is taken out of a copy leaves a pod that an
API server accepts: fields that need what is gone go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from federate.model.objects import JsonDict, JsonObject
from federate.policy.rules import PolicyRules
from federate.policy.spots import (
    Spot,
    containers_in,
    context_path,
    contexts_in,
    drop_in,
    own_containers,
    own_holders,
    set_or_drop,
)

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS = ("postStart", "preStop")
CALLS = ("httpGet", "tcpSocket")
"""What of a probe or hook is a call over the network."""

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""A DeviceClass by its name, as a resource: a device of any class, without a claim (DRA, 1.34)."""

RULED_ELSEWHERE = frozenset(
    {
        "configMap",
        "downwardAPI",
        "emptyDir",
        "projected",
        "secret",
        "csi",  # by its driver: docs/volumes.md
        "ephemeral",
        "persistentVolumeClaim",
        "hostPath",  # a topic of its own
        "image",  # pulled from a registry, as any container's
    }
)
"""Kinds of volumes that mount nothing from outside the pod, or that other rules are about."""

# -- namespaces of the node ------------------------------------------------------------------------


def find_host_network(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find a pod in its node's network; its host ports are the container's, and no other topic."""
    if spec.get("hostNetwork"):
        yield Spot("spec.hostNetwork", "the node's network")


def strip_host_network(spec: JsonDict, rules: PolicyRules) -> None:
    """Put the pod into a network of its own.

    API servers give each port in the node's network a host port: those were never asked for.
    """
    spec.pop("hostNetwork", None)
    strip_host_ports(spec, rules)


def find_host_pid(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find a pod among its node's processes."""
    if spec.get("hostPID"):
        yield Spot("spec.hostPID", "the node's processes")


def strip_host_pid(spec: JsonDict, _rules: PolicyRules) -> None:
    """Give the pod processes of its own."""
    spec.pop("hostPID", None)


def find_host_ipc(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find a pod in its node's shared memory and message queues."""
    if spec.get("hostIPC"):
        yield Spot("spec.hostIPC", "the node's shared memory")


def strip_host_ipc(spec: JsonDict, _rules: PolicyRules) -> None:
    """Give the pod shared memory of its own."""
    spec.pop("hostIPC", None)


def find_host_process(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find containers that are processes of a Windows node."""
    for listed, context in contexts_in(spec):
        if (context.get("windowsOptions") or {}).get("hostProcess"):
            path = context_path(listed, "windowsOptions.hostProcess")
            yield Spot(path, "a process of the Windows node")


def strip_host_process(spec: JsonDict, _rules: PolicyRules) -> None:
    """Run it in a container; who it runs as stays."""
    for holder in own_holders(spec):
        if ((holder.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess"):
            drop_in(holder, "securityContext", "windowsOptions", "hostProcess")


# -- folders ---------------------------------------------------------------------------------------


def find_host_paths(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find volumes that are folders or files of the node."""
    for volume in spec.get("volumes") or ():
        if volume.get("hostPath") is not None:
            path = f"spec.volumes[{volume.get('name', '')}].hostPath"
            yield Spot(path, "a folder of the node")


def strip_host_paths(spec: JsonDict, _rules: PolicyRules) -> None:
    """Put an empty folder in its place, so that all mounts of it stay, of debug containers too."""
    for volume in spec.get("volumes") or ():
        if volume.pop("hostPath", None) is not None:
            volume["emptyDir"] = {}


# -- storage ---------------------------------------------------------------------------------------


def find_storage_volumes(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find volumes that a kubelet mounts from a storage that the pod names: a disk, a share.

    A node logs in there with its own credentials, or from its own address. A kind that is not known
    is found.
    """
    for volume in spec.get("volumes") or ():
        for kind in _storage_kinds(volume):
            yield Spot(f"spec.volumes[{volume.get('name', '')}].{kind}", f"a volume of kind {kind}")


def strip_storage_volumes(spec: JsonDict, _rules: PolicyRules) -> None:
    """Put an empty folder in its place, as with folders of the node."""
    for volume in spec.get("volumes") or ():
        for kind in _storage_kinds(volume):
            del volume[kind]
            volume["emptyDir"] = {}


def _storage_kinds(volume: JsonObject) -> list[str]:
    return [
        kind
        for kind, source in volume.items()
        if kind != "name" and kind not in RULED_ELSEWHERE and source is not None
    ]


# -- the network -----------------------------------------------------------------------------------


def find_host_ports(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find ports of the node. In the node's network every port is one: that topic covers them."""
    if spec.get("hostNetwork"):
        return
    for listed in containers_in(spec):
        for number, port in enumerate(listed.container.get("ports") or ()):
            if port.get("hostPort"):
                path = listed.at(f"ports[{number}].hostPort")
                yield Spot(path, f"port {port['hostPort']} of the node")


def strip_host_ports(spec: JsonDict, _rules: PolicyRules) -> None:
    """Leave the container's ports alone."""
    for container in own_containers(spec):
        for port in container.get("ports") or ():
            if port.pop("hostPort", None):
                port.pop("hostIP", None)


def find_host_probes(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find probes and hooks that let the kubelet call another host than the pod."""
    for listed in containers_in(spec):
        for path, call in _calls(listed.container):
            if call.get("host"):
                yield Spot(listed.at(f"{path}.host"), "a call of the kubelet to another host")


def strip_host_probes(spec: JsonDict, _rules: PolicyRules) -> None:
    """Let the kubelet call the pod."""
    for container in own_containers(spec):
        for _, call in _calls(container):
            call.pop("host", None)


def _calls(container: JsonObject) -> Iterator[tuple[str, JsonDict]]:
    lifecycle: JsonObject = container.get("lifecycle") or {}
    handlers = [(name, container.get(name)) for name in PROBES]
    handlers += [(f"lifecycle.{name}", lifecycle.get(name)) for name in HOOKS]
    for path, handler in handlers:
        for kind in CALLS if handler else ():
            if handler and (call := handler.get(kind)):
                yield f"{path}.{kind}", call


# -- devices ---------------------------------------------------------------------------------------


def find_devices(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find requests of extended resources that are not on the operator's list."""
    yield from _find_resources(spec, rules, is_extended, "of the node")


def strip_devices(spec: JsonDict, rules: PolicyRules) -> None:
    """Ask for the rest."""
    _strip_resources(spec, rules, is_extended)


def find_device_classes(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find requests that name a DeviceClass, and are not on the same list.

    The name is that of an object of the target, which nobody made for the hub's users (C30): by it
    they would have what `resourceClaims` are refused for.
    """
    yield from _find_resources(spec, rules, is_device_class, "of the target")


def strip_device_classes(spec: JsonDict, rules: PolicyRules) -> None:
    """Ask for the rest."""
    _strip_resources(spec, rules, is_device_class)


def is_extended(resource: str) -> bool:
    """Tell whether a resource is no kind that every node has: it is of a domain of its own.

    Of `kubernetes.io` too: API servers let any name there pass.
    """
    return "/" in resource and not is_device_class(resource)


def is_device_class(resource: str) -> bool:
    """Tell whether a resource is a device of a class."""
    return resource.startswith(DEVICE_CLASS_PREFIX)


def _find_resources(
    spec: JsonObject, rules: PolicyRules, is_kind: Callable[[str], bool], whose: str
) -> Iterator[Spot]:
    for listed in containers_in(spec):
        resources: JsonObject = listed.container.get("resources") or {}
        names = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name in names:
            if is_kind(name) and name not in rules.devices:
                yield Spot(listed.at(f"resources.limits[{name}]"), f"a {name} {whose}")


def _strip_resources(spec: JsonDict, rules: PolicyRules, is_kind: Callable[[str], bool]) -> None:
    for container in own_containers(spec):
        resources = container.get("resources") or {}
        for kind in ("limits", "requests"):
            kept = {
                name: amount
                for name, amount in (resources.get(kind) or {}).items()
                if not is_kind(name) or name in rules.devices
            }
            if kind in resources:
                set_or_drop(resources, kind, kept)

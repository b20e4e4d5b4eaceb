"""Facts about a pod: is it terminal, has it run, what does it lean on, may it be mirrored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from federate.model.instants import parse_instant
from federate.model.marks import RECORDED_GATE
from federate.model.objects import (
    JsonObject,
    controller_of,
    labels_of,
    metadata_of,
    spec_of,
    status_of,
)

VIRTUAL_NODE_TAINT_KEY = "virtual-kubelet.io/provider"
NODE_TYPE_LABEL = "type"
VIRTUAL_NODE_TYPE = "virtual-kubelet"

CLOCK_MARGIN = timedelta(seconds=5)
"""How far a node's clock may be from its API server's; both are kept in step, mostly."""

CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")
"""The lists of a pod's spec that hold containers, of whatever kind."""

_TERMINAL = ("Succeeded", "Failed")
_STATUS_FIELDS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a path)


def is_virtual_node(node: JsonObject) -> bool:
    """Tell whether a Node stands for something else than a machine, federate's or another's."""
    return labels_of(node).get(NODE_TYPE_LABEL) == VIRTUAL_NODE_TYPE


def phase_of(pod: JsonObject) -> str:
    """Return the phase; a pod without one is Pending."""
    phase: str = status_of(pod).get("phase") or "Pending"
    return phase


def is_terminal(pod: JsonObject) -> bool:
    """Tell whether the pod is Succeeded or Failed: for ever, whatever the API server allows."""
    return phase_of(pod) in _TERMINAL


def ended_before_deletion(pod: JsonObject) -> bool | None:
    """Tell whether a Succeeded pod had ended before its deletion was asked for.

    A container that is told to end and exits with 0 makes its pod Succeeded too. None: at about the
    same time (the two are told by different clocks), or nobody says when. A pod all of whose
    containers are restarted for ever never ends by itself.
    """
    metadata = metadata_of(pod)
    deletion = parse_instant(metadata.get("deletionTimestamp") or "")
    if deletion is None:
        return True
    if _restarts_for_ever(spec_of(pod)):
        return False
    asked_at = deletion - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    ends = [_finished_at(status) for status in status_of(pod).get("containerStatuses") or ()]
    last = max((end for end in ends if end is not None), default=None)
    if last is None or None in ends or abs(last - asked_at) <= CLOCK_MARGIN:
        return None
    return last < asked_at


def _restarts_for_ever(spec: JsonObject) -> bool:
    """Tell whether no container may end by itself; each may have a policy of its own (1.34)."""
    own = any("restartPolicy" in container for container in spec.get("containers") or ())
    return not own and spec.get("restartPolicy", "Always") == "Always"


def _finished_at(container_status: JsonObject) -> datetime | None:
    terminated = (container_status.get("state") or {}).get("terminated") or {}
    return parse_instant(terminated.get("finishedAt") or "")


def node_name_of(pod: JsonObject) -> str:
    """Return the node the pod is bound to, or ""."""
    name: str = spec_of(pod).get("nodeName") or ""
    return name


def scheduling_gates_of(pod: JsonObject) -> frozenset[str]:
    """Name the gates that keep the pod from being bound to a node (KEP-3521)."""
    return frozenset(gate.get("name", "") for gate in spec_of(pod).get("schedulingGates") or ())


def is_gated(pod: JsonObject) -> bool:
    """Tell whether our gate holds the mirror back: it has never run, and cannot."""
    return RECORDED_GATE in scheduling_gates_of(pod)


def is_daemonset_pod(pod: JsonObject) -> bool:
    """Tell whether a DaemonSet controls the pod."""
    controller = controller_of(pod)
    return controller is not None and controller.get("kind") == "DaemonSet"


def grace_seconds_of(pod: JsonObject) -> int | None:
    """Return the grace its deletion was given; None while it is not terminating."""
    value: int | None = metadata_of(pod).get("deletionGracePeriodSeconds")
    return value


def containers_of(spec: JsonObject) -> Iterator[JsonObject]:
    """Yield every container of a pod spec: init, ordinary and ephemeral."""
    for field in CONTAINER_FIELDS:
        yield from spec.get(field) or ()


def container_statuses_of(pod: JsonObject) -> Iterator[JsonObject]:
    """Yield every container status: init, ordinary and ephemeral."""
    for field in _STATUS_FIELDS:
        yield from status_of(pod).get(field) or ()


def has_started(pod: JsonObject) -> bool:
    """Tell whether any container was ever seen started."""
    return any(
        status.get("restartCount")
        or status.get("lastState")
        or "running" in (status.get("state") or {})
        or "terminated" in (status.get("state") or {})
        for status in container_statuses_of(pod)
    )


def admission_token_volumes(spec: JsonObject) -> frozenset[str]:
    """Name the volumes that the ServiceAccount admission plugin added.

    They are projected volumes called `kube-api-access-…` with a token source, mounted at the
    well-known path (kubernetes/plugin/pkg/admission/serviceaccount).
    """
    return frozenset(
        volume["name"]
        for volume in spec.get("volumes") or ()
        if str(volume.get("name", "")).startswith("kube-api-access-")
        and any(
            "serviceAccountToken" in source
            for source in (volume.get("projected") or {}).get("sources") or ()
        )
    )


def is_token_mount(mount: JsonObject, token_volumes: frozenset[str]) -> bool:
    """Tell whether a volume mount is the admission-made one."""
    return mount.get("name") in token_volumes and mount.get("mountPath") == _TOKEN_MOUNT_PATH


def needs_of(spec: JsonObject) -> tuple[str, ...]:
    """List what the pod leans on beside itself, in words, sorted and without repeats.

    The admission-made token volume does not count: it is dropped. Optional references count: a
    mirror may never point at a target object that is not ours, present or not.
    """
    dropped = admission_token_volumes(spec)
    found: set[str] = set()
    for volume in spec.get("volumes") or ():
        if volume.get("name") not in dropped:
            found.update(_volume_needs(volume))
    for container in containers_of(spec):
        found.update(_environment_needs(container))
    found.update(f'Secret "{ref.get("name")}"' for ref in spec.get("imagePullSecrets") or ())
    found.update(f'ResourceClaim "{ref.get("name")}"' for ref in spec.get("resourceClaims") or ())
    return tuple(sorted(found))


def _environment_needs(container: JsonObject) -> Iterator[str]:
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        yield from _reference(source.get("configMapKeyRef"), "ConfigMap")
        yield from _reference(source.get("secretKeyRef"), "Secret")
    for source in container.get("envFrom") or ():
        yield from _reference(source.get("configMapRef"), "ConfigMap")
        yield from _reference(source.get("secretRef"), "Secret")


def _volume_needs(volume: JsonObject) -> Iterator[str]:
    yield from _reference(volume.get("configMap"), "ConfigMap")
    yield from _reference(volume.get("secret"), "Secret", name_field="secretName")
    yield from _reference(
        volume.get("persistentVolumeClaim"), "PersistentVolumeClaim", name_field="claimName"
    )
    if "ephemeral" in volume:
        # Its template may name volumes, classes and data sources of the target that are not ours.
        yield f'a PersistentVolumeClaim of ephemeral volume "{volume.get("name", "")}"'
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield from _projection_needs(source)
    for name in _secret_names(volume):
        yield f'Secret "{name}"'


def _projection_needs(source: JsonObject) -> Iterator[str]:
    yield from _reference(source.get("configMap"), "ConfigMap")
    yield from _reference(source.get("secret"), "Secret")
    if "serviceAccountToken" in source:
        yield "a service account token"
    if "clusterTrustBundle" in source:
        yield "a ClusterTrustBundle"
    if "podCertificate" in source:
        yield "a pod certificate"


def _secret_names(volume: JsonObject) -> Iterator[str]:
    """Names in the `…secretRef` fields and `secretName` of the storage volume kinds."""
    for kind, source in volume.items():
        if kind in {"secret", "projected", "configMap"} or not isinstance(source, Mapping):
            continue
        for field in ("secretRef", "nodePublishSecretRef"):
            reference: Any = source.get(field)
            if isinstance(reference, Mapping) and reference.get("name"):
                yield str(reference["name"])
        if source.get("secretName"):
            yield str(source["secretName"])


def _reference(source: JsonObject | None, kind: str, *, name_field: str = "name") -> Iterable[str]:
    if source is None:
        return ()
    return (f'{kind} "{source.get(name_field, "")}"',)

"""The pod rules of an API server: defaults, what may change, and how long a deletion takes.

Read off kube-apiserver's behaviour; the contract suite compares the two.
"""

from __future__ import annotations

import copy
from typing import Any

from federate.errors import Rejected
from federate.model.objects import JsonDict, JsonObject, spec_of, status_of

TOKEN_VOLUME = "kube-api-access-fake0"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"

_CONTAINER_DEFAULTS: JsonDict = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_SPEC_DEFAULTS: JsonDict = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_NODE_LOSS_SECONDS = 300


def invalid(detail: str) -> Rejected:
    """Build the 422."""
    return Rejected(detail, reason="Invalid", status=422)


def default_pod(pod: JsonDict) -> None:
    """Fill in what defaulting and the default admission plugins fill in; in place."""
    spec = pod.setdefault("spec", {})
    if not spec.get("containers"):
        raise invalid("spec.containers: Required value")
    for name, value in _SPEC_DEFAULTS.items():
        spec.setdefault(name, copy.deepcopy(value))
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        for name, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(name, copy.deepcopy(value))
    tolerate_node_loss(spec)
    if spec.get("automountServiceAccountToken", True):
        _mount_token(spec)
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    drop_empty_gates(spec)
    if is_gated(pod):
        if spec.get("nodeName"):
            raise invalid("spec.nodeName: Forbidden: cannot be set until all schedulingGates are")
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": None,
            }
        ]


def is_gated(pod: JsonObject) -> bool:
    """Tell whether no scheduler may bind the pod, and so nothing of it can run."""
    return bool(spec_of(pod).get("schedulingGates"))


def drop_empty_gates(spec: JsonDict) -> None:
    """Leave an empty list out, as the server does; in place."""
    if not spec.get("schedulingGates", True):
        del spec["schedulingGates"]


def tolerate_node_loss(spec: JsonDict) -> None:
    """Add what the admission plugin adds, on create and on update alike; in place."""
    tolerations = spec.setdefault("tolerations", [])
    for state in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{state}"
        if not any(t.get("key") in (key, None) for t in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _NODE_LOSS_SECONDS,
                }
            )


def _mount_token(spec: JsonDict) -> None:
    mounted = False
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        mounts = container.setdefault("volumeMounts", [])
        if any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
            continue
        mounts.append({"name": TOKEN_VOLUME, "readOnly": True, "mountPath": TOKEN_PATH})
        mounted = True
    if mounted:
        sources = [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
        ]
        projected = {"sources": sources, "defaultMode": 420}
        spec.setdefault("volumes", []).append({"name": TOKEN_VOLUME, "projected": projected})


def _qos_class(spec: JsonObject) -> str:
    resources = [container.get("resources") or {} for container in spec["containers"]]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    whole = all(
        {"cpu", "memory"} <= set(r.get("limits") or {})
        and all((r.get("requests") or r["limits"]).get(n, v) == v for n, v in r["limits"].items())
        for r in resources
    )
    return "Guaranteed" if whole else "Burstable"


def check_spec_update(old: JsonObject, new: JsonObject) -> None:
    """Refuse a change of the spec beyond what the main resource allows."""
    if _without_mutable(old) != _without_mutable(new):
        raise invalid(
            "spec: Forbidden: pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
            "tolerations)"
        )
    before, after = spec_of(old), spec_of(new)
    gates = before.get("schedulingGates") or []
    for gate in after.get("schedulingGates") or []:
        if gate not in gates:
            raise invalid(f"spec.schedulingGates: Forbidden: only deletion is allowed: {gate}")
    tolerations = [_without_seconds(t) for t in after.get("tolerations") or []]
    if any(_without_seconds(t) not in tolerations for t in before.get("tolerations") or []):
        raise invalid("spec.tolerations: Forbidden: existing toleration can not be modified")
    deadline, new_deadline = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if deadline is not None and (new_deadline is None or new_deadline > deadline):
        raise invalid("spec.activeDeadlineSeconds: Invalid value: must be less than before")


def _without_seconds(toleration: JsonObject) -> JsonDict:
    return {k: value for k, value in toleration.items() if k != "tolerationSeconds"}


def _without_mutable(pod: JsonObject) -> JsonDict:
    spec = copy.deepcopy(dict(spec_of(pod)))
    spec.pop("activeDeadlineSeconds", None)
    spec.pop("tolerations", None)
    spec.pop("schedulingGates", None)
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        container.pop("image", None)
    return spec


def check_status_update(old: JsonObject, new: JsonObject) -> None:
    """Refuse a status in which a container that ended for good runs again."""
    policy = spec_of(old).get("restartPolicy", "Always")
    if policy == "Always":
        return
    states = {s["name"]: s.get("state") or {} for s in _container_statuses(new)}
    for status in _container_statuses(old):
        ended = (status.get("state") or {}).get("terminated")
        state = states.get(status["name"])
        for_good = ended and (policy == "Never" or ended.get("exitCode") == 0)
        if for_good and state is not None and "terminated" not in state:
            raise invalid("status: Forbidden: may not be transitioned to non-terminated state")


def _container_statuses(pod: JsonObject) -> list[dict[str, Any]]:
    return status_of(pod).get("containerStatuses") or []


def with_ephemeral_containers(old: JsonDict, new: JsonDict) -> JsonDict:
    """Return `old` with the ephemeral containers of `new`, which may only grow.

    Whatever else the request changes, labels and annotations too, is left out without a word.
    """
    before = spec_of(old).get("ephemeralContainers") or []
    after = copy.deepcopy(spec_of(new).get("ephemeralContainers") or [])
    for container in after:
        for name, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(name, copy.deepcopy(value))
    if any(container not in after for container in before):
        raise invalid("spec.ephemeralContainers: Forbidden: existing ones may not be changed")
    spec = {**old["spec"], "ephemeralContainers": after}
    return {**old, "spec": spec if after else dict(old["spec"])}


def with_resources(old: JsonDict, new: JsonDict) -> JsonDict:
    """Return `old` with the container resources of `new`; the rest of the request is left out.

    Requests and limits cannot be taken away, and only cpu and memory can be changed.
    """
    spec = copy.deepcopy(old["spec"])
    wanted = {c["name"]: c.get("resources") or {} for c in new["spec"]["containers"]}
    for container in spec["containers"]:
        resources = wanted.get(container["name"], {})
        _check_resize(container.get("resources") or {}, resources)
        container["resources"] = resources
    if _qos_class(spec) != _qos_class(old["spec"]):
        raise invalid("spec: Invalid value: Pod QOS Class may not change as a result of resizing")
    return {**old, "spec": spec}


def _check_resize(old: JsonObject, new: JsonObject) -> None:
    for kind in ("requests", "limits"):
        before, after = old.get(kind) or {}, new.get(kind) or {}
        if any(name not in after for name in before):
            raise invalid(f"resources.{kind}: Forbidden: resource {kind} cannot be removed")
        changed = {name for name, value in after.items() if before.get(name) != value}
        if changed - {"cpu", "memory"}:
            raise invalid("spec: Forbidden: only cpu and memory resources are mutable")


def grace_of(pod: JsonObject, asked: int | None) -> int:
    """How many seconds the first deletion of a pod gives it; 0 removes it at once."""
    own: int | None = spec_of(pod).get("terminationGracePeriodSeconds")
    grace = asked if asked is not None else (own or 0)
    if not spec_of(pod).get("nodeName"):
        return 0
    if status_of(pod).get("phase") in ("Succeeded", "Failed"):
        return 0
    return max(grace, 1) if grace < 0 else grace

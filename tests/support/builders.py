"""Pods for tests, said in words: `pod("web").bound_to("edge").running().build()`.

Every word returns a new builder, so a half-built pod can be shared. What is built looks like what
an API server returns, with the defaults that it fills in.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, Self

from federate.model.objects import JsonDict
from tests.support.fakepods import default_pod

CREATED_AT = "2026-01-01T00:00:00Z"
DELETED_AT = "2026-01-01T01:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBuilder:
    """A pod in the making."""

    pod: JsonDict

    def bound_to(self, node: str) -> Self:
        bound = self._with_spec(nodeName=node)
        return bound.with_condition("PodScheduled", "True")

    def with_uid(self, uid: str) -> Self:
        return self._with_metadata(uid=uid)

    def with_labels(self, labels: dict[str, str]) -> Self:
        return self._with_metadata(labels={**self.pod["metadata"].get("labels", {}), **labels})

    def with_annotations(self, annotations: dict[str, str]) -> Self:
        old = self.pod["metadata"].get("annotations", {})
        return self._with_metadata(annotations={**old, **annotations})

    def with_finalizers(self, *finalizers: str) -> Self:
        return self._with_metadata(finalizers=list(finalizers))

    def with_restart_policy(self, policy: str) -> Self:
        return self._with_spec(restartPolicy=policy)

    def with_image(self, image: str) -> Self:
        containers = copy.deepcopy(self.pod["spec"]["containers"])
        containers[0]["image"] = image
        return self._with_spec(containers=containers)

    def with_container(self, name: str, image: str = "busybox", **fields: Any) -> Self:
        container = {"name": name, "image": image, **fields}
        return self._with_spec(containers=[*self.pod["spec"]["containers"], container])

    def with_requests(self, **requests: str) -> Self:
        containers = copy.deepcopy(self.pod["spec"]["containers"])
        containers[0]["resources"] = {"requests": requests}
        return self._with_spec(containers=containers)

    def with_spec(self, **fields: Any) -> Self:
        return self._with_spec(**fields)

    def with_status(self, **fields: Any) -> Self:
        return replace(self, pod={**self.pod, "status": {**self.pod["status"], **fields}})

    def with_condition(
        self, kind: str, status: str, *, reason: str = "", message: str = ""
    ) -> Self:
        condition = {"type": kind, "status": status, "lastTransitionTime": CREATED_AT}
        condition |= {"reason": reason} if reason else {}
        condition |= {"message": message} if message else {}
        others = [c for c in self.pod["status"].get("conditions", []) if c["type"] != kind]
        return self.with_status(conditions=[*others, condition])

    def owned_by(self, kind: str, name: str, *, uid: str = "") -> Self:
        reference = {
            "apiVersion": "v1" if kind == "ConfigMap" else "apps/v1",
            "kind": kind,
            "name": name,
            "uid": uid or f"uid-of-{name}",
            "controller": True,
        }
        return self._with_metadata(ownerReferences=[reference])

    def terminating(self, *, grace: int = 30) -> Self:
        return self._with_metadata(deletionTimestamp=DELETED_AT, deletionGracePeriodSeconds=grace)

    def running(self, *, ready: bool = True, restarts: int = 0) -> Self:
        state = {"running": {"startedAt": CREATED_AT}}
        return self._in_phase("Running", state, ready=ready, restarts=restarts)

    def succeeded(self) -> Self:
        return self._ended("Succeeded", "Completed", 0)

    def failed(self, *, exit_code: int = 1) -> Self:
        return self._ended("Failed", "Error", exit_code)

    def build(self) -> JsonDict:
        """Return the pod, a fresh copy with the server's defaults."""
        pod = copy.deepcopy(self.pod)
        status = pod["status"]
        default_pod(pod)
        pod["status"] |= status
        return pod

    def _ended(self, phase: str, reason: str, exit_code: int) -> Self:
        times = {"startedAt": CREATED_AT, "finishedAt": CREATED_AT}
        state = {"terminated": {"exitCode": exit_code, "reason": reason, **times}}
        return self._in_phase(phase, state, ready=False)

    def _in_phase(self, phase: str, state: JsonDict, *, ready: bool, restarts: int = 0) -> Self:
        statuses = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "started": "running" in state,
                "restartCount": restarts,
                "state": copy.deepcopy(state),
            }
            for container in self.pod["spec"]["containers"]
        ]
        told = self.with_status(
            phase=phase,
            containerStatuses=statuses,
            startTime=CREATED_AT,
            podIP="10.1.0.7",
            podIPs=[{"ip": "10.1.0.7"}],
        )
        answer = "True" if ready else "False"
        return told.with_condition("Ready", answer).with_condition("ContainersReady", answer)

    def _with_metadata(self, **fields: Any) -> Self:
        return replace(self, pod={**self.pod, "metadata": {**self.pod["metadata"], **fields}})

    def _with_spec(self, **fields: Any) -> Self:
        return replace(self, pod={**self.pod, "spec": {**self.pod["spec"], **fields}})


def pod(name: str, *, namespace: str = "default") -> PodBuilder:
    """Begin a pod with one container `main`, Pending and not scheduled, with the uid `uid-NAME`."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": CREATED_AT,
        "generation": 1,
    }
    return PodBuilder(
        pod={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            "status": {"phase": "Pending"},
        }
    )

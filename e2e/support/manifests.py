"""Objects a user would submit. Everything with pods is kept to one virtual node by its name.

The same object runs alike everywhere. On a real node the command of its container is carried out;
on the test bed's fake nodes nothing is, and annotations tell kwok what it would come to.
"""

from .witness import Json

IMAGE = "federate.test/app:1"
"""The test bed's own, which it puts into real nodes."""

COMPLETES = "testbed.federate/completes"
RUNS_FOR = "testbed.federate/runs-for"
ENDS_AFTER = "testbed.federate/ends-after"

APP = "/app"
"""The one program of the image."""


def pod_spec(node: str, **more: object) -> Json:
    """Render the spec of a pod that runs on the virtual node; `more` adds or replaces fields."""
    return {
        "containers": [container()],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [
            {
                "key": "virtual-kubelet.io/provider",
                "operator": "Equal",
                "value": "federate",
                "effect": "NoSchedule",
            }
        ],
        **more,
    }


def container(**more: object) -> Json:
    """Render the one container, which runs until it is told to end, and ends at once then."""
    return {"name": "main", "image": IMAGE, "command": [APP, "sleep"], **more}


def ending(**more: object) -> Json:
    """Render a container that ends well, a second after its start."""
    return container(command=[APP, "sleep", "1"], **more)


def pod(
    name: str, spec: Json, *, labels: Json | None = None, annotations: Json | None = None
) -> Json:
    """Render a bare pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": spec,
    }


def run_once(name: str, node: str) -> Json:
    """Render a bare pod that ends by itself and may not run twice."""
    spec = pod_spec(node, containers=[ending()], restartPolicy="Never")
    return pod(name, spec, annotations={COMPLETES: "true", RUNS_FOR: "1s"})


def unmirrored(name: str, node: str) -> Json:
    """Render a bare pod that waits for ever: it needs a claim, which is refused by default.

    It is bound by hand: the hub's scheduler would hold a pod back whose claim is not there.
    """
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "settings"}}
    return pod(name, pod_spec(node, nodeName=node, volumes=[volume]))


def slow_to_end(name: str, node: str, *, seconds: int) -> Json:
    """Render a bare pod that takes its time when it is told to end."""
    spec = pod_spec(node, containers=[container(env=[{"name": "LINGER", "value": str(seconds)}])])
    return pod(name, spec, annotations={ENDS_AFTER: f"{seconds}s"})


def deployment(name: str, spec: Json, *, replicas: int) -> Json:
    """Render a Deployment."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, **_selected(name, spec)},
    }


def stateful_set(name: str, spec: Json) -> Json:
    """Render a StatefulSet of one pod, called `<name>-0`."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "serviceName": name, **_selected(name, spec)},
    }


def daemon_set(name: str, spec: Json) -> Json:
    """Render a DaemonSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": _selected(name, spec),
    }


def job(name: str, node: str, *, completions: int) -> Json:
    """Render a Job whose pods all run at once and end by themselves."""
    template = {
        "metadata": {"annotations": {COMPLETES: "true", RUNS_FOR: "1s"}},
        "spec": pod_spec(node, containers=[ending()], restartPolicy="Never"),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": completions,
            "parallelism": completions,
            "backoffLimit": 0,
            "template": template,
        },
    }


def quota(name: str, **hard: str) -> Json:
    """Render a ResourceQuota."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard},
    }


def _selected(name: str, spec: Json) -> Json:
    labels = {"app": name}
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }

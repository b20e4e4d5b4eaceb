"""/pods and /runningpods/: the pods of a virtual node, as a kubelet lists them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from federate.model.objects import JsonDict, JsonObject, metadata_of, spec_of
from federate.model.pods import container_statuses_of, is_terminal


def pod_list(pods: Iterable[JsonObject]) -> Iterator[bytes]:
    """Write a PodList piece by piece, a pod at a time: all at once would hold up everything."""
    yield b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":['
    separator = b""
    for pod in pods:
        yield separator + json.dumps(pod, separators=(",", ":"), ensure_ascii=False).encode()
        separator = b","
    yield b"]}\n"


def running_pods(pods: Iterable[JsonObject]) -> Iterator[JsonDict]:
    """Yield the pods that run, as a container runtime knows them: names, uids, images."""
    for pod in pods:
        running = _running_containers(pod)
        if running and not is_terminal(pod):
            metadata = metadata_of(pod)
            yield {
                "metadata": {
                    field: metadata[field]
                    for field in ("name", "namespace", "uid")
                    if field in metadata
                },
                "spec": {"containers": running},
                "status": {},
            }


def _running_containers(pod: JsonObject) -> list[JsonDict]:
    running = {
        status.get("name")
        for status in container_statuses_of(pod)
        if "running" in (status.get("state") or {})
    }
    spec = spec_of(pod)
    fields = ("containers", "initContainers", "ephemeralContainers")
    return [
        {"name": container["name"], "image": container.get("image", ""), "resources": {}}
        for field in fields
        for container in spec.get(field) or ()
        if container.get("name") in running
    ]

"""Storage classes, disks and claims, as users and administrators of both sides make them."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from e2e.testbed.provider import TestCluster

from .process import run_cli
from .witness import Json
from .world import Space, World

TARGET_CLASS = "e2e-disk"
"""Of the target: it waits for a pod, and finds it one of the disks that `give_disk` laid out."""


@contextmanager
def classes(world: World, hub: TestCluster, **reclaims: str) -> Iterator[None]:
    """Let the hub have classes of the virtual node, by what becomes of their data; and the target
    its own."""
    own = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": TARGET_CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    world.target.create(own)
    try:
        for name, reclaim in reclaims.items():
            printed = run_cli("storage-class", name, "--node", world.node, "--reclaim", reclaim)
            assert printed.returncode == 0, printed.stderr
            hub.kubectl("apply", "-f", "-", stdin=printed.stdout)
        yield
    finally:
        world.target.delete("StorageClass", "", TARGET_CLASS)
        for name in reclaims:
            world.hub.delete("StorageClass", "", name)


@contextmanager
def disk(world: World, size: str) -> Iterator[str]:
    """Let the target have a disk for one claim; yields its name."""
    name = f"e2e-disk-{uuid4().hex[:8]}"
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": TARGET_CLASS,
        "hostPath": {"path": f"/tmp/{name}"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    world.target.create({**body, "spec": spec})
    try:
        yield name
    finally:
        world.target.delete("PersistentVolume", "", name)


def claim_spec(storage_class: str, size: str = "1Gi") -> Json:
    """Render what a claim asks for."""
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
    }


def claim(name: str, storage_class: str) -> Json:
    """Render a claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": claim_spec(storage_class),
    }


def of_claim(name: str) -> Json:
    """Render the volume of a pod that is a claim."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def claims_there(space: Space) -> list[Json]:
    """List the claims in the target namespace of a space."""
    return space.target.list("PersistentVolumeClaim", space.target_namespace)


def told_of(space: Space, name: str) -> dict[str, str]:
    """Return the last words about a claim of the hub, by the reason of the Event."""
    fields = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={name}"
    events = space.hub.list("Event", space.namespace, fields=fields)
    return {str(event["reason"]): str(event.get("message", "")) for event in events}

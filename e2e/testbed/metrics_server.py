"""metrics-server for kind clusters: who scrapes kubelets, so that `kubectl top` and HPAs work.

It is built from its Go module like every other program, packed into an image of its own, and
installed only where a test or a person asks for it: it costs a cluster half a minute and some CPU.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from .archives import Image, architecture, write_archive
from .binaries import Binaries
from .components import component_of
from .errors import TestbedError
from .kind import RealCluster
from .locks import held
from .places import Places
from .processes import wait_until
from .progress import Progress

NAME = "metrics-server"
NAMESPACE = "kube-system"
PORT = 10250
PROGRAM = f"/{NAME}"

RESOLUTION_SECONDS = 10
"""How often it scrapes: it takes no less."""

AVAILABLE_SECONDS = 120.0
"""From the manifest to a ready server, and on to an API that answers: 25 s on an idle machine."""


def image_reference() -> str:
    return f"federate.test/{NAME}:{component_of(NAME).version}"


def image_archive(binaries: Binaries) -> Path:
    """Return the image's archive, building program and image when they are nowhere."""
    program = binaries.find(NAME)
    place = binaries.places.cache / component_of(NAME).cache_key() / f"image-{architecture()}.tar"
    with held(place.with_suffix(".lock")):
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
                packed = Path(temporary) / place.name
                write_archive(
                    Image(tag=image_reference(), files={PROGRAM: program}, entrypoint=(PROGRAM,)),
                    packed,
                )
                packed.replace(place)
    return place


@contextmanager
def installed(binaries: Binaries, *clusters: RealCluster) -> Iterator[None]:
    """Have metrics-server in the clusters while the block lasts."""
    try:
        install(binaries, *clusters)
        yield
    finally:
        for cluster in clusters:
            remove(cluster)


def install(binaries: Binaries, *clusters: RealCluster) -> None:
    """Install metrics-server in the clusters and wait until each answers; twice does no harm.

    Raises:
        TestbedError: one did not come up in time.
    """
    archive = image_archive(binaries)
    *server, api = manifests()
    for cluster in clusters:
        cluster.load_archive(archive)
        apply(cluster, server)
    for cluster in clusters:
        # An API server that looks before kube-proxy knows the service's address asks whoever has
        # that address outside of the cluster, and keeps to it if somebody answers.
        cluster.kubectl(
            "rollout",
            "status",
            f"deployment/{NAME}",
            f"--namespace={NAMESPACE}",
            f"--timeout={AVAILABLE_SECONDS:.0f}s",
            timeout_seconds=AVAILABLE_SECONDS + 10,
        )
        apply(cluster, [api])
    for cluster in clusters:
        if not wait_until(partial(_ask, cluster), AVAILABLE_SECONDS):
            raise TestbedError(
                f"metrics-server did not come up in {cluster.name}:\n{explained(cluster)}"
            )


def apply(cluster: RealCluster, objects: Sequence[dict[str, Any]]) -> None:
    cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))


def explained(cluster: RealCluster) -> str:
    """Say what there is of it, for a person."""
    return cluster.kubectl(
        "get",
        "apiservice/v1beta1.metrics.k8s.io",
        f"deployment/{NAME}",
        f"endpoints/{NAME}",
        f"--namespace={NAMESPACE}",
        "--output=jsonpath={range .items[*]}{.kind}: {.status}{.subsets}{'\\n'}{end}",
    )


def remove(cluster: RealCluster) -> None:
    """Take it out again, its API first: one without a server holds up every namespace's end."""
    last_first = yaml.safe_dump_all(reversed(manifests()))
    cluster.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=last_first)


def _ask(cluster: RealCluster) -> bool:
    if is_available(cluster):
        return True
    time.sleep(1)
    return False


def is_available(cluster: RealCluster) -> bool:
    """Tell whether the cluster's API serves usage, of at least one node."""
    try:
        told = cluster.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
    except TestbedError:
        return False
    return bool(json.loads(told)["items"])


def manifests() -> list[dict[str, Any]]:
    """Render what an administrator would install: account, rights, server, and last its API."""
    labels = {"app": NAME}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named()},
        role(NAME, [("nodes/metrics", ["get"]), ("pods", READ), ("nodes", READ)]),
        cluster_binding(NAME, NAME),
        cluster_binding(f"{NAME}-delegator", "system:auth-delegator"),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": named(),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "extension-apiserver-authentication-reader",
            },
            "subjects": [ACCOUNT],
        },
        deployment(labels),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": named(),
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": PORT}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "service": named(),
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


READ = ["get", "list", "watch"]
ACCOUNT = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}


def named() -> dict[str, str]:
    return {"name": NAME, "namespace": NAMESPACE}


def role(name: str, rules: list[tuple[str, list[str]]]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": [resource], "verbs": verbs}
            for resource, verbs in rules
        ],
    }


def cluster_binding(name: str, to: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": to},
        "subjects": [ACCOUNT],
    }


def deployment(labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": image_reference(),
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--cert-dir=/tmp",
            f"--secure-port={PORT}",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            # kubeadm's kubelets and a virtual node without an approved certificate sign their own.
            "--kubelet-insecure-tls",
            f"--metric-resolution={RESOLUTION_SECONDS}s",
            # Has to be shorter than that.
            f"--kubelet-request-timeout={RESOLUTION_SECONDS - 1}s",
        ],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 2,
            "failureThreshold": 3,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": named(),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": NAME,
                    "containers": [container],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def main() -> None:
    """Build the image where it is missing, in sight: the first time takes minutes."""
    try:
        print(image_archive(Binaries(Places(), Progress())))
    except TestbedError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""What a pod writes into a volume of a claim is there for the next one (C33)."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml

from e2e.support.manifests import pod, stateful_set
from e2e.support.pods import phase_of, uid_of
from e2e.support.witness import Json
from e2e.support.world import wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.errors import TestbedError
from e2e.testbed.kind import RealCluster

from .crate import Crate
from .reports import Reports

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "granary"
CLASS = "federate"
TARGET_CLASS = "on-demand"
"""Waits for a pod, and makes a folder of the node then."""
FILE = "/data/grain"
CHAFF = "/scratch/chaff"


@pytest.fixture(scope="module")
def stored(
    worlds: Worlds,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    reports: Reports,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crate]:
    """A virtual node with storage, and the classes of both sides."""
    hub, target = real_hub_and_target
    hub.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(class_of_hub()))
    target.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(class_of_target()))
    config = tmp_path_factory.mktemp("volumes") / "federate.yaml"
    config.write_text(yaml.safe_dump(configuration(hub, target)))
    with ExitStack() as stack:
        world = stack.enter_context(worlds.world(node=NODE, hub=hub, target=target, config=config))
        crate = Crate(world, "volumes", hub=hub, target=target, reports=reports)
        crate.open()
        stack.callback(crate.close)
        yield crate


def class_of_hub() -> dict[str, object]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "federate.dev/target",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": [NODE]}]}
        ],
    }


def class_of_target() -> dict[str, object]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": TARGET_CLASS},
        "provisioner": "kubernetes.io/host-path",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def configuration(hub: RealCluster, target: RealCluster) -> dict[str, object]:
    node = {
        "nodeName": NODE,
        "target": {"kubeconfig": str(target.kubeconfig)},
        "volumes": {"claims": "target", "storageClasses": {CLASS: TARGET_CLASS}},
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [node],
    }


def test_c33_data_of_a_stateful_set_outlives_its_pod(stored: Crate) -> None:
    """Written by the first pod, read by its successor; gone with the claim, as its class asks."""
    crate = stored
    mount = {"name": "data", "mountPath": "/data"}
    scratch = {"name": "scratch", "mountPath": "/scratch"}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": "16Mi"}},
    }
    container = crate.app("serve", volumeMounts=[mount, scratch])
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    body = stateful_set("barn", crate.spec(container, volumes=[volume]))
    body["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    crate.create(body)
    crate.wait_serving("barn-0")
    inside(crate, "barn-0", "fill", FILE, "1")
    inside(crate, "barn-0", "fill", CHAFF, "1")
    written = inside(crate, "barn-0", "digest", FILE)
    before = uid_of(crate.read("Pod", "barn-0"))
    crate.kubectl("delete", "pod", "barn-0")
    crate.wait(
        "another pod has the name",
        lambda: uid_of(crate.pod("barn-0") or NOBODY) not in ("", before) or None,
    )
    crate.wait("it serves", lambda: is_serving(crate, "barn-0", before) or None)
    assert inside(crate, "barn-0", "digest", FILE) == written
    with pytest.raises(TestbedError):
        inside(crate, "barn-0", "digest", CHAFF)  # an ephemeral volume is the pod's own
    crate.kubectl("delete", "statefulset", "barn")
    crate.kubectl("delete", "persistentvolumeclaim", "--all")
    wait_for("no data is left", lambda: not claims_in(crate.target_cluster) or None)


def test_c33_an_empty_dir_is_as_large_as_it_says(stored: Crate) -> None:
    """One of memory is full at its limit; one of disk has its pod evicted, as on any node."""
    crate = stored
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("quick", "slow")]
    volumes = [
        {"name": "quick", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "slow", "emptyDir": {"sizeLimit": "1Mi"}},
    ]
    spec = crate.spec(crate.app("serve", volumeMounts=mounts), volumes=volumes)
    crate.create(pod("hasty", spec))
    crate.wait_serving("hasty")
    with pytest.raises(TestbedError, match="no space left"):
        inside(crate, "hasty", "fill", "/quick/grain", "4")
    inside(crate, "hasty", "fill", "/slow/grain", "4")
    [told] = crate.wait("the hub is told why it ends", lambda: evictions(crate))
    assert told["involvedObject"]["name"] == "hasty"
    assert 'EmptyDir volume "slow" exceeds the limit' in told["message"]
    # The app ends well when it is asked to; so kubelets of 1.34 say Succeeded as often as Failed.
    over = ("Failed", "Succeeded")
    crate.wait("it is over on the hub", lambda: phase_of(crate.read("Pod", "hasty")) in over)
    assert phase_of(crate.read("Pod", "hasty")) == phase_of(crate.read_mirror("hasty"))


NOBODY: Json = {"metadata": {"uid": ""}}


def inside(crate: Crate, pod: str, *command: str) -> str:
    """Run the app's commands in a container, where it is: in the target."""
    arguments = ("exec", pod, "--", "/app", *command)
    return crate.target_cluster.kubectl(f"--namespace={crate.target_namespace}", *arguments)


def is_serving(crate: Crate, name: str, before: str) -> bool:
    """Tell whether the successor of a pod is ready."""
    found = crate.pod(name) or NOBODY
    container = crate.container(name)
    return uid_of(found) not in ("", before) and bool(container.get("ready"))


def evictions(crate: Crate) -> list[Json]:
    """List what kubelets told on the hub of pods that had to go."""
    return crate.hub.list("Event", crate.namespace, fields="reason=Evicted")


def claims_in(target: RealCluster) -> str:
    """Name all claims of a cluster."""
    return target.kubectl("get", "pvc", "--all-namespaces", "--output=name").strip()

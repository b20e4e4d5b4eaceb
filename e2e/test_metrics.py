"""What pods in a target use is told on the hub as a kubelet tells it: top and HPAs work (C61)."""

import json
import time
from collections.abc import Iterator

import pytest

from e2e.support.desk import address_for_containers
from e2e.support.manifests import APP, container, deployment, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import amount, name_of
from e2e.support.witness import Json
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster
from e2e.testbed.metrics_server import installed

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "gauge"
LIMIT_CORES = 0.1
TOLERANCE = 0.1
"""How far the hub may be from what the target itself says."""

USAGE_SECONDS = 300.0
"""Until usage is told on the hub: two rounds of metrics-server on each side, and their images."""

USAGE_API = "/apis/metrics.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def clusters(
    testbed_factory: TestbedFactory, real_hub_and_target: tuple[RealCluster, RealCluster]
) -> Iterator[tuple[RealCluster, RealCluster]]:
    """Hub and target, both with metrics-server."""
    with installed(testbed_factory.binaries, *real_hub_and_target):
        yield real_hub_and_target


@pytest.fixture(scope="module")
def burning(
    worlds: Worlds, testbed_factory: TestbedFactory, clusters: tuple[RealCluster, RealCluster]
) -> Iterator[Space]:
    """A Deployment of one pod that uses all of its CPU limit, all the time."""
    hub, target = clusters
    address = address_for_containers(testbed_factory.places)
    with worlds.world(
        node=NODE, hub=hub, target=target, arguments=["--node-address", address]
    ) as world:
        space = Space(world, "metrics")
        space.open()
        resources = {
            "requests": {"cpu": "50m"},
            "limits": {"cpu": f"{LIMIT_CORES * 1000:.0f}m", "memory": "64Mi"},
        }
        burner = container(command=[APP, "burn", "100000"], resources=resources)
        space.create(deployment("burner", pod_spec(NODE, containers=[burner]), replicas=1))
        space.wait_ready_pods(1)
        yield space
        space.close()


def usage_of(cluster: RealCluster, path: str) -> Json | None:
    try:
        found: Json = json.loads(cluster.kubectl("get", "--raw", f"{USAGE_API}/{path}"))
    except TestbedError:
        return None
    return found


def cores_of(cluster: RealCluster, namespace: str, pod: str) -> float:
    """Return what a cluster says that a pod uses; 0 while it does not say."""
    found = usage_of(cluster, f"namespaces/{namespace}/pods/{pod}") or {}
    return sum(float(amount(c["usage"]["cpu"])) for c in found.get("containers", ()))


def test_top_tells_what_the_target_measures(
    burning: Space, clusters: tuple[RealCluster, RealCluster], measured: Measurements
) -> None:
    """Pod and node show on the hub what the target's own metrics-server says of the mirror."""
    hub, target = clusters
    (pod,) = burning.pods()
    name, began = name_of(pod), time.monotonic()

    def both() -> tuple[float, float] | None:
        own = cores_of(target, burning.target_namespace, name)
        told = cores_of(hub, burning.namespace, name)
        time.sleep(1)
        is_steady = own >= LIMIT_CORES * (1 - TOLERANCE)
        is_near = abs(told - own) <= TOLERANCE * own
        return (told, own) if is_steady and is_near else None

    told, own = burning.wait(
        "the hub says of the pod what the target says", both, timeout_seconds=USAGE_SECONDS
    )
    measured.note("cores, hub / target", f"{told:.4f} / {own:.4f} = {told / own:.3f}")
    measured.note("usage told on the hub after", f"{time.monotonic() - began:.1f} s")

    node = usage_of(hub, f"nodes/{NODE}")
    assert node is not None, "the virtual node has usage too"
    assert float(amount(node["usage"]["cpu"])) == pytest.approx(told, rel=0.3)
    assert amount(node["usage"]["memory"]) > 0

    top_pod = hub.kubectl("top", "pod", name, f"--namespace={burning.namespace}", "--no-headers")
    assert 85 <= int(top_pod.split()[1].removesuffix("m")) <= 115, top_pod
    top_node = hub.kubectl("top", "node", NODE, "--no-headers")
    assert top_node.split()[1].removesuffix("m").isdigit(), top_node


def test_the_nodes_documents_are_a_kubelets(
    burning: Space, clusters: tuple[RealCluster, RealCluster]
) -> None:
    """Each document is about the node's own pods, under their hub names, and about no others."""
    hub, _ = clusters
    (pod,) = burning.pods()
    name = name_of(pod)

    def document(path: str) -> str:
        return hub.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy{path}")

    labels = f'container="main",namespace="{burning.namespace}",pod="{name}"'
    page = burning.wait(
        "the page has the pod",
        lambda: text if labels in (text := document("/metrics/resource")) else None,
        timeout_seconds=USAGE_SECONDS,
    )
    assert burning.target_namespace not in page
    assert "kube-system" not in page, "the target's own pods are nobody's business here"
    assert "node_cpu_usage_seconds_total " in page

    summary = json.loads(document("/stats/summary"))
    assert summary["node"]["nodeName"] == NODE
    assert [told["podRef"]["uid"] for told in summary["pods"]] == [pod["metadata"]["uid"]]

    containers = document("/metrics/cadvisor")
    assert f'namespace="{burning.namespace}"' in containers
    assert f'namespace="{burning.target_namespace}"' not in containers

    listed = json.loads(document("/pods"))["items"]
    assert pod["metadata"]["uid"] in [item["metadata"]["uid"] for item in listed]
    assert {item["spec"]["nodeName"] for item in listed} == {NODE}
    (running,) = json.loads(document("/runningpods/"))["items"]
    assert running["metadata"]["name"] == name
    assert f'kubelet_node_name{{node="{NODE}"}} 1' in document("/metrics")


def scaler(*, most: int, percent: int) -> Json:
    """Render an HPA that does at once what the usage asks for."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "burner"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "burner"},
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": percent},
                    },
                }
            ],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": 0},
            },
        },
    }


@pytest.mark.parametrize(
    "goals",
    [
        pytest.param([(2, 100)], id="up"),
        pytest.param([(4, 50), (1, 1000)], id="up and down", marks=pytest.mark.long),
    ],
)
def test_a_horizontal_pod_autoscaler_scales_in_the_target(
    burning: Space,
    clusters: tuple[RealCluster, RealCluster],
    measured: Measurements,
    goals: list[tuple[int, int]],
) -> None:
    """Pods that use 200 % of their requests become two for half of that, four for a quarter."""
    hub, _ = clusters
    namespace = f"--namespace={burning.namespace}"
    for replicas, percent in goals:
        began = time.monotonic()
        body = scaler(most=max(replicas, len(burning.pods())), percent=percent)
        hub.kubectl("apply", namespace, "--filename=-", stdin=json.dumps(body))
        pods = burning.wait_ready_pods(replicas, timeout_seconds=USAGE_SECONDS)
        measured.note(f"{replicas} replicas after", f"{time.monotonic() - began:.1f} s")
        assert {pod["spec"]["nodeName"] for pod in pods} == {NODE}
        assert len(burning.mirrors()) == replicas
    hub.kubectl("delete", "hpa", "burner", namespace)
    burning.assert_one_mirror_each()

"""Deployments and probes: what a container answers is what the hub believes of it (C40)."""

import pytest

from e2e.images.build import tag_of
from e2e.support.manifests import deployment, pod
from e2e.support.pods import is_ready, name_of, uid_of
from e2e.support.witness import Json

from .crate import Crate, probe
from .reports import PORT

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def _started(crate: Crate) -> None:
    """Submit everything before the first test waits."""
    served = crate.app("serve", readinessProbe=probe("/ready"))
    crate.create(deployment("rolled", crate.spec(served), replicas=2))
    crate.create(
        deployment("quiet", crate.spec({**served, "readinessProbe": quick("/ready")}), replicas=1)
    )
    crate.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "quiet"},
            "spec": {"selector": {"app": "quiet"}, "ports": [{"port": 80, "targetPort": PORT}]},
        }
    )
    checked = crate.app(
        "serve",
        livenessProbe=quick("/healthz"),
        startupProbe=probe("/healthz", failureThreshold=60),
    )
    crate.create(pod("ill", crate.spec(checked)))


def quick(path: str) -> Json:
    """Render a probe that believes the first failure."""
    return probe(path, failureThreshold=1)


def test_a_deployment_is_rolled_to_another_image(crate: Crate) -> None:
    """After `kubectl set image` and `rollout status` the target runs the other image only."""
    crate.wait_rolled_out("deployment/rolled")
    before = {uid_of(pod) for pod in crate.pods_of("rolled")}
    crate.kubectl("set", "image", "deployment/rolled", f"main={tag_of('2')}")
    crate.wait_rolled_out("deployment/rolled")

    after = crate.pods_of("rolled")
    assert len(after) == 2 and before.isdisjoint(map(uid_of, after)), crate.explain()
    for found in after:
        name = name_of(found)
        assert crate.ask(name, "/version").strip() == "2"
        assert [report.version for report in crate.told(name)] == ["2"], crate.explain()
        assert crate.container(name)["image"] == tag_of("2")


def test_a_container_that_fails_its_liveness_probe_is_restarted(crate: Crate) -> None:
    """The hub counts the restart, and says how the run before ended."""
    crate.wait_container("ill", "has started", lambda c: bool(c["ready"]))
    crate.switch("ill", "/healthz", ok=False)
    status = crate.wait_container(
        "ill", "runs again", lambda c: c["restartCount"] == 1 and bool(c["ready"])
    )
    assert "running" in status["state"]
    assert status["lastState"]["terminated"]["exitCode"] == 0
    assert [event for _, event in crate.events("ill")] == [
        "started",
        "asked to end",
        "ended",
        "started",
    ]
    assert len({report.run for report in crate.told("ill")}) == 2


def test_a_container_that_is_not_ready_gets_no_traffic(crate: Crate) -> None:
    """A failing readiness probe takes the hub pod out of Deployment and Service, no more."""
    crate.wait_rolled_out("deployment/quiet")
    (found,) = crate.pods_of("quiet")
    name = name_of(found)

    def ready_replicas() -> int:
        count: int = crate.read("Deployment", "quiet")["status"].get("readyReplicas", 0)
        return count

    crate.switch(name, "/ready", ok=False)
    crate.wait("the Deployment has no ready pod", lambda: ready_replicas() == 0)
    assert not is_ready(crate.read("Pod", name))
    crate.wait("the Service has no ready address", lambda: not ready_addresses(crate, "quiet"))

    crate.switch(name, "/ready", ok=True)
    crate.wait("the Deployment has its ready pod", lambda: ready_replicas() == 1)
    assert uid_of(crate.read("Pod", name)) == uid_of(found)
    assert crate.starts(name) == 1


def ready_addresses(crate: Crate, service: str) -> list[str]:
    labels = f"kubernetes.io/service-name={service}"
    return [
        address
        for piece in crate.hub.list("EndpointSlice", crate.namespace, labels=labels)
        for endpoint in piece["endpoints"] or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    ]

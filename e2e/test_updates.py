"""What a user changes in a pod that runs comes to its mirror, or is told as refused (C25).

Fake nodes play the pods, so that the test can speak as their kubelet; e2e/containers shows what
becomes of the containers.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from e2e.support.manifests import container, pod, pod_spec, quota
from e2e.support.pods import annotations_of, condition_of, is_ready, uid_of
from e2e.support.proxied import proxied
from e2e.support.witness import STRATEGIC_PATCH, Json
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "changing"
REJECTED = "federate.dev/UpdateRejected"
APPLIED = "federate.dev/last-applied-spec"
GENERATION = "federate.dev/hub-generation"
NAME = "web"
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}}
LARGER = {"requests": {"cpu": "200m", "memory": "64Mi"}}

RETRY_SECONDS = 60.0
"""A change refused a moment ago is tried again within this."""


@pytest.fixture(scope="module")
def proxy(local_target: LocalCluster) -> Iterator[FaultProxy]:
    with FaultProxy.before(local_target) as found:
        yield found


@pytest.fixture(scope="module")
def changing(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, proxy: FaultProxy
) -> Iterator[World]:
    """A world of its own, whose federate the test may kill."""
    with proxied(
        worlds, node=NODE, hub=local_hub, target=local_target, target_proxy=proxy
    ) as found:
        yield found


@pytest.fixture
def space(changing: World) -> Iterator[Space]:
    """A hub namespace with one pod that runs."""
    if not changing.federate.is_running:
        changing.start_federate()
    found = Space(changing, f"updates-{uuid4().hex[:4]}")
    found.open()
    spec = pod_spec(NODE, containers=[container(resources=RESOURCES)])
    found.run_pod(pod(NAME, spec, labels={"tier": "web"}))
    yield found
    if not changing.federate.is_running:
        changing.start_federate()
    found.close()


def change(space: Space, spec: Json, *, subresource: str = "") -> None:
    """Change the hub pod as a user does."""
    space.hub.patch(
        *("Pod", space.namespace, NAME, {"spec": spec}),
        subresource=subresource,
        media_type=STRATEGIC_PATCH,
    )


def image(name: str) -> Json:
    return {"containers": [{"name": "main", "image": name}]}


def resources(of: Json) -> Json:
    return {"containers": [{"name": "main", "resources": of}]}


def mirror_of(space: Space) -> Json:
    found = space.mirror(NAME)
    assert found is not None, space.explain()
    return found


def hub_pod_of(space: Space) -> Json:
    found = space.pod(NAME)
    assert found is not None, space.explain()
    return found


def wait_applied(space: Space) -> Json:
    """Wait until the mirror says that all of the hub pod is applied; returns the mirror."""

    def probe() -> Json | None:
        wanted = str(hub_pod_of(space)["metadata"]["generation"])
        mirror = mirror_of(space)
        return mirror if annotations_of(mirror).get(GENERATION) == wanted else None

    return space.wait("the change is applied", probe)


def wait_refused(space: Space) -> Json:
    """Wait until the hub pod says that a change was refused; returns the condition."""
    return space.wait(
        "the refusal is told", lambda: condition_of(hub_pod_of(space), REJECTED) or None
    )


def speak_as_kubelet(
    space: Space, *, given: Json = RESOURCES, ready: bool = True, **status: object
) -> None:
    """Report what the mirror's kubelet would, the resources it gave included."""
    told = mirror_of(space)["status"]
    containers = [
        {**c, "ready": ready, "resources": given, "allocatedResources": given["requests"]}
        for c in told["containerStatuses"]
    ]
    kept = [c for c in told["conditions"] if c["type"] != "Ready"]
    conditions = [*kept, {"type": "Ready", "status": str(ready)}]
    body = {**status, "containerStatuses": containers, "conditions": conditions}
    space.target.patch(
        *("Pod", space.target_namespace, NAME, {"status": body}), subresource="status"
    )


def test_an_update_of_the_pod_itself_comes_to_its_mirror(space: Space) -> None:
    """Image, deadline, toleration and a label: one write each, and then the pair is quiet."""
    before = mirror_of(space)
    tolerations = hub_pod_of(space)["spec"]["tolerations"]
    added = {"key": "example.com/later", "operator": "Exists"}
    change(
        space,
        {**image("app:2"), "activeDeadlineSeconds": 900, "tolerations": [*tolerations, added]},
    )
    space.hub.patch("Pod", space.namespace, NAME, {"metadata": {"labels": {"tier": "db"}}})
    after = wait_applied(space)
    assert uid_of(after) == uid_of(before)
    assert after["spec"]["containers"][0]["image"] == "app:2"
    assert after["spec"]["activeDeadlineSeconds"] == 900
    assert added in after["spec"]["tolerations"]
    space.wait(
        "the label follows", lambda: mirror_of(space)["metadata"]["labels"].get("tier") == "db"
    )
    quiet = mirror_of(space)["metadata"]["resourceVersion"]
    space.hold(
        "the mirror is left alone",
        lambda: mirror_of(space)["metadata"]["resourceVersion"] == quiet,
        seconds=2.0,
    )


def test_what_the_target_makes_of_an_image_stays(space: Space) -> None:
    """An image that the target rewrote is not written back when something else changes."""
    theirs = {"spec": image("cache.example/app:1")}
    where = ("Pod", space.target_namespace, NAME)
    space.target.patch(*where, theirs, media_type=STRATEGIC_PATCH)
    change(space, {"activeDeadlineSeconds": 900})
    assert wait_applied(space)["spec"]["containers"][0]["image"] == "cache.example/app:1"


def test_kubectl_debug_adds_its_container_to_the_mirror(
    space: Space, local_hub: LocalCluster
) -> None:
    """What the target's policy lets pass is added; what it refuses is told by field and rule."""

    def debug(name: str, profile: str) -> None:
        local_hub.kubectl(
            *("debug", f"pod/{NAME}", f"--namespace={space.namespace}", "--image=busybox:1"),
            *(f"--container={name}", "--target=main", f"--profile={profile}"),
        )

    debug("plain", "baseline")
    found = wait_applied(space)["spec"]["ephemeralContainers"]
    assert [(c["name"], c["targetContainerName"]) for c in found] == [("plain", "main")]
    debug("strong", "general")
    told = wait_refused(space)
    assert told["reason"] == "PolicyRefused"
    assert "spec.ephemeralContainers[strong].securityContext.capabilities.add" in told["message"]
    assert [c["name"] for c in mirror_of(space)["spec"]["ephemeralContainers"]] == ["plain"]


def test_a_resize_goes_through_its_subresource(space: Space) -> None:
    """The mirror gets the resources; what its kubelet makes of them is told in the hub's count."""
    # The hub refuses a resize of a pod whose node does not tell resources.
    speak_as_kubelet(space, observedGeneration=mirror_of(space)["metadata"]["generation"])
    space.wait(
        "the hub pod tells resources",
        lambda: "resources" in hub_pod_of(space)["status"]["containerStatuses"][0],
    )
    before = hub_pod_of(space)
    assert before["status"]["observedGeneration"] == before["metadata"]["generation"]
    change(space, resources(LARGER), subresource="resize")
    mirror = wait_applied(space)
    assert mirror["spec"]["containers"][0]["resources"] == LARGER
    observed = hub_pod_of(space)["status"]["observedGeneration"]
    assert observed == before["metadata"]["generation"], "the kubelet has not seen it yet"
    speak_as_kubelet(space, given=LARGER, observedGeneration=mirror["metadata"]["generation"])
    wanted = hub_pod_of(space)["metadata"]["generation"]
    space.wait(
        "the hub pod's generation was observed",
        lambda: hub_pod_of(space)["status"].get("observedGeneration") == wanted,
    )
    assert hub_pod_of(space)["status"]["containerStatuses"][0]["resources"] == LARGER


def test_a_refused_resize_is_told_while_the_status_flows(space: Space) -> None:
    """A quota of the target refuses: condition, one Event, slow retry; status and image go on."""
    space.target.create(quota("small", **{"requests.cpu": "150m"}), space.target_namespace)

    def counts() -> bool:
        found = space.target.get("ResourceQuota", space.target_namespace, "small")
        return found is not None and found.get("status", {}).get("used", {}) != {}

    space.wait("the target's quota is in force", counts)
    speak_as_kubelet(space)
    space.wait(
        "the hub pod tells resources",
        lambda: "resources" in hub_pod_of(space)["status"]["containerStatuses"][0],
    )
    change(space, resources(LARGER), subresource="resize")
    told = wait_refused(space)
    assert (told["status"], told["reason"]) == ("True", "UpdateRejected")
    assert "exceeded quota: small" in told["message"]
    speak_as_kubelet(space, ready=False)
    space.wait("the status flows", lambda: not is_ready(hub_pod_of(space)))
    change(space, image("app:2"))
    space.wait(
        "the image is taken",
        lambda: mirror_of(space)["spec"]["containers"][0]["image"] == "app:2",
    )
    assert mirror_of(space)["spec"]["containers"][0]["resources"] == RESOURCES
    about = f"involvedObject.name={NAME},reason=UpdateRejected"
    events = space.wait("an Event", lambda: space.hub.list("Event", space.namespace, fields=about))
    assert len(events) == 1
    space.target.delete("ResourceQuota", space.target_namespace, "small")
    space.wait(
        "the resize is taken",
        lambda: mirror_of(space)["spec"]["containers"][0]["resources"] == LARGER,
        timeout_seconds=RETRY_SECONDS,
    )
    space.wait("nothing is told any more", lambda: not condition_of(hub_pod_of(space), REJECTED))


def test_a_kill_between_a_change_and_its_record_does_no_harm(
    space: Space, proxy: FaultProxy
) -> None:
    """The record of a change through a subresource never arrives: the next process writes it."""
    path = f"/api/v1/namespaces/{space.target_namespace}/pods/{NAME}"
    with proxy.drop(f"PATCH {path}"):
        debug = {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]}
        change(space, debug, subresource="ephemeralcontainers")
        space.wait(
            "the container is added",
            lambda: mirror_of(space)["spec"].get("ephemeralContainers"),
        )
        assert "debug" not in annotations_of(mirror_of(space))[APPLIED]
        space.world.federate.kill()
    generation = mirror_of(space)["metadata"]["generation"]
    space.world.start_federate()
    mirror = wait_applied(space)
    assert "debug" in annotations_of(mirror)[APPLIED]
    assert mirror["metadata"]["generation"] == generation, "its spec was not written again"
    assert not condition_of(hub_pod_of(space), REJECTED)

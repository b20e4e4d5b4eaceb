"""What a kubelet would change in a pod that runs is changed in the target's container (C25)."""

import pytest
from kubernetes.dynamic.exceptions import NotFoundError

from e2e.images.build import tag_of
from e2e.support.manifests import pod
from e2e.support.pods import condition_of, is_ready, labels_of, uid_of
from e2e.support.witness import STRATEGIC_PATCH, Json

from .crate import NOWHERE, Crate, probe, waits_for_image

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e

KILLED_FOR_TIME = "DeadlineExceeded"

UPDATE_REJECTED = "federate.dev/UpdateRejected"

LABELS_FILE = "/about/labels"
MOOD = "example.com/mood"

NO_EXECUTE = {"key": "example.com/dry", "operator": "Exists", "effect": "NoExecute"}

CPU_QUOTA_FILES = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
"""Where a container sees its CPU limit, with either version of cgroups."""


@pytest.fixture(scope="module", autouse=True)
def _started(crate: Crate) -> None:
    """Submit everything before the first test waits."""
    served = crate.app("serve")
    for name in ("repainted", "debugged", "tolerant"):
        crate.create(pod(name, crate.spec(served)))
    watched = crate.app("serve", readinessProbe=probe("/ready", failureThreshold=1))
    crate.create(pod("guarded", crate.spec(watched)))
    crate.create(pod("hopeless", crate.spec(crate.app("serve", image=NOWHERE))))
    crate.create(pod("late", crate.spec(crate.app("sleep"))))
    sized = crate.app("serve", resources={"requests": {"cpu": "20m"}, "limits": {"cpu": "200m"}})
    crate.create(pod("sized", crate.spec(sized)))
    crate.create(pod("moody", moody(crate), labels={MOOD: "calm"}))


def moody(crate: Crate) -> Json:
    """Render a pod that can read one of its labels from a file."""
    source = {"path": "labels", "fieldRef": {"fieldPath": f"metadata.labels['{MOOD}']"}}
    mount = {"name": "about", "mountPath": "/about"}
    return crate.spec(
        crate.app("serve", volumeMounts=[mount]),
        volumes=[{"name": "about", "downwardAPI": {"items": [source]}}],
    )


def test_another_image_restarts_the_container(crate: Crate) -> None:
    """`kubectl set image pod/...` runs the other image in the same pod, one restart later."""
    crate.wait_serving("repainted")
    assert crate.ask("repainted", "/version").strip() == "1"
    crate.kubectl("set", "image", "pod/repainted", f"main={tag_of('2')}")
    status = crate.wait_container(
        "repainted", "was restarted", lambda c: c["restartCount"] == 1 and bool(c["ready"])
    )
    assert status["image"] == tag_of("2")
    started = [r.version for r in crate.told("repainted") if r.event == "started"]
    assert started == ["1", "2"], crate.explain()


def test_an_image_that_was_misspelt_is_mended(crate: Crate) -> None:
    """A pod whose image cannot be pulled runs once the image is one that is there."""
    crate.wait_container("hopeless", "waits for its image", waits_for_image)
    crate.kubectl("set", "image", "pod/hopeless", f"main={tag_of('2')}")
    crate.wait_serving("hopeless")
    assert crate.ask("hopeless", "/version").strip() == "2"
    assert crate.starts("hopeless") == 1


def test_a_deadline_set_later_ends_the_pod(crate: Crate) -> None:
    """activeDeadlineSeconds given to a running pod ends its container in good order."""
    crate.wait_told("late", "started")
    crate.hub.patch("Pod", crate.namespace, "late", {"spec": {"activeDeadlineSeconds": 1}})
    found = crate.wait_phase("late", "Failed")
    assert found["status"]["reason"] == KILLED_FOR_TIME
    crate.wait_told("late", "ended")
    assert crate.starts("late") == 1


def test_a_label_reaches_the_container(crate: Crate) -> None:
    """`kubectl label` on the hub changes what the container reads of itself."""
    path = f"/file?path={LABELS_FILE}"
    crate.wait_serving("moody")
    assert crate.ask("moody", path) == "calm"
    crate.kubectl("label", "pod", "moody", "--overwrite", f"{MOOD}=merry")
    crate.wait("the file has the new label", lambda: crate.ask("moody", path) == "merry")
    mirror = crate.mirror("moody")
    assert mirror is not None and labels_of(mirror)[MOOD] == "merry"
    assert crate.starts("moody") == 1


def test_a_toleration_reaches_the_mirror(crate: Crate) -> None:
    """A toleration given to a running pod holds in the target too, without a restart."""
    crate.wait_told("tolerant", "started")
    kept = crate.read("Pod", "tolerant")["spec"]["tolerations"]
    body = {"spec": {"tolerations": [*kept, NO_EXECUTE]}}
    crate.hub.patch("Pod", crate.namespace, "tolerant", body)

    def tolerates() -> bool:
        mirror = crate.mirror("tolerant")
        return mirror is not None and NO_EXECUTE in mirror["spec"]["tolerations"]

    crate.wait("the mirror has the toleration", tolerates)
    assert crate.starts("tolerant") == 1


def debug(crate: Crate, name: str, *, profile: str) -> None:
    """Run `kubectl debug` on the hub; the container is called `look` and ends by itself."""
    # A debug container gets no downward API: it is told which pod it is in.
    about = {**crate.environment("look"), "POD_UID": uid_of(crate.read("Pod", name))}
    crate.kubectl(
        *("debug", name, f"--image={tag_of('1')}", "--container=look", f"--profile={profile}"),
        *(f"--env={key}={value}" for key, value in about.items()),
        *("--arguments-only", "--", "sleep", "2"),
    )


def test_a_debug_container_runs_beside_the_others(crate: Crate) -> None:
    """`kubectl debug` on the hub starts a container in the target's pod, and shows how it is."""
    crate.wait_told("debugged", "started")
    debug(crate, "debugged", profile="baseline")
    crate.wait_told("debugged", "ended", "look")
    crate.wait("the hub says that it ended", lambda: is_over(crate.container("debugged", "look")))
    assert crate.starts("debugged", "look") == 1
    assert crate.starts("debugged") == 1


def test_a_debug_container_that_the_target_forbids_is_told(crate: Crate) -> None:
    """A change that the target's PodSecurity refuses shows on the hub pod, which lives on."""
    crate.wait_serving("guarded")
    debug(crate, "guarded", profile="general")

    def refusal() -> Json | None:
        return condition_of(crate.read("Pod", "guarded"), UPDATE_REJECTED) or None

    told = crate.wait("the hub pod tells the refusal", refusal)
    assert "SYS_PTRACE" in told["message"], told
    crate.switch("guarded", "/ready", ok=False)
    crate.wait("its status goes on", lambda: not is_ready(crate.read("Pod", "guarded")))
    assert not crate.starts("guarded", "look") and crate.starts("guarded") == 1


def is_over(status: Json) -> bool:
    ended = status.get("state", {}).get("terminated", {})
    return bool(ended) and ended["exitCode"] == 0


def test_a_container_is_resized_in_place(crate: Crate) -> None:
    """More CPU given to a running pod is what its container has, without a restart."""
    crate.wait_serving("sized")
    before = cpu_quota(crate, "sized")
    container = {"name": "main", "resources": {"limits": {"cpu": "400m"}}}
    crate.hub.patch(
        "Pod",
        crate.namespace,
        "sized",
        {"spec": {"containers": [container]}},
        subresource="resize",
        media_type=STRATEGIC_PATCH,
    )
    status = crate.wait_container(
        "sized",
        "has what it was given",
        lambda c: bool(c.get("resources", {}).get("limits", {}).get("cpu") == "400m"),
    )
    assert status["restartCount"] == 0 and crate.starts("sized") == 1
    crate.wait("the kernel gives it twice as much", lambda: cpu_quota(crate, "sized") == 2 * before)


def cpu_quota(crate: Crate, name: str) -> int:
    """Return how many microseconds of a period the container may use, as it sees it."""
    for path in CPU_QUOTA_FILES:
        try:
            return int(crate.ask(name, f"/file?path={path}").split()[0])
        except NotFoundError:
            continue
    raise AssertionError(f"None of {CPU_QUOTA_FILES} is there.")

"""Labels and annotations flow down, and nobody can forge federate's own (C24)."""

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import annotations_of, labels_of, uid_of
from e2e.support.scenarios import PATCHES_TO_START
from e2e.support.world import Space
from e2e.support.writes import mirror_patches

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def label(space: Space, name: str, **labels: str | None) -> None:
    """Change labels of a hub pod; None removes one."""
    space.hub.patch("Pod", space.namespace, name, {"metadata": {"labels": labels}})


def test_labels_follow_and_what_the_target_added_stays(space: Space) -> None:
    """Labels and annotations follow the hub pod's; what was added in the target stays."""
    space.run_pod(
        pod(
            "labelled",
            pod_spec(space.node),
            labels={"tier": "web", "colour": "blue"},
            annotations={"example.com/note": "one"},
        )
    )
    mirror = space.read_mirror("labelled")
    assert labels_of(mirror).get("tier") == "web"
    assert annotations_of(mirror).get("example.com/note") == "one"
    added = {"metadata": {"labels": {"added-there": "yes"}}}
    space.target.patch("Pod", space.target_namespace, "labelled", added)

    label(space, "labelled", colour="green", size="large", tier=None)

    def followed() -> bool:
        labels = labels_of(space.read_mirror("labelled"))
        return (labels.get("colour"), labels.get("size"), "tier" in labels) == (
            "green",
            "large",
            False,
        )

    space.wait("the mirror has the new labels", followed)
    after = space.read_mirror("labelled")
    assert labels_of(after).get("added-there") == "yes"
    assert uid_of(after) == uid_of(mirror)
    history = space.world.target_record.events(uid=uid_of(mirror))
    changes = mirror_patches(history) - PATCHES_TO_START
    assert changes == 1, "one change on the hub is one write in the target"


def test_a_pod_with_forged_labels_is_refused(space: Space) -> None:
    """A hub pod that carries federate's own labels is taken for a mirror and never mirrored."""
    forged = {"federate.dev/hub": "somebody", "federate.dev/hub-pod-uid": "somebody"}
    space.create(pod("forged", pod_spec(space.node), labels=forged))
    space.wait_waiting("forged", "MirrorOfMirror")
    assert space.mirror("forged") is None


def test_forged_labels_on_a_running_pod_do_not_flow(space: Space) -> None:
    """federate's own labels, put on a running hub pod, never reach its mirror or end it."""
    hub_pod = space.run_pod(pod("later", pod_spec(space.node)))
    marks = labels_of(space.read_mirror("later"))
    forged: dict[str, str | None] = {"federate.dev/hub": "somebody", "seen": "yes"}
    label(space, "later", **forged)
    space.wait(
        "other labels flow on",
        lambda: labels_of(space.read_mirror("later")).get("seen") == "yes",
    )
    assert labels_of(space.read_mirror("later")) == {**marks, "seen": "yes"}
    after = space.pod("later")
    assert after is not None and uid_of(after) == uid_of(hub_pod)


def test_a_copied_record_is_no_record(space: Space) -> None:
    """A pod made from another's manifest, annotations and all, gets a mirror of its own."""
    model = space.run_pod(pod("model", pod_spec(space.node)))
    copied = {**annotations_of(model), "federate.dev/hub-pod-name": "model"}
    assert "federate.dev/mirror" in copied
    space.run_pod(pod("copy", pod_spec(space.node), annotations=copied))
    mirror = space.read_mirror("copy")
    assert annotations_of(mirror)["federate.dev/hub-pod-name"] == "copy"
    assert "federate.dev/mirror" not in annotations_of(mirror)
    assert uid_of(mirror) != uid_of(space.read_mirror("model"))
    space.assert_one_mirror_each()

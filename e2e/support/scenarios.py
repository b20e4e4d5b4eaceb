"""A story that is told on more than one pair of clusters."""

from collections.abc import Sequence

from .manifests import deployment, pod_spec
from .measuring import Measurements
from .pods import hub_pod_uid_of, uid_of
from .recorder import Change
from .world import Space
from .writes import hub_writes, mirror_patches

MOST_WRITES_UP = 4
"""Intent, uid on record, and two statuses: a kubelet writes as many."""

MOST_WRITES_DOWN = 3
"""A status while ending, the last state, and the delete that lets the hub pod go."""

PATCHES_TO_START = 1
"""The mirror's gate is lifted when it is on record (decision 0008)."""


def scale_there_and_back(
    space: Space, measured: Measurements, *, large: int, small: int, timeout_seconds: float = 60.0
) -> None:
    """Scale a Deployment up, down, up again and away; count pods and writes on both sides."""
    space.create(deployment("web", pod_spec(space.node), replicas=large))
    space.wait_ready_pods(large, timeout_seconds=timeout_seconds)
    assert_mirrored(space, large)

    space.scale("web", small)
    space.wait_ready_pods(small, timeout_seconds=timeout_seconds)
    space.wait("the mirrors of removed pods are gone", lambda: len(space.mirrors()) == small)
    assert_mirrored(space, small)

    space.scale("web", large)
    space.wait_ready_pods(large, timeout_seconds=timeout_seconds)
    assert_mirrored(space, large)

    space.hub.delete("Deployment", space.namespace, "web")
    space.wait_nothing_left(timeout_seconds=timeout_seconds)

    space.assert_one_mirror_each()
    assert len(space.hub_pod_uids()) == 2 * large - small
    assert_writes_bounded(space, measured)


def assert_mirrored(space: Space, count: int) -> None:
    """Make sure that there are so many mirrors, one for each hub pod."""
    hub_pod_uids = {uid_of(pod) for pod in space.pods()}
    mirrored = [hub_pod_uid_of(mirror) for mirror in space.mirrors()]
    assert len(mirrored) == count, space.explain()
    assert set(mirrored) == hub_pod_uids, space.explain()


def assert_writes_bounded(space: Space, measured: Measurements) -> None:
    """Hold the writes per pod, of pods that are gone, against their bounds."""
    ups_and_downs = [
        hub_writes(history)
        for history in space.world.hub_record.histories(space.namespace).values()
    ]
    mirrors = space.world.target_record.histories(space.target_namespace).values()
    creates = [sum(e.change is Change.CREATED for e in history) for history in mirrors]
    patches = [mirror_patches(history) for history in mirrors]
    measured.note("writes per hub pod up", spread([writes.up for writes in ups_and_downs]))
    measured.note("writes per hub pod down", spread([writes.down for writes in ups_and_downs]))
    measured.note("patches per mirror", spread(patches))
    assert max(writes.up for writes in ups_and_downs) <= MOST_WRITES_UP
    assert max(writes.down for writes in ups_and_downs) <= MOST_WRITES_DOWN
    assert creates == [1] * len(ups_and_downs)
    assert max(patches) <= PATCHES_TO_START


def spread(numbers: Sequence[int]) -> str:
    """Say how numbers are spread: mean and greatest."""
    return f"{sum(numbers) / len(numbers):.1f} on average, at most {max(numbers)}"

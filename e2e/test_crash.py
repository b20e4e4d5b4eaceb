"""federate dies in the middle of its work: nothing runs twice, nothing is forgotten (C20, C71)."""

from collections.abc import Callable

import pytest

from e2e.support.manifests import run_once
from e2e.support.measuring import Measurements
from e2e.support.pods import phase_of, uid_of
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

PODS_EACH_TIME = 20

MIRRORS_AT_THE_CRASH = (1, 6, 12)
"""How many of them exist when federate is killed; by then the others are under way."""


def test_pods_run_once_although_federate_is_killed_while_it_creates_them(
    fragile_space: Space, measured: Measurements
) -> None:
    """Every pod of restartPolicy Never has one mirror ever, and succeeds, despite three crashes."""
    space, world = fragile_space, fragile_space.world
    record, each_time = world.target_record, space.pace.many(PODS_EACH_TIME)

    def mirrors() -> int:
        return len(record.mirror_uids(space.target_namespace))

    for crash, enough in enumerate(MIRRORS_AT_THE_CRASH):
        for number in range(each_time):
            space.create(run_once(f"once-{crash}-{number}", space.node))
        wait_for_mirrors(space, mirrors, crash * each_time + space.pace.many(enough))
        world.federate.kill()
        measured.note(f"mirrors at crash {crash + 1}", f"{mirrors()} of {len(space.pods())}")
        world.start_federate()

    pods = each_time * len(MIRRORS_AT_THE_CRASH)
    space.wait(
        "all pods succeed",
        lambda: [phase_of(found) for found in space.pods()] == ["Succeeded"] * pods,
        timeout_seconds=60.0,
    )
    space.assert_one_mirror_each()
    mirrored = record.mirror_uids(space.target_namespace)
    assert set(mirrored) == {uid_of(found) for found in space.pods()}
    assert len(space.hub_pod_uids()) == pods


def wait_for_mirrors(space: Space, mirrors: Callable[[], int], count: int) -> None:
    space.wait(f"{count} mirrors", lambda: mirrors() >= count)

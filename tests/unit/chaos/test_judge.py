"""The judge: one accusation for each promise that is broken, and none for what is right."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from e2e.chaos.judge import APART_SECONDS, Judge
from e2e.chaos.plan import Side
from e2e.chaos.sighting import Sighting

NODE = "stormy"
LATER = APART_SECONDS + 1.0

HUB_POD = Sighting(
    at=0.0,
    side=Side.HUB,
    event="ADDED",
    namespace="chaos",
    name="job",
    uid="H",
    version="1",
    phase="Pending",
    node=NODE,
)
MIRROR = Sighting(
    at=0.0,
    side=Side.TARGET,
    event="ADDED",
    namespace="hub-chaos",
    name="job",
    uid="M",
    version="1",
    phase="Pending",
    origin="H",
    is_gated=True,
)


@dataclass(slots=True)
class Story:
    """Sightings, one second apart."""

    judge: Judge = field(default_factory=lambda: Judge(node=NODE))
    now: float = 100.0

    def see(self, seen: Sighting, **changes: object) -> Sighting:
        self.now += 1.0
        seen = replace(seen, at=self.now, **changes)  # type: ignore[arg-type]
        self.judge.see(seen)
        return seen

    def wait(self, seconds: float = LATER) -> None:
        self.now += seconds
        self.judge.tick(self.now)

    @property
    def rules(self) -> list[str]:
        """What was accused, every question answered."""
        self.wait()
        return [violation.rule for violation in self.judge.violations]

    def run(self) -> tuple[Sighting, Sighting]:
        """Bring hub pod and mirror to where both run."""
        hub_pod, mirror = self.see(HUB_POD), self.see(MIRROR)
        mirror = self.see(mirror, event="MODIFIED", is_gated=False)
        mirror = self.see(mirror, node="target-node", phase="Running")
        return self.see(hub_pod, event="MODIFIED", phase="Running"), mirror

    def complete(self) -> tuple[Sighting, Sighting]:
        """Bring both to where they succeeded."""
        hub_pod, mirror = self.run()
        mirror = self.see(mirror, phase="Succeeded")
        return self.see(hub_pod, phase="Succeeded"), mirror


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_whole_life_is_no_violation(story: Story) -> None:
    """A pod runs once, succeeds, is deleted, and its mirror goes first."""
    hub_pod, mirror = story.run()
    hub_pod = story.see(hub_pod, is_terminating=True, grace_seconds=30)
    mirror = story.see(mirror, is_terminating=True, grace_seconds=30)
    story.see(mirror, event="DELETED")
    hub_pod = story.see(hub_pod, phase="Failed")
    story.see(hub_pod, event="DELETED")
    assert story.rules == []


def test_a_second_mirror_that_gets_a_node_is_a_second_run(story: Story) -> None:
    """A run-once pod whose first mirror is long gone may not run again."""
    _, mirror = story.run()
    story.judge.admin_takes("M", "H", "deleted", story.now)
    story.see(mirror, event="DELETED")
    story.see(MIRROR, uid="N", is_gated=False, node="target-node")
    assert story.rules == ["a pod ran twice"]


def test_a_second_mirror_that_is_held_back_has_not_run(story: Story) -> None:
    """A late create does no harm: the gate is never lifted, and the mirror goes."""
    story.run()
    late = story.see(MIRROR, uid="N")
    late = story.see(late, event="MODIFIED", is_terminating=True)
    story.see(late, event="DELETED")
    assert story.rules == []


def test_two_mirrors_may_not_live_at_once_even_if_the_pod_restarts(story: Story) -> None:
    """At most one mirror that the gate does not hold back."""
    story.see(replace(HUB_POD, runs_once=False))
    story.see(MIRROR, is_gated=False, runs_once=False)
    story.see(MIRROR, uid="N", is_gated=False, runs_once=False)
    assert story.rules == ["two mirrors of a hub pod lived at once"]


@pytest.mark.parametrize("phase", ["Running", "Failed", "Pending"])
def test_a_terminal_phase_is_for_ever(story: Story, phase: str) -> None:
    """A pod that succeeded says nothing else any more."""
    hub_pod, _ = story.complete()
    story.see(hub_pod, phase=phase)
    assert story.rules == ["a terminal phase changed"]


def test_a_terminal_pod_may_not_run_again(story: Story) -> None:
    """Not even one that restarts: its first mirror never ran."""
    hub_pod = story.see(replace(HUB_POD, runs_once=False))
    story.judge.admin_takes("M", "H", "deleted", story.now)
    story.see(hub_pod, phase="Failed")
    story.wait()
    story.see(MIRROR, runs_once=False, is_gated=False, node="target-node")
    assert story.rules == ["a terminal pod ran again"]


def test_a_running_pod_does_not_become_pending(story: Story) -> None:
    """No kubelet says so."""
    hub_pod, _ = story.run()
    story.see(hub_pod, phase="Pending")
    assert story.rules == ["a running pod became pending"]


def test_a_pod_does_not_fail_without_a_reason(story: Story) -> None:
    """Nothing happened to its mirror."""
    hub_pod, _ = story.run()
    story.see(hub_pod, phase="Failed", reason="MirrorLost")
    assert story.rules == ["a hub pod failed without a reason"]


def excuse_taken(story: Story, mirror: Sighting) -> None:
    story.judge.admin_takes("M", "H", "vanishes", story.now)


def excuse_failed(story: Story, mirror: Sighting) -> None:
    story.see(mirror, phase="Failed")


@pytest.mark.parametrize("excuse", [excuse_taken, excuse_failed])
def test_a_pod_fails_with_its_mirror(
    story: Story, excuse: Callable[[Story, Sighting], None]
) -> None:
    """Its mirror failed, or somebody in the target deleted it."""
    hub_pod, mirror = story.run()
    excuse(story, mirror)
    story.see(hub_pod, phase="Failed")
    assert story.rules == []


def test_a_mirror_is_not_ended_while_its_hub_pod_lives(story: Story) -> None:
    """Nobody asked for it, and it was not the admins' deed."""
    _, mirror = story.run()
    story.see(mirror, is_terminating=True)
    assert story.rules == ["a mirror was ended without a reason"]


def test_the_reason_for_a_mirrors_end_may_be_seen_a_little_later(story: Story) -> None:
    """The two watches are not equally fast."""
    hub_pod, mirror = story.run()
    story.see(mirror, is_terminating=True)
    story.see(hub_pod, is_terminating=True)
    assert story.rules == []


def test_a_mirror_may_not_outlive_its_hub_pod(story: Story) -> None:
    """It was read in the target after the hub pod had gone."""
    hub_pod, _ = story.run()
    hub_pod = story.see(hub_pod, is_terminating=True)
    story.see(hub_pod, event="DELETED")
    story.judge.mirror_outlived("H", "M", story.now)
    assert story.rules == ["the hub pod left before its mirror"]


def forced(story: Story) -> None:
    story.judge.user_forces("H", story.now)


def over(story: Story) -> None:
    assert story.judge.hub_pods["H"].last is not None
    story.see(story.judge.hub_pods["H"].last, phase="Succeeded")


def collected(story: Story) -> None:
    assert story.judge.hub_pods["H"].last is not None
    story.see(story.judge.hub_pods["H"].last, phase="Failed", is_collected=True)


@pytest.mark.parametrize("why", [forced, over, collected])
def test_a_hub_pod_that_left_at_once_leaves_its_mirror_behind(
    story: Story, why: Callable[[Story], None]
) -> None:
    """Forced away, terminal already, or collected because its node was gone."""
    story.run()
    why(story)
    present = story.judge.hub_pods["H"].last
    assert present is not None
    story.see(present, event="DELETED")
    story.judge.mirror_outlived("H", "M", story.now)
    assert story.rules == []


@pytest.mark.parametrize(
    "change", [{"is_terminating": True}, {"event": "DELETED"}, {"labels": {"ours": "now"}}]
)
def test_a_foreign_pod_is_left_alone(story: Story, change: dict[str, object]) -> None:
    """Not deleted, and not relabelled; its own cluster may write its status."""
    foreign = replace(MIRROR, uid="F", origin="", is_gated=False)
    story.judge.guard(foreign)
    story.see(foreign, event="MODIFIED", phase="Running")
    assert story.rules == []
    story.see(foreign, **change)
    assert story.rules == ["a foreign pod was touched"]


def test_a_mirror_is_known_by_its_uid_when_its_marks_are_gone(story: Story) -> None:
    """An admin took the labels off: it is the same mirror, and still the only one."""
    _, mirror = story.run()
    story.see(mirror, origin="")
    story.see(MIRROR, uid="N", is_gated=False, node="target-node")
    assert story.rules == ["a pod ran twice", "two mirrors of a hub pod lived at once"]


def test_a_history_tells_both_sides_in_order(story: Story) -> None:
    """What was seen, what was done, and the accusation."""
    hub_pod, _ = story.run()
    story.judge.note("H", "somebody looked at it", story.now)
    story.see(hub_pod, phase="Pending")
    words = [text for _, text in story.judge.history("H")]
    assert [text.split()[0] for text in words[:5]] == ["hub", "target", "target", "target", "hub"]
    assert words[-3:-1] == ["       somebody looked at it", words[-2]]
    assert "VIOLATION" in words[-1]

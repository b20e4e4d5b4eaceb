"""Refused pods that fail: one of an owner's in each back-off."""

from __future__ import annotations

from itertools import pairwise

from federate.policy.turns import FIRST_SECONDS, LONGEST_SECONDS, FailingTurns


class Scene:
    """An hour that goes by at a word."""

    def __init__(self, *, owners_kept: int = 100) -> None:
        self.now = 0.0
        self.turns = FailingTurns(lambda: self.now, owners_kept=owners_kept)

    def fail(self, owner: str, pod: str, *, at: float) -> float:
        """Let a refused pod fail if it may; how long does it have to wait?"""
        self.now = at
        wait = self.turns.wait_seconds(owner, pod)
        if wait == 0:
            self.turns.take(owner, pod)
        return wait


def test_c26_a_replicaset_makes_no_storm() -> None:
    """An hour of a ReplicaSet that replaces at once: ten seconds, doubling, to five minutes."""
    scene, now = Scene(), 0.0
    failed: list[float] = []
    while now <= 3600:
        wait = scene.fail("rs", f"pod-{len(failed)}", at=now)
        if wait == 0:
            failed.append(now)
        now += wait
    gaps = [after - before for before, after in pairwise(failed)]
    assert gaps[:6] == [10, 20, 40, 80, 160, 300]
    assert set(gaps[5:]) == {LONGEST_SECONDS}
    assert len(failed) == 16


def test_c26_of_a_hundred_pods_at_once_one_fails() -> None:
    """The others of the same owner wait for the same end of the back-off; other owners do not."""
    scene = Scene()
    waits = [scene.fail("rs", f"pod-{n}", at=5.0) for n in range(100)]
    assert waits == [0.0, *[FIRST_SECONDS] * 99]
    assert scene.fail("other", "pod-x", at=5.0) == 0.0


def test_asking_takes_no_turn() -> None:
    """Whoever only asks keeps nobody waiting."""
    scene = Scene()
    assert scene.turns.wait_seconds("rs", "a") == 0.0
    assert scene.fail("rs", "b", at=0.0) == 0.0


def test_whose_turn_it_was_keeps_it() -> None:
    """A write that was lost is made again without a wait, and moves nothing."""
    scene = Scene()
    assert scene.fail("rs", "a", at=0.0) == 0.0
    assert scene.fail("rs", "a", at=3.0) == 0.0
    assert scene.fail("rs", "b", at=3.0) == FIRST_SECONDS - 3.0
    assert scene.fail("rs", "b", at=FIRST_SECONDS) == 0.0


def test_a_pod_without_an_owner_fails_at_once() -> None:
    """Nobody replaces it; and it keeps nobody waiting."""
    scene = Scene()
    assert [scene.fail("", f"pod-{n}", at=0.0) for n in range(3)] == [0.0] * 3


def test_an_owner_that_was_quiet_begins_anew() -> None:
    """After twice the longest back-off; a moment earlier it goes on doubling."""
    for quiet, expected in ((2 * LONGEST_SECONDS + 1, FIRST_SECONDS), (100, 2 * FIRST_SECONDS)):
        scene = Scene()
        scene.fail("rs", "a", at=0.0)
        now = FIRST_SECONDS + quiet
        assert scene.fail("rs", "b", at=now) == 0.0
        assert scene.fail("rs", "c", at=now) == expected


def test_memory_is_bounded() -> None:
    """The owner that was quiet longest is forgotten, and the others are not."""
    scene = Scene(owners_kept=2)
    for number, owner in enumerate("abc"):
        scene.fail(owner, "pod-1", at=float(number))
    assert scene.fail("c", "pod-2", at=3.0) > 0
    assert scene.fail("b", "pod-2", at=3.0) > 0
    assert scene.fail("a", "pod-2", at=3.0) == 0

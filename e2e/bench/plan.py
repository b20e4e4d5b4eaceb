"""What is to be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from e2e.testbed.provider import NodePlay

from .updown import Arm


class Part(StrEnum):
    """The parts of the benchmark."""

    UP_DOWN = "up-down"
    """A Deployment up and down, in pairs of arms."""
    STANDING = "standing"
    """Many pods that stand: memory, idle cost, latencies, a cold start."""
    STREAMS = "streams"
    """Logs, exec and port-forward through the hub, against the target itself: real containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run of the benchmark."""

    parts: Sequence[Part] = tuple(Part)
    sizes: Sequence[int] = (10, 100, 1000)
    pairs: int = 7
    arms: Sequence[Arm] = tuple(Arm)
    plays: Sequence[NodePlay] = ("plain", "lifelike")
    standing_pods: int = 1000
    standing_from: int = 100
    """Memory is told as the slope between these two numbers of pods."""
    idle_seconds: float = 300.0
    samples: int = 200
    """How many single creates and statuses the latencies are of."""
    profile_folder: Path | None = None
    output: Path | None = None
    """Base name of the results; None writes none."""


def arms_in_turn(arms: Sequence[Arm], pair: int) -> list[Arm]:
    """Return the order of the arms in a pair: every other one is turned round."""
    return list(arms) if pair % 2 == 0 else list(reversed(arms))

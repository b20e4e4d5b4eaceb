"""Draw what is to happen in a storm: faults in lanes, and acts of users and admins. Pure.

A lane is what can have one fault at a time: an API server, the wires to one side, the processes.
Lanes run side by side, so that faults of different lanes overlap. Every storm has each fault at
least once: so many storms, so many faults of each kind.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Side(StrEnum):
    """One of the two clusters."""

    HUB = "hub"
    TARGET = "target"


class FaultKind(StrEnum):
    """What breaks."""

    KILL = "federate killed"
    TERMINATE = "federate stopped in good order"
    FREEZE = "leader frozen for longer than its lease"
    FORCED_MEANWHILE = "hub pod force-deleted while federate is down"
    PAUSE_API = "API server paused"
    KILL_API = "API server killed and started again"
    DROP = "packets dropped"
    RESET = "connections reset"
    HALF_OPEN = "connections half open"
    DELAY = "answers delayed"
    BUFFER_WATCH = "watches buffered"
    THROTTLE = "answered with 429"
    UNAVAILABLE = "answered with 503"
    LOSE_REPLY = "replies lost"
    LATE_REQUEST = "a write arrives late"
    SWALLOW = "a watch event is lost"
    VANISH = "mirror vanishes"
    UNMARK = "marks of a mirror removed for a while"
    NODE_DELETED = "node deleted"
    LEASE_DELETED = "leader lease deleted"


class Lane(StrEnum):
    """What has one fault at a time."""

    PROCESSES = "processes"
    HUB_API = "hub API server"
    TARGET_API = "target API server"
    HUB_WIRE = "wire to the hub"
    TARGET_WIRE = "wire to the target"
    HUB_REQUESTS = "single requests to the hub"
    TARGET_REQUESTS = "single requests to the target"
    OBJECTS = "objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that breaks, and for how long."""

    kind: FaultKind
    seconds: float = 0.0
    side: Side | None = None
    is_leaders: bool = False
    """Whether it is the leader's wire alone: the other replica is not cut off."""
    is_mute: bool = False
    """Whether a lost reply leaves the connection open."""

    @property
    def name(self) -> str:
        """Name the fault for counting."""
        return f"{self.side}: {self.kind}" if self.side else str(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A fault and the instant it begins, in seconds from the storm's beginning."""

    at: float
    fault: Fault


class ActKind(StrEnum):
    """What users of the hub and admins of the target do."""

    RUN_ONCE = "run a pod once, to its end"
    RUN_JOB = "run a Job"
    RUN_ON = "run a pod once, without an end"
    RUN_PLAIN = "run a pod that restarts"
    DELETE = "delete a pod"
    DELETE_SLOW = "delete a pod whose mirror ends slowly"
    FORCE = "force a pod away"
    FORCE_AND_REPEAT = "force a pod away and make another of its name"
    DELETE_OWNED = "delete a pod of a Deployment or StatefulSet"
    SCALE = "scale a Deployment"
    RELABEL = "change a pod's labels"
    TIDY = "delete finished pods and Jobs"
    DELETE_MIRROR = "admin deletes a mirror"
    EVICT_MIRROR = "admin evicts a mirror"


WEIGHTS: Mapping[ActKind, int] = {
    ActKind.RUN_ONCE: 6,
    ActKind.RUN_JOB: 3,
    ActKind.RUN_ON: 5,
    ActKind.RUN_PLAIN: 2,
    ActKind.DELETE: 3,
    ActKind.DELETE_SLOW: 2,
    ActKind.FORCE: 2,
    ActKind.FORCE_AND_REPEAT: 2,
    ActKind.DELETE_OWNED: 2,
    ActKind.SCALE: 2,
    ActKind.RELABEL: 2,
    ActKind.TIDY: 2,
    ActKind.DELETE_MIRROR: 1,
    ActKind.EVICT_MIRROR: 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What somebody does, and when; `seed` decides which pod it is done to."""

    at: float
    kind: ActKind
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """Everything that happens between two calms."""

    seconds: float
    lanes: Mapping[Lane, Sequence[Timed]]
    acts: Sequence[Act]

    def faults(self) -> list[Fault]:
        """List all faults."""
        return [timed.fault for lane in self.lanes.values() for timed in lane]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long faults wait to meet something they can strike, beyond their own time."""

    wire_seconds: float
    single_seconds: float
    """For one request or event: such a fault disturbs nothing until then."""
    leader_seconds: float
    """For a leader that can be hurt."""
    repeats: bool
    """Whether what met nothing is tried once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How storms are drawn."""

    seconds: float
    acts_per_second: float
    freeze_seconds: float
    """How long at most: longer than the leader lease and a standby's patience; 0 for never."""
    patience: Patience
    rounds: int = 1
    """How many faults of each kind."""


API_SECONDS = (2.0, 6.0)
WIRE_SECONDS = (1.5, 4.5)
LATE_SECONDS = (3.0, 20.0)
DOWN_SECONDS = (0.0, 3.0)
UNMARKED_SECONDS = (2.0, 6.0)

LEADERS_SHARE = 0.4
"""How many of the wires' faults are the leader's alone."""

WIRE_KINDS = (
    FaultKind.DROP,
    FaultKind.RESET,
    FaultKind.HALF_OPEN,
    FaultKind.DELAY,
    FaultKind.BUFFER_WATCH,
    FaultKind.THROTTLE,
    FaultKind.UNAVAILABLE,
    FaultKind.LOSE_REPLY,
)


def plan_storm(rng: random.Random, shape: Shape) -> Storm:
    """Draw one storm."""
    decks: dict[Lane, list[Fault]] = {}
    for _ in range(shape.rounds):
        for lane, faults in _decks(rng, shape).items():
            decks.setdefault(lane, []).extend(faults)
    lanes = {lane: _spread(rng, faults, shape) for lane, faults in decks.items()}
    return Storm(seconds=shape.seconds, lanes=lanes, acts=_plan_acts(rng, shape))


def _decks(rng: random.Random, shape: Shape) -> dict[Lane, list[Fault]]:
    """Draw each lane's faults, in the order of their happening."""

    def fault(kind: FaultKind, between: tuple[float, float], side: Side | None = None) -> Fault:
        return Fault(kind=kind, seconds=rng.uniform(*between), side=side)

    decks: dict[Lane, list[Fault]] = {
        Lane.PROCESSES: [
            fault(FaultKind.KILL, DOWN_SECONDS),
            fault(FaultKind.TERMINATE, DOWN_SECONDS),
            fault(FaultKind.FORCED_MEANWHILE, DOWN_SECONDS),
            *_freezes(shape),
        ],
        Lane.OBJECTS: [
            Fault(kind=FaultKind.VANISH),
            Fault(kind=FaultKind.NODE_DELETED),
            Fault(kind=FaultKind.LEASE_DELETED),
            fault(FaultKind.UNMARK, UNMARKED_SECONDS),
        ],
    }
    for side, api, wire, single in (
        (Side.HUB, Lane.HUB_API, Lane.HUB_WIRE, Lane.HUB_REQUESTS),
        (Side.TARGET, Lane.TARGET_API, Lane.TARGET_WIRE, Lane.TARGET_REQUESTS),
    ):
        decks[api] = [
            fault(FaultKind.PAUSE_API, API_SECONDS, side),
            fault(FaultKind.KILL_API, DOWN_SECONDS, side),
        ]
        decks[wire] = [_wire_fault(rng, kind, side) for kind in WIRE_KINDS]
        decks[single] = [
            fault(FaultKind.LATE_REQUEST, LATE_SECONDS, side),
            fault(FaultKind.SWALLOW, WIRE_SECONDS, side),
        ]
    for deck in decks.values():
        rng.shuffle(deck)
    return decks


def _freezes(shape: Shape) -> list[Fault]:
    seconds = shape.freeze_seconds
    return [Fault(kind=FaultKind.FREEZE, seconds=seconds)] if seconds else []


def _wire_fault(rng: random.Random, kind: FaultKind, side: Side) -> Fault:
    return Fault(
        kind=kind,
        seconds=rng.uniform(*WIRE_SECONDS),
        side=side,
        is_leaders=rng.random() < LEADERS_SHARE,
        is_mute=kind is FaultKind.LOSE_REPLY and rng.random() < 0.5,
    )


def _spread(rng: random.Random, faults: Sequence[Fault], shape: Shape) -> list[Timed]:
    """Give the faults of a lane their instants, one after the other, with random pauses.

    Those that do not fit are shortened all alike, except the freeze, which makes no sense shorter.
    """
    fixed = sum(f.seconds for f in faults if f.kind is FaultKind.FREEZE)
    loose = sum(f.seconds for f in faults) - fixed
    scale = min(1.0, max(0.0, shape.seconds - fixed) / loose) if loose else 1.0
    left = max(0.0, shape.seconds - fixed - loose * scale)
    cuts = sorted(rng.uniform(0.0, left) for _ in faults)
    timed, busy = [], 0.0
    for cut, fault in zip(cuts, faults, strict=True):
        seconds = fault.seconds * (1.0 if fault.kind is FaultKind.FREEZE else scale)
        timed.append(Timed(at=cut + busy, fault=replace(fault, seconds=seconds)))
        busy += seconds
    return timed


def _plan_acts(rng: random.Random, shape: Shape) -> list[Act]:
    count = round(shape.seconds * shape.acts_per_second)
    instants = sorted(rng.uniform(0.0, shape.seconds) for _ in range(count))
    kinds = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=count)
    return [
        Act(at=at, kind=kind, seed=rng.randrange(2**32))
        for at, kind in zip(instants, kinds, strict=True)
    ]

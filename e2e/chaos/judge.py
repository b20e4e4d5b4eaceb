"""Hold what was seen against what federate promises, event by event. Pure: no clock, no I/O.

Input: sightings of both clusters, each cluster's in its own order, and notes of what users, admins
and faults were about to do; output: violations. What compares the clusters with each other waits
`APART_SECONDS`, because the two watches are not equally fast; what is read from one cluster alone
is judged exactly.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from .plan import Side
from .sighting import TERMINAL, Sighting

APART_SECONDS = 4.0
"""How much later the slower watch may be, on a busy machine. Smaller, and the witness slanders;
larger, and a deed that lasts no longer than this goes unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was not kept; `uid` is the hub pod's it was about."""

    at: float
    rule: str
    uid: str
    words: str


@dataclass(slots=True)
class HubPod:
    """What is known of one hub pod, there or gone."""

    uid: str
    name: str = ""
    runs_once: bool = True
    last: Sighting | None = None
    terminal: Sighting | None = None
    """The first sighting in a terminal phase."""
    is_ending: bool = False
    """Its deletion was asked for, or it is gone."""
    was_over: bool = False
    """It was terminal before its deletion was asked for: such a pod leaves the hub at once."""
    noticed_at: float = 0.0
    """When it was first seen terminating, terminal or gone."""
    is_forced: bool = False
    """A user removed it at once, or is about to."""
    runs: list[str] = field(default_factory=list)
    """Uids of its mirrors that ever had a node, in order."""
    living: set[str] = field(default_factory=set)
    """Uids of its mirrors that are there, not over, and not held back by the gate."""
    mirrors: list["Mirror"] = field(default_factory=list)
    is_disturbed: bool = False
    """Somebody other than federate deleted a mirror of it, or is about to."""


@dataclass(slots=True)
class Mirror:
    """What is known of one mirror, there or gone."""

    uid: str
    hub_pod: HubPod
    last: Sighting
    ever_ungated: bool = False
    is_taken: bool = False
    """Somebody other than federate deletes it."""
    failed_itself: bool = False
    ended: bool = False
    """Its deletion, or its end, was judged."""


class Judge:
    """All that was seen so far, and the verdicts."""

    def __init__(self, *, node: str) -> None:
        self.violations: list[Violation] = []
        self.hub_pods: dict[str, HubPod] = {}
        self.mirrors: dict[str, Mirror] = {}
        self._node = node
        self._history: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._foreign: dict[str, Sighting] = {}
        self._questions: list[tuple[float, Callable[[], None]]] = []
        self._now = 0.0

    # -- what happens --

    def see(self, sighting: Sighting) -> None:
        """Take in one watch event."""
        self._now = max(self._now, sighting.at)
        if sighting.side is Side.HUB:
            self._see_hub_pod(sighting)
        elif sighting.uid in self._foreign:
            self._see_foreign(sighting)
        else:
            self._see_mirror(sighting)

    def note(self, uid: str, words: str, at: float) -> None:
        """Write something into a hub pod's history."""
        self._history[uid].append((at, f"       {words}"))

    def user_forces(self, uid: str, at: float) -> None:
        """A user is about to remove a hub pod at once."""
        self._hub_pod(uid).is_forced = True
        self.note(uid, "a user forces it away", at)

    def admin_takes(self, mirror_uid: str, hub_pod_uid: str, how: str, at: float) -> None:
        """Somebody in the target is about to delete a mirror."""
        self._hub_pod(hub_pod_uid).is_disturbed = True
        if mirror := self.mirrors.get(mirror_uid):
            mirror.is_taken = True
        self.note(hub_pod_uid, f"its mirror {mirror_uid}: {how}", at)

    def guard(self, sighting: Sighting) -> None:
        """Take a pod of the target as nobody's mirror: from now on nothing may touch it."""
        self._foreign[sighting.uid] = sighting

    def mirror_outlived(self, hub_pod_uid: str, mirror_uid: str, at: float) -> None:
        """A mirror was read in the target after its hub pod was seen removed."""
        hub_pod, mirror = self._hub_pod(hub_pod_uid), self.mirrors.get(mirror_uid)
        gated = mirror is not None and not mirror.ever_ungated
        if hub_pod.is_forced or hub_pod.was_over or gated:
            return
        self._accuse("the hub pod left before its mirror", hub_pod, f"mirror {mirror_uid}", at)

    def tick(self, now: float) -> None:
        """Answer the questions whose time has come."""
        self._now = max(self._now, now)
        due = [question for at, question in self._questions if at <= now]
        self._questions = [(at, question) for at, question in self._questions if at > now]
        for question in due:
            question()

    # -- what is known --

    def mirrors_of(self, hub_pod_uid: str) -> list[Mirror]:
        """Return the mirrors a hub pod ever had."""
        return self._hub_pod(hub_pod_uid).mirrors

    def history(self, uid: str) -> list[tuple[float, str]]:
        """Return what happened to a hub pod and its mirrors, in the order it was seen."""
        return sorted(self._history[uid], key=lambda entry: entry[0])

    def accuse_late(self, rule: str, uid: str, words: str, at: float) -> None:
        """Add a violation that a comparison of both sides found."""
        self._accuse(rule, self._hub_pod(uid), words, at)

    # -- the hub --

    def _see_hub_pod(self, seen: Sighting) -> None:
        hub_pod = self._hub_pod(seen.uid)
        self._history[seen.uid].append((seen.at, seen.words()))
        before, hub_pod.last = hub_pod.last, seen
        hub_pod.name, hub_pod.runs_once = f"{seen.namespace}/{seen.name}", seen.runs_once
        if seen.is_collected:
            # No user asked for it, but it is as good as forced: the cluster removes it at once.
            hub_pod.is_forced = hub_pod.is_disturbed = True
        if not hub_pod.noticed_at and (seen.is_terminating or seen.is_over):
            hub_pod.noticed_at = seen.at
        if (seen.is_terminating or seen.is_gone) and not hub_pod.is_ending:
            hub_pod.is_ending, hub_pod.was_over = True, hub_pod.terminal is not None
        if seen.node not in ("", self._node):
            return
        self._judge_phase(hub_pod, before, seen)

    def _judge_phase(self, hub_pod: HubPod, before: Sighting | None, seen: Sighting) -> None:
        terminal = hub_pod.terminal
        if terminal is not None:
            if seen.phase != terminal.phase:
                words = f"{terminal.phase}, then {seen.phase}"
                self._accuse("a terminal phase changed", hub_pod, words, seen.at)
            return
        if before is not None and before.phase == "Running" and seen.phase == "Pending":
            self._accuse("a running pod became pending", hub_pod, seen.reason, seen.at)
        if seen.phase not in TERMINAL:
            return
        hub_pod.terminal = seen
        if seen.phase == "Failed" and not seen.is_terminating:
            self._ask(seen.at, lambda: self._judge_failure(hub_pod, seen))

    def _judge_failure(self, hub_pod: HubPod, seen: Sighting) -> None:
        """Fail a pod only because its mirror failed, or because somebody deleted its mirror."""
        failed = any(mirror.failed_itself for mirror in hub_pod.mirrors)
        if not failed and not hub_pod.is_disturbed:
            self._accuse("a hub pod failed without a reason", hub_pod, seen.reason, seen.at)

    # -- the target --

    def _see_mirror(self, seen: Sighting) -> None:
        mirror = self.mirrors.get(seen.uid)
        if mirror is None:
            if not seen.origin:
                return
            mirror = Mirror(seen.uid, self._hub_pod(seen.origin), seen)
            self.mirrors[seen.uid] = mirror
            mirror.hub_pod.mirrors.append(mirror)
        hub_pod, mirror.last = mirror.hub_pod, seen
        self._history[hub_pod.uid].append((seen.at, seen.words()))
        mirror.ever_ungated |= not seen.is_gated
        mirror.failed_itself |= seen.phase == "Failed"
        self._judge_runs(hub_pod, seen)
        self._judge_living(hub_pod, seen)
        if (seen.is_gone or seen.is_terminating) and not mirror.ended:
            mirror.ended = True
            self._ask(seen.at, lambda: self._judge_end(mirror, seen))

    def _judge_runs(self, hub_pod: HubPod, seen: Sighting) -> None:
        if not seen.node or seen.uid in hub_pod.runs:
            return
        hub_pod.runs.append(seen.uid)
        if seen.runs_once and len(hub_pod.runs) > 1:
            self._accuse("a pod ran twice", hub_pod, f"mirrors {hub_pod.runs}", seen.at)
        terminal = hub_pod.terminal
        if terminal is not None and seen.at > terminal.at + APART_SECONDS:
            words = f"{terminal.phase}, then mirror {seen.uid} ran"
            self._accuse("a terminal pod ran again", hub_pod, words, seen.at)

    def _judge_living(self, hub_pod: HubPod, seen: Sighting) -> None:
        if seen.is_over or seen.is_gated:
            hub_pod.living.discard(seen.uid)
            return
        hub_pod.living.add(seen.uid)
        if len(hub_pod.living) > 1:
            words = f"mirrors {sorted(hub_pod.living)}"
            self._accuse("two mirrors of a hub pod lived at once", hub_pod, words, seen.at)

    def _judge_end(self, mirror: Mirror, seen: Sighting) -> None:
        """End a mirror only for its hub pod's sake; one that never ran is nobody's loss."""
        hub_pod = mirror.hub_pod
        # One that lost its race stays gated; a mirror that is over has nothing to lose either.
        harmless = not mirror.ever_ungated or seen.phase in TERMINAL
        wanted = hub_pod.is_ending or hub_pod.terminal is not None
        if not (harmless or wanted or mirror.is_taken or hub_pod.last is None):
            how = "gone" if seen.is_gone else "terminating"
            self._accuse("a mirror was ended without a reason", hub_pod, how, seen.at)

    def _see_foreign(self, seen: Sighting) -> None:
        known = self._foreign[seen.uid]
        if seen.is_gone or seen.is_terminating or seen.labels != known.labels:
            hub_pod = self._hub_pod(seen.uid)
            hub_pod.name = f"{seen.namespace}/{seen.name}"
            self._history[seen.uid].append((seen.at, seen.words()))
            self._accuse("a foreign pod was touched", hub_pod, seen.words(), seen.at)

    # -- helpers --

    def _hub_pod(self, uid: str) -> HubPod:
        return self.hub_pods.setdefault(uid, HubPod(uid))

    def _ask(self, at: float, question: Callable[[], None]) -> None:
        self._questions.append((at + APART_SECONDS, question))

    def _accuse(self, rule: str, hub_pod: HubPod, words: str, at: float) -> None:
        text = f"{hub_pod.name} ({hub_pod.uid}): {words}"
        self.violations.append(Violation(at=at, rule=rule, uid=hub_pod.uid, words=text))
        self.note(hub_pod.uid, f"VIOLATION: {rule}: {words}", at)

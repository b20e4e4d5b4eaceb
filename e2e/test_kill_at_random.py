"""federate is killed at random moments, again and again: every pod still runs once (C20, C71).

Each life of the process gets a few acts of users at random instants and a random end, so that
there is work under way at every kill; the next life begins at once, as a restarted pod's would.
What happened is counted from outside, by the records of both clusters. A seed tells every choice:
`FEDERATE_CHAOS_SEED` repeats a run, as far as two clusters can be made to repeat themselves.
"""

import os
import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from e2e.support.manifests import deployment, job, pod, pod_spec, run_once
from e2e.support.measuring import Measurements
from e2e.support.pods import hub_pod_uid_of, is_terminating, name_of, phase_of, uid_of
from e2e.support.recorder import Change, PodEvent
from e2e.support.witness import Json
from e2e.support.world import Space, World
from e2e.testbed.processes import wait_until

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

SEED_VARIABLE = "FEDERATE_CHAOS_SEED"

REPLICAS = 3

START_SECONDS = 20.0
"""A life that is counted from its readiness gets so long to be ready, and is killed anyway."""

RECORDERS_APART_SECONDS = 2.0
"""How much later than the other's a recorder may see a thing on a busy machine."""

TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of the process: what users do meanwhile, and when it is killed."""

    from_ready: bool
    """Whether the seconds count from when the process is ready, or from its start."""
    seconds: float
    acts: Sequence[tuple[float, str]]
    """Instants within the life, and what is done then: names of methods of `Users`."""


def plan_lives(rng: random.Random, *, lives: int, acts: int) -> list[Life]:
    """Spread so many acts over so many lives."""
    kinds = [
        *("run_once",) * 6,
        *("run_job",) * 2,
        *("run_on",) * 5,
        *("delete", "delete_held", "force", "force_and_repeat", "delete_owned") * 2,
    ]
    shares = [acts // lives + (number < acts % lives) for number in range(lives)]
    return [_plan_life(rng, kinds, share) for share in shares]


def _plan_life(rng: random.Random, kinds: Sequence[str], acts: int) -> Life:
    from_ready = rng.random() < 0.6
    seconds = rng.uniform(0.05, 1.5) if from_ready else rng.uniform(0.1, 2.5)
    instants = sorted(rng.uniform(0.0, seconds) for _ in range(acts))
    return Life(
        from_ready=from_ready,
        seconds=seconds,
        acts=[(instant, rng.choice(kinds)) for instant in instants],
    )


@dataclass(slots=True, kw_only=True)
class Users:
    """Those who make and delete pods; they remember what may be expected of each."""

    space: Space
    rng: random.Random
    pods: int = 0
    """How many were asked for so far."""
    deleted: set[str] = field(default_factory=set)
    """Hub pod uids whose deletion was asked for: they need not have run."""
    forced: set[str] = field(default_factory=set)
    """Of these, the ones that left the hub at once."""
    held: dict[str, Json] = field(default_factory=dict)
    """Hub pods by name whose mirror cannot vanish until it is released."""

    def act(self, kind: str) -> None:
        """Do what a plan says."""
        acts: dict[str, Callable[[], None]] = {
            "run_once": self.run_once,
            "run_job": self.run_job,
            "run_on": self.run_on,
            "delete": self.delete,
            "delete_held": self.delete_held,
            "force": self.force,
            "force_and_repeat": self.force_and_repeat,
            "delete_owned": self.delete_owned,
        }
        acts[kind]()

    def run_once(self) -> None:
        self.pods += 1
        self.space.create(run_once(f"once-{self.pods}", self.space.node))

    def run_job(self) -> None:
        self.pods += 2
        self.space.create(job(f"job-{self.pods}", self.space.node, completions=2))

    def run_on(self, name: str = "") -> None:
        """A pod that may run once only, and does not end by itself."""
        self.pods += 1
        spec = pod_spec(self.space.node, restartPolicy="Never")
        self.space.create(pod(name or f"on-{self.pods}", spec))

    def delete(self) -> None:
        if found := self._any("on-"):
            self._delete(found)

    def delete_held(self) -> None:
        """Delete a pod whose mirror takes its time to end."""
        if found := self._any("on-"):
            mirror = self.space.mirror(name_of(found))
            if mirror is not None and hub_pod_uid_of(mirror) == uid_of(found):
                self.space.hold_mirror(mirror)
                self.held[name_of(found)] = found
            self._delete(found)

    def release(self) -> None:
        """Let held mirrors end; until now their hub pods have to be there."""
        for name, hub_pod in self.held.items():
            mirror = self.space.mirror(name)
            assert mirror is not None and hub_pod_uid_of(mirror) == uid_of(hub_pod)
            found = self.space.pod(name)
            gone = found is None or uid_of(found) != uid_of(hub_pod)
            assert not gone, f"{name} left the hub before its mirror\n{self.space.explain()}"
            self.space.release_mirror(mirror)
        self.held.clear()

    def force(self) -> None:
        if found := self._any("on-"):
            self._delete(found, grace_seconds=0)

    def force_and_repeat(self) -> None:
        """Force a pod away and make another of its name at once."""
        if found := self._any("on-"):
            self._delete(found, grace_seconds=0)
            self.run_on(name_of(found))

    def delete_owned(self) -> None:
        if found := self._any("web-"):
            self._delete(found)

    def _any(self, prefix: str) -> Json | None:
        found = [
            candidate
            for candidate in self.space.pods()
            if name_of(candidate).startswith(prefix) and not is_terminating(candidate)
        ]
        return self.rng.choice(found) if found else None

    def _delete(self, found: Json, *, grace_seconds: int | None = None) -> None:
        self.deleted.add(uid_of(found))
        if grace_seconds == 0:
            self.forced.add(uid_of(found))
        self.space.delete_pod(name_of(found), grace_seconds=grace_seconds)


def live(world: World, users: Users, life: Life) -> None:
    """Let the process live one life, from its start to its kill."""
    federate = world.federate
    federate.start()
    if life.from_ready:
        wait_until(federate.is_ready, START_SECONDS)
    began = time.monotonic()
    for instant, kind in life.acts:
        pause_until(began + instant)
        users.act(kind)
    pause_until(began + life.seconds)
    federate.kill()


def pause_until(instant: float) -> None:
    """Wait for the moment that was drawn: what is tested is that it may be any."""
    time.sleep(max(0.0, instant - time.monotonic()))


def is_unfinished(hub_pod: Json) -> bool:
    """Tell whether federate had yet to do something about a hub pod."""
    return is_terminating(hub_pod) or phase_of(hub_pod) == "Pending"


def tell_of_kills(space: Space, measured: Measurements, seed: int, lives: int, acts: int) -> Users:
    """Live and die so many times, then settle; returns what users did."""
    measured.note("seed", seed)
    rng = random.Random(seed)
    world = space.world
    users = Users(space=space, rng=rng)
    users.pods += REPLICAS
    space.create(deployment("web", pod_spec(space.node), replicas=REPLICAS))
    world.federate.kill()
    under_way = 0
    for number, life in enumerate(plan_lives(rng, lives=lives, acts=acts)):
        live(world, users, life)
        under_way += any(map(is_unfinished, space.pods()))
        if number % 2:
            users.release()
    world.start_federate()
    users.release()
    measured.note("kills", f"{lives}, {under_way} of them with work under way")
    measured.note("pods", f"{users.pods}, {len(users.deleted)} of them deleted")
    wait_settled(space)
    return users


def wait_settled(space: Space) -> None:
    """Wait until nothing more has to be done for any pod."""

    def is_settled() -> bool:
        pods = space.pods()
        mirrors = {hub_pod_uid_of(mirror): phase_of(mirror) for mirror in space.mirrors()}
        phases = {uid_of(found): phase_of(found) for found in pods}
        owned = [found for found in pods if name_of(found).startswith("web-")]
        return (
            not any(map(is_unfinished, pods))
            and len(owned) == REPLICAS
            and phases == mirrors
            and all(
                phase_of(found) == "Succeeded"
                for found in pods
                if name_of(found).startswith(("once-", "job-"))
            )
        )

    space.wait("both sides agree on every pod", is_settled, timeout_seconds=90.0)


# -- what is judged --------------------------------------------------------------------------------


def assert_runs(space: Space, users: Users) -> None:
    """Make sure that each pod ran exactly once; those whose deletion was asked for, at most."""
    runs: dict[str, set[str]] = {uid: set() for uid in space.hub_pod_uids()}
    for event in space.world.target_record.events(namespace=space.target_namespace):
        if event.hub_pod_uid and event.node:
            runs.setdefault(event.hub_pod_uid, set()).add(event.uid)
    again = {uid: mirrors for uid, mirrors in runs.items() if len(mirrors) > 1}
    assert not again, f"Pods that ran more than once: {again}\n{space.explain()}"
    never = {uid for uid, mirrors in runs.items() if not mirrors} - users.deleted
    assert not never, f"Pods that never ran: {never}\n{space.explain()}"


def assert_one_at_a_time(events: Iterable[PodEvent]) -> None:
    """Make sure that no hub pod had two living mirrors at any moment."""
    living: dict[str, set[str]] = {}
    for event in events:
        mirrors = living.setdefault(event.hub_pod_uid, set())
        if event.change is Change.DELETED or event.phase in TERMINAL:
            mirrors.discard(event.uid)
        elif event.node:
            mirrors.add(event.uid)
        assert len(mirrors) <= 1, f"{event.hub_pod_uid} had two living mirrors: {mirrors}"


def assert_mirrors_went_first(space: Space, users: Users) -> None:
    """Make sure that no hub pod was removed before its mirror, forced ones excepted."""
    mirrors = space.world.target_record.histories(space.target_namespace).values()
    mirror_gone = {history[0].hub_pod_uid: gone_at(history) for history in mirrors}
    for uid, history in space.world.hub_record.histories(space.namespace).items():
        hub_pod_gone, mirror = gone_at(history), mirror_gone.get(uid, 0.0)
        if hub_pod_gone is None or uid in users.forced or was_over(history):
            continue
        late = mirror is None or mirror > hub_pod_gone + RECORDERS_APART_SECONDS
        assert not late, f"{history[0].name} ({uid}) left the hub before its mirror"


def was_over(history: Sequence[PodEvent]) -> bool:
    """Tell whether a pod had ended when its deletion was asked for: then it goes at once."""
    return any(event.phase in TERMINAL and not event.is_terminating for event in history[:-1])


def gone_at(history: Sequence[PodEvent]) -> float | None:
    """Return when a pod was gone; None while it is there."""
    last = history[-1]
    return last.at if last.change is Change.DELETED else None


def assert_terminal_for_ever(space: Space) -> None:
    """Make sure that no hub pod left a terminal phase, or failed without a reason."""
    for history in space.world.hub_record.histories(space.namespace).values():
        terminal = ""
        for event in history:
            assert terminal in ("", event.phase), f"{event.name}: {terminal}, then {event.phase}"
            terminal = event.phase if event.phase in TERMINAL else ""
            reasonless = event.phase == "Failed" and not event.is_terminating
            assert not reasonless, f"{event.name} failed without a reason: {event.reason}"


def judge(space: Space, users: Users) -> None:
    """Hold everything that was recorded against what federate promises; leaves nothing behind."""
    assert_runs(space, users)
    assert_terminal_for_ever(space)
    assert_one_at_a_time(space.world.target_record.events(namespace=space.target_namespace))
    for kind in ("Deployment", "Job", "Pod"):
        space.hub.delete_all(kind, space.namespace)
    space.wait_nothing_left(timeout_seconds=90.0)
    assert_runs(space, users)
    assert_mirrors_went_first(space, users)


def draw_seed() -> int:
    return int(os.environ.get(SEED_VARIABLE, secrets.randbelow(1_000_000)))


def test_pods_run_once_although_federate_is_killed_at_random_moments(
    fragile_space: Space, measured: Measurements
) -> None:
    """Six kills at random moments: no pod runs twice, none is forgotten, and nothing is left."""
    acts = fragile_space.pace.many(45)
    users = tell_of_kills(fragile_space, measured, draw_seed(), lives=6, acts=acts)
    judge(fragile_space, users)


@pytest.mark.long
def test_pods_run_once_although_federate_is_killed_thirty_times(
    fragile_space: Space, measured: Measurements
) -> None:
    """Thirty kills in the middle of two hundred pods' lives, with the same outcome."""
    many = fragile_space.pace.many
    users = tell_of_kills(fragile_space, measured, draw_seed(), lives=30, acts=many(320))
    assert users.pods >= many(200)
    judge(fragile_space, users)

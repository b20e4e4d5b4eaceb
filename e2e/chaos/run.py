"""The whole story: a storm, a calm, and again; then everything goes, and the verdict is read."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3.exceptions import HTTPError

from e2e.support.pods import name_of
from e2e.testbed.processes import wait_until

from .calm import Difference, Picture, differences
from .faults import Faults
from .judge import Judge
from .plan import Act, Shape, Side, Storm, Timed, plan_storm
from .report import Clock, Report
from .sighting import read_sighting
from .stage import LEADERSHIP_LOST, NAMESPACE, NODE, SQUATTER, Stage
from .users import Users
from .watching import Watching

CONVERGENCE_LIMIT_SECONDS = 120.0
"""A lease to wait out (15 s), hung requests to give up (30 s) and back-offs (60 s) come first."""

CLUSTERS_LIMIT_SECONDS = 600.0
"""How long the clusters' own parts may take: their controllers hang on the hurt API servers too."""

NUDGE_AFTER_SECONDS = 310.0
"""A ReplicaSet that lost a reply waits five minutes for what it expects (pkg/controller), and then
looks again only when something happens to it: see `_nudge`."""
NUDGE_EVERY_SECONDS = 30.0

LOOK_SECONDS = 0.5
REPEATS = 3
"""So many looks in a row must agree: one may fall between two deeds."""

NOTED = 5
"""Differences that the timeline quotes of each look."""

WORKLOADS = ("Deployment", "StatefulSet", "Job", "Pod")


@dataclass(slots=True, kw_only=True)
class Story:
    """One run, as far as it has got."""

    stage: Stage
    watching: Watching
    seed: int
    shape: Shape
    storms: int
    say: Callable[[str], None]
    users: Users = field(init=False)
    faults: Faults = field(init=False)
    convergence: list[float] = field(default_factory=list)
    noted: str = ""
    """The differences that were noted last."""
    told: int = 0
    """How many violations were said so far."""
    clock: Clock = field(
        default_factory=lambda: Clock(monotonic=time.monotonic(), wall=time.time())
    )

    def __post_init__(self) -> None:
        self.users = Users(self.stage, self.watching)
        self.faults = Faults(
            self.stage,
            self.watching,
            self.users,
            patience=self.shape.patience,
            seed=self.seed,
        )

    def tell(self) -> Report:
        """Live through all storms, end everything, and return what came of it."""
        self._begin()
        rng = random.Random(self.seed)
        for number in range(1, self.storms + 1):
            self._weather(plan_storm(rng, self.shape))
            agreed = self._calm()
            self._say_progress(number)
            if not agreed:
                break
        self._end()
        self.watching.close()
        return self._report()

    def _begin(self) -> None:
        self.watching.start()
        for pod in self.stage.foreign:
            seen = read_sighting(Side.TARGET, "ADDED", pod, time.monotonic())
            self.watching.tell(partial(Judge.guard, sighting=seen))
        self._calm()
        self.convergence.clear()  # nothing had been broken yet

    # -- storm --

    def _weather(self, storm: Storm) -> None:
        """Let all lanes and the acts run side by side, each to its end."""
        began = time.monotonic()
        failures: list[BaseException] = []

        def guarded(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    failures.append(error)

            return run

        works = [partial(self._lane, lane, began) for lane in storm.lanes.values()]
        works.append(partial(self._act, storm.acts, began))
        threads = [threading.Thread(target=guarded(work), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _lane(self, lane: Sequence[Timed], began: float) -> None:
        """Inflict one fault after the other; those that met nothing once more, if there is time."""
        missed = []
        for timed in lane:
            pause_until(began + timed.at)
            if not self.faults.inflict(timed.fault):
                missed.append(timed.fault)
        for fault in missed if self.shape.patience.repeats else ():
            self.faults.inflict(fault)

    def _act(self, acts: Sequence[Act], began: float) -> None:
        for act in acts:
            pause_until(began + act.at)
            self.users.act(act)

    # -- calm --

    def _calm(self) -> bool:
        """Wait until both sides agree; what does not in time is a violation."""
        began = time.monotonic()
        self.users.release(float("inf"))
        agreed_at = self._agree(began, CONVERGENCE_LIMIT_SECONDS, federates_only=True)
        if agreed_at is not None:
            self.convergence.append(agreed_at - began)
            agreed_at = self._agree(began, CLUSTERS_LIMIT_SECONDS, federates_only=False)
        if agreed_at is None:
            self._accuse(self._differences())
        return agreed_at is not None

    def _agree(self, began: float, seconds: float, *, federates_only: bool) -> float | None:
        """Return since when there are no differences; None where there are to the end."""
        since: float | None = None
        looks, nudge_at = 0, began + NUDGE_AFTER_SECONDS
        while time.monotonic() < began + seconds or looks:
            now = time.monotonic()
            found = [d for d in self._differences() if d.is_federates or not federates_only]
            self._note_differences(found, now)
            since, looks = (None, 0) if found else (since or now, looks + 1)
            if since is not None and looks >= REPEATS:
                return since
            if now >= nudge_at:
                nudge_at = now + NUDGE_EVERY_SECONDS
                self._nudge()
            time.sleep(LOOK_SECONDS)
        return None

    def _nudge(self) -> None:
        """Let something happen to the workloads, so that the hub's own controllers look at them."""
        now = time.monotonic()
        self.faults.timeline.append((now, "calm: the hub's own controllers are nudged"))
        annotations = {"chaos.example.com/nudged-at": f"{now:.0f}"}
        body = {"metadata": {"annotations": annotations}}
        with suppress(DynamicApiError, HTTPError):
            for kind in ("Deployment", "StatefulSet"):
                for workload in self.stage.hub.list(kind, NAMESPACE):
                    self.stage.hub.patch(kind, NAMESPACE, name_of(workload), body)

    def _note_differences(self, found: Sequence[Difference], now: float) -> None:
        words = "; ".join(difference.words for difference in found[:NOTED])
        if words != self.noted:
            self.noted = words
            text = f"calm: {len(found)} differences: {words}" if found else "calm: agreed"
            self.faults.timeline.append((now, text))

    def _differences(self) -> list[Difference]:
        hub, target = self.stage.hub, self.stage.target
        try:
            picture = Picture(
                hub_pods=hub.list("Pod", NAMESPACE),
                target_pods=target.list("Pod"),
                workloads=[*hub.list("Deployment", NAMESPACE), *hub.list("StatefulSet", NAMESPACE)],
                node=hub.get("Node", "", NODE),
                node_name=NODE,
                squatted=frozenset({SQUATTER}),
            )
        except (DynamicApiError, HTTPError) as error:
            return [Difference(uid="", words=f"not read: {error!r}", is_federates=False)]
        return differences(picture)

    def _accuse(self, found: Sequence[Difference]) -> None:
        now = time.monotonic()
        for difference in found:
            rule = "not converged" if difference.is_federates else "clusters not settled"
            self.watching.tell(
                partial(
                    Judge.accuse_late,
                    rule=rule,
                    uid=difference.uid,
                    words=difference.words,
                    at=now,
                )
            )

    # -- the end --

    def _end(self) -> None:
        """Delete everything as users would, and make sure that nothing stays on either side."""
        hub, target = self.stage.hub, self.stage.target
        for kind in WORKLOADS:
            hub.delete_all(kind, NAMESPACE)
        strangers = {pod["metadata"]["uid"] for pod in self.stage.foreign}

        def is_empty() -> bool:
            left = [p for p in target.list("Pod") if p["metadata"]["uid"] not in strangers]
            return not hub.list("Pod", NAMESPACE) and not left

        if not wait_until(is_empty, CONVERGENCE_LIMIT_SECONDS):
            self._accuse(self._differences())

    def _say_progress(self, number: int) -> None:
        took = f"{self.convergence[-1]:.1f} s" if self.convergence else "never"
        violations = self.watching.judge.violations
        self.say(
            f"storm {number} of {self.storms}: {self.faults.struck.total()} faults, "
            f"{self.users.done.total()} acts, agreed after {took}, {len(violations)} violations"
        )
        for violation in violations[self.told :]:
            self.say(f"  {self.clock.words(violation.at)} {violation.rule}: {violation.words}")
        self.told = len(violations)

    def _report(self) -> Report:
        exits = self.stage.supervisor.exits
        for found in exits:
            if found.code != LEADERSHIP_LOST:
                self.watching.judge.accuse_late(
                    "federate ended by itself", "", f"{found.replica}: {found.code}", found.at
                )
        for gap in self.watching.gaps:
            self.watching.judge.accuse_late("the witness has a gap", "", gap, time.monotonic())
        return Report(
            seed=self.seed,
            seconds=time.monotonic() - self.clock.monotonic,
            clock=self.clock,
            struck=self.faults.struck,
            missed=self.faults.missed,
            acts=self.users.done,
            shrugged=self.users.failed,
            exits=Counter(f"code {found.code}" for found in exits),
            late_answers=self.faults.late_answers,
            timeline=self.faults.timeline,
            times={"convergence": self.convergence, **self._detections(), **self._takeovers()},
            gaps=self.watching.gaps,
            judge=self.watching.judge,
        )

    def _detections(self) -> dict[str, list[float]]:
        """How long it took until the hub showed what was done to a mirror, or to the node."""
        hub_pods = self.watching.judge.hub_pods
        noticed = [
            hub_pods[uid].noticed_at - at
            for uid, at in self.users.deleted_mirrors.items()
            if uid in hub_pods and hub_pods[uid].noticed_at > at
        ]
        return {
            "hub pod follows its deleted mirror": noticed,
            "node registered again": [end - begin for begin, end in self.watching.node_absent],
            "orderly stop": self.faults.stop_seconds,
        }

    def _takeovers(self) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {}
        for outage in self.faults.outages:
            found = self.watching.next_leading(outage.at)
            if found is not None:
                what = "same" if found.holder == outage.holder else "other"
                name = f"next word of a leader {outage.how}, {what} replica"
                times.setdefault(name, []).append(found.at - outage.at)
        return times


def pause_until(instant: float) -> None:
    """Wait for an instant of the plan."""
    time.sleep(max(0.0, instant - time.monotonic()))

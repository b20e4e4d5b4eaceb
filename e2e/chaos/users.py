"""What users of the hub and admins of the target do, one act at a time.

Before anything is done that takes something away, the judge is told: what federate sees of it may
be seen at once.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3.exceptions import HTTPError

from e2e.support.manifests import COMPLETES, RUNS_FOR, job, pod, pod_spec
from e2e.support.pods import hub_pod_uid_of, is_terminating, name_of, phase_of, uid_of
from e2e.support.witness import Json

from .calm import LABEL_PREFIX
from .plan import Act, ActKind
from .sighting import TERMINAL
from .stage import DEPLOYMENT, NAMESPACE, NODE, SQUATTER, STATEFUL_SET, Stage
from .watching import Watching

SLOW_END_SECONDS = (1.0, 5.0)

MOST_LIVING = 40
"""Tidying up deletes pods beyond this: the storm is about what happens, not about how many."""

MOST_TIDIED = 15

HELD = ["example.com/held-by-chaos"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A mirror that cannot vanish before its time."""

    name: str
    until: float


class Users:
    """Users and admins; serves one thread, but for `any_mirror`."""

    def __init__(self, stage: Stage, watching: Watching) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        """Acts that a cluster did not take: there was nothing to do it to, or it was gone."""
        self.deleted_mirrors: dict[str, float] = {}
        """When an admin deleted a hub pod's mirror, in good order."""
        self._stage = stage
        self._watching = watching
        self._rng = random.Random()
        self._held: list[Held] = []
        self._acts: dict[ActKind, Callable[[], bool]] = {
            ActKind.RUN_ONCE: self._run_once,
            ActKind.RUN_JOB: self._run_job,
            ActKind.RUN_ON: self._run_on,
            ActKind.RUN_PLAIN: self._run_plain,
            ActKind.DELETE: self._delete,
            ActKind.DELETE_SLOW: self._delete_slow,
            ActKind.FORCE: self._force,
            ActKind.FORCE_AND_REPEAT: self._force_and_repeat,
            ActKind.DELETE_OWNED: self._delete_owned,
            ActKind.SCALE: self._scale,
            ActKind.RELABEL: self._relabel,
            ActKind.TIDY: self._tidy,
            ActKind.DELETE_MIRROR: self._delete_mirror,
            ActKind.EVICT_MIRROR: self._evict_mirror,
        }

    def act(self, act: Act) -> None:
        """Do one act; what a cluster refuses is counted, as users shrug it off."""
        self._rng = random.Random(act.seed)
        self.release(time.monotonic())
        try:
            done = self._acts[act.kind]()
        except (DynamicApiError, HTTPError):
            done = False
        (self.done if done else self.failed)[act.kind] += 1

    def release(self, now: float) -> None:
        """Let mirrors end whose time has come."""
        due = [held for held in self._held if held.until <= now]
        self._held = [held for held in self._held if held.until > now]
        for held in due:
            try:
                self._set_finalizers(held.name, [])
            except DynamicApiError:
                continue  # gone already
            except HTTPError:
                self._held.append(held)

    # -- users --

    def _run_once(self) -> bool:
        runs_for = f"{self._rng.randrange(200, 6000)}ms"
        spec = pod_spec(NODE, restartPolicy=self._rng.choice(["Never", "Never", "OnFailure"]))
        annotations = {COMPLETES: "true", RUNS_FOR: runs_for}
        return self._create(pod(self._name("once"), spec, annotations=annotations))

    def _run_job(self) -> bool:
        body = job(self._name("job"), NODE, completions=self._rng.randint(1, 3))
        annotations = body["spec"]["template"]["metadata"]["annotations"]
        annotations[RUNS_FOR] = f"{self._rng.randrange(500, 8000)}ms"
        return self._create(body)

    def _run_on(self, name: str = "") -> bool:
        return self._create(pod(name or self._name("on"), pod_spec(NODE, restartPolicy="Never")))

    def _run_plain(self) -> bool:
        return self._create(pod(self._name("plain"), pod_spec(NODE)))

    def _delete(self) -> bool:
        found = self._any_pod("on", "plain", "once")
        grace = self._rng.choice([None, None, 1, 3])
        return found is not None and self._remove(found, grace_seconds=grace)

    def _delete_slow(self) -> bool:
        found = self._any_pod("on", "plain")
        if found is None:
            return False
        until = time.monotonic() + self._rng.uniform(*SLOW_END_SECONDS)
        self._set_finalizers(name_of(found), HELD)
        self._held.append(Held(name=name_of(found), until=until))
        return self._remove(found)

    def _force(self) -> bool:
        found = self._any_pod("on", "plain", "once")
        return found is not None and self.force(found)

    def _force_and_repeat(self) -> bool:
        found = self._any_pod("on")
        return found is not None and self.force(found) and self._run_on(name_of(found))

    def _delete_owned(self) -> bool:
        found = self._any_pod(DEPLOYMENT, STATEFUL_SET)
        if found is None:
            return False
        return self.force(found) if self._rng.random() < 0.3 else self._remove(found)

    def _scale(self) -> bool:
        body = {"spec": {"replicas": self._rng.randint(0, 5)}}
        self._stage.hub.patch("Deployment", NAMESPACE, DEPLOYMENT, body)
        return True

    def _relabel(self) -> bool:
        found = self._any_pod("on", "plain", DEPLOYMENT)
        if found is None:
            return False
        labels = {f"{LABEL_PREFIX}colour": self._rng.choice(["red", "green", "blue"])}
        body = {"metadata": {"labels": labels}}
        self._stage.hub.patch("Pod", NAMESPACE, name_of(found), body)
        return True

    def _tidy(self) -> bool:
        """Delete what has ended, and some of what lives when it is much."""
        hub = self._stage.hub
        jobs = [j for j in hub.list("Job", NAMESPACE) if j.get("status", {}).get("completionTime")]
        for body in jobs[:MOST_TIDIED]:
            hub.delete("Job", NAMESPACE, name_of(body))
        pods = [found for found in hub.list("Pod", NAMESPACE) if not is_terminating(found)]
        bare = [found for found in pods if name_of(found).startswith(("once", "on-", "plain"))]
        ended = [found for found in bare if phase_of(found) in TERMINAL]
        living = [found for found in bare if phase_of(found) not in TERMINAL]
        for found in [*ended[:MOST_TIDIED], *living[MOST_LIVING:]]:
            self._remove(found)
        return bool(jobs or ended)

    def force(self, hub_pod: Json) -> bool:
        """Remove a hub pod at once."""
        uid = uid_of(hub_pod)
        self._watching.tell(lambda judge: judge.user_forces(uid, time.monotonic()))
        return self._remove(hub_pod, grace_seconds=0)

    # -- admins of the target --

    def _delete_mirror(self) -> bool:
        found = self.any_mirror(self._rng)
        if found is None:
            return False
        self.take(found, "an admin deletes it")
        return self._stage.target.delete("Pod", self._stage.target_namespace, name_of(found))

    def _evict_mirror(self) -> bool:
        found = self.any_mirror(self._rng)
        if found is None:
            return False
        self.take(found, "an admin evicts it")
        self._stage.target.evict(self._stage.target_namespace, name_of(found))
        return True

    def take(self, mirror: Json, how: str) -> None:
        """Tell the judge that somebody other than federate ends a mirror."""
        now, origin = time.monotonic(), hub_pod_uid_of(mirror)
        self.deleted_mirrors[origin] = now
        self._watching.tell(lambda judge: judge.admin_takes(uid_of(mirror), origin, how, now))

    def any_mirror(self, rng: random.Random) -> Json | None:
        """Choose a mirror that runs."""
        found = [
            mirror
            for mirror in self._stage.target.list("Pod", self._stage.target_namespace)
            if hub_pod_uid_of(mirror)
            and not is_terminating(mirror)
            and phase_of(mirror) == "Running"
        ]
        return rng.choice(found) if found else None

    def any_pod(self, rng: random.Random, prefixes: Sequence[str]) -> Json | None:
        """Choose a hub pod that lives."""
        found = [
            candidate
            for candidate in self._stage.hub.list("Pod", NAMESPACE)
            if name_of(candidate).startswith(tuple(prefixes))
            and name_of(candidate) != SQUATTER
            and not is_terminating(candidate)
            and phase_of(candidate) not in TERMINAL
        ]
        return rng.choice(found) if found else None

    # -- helpers --

    def _any_pod(self, *names: str) -> Json | None:
        return self.any_pod(self._rng, [f"{name}-" for name in names])

    def _name(self, kind: str) -> str:
        return f"{kind}-{self._rng.randrange(16**6):06x}"

    def _create(self, body: Json) -> bool:
        self._stage.hub.create(body, NAMESPACE)
        return True

    def _remove(self, found: Json, *, grace_seconds: int | None = None) -> bool:
        return self._stage.hub.delete("Pod", NAMESPACE, name_of(found), grace_seconds=grace_seconds)

    def _set_finalizers(self, mirror: str, finalizers: list[str]) -> None:
        body = {"metadata": {"finalizers": finalizers}}
        self._stage.target.patch("Pod", self._stage.target_namespace, mirror, body)

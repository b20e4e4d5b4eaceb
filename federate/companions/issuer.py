"""Tokens and news of Services for the pods of one virtual node: made, kept fresh, removed (C31).

Events become keys of a queue of its own; workers let `issuing` carry out what is planned for each,
one key in one hand. A pod holds until what is issued for it stands in the target. What is not yet
due is asked for again when it is: before a token grows old, and now and then to see whether all is
as it was left. Whatever fails is tried again until it succeeds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import structlog

from federate.cluster.store import Change
from federate.companions.environment import service_environment
from federate.companions.holding import Hold
from federate.companions.identity import issues_for
from federate.companions.issued import LINKED, IssuedKey, IssuedKind, place_of
from federate.companions.issuing import (
    LINGER_SECONDS,
    IssueMemory,
    IssueRound,
    IssueTools,
    IssueWishes,
)
from federate.companions.keys import CompanionKey
from federate.companions.steps import Rest, Standing
from federate.errors import FederateError, Unreachable
from federate.flow.controller import Again, Controller, Done, Outcome
from federate.flow.workqueue import WorkQueue
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_terminal
from federate.model.reasons import PodReason

log = structlog.stdlib.get_logger(__name__)


class Lane(StrEnum):
    """Budgets of workers."""

    BRING = "bring"
    """A pod waits for it."""
    KEEP = "keep"
    """At a start, and when the target is back, all that was issued is looked at."""


WORKERS: Mapping[str, int] = {Lane.BRING: 24, Lane.KEEP: 8}
"""Requests under way: a burst of a thousand pods asks for a thousand tokens before they start."""

PASS_SECONDS = 60.0
"""How often what is on record is compared with what is wanted: what was left behind goes within
this."""
LOOK_SECONDS = 300.0
"""How long it may go unnoticed that somebody in the target changed or removed what is issued."""
REFUSED_SECONDS = 60.0
"""How long a name that is taken, or an end that takes its time, is waited for."""
SETTLE_SECONDS = 1.0
"""How long changes of Services gather."""
SYNC_SECONDS = 0.2
"""How soon to look whether the Services are known by now; only at the start they are not."""
LAG_SECONDS = 5.0
"""How soon to look again where what is known of a pod, or the target, is behind."""
SOONEST_SECONDS = 0.5
"""A rest of a time is not waited for more closely: clocks round."""


class EventPort(Protocol):
    """Where Kubernetes Events about hub pods go; never blocks, never fails."""

    def event(
        self, regarding: JsonObject, *, reason: str, note: str, action: str, warning: bool = True
    ) -> None:
        """Note one Event; repeats are aggregated."""


class HubServices(Protocol):
    """The hub's Services, which somebody else watches; `services.watched.HubObjects` is one."""

    @property
    def is_known(self) -> bool:
        """Whether all that there are have been listed."""

    @property
    def is_failing(self) -> bool:
        """Whether the hub did not answer the last time."""

    def in_namespace(self, namespace: str) -> Iterable[JsonObject]:
        """Return those of one namespace."""

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Have somebody told of every change."""

    def want(self) -> None:
        """Have them watched from now on."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a hub pod needs to be issued, and all of it that decides."""

    uid: str
    is_over: bool
    is_mirrored: bool
    target_namespace: str | None
    keys: frozenset[IssuedKey]


class Issuer:
    """What is issued for the pods of one virtual node. Start what `parts` names."""

    def __init__(self, tools: IssueTools, events: EventPort, services: HubServices) -> None:
        self._tools = tools
        self._ports = ports = tools.ports
        self._events = events
        self._wanted: dict[ObjectKey, _Wanted] = {}
        self._pods_of: dict[IssuedKey, set[ObjectKey]] = {}
        self._waiting: dict[IssuedKey, set[ObjectKey]] = {}
        self._linked: dict[str, set[IssuedKey]] = {}
        """Hub namespace -> what tells of its Services there."""
        self._memories: dict[IssuedKey, IssueMemory] = {}
        self.queue: WorkQueue[IssuedKey] = WorkQueue(
            lanes=tuple(Lane),
            clock=ports.clock,
            random=ports.random,
            fair_by=lambda key: key.namespace,
        )
        self._services = services
        services.listen(self._on_service)
        if self.reads_services:
            services.want()

    @property
    def reads_services(self) -> bool:
        """Whether pods are told of the hub's Services, so that these are to be watched."""
        return self._tools.rules.brings_tokens

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what is run beside each other, each until cancelled."""
        return {"issuer": self.work, "issuer-pass": self._pass_by}

    # -- asked and told ----------------------------------------------------------------------------

    def hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        """Say what of what is issued for a pod it still waits for; None: it may start.

        It is issued because it is asked for here, which is done for every pod: one that gets no
        mirror is issued nothing.
        """
        keys = self._keys_for(hub_pod, target_namespace)
        if not keys or self._gets_no_mirror(hub_pod):
            return None
        pod = key_of(hub_pod)
        rests = {key: self._rest_of(key) for key in keys}
        coming = tuple(key for key, rest in rests.items() if not _is_told(rest))
        stuck = tuple(
            (key, rest.blocked) for key, rest in rests.items() if rest is not None and rest.blocked
        )
        for key in (*coming, *(key for key, _ in stuck)):
            self._waiting.setdefault(key, set()).add(pod)
        # Only now: what a pod waits for is brought before the rest is looked at.
        self._note(pod, self._wanted_of(hub_pod, target_namespace, frozenset(keys)))
        return Hold(coming=coming, stuck=stuck) if coming or stuck else None

    def _gets_no_mirror(self, hub_pod: JsonObject) -> bool:
        """Tell whether its token would go to the target for nothing; asked last, for it costs."""
        if self._ports.has_mirror(hub_pod):
            return False
        return self._ports.leaving() or self._ports.is_refused(hub_pod)

    def on_hub_pod(self, change: Change) -> None:
        """Take note of what a hub pod needs now, and no longer."""
        if not self._tools.rules.brings_tokens:
            return  # nothing is issued, and nothing remembered of any pod
        before = self._wanted.get(change.key)
        self._note(change.key, self._derive(change.new, before) if change.new else None)

    def _derive(self, hub_pod: JsonObject, before: _Wanted | None) -> _Wanted:
        """Say what a pod needs: one with a mirror, or that asked for it before."""
        state = self._wanted_of(hub_pod, self._ports.target_namespace(hub_pod), frozenset())
        if before is not None and replace(before, keys=frozenset()) == state:
            return before
        has_asked = before is not None and before.uid == state.uid and before.keys
        if state.target_namespace is None or not (state.is_mirrored or has_asked):
            return state
        keys = self._keys_for(hub_pod, state.target_namespace)
        return replace(state, keys=frozenset(keys))

    def _keys_for(self, hub_pod: JsonObject, target_namespace: str) -> tuple[IssuedKey, ...]:
        """Name what a pod needs; one that has its mirror, only what that refers to.

        A mirror of when identity was set otherwise leads no container to a token, which would lie
        in the target for nobody. Debug containers are told of Services, whatever their mirror is.
        """
        keys = issues_for(self._tools.rules, hub_pod, target_namespace)
        if not keys or not self._ports.has_mirror(hub_pod):
            return keys
        is_debugged = bool(spec_of(hub_pod).get("ephemeralContainers"))
        return tuple(
            key
            for key in keys
            if self._tools.is_used(key.kind.kind, place_of(self._tools.rules.scope, key))
            or (is_debugged and key.kind is IssuedKind.SERVICES)
        )

    def _wanted_of(
        self, hub_pod: JsonObject, target_namespace: str | None, keys: frozenset[IssuedKey]
    ) -> _Wanted:
        is_mirrored = self._ports.has_mirror(hub_pod)
        return _Wanted(uid_of(hub_pod), is_terminal(hub_pod), is_mirrored, target_namespace, keys)

    def _note(self, pod: ObjectKey, after: _Wanted | None) -> None:
        before = self._wanted.get(pod)
        if before == after:
            return
        if after is None:
            del self._wanted[pod]
        else:
            self._wanted[pod] = after
        old = before.keys if before is not None else frozenset()
        new = after.keys if after is not None else frozenset()
        for key in new - old:
            self._pods_of.setdefault(key, set()).add(pod)
            if key.kind is IssuedKind.SERVICES and key.name == LINKED:
                self._linked.setdefault(key.namespace, set()).add(key)
        for key in old - new:
            self._leave(key, pod)
        self._enqueue(key for key in old ^ new if self._is_to_be_seen_to(key))

    def _is_to_be_seen_to(self, key: IssuedKey) -> bool:
        """Tell whether it is news that a pod needs it, or does not: many share what is there."""
        rest = self._rest_of(key)
        is_there = rest is not None and rest.standing is Standing.SETTLED
        return not (is_there and key in self._pods_of)

    def _leave(self, key: IssuedKey, pod: ObjectKey) -> None:
        pods = self._pods_of.get(key, set())
        pods.discard(pod)
        if not pods:
            self._pods_of.pop(key, None)
            self._linked.get(key.namespace, set()).discard(key)
        self._waiting.get(key, set()).discard(pod)

    def on_anchor(self, change: Change) -> None:
        """Have what stands in its namespace looked at, where the anchor became another one."""
        old, new = change.old, change.new
        if old is not None and new is not None and uid_of(old) == uid_of(new):
            return
        namespace = change.key.namespace
        self._enqueue(key for key in self._memories if key.target_namespace == namespace)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke: everything is worth a look."""
        self._enqueue({*self._memories, *self._pods_of})

    def _on_service(self, change: Change) -> None:
        for key in self._linked.get(change.key.namespace, ()):
            self.queue.add_after(key, self._lane_of(key), SETTLE_SECONDS)

    def counts(self) -> Mapping[str, int]:
        """Count tokens and news of Services by where they stand; overdue ones twice."""
        now = self._ports.clock()
        counted = Counter({"settled": 0, "coming": 0, "blocked": 0, "overdue": 0})
        for key in self._pods_of:
            memory = self._memories.get(key, IssueMemory())
            counted["overdue"] += memory.is_overdue(now)
            if memory.rest is None:
                counted["coming"] += 1
            else:
                counted["blocked" if memory.rest.blocked else "settled"] += 1
        return counted

    # -- working -----------------------------------------------------------------------------------

    async def work(self) -> None:
        """Look after what is issued until cancelled."""
        controller = Controller(
            f"{self._tools.rules.scope.node_name}-issuer",
            self.queue,
            self._reconcile,
            WORKERS,
            context={"kind": "Issued"},
        )
        await controller.run()

    async def _pass_by(self) -> None:
        """Find what nobody told of: left behind by a crash, or deleted while nobody looked."""
        while True:
            self._enqueue(self.left_behind())
            await asyncio.sleep(PASS_SECONDS)

    def left_behind(self) -> set[IssuedKey]:
        """List what is on record, and needed by no pod that is known."""
        return {
            key
            for key in self._tools.lists.on_record()
            if isinstance(key, IssuedKey) and key not in self._pods_of and not self._has_pod(key)
        }

    def on_record(self, key: CompanionKey | IssuedKey, is_there: bool) -> None:
        """Look at what was removed in the target; tokens go with their entry."""
        if isinstance(key, IssuedKey) and not is_there and key in self._pods_of:
            self._enqueue((key,))

    def _has_pod(self, key: IssuedKey) -> bool:
        """Tell whether tokens are of a pod that runs, of when identity was set otherwise."""
        pod = self._ports.hub_pods.get(key.pod) if key.uid else None
        return pod is not None and uid_of(pod) == key.uid and not is_terminal(pod)

    async def _reconcile(self, key: IssuedKey, lane: str) -> Outcome:
        instead = self._ports.admit()
        if instead is not None:
            return instead
        memory = self._memories.setdefault(key, IssueMemory())
        before = memory.rest
        wishes = self._wishes(key)
        if wishes is None:
            return Again(LAG_SECONDS if self._services.is_failing else SYNC_SECONDS)
        if not self._ports.target_reachable():
            self._tell_overdue(memory, wishes, Unreachable("the target does not answer"))
            return Again(LAG_SECONDS)
        try:
            rest = await IssueRound(key, tools=self._tools, memory=memory, wishes=wishes).run()
        except FederateError as error:
            self._tell_overdue(memory, wishes, error)
            raise
        finally:
            self._wake(key, before, memory.rest)
        return self._outcome(key, memory, rest)

    def _wishes(self, key: IssuedKey) -> IssueWishes | None:
        """Say what is wanted of it now; None while that is not known yet."""
        pods = self._pods_of.get(key, set())
        if key.kind is IssuedKind.TOKENS:
            hub_pod = next((self._ports.hub_pods.get(pod) for pod in pods), None)
            is_there = hub_pod is not None and uid_of(hub_pod) == key.uid
            return IssueWishes(hub_pod=hub_pod if is_there else None, is_wanted=is_there)
        if not pods:
            return IssueWishes(hub_pod=None, is_wanted=False)
        has_links = key.name == LINKED
        if has_links and not self._services.is_known:
            return None
        advertised = self._tools.rules.advertised
        if advertised is None:
            return IssueWishes(hub_pod=None, is_wanted=False)
        variables = service_environment(
            self._services.in_namespace(key.namespace) if has_links else (),
            namespace=key.namespace,
            has_links=has_links,
            advertised=advertised,
        )
        return IssueWishes(hub_pod=None, is_wanted=True, variables=variables)

    def _outcome(self, key: IssuedKey, memory: IssueMemory, rest: Rest) -> Outcome:
        jitter = self._ports.random.uniform(0.8, 1.0)
        if rest.standing is Standing.SETTLED:
            due = memory.renew_at() - self._ports.clock()
            return Again(max(SOONEST_SECONDS, min(due, LOOK_SECONDS * jitter)))
        if rest.standing is Standing.BLOCKED:
            self._tell_left(key, memory, rest)
            return Again(REFUSED_SECONDS * jitter)
        if key in self._pods_of:
            return Again(LAG_SECONDS)
        if memory.unwanted_since is not None:
            lingered = self._ports.clock() - memory.unwanted_since
            if lingered < LINGER_SECONDS:
                return Again(max(SOONEST_SECONDS, LINGER_SECONDS - lingered))
        # What cannot go yet stands on the list, and is met again by the next pass.
        del self._memories[key]
        self._waiting.pop(key, None)
        return Done()

    def _tell_left(self, key: IssuedKey, memory: IssueMemory, rest: Rest) -> None:
        """Say once what stays on record though nobody wants it: no pod tells of it."""
        if key in self._pods_of or memory.is_left_told or rest.blocked is None:
            return
        memory.is_left_told = True
        log.warning("a Secret on record is left alone", said=rest.blocked.message)

    def _rest_of(self, key: IssuedKey) -> Rest | None:
        memory = self._memories.get(key)
        return memory.rest if memory is not None else None

    def _wake(self, key: IssuedKey, before: Rest | None, after: Rest | None) -> None:
        if after is None or after == before or not _is_told(after):
            return
        for pod in self._waiting.pop(key, set()):
            self._ports.wake(pod)

    def _enqueue(self, keys: Iterable[IssuedKey]) -> None:
        for key in keys:
            self.queue.add(key, self._lane_of(key))

    def _lane_of(self, key: IssuedKey) -> Lane:
        return Lane.BRING if self._waiting.get(key) else Lane.KEEP

    def _tell_overdue(self, memory: IssueMemory, wishes: IssueWishes, error: FederateError) -> None:
        hub_pod = wishes.hub_pod
        is_overdue = memory.is_overdue(self._ports.clock())
        if hub_pod is None or memory.is_overdue_told or not is_overdue:
            return
        memory.is_overdue_told = True
        self._events.event(
            hub_pod,
            reason=PodReason.TOKEN_OVERDUE,
            note="a token of the pod is past most of its life and could not be renewed; tried "
            f"again until it succeeds: {error}",
            action="RenewToken",
        )
        log.warning("token overdue", pod=str(key_of(hub_pod)), error=str(error))


def _is_told(rest: Rest | None) -> bool:
    """Tell whether a pod that waits for it has an answer."""
    return rest is not None and rest.standing is not Standing.ABSENT

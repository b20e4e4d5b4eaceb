"""The companions of one virtual node: which are to be looked at, and what pods may rely on.

Events of pods tell who wants what; the hub's objects are watched or asked for; what stands in the
target is watched (ConfigMaps) and asked for. Each makes keys for one queue, whose workers carry out
rounds. Where a companion came to rest is `known` until something changes; a pod without a mirror
waits while something that it wants is not known, and is woken when it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial

import structlog

from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.companions.confirming import Confirming
from federate.companions.demand import Demand, listed_in
from federate.companions.entries import is_entry, outline_of
from federate.companions.holding import Hold, hold_of
from federate.companions.keys import CompanionKey, Kind, companion_of, name_of
from federate.companions.lists import Lists
from federate.companions.looking import HUB_SECONDS, LOOKS_PER_SECOND, TARGET_SECONDS, Look, Looking
from federate.companions.memory import Known, Memory
from federate.companions.ports import CompanionPorts
from federate.companions.record import Key
from federate.companions.round import CompanionRound, Need, Settled
from federate.companions.steps import Standing
from federate.companions.wanted import Shift, Wanted, Wish, discard
from federate.companions.watches import MOST_WATCHES
from federate.companions.watching import Watching
from federate.flow.controller import Again, Controller, Done, Outcome
from federate.flow.workqueue import WorkQueue
from federate.model.marks import COMPANION_LABEL
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    labels_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS

log = structlog.stdlib.get_logger(__name__)

LINGER_SECONDS = 60.0
"""How long what nobody wants stays: a roll-out ends the old pods and starts new ones that want the
same. Longer, and what is not used any more stays readable in the target."""
FRESH_SECONDS = 5.0
"""How much older than a pod what is known of an unwatched object of the hub may be."""
TARGET_FRESH_SECONDS = 60.0
"""The same of a Secret in the target, which nothing tells of."""
UNREACHABLE_SECONDS = 5.0
MOST_DOUBTS = 3
"""Rounds in a row that were overtaken by another change before their result counts all the same."""


class Lane(StrEnum):
    """Budgets of workers."""

    BRING = "bring"
    """A pod waits for it."""
    KEEP = "keep"
    REMOVE = "remove"


WORKERS: Mapping[str, int] = {Lane.BRING: 24, Lane.KEEP: 8, Lane.REMOVE: 4}
"""Requests under way: each waits for one round trip at a time. What pods wait for comes first."""


class Companions:
    """All companions of one virtual node; see `ports` for who calls what."""

    def __init__(
        self,
        ports: CompanionPorts,
        *,
        workers: Mapping[str, int] = WORKERS,
        most_watches: int = MOST_WATCHES,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self._ports = ports
        self._workers = workers
        self._linger_seconds = linger_seconds
        # Nobody asks what one was that is gone.
        self.configmaps = Store(transform=outline_of, deleted_limit=0)
        self.lists = Lists(ports, self.configmaps)
        self.lists.listeners.append(self._on_record)
        self.queue: WorkQueue[CompanionKey] = WorkQueue(
            lanes=tuple(Lane),
            clock=ports.clock,
            random=ports.random,
            fair_by=lambda key: key.namespace,
        )
        self._wanted = Wanted(
            scope=ports.scope,
            shared=ports.shared,
            brings_tokens=ports.brings_tokens,
            is_refused=ports.is_refused,
            has_mirror=ports.has_mirror,
            travelling=ports.travelling,
        )
        self._known: dict[CompanionKey, Known] = {}
        self._waiting: dict[CompanionKey, set[ObjectKey]] = {}
        self._memories: dict[CompanionKey, Memory] = {}
        self._unwanted_since: dict[CompanionKey, float] = {}
        self._rounds: dict[CompanionKey, CompanionRound] = {}
        self._doubts: Counter[CompanionKey] = Counter()
        self._confirming = Confirming(ports, self._wanted)
        self._watching = Watching(
            ports.hub,
            wanted=self._wanted.__iter__,
            is_wanted=lambda kind, hub_key: bool(self._wanted.of_object(kind, hub_key)),
            seen=self._on_hub_object,
            doubted=self._on_doubt,
            clock=ports.clock,
            random=ports.random,
            most=most_watches,
        )
        self._looking = Looking(due=self._due, count_read=ports.count_read, clock=ports.clock)

    # -- what pods ask -----------------------------------------------------------------------------

    def hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        """Say what a hub pod (the store's own, whole) waits for; None where nothing holds it back.

        It is woken when that comes, or is known not to come.
        """
        pod, now = key_of(hub_pod), self._ports.clock()
        shift = self._wanted.hub_pod_is(pod, hub_pod, target_namespace, now=now)
        self._follow(pod, shift)
        wish = shift.wish
        if wish is None or not wish.keys:
            return None
        known = {key: self._known[key].rest for key in wish.keys if self._is_good(key, wish)}
        hold = hold_of(wish.keys, known)
        if hold is None or self._ports.leaving():
            return hold  # nothing new comes any more
        for key in wish.keys:
            if key in known and known[key].blocked is None:
                continue
            self._waiting.setdefault(key, set()).add(pod)
            if key not in known:
                self._bring(key)
        return hold

    def _bring(self, key: CompanionKey) -> None:
        # In a hand it is on its way; where it failed it has its time, however many pods ask.
        if key not in self._rounds and not self.queue.failures(key):
            self.queue.add(key, Lane.BRING)

    def _is_good(self, key: CompanionKey, wish: Wish) -> bool:
        """Tell whether a pod may rely on what is known.

        What is watched changes before our eyes. Of all else it counts how old our knowledge was
        when the pod came; one that has its mirror started with what there was then.
        """
        known = self._known.get(key)
        if known is None or wish.stamp.has_mirror:
            return known is not None
        is_watched = self._watching.is_live(key.kind, key.hub_key)
        is_hub_fresh = is_watched or known.hub_at >= wish.seen_at - FRESH_SECONDS
        is_told = key.kind is Kind.CONFIGMAP
        return is_hub_fresh and (is_told or known.target_at >= wish.seen_at - TARGET_FRESH_SECONDS)

    def _wake(self, key: CompanionKey) -> None:
        for pod in self._waiting.pop(key, ()):
            self._ports.wake(pod)

    # -- from events to keys -----------------------------------------------------------------------

    def on_hub_pod(self, change: Change) -> None:
        """Take note of what a hub pod refers to."""
        if change.new is None:
            self._follow(change.key, self._wanted.hub_pod_is_gone(change.key))
            return
        namespace = self._ports.target_namespace(change.new)
        now = self._ports.clock()
        shift = self._wanted.hub_pod_is(change.key, change.new, namespace, now=now)
        self._follow(change.key, shift)

    def on_mirror(self, change: Change) -> None:
        """Take note of what a mirror refers to."""
        for key in self._wanted.mirror_is(change.key, change.new):
            self._part_with(key)

    def mirror_of(self, hub_pod: ObjectKey) -> bool | None:
        """Tell whether the mirror that a hub pod claims stood there; None where it claims none."""
        return self._wanted.mirror_of(hub_pod)

    def on_anchor(self, change: Change) -> None:
        """Look at what an anchor owns where it is another one, and at what lines it has."""
        namespace, old, new = change.key.namespace, change.old, change.new
        if old is None or new is None or not _is_same_anchor(old, new):
            for key in self._wanted:
                if key.target_namespace == namespace:
                    self._differs(key)
        if new is not None and self._ports.scope.owns(new):
            for key in listed_in(self._ports.scope, new):
                self._see_to_left(key)

    def _on_record(self, key: Key, is_there: bool) -> None:
        """Look at a Secret whose entry came or went."""
        if not isinstance(key, CompanionKey) or key.kind is not Kind.SECRET:
            return
        known = self._known.get(key)
        if is_there:
            self._see_to_left(key)
        elif known is not None and known.companion_version:
            self._differs(key)  # it goes with its entry

    def _see_to_left(self, key: CompanionKey) -> None:
        """Look at what a process before us made, and nobody wants."""
        self._wanted.heard_of(key)
        if not self._is_wanted(key) and key not in self._unwanted_since:
            self.enqueue(key)

    def _follow(self, pod: ObjectKey, shift: Shift) -> None:
        for key in shift.left:
            discard(self._waiting, key, pod)
        for key in shift.begun:
            self._unwanted_since.pop(key, None)
            if key not in self._known:
                has_mirror = shift.wish is None or shift.wish.stamp.claims_mirror
                self.queue.add(key, Lane.KEEP if has_mirror else Lane.BRING)
        for key in shift.ended:
            self._part_with(key)
        if shift.begun or shift.ended:
            self._watching.wake()

    def _part_with(self, key: CompanionKey) -> None:
        """Nobody wants it: let it linger, and then see."""
        self._unwanted_since[key] = self._ports.clock()
        lingers = 0.0 if self._ports.leaving() else self._linger_seconds
        self.queue.add_after(key, Lane.REMOVE, lingers)

    def enqueue(self, key: CompanionKey) -> None:
        """Have a companion looked at."""
        self._wanted.heard_of(key)
        self.queue.add(key, self._lane_of(key))

    def _lane_of(self, key: CompanionKey) -> Lane:
        if key in self._waiting:
            return Lane.BRING
        return Lane.KEEP if self._is_wanted(key) else Lane.REMOVE

    def wake_all(self) -> None:
        """The target is back, or an operator spoke: look at all that has not come to rest."""
        for key in self._wanted:
            known = self._known.get(key)
            if known is None or known.rest.standing is Standing.BLOCKED:
                self.enqueue(key)

    def _on_hub_object(self, kind: Kind, hub_key: ObjectKey, version: str) -> None:
        for key in self._wanted.of_object(kind, hub_key):
            under_way = self._rounds.get(key)
            known = self._known.get(key)
            if under_way is not None:
                under_way.hub_seen = version
            elif known is not None and known.hub_version != version:
                self._differs(key)

    def _on_doubt(self, kind: Kind, hub_key: ObjectKey) -> None:
        for key in self._wanted.of_object(kind, hub_key):
            self._doubt(key)

    def _doubt(self, key: CompanionKey) -> None:
        """Read it again; what is known stands until then, for nothing says that it changed."""
        self.queue.add(key, self._lane_of(key))

    def _differs(self, key: CompanionKey) -> None:
        """Look at what changed; pods that come meanwhile wait for it."""
        self._known.pop(key, None)
        self.enqueue(key)

    def _on_configmap(self, change: Change) -> None:
        self.lists.note(change)
        shown = change.new or change.old
        if shown is not None and is_entry(self._ports.scope, shown):
            return
        key = companion_of(self._ports.scope, shown) if shown is not None else None
        if key is None and change.old is not None:
            key = companion_of(self._ports.scope, change.old)  # its marks were taken off
        if key is None:
            return
        version = resource_version_of(change.new) if change.new is not None else ""
        under_way, known = self._rounds.get(key), self._known.get(key)
        if under_way is not None:
            under_way.companion_seen = version
        elif known is None or known.companion_version != version:
            self._differs(key)

    # -- what others may know ----------------------------------------------------------------------

    def demand(self) -> Demand:
        """Return what is wanted, as both stores have it now."""
        return self._wanted.demand()

    def is_used(self, kind: Kind, place: ObjectKey) -> bool:
        """Tell whether a mirror refers to that object of the target, whatever it stands for."""
        return self._wanted.is_used(kind, place)

    def inventory(self) -> frozenset[CompanionKey]:
        """Return what the target shows of ours."""
        return frozenset(key for key in self.lists.on_record() if isinstance(key, CompanionKey))

    def missing(self) -> list[CompanionKey]:
        """Return what is wanted and has not come to rest."""
        return [key for key in self._wanted if key not in self._known]

    def counts(self) -> Mapping[str, int]:
        """Count what is wanted by where it stands."""
        return Counter(
            self._known[key].rest.standing.name.lower() if key in self._known else "coming"
            for key in self._wanted
        )

    @property
    def watches(self) -> int:
        """How many watches of the hub are open."""
        return self._watching.count

    def asked(self) -> int:
        """Count the objects of the hub that are asked for, since no watch tells of them."""
        return len({(key.kind, key.hub_key) for key in self._wanted if self._is_asked(key)})

    def _is_asked(self, key: CompanionKey) -> bool:
        return not self._watching.is_live(key.kind, key.hub_key) and key.can_exist

    # -- one key -----------------------------------------------------------------------------------

    async def reconcile(self, key: CompanionKey, lane: str) -> Outcome:
        """Bring a companion to what it ought to be, as far as it goes now."""
        instead = self._ports.admit()
        if instead is not None:
            return instead
        if not self._ports.target_reachable():
            return Again(UNREACHABLE_SECONDS)
        if not self._is_wanted(key):
            # A pod that wants it again may rely on nothing, for it is about to go.
            self._known.pop(key, None)
            self._unwanted_since.setdefault(key, self._ports.clock())
        begun_at = self._ports.clock()
        under_way = self._rounds[key] = CompanionRound(
            key,
            ports=self._ports,
            lists=self.lists,
            confirming=self._confirming,
            memory=self._memories.setdefault(key, Memory()),
            need=partial(self._need, key),
        )
        try:
            settled = await under_way.run()
        finally:
            del self._rounds[key]
        self._take(key, settled, under_way, begun_at=begun_at)
        return Done() if settled.again_seconds is None else Again(settled.again_seconds)

    def _is_wanted(self, key: CompanionKey) -> bool:
        return self._wanted.wants(key, leaving=self._ports.leaving())

    def _need(self, key: CompanionKey) -> Need:
        if self._is_wanted(key):
            return Need(
                is_wanted=True,
                has_hub_pod=self._wanted.has_hub_pod(key),
                is_used=self.is_used(key.kind, name_of(self._ports.scope, key)),
            )
        now = self._ports.clock()
        since = self._unwanted_since.setdefault(key, now)
        lingers = 0.0 if self._ports.leaving() else since + self._linger_seconds - now
        return Need(is_wanted=False, unwanted_since=since, lingers_seconds=max(0.0, lingers))

    def _take(
        self, key: CompanionKey, settled: Settled, under_way: CompanionRound, *, begun_at: float
    ) -> None:
        """Take over how a round ended, and wake the pods that wait for that."""
        rest = settled.rest
        if not self._is_wanted(key):
            if settled.again_seconds is None:
                self._forget(key)
            return
        if rest is None or not self._wanted.has_hub_pod(key):
            return  # a pod that comes to ask for it may rely on nothing
        if self._is_overtaken(settled, under_way):
            self._doubts[key] += 1
            self.queue.add(key, self._lane_of(key))
            if self._doubts[key] < MOST_DOUBTS:
                self._known.pop(key, None)
                return
        self._doubts.pop(key, None)
        before = self._known.get(key)
        self._known[key] = Known(
            rest=rest,
            hub_version=settled.hub_version or "",
            companion_version=settled.companion_version or "",
            hub_at=begun_at,
            target_at=begun_at,
        )
        # Who waits for something blocked is woken where that says something new.
        is_news = before is None or before.rest.blocked != rest.blocked
        if is_news or rest.blocked is None:
            self._wake(key)

    def _is_overtaken(self, settled: Settled, under_way: CompanionRound) -> bool:
        """Tell whether another version was seen than the round ended with."""
        return any(
            seen is not None and ended is not None and seen != ended
            for seen, ended in (
                (under_way.hub_seen, settled.hub_version),
                (under_way.companion_seen, settled.companion_version),
            )
        )

    def _forget(self, key: CompanionKey) -> None:
        for known in (self._known, self._memories, self._unwanted_since, self._doubts):
            known.pop(key, None)
        self._waiting.pop(key, None)
        self._wanted.forget(key)

    # -- asking for what nothing tells -------------------------------------------------------------

    def _due(self, until: float) -> Iterator[Look]:
        """List what must be asked for until then; each is asked for by itself, whatever fails."""
        asked = {key for key in self._known if self._is_asked(key)}
        hub_seconds = max(HUB_SECONDS, len(asked) / LOOKS_PER_SECOND)
        target_seconds = max(TARGET_SECONDS, len(self._known) / LOOKS_PER_SECOND)
        for key, known in self._known.items():
            # What is blocked has times of its own.
            if key in self._rounds or known.rest.blocked is not None:
                continue
            if key in asked and until - known.hub_at >= hub_seconds:
                yield self._hub_look(key, known, known.hub_at + hub_seconds)
            if until - known.target_at >= target_seconds:
                yield self._target_look(key, known, known.target_at + target_seconds)

    def _hub_look(self, key: CompanionKey, known: Known, due_at: float) -> Look:
        return Look(
            cluster=self._ports.hub,
            kind=key.kind,
            key=key.hub_key,
            due_at=due_at,
            known_version=known.hub_version,
            is_due=lambda: self._is_due(key, known),
            confirmed=lambda: self._confirm(key, known, hub_at=self._ports.clock()),
            differs=lambda: self._differs(key),
        )

    def _target_look(self, key: CompanionKey, known: Known, due_at: float) -> Look:
        return Look(
            cluster=self._ports.target,
            kind=key.kind,
            key=name_of(self._ports.scope, key),
            due_at=due_at,
            known_version=known.companion_version,
            is_due=lambda: self._is_due(key, known),
            confirmed=lambda: self._confirm(key, known, target_at=self._ports.clock()),
            differs=lambda: self._differs(key),
        )

    def _is_due(self, key: CompanionKey, known: Known) -> bool:
        """Tell whether a look that was due is worth a request: nothing changed since."""
        return key not in self._rounds and self._present(key, known) is not None

    def _present(self, key: CompanionKey, known: Known) -> Known | None:
        """Return what is known now, where it says the same, whenever it was looked at."""
        found = self._known.get(key)
        if found is None:
            return None
        is_same = replace(found, hub_at=known.hub_at, target_at=known.target_at) == known
        return found if is_same else None

    def _confirm(self, key: CompanionKey, known: Known, **at: float) -> None:
        present = self._present(key, known)
        if present is not None:
            self._known[key] = replace(present, **at)  # type: ignore[arg-type]

    # -- running -----------------------------------------------------------------------------------

    def open(self) -> tuple[Reflector, ...]:
        """Build the reflectors of the ConfigMaps of ours that stand in the target."""
        return tuple(map(self._reflect, self._ports.watched()))

    def _reflect(self, namespace: str) -> Reflector:
        scope = self._ports.scope
        return Reflector(
            self._ports.target,
            CONFIGMAPS,
            self.configmaps,
            name=f"companions-{namespace}" if namespace else "companions",
            namespace=namespace,
            label_selector=f"{scope.selector},{COMPANION_LABEL}",
            matches=lambda obj: scope.owns(obj) and COMPANION_LABEL in labels_of(obj),
            metadata_only=True,
            on_change=self._on_configmap,
            clock=self._ports.clock,
            jitter=self._ports.random.random,
        )

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what runs beside the reflectors, each until cancelled."""
        return {
            "companions": self.work,
            "companion-watches": self._watching.run,
            "companion-looks": self._looking.run,
        }

    async def work(self) -> None:
        """Reconcile what is queued until cancelled."""
        controller = Controller(
            f"{self._ports.scope.node_name}-companions",
            self.queue,
            self.reconcile,
            self._workers,
            context={"kind": "Companion"},
        )
        await controller.run()


def _is_same_anchor(old: JsonObject, new: JsonObject) -> bool:
    return uid_of(old) == uid_of(new) and is_terminating(old) == is_terminating(new)

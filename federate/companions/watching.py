"""Watch the hub's ConfigMaps and Secrets that are wanted: metadata only, within a limit.

Each watch begins with what is there, so an addition is never missed, whatever was read when. A
deletion between a read and the beginning of a watch is not told; so once a watch has shown that it
lives, whatever it has not shown is read again. Until then, and wherever there is no watch, objects
are asked for (`looking`). Nothing of any object is kept but which version was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import structlog

from federate.cluster.port import ClusterPort, WatchEvent
from federate.companions.keys import CompanionKey, Kind
from federate.companions.watches import MOST_WATCHES, Watch, plan_watches
from federate.errors import ClusterError, Expired, Forbidden, Throttled
from federate.flow.ratebound import RateBound
from federate.model.objects import ObjectKey, key_of, resource_version_of

log = structlog.stdlib.get_logger(__name__)

WATCH_SECONDS = 300.0
"""Most a watch lasts before the server ends it; each is up to a fifth shorter."""
GATHER_SECONDS = 0.5
"""Pods come in crowds: the plan is made for all of a crowd at once."""
OPENED_PER_SECOND = 50.0
OPENED_AT_ONCE = 20
"""Connections are opened side by side, but not all two hundred."""
SETTLE_SECONDS = 1.0
"""How long the beginning of a watch may take to be told, after its first word."""
LEAST_BACK_OFF_SECONDS = 0.5
MOST_BACK_OFF_SECONDS = 30.0
BRIEF_SECONDS = 1.0
"""A watch that ends so soon and brought nothing is taken as a failure, or it would spin."""
FORBIDDEN_SECONDS = 300.0
"""How long a right that was given later may go unused."""


@dataclass(eq=False)
class _Open:
    """One watch, as long as it is in the plan."""

    watch: Watch
    task: asyncio.Task[None] | None = None
    version: str = ""
    """From where it goes on; "" to begin with what is there."""
    is_live: bool = False
    """Whether nothing that happens can be missed."""
    shown: set[str] = field(default_factory=set)
    """Names that the beginning showed, until it is over."""
    is_beginning: bool = True
    failures: int = 0


class Watching:
    """All watches of one virtual node; `run` it until cancelled.

    `wanted` are the companions to be watched for. `seen` is told of each version of a wanted
    object, "" where it was deleted; `doubted` of those that must be read again.
    """

    def __init__(
        self,
        hub: ClusterPort,
        *,
        wanted: Callable[[], Iterable[CompanionKey]],
        is_wanted: Callable[[Kind, ObjectKey], bool],
        seen: Callable[[Kind, ObjectKey, str], None],
        doubted: Callable[[Kind, ObjectKey], None],
        clock: Callable[[], float],
        random: Random,
        most: int = MOST_WATCHES,
    ) -> None:
        self._hub = hub
        self._wanted = wanted
        self._is_wanted = is_wanted
        self._seen = seen
        self._doubted = doubted
        self._clock = clock
        self._random = random
        self._most = most
        self._open: dict[Watch, _Open] = {}
        self._refused: dict[tuple[Kind, str], float] = {}
        """Kinds and namespaces that we may not watch, and when to try again."""
        self._is_told: set[Kind] = set()
        self._changed = asyncio.Event()
        self._bound = RateBound(per_second=OPENED_PER_SECOND, burst=OPENED_AT_ONCE, clock=clock)

    @property
    def count(self) -> int:
        """How many watches there are."""
        return len(self._open)

    def is_live(self, kind: Kind, hub_key: ObjectKey) -> bool:
        """Tell whether nothing that happens to the object can be missed."""
        single = self._open.get(Watch(kind, hub_key.namespace, hub_key.name))
        whole = self._open.get(Watch(kind, hub_key.namespace))
        return any(each is not None and each.is_live for each in (single, whole))

    def wake(self) -> None:
        """Something else is wanted: have the plan made anew soon."""
        self._changed.set()

    async def run(self) -> None:
        """Hold open what is planned."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._follow_plan(group)
                self._changed.clear()
                # Refused ones are tried again without anybody's word.
                try:
                    async with asyncio.timeout(FORBIDDEN_SECONDS / 2):
                        await self._changed.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(GATHER_SECONDS)

    def _follow_plan(self, group: asyncio.TaskGroup) -> None:
        now = self._clock()
        self._refused = {where: at for where, at in self._refused.items() if at > now}
        watchable = (
            key for key in self._wanted() if (key.kind, key.namespace) not in self._refused
        )
        plan = plan_watches(watchable, present=self._open.keys(), most=self._most)
        for watch in self._open.keys() - plan.watches:
            self._close(watch)
        for watch in plan.watches - self._open.keys():
            opened = self._open[watch] = _Open(watch)
            opened.task = group.create_task(self._hold_open(opened), name="companion-watch")

    def _close(self, watch: Watch) -> None:
        opened = self._open.pop(watch)
        opened.is_live = False
        if opened.task is not None:
            opened.task.cancel()

    # -- one watch ---------------------------------------------------------------------------------

    async def _hold_open(self, opened: _Open) -> None:
        while True:
            await self._bound.take()
            try:
                pause = await self._follow(opened)
            except Forbidden as error:
                self._refuse(opened.watch, error)
                return
            except Expired:
                self._begin_anew(opened)
                pause = self._back_off(opened, None) if opened.failures else 0.0
                opened.failures += 1
            except ClusterError as error:
                opened.is_live = False
                opened.failures += 1
                pause = self._back_off(opened, error)
                log.debug("watch interrupted", watch=str(opened.watch), error=str(error))
            await asyncio.sleep(pause)

    async def _follow(self, opened: _Open) -> float:
        """Watch until the server ends it; returns how long to wait before the next."""
        watch, began_at, is_silent = opened.watch, self._clock(), True
        events = self._hub.watch(
            watch.kind.resource,
            resource_version=opened.version,
            namespace=watch.namespace,
            field_selector=watch.field_selector,
            timeout_seconds=WATCH_SECONDS * (1.0 - 0.2 * self._random.random()),
            metadata_only=True,
        )
        try:
            async for event in events:
                is_silent = False
                opened.failures = 0
                self._take(opened, event)
        finally:
            # The port promises an iterator only; a generator holds a connection until it is closed.
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        if is_silent and self._clock() - began_at < BRIEF_SECONDS:
            opened.failures += 1
            return self._back_off(opened, None)
        return 0.0

    def _take(self, opened: _Open, event: WatchEvent) -> None:
        hub_key, version = key_of(event.object), resource_version_of(event.object)
        opened.version = version or opened.version
        if not opened.is_live:
            self._go_live(opened)
        kind = opened.watch.kind
        if event.type == "BOOKMARK" or not self._is_wanted(kind, hub_key):
            return
        if opened.is_beginning:
            opened.shown.add(hub_key.name)
        self._seen(kind, hub_key, "" if event.type == "DELETED" else version)

    def _begin_anew(self, opened: _Open) -> None:
        opened.version, opened.is_live, opened.is_beginning = "", False, True
        opened.shown.clear()

    def _go_live(self, opened: _Open) -> None:
        opened.is_live = True
        if opened.is_beginning:
            asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._end_beginning, opened)

    def _end_beginning(self, opened: _Open) -> None:
        """What the watch did not show was deleted before it began, or never there: read it."""
        watch = opened.watch
        if self._open.get(watch) is not opened or not (opened.is_live and opened.is_beginning):
            return
        opened.is_beginning = False
        shown, opened.shown = opened.shown, set()
        if watch.name:
            served = [ObjectKey(watch.namespace, watch.name)]
        else:
            group = (watch.kind, watch.namespace)
            served = [key.hub_key for key in self._wanted() if (key.kind, key.namespace) == group]
        for hub_key in served:
            if hub_key.name not in shown:
                self._doubted(watch.kind, hub_key)

    def _refuse(self, watch: Watch, error: Forbidden) -> None:
        """Ask for these objects instead."""
        self._refused[watch.kind, watch.namespace] = self._clock() + FORBIDDEN_SECONDS
        self._open.pop(watch, None)
        self._changed.set()
        if watch.kind not in self._is_told:
            self._is_told.add(watch.kind)
            log.warning(
                "the hub does not let federate watch: changes are found by asking",
                kind=str(watch.kind),
                error=str(error),
            )

    def _back_off(self, opened: _Open, error: ClusterError | None) -> float:
        doubled = LEAST_BACK_OFF_SECONDS * 2.0 ** min(max(opened.failures, 1) - 1, 10)
        seconds = min(doubled, MOST_BACK_OFF_SECONDS) * (0.75 + 0.5 * self._random.random())
        if isinstance(error, Throttled):
            return max(seconds, error.retry_after_seconds)
        return seconds

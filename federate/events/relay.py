"""From the target's Events to the hub pods': picks out what is about a mirror on record.

Everything else is dropped at once: the lookup by the mirror's uid is all that an Event of others
costs. With the hub as its own target, or two clusters that federate each other, nothing goes round:
what a hub pod is told is about no mirror.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial
from random import Random

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import LeadershipLost
from federate.events.feed import EventFeed
from federate.events.render import HubEvent, mirror_key_of, mirror_uid_of
from federate.events.teller import Teller
from federate.model.marks import record_of
from federate.model.objects import JsonObject

log = structlog.stdlib.get_logger(__name__)

CRASH_PAUSE_SECONDS = 5.0
MOST_CRASH_PAUSE_SECONDS = 300.0


class EventRelay:
    """Hands over what the feed brings; `hub_pod_of` finds the hub pod of a mirror's uid, `render`
    makes of an Event of the target what that pod is told.

    The mirror must be, or have been until it went, the one on record on that hub pod. Each of the
    `namespaces` is watched by itself, "" stands for all at once; they are asked for by `parts`.
    """

    def __init__(
        self,
        target: ClusterPort,
        hub_pod_of: Callable[[str], JsonObject | None],
        teller: Teller,
        *,
        render: Callable[[JsonObject, JsonObject], HubEvent],
        namespaces: Callable[[], Sequence[str]] = lambda: ("",),
        clock: Callable[[], float],
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        self._hub_pod_of = hub_pod_of
        self._render = render
        self._teller = teller
        self._namespaces = namespaces
        self._feed_of = partial(
            EventFeed, target, self.on_event, clock=clock, now=now, jitter=random.random
        )
        self._feeds: list[EventFeed] = []

    @property
    def is_open(self) -> bool:
        """Tell whether the target lets us watch its Events, everywhere."""
        return bool(self._feeds) and all(feed.is_open for feed in self._feeds)

    def on_event(self, event: JsonObject) -> None:
        """Pass one Event of the target on, if it is about a mirror of ours."""
        hub_pod = self._hub_pod_of(mirror_uid_of(event))
        record = record_of(hub_pod) if hub_pod is not None else None
        # Who may write Events in one namespace must not speak of pods of another by their uid.
        if hub_pod is not None and record is not None and record.mirror == mirror_key_of(event):
            self._teller.tell(self._render(event, hub_pod))

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what is run until cancelled; only a lost lease ends it (LeadershipLost)."""
        feeds = {
            f"events-feed-{namespace}".rstrip("-"): self._feed_of(namespace=namespace)
            for namespace in self._namespaces()
        }
        self._feeds = list(feeds.values())
        runs = {name: feed.run for name, feed in feeds.items()} | {
            "events-teller": self._teller.run
        }
        return {name: partial(self._supervised, name, run) for name, run in runs.items()}

    async def _supervised(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Start a part that crashes again: pods do not depend on it."""
        pause = CRASH_PAUSE_SECONDS
        while True:
            try:
                await part()
            except LeadershipLost:
                raise
            except Exception:
                log.exception("telling events crashed; starting again", part=name)
            await asyncio.sleep(pause)
            pause = min(2.0 * pause, MOST_CRASH_PAUSE_SECONDS)

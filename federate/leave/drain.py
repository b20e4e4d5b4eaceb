"""Free the hub pods of a virtual node, as `kubectl drain` frees those of any node.

Pods are evicted, so PodDisruptionBudgets have their say; one that a budget protects is asked again.
Their mirrors are ended by whoever leads. A pod counts as gone when the hub has it no more, which is
after its mirror is gone (C50).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.errors import ClusterError, Conflict, FederateError, Throttled
from federate.leave.plan import Remaining, listed, plan_drain, stays_to_the_end, tell_remaining
from federate.leave.survey import TargetSurvey, hub_pods_of
from federate.model.marks import record_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import PODS

AT_ONCE = 20
"""Evictions under way: a hub's API server takes these in its stride."""
BLOCKED_SECONDS = 5.0
"""How long a pod that a budget protects is left alone; as kubectl does."""


class Hub(ClusterPort, Protocol):
    """The hub, with the one request that only a drain makes."""

    async def evict(
        self, key: ObjectKey, *, uid: str, grace_seconds: int | None = None
    ) -> JsonDict | None:
        """Delete that very pod unless a budget forbids it (`Throttled`); None where it was gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRules:
    """How pods are asked to go."""

    force: bool = False
    """Delete bare pods too, which nobody replaces."""
    grace_seconds: int | None = None
    """None: each pod's own."""

    @property
    def asked_grace_seconds(self) -> int | None:
        """What is asked for: at least a second, for 0 removes a pod before its mirror ended."""
        return None if self.grace_seconds is None else max(1, self.grace_seconds)


class Drain:
    """The drain of one virtual node; `step` is repeated until it returns ""."""

    def __init__(
        self,
        hub: Hub,
        node_name: str,
        rules: DrainRules,
        *,
        before: Callable[[], Awaitable[None]],
    ) -> None:
        """`before` is awaited ahead of each look: it keeps the Node cordoned and marked."""
        self._hub = hub
        self._node_name = node_name
        self._rules = rules
        self._before = before
        self._clock = asyncio.get_running_loop().time
        self._asked_again_at: dict[str, float] = {}
        self._blocked: dict[str, str] = {}

    async def step(self, survey: TargetSurvey | None = None) -> str:
        """Ask those to go who may; says what is still there.

        With `survey` it is the last look: pods that a drain leaves alone go too, where they have a
        mirror.

        Raises:
            FederateError: a bare pod is in the way, and may not be deleted.
        """
        await self._before()
        mirrors = None if survey is None else await survey.mirrors()
        hub_pods = await hub_pods_of(self._hub, self._node_name)
        remaining = plan_drain(hub_pods, force=self._rules.force, mirrors=mirrors)
        if remaining.unforced:
            raise FederateError(
                f"bare pods, which nobody replaces: {listed(remaining.unforced)}. Delete them "
                "yourself, or give --force"
            )
        if remaining.is_done:
            return ""
        await self._ask_all(remaining)
        return tell_remaining(remaining, list(self._blocked.values()))

    async def _ask_all(self, remaining: Remaining) -> None:
        due = [p for p in remaining.due if self._asked_again_at.get(uid_of(p), 0) <= self._clock()]
        self._blocked = {
            uid: name
            for uid, name in self._blocked.items()
            if uid in {uid_of(pod) for pod in remaining.due}
        }
        for start in range(0, len(due), AT_ONCE):
            await self._ask_some(due[start : start + AT_ONCE])

    async def _ask_some(self, pods: Sequence[JsonObject]) -> None:
        answers = await asyncio.gather(*(self._ask(pod) for pod in pods), return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if failed:
            raise failed[0]

    async def _ask(self, pod: JsonObject) -> None:
        uid, key, grace = uid_of(pod), key_of(pod), self._rules.asked_grace_seconds
        try:
            if stays_to_the_end(pod):
                # No eviction: where its DaemonSet would have it, no budget keeps it either.
                await self._hub.delete(PODS, key, uid=uid, grace_seconds=grace)
            else:
                await self._hub.evict(key, uid=uid, grace_seconds=grace)
        except Throttled as error:
            if "disruption budget" in error.detail:  # else the hub merely asks to wait
                self._blocked[uid] = str(key)
            self._asked_again_at[uid] = self._clock() + BLOCKED_SECONDS
        except Conflict:
            pass  # another pod has its name: the next look sees it
        else:
            self._blocked.pop(uid, None)


async def free_rest(hub: ClusterPort, node_name: str) -> int:
    """Remove the pods of a Node that is gone which never had a mirror; returns how many.

    The hub's pod garbage collector would do it within a minute or two.
    """
    freed = 0
    for pod in await hub_pods_of(hub, node_name):
        if record_of(pod) is not None:
            continue
        try:
            await hub.delete(
                PODS,
                key_of(pod),
                uid=uid_of(pod),
                resource_version=resource_version_of(pod),  # or it got a record meanwhile
                grace_seconds=0,
            )
        except ClusterError:
            continue  # then pod GC does it
        freed += 1
    return freed

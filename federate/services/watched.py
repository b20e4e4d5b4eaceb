"""The hub's Services and NetworkPolicies as they are: one watch each, shared by all who ask.

Nothing waits for them to be known at a start; whoever needs to know asks `is_known`. Nor are they
watched before somebody wants them: a hub may have very many, and a virtual node without pods has
nothing to tell them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.errors import Forbidden
from federate.model.objects import JsonDict, JsonObject, key_of
from federate.model.resources import NETWORK_POLICIES, SERVICES, Resource
from federate.services.facts import policy_facts, service_facts

NAMESPACE_INDEX = "namespace"

FORBIDDEN_SECONDS = 300.0
"""How long a right that was given later may go unused."""


class HubObjects:
    """All objects of one kind on the hub, by namespace; `run` it until cancelled."""

    def __init__(
        self,
        hub: ClusterPort,
        resource: Resource,
        *,
        name: str,
        facts: Callable[[JsonDict], JsonObject],
        clock: Callable[[], float],
        random: Random,
        is_needed: bool = False,
    ) -> None:
        """`is_needed`: pods wait for them, so that a right that is given is noticed soon."""
        self._is_needed = is_needed
        self._wanted = asyncio.Event()
        self._refused_after: float | None = None
        """The hub's last sign of life before it did not let us read them."""
        self._listeners: list[Callable[[Change], None]] = []
        self._store = Store(
            indexers={NAMESPACE_INDEX: lambda obj: (key_of(obj).namespace,)},
            transform=facts,
            deleted_limit=0,  # nobody asks what one was that is gone
        )
        self.reflector = Reflector(
            hub,
            resource,
            self._store,
            name=name,
            on_change=self._on_change,
            clock=clock,
            sleep=self._pause,
            jitter=random.random,
        )

    async def _pause(self, seconds: float) -> None:
        """Leave a hub in peace that does not let us read them: they are optional."""
        is_forbidden = isinstance(self.reflector.last_error, Forbidden)
        if is_forbidden:
            self._refused_after = self.reflector.last_activity_at
        is_refused = is_forbidden and not self._is_needed
        await asyncio.sleep(max(seconds, FORBIDDEN_SECONDS) if is_refused else seconds)

    @property
    def is_known(self) -> bool:
        """Whether all that there are have been listed, and may still be read."""
        return self.reflector.synced.is_set() and not self.is_forbidden

    @property
    def is_forbidden(self) -> bool:
        """Whether the hub does not let us read them (any more), by its last word on that."""
        return self._refused_after == self.reflector.last_activity_at

    @property
    def is_failing(self) -> bool:
        """Whether the hub did not answer the last time."""
        return self.reflector.last_error is not None

    def want(self) -> None:
        """Have them watched from now on."""
        self._wanted.set()

    def in_namespace(self, namespace: str) -> list[JsonObject]:
        """Return those of one namespace."""
        return self._store.by_index(NAMESPACE_INDEX, namespace)

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Have somebody told of every change."""
        self._listeners.append(listener)

    def _on_change(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    async def run(self) -> None:
        """List and watch, once they are wanted."""
        await self._wanted.wait()
        await self.reflector.run()


def hub_services(
    hub: ClusterPort, *, clock: Callable[[], float], random: Random, is_needed: bool = False
) -> HubObjects:
    """Watch the hub's Services."""
    return HubObjects(
        hub,
        SERVICES,
        name="hub-services",
        facts=service_facts,
        clock=clock,
        random=random,
        is_needed=is_needed,
    )


def hub_policies(
    hub: ClusterPort, *, clock: Callable[[], float], random: Random, is_needed: bool = False
) -> HubObjects:
    """Watch the hub's NetworkPolicies."""
    return HubObjects(
        hub,
        NETWORK_POLICIES,
        name="hub-network-policies",
        facts=policy_facts,
        clock=clock,
        random=random,
        is_needed=is_needed,
    )

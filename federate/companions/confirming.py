"""Make sure, from complete quorum listings, that nobody wants a companion (C51).

What pods refer to is known from their events; a listing of both sides, metadata only, shows whether
a pod was missed, or is of another version than the one known. One listing serves all that ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from federate.cluster.identity import SharedCheck
from federate.companions.keys import CompanionKey
from federate.companions.ports import CompanionPorts
from federate.companions.wanted import Wanted
from federate.errors import Forbidden
from federate.model.objects import JsonDict, JsonObject, key_of, metadata_of
from federate.model.resources import PODS

log = structlog.stdlib.get_logger(__name__)

GOOD_FOR_SECONDS = 30.0
"""How long a listing speaks for what nobody wanted when it began. Longer: what changed meanwhile is
missed more often; shorter: pods that come and go are listed for all day long."""


def outline_of(pod: JsonDict) -> JsonDict:
    """Keep what tells whether a pod is known: there may be very many, with long annotations."""
    metadata = metadata_of(pod)
    kept = ("namespace", "name", "uid", "generation")
    return {"metadata": {name: metadata[name] for name in kept if name in metadata}}


class Confirming:
    """What a recent listing says of the companions that nobody wants."""

    def __init__(self, ports: CompanionPorts, wanted: Wanted) -> None:
        self._ports = ports
        self._wanted = wanted
        self._listing = SharedCheck(self._list)
        self._begun_at = float("-inf")
        self._unclear_hub: frozenset[str] = frozenset()
        """Namespaces of the hub with pods that were not told to us, or not as they are."""
        self._unclear_target: frozenset[str] = frozenset()
        """The same of the target's; and those that we may not look into."""

    async def is_unwanted(self, key: CompanionKey, *, since: float) -> bool:
        """Tell whether it is sure that nobody wants it, nor did at any time after `since`.

        Raises:
            LeadershipLost, ClusterError: it cannot be told.
        """
        is_recent = self._ports.clock() - self._begun_at <= GOOD_FOR_SECONDS
        if not is_recent or self._begun_at < since:
            await self._listing()
        if key.namespace in self._unclear_hub or key.target_namespace in self._unclear_target:
            return False
        return not self._wanted.wants(key, leaving=self._ports.leaving())

    async def _list(self) -> None:
        """List the mirrors first: a hub pod that is made meanwhile is seen (as in a sweep)."""
        ports, begun_at = self._ports, self._ports.clock()
        unclear_target: set[str] = set()
        for namespace in ports.watched():
            mirrors = await self._mirrors_in(namespace)
            if mirrors is None:
                unclear_target.add(namespace)
            else:
                unclear_target.update(_namespaces_of(mirrors, self._wanted.is_mirror_known))
        listing = await ports.hub.list(
            PODS,
            field_selector=f"spec.nodeName={ports.scope.node_name}",
            metadata_only=True,
            shrink=outline_of,
        )
        await ports.confirm_hub()
        await ports.confirm_target()
        self._unclear_hub = frozenset(_namespaces_of(listing.items, self._wanted.is_hub_pod_known))
        self._unclear_target = frozenset(unclear_target)
        self._begun_at = begun_at

    async def _mirrors_in(self, namespace: str) -> list[JsonDict] | None:
        ports = self._ports
        try:
            listing = await ports.target.list(
                PODS,
                namespace=namespace,
                label_selector=ports.scope.selector,
                metadata_only=True,
                shrink=outline_of,
            )
        except Forbidden as error:
            if not namespace:
                raise
            log.info("a target namespace may not be read", namespace=namespace, error=str(error))
            return None
        return listing.items


def _namespaces_of(
    pods: Iterable[JsonObject], is_known: Callable[[JsonObject], bool]
) -> Iterable[str]:
    return (key_of(pod).namespace for pod in pods if not is_known(pod))

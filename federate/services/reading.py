"""Read what tells of a cluster's address ranges; of the hub once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from federate.cluster.port import ClusterPort
from federate.errors import Forbidden, NotFound, Rejected
from federate.model.marks import SHOWN_RANGES_ANNOTATION, TARGET_IDENTITY_ANNOTATION
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    metadata_of,
    spec_of,
    status_of,
)
from federate.model.resources import CONFIGMAPS, NODES, SERVICE_RANGES, Resource
from federate.services.ranges import RangeSources, cautious_ranges_of, unknown_kinds

KUBEADM = ObjectKey("kube-system", "kubeadm-config")

GOOD_FOR_SECONDS = 240.0
"""How long what was read is told to others who ask: a large hub has many nodes, and maybe many
virtual ones."""

DOUBTED_SECONDS = 10.0
"""The same, of an answer that lacks what the one before had: shorter than until a second look."""

T = TypeVar("T")


class SharedRanges:
    """What one cluster tells, read by one of all who ask; the others have the same answer."""

    def __init__(self, client: ClusterPort, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._under_way = asyncio.Lock()
        self._known: RangeSources | None = None
        self._read_at = float("-inf")
        self._good_for = GOOD_FOR_SECONDS

    async def read(self) -> RangeSources:
        """Return what was read not long ago, or read it.

        Raises:
            ClusterError: an answer did not come, and may another time.
        """
        async with self._under_way:
            if self._known is None or self._clock() - self._read_at >= self._good_for:
                began_at = self._clock()
                before, found = self._known, await read_range_sources(self._client)
                is_doubted = before is not None and not _lacks(before) and _lacks(found)
                self._good_for = DOUBTED_SECONDS if is_doubted else GOOD_FOR_SECONDS
                self._known, self._read_at = found, began_at
            return self._known


def _lacks(sources: RangeSources) -> bool:
    return bool(unknown_kinds(cautious_ranges_of(sources)))


async def read_range_sources(client: ClusterPort) -> RangeSources:
    """Read what there is; None stands for what this cluster does not have, or not let us read.

    Raises:
        ClusterError: an answer did not come, and may another time.
    """
    nodes, service_ranges, kubeadm = await asyncio.gather(
        _unless_closed(lambda: _list(client, NODES, shrink=node_facts)),
        _unless_closed(lambda: _list(client, SERVICE_RANGES)),
        _unless_closed(lambda: client.get(CONFIGMAPS, KUBEADM)),
    )
    return RangeSources(nodes=nodes, service_ranges=service_ranges, kubeadm=kubeadm)


async def _list(
    client: ClusterPort,
    resource: Resource,
    shrink: Callable[[JsonDict], JsonDict] | None = None,
) -> list[JsonDict]:
    return (await client.list(resource, shrink=shrink)).items


async def _unless_closed(ask: Callable[[], Awaitable[T]]) -> T | None:
    try:
        return await ask()
    except (Forbidden, NotFound, Rejected):
        return None


_METADATA = ("name", "uid", "resourceVersion", "creationTimestamp", "labels")
_ANNOTATIONS = (SHOWN_RANGES_ANNOTATION, TARGET_IDENTITY_ANNOTATION)


def node_facts(node: JsonDict) -> JsonDict:
    """Keep of a Node what tells of addresses: its status lists every image it has."""
    metadata, spec = metadata_of(node), spec_of(node)
    outline: JsonDict = {name: metadata[name] for name in _METADATA if name in metadata}
    told: JsonObject = annotations_of(node)
    outline["annotations"] = {name: told[name] for name in _ANNOTATIONS if name in told}
    return {
        "metadata": outline,
        "spec": {name: spec[name] for name in ("podCIDR", "podCIDRs") if name in spec},
        "status": {"addresses": status_of(node).get("addresses") or []},
    }

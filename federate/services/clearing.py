"""Take back, by hand, the Services of a target that are federate's: for whoever leaves it.

Those that followed the hub's, and the doors to the hub's API server with their EndpointSlices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import Conflict, Forbidden, NotFound
from federate.model.marks import COMPANION_LABEL, HUB_LABEL, Scope
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import ENDPOINT_SLICES, SERVICES
from federate.services.door import DOOR, is_door
from federate.services.following import (
    COMPANION_VALUE,
    disown_patch,
    is_owned,
    others_owners,
    service_of,
)

log = structlog.stdlib.get_logger(__name__)


async def followed_services(
    target: ClusterPort, scope: Scope, *, namespaces: Sequence[str] = ("",)
) -> list[JsonDict]:
    """List the Services that a virtual node has a part in, doors included, metadata only."""
    found: list[JsonDict] = []
    for namespace in namespaces:
        listing = await target.list(
            SERVICES,
            namespace=namespace,
            label_selector=f"{HUB_LABEL}={scope.hub_id},{COMPANION_LABEL} in "
            f"({COMPANION_VALUE},{DOOR})",
            metadata_only=True,
        )
        found += listing.items
    return [
        service
        for service in found
        if is_door(scope, service)
        or (service_of(scope, service) is not None and is_owned(scope, service))
    ]


async def take_back_service(
    target: ClusterPort, scope: Scope, service: JsonObject, *, fence: Callable[[], None]
) -> str:
    """Delete it as it was listed, or leave it to the others who want it; "" where that is done."""
    if is_terminating(service):
        return "ending"
    if is_door(scope, service):
        await _take_endpoints(target, scope, key_of(service), fence=fence)
    fence()
    try:
        if others_owners(scope, service):
            await target.patch(SERVICES, key_of(service), disown_patch(scope, service))
            return ""
        await target.delete(
            SERVICES,
            key_of(service),
            uid=uid_of(service),
            resource_version=resource_version_of(service),
        )
    except NotFound:
        return ""
    except Conflict:
        return "changed meanwhile"
    return "asked to go"


async def _take_endpoints(
    target: ClusterPort, scope: Scope, key: ObjectKey, *, fence: Callable[[], None]
) -> None:
    """Delete the EndpointSlice of a door; where that may not be, it goes with the anchor."""
    try:
        there = await target.get(ENDPOINT_SLICES, key, metadata_only=True)
        if is_door(scope, there):
            fence()
            await target.delete(ENDPOINT_SLICES, key, uid=uid_of(there))
    except (NotFound, Conflict, Forbidden) as error:
        log.debug("an EndpointSlice is left to its anchor", error=str(error))

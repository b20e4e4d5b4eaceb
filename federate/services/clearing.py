"""Take back, by hand, what followed into a target: for whoever leaves it or sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from federate.cluster.port import ClusterPort
from federate.errors import Conflict, NotFound
from federate.model.marks import Scope
from federate.model.objects import (
    JsonDict,
    JsonObject,
    is_terminating,
    key_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import SERVICES
from federate.services.following import (
    disown_patch,
    is_owned,
    others_owners,
    service_of,
    services_selector,
)


async def followed_services(
    target: ClusterPort, scope: Scope, *, namespaces: Sequence[str] = ("",)
) -> list[JsonDict]:
    """List the Services that a virtual node has a part in, metadata only."""
    found: list[JsonDict] = []
    for namespace in namespaces:
        listing = await target.list(
            SERVICES,
            namespace=namespace,
            label_selector=services_selector(scope),
            metadata_only=True,
        )
        found += listing.items
    return [
        service
        for service in found
        if service_of(scope, service) is not None and is_owned(scope, service)
    ]


async def take_back_service(
    target: ClusterPort, scope: Scope, service: JsonObject, *, fence: Callable[[], None]
) -> str:
    """Delete it as it was listed, or leave it to the others who want it; "" where that is done."""
    if is_terminating(service):
        return "ending"
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

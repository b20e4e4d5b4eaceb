"""The door: a Service of the target through which pods reach the hub's API server by name. Pure.

It has no selector. An EndpointSlice of the same name leads from port 443, which programs dial, to
the advertised address and port. There is one in each target namespace of a virtual node, with a
name that no user can choose, and the anchor owns both. It stands as long as the anchor: mirrors
carry its address in a field that never changes, so it is not taken away while nobody uses it, and
what is made anew asks for the address that the former one had.

Deciding twice on the same input gives the same step; `doors` carries it out and asks for the next.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from federate.companions.plan import metadata_changes
from federate.companions.render import owner_reference
from federate.companions.steps import Blocked, Ground
from federate.model.marks import (
    COMPANION_LABEL,
    COMPANION_OF_ANNOTATION,
    HUB_API_ANNOTATION,
    NODE_NAME_ANNOTATION,
    Scope,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    is_terminating,
    key_of,
    labels_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.resources import ENDPOINT_SLICES, SERVICES, Resource
from federate.patch.document import MERGE, PatchBody
from federate.services.hubnames import PORT, is_address

DOOR = "hub-api"
"""What `COMPANION_LABEL` says of it, and how its name begins."""

_DOOR_NAME = re.compile(rf"{DOOR}-[a-z2-7]{{16}}")

PORT_NAME = "https"

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGED_BY = "federate.dev"
"""Keeps the target's own controllers from taking the EndpointSlice for theirs."""


class DoorReason(StrEnum):
    """Why the names lead to the target's API server after all; an Event begins with it."""

    NAME_TAKEN = "NameTaken"
    SERVICE_ENDING = "ServiceEnding"
    SERVICE_REFUSED = "ServiceRefused"
    MARKS_REMOVED = "MarksRemoved"
    ADDRESS_UNKNOWN = "AddressUnknown"
    ADDRESS_LOST = "AddressLost"


# -- what it is called, and how it looks -----------------------------------------------------------


def door_name(scope: Scope) -> str:
    """Name Service and EndpointSlice: to be read in front, unique behind."""
    identity = "\n".join((scope.hub_id, scope.node_name, DOOR))
    digest = hashlib.sha256(identity.encode()).digest()[:10]
    return f"{DOOR}-{base64.b32encode(digest).decode().lower()}"


def is_door_name(name: str) -> bool:
    """Tell what may be the name of some virtual node's door: no Service of the hub may take it."""
    return _DOOR_NAME.fullmatch(name) is not None


def is_door(scope: Scope, obj: JsonObject) -> bool:
    """Tell a Service or EndpointSlice of ours, by its marks and its name."""
    is_marked = scope.owns(obj) and labels_of(obj).get(COMPANION_LABEL) == DOOR
    return is_marked and key_of(obj).name == door_name(scope)


def one_family(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of one family, in order, each once: a Service has one. IPv4 first."""
    parsed = sorted({ipaddress.ip_address(address) for address in addresses}, key=_order)
    return tuple(str(address) for address in parsed if address.version == parsed[0].version)


def _order(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[int, int]:
    return address.version, int(address)


def family_of(address: str) -> str:
    """Return what Services and EndpointSlices call the family of an address."""
    return f"IPv{ipaddress.ip_address(address).version}"


def render_door(
    scope: Scope, namespace: str, *, addresses: Sequence[str], port: int, anchor: JsonObject
) -> tuple[JsonDict, JsonDict]:
    """Render Service and EndpointSlice; the addresses are of one family.

    Neither says yet which address the Service has.
    """
    family, name = family_of(addresses[0]), door_name(scope)
    metadata: JsonDict = {
        "namespace": namespace,
        "name": name,
        "labels": {**scope.labels(), COMPANION_LABEL: DOOR},
        "annotations": {
            NODE_NAME_ANNOTATION: scope.node_name,
            COMPANION_OF_ANNOTATION: "the hub's API server",
        },
        "ownerReferences": [owner_reference(anchor)],
    }
    service = {
        "apiVersion": SERVICES.group_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": [family],
            "ports": [_service_port(port)],
            "sessionAffinity": "None",
            # Its endpoints are on no node of the target: `Local` would lead to none of them.
            "internalTrafficPolicy": "Cluster",
        },
    }
    labels = {SERVICE_NAME_LABEL: name, MANAGED_BY_LABEL: MANAGED_BY}
    endpoints = {
        "apiVersion": ENDPOINT_SLICES.group_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {**metadata, "labels": {**scope.labels(), COMPANION_LABEL: DOOR, **labels}},
        "addressType": family,
        "endpoints": [_endpoint(address) for address in addresses],
        "ports": [{"name": PORT_NAME, "protocol": "TCP", "port": port}],
    }
    return service, endpoints


def _service_port(port: int) -> JsonDict:
    return {"name": PORT_NAME, "protocol": "TCP", "port": PORT, "targetPort": port}


def _endpoint(address: str) -> JsonDict:
    return {"addresses": [address], "conditions": {"ready": True}}


def noted_address(endpoints: JsonObject) -> str:
    """Return which address the Service has, or had, as its EndpointSlice says; "" for none."""
    noted = annotations_of(endpoints).get(HUB_API_ANNOTATION, "")
    return noted if is_address(noted) else ""


def _noting(endpoints: JsonDict, address: str) -> JsonDict:
    metadata = endpoints["metadata"]
    annotations = {**metadata["annotations"], HUB_API_ANNOTATION: address}
    return {**endpoints, "metadata": {**metadata, "annotations": annotations}}


def door_address(service: JsonObject) -> str:
    """Return the address that mirrors are given; "" where it has none."""
    address: str = spec_of(service).get("clusterIP") or ""
    return "" if address == "None" else address


# -- from what it is to what it ought to be --------------------------------------------------------


def door_patch(resource: Resource, wanted: JsonObject, there: JsonObject) -> PatchBody | None:
    """Say what must change, as a merge patch of that very version; None: nothing.

    What the target's API server and admins added stays, but for what decides who answers.
    """
    if resource == SERVICES:
        spec = _spec_changes(spec_of(wanted), spec_of(there))
        body: JsonDict = {"spec": spec} if spec else {}
    else:
        body = _endpoint_changes(wanted, there)
    metadata = metadata_changes(wanted, there)
    if not body and not metadata:
        return None
    metadata |= {"uid": uid_of(there), "resourceVersion": resource_version_of(there)}
    return PatchBody(media_type=MERGE, body={**body, "metadata": metadata})


def _spec_changes(wanted: JsonObject, there: JsonObject) -> JsonDict:
    ports = [{k: port.get(k) for k in _service_port(PORT)} for port in there.get("ports") or ()]
    present = {
        "type": there.get("type") or "ClusterIP",
        "ports": ports,
        "internalTrafficPolicy": there.get("internalTrafficPolicy") or "Cluster",
        "selector": there.get("selector") or None,
    }
    return {field: wanted.get(field) for field, is_ in present.items() if wanted.get(field) != is_}


def _endpoint_changes(wanted: JsonObject, there: JsonObject) -> JsonDict:
    endpoints = there.get("endpoints") or ()
    ports = [{k: p.get(k) for k in ("name", "protocol", "port")} for p in there.get("ports") or ()]
    changes: JsonDict = {}
    if list(map(_said, endpoints)) != list(map(_said, wanted["endpoints"])):
        changes["endpoints"] = wanted["endpoints"]
    if ports != wanted["ports"]:
        changes["ports"] = wanted["ports"]
    return changes


def _said(endpoint: JsonObject) -> tuple[tuple[str, ...], bool]:
    is_ready = (endpoint.get("conditions") or {}).get("ready", True)
    return tuple(endpoint.get("addresses") or ()), is_ready is not False


def _must_make_anew(resource: Resource, wanted: JsonObject, there: JsonObject) -> bool:
    """Tell what an API server does not let us change: of which family its addresses are."""
    if resource == ENDPOINT_SLICES:
        return bool(there.get("addressType") != wanted["addressType"])
    address = door_address(there)
    return not address or family_of(address) not in spec_of(wanted)["ipFamilies"]


# -- the decision ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorView:
    """Everything a decision about one door rests on."""

    scope: Scope
    namespace: str
    target_name: str
    host: str
    """As it is advertised; for words."""
    port: int
    addresses: tuple[str, ...]
    """Of the host; () where its name was not resolved yet, or could not be."""
    is_literal: bool = True
    """The host is an address. A name may seem to have lost those of a family: one lost answer of a
    DNS does that."""
    former: tuple[str, ...] = ()
    """Which addresses the Service had here before, as this process knows: mirrors have them."""
    asks_for_former: bool = True
    """They may be had again, as far as is known."""
    ground: Ground
    anchor: JsonObject | None
    service: JsonObject | None = None
    endpoints: JsonObject | None = None
    is_fresh: bool = False
    """Both (or their absence) were read from the target's quorum in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Read both by their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create one of them."""

    resource: Resource
    body: JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Change one of them, under its uid and version."""

    resource: Resource
    patch: PatchBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete that very object, as it was seen."""

    resource: Resource
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing is to be done until something changes. Neither field set: it is not known yet."""

    address: str = ""
    """Where the names lead."""
    lost: str = ""
    """An address that mirrors have, and that the door could not have again."""
    blocked: Blocked | None = None
    """Why they lead to the target's API server."""

    @property
    def is_told(self) -> bool:
        """Whether pods that wait for it have an answer."""
        return bool(self.address) or self.blocked is not None


DoorStep: TypeAlias = Look | Create | Patch | Delete | Rest


def plan_door(view: DoorView) -> DoorStep:
    """Decide the next step."""
    if view.ground is not Ground.READY or view.anchor is None:
        return Rest()
    if not view.is_fresh:
        return Look()
    for resource, there in ((SERVICES, view.service), (ENDPOINT_SLICES, view.endpoints)):
        blocked = _what_blocks(view, resource, there)
        if blocked is not None:
            return Rest(blocked=blocked)
    addresses = _addresses(view)
    return _plan_ours(view, view.anchor, addresses) if addresses else _plan_unresolved(view)


def _addresses(view: DoorView) -> tuple[str, ...]:
    """Choose the family: that of the door which stands, or stood, whose address mirrors have."""
    known = _former(view)
    if known:
        same = [one for one in view.addresses if family_of(one) == family_of(known[0])]
        if same or not view.is_literal:
            return one_family(same)
    return one_family(view.addresses)


def _former(view: DoorView) -> tuple[str, ...]:
    """List which addresses mirrors may have, the likeliest first."""
    there = (door_address(view.service or {}), noted_address(view.endpoints or {}))
    return tuple(dict.fromkeys(one for one in (*there, *view.former) if one))


def _what_blocks(view: DoorView, resource: Resource, there: JsonObject | None) -> Blocked | None:
    if there is None:
        return None
    named = f"{resource.kind} {view.namespace}/{door_name(view.scope)} of {view.target_name}"
    if not is_door(view.scope, there):
        return Blocked(
            reason=DoorReason.NAME_TAKEN,
            message=f"{named} has a name of federate's, but not its marks: it stays untouched. "
            "Remove or rename it there",
        )
    if is_terminating(there):
        return Blocked(
            reason=DoorReason.SERVICE_ENDING,
            message=f"{named} is being deleted there and not gone yet",
        )
    return None


def _plan_unresolved(view: DoorView) -> Rest:
    """Let what is there stay as it is: it led to the hub when its name was known."""
    if view.service is not None and view.endpoints is not None and door_address(view.service):
        return Rest(address=door_address(view.service))
    family = f"{family_of(view.former[0])} " if view.addresses and view.former else ""
    return Rest(
        blocked=Blocked(
            reason=DoorReason.ADDRESS_UNKNOWN,
            message=f"hubAddress {view.host} is a name that has no {family}address where federate "
            "runs",
        )
    )


def _plan_ours(view: DoorView, anchor: JsonObject, addresses: tuple[str, ...]) -> DoorStep:
    service, endpoints = render_door(
        view.scope, view.namespace, addresses=addresses, port=view.port, anchor=anchor
    )
    former = [one for one in _former(view) if family_of(one) == family_of(addresses[0])]
    if former and (view.service is not None or view.asks_for_former):
        endpoints = _noting(endpoints, former[0])
    if former and view.asks_for_former:
        service = {**service, "spec": {**service["spec"], "clusterIP": former[0]}}
    # The way first, then who asks for it.
    return (
        _plan_one(ENDPOINT_SLICES, endpoints, view.endpoints)
        or _plan_one(SERVICES, service, view.service)
        or Rest(address=door_address(view.service or {}))
    )


def _plan_one(
    resource: Resource, wanted: JsonDict, there: JsonObject | None
) -> Create | Patch | Delete | None:
    if there is None:
        return Create(resource=resource, body=wanted)
    if _must_make_anew(resource, wanted, there):
        return Delete(
            resource=resource, uid=uid_of(there), resource_version=resource_version_of(there)
        )
    patch = door_patch(resource, wanted, there)
    return None if patch is None else Patch(resource=resource, patch=patch)

"""Requests to an API server and what comes back, as values and bytes. Pure.

`client` sends a `Call`; here is how each verb becomes one, and how a reply or the lines of a watch
become JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypedDict, cast

import msgspec
import orjson

from federate.cluster.failures import Attempt, status_failure
from federate.cluster.port import WatchEvent
from federate.cluster.upstream import UpstreamCall
from federate.errors import ServerFault
from federate.model.marks import FIELD_MANAGER
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    as_plain,
    drop_managed_fields,
)
from federate.model.resources import Resource

JSON = "application/json"

Parse: TypeAlias = Callable[[bytes, Attempt], JsonDict]
"""Makes of a reply what is wanted of it; raises ServerFault."""

_PARTIAL = f"{JSON};as={{kind}};g=meta.k8s.io;v=v1"
_NOT_JSON = "the reply is not a JSON object; a proxy in between may have answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. `subject` is what it is about in words, `resource` the label for metrics."""

    verb: str
    method: str
    path: str
    resource: str
    subject: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON


def object_call(
    verb: str,
    method: str,
    resource: Resource,
    key: ObjectKey,
    *,
    subresource: str = "",
    body: JsonObject | None = None,
    content_type: str = JSON,
    query: Mapping[str, str] | None = None,
) -> Call:
    """Build a request about one object, or a subresource of it."""
    suffix = f"/{subresource}" if subresource else ""
    return Call(
        verb=verb,
        method=method,
        path=resource.path(key.namespace, key.name, subresource),
        resource=resource.plural + suffix,
        subject=f"{resource.kind}{suffix} {key}",
        query=query or {},
        body=None if body is None else dump(body),
        content_type=content_type,
    )


def without_contents(call: Call) -> Call:
    """Ask for an object's metadata alone."""
    return replace(call, accept=_PARTIAL.format(kind="PartialObjectMetadata"))


def collection_call(
    verb: str,
    resource: Resource,
    namespace: str,
    *,
    query: Mapping[str, str],
    metadata_only: bool,
) -> Call:
    """Build a list or a watch."""
    partial = "PartialObjectMetadata" + ("List" if verb == "list" else "")
    return Call(
        verb=verb,
        method="GET",
        path=resource.path(namespace),
        resource=resource.plural,
        subject=f"{resource.kind} in {namespace}" if namespace else resource.kind,
        query=query,
        accept=_PARTIAL.format(kind=partial) if metadata_only else JSON,
    )


def create_call(resource: Resource, key: ObjectKey, body: JsonObject, *, dry_run: bool) -> Call:
    """Build a create; unknown fields are dropped with a warning instead of refused."""
    return Call(
        verb="create",
        method="POST",
        path=resource.path(key.namespace),
        resource=resource.plural,
        subject=f"{resource.kind} {key}",
        query={"fieldValidation": "Warn", **write_query(dry_run=dry_run)},
        body=dump(body),
    )


def stream_call(upstream: UpstreamCall) -> Call:
    """Describe a request for a stream by what of an object it asks for: `pods/log`."""
    words = upstream.path.strip("/").split("/")
    words = words[4:] if words[2:3] == ["namespaces"] else words[2:]  # after /api/v1
    resource = f"{words[0]}/{words[2]}" if len(words) > 2 else ""
    return Call(
        verb="stream",
        method=upstream.method,
        path=upstream.path,
        resource=resource,
        subject=upstream.path,
    )


def delete_options(
    *, uid: str, resource_version: str | None, grace_seconds: int | None
) -> JsonDict:
    """Build the body of a delete, which always names the uid it means."""
    preconditions = {"uid": uid}
    if resource_version is not None:
        preconditions["resourceVersion"] = resource_version
    options: JsonDict = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
        "propagationPolicy": "Background",
    }
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


def eviction(key: ObjectKey, *, uid: str, grace_seconds: int | None) -> JsonDict:
    """Build the body of an eviction, which names the uid it means as a delete does."""
    options = delete_options(uid=uid, resource_version=None, grace_seconds=grace_seconds)
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "deleteOptions": options,
    }


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of the selectors that are set."""
    both = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in both.items() if value}


def write_query(*, dry_run: bool) -> dict[str, str]:
    """Return the query parameters of every write that has a field manager."""
    query = {"fieldManager": FIELD_MANAGER}
    return query | {"dryRun": "All"} if dry_run else query


def dump(body: JsonObject) -> bytes:
    """Serialise; read-only mappings too."""
    return orjson.dumps(body, default=as_plain)


def parse_object(body: bytes | memoryview, attempt: Attempt) -> JsonDict:
    """Read a reply.

    Raises:
        ServerFault: it is no JSON object.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise attempt.failure(ServerFault, _NOT_JSON) from error
    if not isinstance(parsed, dict):
        raise attempt.failure(ServerFault, _NOT_JSON)
    return parsed


class _BareMetadata(TypedDict, total=False):
    namespace: str
    name: str
    uid: str
    resourceVersion: str


class _BareItem(TypedDict):
    metadata: _BareMetadata


_ListMetadata = TypedDict("_ListMetadata", {"continue": str, "resourceVersion": str}, total=False)


class _BareList(TypedDict, total=False):
    kind: str
    metadata: _ListMetadata
    items: list[_BareItem] | None


class _RawList(TypedDict, total=False):
    kind: str
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None


_read_bare_list = msgspec.json.Decoder(_BareList).decode
_read_raw_list = msgspec.json.Decoder(_RawList).decode


def parse_list(body: bytes, attempt: Attempt) -> JsonDict:
    """Read a page of a list; its items are read one by one, and come without managedFields.

    A page of pods takes 20 MB while all of them are trees of dicts.

    Raises:
        ServerFault: it is no list. The items raise it too.
    """
    page = _parse_page(_read_raw_list, body, attempt)
    page["items"] = (_parse_item(item, attempt) for item in page.get("items") or ())
    return page


def _parse_item(raw: msgspec.Raw, attempt: Attempt) -> JsonDict:
    item = parse_object(memoryview(raw), attempt)
    try:
        return drop_managed_fields(item)
    except (TypeError, AttributeError) as error:
        raise attempt.failure(ServerFault, _NOT_JSON) from error


def parse_bare_list(body: bytes, attempt: Attempt) -> JsonDict:
    """Read of a page of a list what tells whether its objects are known, and pass over the rest.

    Raises:
        ServerFault: it is no JSON object, or no list.
    """
    return _parse_page(_read_bare_list, body, attempt)


def _parse_page(read: Callable[[bytes], object], body: bytes, attempt: Attempt) -> JsonDict:
    try:
        return cast(JsonDict, read(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise attempt.failure(ServerFault, _NOT_JSON) from error


class LineSplitter:
    """Cut a byte stream into lines of any size, in linear time."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes; an unfinished one is kept for later."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            self._pending.append(piece)
            lines.append(b"".join(self._pending))
            self._pending.clear()
        if rest:
            self._pending.append(rest)
        return [line for line in lines if line.strip()]


def parse_event(line: bytes, attempt: Attempt) -> WatchEvent:
    """Read one line of a watch.

    Raises:
        ClusterError: the line is an ERROR (`Expired` for 410), or no event at all.
    """
    parsed = parse_object(line, attempt)
    kind, obj = parsed.get("type"), parsed.get("object")
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise attempt.failure(ServerFault, _NOT_JSON)
    if kind == "ERROR":
        raise status_failure(attempt, obj, status=int(obj.get("code") or 500))
    return WatchEvent(type=kind, object=obj)

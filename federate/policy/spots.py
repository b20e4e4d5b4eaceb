"""Where in a pod something stands, as people write it, and how it is taken out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from federate.model.objects import JsonDict, JsonObject
from federate.model.pods import CONTAINER_FIELDS


class Spot(NamedTuple):
    """Something that a pod asks for: the path of its field, and what it is, with an article."""

    path: str
    words: str


class Listed(NamedTuple):
    """A container, and the list of the spec that it is in."""

    field: str
    container: JsonObject

    def at(self, path: str) -> str:
        """Name a field of it."""
        return f"spec.{self.field}[{self.container.get('name', '')}].{path}"


Context: TypeAlias = tuple[Listed | None, JsonObject]
"""A securityContext with the container that it is of; None: the pod's own."""


def containers_in(spec: JsonObject) -> Iterator[Listed]:
    """Yield all containers of a spec, whatever their kind."""
    for field in CONTAINER_FIELDS:
        for container in spec.get(field) or ():
            yield Listed(field, container)


def own_containers(spec: JsonDict) -> Iterator[JsonDict]:
    """Yield all containers of our own copy of a spec, to be changed."""
    for field in CONTAINER_FIELDS:
        yield from spec.get(field) or ()


def own_holders(spec: JsonDict) -> Iterator[JsonDict]:
    """Yield whatever of our own copy of a spec may have a securityContext, to be changed."""
    yield spec
    yield from own_containers(spec)


def contexts_in(spec: JsonObject) -> Iterator[Context]:
    """Yield every securityContext: the pod's, then those of its containers."""
    if own := spec.get("securityContext"):
        yield None, own
    yield from container_contexts_in(spec)


def container_contexts_in(spec: JsonObject) -> Iterator[tuple[Listed, JsonObject]]:
    """Yield the securityContexts of containers."""
    for listed in containers_in(spec):
        if context := listed.container.get("securityContext"):
            yield listed, context


def context_path(listed: Listed | None, path: str) -> str:
    """Name a field of a securityContext."""
    inner = f"securityContext.{path}"
    return f"spec.{inner}" if listed is None else listed.at(inner)


def drop_in(holder: JsonDict, *path: str) -> None:
    """Take out a field, and what was around it and holds nothing else now; in place."""
    step, rest = path[0], path[1:]
    inner: Any = holder.get(step)
    if rest and isinstance(inner, dict):
        drop_in(inner, *rest)
        if inner:
            return
    holder.pop(step, None)


def set_or_drop(holder: JsonDict, key: str, value: Any) -> None:
    """Put in what is not empty; in place."""
    if value:
        holder[key] = value
    else:
        holder.pop(key, None)

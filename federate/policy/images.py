"""From where images are pulled in the target, and what they are called on the hub. Pure.

A short name means what a container runtime makes of it: `nginx` is `docker.io/library/nginx`. Tag
and digest stay; where no rule fits, an image stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from federate.model.objects import JsonDict, JsonObject
from federate.policy.rules import ImageRewrite
from federate.policy.spots import containers_in, own_containers

DEFAULT_REGISTRY = "docker.io"
OLD_REGISTRIES = frozenset({"index.docker.io", "registry-1.docker.io"})
"""Other names that runtimes, or people, have for the same."""
DEFAULT_FOLDER = "library"

STATUS_LISTS = (
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REGISTRY = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\]|[A-Za-z0-9-]+(?=:))"
_PREFIX = re.compile(rf"{_REGISTRY}(?::[0-9]+)?(?:/{_COMPONENT})*")


class Reference(NamedTuple):
    """An image: its full name, and tag and digest as they are written, with their signs."""

    name: str
    suffix: str


def is_image_prefix(text: str) -> bool:
    """Tell whether a text is a registry with its host, with or without a path below it."""
    return _PREFIX.fullmatch(text) is not None


def parse_image(image: str) -> Reference:
    """Read an image as a container runtime does."""
    name, at, digest = image.partition("@")
    last = name.rfind("/")
    colon = name.find(":", last + 1)
    tag = "" if colon < 0 else name[colon:]
    name = name if colon < 0 else name[:colon]
    return Reference(_full(name), f"{tag}{at}{digest}")


def _full(name: str) -> str:
    first, slash, rest = name.partition("/")
    is_registry = slash and (
        "." in first or ":" in first or first == "localhost" or first.lower() != first
    )
    if not is_registry:
        first, rest = DEFAULT_REGISTRY, name
    elif first in OLD_REGISTRIES:
        first = DEFAULT_REGISTRY
    if first == DEFAULT_REGISTRY and "/" not in rest:
        rest = f"{DEFAULT_FOLDER}/{rest}"
    return f"{first}/{rest}"


def rewritten(image: str, rewrites: Sequence[ImageRewrite]) -> str:
    """Return what the target pulls for an image of the hub."""
    reference = parse_image(image)
    rewrite = _fitting(reference, rewrites)
    if rewrite is None:
        return image
    return _moved(reference, rewrite.before, rewrite.after)


def as_on_hub(there: str, hub_image: str, rewrites: Sequence[ImageRewrite]) -> str:
    """Return what the hub calls an image that a target's kubelet names.

    `hub_image` is what the hub pod asks for, "" where the container is not the hub's. While that
    changes, the kubelet may still name the one before, that another rule moved.
    """
    own = _fitting(parse_image(hub_image), rewrites) if hub_image else None
    if own is None or not there:
        return there
    reference = parse_image(there)
    for rewrite in (own, *rewrites):
        if _is_below(reference.name, rewrite.after):
            return _moved(reference, rewrite.after, rewrite.before)
    return there


def _fitting(reference: Reference, rewrites: Sequence[ImageRewrite]) -> ImageRewrite | None:
    return next((one for one in rewrites if _is_below(reference.name, one.before)), None)


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}/")


def _moved(reference: Reference, before: str, after: str) -> str:
    return f"{after}{reference.name[len(before) :]}{reference.suffix}"


# -- in a spec, and in a status --------------------------------------------------------------------


def images_in(spec: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the images of a spec with their paths: of containers, and of volumes."""
    for listed in containers_in(spec):
        if image := listed.container.get("image"):
            yield listed.at("image"), image
    for volume in spec.get("volumes") or ():
        if image := (volume.get("image") or {}).get("reference"):
            yield f"spec.volumes[{volume.get('name', '')}].image.reference", image


def rewrite_images(spec: JsonDict, rewrites: Sequence[ImageRewrite]) -> None:
    """Let our own copy of a spec name what the target pulls."""
    holders = [(container, "image") for container in own_containers(spec)]
    holders += [(v["image"], "reference") for v in spec.get("volumes") or () if v.get("image")]
    for holder, field in holders:
        if holder.get(field):
            holder[field] = rewritten(holder[field], rewrites)


def with_hub_images(
    status: JsonDict, hub_spec: JsonObject, rewrites: Sequence[ImageRewrite]
) -> JsonDict:
    """Return a mirror's status in which images are called as on the hub."""
    if not rewrites:
        return status
    told = dict(status)
    for field, name in STATUS_LISTS:
        asked = {c.get("name"): c.get("image") or "" for c in hub_spec.get(field) or ()}
        if name in status:
            told[name] = [_told(s, asked.get(s.get("name"), ""), rewrites) for s in status[name]]
    return told


def _told(container: JsonDict, hub_image: str, rewrites: Sequence[ImageRewrite]) -> JsonDict:
    told = dict(container)
    for field in ("image", "imageID"):
        scheme, separator, image = (container.get(field) or "").rpartition("://")
        if image:
            told[field] = f"{scheme}{separator}{as_on_hub(image, hub_image, rewrites)}"
    return told

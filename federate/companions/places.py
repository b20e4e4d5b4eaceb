"""Where in a pod's spec another object of its namespace is named. Pure.

One table: reading references and rewriting them walk the same paths, so neither can forget one
that the other knows. A test compares it with the schemas of real API servers. What a newer
Kubernetes adds and nobody put in here is found by `stray_places`, by what fields are called, and
refused: a name that nobody rewrote could name an object of the target (C30).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

from federate.companions.keys import Kind
from federate.model.objects import JsonObject
from federate.model.pods import CONTAINER_FIELDS

Path: TypeAlias = tuple[str, ...]
"""Field names from a pod's spec downwards; `[]` stands for each element of a list."""

EACH = "[]"


class Use(Enum):
    """What a kubelet does with the object, which decides what it does without it."""

    ENVIRONMENT = "environment"
    """Without a required one the container waits (CreateContainerConfigError), others start."""
    VOLUME = "volume"
    """Without a required one no container starts (FailedMount)."""
    PULL = "pull"
    """Never required: the image is asked for without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place that names an object: the mapping at `path` holds the name in `name_field`."""

    path: Path
    kind: Kind
    use: Use
    name_field: str = "name"

    def __str__(self) -> str:
        return ".".join(self.path).replace(f".{EACH}", EACH)


def _at(value: Any, path: Path) -> Iterator[Any]:
    if not path:
        if isinstance(value, Mapping):
            yield value
        return
    step, rest = path[0], path[1:]
    if step == EACH:
        for item in value if isinstance(value, (list, tuple)) else ():
            yield from _at(item, rest)
    elif isinstance(value, Mapping) and value.get(step) is not None:
        yield from _at(value[step], rest)


def _container_places() -> Iterator[Place]:
    for containers in CONTAINER_FIELDS:
        variable = (containers, EACH, "env", EACH, "valueFrom")
        source = (containers, EACH, "envFrom", EACH)
        for path, kind in (
            ((*variable, "configMapKeyRef"), Kind.CONFIGMAP),
            ((*variable, "secretKeyRef"), Kind.SECRET),
            ((*source, "configMapRef"), Kind.CONFIGMAP),
            ((*source, "secretRef"), Kind.SECRET),
        ):
            yield Place(path=path, kind=kind, use=Use.ENVIRONMENT)


STORAGE_SECRETS: Mapping[str, str] = {
    "cephfs": "secretRef",
    "cinder": "secretRef",
    "csi": "nodePublishSecretRef",
    "flexVolume": "secretRef",
    "iscsi": "secretRef",
    "rbd": "secretRef",
    "scaleIO": "secretRef",
    "storageos": "secretRef",
}
"""Kinds of volumes that log in somewhere with a Secret, and the field that names it."""


def _volume_places() -> Iterator[Place]:
    volume = ("volumes", EACH)
    source = (*volume, "projected", "sources", EACH)
    secrets: list[tuple[Path, str]] = [
        ((*volume, "secret"), "secretName"),
        ((*volume, "azureFile"), "secretName"),
        ((*source, "secret"), "name"),
        *(((*volume, kind, field), "name") for kind, field in STORAGE_SECRETS.items()),
    ]
    for configmap in ((*volume, "configMap"), (*source, "configMap")):
        yield Place(path=configmap, kind=Kind.CONFIGMAP, use=Use.VOLUME)
    for secret, field in secrets:
        yield Place(path=secret, kind=Kind.SECRET, use=Use.VOLUME, name_field=field)


PLACES: tuple[Place, ...] = (
    *_container_places(),
    *_volume_places(),
    Place(path=("imagePullSecrets", EACH), kind=Kind.SECRET, use=Use.PULL),
)

_Tree: TypeAlias = "dict[str, _Tree | Place]"


def _as_tree(places: tuple[Place, ...]) -> _Tree:
    """Put the paths together, so that one walk goes down each branch once."""
    tree: _Tree = {}
    for place in places:
        *above, last = place.path
        node = tree
        for step in above:
            below = node.setdefault(step, {})
            assert isinstance(below, dict)  # noqa: S101 (no path is the beginning of another)
            node = below
        node[last] = place
    return tree


_PLACES_TREE = _as_tree(PLACES)


def named_in(spec: JsonObject) -> list[tuple[Place, Any]]:
    """List the mappings that name an object, each with its place; of the spec itself, no copies.

    An empty name names nothing: API servers let it through in imagePullSecrets.
    """
    found: list[tuple[Place, Any]] = []
    _walk(spec, _PLACES_TREE, found)
    return found


def _walk(value: Any, tree: _Tree, found: list[tuple[Place, Any]]) -> None:
    if isinstance(value, (list, tuple)):
        below = tree.get(EACH)
        for item in value if below is not None else ():
            _arrive(item, below, found)
    elif isinstance(value, Mapping):
        for step, below in tree.items():
            inner = value.get(step)
            if inner is not None:
                _arrive(inner, below, found)


def _arrive(value: Any, at: _Tree | Place | None, found: list[tuple[Place, Any]]) -> None:
    if isinstance(at, dict):
        _walk(value, at, found)
    elif at is not None and isinstance(value, Mapping) and value.get(at.name_field):
        found.append((at, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A place that leans on what federate does not bring (C33); `what` says it to people."""

    path: Path
    what: str
    name_field: str = ""
    only_named: bool = False
    """It is nothing but where `name_field` is set."""

    @property
    def is_token(self) -> bool:
        """Tell whether it is what identity may bring along."""
        return self.path[-1] == "serviceAccountToken"

    @property
    def is_claim(self) -> bool:
        """Tell whether it is storage, which `claims` may have in the target."""
        return self.path[-1] in ("persistentVolumeClaim", "ephemeral")

    def found(self, spec: JsonObject) -> Iterator[str]:
        """Yield in words what the spec leans on here."""
        for holder in _at(spec, self.path):
            name = holder.get(self.name_field) or ""
            if name:
                yield f'{self.what} "{name}"'
            elif not self.only_named:
                yield self.what


def _unsupported() -> Iterator[Unsupported]:
    volume = ("volumes", EACH)
    source = (*volume, "projected", "sources", EACH)
    yield Unsupported(
        path=(*volume, "persistentVolumeClaim"),
        what="PersistentVolumeClaim",
        name_field="claimName",
    )
    # Its template may name volumes, classes and data sources of the target that are not ours.
    yield Unsupported(
        path=(*volume, "ephemeral"), what="a PersistentVolumeClaim of an ephemeral volume"
    )
    yield Unsupported(path=(*source, "serviceAccountToken"), what="a service account token")
    yield Unsupported(path=(*source, "clusterTrustBundle"), what="a ClusterTrustBundle")
    yield Unsupported(path=(*source, "podCertificate"), what="a pod certificate")
    yield Unsupported(path=("resourceClaims", EACH), what="ResourceClaim", name_field="name")
    for path, what, field in (
        # The Secrets Store driver reads what the target's own class of that name says.
        ((*volume, "csi", "volumeAttributes"), "SecretProviderClass", "secretProviderClass"),
        ((*volume, "glusterfs"), "Endpoints", "endpoints"),
        *(((*at, "windowsOptions"), "GMSACredentialSpec", "gmsaCredentialSpecName")
          for at in _security_contexts()),
    ):  # fmt: skip
        yield Unsupported(path=path, what=what, name_field=field, only_named=True)


def _security_contexts() -> Iterator[Path]:
    yield ("securityContext",)
    for containers in CONTAINER_FIELDS:
        yield (containers, EACH, "securityContext")


UNSUPPORTED: tuple[Unsupported, ...] = tuple(_unsupported())

# -- what no table knows ---------------------------------------------------------------------------

_POINTING = re.compile(r"(?i:secret|configmap|token|certificate|claim|bundle)|(?:Ref|Reference)s?$")
_POINTS_NOWHERE = frozenset(
    {
        "fieldRef",  # the pod itself
        "resourceFieldRef",  # the pod itself
        "fileKeyRef",  # a volume of the pod
        "claims",  # of a container: entries of resourceClaims
        "automountServiceAccountToken",  # always false in a mirror
        "secretFile",  # cephfs: a path on the node
        "workloadRef",  # never travels
    }
)
_OPEN_MAPS = frozenset(
    {
        "annotations",
        "labels",
        "limits",
        "matchLabels",
        "nodeSelector",
        "options",
        "overhead",
        "requests",
        "userAnnotations",
        "volumeAttributes",
    }
)
"""Fields whose keys are a user's words, not Kubernetes' fields."""
_DRIVERS_WORDS = frozenset(
    {
        ("volumes", EACH, "csi", "volumeAttributes"),
        ("volumes", EACH, "flexVolume", "options"),
    }
)
"""Open maps that a storage driver of the target reads, with its own rights there: `secretName` is
that of a Secret beside the mirror (file.csi.azure.com), and its contents go where the pod says."""


def stray_places(spec: JsonObject) -> tuple[str, ...]:
    """List fields that by their names point at another object, and that no table knows."""
    return tuple(dict.fromkeys(_strays(spec, ())))


_NAME_FIELDS = {place.path: place.name_field for place in PLACES} | {
    place.path: place.name_field for place in UNSUPPORTED
}
_REFUSED = frozenset(place.path for place in UNSUPPORTED if not place.only_named)
_KNOWN = frozenset(_NAME_FIELDS)


def _strays(value: Any, path: Path) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            at = (*path, str(name))
            is_seen_to = at in _REFUSED or name == _NAME_FIELDS.get(path)
            is_open = name in _OPEN_MAPS and at not in _DRIVERS_WORDS
            if inner is None or is_seen_to or is_open:
                continue
            if _points(str(name)) and not _leads_on(at):
                yield ".".join(at).replace(f".{EACH}", EACH)
            else:
                yield from _strays(inner, at)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if (*path, EACH) not in _REFUSED:
                yield from _strays(item, (*path, EACH))


@lru_cache(maxsize=2048)
def _points(name: str) -> bool:
    return name not in _POINTS_NOWHERE and _POINTING.search(name) is not None


def _leads_on(path: Path) -> bool:
    """Tell whether a table knows the path or goes on below: `imagePullSecrets` is a list."""
    return any(known[: len(path)] == path for known in _KNOWN)

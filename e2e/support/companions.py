"""Look for what stands in a target for the ConfigMaps and Secrets of a hub namespace."""

import base64
import json
from collections.abc import Callable

from .pods import annotations_of, name_of
from .witness import Json
from .world import Space

COMPANION_LABEL = "federate.dev/companion"
COMPANION_OF = "federate.dev/companion-of"
ANCHOR_PREFIX = "federate-anchor-"
ENTRY = "entry"
"""The label's value of what tells of a Secret: a ConfigMap of its name."""

KINDS = ("ConfigMap", "Secret")


def companions(space: Space, kind: str, name: str = "") -> list[Json]:
    """Find the companions of one object of the hub namespace, or of all of a kind."""
    label = f"{COMPANION_LABEL}={kind.lower()}"
    found = space.target.list(kind, space.target_namespace, labels=label)
    told = [(json.loads(annotations_of(each)[COMPANION_OF]), each) for each in found]
    return [
        {**each, "kind": kind}  # in lists objects do not tell it
        for of, each in told
        if (of["kind"], of["namespace"]) == (kind, space.namespace) and name in ("", of["name"])
    ]


def companion(space: Space, kind: str, name: str) -> Json:
    """Return the one companion of an object."""
    (found,) = companions(space, kind, name)
    return found


def wait_companion(
    space: Space, kind: str, name: str, is_wanted: Callable[[Json], bool] = bool
) -> Json:
    """Wait until an object has a companion like that."""

    def probe() -> Json | None:
        return next(filter(is_wanted, companions(space, kind, name)), None)

    return space.wait(f"the target has {kind} {name} as it is wanted", probe)


def wait_value(space: Space, kind: str, name: str, key: str, value: str) -> Json:
    """Wait until an object's companion has the value."""
    return wait_companion(space, kind, name, lambda found: value_of(found, key) == value)


def wait_no_companion(space: Space, kind: str, name: str, *, timeout_seconds: float = 30.0) -> None:
    """Wait until the target has nothing for an object."""
    space.wait(
        f"the target has no {kind} {name}",
        lambda: not companions(space, kind, name),
        timeout_seconds=timeout_seconds,
    )


def value_of(obj: Json, key: str) -> str | None:
    """Return a value of a ConfigMap or Secret as text."""
    value: str | None = (obj.get("data") or {}).get(key)
    return base64.b64decode(value).decode() if value and obj["kind"] == "Secret" else value


def listed(space: Space) -> set[str]:
    """Return the names of the Secrets that the target namespace has an entry of."""
    label = f"{COMPANION_LABEL}={ENTRY}"
    found = space.target.list("ConfigMap", space.target_namespace, labels=label)
    return {name_of(each) for each in found if annotations_of(each)[COMPANION_OF][:7] == "Secret "}

"""What a target's kubelet or scheduler says about a mirror, in the hub's names. Pure.

A user never sees a companion: the words are to be those of a node of the hub. Most texts name no
companion, and cost one look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

from federate.companions.keys import CompanionKey, Kind, hub_names, in_hub_words
from federate.companions.references import Reference, references_of
from federate.model.marks import Scope
from federate.model.objects import JsonObject, metadata_of, spec_of

Words: TypeAlias = Callable[[str], str]
"""Puts a text about one mirror into the hub's words."""

_GENERATED = re.compile(r"-[a-z2-7]{16}(?![a-z0-9-])")
"""How each companion's name ends."""


def hub_words(
    scope: Scope,
    hub_pod: JsonObject,
    target_namespace: str,
    *,
    shared: Collection[tuple[Kind, str]] = (),
    brings_tokens: bool = False,
) -> Words:
    """Return what puts texts about the hub pod's mirror into the hub's words."""

    namespace: str = metadata_of(hub_pod).get("namespace") or ""

    def companions(references: Iterable[Reference]) -> Iterator[CompanionKey]:
        # Of a pod that is over, too: words about its end come after it.
        for reference in references:
            if (reference.kind, reference.name) not in shared:
                yield CompanionKey(target_namespace, reference.kind, namespace, reference.name)

    def said(text: str) -> str:
        if _GENERATED.search(text) is None:
            return text
        references = references_of(spec_of(hub_pod), brings_tokens=brings_tokens)
        return in_hub_words(text, hub_names(scope, companions(references)))

    return said


def as_said(text: str) -> str:
    """Leave a text as it is: where nothing comes along, there is no name to put back."""
    return text

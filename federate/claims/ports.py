"""What the I/O of claims acts through, and who is told: the outside of `round` and `reconciler`.

Claims (reconciler.py), the one object that runtime holds:
    hold(hub_pod, target_namespace) -> Hold | None      asked before a mirror is made; cheap
    names(hub_pod, target_namespace) -> Mapping | None  the claims that its mirror names, by volume
    words(hub_pod) -> str                               what the target says of them, if anything
    on_hub_pod(change)                                  who waits no more
    wake_all()                                          the target is back, an operator spoke
    open() -> tuple[Reflector, ...]                     claims of both sides, volumes of the hub
    parts() -> Mapping[str, Callable[[], Coroutine]]    what runs beside: each until cancelled
    counts() -> Mapping[str, int]                       by standing, for metrics
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from federate.claims.rules import ClaimRules
from federate.companions.ports import CompanionPorts
from federate.model.objects import JsonObject
from federate.model.resources import Resource


class ClaimEvents(Protocol):
    """Where Kubernetes Events about objects of the hub go; never blocks, never fails."""

    def event(
        self,
        resource: Resource,
        regarding: JsonObject,
        *,
        reason: str,
        note: str,
        action: str,
        warning: bool = True,
    ) -> None:
        """Note one Event; repeats are aggregated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTools:
    """Everything that the claims of one virtual node act through."""

    ports: CompanionPorts
    """Clients, fences and words of the virtual node: the same as for all that comes along."""
    rules: ClaimRules
    events: ClaimEvents
    namespace_of: Callable[[str], str | None]
    """The target namespace of a hub namespace by today's rules; None where it has none."""

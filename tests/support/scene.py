"""Who meets whom in the tests: one hub, one virtual node, one target namespace, its anchor."""

from __future__ import annotations

from dataclasses import dataclass, field

from federate.mirror.render import RenderRules
from federate.mirror.steps import PlanRules
from federate.model.marks import Scope
from federate.model.naming import anchor_name, prefixed_namespace
from federate.model.objects import JsonObject, ObjectKey, uid_of
from federate.model.resources import Resource
from federate.status.project import Addresses

SCOPE = Scope(hub_id="hub-id", node_name="edge")
RULES = PlanRules(
    render=RenderRules(), addresses=Addresses(node_address="10.0.0.9"), target_name="target"
)
TARGET_NAMESPACE = prefixed_namespace(SCOPE.hub_id, "default")
ANCHOR = ObjectKey(TARGET_NAMESPACE, anchor_name(SCOPE))


async def agreed() -> None:
    """The cluster is still the one it was."""


class NoEvents:
    """Notes the reasons of the Events that were told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(
        self, regarding: JsonObject, *, reason: str, note: str, action: str, warning: bool = True
    ) -> None:
        self.reasons.append(reason)


@dataclass
class Told:
    """The Events that were told, by reason and name, with their words."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

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
        assert uid_of(regarding), "an Event needs the uid of what it is about"
        self.events.append((reason, f"{resource.kind} {regarding['metadata']['name']}", note))

    def about(self, reason: str) -> list[str]:
        return [name for r, name, _ in self.events if r == reason]

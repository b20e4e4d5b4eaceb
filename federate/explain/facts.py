"""What was read of both clusters to explain a pod or a virtual node: plain values. Pure.

Nobody who asks has all rights. What may not be read is said (`Unread`), and the rest counts. Of
ConfigMaps and Secrets metadata alone is read: no value stands in here (C73).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from federate.claims.places import ClaimUse
from federate.claims.rules import ClaimRules
from federate.claims.steps import Step
from federate.companions.keys import CompanionKey
from federate.mirror.render import RenderRules
from federate.model.marks import Scope
from federate.model.naming import NamespaceRules
from federate.model.objects import JsonObject, ObjectKey, condition_of
from federate.model.pods import phase_of
from federate.policy.rules import PolicyRules
from federate.services.rules import NetworkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that could not be read, and why."""

    why: str


Found: TypeAlias = "JsonObject | Unread | None"
"""An object; None: there is none."""
Listed: TypeAlias = "Sequence[JsonObject] | Unread"


def seen(found: Found) -> JsonObject | None:
    """Return the object; None where there is none, or nobody knows."""
    return None if isinstance(found, Unread) else found


def listed(found: Listed) -> Sequence[JsonObject]:
    """Return what was listed, nothing where that could not be read."""
    return () if isinstance(found, Unread) else found


def is_ready(pod: JsonObject) -> bool:
    """Tell whether the hub pod runs, and says that it is ready."""
    return phase_of(pod) == "Running" and (condition_of(pod, "Ready") or {}).get("status") == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRules:
    """What is configured for one virtual node, as `federate run` would have it."""

    name: str
    scope: Scope
    namespaces: NamespaceRules
    render: RenderRules
    network: NetworkRules = field(default_factory=NetworkRules)

    @property
    def policy(self) -> PolicyRules:
        """What the target's operator says of pods."""
        return self.render.policy

    @property
    def claims(self) -> ClaimRules:
        """Which volumes pods may have."""
        return self.render.claims


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node of the hub, and who looks after it if it is a virtual one."""

    name: str
    node: Found = None
    lease: Found = None
    """The leader lease."""
    holder: str = ""
    """Who holds it, in words."""
    is_holder_dead: bool = False
    """It was a process of this host, and is no more."""
    recorded_identity: str = ""
    """Which cluster the target is, by the Node's memory."""
    recorded_anchors: Mapping[str, str] = field(default_factory=dict)
    """Uids by target namespace, by the Node's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSide:
    """How the target itself answered."""

    trouble: str = ""
    """Why nothing was read there; "": it answers."""
    is_asked: bool = True
    """A kubeconfig was at hand."""
    is_refused: bool = False
    """It answers, and does not take these credentials."""
    identity: str = ""
    """Which cluster answers, "" where that may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Something of the hub that a pod names, and what stands for it in the target."""

    key: CompanionKey
    is_optional: bool
    hub: Found = None
    target: Found = None
    is_shared: bool = False
    """The target's people let hub pods use an object of theirs that has the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """A volume of a pod that is a claim, and what federate would do about it next."""

    use: ClaimUse
    claim: Found = None
    claim_events: Listed = ()
    step: Step | Unread | None = None
    """By the product's own plan; None where no plan was asked."""
    target_events: Listed = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """All that explains one pod of the hub."""

    now: datetime
    key: ObjectKey
    hub_pod: Found = None
    hub_events: Listed = ()
    node: NodeFacts = field(default_factory=lambda: NodeFacts(name=""))
    virtual_nodes: Listed = ()
    rules: TargetRules | None = None
    """None: nobody said how the target is configured."""
    policies: Listed = ()
    """NetworkPolicies of the pod's namespace."""
    brought: Sequence[Brought] = ()
    claims: Sequence[ClaimFacts] = ()
    target: TargetSide = field(default_factory=TargetSide)
    mirror_key: ObjectKey | None = None
    """Where the mirror stands, or is to stand."""
    namespace: Found = None
    anchor: Found = None
    at_key: Found = None
    """The pod of the target under that key, whoever's it is."""
    mirror_events: Listed = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoadFacts:
    """All that explains one virtual node."""

    now: datetime
    node: NodeFacts
    virtual_nodes: Listed = ()
    target: TargetSide = field(default_factory=TargetSide)
    pods: Listed = ()
    """Of the hub, bound to it."""

"""Lead a virtual node from within a command, with the very parts that `federate run` leads with.

The Node itself says how it is rendered (`settings_of`), so leading changes nothing about it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from federate import __version__
from federate.cluster.port import ClusterPort
from federate.cluster.recorder import Recorder
from federate.companions.issued import IssuedKey, IssuedKind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.garbage.brought import Brought
from federate.model.marks import LAST_APPLIED_ANNOTATION, Scope
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import (
    JsonObject,
    annotations_of,
    key_of,
    labels_of,
    spec_of,
    status_of,
)
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY
from federate.model.taints import Taint, TaintEffect
from federate.node.capacity import CapacityRules
from federate.runtime.election import Election
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from federate.runtime.together import run_together
from federate.runtime.virtual_node import PodEvents


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPorts:
    """What the command leads through."""

    hub: ClusterPort
    target: ClusterPort
    confirm_hub: Callable[[], Awaitable[None]]
    identity: str


def leading(
    settings: TargetSettings, scope: Scope, ports: ReplicaPorts
) -> Callable[[Election], Callable[[], Awaitable[None]]]:
    """Return what runs while an election is won: statuses, deletions, the Node's heartbeat."""

    def body_of(election: Election) -> Callable[[], Awaitable[None]]:
        async def lead() -> None:
            recorder = Recorder(ports.hub, instance=ports.identity)
            is_distinct = asyncio.Event()
            is_distinct.set()  # nothing new is mirrored: target and hub may be one cluster
            parts = Leading(
                settings,
                scope=scope,
                ports=LeadingPorts(
                    hub=ports.hub,
                    target=ports.target,
                    events=PodEvents(recorder),
                    fence=election.fence,
                    confirm_hub=ports.confirm_hub,
                    metrics=Metrics(version=__version__),
                    is_distinct=is_distinct,
                    is_leaving_for_good=True,
                ),
                node_address=settings.node_address or "127.0.0.1",
                federate_version=__version__,
            )
            await run_together(recorder.run, parts.run)

        return lead

    return body_of


def settings_of(
    node: JsonObject, *, confined_to: Sequence[str] = (), companions: CompanionRules
) -> TargetSettings:
    """Make settings of what the Node says.

    `confined_to`: the only target namespaces that may be read.
    """
    applied = _last_applied(node)
    taints = spec_of(applied).get("taints") or ()
    # Where the record is lost, the Node is left as it stands.
    told = taints if applied else spec_of(node).get("taints") or ()
    own = next((_taint(t) for t in told if t.get("key") == VIRTUAL_NODE_TAINT_KEY), None)
    addresses = status_of(node).get("addresses") or ()
    namespaces = NamespaceRules()
    if confined_to:
        # From names that no hub namespace has: nothing new is mirrored, whatever they say.
        mapping = {f"-{name}": name for name in confined_to}
        namespaces = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping=mapping)
    return TargetSettings(
        name=key_of(node).name,
        kubeconfig=Path(),
        capacity=CapacityRules.fixed(status_of(node).get("capacity") or {"pods": "0"}),
        namespaces=namespaces,
        labels=labels_of(applied),
        taint_value=own.value if own is not None else "",
        taint_effect=own.effect if own is not None else None,
        taints=tuple(_taint(t) for t in taints if t.get("key") != VIRTUAL_NODE_TAINT_KEY),
        provider_id=spec_of(applied).get("providerID"),
        node_address=next((a["address"] for a in addresses if a.get("type") == "InternalIP"), None),
        companions=companions,
    )


def rules_told_by(brought: Iterable[Brought]) -> CompanionRules:
    """Tell from what came along how the pods go on that are there, where no configuration says it.

    Where there are tokens they are renewed until their pods are gone: a drain may outlast them. The
    hub's address is told to new pods alone, and there are none.
    """
    keys = (one.key for one in brought)
    has_tokens = any(isinstance(k, IssuedKey) and k.kind is IssuedKind.TOKENS for k in keys)
    return CompanionRules(identity=IdentityMode.HUB if has_tokens else IdentityMode.NONE)


def _last_applied(node: JsonObject) -> JsonObject:
    try:
        applied = json.loads(annotations_of(node).get(LAST_APPLIED_ANNOTATION, "{}"))
    except (ValueError, RecursionError):
        return {}
    return applied if isinstance(applied, dict) else {}


def _taint(taint: JsonObject) -> Taint:
    return Taint(
        key=taint["key"],
        value=taint.get("value") or "",
        effect=TaintEffect(taint.get("effect") or TaintEffect.NO_SCHEDULE),
    )

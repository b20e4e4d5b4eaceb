"""Read what explains a pod or a virtual node, with whatever rights the caller has. Thin.

Works where no federate runs. Nothing is written. Of ConfigMaps and Secrets metadata alone is read.
What may not be read is noted, and the rest is read all the same; once the target does not answer it
is not asked any more, for each question would cost its patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from federate.claims.keys import claim_key, volume_name
from federate.claims.places import ClaimUse, claims_used
from federate.claims.plan import plan_claim
from federate.claims.protocol import SELECTED_NODE_ANNOTATION, volume_name_of
from federate.claims.steps import (
    ClaimView,
    LookForUsers,
    LookUp,
    Rest,
    Seen,
    Sought,
    Step,
    Users,
)
from federate.cluster.identity import cluster_identity, namespace_identity, telling_namespace
from federate.cluster.port import ClusterPort
from federate.companions.consents import is_for_all
from federate.companions.keys import CompanionKey, name_of
from federate.companions.references import references_of
from federate.companions.steps import Ground
from federate.errors import (
    ClusterError,
    ConfigError,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
)
from federate.explain.facts import (
    Brought,
    ClaimFacts,
    Found,
    Listed,
    NodeFacts,
    NodeRoadFacts,
    PodFacts,
    TargetRules,
    TargetSide,
    Unread,
    seen,
)
from federate.explain.mirrored import mirror_of
from federate.explain.rules import rules_of
from federate.model.marks import LEAVING_ANNOTATION, NODE_HUB_ANNOTATION, record_of
from federate.model.naming import anchor_name, leader_lease_name, mirror_key
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    is_object_name,
    is_terminating,
    spec_of,
    uid_of,
)
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE, is_terminal, node_name_of
from federate.model.resources import (
    CLAIMS,
    CONFIGMAPS,
    CORE_EVENTS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUMES,
    Resource,
)
from federate.node.anchors import parse_anchors, parse_identity
from federate.policy.verdict import travelling_pod
from federate.runtime.identity import describe_holder, is_dead_neighbour
from federate.runtime.settings import TargetSettings

MOST_STEPS = 12
"""The plan of a claim asks for five objects at most, each once."""

_PLACES: dict[Sought, Resource] = {
    Sought.HUB_CLAIM: CLAIMS,
    Sought.VOLUME: VOLUMES,
    Sought.HUB_CLASS: STORAGE_CLASSES,
    Sought.CLAIM: CLAIMS,
    Sought.TARGET_CLASS: STORAGE_CLASSES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAccess:
    """Where a virtual node's target is, and what is configured for it."""

    settings: TargetSettings
    open: Callable[[], AbstractAsyncContextManager[ClusterPort]]


TargetOf: TypeAlias = Callable[[str], TargetAccess | None]
"""Asked for a virtual node; None where nobody said where its target is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSide:
    """The hub, and what is to be known before it is asked."""

    client: ClusterPort
    lease_namespace: str
    identity: str = ""
    """What the hub is called in marks, where that is configured."""
    ours: str = ""
    """This process as a holder of leases: it can see whether a neighbour lives."""


# -- single reads ----------------------------------------------------------------------------------


async def _get(
    client: ClusterPort, resource: Resource, key: ObjectKey, *, metadata_only: bool = False
) -> Found:
    """Read one object. A name that no object can have stands for none: it never becomes a URL."""
    if not is_object_name(key.name) or (resource.namespaced and not key.can_exist):
        return None
    try:
        return await client.get(resource, key, metadata_only=metadata_only)
    except NotFound:
        return None
    except ClusterError as error:
        return _unread(error, f"{resource.kind} {key}")


async def _list(
    client: ClusterPort,
    resource: Resource,
    *,
    namespace: str = "",
    label_selector: str = "",
    field_selector: str = "",
) -> Listed:
    try:
        found = await client.list(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )
    except ClusterError as error:
        return _unread(error, resource.plural)
    return found.items


def _unread(error: ClusterError, what: str) -> Unread:
    if isinstance(error, Forbidden):
        return Unread(why=f"these credentials may not read {what} of {error.cluster}")
    if isinstance(error, Unreachable):
        return Unread(why=f"{error.cluster} does not answer")
    return Unread(why=f"{what} could not be read: {error.detail}")


async def _events(client: ClusterPort, namespace: str, uid: str) -> Listed:
    return await _list(
        client, CORE_EVENTS, namespace=namespace, field_selector=f"involvedObject.uid={uid}"
    )


# -- the node --------------------------------------------------------------------------------------


async def _node(hub: HubSide, name: str) -> NodeFacts:
    lease_key = ObjectKey(hub.lease_namespace, leader_lease_name(name))
    node, lease = await asyncio.gather(
        _get(hub.client, NODES, ObjectKey("", name)), _get(hub.client, LEASES, lease_key)
    )
    holder = str(spec_of(seen(lease) or {}).get("holderIdentity") or "")
    return NodeFacts(
        name=name,
        node=node,
        lease=lease,
        holder=describe_holder(holder),
        is_holder_dead=bool(holder) and is_dead_neighbour(holder, hub.ours),
        recorded_identity=parse_identity(seen(node) or {}),
        recorded_anchors=parse_anchors(seen(node) or {}),
    )


async def _virtual_nodes(hub: HubSide) -> Listed:
    return await _list(hub.client, NODES, label_selector=f"{NODE_TYPE_LABEL}={VIRTUAL_NODE_TYPE}")


async def _hub_id(hub: HubSide, node: NodeFacts) -> str:
    """Return the hub's name in marks; "" where nobody tells it."""
    told = annotations_of(seen(node.node) or {}).get(NODE_HUB_ANNOTATION) or hub.identity
    if told:
        return told
    try:
        return await cluster_identity(hub.client)
    except ClusterError:
        return ""


async def read_node(
    hub: HubSide, name: str, *, target_of: TargetOf, now: datetime
) -> NodeRoadFacts:
    """Read what explains a virtual node."""
    node, virtual_nodes, pods = await asyncio.gather(
        _node(hub, name),
        _virtual_nodes(hub),
        _list(hub.client, PODS, field_selector=f"spec.nodeName={name}"),
    )
    side = _not_asked(name)
    if (access := target_of(name)) is not None:
        try:
            async with access.open() as target:
                side = await _meet(target, node, name)
        except ConfigError as error:
            side = TargetSide(trouble=str(error), is_asked=False)
    return NodeRoadFacts(now=now, node=node, virtual_nodes=virtual_nodes, target=side, pods=pods)


# -- the target ------------------------------------------------------------------------------------


def _not_asked(name: str) -> TargetSide:
    return TargetSide(trouble=f"no kubeconfig of {name or 'a target'} is given", is_asked=False)


async def _meet(target: ClusterPort, node: NodeFacts, name: str) -> TargetSide:
    """Ask who answers; a target that refuses this one question may answer the others."""
    told_by = telling_namespace(node.recorded_identity)
    try:
        identity = await (
            namespace_identity(target, told_by) if told_by else cluster_identity(target)
        )
    except (Forbidden, NotFound):
        return TargetSide()
    except ClusterError as error:
        return _trouble(error, name)
    return TargetSide(identity=identity)


def _trouble(error: ClusterError, name: str) -> TargetSide:
    if isinstance(error, Unreachable):
        return TargetSide(trouble=f"{name} does not answer")
    if isinstance(error, Unauthorized):
        said = f"{name} does not take the credentials given here: {error.detail}"
        return TargetSide(trouble=said, is_refused=True)
    return TargetSide(trouble=f"{name} answers: {error.detail}")


# -- a pod -----------------------------------------------------------------------------------------


async def read_pod(hub: HubSide, key: ObjectKey, *, target_of: TargetOf, now: datetime) -> PodFacts:
    """Read what explains a pod."""
    facts = PodFacts(now=now, key=key, hub_pod=await _get(hub.client, PODS, key))
    pod = seen(facts.hub_pod)
    if pod is None:
        return facts
    events, virtual_nodes, policies, claims = await asyncio.gather(
        _events(hub.client, key.namespace, uid_of(pod)),
        _virtual_nodes(hub),
        _list(hub.client, NETWORK_POLICIES, namespace=key.namespace),
        asyncio.gather(*(_hub_claim(hub, use) for use in claims_used(pod))),
    )
    name = node_name_of(pod) or _chosen_node(claims)
    node = await _node(hub, name) if name else NodeFacts(name="")
    facts = replace(
        facts,
        hub_events=events,
        virtual_nodes=virtual_nodes,
        policies=policies,
        claims=claims,
        node=node,
        target=_not_asked(name),
    )
    access = target_of(name) if name else None
    if access is None:
        return _with_place(facts, pod)
    hub_id = await _hub_id(hub, node)
    rules = rules_of(access.settings, hub_id) if hub_id else None
    facts = _with_place(replace(facts, rules=rules), pod)
    facts = await _with_hub_objects(hub, facts, pod)
    return await _with_target(hub, access, facts, pod)


async def _hub_claim(hub: HubSide, use: ClaimUse) -> ClaimFacts:
    claim = await _get(hub.client, CLAIMS, use.claim)
    found = seen(claim)
    events: Listed = ()
    if found is not None:
        events = await _events(hub.client, use.claim.namespace, uid_of(found))
    return ClaimFacts(use=use, claim=claim, claim_events=events)


def _chosen_node(claims: Sequence[ClaimFacts]) -> str:
    """Return the node that the scheduler chose for a claim: a pod is bound only after that."""
    chosen = (
        annotations_of(seen(one.claim) or {}).get(SELECTED_NODE_ANNOTATION, "") for one in claims
    )
    return next((name for name in chosen if name), "")


def _with_place(facts: PodFacts, pod: JsonObject) -> PodFacts:
    record = record_of(pod)
    if record is not None:
        return replace(facts, mirror_key=record.mirror)
    rules = facts.rules
    if rules is None:
        return facts
    return replace(facts, mirror_key=mirror_key(rules.namespaces, rules.scope.hub_id, facts.key))


async def _with_hub_objects(hub: HubSide, facts: PodFacts, pod: JsonObject) -> PodFacts:
    rules, place = facts.rules, facts.mirror_key
    if rules is None or rules.render.scope is None or place is None or is_terminal(pod):
        return facts
    named: dict[CompanionKey, bool] = {}
    travelling = spec_of(travelling_pod(pod, rules.policy))
    for one in references_of(travelling, brings_tokens=rules.render.brings_tokens):
        if (one.kind, one.name) in rules.render.shared:
            continue
        key = CompanionKey(place.namespace, one.kind, facts.key.namespace, one.name)
        # Named twice, it is needed where one of the two needs it.
        named[key] = named.get(key, True) and one.is_optional
    read = await asyncio.gather(
        *(_get(hub.client, k.kind.resource, k.hub_key, metadata_only=True) for k in named)
    )
    brought = tuple(
        Brought(key=key, is_optional=is_optional, hub=found)
        for (key, is_optional), found in zip(named.items(), read, strict=True)
    )
    return replace(facts, brought=brought)


async def _with_target(
    hub: HubSide, access: TargetAccess, facts: PodFacts, pod: JsonObject
) -> PodFacts:
    try:
        async with access.open() as target:
            side = await _meet(target, facts.node, facts.node.name)
            facts = replace(facts, target=side)
            if not side.trouble:
                facts = await _with_mirror(target, facts, pod)
            return await _with_claims(hub, target, facts)
    except ConfigError as error:
        side = TargetSide(trouble=str(error), is_asked=False)
        return await _with_claims(hub, None, replace(facts, target=side))


async def _with_mirror(target: ClusterPort, facts: PodFacts, pod: JsonObject) -> PodFacts:
    place = facts.mirror_key
    if place is None:
        return facts
    facts = replace(facts, at_key=await _get(target, PODS, place))
    if facts.rules is not None:
        facts = await _with_ground(target, facts, facts.rules, place)
    mirror = mirror_of(facts, pod)
    if mirror is None:
        return facts
    return replace(facts, mirror_events=await _events(target, place.namespace, uid_of(mirror)))


async def _with_ground(
    target: ClusterPort, facts: PodFacts, rules: TargetRules, place: ObjectKey
) -> PodFacts:
    """Read what a mirror needs there. Its names are known to who knows what the hub is called."""
    namespace, anchor, brought = await asyncio.gather(
        _get(target, NAMESPACES, ObjectKey("", place.namespace)),
        _get(target, CONFIGMAPS, ObjectKey(place.namespace, anchor_name(rules.scope))),
        asyncio.gather(*(_in_target(target, rules, one) for one in facts.brought)),
    )
    return replace(facts, namespace=namespace, anchor=anchor, brought=brought)


async def _in_target(target: ClusterPort, rules: TargetRules, brought: Brought) -> Brought:
    if brought.hub is None:
        # A mirror finds there what the target's people share, under its own name.
        shared = ObjectKey(brought.key.target_namespace, brought.key.name)
        found = await _get(target, brought.key.kind.resource, shared, metadata_only=True)
        is_shared = is_for_all(seen(found) or {})
        return replace(brought, is_shared=is_shared)
    key = name_of(rules.scope, brought.key)
    found = await _get(target, brought.key.kind.resource, key, metadata_only=True)
    return replace(brought, target=found)


# -- storage: the product's own plan, of which only the looks are carried out ----------------------


async def _with_claims(hub: HubSide, target: ClusterPort | None, facts: PodFacts) -> PodFacts:
    rules = facts.rules
    if rules is None or not rules.claims.are_made:
        return facts
    planned = await asyncio.gather(*(_planned(hub, target, facts, rules, c) for c in facts.claims))
    return replace(facts, claims=planned)


async def _planned(
    hub: HubSide,
    target: ClusterPort | None,
    facts: PodFacts,
    rules: TargetRules,
    claim: ClaimFacts,
) -> ClaimFacts:
    found = seen(claim.claim)
    if found is None:
        return claim
    place, key = facts.mirror_key, claim_key(found)
    view = ClaimView(
        key=key,
        scope=rules.scope,
        rules=rules.claims,
        target_name=rules.name,
        target_namespace=place.namespace if place is not None else None,
        volume_name=volume_name_of(found) or volume_name(key),
        ground=_ground(facts, rules),
        users=Users.WELCOME,
        is_leaving=LEAVING_ANNOTATION in annotations_of(seen(facts.node.node) or {}),
    )
    step = await _walk(view, hub.client, target if not facts.target.trouble else None)
    if target is None or not isinstance(step, Rest) or step.handle is None:
        return replace(claim, step=step)
    events = await _events(target, step.handle.namespace, step.handle.uid)
    return replace(claim, step=step, target_events=events)


def _ground(facts: PodFacts, rules: TargetRules) -> Ground:
    place, anchor = facts.mirror_key, seen(facts.anchor)
    if anchor is not None and rules.scope.owns(anchor) and not is_terminating(anchor):
        return Ground.READY
    is_recorded = place is not None and place.namespace in facts.node.recorded_anchors
    is_known = not facts.target.trouble and not isinstance(facts.anchor, Unread)
    return Ground.UNINSTALLED if is_recorded and is_known else Ground.NOT_YET


async def _walk(view: ClaimView, hub: ClusterPort, target: ClusterPort | None) -> Step | Unread:
    """Ask the plan for steps as long as they only look; return the first that does more."""
    for _ in range(MOST_STEPS):
        step = plan_claim(view)
        match step:
            case LookUp(look=look):
                client = hub if look.sought.is_on_hub else target
                if client is None:
                    return Unread(why=f"{view.target_name} was not asked")
                found = await _get(client, _PLACES[look.sought], look.key)
                if isinstance(found, Unread):
                    return found
                view = replace(view, seen={**view.seen, look: Seen(obj=found)})
            case LookForUsers():
                return Unread(why="its users could not be told")
            case _:
                return step
    return Unread(why="it changes as fast as it is looked at")

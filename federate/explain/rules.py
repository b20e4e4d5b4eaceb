"""From the settings of a run to the rules that a pod is judged by: as `runtime` wires them."""

from __future__ import annotations

from dataclasses import replace

from federate.explain.facts import TargetRules
from federate.mirror.render import RenderRules
from federate.model.marks import Scope
from federate.model.naming import keeps_names
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY
from federate.runtime.companions import with_companions
from federate.runtime.settings import TargetSettings


def rules_of(target: TargetSettings, hub_id: str) -> TargetRules:
    """Return what is configured for one virtual node of a hub."""
    scope = Scope(hub_id=hub_id, node_name=target.name)
    own_taints = (VIRTUAL_NODE_TAINT_KEY, *(taint.key for taint in target.taints))
    render = RenderRules(
        policy=replace(target.policy, own_taint_keys=frozenset(own_taints)),
        claims=target.claims,
        dns=target.network.dns,
        keeps_names=keeps_names(target.namespaces),
    )
    return TargetRules(
        name=target.name,
        scope=scope,
        namespaces=target.namespaces,
        render=with_companions(render, scope, target.companions),
        network=target.network,
    )

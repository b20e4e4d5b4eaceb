"""How one virtual node brings along what its pods need: the wiring of `companions` to mirroring."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace

from federate.cluster.reflector import Reflector
from federate.cluster.store import Change
from federate.companions.consents import Consents, Shared
from federate.companions.environment import Advertised
from federate.companions.holding import Hold, joined
from federate.companions.identity import IdentityRules
from federate.companions.issuer import EventPort, HubServices, Issuer
from federate.companions.issuing import IssueTools
from federate.companions.ports import CompanionPorts
from federate.companions.reconciler import Companions
from federate.companions.references import references_of
from federate.companions.rules import CompanionRules, IdentityMode
from federate.companions.steps import Ground as Standing
from federate.mirror.ground import Ground
from federate.mirror.render import RenderRules
from federate.mirror.steps import AnchorState
from federate.model.marks import Scope, origin_of
from federate.model.objects import JsonObject, spec_of

_STANDING = {
    AnchorState.PRESENT: Standing.READY,
    AnchorState.NEVER: Standing.NOT_YET,
    AnchorState.GONE: Standing.UNINSTALLED,
}


class CompanionGround:
    """The ground of mirrors as companions see it; satisfies `companions.ports.GroundPort`."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def state(self, namespace: str) -> Standing:
        """Say whether something may be made in the target namespace."""
        return _STANDING[self._ground.anchor_state(namespace)]

    def anchor(self, namespace: str) -> JsonObject | None:
        """Return the anchor, as it is after our own writes."""
        return self._ground.anchor(namespace)

    async def prepare(self, hub_namespace: str) -> None:
        """Make sure of target namespace and anchor for a hub namespace."""
        await self._ground.prepare(hub_namespace)

    async def note(self, namespace: str, entries: Mapping[str, str | None], *, exact: bool) -> None:
        """Write lines into the anchor's `data`."""
        await self._ground.note(namespace, entries, exact=exact)


def identity_rules(scope: Scope, rules: CompanionRules) -> IdentityRules:
    """Return what of the rules decides about identity."""
    return IdentityRules(
        scope=scope,
        mode=rules.identity,
        advertised=rules.advertised,
        target_account=rules.target_account,
    )


def advertised_to_pods(rules: CompanionRules) -> Advertised | None:
    """Return where pods reach the hub's API server, where they speak to it as themselves."""
    is_hub = rules.identity is IdentityMode.HUB and rules.are_made
    return rules.advertised if is_hub else None


def with_companions(render: RenderRules, scope: Scope, rules: CompanionRules) -> RenderRules:
    """Complete the rules of a mirror's looks with what comes along with it."""
    # The hub's tokens come along as Secrets; to be somebody of the target takes none.
    is_hub = rules.identity is IdentityMode.HUB and rules.are_made
    if is_hub or rules.identity is IdentityMode.TARGET:
        render = replace(render, identity=identity_rules(scope, rules))
    return replace(render, scope=scope, shared=rules.shared) if rules.are_made else render


@dataclass(frozen=True, slots=True)
class Comers:
    """All that comes along with pods: copies of the hub's objects, and what is issued."""

    companions: Companions
    issuer: Issuer
    consents: Consents
    ports: CompanionPorts

    def hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        """Say what a hub pod waits for."""
        return joined(
            self.companions.hold(hub_pod, target_namespace),
            self.issuer.hold(hub_pod, target_namespace),
        )

    async def shared(self, hub_pod: JsonObject, target_namespace: str) -> Shared:
        """Say which objects of the target a hub pod may name as they are, by their label there.

        Raises:
            ClusterError: the target does not say.
        """
        spec = spec_of(self.ports.travelling(hub_pod))
        named = references_of(spec, brings_tokens=self.ports.brings_tokens)
        names = {(reference.kind, reference.name) for reference in named}
        return await self.consents.of(target_namespace, names - self.ports.shared)

    def on_hub_pod(self, change: Change) -> None:
        """Take note of a hub pod."""
        self.companions.on_hub_pod(change)
        self.issuer.on_hub_pod(change)

    def on_mirror(self, change: Change) -> None:
        """Take note of a mirror; what its hub pod claims of it is true now, or not any more."""
        self.companions.on_mirror(change)
        shown = change.new or change.old
        origin = origin_of(shown) if shown is not None else None
        stood = self.companions.mirror_of(origin.pod) if origin is not None else None
        if origin is None or stood is None or stood is (change.new is not None):
            return
        hub_pod = self.ports.hub_pods.get(origin.pod)
        if hub_pod is not None:
            self.on_hub_pod(Change(key=origin.pod, old=hub_pod, new=hub_pod))

    def on_anchor(self, change: Change) -> None:
        """Take note of an anchor."""
        self.companions.on_anchor(change)
        self.issuer.on_anchor(change)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke."""
        self.companions.wake_all()
        self.issuer.wake_all()

    def open(self) -> tuple[Reflector, ...]:
        """Build the reflectors that must have synced before anything is decided."""
        return self.companions.open()

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what runs beside the pods' workers, each until cancelled."""
        return {**self.companions.parts(), **self.issuer.parts()}


def build_comers(
    rules: CompanionRules,
    ports: CompanionPorts,
    *,
    events: EventPort,
    services: HubServices,
    wall_clock: Callable[[], float],
) -> Comers:
    """Wire both; what an earlier life issued is removed by the issuer, whatever the mode is now.

    `services` are run by the caller, where `Issuer.reads_services`.
    """
    companions = Companions(ports)
    tools = IssueTools(
        ports=ports,
        lists=companions.lists,
        rules=identity_rules(ports.scope, rules),
        is_used=companions.is_used,
        wall_clock=wall_clock,
        renew_share=rules.renew_share,
    )
    issuer = Issuer(tools, events=events, services=services)
    companions.lists.listeners.append(issuer.on_record)
    return Comers(
        companions=companions,
        issuer=issuer,
        consents=Consents(ports.target, count_read=ports.count_read, clock=ports.clock),
        ports=ports,
    )

"""All that concerns a virtual node's network, wired: what runtime holds of it; see `ports`.

It learns of hub pods and anchors, watches the hub's Services and NetworkPolicies as far as anything
depends on them, and answers whether a pod may run and which addresses it shows. Nothing that pods
need waits for it, but where policies refuse pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping

from federate.cluster.store import Change
from federate.companions.environment import Advertised
from federate.companions.holding import Hold
from federate.companions.steps import Blocked
from federate.model.objects import JsonObject, ObjectKey, key_of
from federate.model.reasons import PodReason
from federate.model.resources import NETWORK_POLICIES, SERVICES
from federate.services.addresses import AddressDecision, Showing
from federate.services.addressing import Addressing, AddressPorts
from federate.services.doors import Doors
from federate.services.hubnames import UNLED, HubApi, way_to
from federate.services.policies import (
    policies_of,
    policy_refusal,
    unknown_refusal,
    warning_words,
)
from federate.services.population import Population
from federate.services.ports import ServicePorts
from federate.services.reconciler import Follower
from federate.services.rules import (
    AddressMode,
    NetworkPolicyMode,
    NetworkRules,
)
from federate.services.selecting import policy_selects, service_selects
from federate.services.telling import SelectionTeller
from federate.services.watched import (
    HubObjects,
    hub_policies,
)

ADDRESS_HIDDEN = "AddressHidden"
"""Reason of the Event that a hub Service gets."""

LOOK_SECONDS = 60.0
"""How often all namespaces are looked at: what was not to be told then may be by now."""

KNOWN_SECONDS = 2.0
"""How long pods wait on that wait for policies to be known again."""


class Network:
    """Addresses, Services and policies of one virtual node. Start what `parts` names."""

    def __init__(
        self,
        rules: NetworkRules,
        ports: ServicePorts,
        addresses: AddressPorts,
        *,
        services: HubObjects,
        advertised: Advertised | None = None,
    ) -> None:
        """`services` are run by the caller, where `reads_services` or anybody else needs them.

        `advertised` is given where pods speak to the hub's API server as themselves.
        """
        self._rules = rules
        self._ports = ports
        self.population = Population()
        self.addressing = Addressing(rules.addresses, addresses)
        clock, random = ports.clock, ports.random
        self.services = services
        refuses = rules.network_policies is NetworkPolicyMode.REFUSE
        self.policies = hub_policies(ports.hub, clock=clock, random=random, is_needed=refuses)
        if refuses:
            self.policies.want()  # pods wait until they are known
        self.follower: Follower | None = None
        if rules.is_followed:
            services.want()
            self.follower = Follower(
                ports, mode=rules.follow, population=self.population, services=self.services
            )
        self.doors: Doors | None = None
        if advertised is not None:
            way = way_to(advertised)
            if way is not None:
                self.doors = Doors(way, ports, population=self.population)
        self._service_teller = SelectionTeller(
            self.services,
            selects=service_selects,
            label_sets=self._hidden_label_sets,
            tell=self._tell_service,
        )
        self._policy_teller = SelectionTeller(
            self.policies,
            selects=policy_selects,
            label_sets=self.population.label_sets,
            tell=self._tell_policy,
        )
        self._refused: dict[str, set[ObjectKey]] = {}
        """Hub namespace -> pods that wait for a policy to go, or to be known."""
        self._waits_to_know = False
        """Some of them were refused since policies are not known."""
        self.policies.listen(self._on_policy)

    # -- asked and told ----------------------------------------------------------------------------

    @property
    def decision(self) -> AddressDecision:
        """What is decided about addresses."""
        return self.addressing.decision

    def on_hub_pod(self, change: Change) -> None:
        """Take note of where a hub pod lives, with which labels."""
        move = self.population.pod_is(change.key, change.new)
        if change.new is None:
            self._forget_refused(change.key)
        if move.has_news:
            self._look_at(change.key.namespace)
        if self.follower is not None:
            self.follower.on_move(move)
        if self.doors is not None:
            self.doors.on_move(move)

    def on_anchor(self, change: Change) -> None:
        """Take note of an anchor."""
        if self.follower is not None:
            self.follower.on_anchor(change)
        if self.doors is not None:
            self.doors.on_anchor(change)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke."""
        if self.follower is not None:
            self.follower.wake_all()
        if self.doors is not None:
            self.doors.wake_all()

    def hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        """Say what of the network a mirror is to wait for; None: it may be made."""
        return self.doors.hold(hub_pod, target_namespace) if self.doors is not None else None

    def on_made(self, hub_pod: JsonObject, target_namespace: str) -> None:
        """Take note that a pod got its mirror."""
        if self.doors is not None:
            self.doors.on_made(hub_pod, target_namespace)

    def hub_api(self, target_namespace: str) -> HubApi | None:
        """Say where the names of the hub's API server lead; None: not known, see `hold`."""
        return self.doors.api(target_namespace) if self.doors is not None else UNLED

    def refusal(self, hub_pod: JsonObject) -> Blocked | None:
        """Say which policies of the hub keep a pod from being mirrored; None where none does.

        The pod is woken when that may have changed.
        """
        if self._rules.network_policies is not NetworkPolicyMode.REFUSE:
            return None
        pod = key_of(hub_pod)
        refused = self._refusal(hub_pod)
        if refused is None:
            self._forget_refused(pod)
        else:
            self._refused.setdefault(pod.namespace, set()).add(pod)
            self._waits_to_know |= refused.reason == PodReason.NETWORK_POLICIES_UNKNOWN
        return refused

    def refuses(self, hub_pod: JsonObject) -> bool:
        """Tell whether one does, of a pod that need not be woken: it may have no node yet."""
        is_asked = self._rules.network_policies is NetworkPolicyMode.REFUSE
        return is_asked and self._refusal(hub_pod) is not None

    def _refusal(self, hub_pod: JsonObject) -> Blocked | None:
        if not self.policies.is_known:
            return unknown_refusal(is_forbidden=self.policies.is_forbidden)
        names = policies_of(hub_pod, self.policies.in_namespace(key_of(hub_pod).namespace))
        return policy_refusal(names, target_name=self._ports.target_name)

    def _forget_refused(self, pod: ObjectKey) -> None:
        pods = self._refused.get(pod.namespace)
        if pods is not None:
            pods.discard(pod)
            if not pods:
                del self._refused[pod.namespace]

    def counts(self) -> Mapping[str, int]:
        """Count followed Services by where they stand."""
        return self.follower.counts() if self.follower is not None else {}

    # -- from events to looks ----------------------------------------------------------------------

    def _on_policy(self, change: Change) -> None:
        for pod in list(self._refused.get(change.key.namespace, ())):
            self._ports.wake(pod)

    def _look_at(self, namespace: str) -> None:
        self._service_teller.look_at(namespace)
        self._policy_teller.look_at(namespace)

    def _hidden_label_sets(self, namespace: str) -> Iterable[Mapping[str, str]]:
        if not self.addressing.is_settled:
            return ()
        return self.population.hidden_label_sets(namespace)

    def _tell_service(self, service: JsonObject) -> None:
        ports, decision = self._ports, self.decision
        why = f"Addresses are {decision.message}"
        if decision.showing is Showing.REFLECT:
            why = f"Their addresses are none that {ports.target_name} tells of, or the hub's"
        note = (
            f"pods of this Service that run in {ports.target_name} have no address on the hub, so "
            f"it sends them no traffic. {why}"
        )
        if self.follower is None:
            note += ". Within the target they find each other where Services follow (`services`)"
        ports.events.event(
            SERVICES, service, reason=ADDRESS_HIDDEN, note=note, action="HideAddress"
        )

    def _tell_policy(self, policy: JsonObject) -> None:
        self._ports.events.event(
            NETWORK_POLICIES,
            policy,
            reason=PodReason.NETWORK_POLICY_NOT_ENFORCED,
            note=warning_words(target_name=self._ports.target_name),
            action="Mirror",
        )

    # -- running -----------------------------------------------------------------------------------

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what runs beside each other, each until cancelled."""
        parts: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            "addresses": self.addressing.run,
            "network-looks": self._look_around,
        }
        if self._may_hide:
            parts["services-told"] = self._service_teller.run
        if self._rules.heeds_policies:
            parts["hub-network-policies"] = self.policies.run
            parts["policies-told"] = self._policy_teller.run
            parts["policies-known"] = self._wake_when_known
        for more in (self.follower, self.doors):
            parts |= more.parts() if more is not None else {}
        return parts

    @property
    def _may_hide(self) -> bool:
        return self._rules.addresses is not AddressMode.REFLECT

    @property
    def reads_services(self) -> bool:
        """Whether anything depends on the hub's Services."""
        return self._may_hide or self.follower is not None

    async def _wake_when_known(self) -> None:
        """Wake the pods that waited for a list: it may have brought no policy at all.

        The right to read may be taken away, and given again without any change to a policy.
        """
        await self.policies.reflector.synced.wait()
        while True:
            if self._waits_to_know and self.policies.is_known:
                self._waits_to_know = False
                for namespace in list(self._refused):
                    for pod in list(self._refused.get(namespace, ())):
                        self._ports.wake(pod)
            await asyncio.sleep(KNOWN_SECONDS)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for place in self.population.places():
                self._look_at(place.namespace)

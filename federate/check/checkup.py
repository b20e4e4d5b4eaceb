"""Check both ends step by step, side by side, and then what concerns them together.

Between the readers, which ask, and the judges, which decide. Every step has a bound in time and
ends with a result whatever happens, and one end's trouble never keeps the other from being looked
at. Nothing is written anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from federate.check import readers
from federate.check.access import judge_rights, questions
from federate.check.accounts import account_of_mirrors, judge_accounts, say_accounts
from federate.check.connection import (
    WayFacts,
    judge_clock,
    judge_skew,
    judge_target_version,
    judge_user,
    judge_way,
)
from federate.check.findings import Finding, FindingId, StepResult
from federate.check.hubaddress import (
    API_NAME,
    judge_hub_address,
    judge_hub_names,
    judge_no_authorities,
    place_of,
)
from federate.check.identity import (
    Identities,
    judge_hub_identity,
    judge_leader,
    judge_node,
    judge_target_identity,
    say_identity,
)
from federate.check.kubeletapi import (
    address_of,
    judge_beforehand,
    judge_probe,
    judge_serving,
    port_of,
)
from federate.check.legs import walk
from federate.check.ranges import judge_ranges
from federate.check.rights import (
    Circumstances,
    Feature,
    Side,
    circumstances_of,
    rights,
    usual_features,
)
from federate.check.storage import judge_hub_classes, judge_target_classes
from federate.check.workloads import (
    expected_traits,
    judge_budgets,
    judge_daemonsets,
    judge_services,
    judge_taints,
    judge_target_namespaces,
)
from federate.cluster.port import ClusterPort
from federate.cluster.sessions import Access
from federate.cluster.upstream import Reply, UpstreamCall
from federate.companions.environment import Advertised
from federate.companions.rules import IdentityMode
from federate.errors import (
    ClusterError,
    ConfigError,
    FederateError,
    Forbidden,
    Rejected,
    ServerFault,
    Unauthorized,
)
from federate.model.instants import parse_instant
from federate.model.marks import HUB_LABEL
from federate.model.naming import (
    NamespaceRules,
    confined_to,
    leader_lease_name,
    may_meet_hub,
)
from federate.model.objects import JsonDict, ObjectKey, key_of, labels_of, spec_of
from federate.model.resources import (
    BUDGETS,
    DAEMONSETS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
)
from federate.model.taints import Taint, taints_of_virtual_node
from federate.node.capacity import CapacityRules
from federate.node.daemonsets import NodeTraits, traits_of
from federate.runtime.identity import describe_holder
from federate.runtime.settings import Settings, TargetSettings
from federate.services.hubnames import ThroughDoor, way_to
from federate.services.ranges import Ranges, ranges_of

STEP_SECONDS = 30.0
"""One step. Requests are bounded by themselves; this bounds the many of one step."""


class Checked(ClusterPort, Protocol):
    """A client that also tells how it reaches its server."""

    async def access(self) -> Access:
        """Return how the API server is reached."""

    def stream(self, call: UpstreamCall) -> AbstractAsyncContextManager[Reply]:
        """Send a request whose reply is no JSON."""


Opened: TypeAlias = AbstractAsyncContextManager[Checked]
Answer: TypeAlias = tuple[str, tuple[Finding, ...]]
"""What a step learnt in a few words, and what is wrong."""
Step: TypeAlias = tuple[str, Callable[[], Awaitable[Answer]]]
"""What a step is called, and what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPoint:
    """One cluster to be checked: how to open it, and what its kubeconfig is called."""

    name: str
    where: str
    open: Callable[[], Opened]


@dataclass(slots=True, kw_only=True)
class Known:
    """What one end has told so far."""

    client: Checked | None = None
    way: WayFacts | None = None
    user: str = ""
    version: str = ""
    uid: str = ""
    told_by_namespaces: frozenset[str] = frozenset()
    is_usable: bool = True
    """Whether later steps have something to ask."""
    ranges: Ranges = field(default_factory=Ranges)
    nodes: dict[str, JsonDict | None] = field(default_factory=dict)
    """On the hub, by name: the virtual nodes, or None where there is none."""
    is_identified: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once `uid` is as it stays."""


Results: TypeAlias = asyncio.Queue[StepResult | None]


async def check_all(
    settings: Settings,
    *,
    hub: EndPoint,
    targets: Mapping[str, EndPoint],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    step_seconds: float = STEP_SECONDS,
) -> AsyncIterator[StepResult]:
    """Check the hub, every target, and what concerns both; yields results end by end.

    All ends are asked at once: a later one's results wait until those before are told.
    """
    timing = _Timing(now=now, step_seconds=step_seconds)
    ends = [_HubCheck(hub, settings, timing)]
    hub_known = ends[0].known
    others = [
        _TargetCheck(targets[one.name], one, timing, hub=hub_known, hub_name=settings.hub_identity)
        for one in settings.targets
    ]
    async with asyncio.TaskGroup() as group:
        for end in (*ends, *others):
            group.create_task(end.run(), name=f"check-{end.point.name}")
        for end in (*ends, *others):
            while (result := await end.results.get()) is not None:
                yield result
    for other in others:
        for result in _check_pair(settings, hub_known, other):
            yield result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timing:
    now: Callable[[], datetime]
    step_seconds: float


class _End:
    """The steps every end has: the way there, clock, user, version."""

    def __init__(self, point: EndPoint, timing: _Timing) -> None:
        self.point = point
        self.known = Known()
        self.results: Results = asyncio.Queue()
        self._now = timing.now
        self._step_seconds = timing.step_seconds

    def later_steps(self) -> list[Step]:
        """Return what is asked once the server knows us."""
        raise NotImplementedError

    async def run(self) -> None:
        """Take all steps, the later ones only where the earlier ones led somewhere."""
        try:
            async with self.point.open() as client:
                self.known.client = client
                self._tell("kubeconfig", (self.point.where, ()))
                await self._look(client)
        except ConfigError as error:
            fix = "correct the kubeconfig, or name another"
            finding = Finding(id=FindingId.KUBECONFIG_UNUSABLE, what=str(error), fix=fix)
            self._tell("kubeconfig", ("", (finding,)))
            self.known.is_usable = False
            self._skip("connection", "clock", "login", "version")
            self._skip(*(name for name, _ in self.later_steps()))
        finally:
            self.known.is_identified.set()
            self.results.put_nowait(None)

    async def _look(self, client: Checked) -> None:
        await self._step("connection", lambda: self._connection(client))
        if self.known.way is None or self.known.way.failed is not None:
            self.known.is_usable = False
            self._skip("clock")
        else:
            await self._step("clock", self._clock)
        for name, work in (
            ("login", lambda: self._login(client)),
            ("version", lambda: self._version(client)),
            *self.later_steps(),
        ):
            if self.known.is_usable:
                await self._step(name, work)
            else:
                self._skip(name)

    async def _connection(self, client: Checked) -> Answer:
        way = await walk(await client.access(), where=self.point.where, now=self._now)
        self.known.way = way
        through = f" through {way.proxy}" if way.proxy else ""
        return f"{way.server}{through}", judge_way(way, now=self._now())

    async def _clock(self) -> Answer:
        assert self.known.way is not None  # noqa: S101 - the step comes after
        findings = judge_clock(self.known.way)
        return ("" if findings else "in step with this host's"), findings

    async def _login(self, client: Checked) -> Answer:
        try:
            self.known.user = await readers.read_user(client)
        except FederateError:
            self.known.is_usable = False
            raise
        findings = judge_user(self.known.user, where=self.point.where)
        self.known.is_usable = not findings
        return self.known.user or "accepted", findings

    async def _version(self, client: Checked) -> Answer:
        self.known.version = await readers.read_version(client)
        return self.known.version, ()

    async def _rights(self, around: Circumstances) -> Answer:
        client = self._client
        asked = questions(rights(around))
        try:
            answers = await readers.ask_all(client, asked)
        except (Forbidden, Rejected, ServerFault):
            by_rules = await readers.ask_by_rules(client, asked)
            if by_rules is None:
                return "", (_rights_unknown(self.point.name),)
            answers = by_rules
        granted = sum(answers.values())
        findings = judge_rights(answers, around, user=self.known.user)
        return f"{granted} of {len(asked)} granted", findings

    @property
    def _client(self) -> Checked:
        assert self.known.client is not None  # noqa: S101 - asked only while it is open
        return self.known.client

    async def _step(self, name: str, work: Callable[[], Awaitable[Answer]]) -> None:
        try:
            async with asyncio.timeout(self._step_seconds):
                answer = await work()
        except TimeoutError:
            answer = ("", (_timed_out(self.point.name, self._step_seconds),))
        except ClusterError as error:
            answer = ("", (_failed(error, self.point),))
        self._tell(name, answer)

    def _tell(self, name: str, answer: Answer) -> None:
        said, findings = answer
        self.results.put_nowait(
            StepResult(end=self.point.name, step=name, said=said, findings=findings)
        )

    def _skip(self, *names: str) -> None:
        for name in names:
            self.results.put_nowait(StepResult(end=self.point.name, step=name, is_skipped=True))


class _HubCheck(_End):
    def __init__(self, point: EndPoint, settings: Settings, timing: _Timing) -> None:
        super().__init__(point, timing)
        self._settings = settings

    def later_steps(self) -> list[Step]:
        steps: list[Step] = [("identity", self._identity), ("rights", self._hub_rights)]
        for target in self._settings.targets:
            steps.append((f"node {target.name}", _bind(self._node, target)))
            steps.append((f"leader {target.name}", _bind(self._leader, target)))
            steps.append((f"kubelet {target.name}", _bind(self._kubelet, target)))
            if target.companions.identity is IdentityMode.HUB:
                steps.append((f"hub address {target.name}", _bind(self._hub_address, target)))
        if any(target.claims.are_made for target in self._settings.targets):
            steps.append(("storage", self._storage))
        return [*steps, ("daemonsets", self._daemonsets), ("addresses", self._addresses)]

    async def _identity(self) -> Answer:
        self.known.uid = await readers.read_identity(self._client)
        self.known.is_identified.set()
        return self.known.uid, judge_hub_identity(self.known.uid)

    async def _hub_rights(self) -> Answer:
        targets = self._settings.targets
        is_confined = all(confined_to(target.namespaces) is not None for target in targets)
        around = circumstances_of(
            Side.HUB,
            node_names=[target.name for target in targets],
            namespaces=NamespaceRules(),
            capacity=CapacityRules(),
            leader_lease_namespace=self._settings.leader_lease_namespace,
            features=features_of(*targets, is_confined=is_confined),
        )
        return await self._rights(around)

    async def _node(self, target: TargetSettings) -> Answer:
        name = target.name
        node = await readers.read_object(self._client, NODES, ObjectKey("", name))
        self.known.nodes[name] = node
        open_to_all = judge_taints(name, _taints(target))
        if node is None:
            return "free", open_to_all
        found = judge_node(identities_of(self._settings, target, hub=self.known))
        return ("" if found else "registered by federate"), (*found, *open_to_all)

    async def _leader(self, target: TargetSettings) -> Answer:
        namespace = self._settings.leader_lease_namespace
        key = ObjectKey(namespace, leader_lease_name(target.name))
        lease = await readers.read_object(self._client, LEASES, key)
        spec = spec_of(lease or {})
        renewed_at = parse_instant(str(spec.get("renewTime") or ""))
        silent = (self._now() - renewed_at).total_seconds() if renewed_at else None
        findings = judge_leader(lease, silent)
        holder = describe_holder(str(spec.get("holderIdentity") or ""))
        return ("" if findings else holder), findings

    async def _kubelet(self, target: TargetSettings) -> Answer:
        """Go the way of `kubectl logs` and `exec`."""
        node = self.known.nodes.get(target.name)
        if not target.kubelet.is_served:
            return "not served, by its configuration", ()
        if node is None:
            return "no Node yet", judge_beforehand(self.known.version)
        serving = judge_serving(node, name=target.name)
        port = port_of(node)
        if not port:
            return "the Node tells no port", serving
        address = f"{address_of(node)}:{port}"
        probe = await readers.probe_kubelet(self._client.stream, target.name)
        found = judge_probe(probe, name=target.name, address=address, version=self.known.version)
        return ("" if found else f"the hub reaches it at {address}"), (*serving, *found)

    async def _hub_address(self, target: TargetSettings) -> Answer:
        """Go the way of pods in the target to the hub's API server, as far as it begins here."""
        advertised = target.companions.advertised
        assert advertised is not None  # noqa: S101 - identity hub has one
        access = await readers.read_access_of_pods(self._client, advertised)
        if access is None:
            return "", (judge_no_authorities(target_name=target.name),)
        way = await walk(access, where="the configuration", now=self._now)
        found = judge_hub_address(way, target_name=target.name)
        if not found:
            named = replace(access, server_hostname=API_NAME)
            way = await walk(named, where="the configuration", now=self._now)
            found = judge_hub_names(way, target_name=target.name)
        return ("" if found else f"{place_of(advertised)} answers as the hub"), found

    async def _storage(self) -> Answer:
        serving: dict[str, list[str]] = {}
        for target in self._settings.targets:
            for name in target.claims.storage_classes if target.claims.are_made else ():
                serving.setdefault(name, []).append(target.name)
        found = await readers.read_storage_classes(self._client, serving)
        findings = judge_hub_classes(found, serving)
        return ("" if findings else ", ".join(sorted(serving))), findings

    async def _daemonsets(self) -> Answer:
        found = await readers.read_everywhere(self._client, DAEMONSETS)
        findings = tuple(
            finding
            for target in self._settings.targets
            for finding in judge_daemonsets(found, self._traits(target), target.policy.daemon_sets)
        )
        return ("" if findings else f"none of {len(found)} tolerates a virtual node"), findings

    def _traits(self, target: TargetSettings) -> NodeTraits:
        node = self.known.nodes.get(target.name)
        if node is not None:
            return traits_of(node)
        return expected_traits(
            target.name,
            labels=target.labels,
            taints=_taints(target),
        )

    async def _addresses(self) -> Answer:
        self.known.ranges = ranges_of(await readers.read_range_sources(self._client))
        return self.known.ranges.say(), ()


class _TargetCheck(_End):
    def __init__(
        self,
        point: EndPoint,
        target: TargetSettings,
        timing: _Timing,
        *,
        hub: Known,
        hub_name: str | None,
    ) -> None:
        """`hub_name` is what marks call the hub where that is not its uid."""
        super().__init__(point, timing)
        self.target = target
        self._confined_to = confined_to(target.namespaces) or ()
        self._missing: frozenset[str] = frozenset()
        """Namespaces that were given and are not there."""
        self._hub, self._hub_name = hub, hub_name

    def later_steps(self) -> list[Step]:
        return [
            ("identity", self._identity),
            ("rights", self._target_rights),
            ("namespaces", self._namespaces),
            ("account", self._account),
            ("selectors", self._selectors),
            *([("storage", self._storage)] if self.target.claims.are_made else ()),
            ("addresses", self._addresses),
        ]

    async def _version(self, client: Checked) -> Answer:
        said, _ = await super()._version(client)
        return said, judge_target_version(said)

    async def _identity(self) -> Answer:
        """Read all that a target may be on record as; it is compared when the hub has told."""
        self.known.uid = await readers.read_identity(self._client)
        self.known.told_by_namespaces = await readers.read_namespace_identities(
            self._client, self._confined_to
        )
        names = sorted(self.known.told_by_namespaces)
        return self.known.uid or ", ".join(names) or "not to be read", ()

    async def _target_rights(self) -> Answer:
        around = circumstances_of(
            Side.TARGET,
            node_names=(),
            namespaces=self.target.namespaces,
            capacity=self.target.capacity,
            target_account=self.target.companions.target_account,
            has_door=has_door(self.target.companions.advertised),
            features=features_of(self.target, is_confined=bool(self._confined_to)),
        )
        return await self._rights(around)

    async def _namespaces(self) -> Answer:
        if self._confined_to:
            found, missing = await readers.read_namespaces(self._client, self._confined_to)
        else:
            found, missing = await self._made(), []
        self._missing = frozenset(missing)
        findings = judge_target_namespaces(found, missing=missing)
        return ("" if findings else f"{len(found)} in use"), findings

    async def _account(self) -> Answer:
        """Look at the account that mirrors run as, where they run or shall."""
        name = account_of_mirrors(self.target.companions)
        namespaces = [one for one in self._confined_to if one not in self._missing]
        if not self._confined_to:
            await self._hub.is_identified.wait()  # namespaces of other hubs are no matter of ours
            hub = self._hub_name or self._hub.uid
            made = await self._made()
            namespaces = [key_of(one).name for one in made if labels_of(one)[HUB_LABEL] == hub]
        found = await readers.read_accounts(self._client, namespaces, name)
        findings = judge_accounts(found, name)
        return ("" if findings else say_accounts(found, name)), findings

    async def _made(self) -> list[JsonDict]:
        return await readers.read_everywhere(self._client, NAMESPACES, label_selector=HUB_LABEL)

    async def _selectors(self) -> Answer:
        """Look for what selects mirrors: budgets and Services, where mirrors are."""
        mirrors = await readers.read_everywhere(
            self._client,
            PODS,
            namespaces=self._confined_to,
            label_selector=HUB_LABEL,
            metadata_only=True,
        )
        findings: list[Finding] = []
        for resource, judge in (
            (BUDGETS, judge_budgets),
            (SERVICES, judge_services),
        ):
            try:
                found = await readers.read_everywhere(
                    self._client, resource, namespaces=self._confined_to
                )
            except Forbidden as error:
                findings.append(_failed(error, self.point))
            else:
                findings += judge(found, mirrors)
        said = f"none of budgets and Services selects one of {len(mirrors)} mirrors"
        return ("" if findings else said), tuple(findings)

    async def _storage(self) -> Answer:
        names = {name for name in self.target.claims.storage_classes.values() if name}
        found = await readers.read_storage_classes(self._client, sorted(names))
        findings = judge_target_classes(found, target_name=self.target.name)
        return ("" if findings else ", ".join(sorted(names))), findings

    async def _addresses(self) -> Answer:
        self.known.ranges = ranges_of(await readers.read_range_sources(self._client))
        return self.known.ranges.say(), ()


def _taints(target: TargetSettings) -> tuple[Taint, ...]:
    return taints_of_virtual_node(
        value=target.taint_value, effect=target.taint_effect, more=target.taints
    )


def _bind(
    step: Callable[[TargetSettings], Awaitable[Answer]], target: TargetSettings
) -> Callable[[], Awaitable[Answer]]:
    return lambda: step(target)


def features_of(*targets: TargetSettings, is_confined: bool) -> frozenset[Feature]:
    """Return what these targets use together."""
    served = [target.kubelet for target in targets if target.kubelet.is_served]
    come_along = [target.companions for target in targets if target.companions.are_made]
    used = {
        Feature.KUBELET: bool(served),
        Feature.APPROVE: any(one.serving.approves for one in served),
        Feature.COMPANIONS: bool(come_along),
        Feature.POD_IDENTITY: any(one.identity is IdentityMode.HUB for one in come_along),
        Feature.CLAIMS: any(target.claims.are_made for target in targets),
        Feature.ADDRESSES: any(target.network.shows_addresses for target in targets),
        Feature.SERVICES: any(target.network.is_followed for target in targets),
        Feature.NETWORK_POLICIES: any(target.network.heeds_policies for target in targets),
    }
    found = set(usual_features(is_confined=is_confined))
    for feature, is_used in used.items():
        (found.add if is_used else found.discard)(feature)
    return frozenset(found)


def has_door(advertised: Advertised | None) -> bool:
    """Tell whether a Service of the target leads to the hub's API server."""
    return advertised is not None and isinstance(way_to(advertised), ThroughDoor)


def identities_of(
    settings: Settings, target: TargetSettings, *, hub: Known, known: Known | None = None
) -> Identities:
    """Put together what is known of both ends' identities."""
    return Identities(
        hub=hub.uid,
        hub_name=settings.hub_identity or "",
        target=known.uid if known is not None else "",
        told_by_namespaces=known.told_by_namespaces if known is not None else frozenset(),
        node_name=target.name,
        node=hub.nodes.get(target.name),
        may_meet_hub=may_meet_hub(target.namespaces),
    )


def _check_pair(settings: Settings, hub: Known, other: _TargetCheck) -> list[StepResult]:
    """Judge what concerns a target and the hub together, as far as both ends told."""
    target, known = other.target, other.known
    if not (hub.is_usable and known.is_usable):
        return [
            StepResult(end=target.name, step=step, is_skipped=True)
            for step in ("hub and target", "versions", "ranges")
        ]
    both = identities_of(settings, target, hub=hub, known=known)
    return [
        StepResult(
            end=target.name,
            step="hub and target",
            said=say_identity(both),
            findings=judge_target_identity(both),
        ),
        StepResult(
            end=target.name,
            step="versions",
            said=f"hub {hub.version}, target {known.version}",
            findings=judge_skew(hub=hub.version, target=known.version),
        ),
        StepResult(
            end=target.name,
            step="ranges",
            findings=judge_ranges(hub.ranges, known.ranges, target_name=target.name),
        ),
    ]


def _rights_unknown(name: str) -> Finding:
    return Finding(
        id=FindingId.RIGHTS_UNKNOWN,
        what=f"{name} does not say what we may do: it may use an authorizer other than RBAC",
        fix="let every user create selfsubjectaccessreviews (ClusterRole system:basic-user)",
    )


def _timed_out(name: str, seconds: float) -> Finding:
    return Finding(
        id=FindingId.STEP_TIMED_OUT,
        what=f"{name} did not answer within {seconds:g} s",
        fix="see whether its API server is overloaded, and check again",
    )


def _failed(error: ClusterError, point: EndPoint) -> Finding:
    match error:
        case Unauthorized():
            return Finding(
                id=FindingId.NOT_AUTHENTICATED,
                what=f"{point.name} does not accept the credentials of {point.where}",
                fix="renew them; a cluster built anew has new ones",
            )
        case Forbidden():
            side = "hub" if point.name == "hub" else "target"
            return Finding(
                id=FindingId.NOT_READABLE,
                what=f"not known: {error}",
                fix=f"federate rbac --side {side} --with check | kubectl apply -f -",
            )
        case _:
            return Finding(
                id=FindingId.STEP_FAILED,
                what=str(error),
                fix="see what the server says, and check again",
            )

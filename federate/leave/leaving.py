"""Leave a target for good, step by step (C15): drain, retire, clear, and the Node last.

    mark      cordon the Node and say that it is being left: nothing new is mirrored
    drain     evict the hub pods; whoever leads ends their mirrors
    retire    mark the leader lease: a running federate stops, and the command leads
    finish    one more look at pods and mirrors, now that nobody else acts
    clear     companions, namespaces and anchors in the target; the command only holds the lease
    forget    the Node; and the leader lease, which was held so long, last

Killed anywhere, the same command goes on: each step looks at what is there. Until it retires the
lease, a running federate goes on serving the virtual node, and taking off cordon and mark calls all
off. Where the Node is gone already, what may be left of it is cleared all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from federate.cluster.port import ClusterPort
from federate.companions.rules import CompanionRules
from federate.leave.clearing import TargetClearing, remove_node, remove_node_lease
from federate.leave.drain import Drain, DrainRules, Hub, free_rest
from federate.leave.plan import Found
from federate.leave.progress import Progress
from federate.leave.replica import ReplicaPorts, leading, rules_told_by, settings_of
from federate.leave.survey import TargetGuard, find_node, known_namespaces, survey_of
from federate.leave.tenure import Body, Tenure, idle, remove_left_lease
from federate.leave.waiting import Patience, looking
from federate.model.instants import format_instant
from federate.model.objects import JsonObject, ObjectKey, key_of
from federate.model.resources import NODES
from federate.node.leaving import leaving_patch


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavePorts:
    """What a leaving acts through."""

    hub: Hub
    hub_id: str
    """What the hub is called in marks, where no Node says it."""
    is_hub_only_said: bool = False
    """Whether that is a name that the user gave, and not the hub's own uid."""
    lease_key: ObjectKey
    """The leader lease."""
    confirm_hub: Callable[[], Awaitable[None]]
    identity: str
    """This command in the leader lease."""
    progress: Progress
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class HubSide:
    """What both ways of leaving do on the hub."""

    def __init__(self, found: Found, ports: LeavePorts, patience: Patience) -> None:
        self._found = found
        self._name = found.scope.node_name
        self._ports = ports
        self._patience = patience

    async def mark(self) -> None:
        """Keep the Node cordoned and marked; one that was registered anew too."""
        node = await find_node(self._ports.hub, self._name)
        patch = None if node is None else leaving_patch(node, now=self.now())
        if patch is not None:
            await self._ports.hub.patch(NODES, ObjectKey("", self._name), patch)

    def tenure(self, body: Body = idle) -> Tenure:
        """Stand for election, with what runs once it is won."""
        return Tenure(
            hub=self._ports.hub,
            key=self._ports.lease_key,
            identity=self._ports.identity,
            confirm_hub=self._ports.confirm_hub,
            now=self._ports.now,
            body=body,
        )

    async def retire(self, tenure: Tenure) -> None:
        """Have everybody else stop, and lead ourselves."""

        async def attempt() -> str:
            if await tenure.is_retired():
                return ""
            if tenure.election.is_leading and tenure.seen_in_seconds:
                return "its lease is marked; everybody else is given time to see it"
            return f"leader: {tenure.holder or 'nobody yet'}"

        await self.step("a running federate gives up the virtual node", attempt)

    async def rest(self, tenure: Tenure) -> None:
        """Do nothing as the leader any more, and stay it: so nobody else acts until the end."""

        async def attempt() -> str:
            return "" if await tenure.is_resting() else f"leader: {tenure.holder or 'nobody yet'}"

        await self.step("nothing but the leader lease is held", attempt)

    async def forget_node(self, tenure: Tenure) -> None:
        """Remove node lease and Node while we hold the leader lease: nobody registers it anew."""

        async def attempt() -> str:
            hub = self._ports.hub
            await tenure.confirm_held()
            if (node := await find_node(hub, self._name)) is not None:
                await remove_node_lease(hub, node)
                tenure.election.fence()
                if state := await remove_node(hub, node):
                    return state
                if await find_node(hub, self._name) is not None:
                    return "another one is there"
            await free_rest(hub, self._name)
            return ""

        await self.step("removing the Node", attempt)

    async def forget_lease(self) -> None:
        """Remove the leader lease, which was given back with its mark.

        A federate that is started with this virtual node meanwhile finds the mark.
        """

        async def attempt() -> str:
            return await remove_left_lease(
                self._ports.hub,
                self._ports.lease_key,
                identity=self._ports.identity,
                node_name=self._name,
            )

        await self.step("removing the leader lease", attempt)

    async def step(self, name: str, attempt: Callable[[], Awaitable[str]]) -> None:
        """Carry one step out, and tell of it."""
        self._ports.progress.begin(name)
        await self._patience.until(name, attempt)
        self._ports.progress.done()

    def now(self) -> str:
        """Return the time as it is written down."""
        return format_instant(self._ports.now())


class Leaving(HubSide):
    """One leaving with the target at hand."""

    def __init__(
        self,
        found: Found,
        *,
        target: ClusterPort,
        rules: DrainRules,
        ports: LeavePorts,
        patience: Patience,
        companions: CompanionRules | None = None,
    ) -> None:
        """`companions` are those of `federate run`; None: as what came along tells of them."""
        super().__init__(found, ports, patience)
        self._companions = companions or rules_told_by(found.brought)
        self._target = target
        self._rules = rules
        self._guard = TargetGuard(ports.hub, target, found)
        self._survey = survey_of(target, found)
        self._clearing = TargetClearing(
            hub=ports.hub,
            target=target,
            scope=found.scope,
            survey=self._survey,
            confirm_hub=ports.confirm_hub,
            confirm_target=self._confirm,
            fence=lambda: self._tenure.election.fence(),
            pause=patience.pause,
        )
        self._tenure = self.tenure()

    async def _confirm(self) -> None:
        """Make sure, right before something goes, that it is that target and nobody else leads."""
        await self._guard.confirm()
        await self._tenure.confirm_held()

    async def run(self) -> None:
        """Leave; returns once nothing of the virtual node is left on either side.

        Raises:
            FederateError: it could not go on; what is done stays done.
        """
        async with looking(self._ports.progress, f"looking at {self._target.name}"):
            await self._guard.confirm()
            await self._survey.mirrors()  # to learn how far the rights reach
        for name in sorted(self._survey.closed):
            self._ports.progress.note(
                f"namespace {name} may not be looked into, and but for pods nobody tells of it"
            )
        node = self._found.node
        if node is None:
            node = await self._finish_without_node()
        if node is not None:
            await self._finish(node)
        await self.forget_lease()

    async def _finish(self, node: JsonObject) -> None:
        confined = self._survey.namespaces if self._survey.is_confined else ()
        settings = settings_of(node, confined_to=confined, companions=self._companions)
        replica = ReplicaPorts(
            hub=self._ports.hub,
            target=self._target,
            confirm_hub=self._ports.confirm_hub,
            identity=self._ports.identity,
        )
        await self.mark()
        tenure = self._tenure = self.tenure(leading(settings, self._found.scope, replica))
        drain = Drain(self._ports.hub, self._name, self._rules, before=self.mark)
        async with tenure.standing():
            await self.step(f"draining {self._name}", drain.step)
            await self.retire(tenure)
            await self.step("the last pods", lambda: drain.step(self._survey))
            await self.step(f"mirrors in {self._target.name}", self._clearing.mirrors)
            await self.rest(tenure)
            await self._clear()
            await self.forget_node(tenure)

    async def _finish_without_node(self) -> JsonObject | None:
        """See that nobody leads, and clear the target; the hub's pod GC removes the hub pods.

        Returns the Node where a federate that still ran has registered it again: then nothing is
        cleared yet.
        """
        tenure = self._tenure = self.tenure()
        async with tenure.standing():
            await self.retire(tenure)
            node = await find_node(self._ports.hub, self._name)
            if node is None:
                await self.rest(tenure)
                await self.step(f"mirrors in {self._target.name}", self._clearing.mirrors)
                await self._clear()
                await self.forget_node(tenure)
        return node

    async def _clear(self) -> None:
        known = known_namespaces(self._found)
        await self.step(f"Services in {self._target.name}", self._clearing.services)
        await self.step(f"companions in {self._target.name}", self._clearing.companions)
        for kind, why in sorted(self._clearing.left_to_anchors.items()):
            self._ports.progress.note(f"{kind}s that came along go with their anchors: {why}")

        async def namespaces() -> str:
            anchors = await self._survey.anchors()
            return await self._clearing.namespaces(
                known | {key_of(anchor).namespace for anchor in anchors}
            )

        await self.step(f"namespaces in {self._target.name}", namespaces)
        for name, why in sorted(self._clearing.kept.items()):
            self._ports.progress.note(f"namespace {name} stays: {why}")
        await self.step(f"anchors in {self._target.name}", self._clearing.anchors)

"""One virtual node: stands by, leads, and starts again after a crash.

A crash of any part ends the virtual node cleanly, and `run` starts it again with back-off. Nothing
is shared with other virtual nodes but the hub client, so one bad target never slows another (C2).
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.identity import IdentityGuard, cluster_identity
from federate.cluster.port import ClusterPort
from federate.cluster.recorder import Recorder, ref_to
from federate.errors import (
    ClusterError,
    ConfigError,
    Forbidden,
    LeadershipLost,
    TargetChanged,
    Unreachable,
    VirtualNodeLeft,
)
from federate.model.marks import Scope
from federate.model.naming import leader_lease_name, may_meet_hub
from federate.model.objects import JsonObject, ObjectKey
from federate.model.resources import PODS, Resource
from federate.node.anchors import NodeAnchors
from federate.runtime.election import STANDBY_PERIOD_SECONDS, Election
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Telemetry
from federate.runtime.together import run_together
from federate.services.ranges import RangeSources

log = structlog.stdlib.get_logger(__name__)

RESTART_BASE_SECONDS = 1.0
RESTART_CAP_SECONDS = 60.0
CALM_SECONDS = 120.0
"""A virtual node that lived this long starts its back-off anew."""

ADDRESS_SECONDS = 30.0
"""How often this host's address is looked at."""

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all virtual nodes of the process share."""

    hub: ClusterClient
    hub_id: str
    """What the hub is called in marks."""
    hub_uid: str
    """The uid of its kube-system namespace; the same, unless configured otherwise."""
    hub_guard: IdentityGuard
    identity: str
    find_address: Callable[[], str]
    """Tells this host's address towards the hub; may ask DNS. LOOPBACK where there is no way."""
    leader_lease_namespace: str
    federate_version: str
    telemetry: Telemetry
    read_daemonsets: Callable[[], Awaitable[Sequence[JsonObject] | None]]
    read_hub_ranges: Callable[[], Awaitable[RangeSources]]
    """Lists the hub's DaemonSets for all of them; None where that is not allowed."""


class PodEvents:
    """Events about hub pods; satisfies `mirror.ports.EventSink`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def event(
        self, regarding: JsonObject, *, reason: str, note: str, action: str, warning: bool = True
    ) -> None:
        """Note one Event."""
        self._recorder.event(
            ref_to(PODS, regarding),
            reason=reason,
            note=note,
            action=action,
            type="Warning" if warning else "Normal",
        )


class ObjectEvents:
    """Events about other objects of the hub; satisfies `mirror.ports.ObjectEventSink`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

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
        """Note one Event."""
        self._recorder.event(
            ref_to(resource, regarding),
            reason=reason,
            note=note,
            action=action,
            type="Warning" if warning else "Normal",
        )


class VirtualNode:
    """One target's stand-in on the hub, from the process's start to its end."""

    def __init__(
        self,
        settings: TargetSettings,
        surroundings: Surroundings,
        *,
        is_strict: Callable[[], bool] = lambda: True,
    ) -> None:
        """While `is_strict`, what only the user can mend is raised; else it is tried again."""
        self._is_strict = is_strict
        self.settings = settings
        self.scope = Scope(hub_id=surroundings.hub_id, node_name=settings.name)
        self._around = surroundings
        self.election = Election(
            hub=surroundings.hub,
            key=ObjectKey(surroundings.leader_lease_namespace, leader_lease_name(settings.name)),
            identity=surroundings.identity,
            confirm_hub=surroundings.hub_guard.confirm,
            now=_now,
        )
        self.leading: Leading | None = None
        self.trouble = ""
        self.is_ending = False
        """Set with the cancellation, whose place a failure on the way out may take."""
        self.is_left = False
        """`federate leave` retired it: it does nothing more until it leaves the configuration."""
        self._memory: NodeAnchors | None = None
        self._may_live = False
        self._watch_gauges()

    @property
    def is_ready(self) -> bool:
        """Tell whether it does its part: announced as the leader, standing by, or retired."""
        if self.is_left:
            return True
        if self.trouble:
            return False
        if self.leading is not None:
            return self.leading.is_announced
        return bool(self.election.holder) and not self.election.is_leading

    async def run(self) -> None:
        """Live until cancelled; crashes are logged and answered by a new start.

        Raises:
            ConfigError: what only the user can mend, found at the start.
        """
        failures = 0
        with structlog.contextvars.bound_contextvars(node=self.settings.name):
            while True:
                started_at = asyncio.get_running_loop().time()
                await self._live_once()
                if self.is_ending:
                    raise asyncio.CancelledError
                if self.is_left:
                    await asyncio.Event().wait()
                lived = asyncio.get_running_loop().time() - started_at
                failures = 1 if lived > CALM_SECONDS else failures + 1
                pause = min(RESTART_CAP_SECONDS, RESTART_BASE_SECONDS * 2.0 ** (failures - 1))
                await self._back_off(pause * random.uniform(0.8, 1.2))  # noqa: S311
                if self.is_left:
                    await asyncio.Event().wait()

    async def _back_off(self, seconds: float) -> None:
        """Wait, and look at the lease as a standby does: `federate leave` may mark it meanwhile."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds
        try:
            while (left_seconds := ends_at - clock()) > STANDBY_PERIOD_SECONDS:
                await asyncio.sleep(STANDBY_PERIOD_SECONDS)
                await self.election.look_for_mark()
            await asyncio.sleep(max(0.0, left_seconds))
        except VirtualNodeLeft as left:
            self._retire(left)

    def _retire(self, left: VirtualNodeLeft) -> None:
        self.is_left = True
        log.warning("virtual node retired: nothing is done for it any more", why=str(left))

    async def _live_once(self) -> None:
        try:
            await self._live()
        except VirtualNodeLeft as left:
            self._retire(left)
        except LeadershipLost as lost:
            self.trouble = str(lost)
            log.warning("leadership lost: all its work was stopped", error=str(lost))
        except ConfigError as error:
            if not self._may_live and self._is_strict():
                raise
            # Found later, it ends neither the other virtual nodes nor this one.
            self.trouble = str(error)
            log.warning("virtual node cannot start; trying again", error=str(error))
        except ClusterError as error:
            self.trouble = str(error)
            log.warning("virtual node ended; starting again", error=str(error))
        except Exception as error:  # the supervised edge of C13
            self.trouble = f"{type(error).__name__}: {error}"
            log.exception("virtual node crashed; starting again")

    async def _live(self) -> None:
        moved = asyncio.Event()
        target = await connect(
            self.settings.kubeconfig,
            name=self.settings.name,
            context=self.settings.context,
            observer=self._around.telemetry.metrics.request_observer(self.settings.name),
            on_moved=moved.set,
        )
        self._around.telemetry.metrics.watch_credentials(
            self.settings.name, target.credential_expiry
        )
        # A new life: what ended the last one is over, and who leads now is to be seen.
        self.trouble, self.election.holder = "", ""
        try:
            is_distinct = asyncio.Event()
            await run_together(
                lambda: self._refuse_self(target, is_distinct),
                lambda: self._end_when_moved(moved),
                lambda: self.election.lead(lambda: self._lead(target, is_distinct)),
            )
        except TargetChanged:
            # The next life begins within moments; should the Node be deleted meanwhile, what it
            # remembered is kept.
            self._memory = self.leading.register if self.leading is not None else None
            raise
        finally:
            self.leading = None
            self._around.telemetry.metrics.forget_node(self.settings.name)
            self._watch_gauges()  # without those of the leader that is no more
            await target.aclose()

    async def _end_when_moved(self, moved: asyncio.Event) -> None:
        """End this life when the kubeconfig leads elsewhere: only a new client goes there (C72).

        And nothing is written there before the new life has seen who it is (C5).
        """
        await moved.wait()
        raise TargetChanged("the kubeconfig of the target leads to another address now")

    async def _lead(self, target: ClusterClient, is_distinct: asyncio.Event) -> None:
        address = self.settings.node_address
        if address is None:
            address = await asyncio.to_thread(self._around.find_address)
        memory, self._memory = self._memory, None
        recorder = Recorder(self._around.hub, instance=self._around.identity)
        self.leading = Leading(
            self.settings,
            scope=self.scope,
            ports=LeadingPorts(
                hub=self._around.hub,
                target=target,
                events=PodEvents(recorder),
                object_events=ObjectEvents(recorder),
                fence=self.election.fence,
                confirm_hub=self._around.hub_guard.confirm,
                metrics=self._around.telemetry.metrics,
                is_distinct=is_distinct,
                credential_expiry=target.credential_expiry,
                open_call=target.stream,
                read_daemonsets=self._around.read_daemonsets,
                read_hub_ranges=self._around.read_hub_ranges,
            ),
            node_address=address,
            federate_version=self._around.federate_version,
            memory=memory,
        )
        await run_together(
            recorder.run, self.leading.run, lambda: self._end_when_readdressed(address)
        )

    async def _end_when_readdressed(self, address: str) -> None:
        """End this life when this host has another address towards the hub.

        The Node, its mirrors and the kubelet API tell it, and its certificate is for it (C62).
        """
        while self.settings.node_address is None:
            await asyncio.sleep(ADDRESS_SECONDS)
            try:
                found = await asyncio.to_thread(self._around.find_address)
            except OSError as error:
                log.debug("this host's address cannot be told now", error=str(error))
                continue
            # Without a way to the hub there is nobody to tell anything to. And where routes lead
            # there by turns, an address that is still ours is as good as the other.
            if found in (address, LOOPBACK) or (address != LOOPBACK and is_of_this_host(address)):
                continue
            raise Unreachable(f"this host's address is {found} now, not {address} any more")

    async def _refuse_self(self, target: ClusterPort, is_distinct: asyncio.Event) -> None:
        """Refuse names that meet where target and hub are one cluster: of mirrors and hub pods.

        Asked while standing by too. No pod is touched before the answer (C3).
        """
        while may_meet_hub(self.settings.namespaces):
            try:
                identity = await cluster_identity(target)
            except Forbidden:
                break
            except ClusterError:
                await asyncio.sleep(1.0)
                continue
            if identity == self._around.hub_uid:
                raise ConfigError(
                    f"target {self.settings.name} is the hub itself: namespaces "
                    f"`{self.settings.namespaces.strategy}` would put mirrors beside their hub "
                    "pods. Use --namespaces prefixed"
                )
            break
        self._may_live = True
        is_distinct.set()

    def _watch_gauges(self) -> None:
        metrics, node = self._around.telemetry.metrics, {"node": self.settings.name}
        metrics.watch_gauge("federate_leader", node, lambda: float(self.election.is_leading))
        for name in ("federate_hub_pods", "federate_mirrors", "federate_target_reachable"):
            metrics.watch_gauge(name, node, lambda name=name: self._gauge(name))  # type: ignore[misc]

    def _gauge(self, name: str) -> float:
        return self.leading.gauge(name) if self.leading is not None else 0.0


def is_of_this_host(address: str) -> bool:
    """Tell whether this host has an address; what cannot be told now counts as yes.

    A bind alone does not tell: where `ip_nonlocal_bind` is set, for addresses that move between
    hosts, one may bind to any.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
            if family == socket.AF_INET:
                interface = socket.inet_aton(address)
                probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def _now() -> datetime:
    return datetime.now(UTC)

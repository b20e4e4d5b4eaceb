"""The process: one hub, many virtual nodes, their health and metrics, an orderly end.

With a configuration file the virtual nodes follow it. What belongs to the whole process is settled
at its start: a change of that is told, and waits for the next.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

import structlog

from federate import __version__
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.identity import IdentityGuard, cluster_identity
from federate.errors import ServerFault, Throttled, Unreachable
from federate.runtime.daemonsets import HubDaemonSets
from federate.runtime.following import Following
from federate.runtime.nodes import NodeGroup, Seat
from federate.runtime.settings import Settings, TargetSettings
from federate.runtime.telemetry import HealthServer, Telemetry
from federate.runtime.together import run_together
from federate.runtime.virtual_node import LOOPBACK, Surroundings, VirtualNode
from federate.services.reading import SharedRanges

log = structlog.stdlib.get_logger(__name__)

HUB_RETRY_SECONDS = 2.0

START_SECONDS = 30.0
"""What only the user can mend ends the process when it is found so soon after the start; later it
is the trouble of one virtual node, and no reason to end the others."""

HUB_KEYS = {
    "hub_kubeconfig": "hub.kubeconfig",
    "hub_context": "hub.context",
    "hub_identity": "hub.identity",
    "leader_lease_namespace": "leaderLeaseNamespace",
}
"""With another hub all is another: virtual nodes meant for it never start at this one."""

PROCESS_KEYS = {
    "listen_host": "listen",
    "listen_port": "listen",
    "log_level": "logLevel",
    "log_format": "logFormat",
}


class Process:
    """What outlives the connection to a hub."""

    def __init__(
        self,
        settings: Settings,
        *,
        telemetry: Telemetry,
        following: Following | None = None,
        on_removed: Callable[[TargetSettings], None] = lambda _target: None,
    ) -> None:
        """`on_removed` is called for a virtual node that the configuration has no more."""
        self.settings = settings
        self.telemetry = telemetry
        self.following = following
        self._on_removed = on_removed
        self._strict_until: float | None = None
        self._strict = frozenset(target.name for target in settings.targets)

    def begin(self) -> None:
        """Note when the first virtual nodes start."""
        if self._strict_until is None:
            self._strict_until = asyncio.get_running_loop().time() + START_SECONDS

    def is_strict(self, name: str) -> bool:
        """Tell whether a ConfigError of that virtual node ends the process: it is at its start."""
        until = self._strict_until
        is_early = until is not None and asyncio.get_running_loop().time() < until
        return is_early and name in self._strict

    def take_over(self, group: NodeGroup, wanted: Settings) -> bool:
        """Change the virtual nodes to those of a new configuration; tells whether that was done."""
        if hub_keys := changed_keys(self.settings, wanted, HUB_KEYS):
            log.error(
                "the configuration has another hub: nothing of it is taken over until federate is "
                "started again",
                changed=", ".join(hub_keys),
            )
            return False
        if keys := changed_keys(self.settings, wanted, PROCESS_KEYS):
            log.warning(
                "changed in the configuration; takes effect when federate is started again",
                changed=", ".join(keys),
            )
        change = group.become(wanted.targets)
        self.settings = replace(self.settings, targets=wanted.targets)
        changed = {target.name for target in (*change.restart, *change.stop)}
        self._strict -= changed
        for target in change.start:
            log.info("virtual node added: it starts", node=target.name)
        for target in change.restart:
            log.info("virtual node changed: it starts anew", node=target.name)
        for target in change.stop:
            log.warning(
                "virtual node removed: nothing is deleted, its Node and mirrors stay",
                node=target.name,
            )
            self._on_removed(target)
        return True


def changed_keys(running: Settings, wanted: Settings, keys: dict[str, str]) -> Sequence[str]:
    """Name those of `keys` (what they are called in the file by their field) that differ."""
    fields = [name for name in keys if getattr(running, name) != getattr(wanted, name)]
    return list(dict.fromkeys(keys[name] for name in fields))


async def run_process(process: Process, *, stop: asyncio.Event) -> None:
    """Serve all virtual nodes until `stop` is set; deletes nothing at the end (C15).

    Raises:
        ConfigError: what only the user can mend.
        ClusterError: the hub refuses us.
    """
    if process.following is not None:
        metrics, following = process.telemetry.metrics, process.following
        metrics.watch_gauge("federate_config_valid", {}, lambda: float(following.is_applied))
    while True:
        moved = asyncio.Event()
        hub = await connect(
            process.settings.hub_kubeconfig,
            name="hub",
            context=process.settings.hub_context,
            observer=process.telemetry.metrics.request_observer("hub"),
            on_moved=moved.set,
        )
        process.telemetry.metrics.watch_credentials("hub", hub.credential_expiry)
        try:
            await _serve(process, hub, Ends(stop=stop, moved=moved))
        finally:
            await hub.aclose()
        if stop.is_set() or not moved.is_set():
            return
        log.warning("the hub's kubeconfig leads elsewhere: all begins anew, with that hub")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What ends the service of a hub: a wish, or a kubeconfig that leads to another place.

    Another hub is never served with what was learnt from the one before.
    """

    stop: asyncio.Event
    moved: asyncio.Event


class Service:
    """The virtual nodes at one hub, as soon as it answers."""

    def __init__(self, process: Process, hub: ClusterClient) -> None:
        self._process = process
        self._hub = hub
        self._group: NodeGroup | None = None

    @property
    def seats(self) -> Sequence[Seat]:
        """Return the places of the virtual nodes; none before the hub answered."""
        return self._group.seats if self._group is not None else ()

    def ready(self) -> tuple[bool, str]:
        """Tell whether all virtual nodes do their part, and which do not."""
        if self._group is None:
            return False, "the hub does not answer yet"
        waiting = [seat.settings.name for seat in self.seats if not seat.is_ready]
        return not waiting, f"not ready: {', '.join(waiting)}" if waiting else "ok"

    async def run(self) -> None:
        """Wait for the hub, then run the virtual nodes until cancelled."""
        surroundings = await self._look_around()
        process = self._process
        group = NodeGroup(
            lambda target: VirtualNode(
                target, surroundings, is_strict=partial(process.is_strict, target.name)
            ),
            forget=process.telemetry.metrics.forget_node,
        )
        process.begin()
        self._group = group
        group.become(process.settings.targets)
        try:
            await run_together(group.fail, partial(self._follow, group))
        finally:
            await group.end()

    async def _follow(self, group: NodeGroup) -> None:
        following = self._process.following
        if following is not None:
            await following.run(partial(self._process.take_over, group))

    async def _look_around(self) -> Surroundings:
        settings, hub = self._process.settings, self._hub
        hub_uid = await _await_hub(hub)
        return Surroundings(
            hub=hub,
            hub_id=settings.hub_identity or hub_uid,
            hub_uid=hub_uid,
            hub_guard=IdentityGuard(hub, hub_uid),
            identity=settings.identity,
            find_address=partial(_address_towards, await hub.server_url()),
            leader_lease_namespace=settings.leader_lease_namespace,
            federate_version=__version__,
            telemetry=self._process.telemetry,
            read_daemonsets=HubDaemonSets(hub, clock=asyncio.get_running_loop().time).read,
            read_hub_ranges=SharedRanges(hub, clock=asyncio.get_running_loop().time).read,
        )


async def _serve(process: Process, hub: ClusterClient, ends: Ends) -> None:
    service = Service(process, hub)
    settings = process.settings
    server = HealthServer(
        settings.listen_host,
        settings.listen_port,
        metrics=process.telemetry.metrics,
        ready=service.ready,
        alive=lambda: (True, "ok"),
    )
    async with server:
        log.info("health and metrics", host=settings.listen_host, port=server.port)
        endings = [asyncio.ensure_future(end.wait()) for end in (ends.stop, ends.moved)]
        work = asyncio.ensure_future(service.run())
        try:
            await asyncio.wait({*endings, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for ending in endings:
                ending.cancel()
            work.cancel()
            result = (await asyncio.gather(work, return_exceptions=True))[0]
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


async def _await_hub(hub: ClusterClient) -> str:
    """Return the hub's identity; a hub that does not answer yet is waited for.

    Raises:
        ClusterError: the hub refuses us: reading namespace kube-system is the first right needed.
    """
    while True:
        try:
            return await cluster_identity(hub)
        except (Unreachable, ServerFault, Throttled) as error:
            log.warning("the hub does not answer; trying again", error=str(error))
            await asyncio.sleep(HUB_RETRY_SECONDS)


def _address_towards(server_url: str) -> str:
    """Return this host's address on the way to the hub; no packet is sent there."""
    url = urlsplit(server_url)
    family = socket.AF_INET6 if ":" in (url.hostname or "") else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((url.hostname or "127.0.0.1", url.port or 443))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])

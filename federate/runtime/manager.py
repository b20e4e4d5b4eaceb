"""The process: one hub, many virtual nodes, their health and metrics, an orderly end."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog

from federate import __version__
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.identity import IdentityGuard, cluster_identity
from federate.errors import ServerFault, Throttled, Unreachable
from federate.runtime.settings import Settings
from federate.runtime.telemetry import HealthServer, Telemetry
from federate.runtime.together import first_of
from federate.runtime.virtual_node import Surroundings, VirtualNode

log = structlog.stdlib.get_logger(__name__)

HUB_RETRY_SECONDS = 2.0


async def run_process(settings: Settings, *, telemetry: Telemetry, stop: asyncio.Event) -> None:
    """Serve all virtual nodes until `stop` is set; deletes nothing at the end (C15).

    Raises:
        ConfigError: what only the user can mend.
        ClusterError: the hub refuses us.
    """
    while True:
        moved = asyncio.Event()
        hub = await connect(
            settings.hub_kubeconfig,
            name="hub",
            context=settings.hub_context,
            observer=telemetry.metrics.request_observer("hub"),
            on_moved=moved.set,
        )
        try:
            await _serve(settings, hub, telemetry, Ends(stop=stop, moved=moved))
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


async def _serve(settings: Settings, hub: ClusterClient, telemetry: Telemetry, ends: Ends) -> None:
    nodes: list[VirtualNode] = []

    def ready() -> tuple[bool, str]:
        waiting = [n.settings.name for n in nodes if not n.is_ready]
        if not nodes:
            return False, "the hub does not answer yet"
        return not waiting, f"not ready: {', '.join(waiting)}" if waiting else "ok"

    server = HealthServer(
        settings.listen_host,
        settings.listen_port,
        metrics=telemetry.metrics,
        ready=ready,
        alive=lambda: (True, "ok"),
    )
    async with server:
        log.info("health and metrics", host=settings.listen_host, port=server.port)
        endings = [asyncio.ensure_future(end.wait()) for end in (ends.stop, ends.moved)]
        work = asyncio.ensure_future(_work(settings, hub, telemetry, nodes))
        try:
            await asyncio.wait({*endings, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for ending in endings:
                ending.cancel()
            work.cancel()
            result = (await asyncio.gather(work, return_exceptions=True))[0]
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


async def _work(
    settings: Settings, hub: ClusterClient, telemetry: Telemetry, nodes: list[VirtualNode]
) -> None:
    hub_id = await _await_hub(hub)
    surroundings = Surroundings(
        hub=hub,
        hub_id=hub_id,
        hub_guard=IdentityGuard(hub, hub_id),
        identity=settings.identity,
        node_address=settings.node_address or _address_towards(await hub.server_url()),
        leader_lease_namespace=settings.leader_lease_namespace,
        federate_version=__version__,
        telemetry=telemetry,
    )
    nodes.extend(VirtualNode(target, surroundings) for target in settings.targets)
    try:
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.run(), name=f"virtual-node-{node.settings.name}")
    except BaseExceptionGroup as failed:
        raise first_of(failed) from failed


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
    """Return this host's address on the way to the hub; nothing is sent."""
    url = urlsplit(server_url)
    family = socket.AF_INET6 if ":" in (url.hostname or "") else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((url.hostname or "127.0.0.1", url.port or 443))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])

"""The kubelet API of one virtual node: wired, supervised, and told on the Node.

Beside mirroring, never before it: whatever fails here (a taken port, a certificate, a crash) is in
the condition `federate.dev/KubeletServing` and tried again; logs and exec wait, pods do not.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import LeadershipLost
from federate.kubelet.access import HubAccess
from federate.kubelet.limits import Limits
from federate.kubelet.pages import MetricsPages
from federate.kubelet.ports import OpenCall, PodsPort
from federate.kubelet.server import KubeletServer, listen
from federate.kubelet.serving import ServingTls
from federate.kubelet.sources import Sources
from federate.model.marks import Scope
from federate.model.reasons import NodeReason
from federate.node.render import KubeletWord
from federate.runtime.settings import KubeletSettings
from federate.runtime.telemetry import KubeletCounts
from federate.runtime.together import run_together

log = structlog.stdlib.get_logger(__name__)

FIRST_PAUSE_SECONDS = 1.0
MOST_PAUSE_SECONDS = 30.0
"""How long a port that became free, or a certificate that was mended, may go unnoticed."""
CALM_SECONDS = 60.0
"""One that served this long starts its pauses anew."""

GRACE_SECONDS = 1.0
"""How long whole answers may hold up the end of the process, which has 5 s in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPorts:
    """What the kubelet API acts through, and whom it tells."""

    hub: ClusterPort
    target: ClusterPort
    open_call: OpenCall
    """Opens a stream to the target."""
    pods: PodsPort
    namespaces: Callable[[], Sequence[str]]
    """Where the mirrors are; "" is everywhere."""
    counts: KubeletCounts
    tell: Callable[[], None]
    """Called when the word has changed."""


_UNSERVED = (NodeReason.KUBELET_PORT_TAKEN, NodeReason.KUBELET_FAILED)


class _NotOurs(OSError):
    """Not an address of this host."""


class KubeletApi:
    """Answers the hub's API server for one virtual node, while it is led."""

    def __init__(
        self, settings: KubeletSettings, ports: KubeletPorts, *, scope: Scope, node_address: str
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._scope = scope
        self._node_address = node_address
        self._port = settings.port
        self._server: KubeletServer | None = None
        self._word = KubeletWord(
            port=0,
            is_serving=False,
            reason=NodeReason.KUBELET_STARTING,
            message="the kubelet API is not served yet",
        )
        self._tls = ServingTls(
            node_name=scope.node_name,
            addresses=[node_address],
            rules=settings.serving,
            hub=ports.hub,
            on_change=self._on_tls,
        )
        self._usable = asyncio.Event()
        # It remembers what containers used so far, so it outlives a server that crashed.
        self._pages = MetricsPages(
            node_name=scope.node_name,
            pods=ports.pods,
            sources=Sources(
                target=ports.target,
                open_call=ports.open_call,
                selector=scope.selector,
                namespaces=ports.namespaces,
            ),
            started_at=time.time(),
        )

    def word(self) -> KubeletWord:
        """Tell how it stands, for the Node."""
        return self._word

    def certificate_ends_at(self) -> float | None:
        """Tell when the serving certificate ends, in Unix time; None where there is none."""
        found = self._tls.expiry
        return found.at if found is not None else None

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return self._ports.counts.open_streams

    async def run(self) -> None:
        """Serve until cancelled; what fails is told and tried again.

        Raises:
            LeadershipLost: somebody else leads the virtual node.
        """
        pause = FIRST_PAUSE_SECONDS
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                await self._serve()
            except LeadershipLost:
                raise
            except OSError as error:
                self._say(0, *_bind_word(error, self._place()))
            except Exception as error:
                log.exception("the kubelet API crashed; starting again")
                message = f"the kubelet API crashed ({type(error).__name__}) and starts again"
                self._say(0, NodeReason.KUBELET_FAILED, message)
            finally:
                self._server = None
            if clock() - began > CALM_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)
            pause = min(2.0 * pause, MOST_PAUSE_SECONDS)

    # -- serving -----------------------------------------------------------------------------------

    async def _serve(self) -> None:
        with self._listen() as listener:
            await run_together(self._tls.run, lambda: self._answer(listener))

    async def _answer(self, listener: socket.socket) -> None:
        self._on_tls()
        await self._usable.wait()
        access = HubAccess(
            hub=self._ports.hub,
            node_name=self._scope.node_name,
            vouches=self._tls.authority.vouches,
        )
        try:
            self._server = KubeletServer(
                access=access,
                pods=self._ports.pods,
                open_call=self._ports.open_call,
                pages=self._pages,
                tls=self._tls.context,
                observer=self._ports.counts,
                limits=Limits(grace_seconds=GRACE_SECONDS),
            )
            self._port = listener.getsockname()[1]
            place = {"address": self._node_address, "port": self._port}
            if reach := _reach(self._node_address):
                place["note"] = reach
            log.info("the kubelet API is served", **place)
            self._on_tls()
            await self._server.serve(listener)
        finally:
            await access.aclose()

    def _listen(self) -> socket.socket:
        """Listen where the Node says we are; a port that was free once is asked for again.

        Raises:
            OSError: the port is taken, or the address is not this host's.
        """
        *first, last = places_to_listen(self._settings, self._node_address)
        for host in first:
            with suppress(_NotOurs):
                return self._listen_at(host)
        return self._listen_at(last)

    def _listen_at(self, host: str) -> socket.socket:
        if self._settings.port == 0 and self._port != 0:
            with suppress(OSError):
                return listen(host, self._port)
        try:
            return listen(host, self._settings.port)
        except OSError as error:
            raise (_NotOurs if error.errno == errno.EADDRNOTAVAIL else OSError)(
                error.errno, error.strerror
            ) from error

    # -- telling -----------------------------------------------------------------------------------

    def _on_tls(self) -> None:
        """Follow the certificate: no server without one, and the Node says how it stands."""
        if self._tls.context() is not None:
            self._usable.set()
        told = self._tls.word
        if self._server is not None:
            reach = _reach(self._node_address)
            message = f"{told.message}. {reach}" if reach else told.message
            self._say(self._port, told.reason, message, is_serving=told.is_good)
        elif not told.is_good:
            self._say(0, told.reason, told.message)

    def _say(
        self, port: int, reason: NodeReason, message: str, *, is_serving: bool = False
    ) -> None:
        word = KubeletWord(port=port, is_serving=is_serving, reason=reason, message=message)
        if word == self._word:
            return
        self._word = word
        if reason in _UNSERVED:
            log.warning("the kubelet API is not served: logs and exec wait", why=message)
        self._ports.tell()

    def _place(self) -> str:
        host = self._settings.address or self._node_address
        return f"{host}:{self._settings.port or self._port}"


def _reach(node_address: str) -> str:
    """Warn of an address that a hub elsewhere would look for on its own host."""
    if not ipaddress.ip_address(node_address).is_loopback:
        return ""
    return (
        f"Only a hub on this very host reaches {node_address}: else give nodeAddress "
        "(--node-address)"
    )


def places_to_listen(settings: KubeletSettings, node_address: str) -> tuple[str, ...]:
    """Say where to listen: the last is meant for an address before it that is not this host's.

    Such is a load balancer's, or a translated one: what is sent there arrives at another.
    """
    if settings.address is not None:
        return (settings.address,)
    is_ipv6 = ipaddress.ip_address(node_address).version == 6
    return (node_address, "::" if is_ipv6 else "0.0.0.0")  # noqa: S104


def _bind_word(error: OSError, place: str) -> tuple[NodeReason, str]:
    if error.errno == errno.EADDRINUSE:
        return (
            NodeReason.KUBELET_PORT_TAKEN,
            f"{place} is taken by another process; tried again. Choose another port (kubelet.port)",
        )
    return (
        NodeReason.KUBELET_FAILED,
        f"cannot listen on {place}: {error.strerror or type(error).__name__}; tried again",
    )

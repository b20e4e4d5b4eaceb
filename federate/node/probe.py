"""Ask the target again and again: does it answer, and is it the cluster on record? (C5, C12)

A ping is one bounded request that answers both: a read of namespace kube-system, whose uid is the
cluster's identity. Where that may not be read, a namespaced read stands in, and the identity is
`unknown`: then only the anchors tell clusters apart (`node.anchors`).

Another cluster is told at once, whoever meets it: the ping, or a pod's round that asks whether an
absence may be believed (`confirm`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from federate.cluster.identity import SharedCheck, bounded_identity, cluster_identity
from federate.cluster.port import ClusterPort
from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    ServerFault,
    TargetChanged,
    Unreachable,
)
from federate.model.marks import ACCEPT_TARGET_ANNOTATION
from federate.model.objects import ObjectKey
from federate.model.resources import CONFIGMAPS
from federate.node.anchors import UNKNOWN_IDENTITY, NodeAnchors, is_identity
from federate.node.reachability import PING_TIMEOUT_SECONDS, Reachability, TargetState

log = structlog.stdlib.get_logger(__name__)

PING = ObjectKey("default", "kube-root-ca.crt")


def changed_message(*, node_name: str, recorded: str, found: str) -> str:
    """Say that another cluster answers, and how to accept it."""
    return (
        f"another cluster answers: kube-system uid {found}, on record is {recorded}. Nothing is "
        "written there. Point the kubeconfig back, or accept it: "
        f"federate accept {node_name} (or kubectl annotate node {node_name} "
        f"{ACCEPT_TARGET_ANNOTATION}={found})"
    )


def offered_identity(message: str) -> str:
    """Read from `changed_message` which cluster can be accepted; "" where none is offered."""
    _, found, rest = message.partition(f"{ACCEPT_TARGET_ANNOTATION}=")
    return rest.removesuffix(")") if found else ""


class TargetProbe:
    """What one virtual node knows of its target; `run` keeps asking.

    `confirmed` is set once the cluster on record answered: before
    that nothing may be read or written there but by this probe. Where the target becomes another
    cluster afterwards, `run` ends with TargetChanged: open watches still hang on the former one, so
    all that was read since is to be thrown away.
    """

    def __init__(
        self,
        *,
        target: ClusterPort,
        node_name: str,
        memory: NodeAnchors,
        on_change: Callable[[], None],
    ) -> None:
        self.reachability = Reachability()
        self.confirmed = asyncio.Event()
        self.found = ""
        """The identity that answered last, whether it is the one on record or not."""
        self._target = target
        self._node_name = node_name
        self._memory = memory
        self._on_change = on_change
        self._soon = asyncio.Event()
        self._shared = SharedCheck(self._check)

    async def run(self) -> None:
        """Ping until cancelled.

        Raises:
            TargetChanged: what was confirmed has become another cluster.
        """
        while True:
            await self.ping()
            if self.confirmed.is_set():
                self.fence()
            self._soon.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.reachability.pause_seconds()):
                    await self._soon.wait()

    def ask_soon(self) -> None:
        """Ping without a pause: what is on record changed."""
        self._soon.set()

    def fence(self) -> None:
        """Raise TargetChanged while the target is known to be another cluster; before writes."""
        if self.reachability.state is TargetState.CHANGED:
            raise TargetChanged(self.reachability.message, cluster=self._target.name)

    async def confirm(self) -> None:
        """Return where the cluster on record answers, as read after this call (C5).

        A target whose identity is unknown always passes.

        Raises:
            TargetChanged: it is another one; what is absent there says nothing.
            ClusterError: it cannot be told.
        """
        self.fence()
        await self._shared()

    async def _check(self) -> None:
        found = await bounded_identity(self._read_identity(), name=self._target.name)
        if self._is_other(found):
            self._note_other(found)
            self.ask_soon()
        self.fence()

    async def ping(self) -> None:
        """Ask the target once, bounded, and note what that says."""
        before = self.reachability.state
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                found = await self._ask()
        except TimeoutError:
            hung = Unreachable(f"no answer within {PING_TIMEOUT_SECONDS:g} s")
            has_changed = self.reachability.note_failure(hung)
        except ClusterError as error:
            has_changed = self.reachability.note_failure(error)
        else:
            if self._is_other(found):
                self._note_other(found)
                return
            self._memory.meet(found)
            has_changed = self.reachability.note_answer()
        if has_changed:
            self._tell(before)

    async def _ask(self) -> str:
        """Read who answers; where that is not to be known, that somebody does."""
        found = await self._read_identity()
        if found == UNKNOWN_IDENTITY:
            with suppress(NotFound):  # that it is absent is an answer
                await self._target.get(CONFIGMAPS, PING)
        return found

    async def _read_identity(self) -> str:
        """Read the identity; one that was known and cannot be read any more is a failure."""
        try:
            found = await cluster_identity(self._target)
        except (Forbidden, NotFound):
            self.found = UNKNOWN_IDENTITY
            if is_identity(self._memory.identity):
                raise
            return UNKNOWN_IDENTITY
        if not found:
            raise ServerFault("namespace kube-system has no uid", cluster=self._target.name)
        self.found = found
        return found

    def _is_other(self, found: str) -> bool:
        recorded = self._memory.identity
        return is_identity(recorded) and found != recorded

    def _note_other(self, found: str) -> None:
        before = self.reachability.state
        message = changed_message(
            node_name=self._node_name, recorded=self._memory.identity, found=found
        )
        if self.reachability.note_other(message):
            self._tell(before)

    def _tell(self, before: TargetState) -> None:
        state = self.reachability.state
        log.info(
            "target state changed",
            before=before.name,
            after=state.name,
            message=self.reachability.message,
        )
        if state is TargetState.REACHABLE:
            self.confirmed.set()
        self._on_change()

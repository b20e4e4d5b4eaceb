"""Ask the target again and again: does it answer, and is it the cluster on record? (C5, C12)

A ping is one bounded request that answers both: a read of namespace kube-system, whose uid is the
cluster's identity; or, confined to some namespaces, of a default service account there
(`node.recognition`). Where neither may be read, a namespaced read stands in, and the identity is
`unknown`: then only the anchors tell clusters apart (`node.anchors`), also when a cluster names
itself later.

Another cluster is told at once, whoever meets it: the ping, or a pod's round that asks whether an
absence may be believed (`confirm`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from federate.cluster.identity import SharedCheck, bounded_identity, describe_identity
from federate.cluster.port import ClusterPort
from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    ServerFault,
    TargetChanged,
    Unreachable,
)
from federate.model.marks import ACCEPT_TARGET_ANNOTATION, Scope
from federate.model.naming import anchor_name
from federate.model.objects import ObjectKey
from federate.model.resources import CONFIGMAPS
from federate.node.anchors import UNKNOWN_IDENTITY, NodeAnchors, is_identity
from federate.node.reachability import PING_TIMEOUT_SECONDS, Reachability, TargetState
from federate.node.recognition import Recognition

log = structlog.stdlib.get_logger(__name__)

PING = ObjectKey("default", "kube-root-ca.crt")


def changed_message(*, node_name: str, recorded: str, found: str) -> str:
    """Say that another cluster answers, and how to accept it."""
    known = recorded
    if not is_identity(recorded):
        known = "one without a name, and none of its anchors stands here"
    return (
        f"another cluster answers: {describe_identity(found)}, on record is {known}. Nothing is "
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
        scope: Scope,
        memory: NodeAnchors,
        on_change: Callable[[], None],
        namespaces: Sequence[str] = (),
    ) -> None:
        """`namespaces` are the only ones that may be read; empty: no bound."""
        self.reachability = Reachability()
        self.confirmed = asyncio.Event()
        self.found = ""
        """The identity that answered last, whether it is the one on record or not."""
        self._target = target
        self._node_name = scope.node_name
        self._memory = memory
        self._on_change = on_change
        self._is_confined = bool(namespaces)
        self._recognition = Recognition(
            target=target, memory=memory, namespaces=namespaces, anchor_name=anchor_name(scope)
        )
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

        A target that does not name itself, and never did, always passes; not so where we are
        confined to namespaces that are not there.

        Raises:
            TargetChanged: it is another one; what is absent there says nothing.
            ClusterError: it cannot be told.
        """
        self.fence()
        await self._shared()

    async def _check(self) -> None:
        found, is_other = await bounded_identity(self._look(), name=self._target.name)
        if is_other:
            self._note_other(found)
            self.ask_soon()
        self.fence()
        if self._is_confined and found == UNKNOWN_IDENTITY:
            raise NotFound(
                "which cluster this is cannot be told: the target namespaces are not there",
                cluster=self._target.name,
                verb="identify",
                subject="the cluster",
                status=404,
            )

    async def ping(self) -> None:
        """Ask the target once, bounded, and note what that says."""
        before = self.reachability.state
        try:
            async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                found, is_other = await self._ask()
        except TimeoutError:
            hung = Unreachable(f"no answer within {PING_TIMEOUT_SECONDS:g} s")
            has_changed = self.reachability.note_failure(hung)
        except ClusterError as error:
            has_changed = self.reachability.note_failure(error)
        else:
            if is_other:
                self._note_other(found)
                return
            is_news = found != self._memory.identity
            self._memory.meet(found)
            has_changed = self.reachability.note_answer()
            if is_news and not has_changed:
                self._on_change()  # nothing is created before that is on record
        if has_changed:
            self._tell(before)

    async def _ask(self) -> tuple[str, bool]:
        """Read who answers; where that is not to be known, that somebody does."""
        found, is_other = await self._look()
        if found == UNKNOWN_IDENTITY and not self._is_confined:
            with suppress(NotFound):  # that it is absent is an answer
                await self._target.get(CONFIGMAPS, PING)
        return found, is_other

    async def _look(self) -> tuple[str, bool]:
        """Return who answers, and whether that is another cluster than the one on record."""
        found, recorded = await self._read_identity(), self._memory.identity
        if await self._recognition.is_another(found):
            return found, True
        if is_identity(recorded) and found != recorded:
            log.info("the target is known by its anchor", before=recorded, after=found)
            self._memory.know_as(found)
            self._on_change()
        return found, False

    async def _read_identity(self) -> str:
        """Read the identity; one that was known and cannot be read any more is a failure."""
        try:
            found = await self._recognition.identify()
        except (Forbidden, NotFound) as error:
            self.found = UNKNOWN_IDENTITY
            is_refused = self._is_confined and isinstance(error, Forbidden)
            if is_refused or is_identity(self._memory.identity):
                raise
            return UNKNOWN_IDENTITY
        if not found:
            raise ServerFault("what tells the cluster has no uid", cluster=self._target.name)
        self.found = found
        return found

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

"""Remove what is left of a virtual node for which nobody acts any more: in the target, then here.

Everything goes under its uid, with our marks, after the identity of the cluster was confirmed (C5,
C51): mirrors whose hub pods are gone, then namespaces that federate made and nothing is left in,
then the anchors of the others; in the hub the node lease and the Node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.keys import Kind
from federate.errors import ClusterError, Conflict, FederateError, Forbidden, NotFound
from federate.garbage.brought import Brought
from federate.garbage.companions import NOT_OURS, remove_brought
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.plan import plan_sweep
from federate.garbage.sweeper import remove_orphan
from federate.leave.plan import listed
from federate.leave.survey import TargetSurvey, hub_pods_of
from federate.model.leases import NODE_LEASE_NAMESPACE
from federate.model.marks import Scope
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    metadata_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, LEASES, NAMESPACES, NODES
from federate.services.clearing import take_back_service

log = structlog.stdlib.get_logger(__name__)

AT_ONCE = 20
"""Companions that are deleted side by side."""

AGAIN = "empty ones are looked at again, for another virtual node may have begun to use one"


class TargetClearing:
    """What is removed in the target; each step is repeated until it returns ""."""

    def __init__(
        self,
        *,
        hub: ClusterPort,
        target: ClusterPort,
        scope: Scope,
        survey: TargetSurvey,
        confirm_hub: Callable[[], Awaitable[None]],
        confirm_target: Callable[[], Awaitable[None]],
        fence: Callable[[], None],
        pause: Callable[[str, float], Awaitable[None]],
    ) -> None:
        """`confirm_target` also makes sure that nobody else leads; `fence` costs no request."""
        self._fence = fence
        self._hub = hub
        self._target = target
        self._scope = scope
        self._survey = survey
        self._confirm_hub = confirm_hub
        self._confirm_target = confirm_target
        self._keeper = NamespaceKeeper(
            hub=hub,
            target=target,
            scope=scope,
            forget_anchor=_nothing,
            confirm_hub=confirm_hub,
            confirm_target=confirm_target,
            fence=fence,
            sleep=lambda seconds: pause(AGAIN, seconds),
        )
        self.kept: dict[str, str] = {}
        """Namespaces that stay, and why."""
        self._going: set[str] = set()
        self._gone: set[Brought] = set()
        """Secrets on a list that were asked for and are no more."""
        self.left_to_anchors: dict[Kind, str] = {}
        """Kinds of companions that may not be deleted, and why: they go with their anchors."""

    async def mirrors(self) -> str:
        """Remove the mirrors that no hub pod wants; says what is still there."""
        mirrors = await self._survey.mirrors()
        if not mirrors:
            return ""
        hub_pods = await hub_pods_of(self._hub, self._scope.node_name)
        await self._confirm_hub()
        await self._confirm_target()
        found = plan_sweep(scope=self._scope, hub_pods=hub_pods, mirrors=mirrors)
        ending = {uid_of(mirror) for mirror in mirrors if is_terminating(mirror)}
        for orphan in found.orphans:
            if orphan.uid not in ending:
                self._fence()
                await remove_orphan(self._hub, self._target, orphan, confirm_hub=self._confirm_hub)
        return f"{len(mirrors)} still there: {listed([str(key_of(m)) for m in mirrors][:3])}"

    async def companions(self) -> str:
        """Remove what came along with pods; says what is still there.

        After the mirrors, which use it, and while the anchors, where Secrets are on record, stand.

        Raises:
            FederateError: mirrors are there again.
        """
        found = [
            one
            for one in await self._survey.brought(await self._survey.anchors())
            if one not in self._gone and one.kind not in self.left_to_anchors
        ]
        if not found:
            return ""
        await self._refuse_mirrors()
        await self._confirm_target()
        left: list[str] = []
        for start in range(0, len(found), AT_ONCE):
            some = found[start : start + AT_ONCE]
            # All are waited for: a failure must not leave deletes under way.
            answers = await asyncio.gather(*map(self._remove, some), return_exceptions=True)
            for one, answer in zip(some, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                left += [f"{one.kind} {one.place} ({answer})"] if answer else []
        return f"{len(left)} still there: {listed(left[:3])}" if left else ""

    async def services(self) -> str:
        """Take back the Services that followed, or leave them to others; says what is still there.

        Raises:
            FederateError: mirrors are there again.
        """
        found = await self._survey.services()
        if not found:
            return ""
        await self._refuse_mirrors()
        await self._confirm_target()
        left: list[str] = []
        for service in found:
            state = await take_back_service(self._target, self._scope, service, fence=self._fence)
            left += [f"Service {key_of(service)} ({state})"] if state else []
        return f"{len(left)} still there: {listed(left[:3])}" if left else ""

    async def _remove(self, one: Brought) -> str:
        """Delete one; what is no more, or none of ours, is not asked for again."""
        try:
            state = await remove_brought(self._target, self._scope, one, fence=self._fence)
        except Forbidden as error:
            self.left_to_anchors[one.kind] = error.detail
            return ""
        if state in ("", NOT_OURS):
            self._gone.add(one)
            return ""
        return state

    async def namespaces(self, names: set[str]) -> str:
        """Give back those of these namespaces that may go; says which are still ending.

        Before the anchors go: they say to the next try where we have been.
        """
        await self._confirm_target()
        due = sorted(names - self._going - set(self.kept))
        # Side by side: each is looked at twice, with a long wait between (`NamespaceKeeper.leave`).
        answers = await asyncio.gather(*map(self._give_back, due), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        ending = [name for name in sorted(self._going) if await self._exists(name)]
        return f"{len(ending)} still ending: {listed(ending[:3])}" if ending else ""

    async def _give_back(self, name: str) -> None:
        try:
            why = await self._keeper.leave(name)
        except Forbidden as error:
            why = f"not to be looked into: {error.detail}"
        if why:
            self.kept[name] = why
        else:
            self._going.add(name)

    async def _exists(self, name: str) -> bool:
        try:
            await self._target.get(NAMESPACES, ObjectKey("", name))
        except NotFound:
            return False
        return True

    async def anchors(self) -> str:
        """Remove the anchors; the target's garbage collector takes whatever they still own.

        Raises:
            FederateError: mirrors are there again, which would be killed with them.
        """
        anchors = await self._survey.anchors()
        if anchors:
            await self._refuse_mirrors()
        await self._confirm_target()
        for anchor in anchors:
            self._fence()
            try:
                await self._target.delete(CONFIGMAPS, key_of(anchor), uid=uid_of(anchor))
            except Conflict:
                continue
        return f"{len(anchors)} asked to go" if anchors else ""

    async def _refuse_mirrors(self) -> None:
        """Make sure that no mirror is there: it would lose what it uses, or its owner."""
        if mirrors := await self._survey.mirrors():
            raise FederateError(
                f"mirrors have come meanwhile: {listed([str(key_of(m)) for m in mirrors][:3])}. "
                "Make sure that no federate mirrors for this virtual node, and repeat the command"
            )


async def _nothing(_namespace: str) -> None:
    """No anchor needs to be forgotten: the Node that remembers it goes too."""


async def remove_node_lease(hub: ClusterPort, node: JsonObject) -> None:
    """Delete the node lease that is owned by that very Node."""
    key = ObjectKey(NODE_LEASE_NAMESPACE, key_of(node).name)
    try:
        lease = await hub.get(LEASES, key)
    except NotFound:
        return
    owners = metadata_of(lease).get("ownerReferences") or ()
    if any(owner.get("uid") == uid_of(node) for owner in owners):
        try:
            await hub.delete(LEASES, key, uid=uid_of(lease))
        except ClusterError as error:
            # Its owner is about to go, and the hub's garbage collector takes it then.
            log.info("node lease not deleted; it goes with its Node", error=str(error))


async def remove_node(hub: ClusterPort, node: JsonObject) -> str:
    """Delete that very Node; says so while it is still there."""
    key = key_of(node)
    try:
        await hub.delete(NODES, key, uid=uid_of(node))
    except Conflict:
        return ""  # that one is gone; who came after it is looked at by the next command
    try:
        present = await hub.get(NODES, key)
    except NotFound:
        return ""
    return "its finalizers are waited for" if uid_of(present) == uid_of(node) else ""

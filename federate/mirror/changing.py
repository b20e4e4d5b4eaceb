"""Change a mirror that is there: lift its gate, relabel it, take over what changed (C24, C25).

Every request names the mirror's uid, and where it changes the spec its version too, so that a late
one meets that very mirror as it was, or nothing. What the target refuses is remembered and told by
the plan; nothing else waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from federate.cluster.store import Change
from federate.errors import ClusterError, Conflict, NotFound, Rejected
from federate.mirror.dropped import Dropped, dropped_fields
from federate.mirror.ports import PodMemories, PodPorts
from federate.mirror.refusal import Refusal, undone_refusal, update_refusal_of
from federate.mirror.render import metadata_changes, ungating_patch
from federate.mirror.steps import PatchMirror, PlanRules, UngateMirror, UpdateMirror
from federate.mirror.updates import Update, is_recorded, record_patch, update_patch
from federate.mirror.upkeep import METADATA
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    fingerprint_of,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.resources import PODS
from federate.patch.document import MERGE, PatchBody

log = structlog.stdlib.get_logger(__name__)


class MirrorChanges:
    """The changes of one round. `look_up` reads the mirror anew where it was not as we thought."""

    def __init__(
        self,
        key: ObjectKey,
        *,
        rules: PlanRules,
        ports: PodPorts,
        memories: PodMemories,
        fence: Callable[[], None],
        look_up: Callable[[], Awaitable[None]],
        note: Callable[[Change | None], None],
    ) -> None:
        self._key = key
        self._rules = rules
        self._ports = ports
        self._memories = memories
        self._fence = fence
        self._look_up = look_up
        self._note = note
        self._conflicts = 0

    async def ungate(self, step: UngateMirror) -> None:
        """Let the target's scheduler have it."""
        if await self._patch(step.mirror, ungating_patch(step.mirror)) is None:
            return
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            self._memories.of(uid_of(hub_pod)).created = None
        log.info("mirror started", mirror=str(key_of(step.mirror)))

    async def relabel(self, step: PatchMirror) -> None:
        """Change labels and annotations; note where the target undoes that at once."""
        patch = PatchBody(
            media_type=MERGE,
            body={"metadata": {**step.metadata, "uid": uid_of(step.mirror)}},
        )
        with self._refusals(METADATA, step.fingerprint, "labels or annotations"):
            reply = await self._patch(step.mirror, patch)
            if reply is not None:
                self._note_undone_metadata(step, reply)

    def _note_undone_metadata(self, step: PatchMirror, reply: JsonObject) -> None:
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            memory = self._memories.of(uid_of(hub_pod))
            left = metadata_changes(hub_pod, reply, self._rules.render)
            if fingerprint_of(left) == step.fingerprint:
                memory.futile_metadata = step.fingerprint
                log.info("the target undoes a change of labels at once", change=step.fingerprint)
            elif memory.is_made_again(METADATA, step.fingerprint, now=self._ports.now()):
                refusal = undone_refusal(self._rules.target_name, METADATA, "labels or annotations")
                self._note_refused(METADATA, step.fingerprint, refusal)

    async def update(self, step: UpdateMirror) -> None:
        """Change the mirror, and record that it was; through a subresource that takes two."""
        update = step.update
        with self._refusals(update.what, update.fingerprint, update.what):
            patch = update_patch(update, step.mirror)
            reply = await self._patch(step.mirror, patch, subresource=update.subresource)
            lost = dropped_fields(update.spec, spec_of(reply)) if reply is not None else ()
            if update.subresource and reply is not None and not lost:
                reply = await self._patch(reply, record_patch(update, reply))
            if reply is None:
                return
            if lost or not is_recorded(update, reply) or self._is_made_again(update):
                self._note_undone(update, lost)
            else:
                log.info("mirror updated", mirror=str(key_of(reply)), what=update.what)

    def _is_made_again(self, update: Update) -> bool:
        change = fingerprint_of([update.spec, update.record])
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is None:
            return False
        memory = self._memories.of(uid_of(hub_pod))
        return memory.is_made_again(update.what, change, now=self._ports.now())

    def _note_undone(self, update: Update, lost: Sequence[Dropped]) -> None:
        fields = ", ".join(field.path for field in lost) or "federate's record of it"
        refusal = undone_refusal(self._rules.target_name, update.what, fields)
        self._note_refused(update.what, update.fingerprint, refusal)

    @contextmanager
    def _refusals(self, kind: str, fingerprint: str, what: str) -> Iterator[None]:
        """Remember a refusal, for the plan to tell it and to try again later; let faults pass."""
        try:
            yield
        except ClusterError as error:
            refusal = update_refusal_of(error, target_name=self._rules.target_name, what=what)
            if refusal is None:
                raise
            log.info("the target refuses a change", what=what, error=str(error))
            self._note_refused(kind, fingerprint, refusal)

    def _note_refused(self, kind: str, fingerprint: str, refusal: Refusal) -> None:
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            memory = self._memories.of(uid_of(hub_pod))
            memory.note_refused(kind, fingerprint, refusal, now=self._ports.now())

    async def _patch(
        self, mirror: JsonObject, patch: PatchBody, *, subresource: str = ""
    ) -> JsonDict | None:
        """Patch that very mirror; None where it is not there any more, and was looked up."""
        key = key_of(mirror)
        self._fence()
        try:
            with self._ports.mirrors.writing(key) as ticket:
                reply = await self._ports.target.patch(PODS, key, patch, subresource=subresource)
                self._note(ticket.commit(reply))
        except Conflict:
            self._conflicts += 1
            await self._look_up()
            # Once, the mirror has moved; again, it may be a policy of the target that says so.
            if self._conflicts > 1:
                raise
            return None
        except (NotFound, Rejected) as error:
            # A uid that is another's is rejected, a subresource that is unknown is not found.
            await self._look_up()
            present = self._ports.mirrors.get(key)
            is_there = present is not None and uid_of(present) == uid_of(mirror)
            if is_there and (subresource or isinstance(error, Rejected)):
                raise
            return None
        return reply

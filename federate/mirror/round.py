"""Carry out the plan for one hub pod key: the thin half of mirroring, status and deletion.

A round builds a view, asks `plan_pod` for one step, executes it, and looks again. It may be killed
between any two lines: everything it needs to go on stands on the hub pod or the mirror. What is
kept in memory (own attempts, last states) only ever makes it *surer*, never bolder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import structlog

from federate.cluster.store import Change, Store
from federate.companions.demand import has_mirror, target_namespace_of
from federate.companions.holding import Hold
from federate.companions.keys import Kind
from federate.companions.steps import Blocked
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotOurs,
    Rejected,
)
from federate.flow.controller import Again, Done, Elsewhere, Outcome
from federate.mirror.admission import PortClash, find_clash
from federate.mirror.changing import MirrorChanges
from federate.mirror.plan import plan_pod
from federate.mirror.ports import (
    ORIGIN_INDEX,
    REFUSED_AGAIN_CAP_SECONDS,
    PodMemories,
    PodMemory,
    PodPorts,
    PortRegistry,
)
from federate.mirror.refusal import (
    CreateFailure,
    Refusal,
    create_failure_of,
    stripped_refusal,
)
from federate.mirror.render import render_mirror
from federate.mirror.steps import (
    Created,
    CreateMirror,
    DeleteHubPod,
    DeleteMirror,
    LookUpAnchor,
    LookUpHubPod,
    LookUpMirror,
    LookUpRival,
    LookUpRivalMirror,
    LookUpShared,
    Nothing,
    PatchMirror,
    PlanRules,
    PodView,
    PrepareGround,
    Step,
    UngateMirror,
    UpdateMirror,
    WriteHubPod,
    belongs,
    is_found,
    lane_of,
)
from federate.model.deletion import is_really_gone
from federate.model.hostports import host_ports_of
from federate.model.instants import format_instant
from federate.model.marks import (
    HUB_POD_UID_LABEL,
    Origin,
    Scope,
    claims_mirror,
    origin_of,
    record_of,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    controller_of,
    is_terminating,
    key_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_gated, is_terminal, node_name_of
from federate.model.reasons import PodReason
from federate.model.resources import PODS
from federate.patch.document import PatchBody
from federate.status.project import waiting_status
from federate.status.writing import plan_hub_write

log = structlog.stdlib.get_logger(__name__)

MAX_STEPS = 24
"""Steps of one reconcile: the longest road has about fifteen. More: two writers undo each other."""
SOONEST_SECONDS = 0.5
"""Shortest wait for a step that waits for a time."""


class Round:
    """One reconcile of one key: the view grows surer from step to step."""

    def __init__(
        self,
        key: ObjectKey,
        *,
        scope: Scope,
        rules: PlanRules,
        ports: PodPorts,
        memories: PodMemories,
        on_mirror: Callable[[Change], object],
    ) -> None:
        self._scope = scope
        self._rules = rules
        self._ports = ports
        self._memories = memories
        self._on_mirror = on_mirror
        self._key = key
        self._mirror_key = self._ports.ground.mirror_key(key)
        self._hub_pod_fresh = False
        self._mirrors_fresh = False
        self._anchor_fresh = False
        self._shared: dict[str, frozenset[tuple[Kind, str]]] = {}
        self._registry = PortRegistry(ports, memories, scope=scope, rules=rules)
        self._occupant = False
        self._unmarked = False
        self._conflicts = 0
        self._changes = MirrorChanges(
            key,
            rules=rules,
            ports=ports,
            memories=memories,
            fence=self._fence,
            look_up=self._look_up_mirror,
            note=self._note,
        )

    async def run(self, lane: str) -> Outcome:
        """Go on until nothing is left to do now, or the next step is another lane's."""
        written = ""
        for number in range(MAX_STEPS):
            view = self._view()
            step = plan_pod(view, self._rules)
            if isinstance(step, Nothing):
                log.debug("nothing to do", reason=step.reason)
                return self._settle(step)
            if not belongs(step, lane, first=number == 0):
                return Elsewhere(lane_of(step))
            log.debug("step", step=type(step).__name__, reason=step.reason)
            if isinstance(step, WriteHubPod):
                if step.write.fingerprint == written:
                    self._note_futile(view, written)
                elif await self._write_hub_pod(step):
                    written = step.write.fingerprint
                continue
            await self._execute(step)
        log.warning("a pod does not come to rest; somebody undoes what federate writes")
        return Again(5.0)

    def _settle(self, step: Nothing) -> Outcome:
        if self._occupant:
            where = f"pod {self._mirror_key} of {self._ports.target.name}"
            raise NotOurs(f"{where} is not federate's: {step.reason}")
        if self._unmarked:
            self._tell_unmarked()
            raise NotOurs(f"the mirror of pod {self._key} has lost its marks: {step.reason}")
        if step.again_at is not None:
            left = (step.again_at - self._ports.now()).total_seconds()
            # Not for longer than the longest wait: the clock may have been set back.
            return Again(min(max(SOONEST_SECONDS, left), REFUSED_AGAIN_CAP_SECONDS))
        return Done()

    def _tell_unmarked(self) -> None:
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            message = (
                f"somebody took federate's labels or annotations off the mirror {self._shown_key} "
                f"in {self._target_name}: it is not touched any more, and this pod stays as it is. "
                "Delete the mirror there, and this pod follows"
            )
            self._tell(hub_pod, Refusal(reason=PodReason.MARKS_REMOVED, message=message))

    @property
    def _shown_key(self) -> str:
        """Where the mirror stands as far as the hub pod says, else where it shall."""
        hub_pod = self._ports.hub_pods.get(self._key)
        record = record_of(hub_pod) if hub_pod is not None else None
        return str(record.mirror if record is not None else self._mirror_key)

    def _note_futile(self, view: PodView, fingerprint: str) -> None:
        """The hub took the patch and dropped what it does not know: do not ask it again."""
        if view.hub_pod is not None:
            self._memories.of(uid_of(view.hub_pod)).futile = fingerprint
            log.info("the hub does not take a part of the status", patch=fingerprint[:256])

    def _view(self) -> PodView:
        ports = self._ports
        hub_pod = ports.hub_pods.get(self._key)
        uid = uid_of(hub_pod) if hub_pod is not None else ""
        memory = self._memories.peek(uid)
        record = record_of(hub_pod) if hub_pod is not None else None
        mirrors = ports.mirrors.by_index(ORIGIN_INDEX, str(self._key))
        # What was found is judged as if it were to be made.
        settled = () if any(is_found(m, memory.created) for m in mirrors) else mirrors
        hold = self._hold(hub_pod, mirrors, settled) if hub_pod is not None else None
        return PodView(
            key=self._key,
            mirror_key=self._mirror_key,
            hub_pod=hub_pod,
            hub_pod_fresh=self._hub_pod_fresh,
            mirrors=mirrors,
            mirrors_fresh=self._mirrors_fresh,
            last_state=memory.last_state,
            created=memory.created,
            taken_back=memory.taken_back,
            attempt_open=record is not None
            and bool(memory.intended_at)
            and record.intended_at == memory.intended_at,
            anchor=ports.ground.anchor_state(self._ground_namespace()),
            anchor_fresh=self._anchor_fresh,
            occupant=self._occupant,
            hold=hold,
            shared=dict(self._shared),
            held_since=self._memories.note_hold(uid, hold, now=ports.now()),
            port_clash=self._port_clash(hub_pod, mirrors),
            fail_wait_seconds=ports.turns.wait_seconds(_owner_uid(hub_pod), uid),
            weakened_by=memory.weakened_by,
            unmarked=self._unmarked,
            target_reachable=ports.target_reachable(),
            target_known=ports.target_known(),
            leaving=ports.leaving(),
            claim_words=ports.claim_words(hub_pod) if hub_pod is not None else "",
            claim_names=self._claim_names(hub_pod, mirrors),
            hub_api=ports.hub_api(self._mirror_key.namespace) if self._mirror_key else None,
            network_refusal=self._network_refusal(hub_pod, settled),
            addresses=ports.addresses(),
            futile=memory.futile,
            futile_metadata=memory.futile_metadata,
            refused=memory.refused,
            now=ports.now(),
        )

    def _network_refusal(
        self, hub_pod: JsonObject | None, settled: Sequence[JsonObject]
    ) -> Blocked | None:
        """Ask where a mirror may be made."""
        if hub_pod is None or settled or is_terminating(hub_pod) or is_terminal(hub_pod):
            return None
        return self._ports.network_refusal(hub_pod)

    def _port_clash(
        self, hub_pod: JsonObject | None, mirrors: Sequence[JsonObject]
    ) -> PortClash | None:
        """Ask for the host ports of a pod that is new here: one with an intent was admitted."""
        if hub_pod is None or mirrors or record_of(hub_pod) is not None:
            return None
        if not host_ports_of(spec_of(hub_pod)):
            return None
        return find_clash(self._registry.applicant(hub_pod), self._registry)

    def _hold(
        self, hub_pod: JsonObject, mirrors: Sequence[JsonObject], settled: Sequence[JsonObject]
    ) -> Hold | None:
        """Ask for what the pod waits for, where a mirror or a debug container may be made."""
        is_over = is_terminating(hub_pod) or is_terminal(hub_pod)
        if is_over or (settled and not spec_of(hub_pod).get("ephemeralContainers")):
            return None
        standing = {key_of(mirror): uid_of(mirror) for mirror in mirrors}
        namespace = target_namespace_of(
            hub_pod, self._mirror_key, is_mirrored=has_mirror(hub_pod, standing)
        )
        return self._ports.hold(hub_pod, namespace) if namespace else None

    def _claim_names(
        self, hub_pod: JsonObject | None, mirrors: Sequence[JsonObject]
    ) -> Mapping[str, str] | None:
        """Ask how the claims of the pod are called where its mirror is not let go yet."""
        if hub_pod is None or not mirrors:
            return {}
        if claims_mirror(hub_pod) and not any(map(is_gated, mirrors)):
            return {}
        if self._mirror_key is None:
            return None
        return self._ports.claim_names(hub_pod, self._mirror_key.namespace)

    async def _execute(self, step: Step) -> None:
        """Carry out one step; the plan is asked for the next."""
        match step:
            case (
                LookUpHubPod()
                | LookUpRival()
                | LookUpRivalMirror()
                | LookUpMirror()
                | LookUpAnchor()
                | LookUpShared()
            ):
                await self._look_up(step)
            case PrepareGround():
                await self._prepare_ground()
            case CreateMirror():
                await self._create_mirror()
            case UngateMirror():
                await self._changes.ungate(step)
            case PatchMirror():
                await self._changes.relabel(step)
            case UpdateMirror():
                await self._changes.update(step)
            case DeleteMirror():
                await self._delete_mirror(step)
            case DeleteHubPod():
                await self._delete_hub_pod(step)
            case WriteHubPod() | Nothing():
                raise AssertionError("run() sees to these")
            case _:
                assert_never(step)

    # -- looking -----------------------------------------------------------------------------------

    async def _look_up(
        self,
        step: LookUpHubPod
        | LookUpRival
        | LookUpRivalMirror
        | LookUpMirror
        | LookUpAnchor
        | LookUpShared,
    ) -> None:
        match step:
            case LookUpHubPod():
                await self._look_up_hub_pod()
            case LookUpRival():
                await self._look_up_rival(step)
            case LookUpRivalMirror():
                await self._look_up_rival_mirror(step)
            case LookUpMirror():
                await self._look_up_mirror()
            case LookUpAnchor():
                namespace = self._ground_namespace()
                if namespace:
                    await self._ports.ground.look_up_anchor(namespace)
                self._anchor_fresh = True
            case LookUpShared():
                await self._look_up_shared(step.namespace)

    async def _look_up_shared(self, namespace: str) -> None:
        hub_pod = self._ports.hub_pods.get(self._key)
        try:
            shared = await self._ports.shared(hub_pod or {}, namespace)
        except ClusterError as error:
            await self._tell_failure(create_failure_of(error, target_name=self._target_name))
            raise
        self._shared[namespace] = shared

    def _ground_namespace(self) -> str:
        """Name the namespace whose anchor counts: where the mirror stands, or shall stand; or "".

        By other rules than today's it may stand elsewhere; it stays there as long as it lives.
        """
        hub_pod = self._ports.hub_pods.get(self._key)
        record = record_of(hub_pod) if hub_pod is not None else None
        if record is not None and record.mirror_uid:
            namespace = record.mirror.namespace
            ground = self._ports.ground
            # People can write the record too: it leads to no place that was never used.
            if ground.is_watched(namespace) and ground.is_recorded(namespace):
                return namespace
        return self._mirror_key.namespace if self._mirror_key is not None else ""

    async def _look_up_hub_pod(self) -> None:
        """Read the hub pod from the quorum; one that is bound elsewhere is not ours to know."""
        store = self._ports.hub_pods
        with store.writing(self._key) as ticket:
            try:
                hub_pod = await self._ports.hub.get(PODS, self._key)
            except NotFound:
                await self._ports.confirm_hub()
                hub_pod = None
            if hub_pod is not None and node_name_of(hub_pod) == self._scope.node_name:
                ticket.commit(hub_pod)
                self._check_shown(store, hub_pod)
            else:
                known = store.get(self._key)
                if known is not None:
                    ticket.commit_deleted(uid_of(known))
        self._hub_pod_fresh = True

    async def _look_up_rival(self, step: LookUpRival) -> None:
        """Read another hub pod for this round alone: in the store it is in another hand."""
        try:
            found = await self._ports.hub.get(PODS, step.rival)
        except NotFound:
            await self._ports.confirm_hub()
            found = None
        is_it = found is not None and uid_of(found) == step.uid
        self._registry.note_read(step.uid, found if is_it else None)

    async def _look_up_rival_mirror(self, step: LookUpRivalMirror) -> None:
        """Read its mirror; while the target does not answer, the pod waits and says so.

        One that is absent fails nobody: so it need not be sure which cluster says that.
        """
        found: JsonObject | None = None
        try:
            found = await self._ports.target.get(PODS, step.mirror)
        except NotFound:
            log.debug("the other pod's mirror is gone", mirror=str(step.mirror))
        except ClusterError as error:
            await self._tell_failure(create_failure_of(error, target_name=self._target_name))
            raise
        self._registry.note_mirror_read(step.uid, found)

    async def _look_up_mirror(self) -> None:
        """Read the mirror by its name, on record and by rule, and list by the hub pod's uid."""
        hub_pod = self._ports.hub_pods.get(self._key)
        record = record_of(hub_pod) if hub_pod is not None else None
        for key in {self._mirror_key, record.mirror if record else None}:
            if key is None:
                continue
            self._check_watched(key)
            known = self._ports.mirrors.get(key)
            # People can write the record too: it must not lead to another pod's mirror.
            if key == self._mirror_key or known is None or self._is_ours(known):
                await self._look_up_mirror_at(key)
        if hub_pod is not None and not (record and record.mirror_uid):
            await self._look_up_mirrors_of(uid_of(hub_pod))
        self._mirrors_fresh = True

    def _check_watched(self, key: ObjectKey) -> None:
        """Stop where a record leads out of the namespaces that we may look at."""
        if self._ports.ground.is_watched(key.namespace):
            return
        message = (
            f"the record of this pod names mirror {key}, in a namespace of {self._target_name} "
            "that federate does not look at any more: neither is touched. Let the namespaces of "
            "the target be as before, or force the deletion of this pod"
        )
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            self._tell(hub_pod, Refusal(reason=PodReason.MIRROR_OUT_OF_SIGHT, message=message))
        raise NotOurs(message)

    async def _look_up_mirror_at(self, key: ObjectKey) -> None:
        store = self._ports.mirrors
        with store.writing(key) as ticket:
            try:
                found = await self._ports.target.get(PODS, key)
            except NotFound:
                await self._ports.confirm_target()
                found = None
            if found is not None and self._is_ours(found):
                self._note(ticket.commit(found))
                self._check_shown(store, found)
                return
            if found is not None and uid_of(found) == self._recorded_uid():
                self._unmarked = True
            elif found is not None and key == self._mirror_key:
                self._occupant = True
            known = store.get(key)
            if known is not None and self._is_ours(known):
                self._note(ticket.commit_deleted(uid_of(known)))

    def _is_ours(self, mirror: JsonObject) -> bool:
        origin = origin_of(mirror)
        return origin is not None and (origin.scope, origin.pod) == (self._scope, self._key)

    def _recorded_uid(self) -> str:
        hub_pod = self._ports.hub_pods.get(self._key)
        record = record_of(hub_pod) if hub_pod is not None else None
        if record is not None and record.mirror_uid:
            return record.mirror_uid
        last_state = self._memories.peek(uid_of(hub_pod) if hub_pod is not None else "").last_state
        return uid_of(last_state) if last_state is not None else "none"

    def _check_shown(self, store: Store, found: JsonObject) -> None:
        """Stop where the store does not believe a read: its absence must not decide anything."""
        shown = store.get(key_of(found))
        if shown is None or uid_of(shown) != uid_of(found):
            raise Conflict("the watch and a direct read disagree", subject=f"pod {key_of(found)}")

    async def _look_up_mirrors_of(self, hub_pod_uid: str) -> None:
        for namespace in self._ports.ground.watched:
            await self._look_up_mirrors_in(namespace, hub_pod_uid)

    async def _look_up_mirrors_in(self, namespace: str, hub_pod_uid: str) -> None:
        selector = f"{self._scope.selector},{HUB_POD_UID_LABEL}={hub_pod_uid}"
        try:
            listing = await self._ports.target.list(
                PODS, namespace=namespace, label_selector=selector
            )
        except Forbidden:
            # In a namespace that is closed to us no mirror ever stood, unless its anchor is known.
            if not namespace or self._ports.ground.is_recorded(namespace):
                raise
            return
        for found in listing.items:
            if key_of(found) not in self._ports.mirrors:
                with self._ports.mirrors.writing(key_of(found)) as ticket:
                    self._note(ticket.commit(found))

    def _note(self, change: Change | None) -> None:
        if change is not None:
            self._on_mirror(change)
            self._ports.mirror_changed(change)

    # -- the hub pod -------------------------------------------------------------------------------

    async def _write_hub_pod(self, step: WriteHubPod) -> bool:
        """Write; tells whether the hub took it (else the hub pod was read anew)."""
        if step.intent is not None:
            # Before the request: a lost reply must not make our own intent look like another's.
            self._memories.of(step.intent.pod_uid).intended_at = step.intent.intended_at
        if step.fails and (hub_pod := self._ports.hub_pods.get(self._key)) is not None:
            self._ports.turns.take(_owner_uid(hub_pod), uid_of(hub_pod))
        reply = await self._patch_hub_pod(step.write.patch)
        if reply is None:
            return False
        if step.refusal is not None:
            self._tell(reply, step.refusal)
        return True

    async def _patch_hub_pod(self, patch: PatchBody) -> JsonDict | None:
        """Patch `pods/status`; None where the hub pod was not as we thought, and was read anew."""
        self._ports.fence()
        try:
            with self._ports.hub_pods.writing(self._key) as ticket:
                reply = await self._ports.hub.patch(PODS, self._key, patch, subresource="status")
                ticket.commit(reply)
        except NotFound:
            await self._look_up_hub_pod()
            return None
        except (Conflict, Rejected) as error:
            await self._retry_on_fresh_hub_pod(error)
            return None
        return reply

    async def _retry_on_fresh_hub_pod(self, error: ClusterError) -> None:
        """Read the hub pod anew and let the plan look again, once; then the failure stands."""
        self._conflicts += 1
        if self._conflicts > 1:
            raise error
        await self._look_up_hub_pod()

    async def _delete_hub_pod(self, step: DeleteHubPod) -> None:
        self._ports.fence()
        try:
            with self._ports.hub_pods.writing(self._key) as ticket:
                reply = await self._ports.hub.delete(
                    PODS,
                    self._key,
                    uid=step.uid,
                    resource_version=step.resource_version,
                    grace_seconds=step.grace_seconds,
                )
                if reply is None or is_really_gone(reply):
                    ticket.commit_deleted(step.uid)
                    self._memories.forget(step.uid)
                else:
                    ticket.commit(reply)
        except Conflict as error:
            await self._retry_on_fresh_hub_pod(error)
            return
        log.info("hub pod deleted", reason=step.reason, grace_seconds=step.grace_seconds)

    def _tell(self, hub_pod: JsonObject, refusal: Refusal) -> None:
        self._ports.events.event(
            hub_pod, reason=refusal.reason, note=refusal.message, action="Mirroring"
        )

    # -- the mirror --------------------------------------------------------------------------------

    async def _prepare_ground(self) -> None:
        self._fence()
        try:
            await self._ports.ground.prepare(self._key.namespace)
        except NotOurs as error:
            refusal = Refusal(reason=PodReason.NAME_TAKEN, message=str(error))
            await self._tell_failure(CreateFailure(refusal=refusal, slow=True))
            raise
        except ClusterError as error:
            if error.cluster == self._ports.target.name:
                await self._tell_failure(create_failure_of(error, target_name=self._target_name))
            raise

    async def _create_mirror(self) -> None:
        hub_pod, key = self._ports.hub_pods.get(self._key), self._mirror_key
        anchor = self._ports.ground.anchor(key.namespace) if key is not None else None
        if hub_pod is None or key is None or anchor is None:
            return
        await self._take_back(self._memories.of(uid_of(hub_pod)))
        claim_names = self._ports.claim_names(hub_pod, key.namespace)
        hub_api = self._ports.hub_api(key.namespace)
        if claim_names is None or hub_api is None:
            return  # one is not what it was a moment ago: the plan is asked again
        body = render_mirror(
            hub_pod,
            origin=Origin(scope=self._scope, pod=self._key, pod_uid=uid_of(hub_pod)),
            mirror=key,
            anchor=anchor,
            rules=self._rules.render.sharing(self._shared.get(key.namespace)).leading(hub_api),
            claim_names=claim_names,
        )
        self._fence()
        try:
            with self._ports.mirrors.writing(key) as ticket:
                reply = await self._ports.target.create(PODS, body, namespace=key.namespace)
                is_marked = origin_of(reply) is not None
                if is_marked:
                    made = Created(uid=uid_of(reply), spec=spec_of(body))
                    self._memories.of(uid_of(hub_pod)).created = made
                    self._note(ticket.commit(reply))
        except AlreadyExists:
            await self._look_up_mirror()
            return
        except ClusterError as error:
            told = self._rules.render.words(hub_pod, key.namespace)
            failure = create_failure_of(error, target_name=self._target_name).in_words(told)
            is_level = failure.refusal.reason == PodReason.POD_SECURITY_REFUSED
            if is_level and await self._ports.ground.admit_more(key.namespace):
                raise  # soon tried again
            await self._tell_failure(failure)
            if failure.slow and not isinstance(error, Rejected):
                raise Rejected(
                    error.detail,
                    cluster=error.cluster,
                    verb=error.verb,
                    subject=error.subject,
                    reason=error.reason,
                    status=error.status,
                ) from error
            raise
        if not is_marked:
            await self._undo_unmarked(uid_of(hub_pod), reply)
        self._ports.mirror_made(hub_pod, key.namespace)
        log.info("mirror created", mirror=str(key), uid=uid_of(reply))

    async def _undo_unmarked(self, hub_pod_uid: str, reply: JsonObject) -> None:
        """Take back a pod whose marks the target stripped at creation: nobody could find it again.

        It is ours beyond doubt: the reply to our own create names its uid.
        """
        memory = self._memories.of(hub_pod_uid)
        memory.stripped = reply
        await self._take_back(memory)
        refusal = stripped_refusal(self._target_name)
        await self._tell_failure(CreateFailure(refusal=refusal, slow=True))
        raise Rejected(refusal.message, cluster=self._target_name, verb="create", subject="pod")

    async def _take_back(self, memory: PodMemory) -> None:
        """Delete a stripped pod under its uid; it stays on the list until the target answers."""
        if memory.stripped is None:
            return
        self._fence()
        try:
            await self._ports.target.delete(
                PODS, key_of(memory.stripped), uid=uid_of(memory.stripped)
            )
        except Conflict:
            log.info("a stripped pod is gone already", pod=str(key_of(memory.stripped)))
        memory.stripped = None

    @property
    def _target_name(self) -> str:
        return self._rules.target_name

    async def _tell_failure(self, failure: CreateFailure) -> None:
        """Say on the hub pod why there is no mirror; telling must not hide the failure itself.

        One that has a mirror on record does not wait for it, whatever a later request met.
        """
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is None or claims_mirror(hub_pod):
            return
        refusal = failure.refusal
        status = waiting_status(
            hub_pod,
            reason=refusal.reason,
            message=refusal.message,
            now=format_instant(self._ports.now()),
        )
        write = plan_hub_write(hub_pod, status=status)
        if write is None:
            return
        try:
            reply = await self._patch_hub_pod(write.patch)
        except ClusterError as error:
            log.warning("could not tell the hub pod why it waits", error=str(error))
            return
        if reply is not None:
            self._tell(reply, refusal)

    def _fence(self) -> None:
        """Stop before a write to the target where we may not act, or it is another cluster."""
        self._ports.fence()
        self._ports.fence_target()

    def _keep_last_word(self, reply: JsonObject | None) -> None:
        """Remember the last state that a delete's reply shows: newer than what any store has."""
        origin = origin_of(reply) if reply is not None else None
        if reply is not None and origin is not None:
            self._memories.note_end(origin, reply, last=reply)

    def _remember_weakened(self, step: DeleteMirror) -> None:
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            self._memories.of(uid_of(hub_pod)).weakened_by = step.weakened_by

    def _remember_taken_back(self, mirror_uid: str) -> None:
        hub_pod = self._ports.hub_pods.get(self._key)
        if hub_pod is not None:
            self._memories.of(uid_of(hub_pod)).note_taken_back(mirror_uid)

    async def _delete_mirror(self, step: DeleteMirror) -> None:
        key, uid = key_of(step.mirror), uid_of(step.mirror)
        is_orphan = self._ports.hub_pods.get(self._key) is None
        if is_orphan:
            await self._ports.orphan_bound.take()
            # Leftovers with our marks may stand in a cluster that served this virtual node before.
            await self._ports.confirm_target()
        if step.weakened_by:
            self._remember_weakened(step)
        self._fence()
        try:
            with self._ports.mirrors.writing(key) as ticket:
                reply = await self._ports.target.delete(
                    PODS,
                    key,
                    uid=uid,
                    resource_version=resource_version_of(step.mirror) if step.as_seen else None,
                    grace_seconds=step.grace_seconds,
                )
                if step.as_seen and reply is not None:
                    self._remember_taken_back(uid)
                if reply is None or is_really_gone(reply):
                    self._note(ticket.commit_deleted(uid))
                    self._keep_last_word(reply)
                else:
                    self._note(ticket.commit(reply))
        except Conflict:
            await self._look_up_mirror()
            return
        if is_orphan:
            self._ports.on_orphan_deleted()
        log.info("mirror deleted", mirror=str(key), reason=step.reason)


def _owner_uid(hub_pod: JsonObject | None) -> str:
    controller = controller_of(hub_pod) if hub_pod is not None else None
    uid: str = (controller or {}).get("uid") or ""
    return uid

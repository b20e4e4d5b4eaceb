"""Who sees every change of two clusters as it happens, and notes what may never happen.

Judges by what stands in the clusters, never by what federate believes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from federate.companions.record import told_by
from federate.model.marks import HUB_LABEL, RECORDED_GATE, origin_of, record_of
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    labels_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import grace_seconds_of, has_started, is_terminal, node_name_of, phase_of
from federate.model.resources import (
    CONFIGMAPS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
)
from federate.services.door import is_door
from federate.services.following import service_of
from tests.support.fakecluster import FakeCluster
from tests.support.fakestore import Change as Write
from tests.support.fakestore import Eyes
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE


class Witness:
    """Sees every change of both clusters as it happens, and notes what may never happen.

    `federate_acts` is False while the world lets somebody else act. Where `sees_sharply` is False,
    federate may not know yet that somebody took the marks off a mirror.
    """

    def __init__(self, hub: FakeCluster, target: FakeCluster, clock: Callable[[], float]) -> None:
        self.hub, self.target = hub, target
        self._clock = clock
        self.federate_acts = True
        self.grounds: Collection[str] = (TARGET_NAMESPACE,)
        """Target namespaces in which federate may have an anchor."""
        self.sees_sharply = True
        self.broken: list[str] = []
        self.was_restored = False
        """A cluster was brought back to an earlier state: what was true a moment ago may not be."""
        self.runs: dict[str, set[str]] = {}
        """Uids of the mirrors that were ever bound or started, by hub pod uid."""
        self.mirrors_made: Counter[str] = Counter()
        self._taken_back: set[str] = set()
        """Uids of the mirrors that federate deleted gated: they never ran."""
        self._forgotten: set[str] = set()
        self._unmarked_at: dict[str, float] = {}
        self._changed_at = 0.0
        self._shortened_at: dict[str, float] = {}
        hub.store.watches += [Eyes(self._see_hub), Eyes(self._note_change)]
        target.store.watches += [Eyes(self._see_target), Eyes(self._note_change)]

    def mirrors_of(self, hub_pod_uid: str) -> list[JsonObject]:
        """Return what stands in the target with that hub pod's uid."""
        return [pod for pod in self.target_pods() if origin_uid(pod) == hub_pod_uid]

    def target_pods(self) -> Iterator[JsonObject]:
        for resource, obj in self.target.store.all():
            if resource == PODS:
                yield obj

    def hub_pod(self, uid: str) -> JsonObject | None:
        for resource, obj in self.hub.store.all():
            if resource == PODS and uid_of(obj) == uid:
                return obj
        return None

    # -- what others do that changes what federate can know ----------------------------------------

    def hub_forgot(self) -> None:
        """The hub was restored, or somebody removed a record: what it forgot, nobody knows.

        A pod with a mirror on record ran that one at most. Of another none can tell whether it ran,
        until its next mirror is on record.
        """
        for resource, pod in self.hub.store.all():
            if resource == PODS:
                recorded = _recorded(pod)
                self.runs[uid_of(pod)] = {recorded} - {""}
                if not recorded:
                    self._forgotten.add(uid_of(pod))

    def unmarked(self, mirror: JsonObject) -> None:
        """Somebody took marks off a mirror, and so took it from federate."""
        self._unmarked_at.setdefault(uid_of(mirror), self._clock())

    def is_unmarked(self, mirror_uid: str) -> bool:
        return mirror_uid in self._unmarked_at

    # -- the hub -----------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        call = self.target.serves or self.hub.serves
        self.broken.append(f"{text} (at {self._clock():.3f}, {call})")

    def _is_prompt(self, cluster: FakeCluster) -> bool:
        """Tell whether nothing changed since the request was sent: its sender could know better."""
        call = cluster.serves
        if call is None:
            return False
        return call.sent_at == self._clock() or call.sent_at > self._changed_at

    def _note_change(self, _change: Write) -> None:
        self._changed_at = self._clock()

    def _see_sender(self, cluster: FakeCluster) -> None:
        if cluster.serves is not None and cluster.serves.is_unlawful:
            self._note("who knows that another leads wrote")

    def _see_hub(self, change: Write) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and is_terminating(old):  # noqa: SIM102
            if grace_seconds_of(old) != grace_seconds_of(new):
                self._shortened_at[uid_of(new)] = self._clock()
        if not self.federate_acts:
            return
        self._see_sender(self.hub)
        if change.resource != PODS:
            if change.resource != NODES:
                self._note(f"federate wrote {change.resource.plural} {change.key} on the hub")
            return
        if old is None:
            self._note(f"federate created hub pod {change.key}")
        elif node_name_of(old) != SCOPE.node_name:
            self._note(f"federate wrote hub pod {change.key}, which is bound elsewhere")
        elif new is None:
            self._see_let_go(old)
        else:
            self._see_written(old, new)

    def _see_let_go(self, hub_pod: JsonObject) -> None:
        for mirror in self.mirrors_of(uid_of(hub_pod)):
            # One that was created by a late request has never run, and is an orphan now.
            if not _is_held(mirror):
                self._note(f"hub pod {key_of(hub_pod)} was removed before its mirror")

    def _see_written(self, old: JsonObject, new: JsonObject) -> None:
        if is_terminal(old) and phase_of(old) != phase_of(new):
            self._note(f"{key_of(old)} went from {phase_of(old)} to {phase_of(new)}")
        if metadata_of(old).get("finalizers") != metadata_of(new).get("finalizers"):
            self._note(f"finalizers of {key_of(old)} changed")
        if is_terminal(new) and not is_terminal(old):
            self._see_ended(new)
        before, after = _recorded(old), _recorded(new)
        is_given_up = not after and before in self._taken_back
        if before and before != after and not is_given_up:
            self._note(f"{key_of(old)} had {before} on record, and has {after or 'nothing'}")
        if after and uid_of(new) in self._forgotten:
            self._forgotten.discard(uid_of(new))
            self.runs[uid_of(new)] = {after}

    def _see_ended(self, hub_pod: JsonObject) -> None:
        """A pod was said to have ended: then its mirror did, or is not there any more."""
        if self.was_restored or not self._is_prompt(self.hub):
            return
        for mirror in self.mirrors_of(uid_of(hub_pod)):
            if uid_of(mirror) == _recorded(hub_pod) and _is_live(mirror):
                self._note(f"{key_of(hub_pod)} was said to have ended while its mirror lives")

    # -- the target --------------------------------------------------------------------------------

    def _see_target(self, change: Write) -> None:
        if change.resource == PODS and change.new is not None:
            self._count_run(change.new)
            self._count_live(change.new)
        if not self.federate_acts:
            return
        self._see_sender(self.target)
        if change.resource == PODS:
            self._see_mirror(change)
        elif not self._may_write(change):
            self._note(f"federate wrote {change.resource.plural} {change.key} in the target")

    def _may_write(self, change: Write) -> bool:
        if change.resource == NAMESPACES:
            # Made, or (marked as ours) told that it is in use, or given back.
            before = labels_of(change.old or change.new or {}).get(HUB_LABEL)
            return before == SCOPE.hub_id and change.key.name == TARGET_NAMESPACE
        if change.resource == SERVICEACCOUNTS or change.key.name == "kube-root-ca.crt":
            return change.old is None  # the cluster's own controllers fill a new namespace
        if any(_came_along(one) for one in (change.old, change.new) if one is not None):
            return True
        if change.resource in (SERVICES, ENDPOINT_SLICES):
            return all(
                service_of(SCOPE, one) or is_door(SCOPE, one)
                for one in (change.old, change.new)
                if one is not None
            )
        is_anchor = change.resource == CONFIGMAPS and change.key.name == ANCHOR.name
        is_new = change.old is None or _is_same_but_list(change.old, change.new)
        return is_anchor and is_new and change.key.namespace in self.grounds

    def _see_mirror(self, change: Write) -> None:
        if any(s is not None and not SCOPE.owns(s) for s in (change.old, change.new)):
            self._see_foreign(change)
        if change.old is not None:
            self._see_deleted(change.old, change.new)
        if change.new is None:
            return
        if change.old is None:
            self._see_new_mirror(change.key, change.new)
            return
        self._see_image(change.key, change.old, change.new)
        if _is_held(change.old) and not _is_held(change.new):
            self._see_started(change.key, change.new)

    def _see_image(self, key: ObjectKey, old: JsonObject, new: JsonObject) -> None:
        """An image is written when the user changed it, and never taken back to an older one."""
        before, after = image_number(old), image_number(new)
        if image_of(old) == image_of(new) or self.was_restored:
            return
        hub_pod = self.hub_pod(origin_uid(new))
        is_newest = hub_pod is not None and image_number(hub_pod) == after
        if after < before and not is_newest:
            self._note(f"the image of mirror {key} went back to {image_of(new)}")
        if after == before:
            self._note(f"the image of mirror {key} was written against the target's will")

    def _see_foreign(self, change: Write) -> None:
        """A pod without our marks was written: so may only be what lost them a moment ago."""
        call = self.target.serves
        since = self._unmarked_at.get(uid_of(change.old or change.new or {}))
        sent_before = since is not None and call is not None and call.sent_at <= since
        if since is None or (self.sees_sharply and not sent_before):
            self._note(f"federate wrote the foreign pod {change.key}")

    def _see_deleted(self, old: JsonObject, new: JsonObject | None) -> None:
        """A mirror was deleted, or its grace shortened: as its hub pod's is, and not otherwise."""
        before, after = _remaining_grace(old), _remaining_grace(new)
        if after == before or is_terminal(old):
            return
        if after == 0 and node_name_of(old):
            self._note(f"mirror {key_of(old)} was removed without a grace")
        hub_pod = self.hub_pod(origin_uid(old))
        if hub_pod is None or is_terminal(hub_pod) or self.was_restored:
            return
        if not is_terminating(hub_pod):
            if _is_held(old):
                self._taken_back.add(uid_of(old))  # for good: a late patch finds nothing
            elif _recorded(hub_pod) == uid_of(old):
                self._note(f"the mirror of the living {key_of(hub_pod)} was deleted")
        elif (
            node_name_of(old)
            and self._is_prompt(self.target)
            and self._shortened_at.get(uid_of(hub_pod)) != self._clock()
        ):
            wanted = max(1, grace_seconds_of(hub_pod) or 0)
            if after != wanted:
                self._note(f"mirror {key_of(old)} was given {after} s instead of {wanted}")

    def _see_new_mirror(self, key: ObjectKey, mirror: JsonObject) -> None:
        uid = origin_uid(mirror)
        self.mirrors_made[uid] += 1
        if not _is_held(mirror):
            self._note(f"a mirror of {uid} at {key} was not born gated")
        hub_pod = self.hub_pod(uid)
        if hub_pod is None or not self._is_prompt(self.target):
            return  # a create that was under way: it starts nothing (C53, C70)
        if is_terminal(hub_pod):
            self._note(f"the terminal hub pod {key_of(hub_pod)} got a mirror")
        elif record_of(hub_pod) is None:
            self._note(f"{key_of(hub_pod)} got a mirror without an intent on record")
        elif _recorded(hub_pod):
            self._note(f"{key_of(hub_pod)} got a mirror after {_recorded(hub_pod)}")

    def _see_started(self, key: ObjectKey, mirror: JsonObject) -> None:
        hub_pod = self.hub_pod(origin_uid(mirror))
        if hub_pod is None:
            return  # force-deleted while the patch was under way (C53)
        if _recorded(hub_pod) != uid_of(mirror) and origin_uid(mirror) not in self._forgotten:
            self._note(f"mirror {key} was let go, but is not the one on record")
        if is_terminal(hub_pod) and self._is_prompt(self.target):
            self._note(f"mirror {key} of a terminal hub pod was let go")

    def _count_run(self, mirror: JsonObject) -> None:
        """Note what was bound or has started: from then on it may do what must be done once."""
        uid = origin_uid(mirror)
        if not uid or not (node_name_of(mirror) or has_started(mirror)):
            return
        runs = self.runs.setdefault(uid, set())
        if uid in self._forgotten:
            runs.clear()
        runs.add(uid_of(mirror))
        if len(runs) > 1 and spec_of(mirror).get("restartPolicy") != "Always":
            self._note(f"hub pod {uid} ran {len(runs)} times")

    def _count_live(self, mirror: JsonObject) -> None:
        uid = origin_uid(mirror)
        if not uid or _is_held(mirror):
            return
        live = {
            uid_of(one)
            for one in (*self.mirrors_of(uid), mirror)
            if not _is_held(one) and not is_terminal(one)
        }
        if len(live) > 1:
            self._note(f"two mirrors of {uid} may run: {sorted(live)}")


def image_of(pod: JsonObject) -> str:
    """Return the image of a pod's first container."""
    image: str = spec_of(pod)["containers"][0]["image"]
    return image


def image_number(pod: JsonObject) -> int:
    """Number an image as users of histories count them; the first has none."""
    tag = image_of(pod).rpartition(":")[2]
    return int(tag) if tag.isdigit() else 0


def origin_uid(pod: JsonObject) -> str:
    """Say which hub pod of this virtual node a pod mirrors, "" where it is no mirror of it."""
    origin = origin_of(pod)
    return origin.pod_uid if origin is not None and origin.scope == SCOPE else ""


def _came_along(obj: JsonObject) -> bool:
    return told_by(SCOPE, obj) is not None


def _is_same_but_list(old: JsonObject, new: JsonObject | None) -> bool:
    """Tell whether of an anchor only the list of Secrets was written."""
    told = [
        {**one, "data": None, "metadata": {**one["metadata"], "resourceVersion": ""}}
        for one in (old, new)
        if one is not None
    ]
    return len(told) == 2 and told[0] == told[1]


def _recorded(hub_pod: JsonObject) -> str:
    record = record_of(hub_pod)
    return record.mirror_uid if record is not None else ""


def _is_live(mirror: JsonObject) -> bool:
    return not is_terminal(mirror) and not is_terminating(mirror)


def _remaining_grace(mirror: JsonObject | None) -> float:
    """Seconds of grace: endless where it is not deleted, 0 where it is gone."""
    if mirror is None:
        return 0.0
    return (grace_seconds_of(mirror) or 0) if is_terminating(mirror) else float("inf")


def _is_held(mirror: JsonObject) -> bool:
    gates = spec_of(mirror).get("schedulingGates") or []
    return any(gate.get("name") == RECORDED_GATE for gate in gates)

"""How far the two sides of a pod lie behind each other, measured where both are seen.

Two spans: from a hub pod that is new to us to its mirror, and from a mirror's changed status to the
hub pod's. Whatever is measured is told once and forgotten, so that only pods under way take memory;
a pod that waits counts with all its waiting.
"""

from __future__ import annotations

from collections.abc import Callable

from federate.cluster.store import Change
from federate.model.marks import origin_of, record_of
from federate.model.objects import ObjectKey, status_of, uid_of

Tell = Callable[[float], None]
"""Takes note of one span, in seconds."""


class PodLags:
    """The pods under way of one virtual node."""

    def __init__(self, *, mirrored: Tell, told: Tell, clock: Callable[[], float]) -> None:
        self._mirrored = mirrored
        self._told = told
        self._clock = clock
        self._unmirrored: dict[str, float] = {}
        """Uid of a hub pod without a mirror -> when it was first seen."""
        self._untold: dict[ObjectKey, float] = {}
        """Hub pod key -> when the status of its mirror was seen to differ."""

    def hub_pod_changed(self, change: Change) -> None:
        """Begin with a hub pod that is new; one that has a mirror on record is from before us."""
        before = uid_of(change.old) if change.old is not None else ""
        after = uid_of(change.new) if change.new is not None else ""
        if before == after:
            return
        self._unmirrored.pop(before, None)
        if change.new is None:
            return
        record = record_of(change.new)
        if record is None or not record.mirror_uid:
            self._unmirrored[uid_of(change.new)] = self._clock()

    def mirror_changed(self, change: Change) -> None:
        """Take note of a new mirror, whether the reply or the watch was first to show it."""
        origin = origin_of(change.new) if change.new is not None and change.old is None else None
        since = self._unmirrored.pop(origin.pod_uid, None) if origin is not None else None
        if since is not None:
            self._mirrored(self._clock() - since)

    def mirror_told(self, change: Change) -> None:
        """Begin where the watch brings another status; the first one counts until it is written."""
        if change.old is None or change.new is None:
            return
        if status_of(change.old) != status_of(change.new):
            origin = origin_of(change.new)
            if origin is not None:
                self._untold.setdefault(origin.pod, self._clock())

    def reconciled(self, key: ObjectKey, *, wrote: bool, rests: bool) -> None:
        """End with a reconcile that wrote the hub pod; one that rests had nothing to write."""
        since = self._untold.pop(key, None) if wrote or rests else None
        if since is not None and wrote:
            self._told(self._clock() - since)

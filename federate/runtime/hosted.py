"""The pods of one virtual node as its kubelet API finds them. Satisfies `kubelet.ports.PodsPort`.

A hub pod's record is an annotation, which whoever may edit the pod may write. So it leads to a
mirror only where that mirror says the same: it is in sight, of this virtual node, with that uid,
and names this very hub pod. Nobody comes to a stranger's pod by way of an annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from federate.cluster.store import Store
from federate.kubelet.ports import Located
from federate.model.marks import origin_of, record_of
from federate.model.objects import JsonObject, ObjectKey, key_of, uid_of


class HostedPods:
    """Looks into the stores that mirroring keeps; nothing is asked for."""

    def __init__(
        self, *, hub_pods: Store, mirror_by_uid: Callable[[str], JsonObject | None]
    ) -> None:
        """`hub_pods` holds those of this virtual node; `mirror_by_uid` finds only its mirrors."""
        self._hub_pods = hub_pods
        self._mirror_by_uid = mirror_by_uid

    def find(self, key: ObjectKey, uid: str = "") -> Located | None:
        """Find a hub pod that has a mirror; with `uid` only that very hub pod."""
        hub_pod = self.hub_pod(key)
        if hub_pod is None or uid not in ("", uid_of(hub_pod)):
            return None
        return self._locate(hub_pod)

    def hub_pod(self, key: ObjectKey) -> JsonObject | None:
        """Return a hub pod of this virtual node, whether it has a mirror or not."""
        return self._hub_pods.get(key)

    def all(self) -> Iterator[JsonObject]:
        """Yield all hub pods of this virtual node that are there now, unpacked one by one."""
        standing = list(self._hub_pods.glances())
        return (hub_pod.unpack() for hub_pod in standing)

    def located(self) -> Iterator[Located]:
        """Yield those of them that have a mirror."""
        found = (self._locate(hub_pod) for hub_pod in self.all())
        return (located for located in found if located is not None)

    def _locate(self, hub_pod: JsonObject) -> Located | None:
        record = record_of(hub_pod)
        mirror = self._mirror_by_uid(record.mirror_uid) if record and record.mirror_uid else None
        origin = origin_of(mirror) if mirror is not None else None
        if mirror is None or origin is None:
            return None
        if (origin.pod, origin.pod_uid) != (key_of(hub_pod), uid_of(hub_pod)):
            return None
        return Located(
            hub_pod=hub_pod, mirror=key_of(mirror), mirror_uid=uid_of(mirror), mirror_pod=mirror
        )

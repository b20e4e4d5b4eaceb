"""A world whose pods refer to ConfigMaps and Secrets, and what a user or an admin does to those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from federate.companions.entries import lines_of
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.rules import CompanionRules
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import CONFIGMAPS, PODS
from federate.runtime.companions import Comers
from tests.support.builders import PodBuilder, pod
from tests.support.companions import encoded
from tests.support.scene import SCOPE, TARGET_NAMESPACE
from tests.support.worlds import World


class CompanionWorld(World):
    """Companions come along; `user` of the hub, `admin` of the target."""

    def __init__(self, **how: Any) -> None:
        super().__init__(companions=how.pop("companions", CompanionRules()), **how)

    def give(self, kind: Kind, name: str, **values: str) -> ObjectKey:
        """A user makes an object on the hub, or changes its values."""
        key = ObjectKey("default", name)
        is_secret = kind is Kind.SECRET
        data = {k: encoded(v) if is_secret else v for k, v in values.items()}
        with self.others():
            if self.hub.find(kind.resource, key) is None:
                body: JsonDict = {
                    "metadata": {"name": name, "namespace": "default"},
                    "data": data,
                    **({"type": "Opaque"} if is_secret else {}),
                }
                self.hub.add(kind.resource, body)
            else:
                self.hub.edit(kind.resource, key, lambda obj: obj.update(data=data))
        return key

    def take(self, kind: Kind, name: str) -> None:
        """A user deletes an object on the hub."""
        with self.others():
            self.hub.delete_by_user(kind.resource, ObjectKey("default", name))

    def delete(self, key: ObjectKey) -> None:
        """A user deletes a pod."""
        with self.others():
            self.hub.delete_by_user(PODS, key, grace_seconds=1)

    @property
    def comers(self) -> Comers:
        """What the process that leads keeps of companions."""
        return self.process.mirroring.comers

    def key_of(self, kind: Kind, name: str) -> CompanionKey:
        return CompanionKey(TARGET_NAMESPACE, kind, "default", name)

    def companion(self, kind: Kind, name: str) -> JsonDict | None:
        """What stands in the target for it."""
        return self.target.find(kind.resource, name_of(SCOPE, self.key_of(kind, name)))

    def values(self, kind: Kind, name: str) -> dict[str, str] | None:
        found = self.companion(kind, name)
        return None if found is None else dict(found.get("data") or {})

    def admin_edits(self, kind: Kind, name: str, change: Callable[[JsonDict], None]) -> None:
        """Somebody in the target changes a companion."""
        with self.others():
            self.target.edit(kind.resource, name_of(SCOPE, self.key_of(kind, name)), change)

    def admin_deletes(self, kind: Kind, name: str) -> None:
        with self.others():
            self.target.delete_by_user(kind.resource, name_of(SCOPE, self.key_of(kind, name)))

    def listed(self) -> set[str]:
        """What is on record in the target of Secrets."""
        configmaps = [obj for which, obj in self.target.store.all() if which == CONFIGMAPS]
        return {
            said
            for configmap in configmaps
            for said in lines_of(configmap).values()
            if said.startswith("Secret ")
        }

    async def until(self, condition: Callable[[], bool], *, seconds: float = 120.0) -> float:
        """Wait in virtual time; returns how long it took."""
        began_at = self.clock()
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return self.clock() - began_at


def needing(name: str, *objects: tuple[Kind, str], optional: bool = False) -> PodBuilder:
    """A pod that takes its environment from those objects."""
    fields = {Kind.CONFIGMAP: "configMapRef", Kind.SECRET: "secretRef"}
    sources = [{fields[kind]: {"name": which, "optional": optional}} for kind, which in objects]
    return pod(name).with_spec(
        containers=[{"name": "main", "image": "busybox", "envFrom": sources}]
    )

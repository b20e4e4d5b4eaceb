"""The pods of the hub that wait for a claim: they have no node yet, so no watch of ours shows them.

For a pod that the target refuses nothing is made there, not even its storage.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from federate.claims.places import claims_used
from federate.claims.ports import ClaimTools
from federate.claims.steps import Users
from federate.cluster.identity import SharedCheck
from federate.model.objects import JsonDict, ObjectKey
from federate.model.pods import is_terminal
from federate.model.resources import PODS

UNBOUND = "spec.nodeName="
"""Field selector of the pods that the scheduler has not bound."""


class Waiting:
    """Looks for them; many claims of one namespace that ask at once cost two listings."""

    def __init__(self, tools: ClaimTools) -> None:
        self._tools = tools
        self._checks: dict[str, SharedCheck] = {}
        self._askers: Counter[str] = Counter()
        self._listed: dict[str, list[JsonDict]] = {}

    async def users(self, claim: ObjectKey) -> Users:
        """Say who waits for a claim.

        Raises:
            ClusterError: it cannot be told.
        """
        namespace = claim.namespace
        check = self._checks.setdefault(namespace, SharedCheck(partial(self._list, namespace)))
        self._askers[namespace] += 1
        try:
            await check()
            return self._judge(claim, self._listed[namespace])
        finally:
            self._askers[namespace] -= 1
            if not self._askers[namespace]:
                for kept in (self._checks, self._askers, self._listed):
                    kept.pop(namespace, None)

    async def _list(self, namespace: str) -> None:
        self._tools.ports.count_read(self._tools.ports.hub.name)
        listing = await self._tools.ports.hub.list(
            PODS, namespace=namespace, field_selector=UNBOUND
        )
        self._listed[namespace] = [pod for pod in listing.items if claims_used(pod)]

    def _judge(self, claim: ObjectKey, pods: list[JsonDict]) -> Users:
        users = [
            pod
            for pod in pods
            if not is_terminal(pod) and any(use.claim == claim for use in claims_used(pod))
        ]
        if not users:
            return Users.NONE
        is_refused = self._tools.ports.is_refused
        return Users.REFUSED if all(map(is_refused, users)) else Users.WELCOME

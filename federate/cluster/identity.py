"""Which cluster is this? The uid of its kube-system namespace (C3, C5).

Where only some namespaces may be read, the uid of the default service account in one of them says
it too: every cluster makes its own. An anchor would not do, for it is there to be deleted.

A client may come to speak to another cluster: its kubeconfig was replaced, a name or an address
moved, the cluster was built anew. There everything is absent. So nothing that is absent counts
before the identity was asked for *after* the absence was seen.

What one connection says is taken to hold for the others. Clusters have authorities of their own, so
a connection of another cluster fails, and a replaced kubeconfig gets new connections. Two clusters
that share one address *and* one authority in turn could deceive us, for as long as they alternate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from typing import TypeVar

from federate.cluster.port import ClusterPort
from federate.errors import FederateError, LeadershipLost, Unreachable
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import NAMESPACES, SERVICEACCOUNTS

T = TypeVar("T")

CONFIRM_SECONDS = 10.0
"""How long an identity is waited for. Many may wait behind one read, so it is no whole request's
patience; shorter, and a slow API server holds up what it could confirm."""


async def cluster_identity(client: ClusterPort) -> str:
    """Return the cluster's identity; raises ClusterError where it may not be read."""
    return uid_of(await client.get(NAMESPACES, ObjectKey("", "kube-system")))


async def namespace_identity(client: ClusterPort, namespace: str) -> str:
    """Return the identity of the cluster as one of its namespaces tells it.

    Raises:
        NotFound: there is no such namespace, or its default service account is not made yet.
        ClusterError: it may not be read.
    """
    account = await client.get(SERVICEACCOUNTS, ObjectKey(namespace, "default"))
    uid = uid_of(account)
    return f"{namespace}/{uid}" if uid else ""


def telling_namespace(identity: str) -> str:
    """Return which namespace told the identity; "" where the cluster itself did."""
    namespace, slash, _ = identity.rpartition("/")
    return namespace if slash else ""


def describe_identity(identity: str) -> str:
    """Say what the identity is the uid of."""
    namespace = telling_namespace(identity)
    if not namespace:
        return f"kube-system uid {identity}"
    uid = identity.removeprefix(f"{namespace}/")
    return f"uid {uid} of the default service account in namespace {namespace}"


class SharedCheck:
    """A check that many ask for at once: each gets the verdict of one that *began after* it asked.

    Who asks while a check is under way waits for the next, together with all others who do. So a
    burst costs two checks, however large it is, and no verdict is older than its question.
    """

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._asked = 0
        self._answered = 0
        self._verdict: FederateError | None = None
        self._under_way = asyncio.Lock()

    async def __call__(self) -> None:
        """Return where the check passed; raises what it raised."""
        self._asked += 1
        number = self._asked
        async with self._under_way:
            if self._answered < number:
                # Nobody's check since we asked, or its asker was cancelled: then it is ours.
                await self._ask_for_all()
            verdict = self._verdict
        if verdict is not None:
            raise copy(verdict) from verdict  # each asker adds a traceback of its own

    async def _ask_for_all(self) -> None:
        asked = self._asked
        verdict: FederateError | None = None
        try:
            await self._check()
        except FederateError as error:
            verdict = error
        self._answered, self._verdict = asked, verdict


async def bounded_identity(read: Awaitable[T], *, name: str) -> T:
    """Return what `read` says of the cluster called `name`, in bounded time.

    Raises:
        ClusterError: it cannot be told.
    """
    try:
        async with asyncio.timeout(CONFIRM_SECONDS):
            return await read
    except TimeoutError as error:
        raise Unreachable(
            f"no answer within {CONFIRM_SECONDS:g} s", cluster=name, verb="identify"
        ) from error


class IdentityGuard:
    """Confirms that a client still speaks to the cluster it was made for; the hub's."""

    def __init__(self, client: ClusterPort, expected: str) -> None:
        self._client = client
        self._expected = expected
        self._shared = SharedCheck(self._check)

    async def confirm(self) -> None:
        """Return where it is the same cluster, as read after this call.

        Raises:
            LeadershipLost: it is another one; nobody may act on what it says.
            ClusterError: it cannot be told.
        """
        await self._shared()

    async def _check(self) -> None:
        found = await bounded_identity(cluster_identity(self._client), name=self._client.name)
        if found != self._expected:
            raise LeadershipLost(
                f"{self._client.name} is another cluster now (kube-system uid {found or 'none'}, "
                f"expected {self._expected}): nothing is written. Check its kubeconfig"
            )

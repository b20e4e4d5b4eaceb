"""Read what the judges need, from either side. Thin: every function is a request or a few.

What may not be read, or is not served there, is None; other failures are the caller's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence

from federate.check.access import (
    ACCESS_REVIEWS,
    RULES_REVIEWS,
    SUBJECT_REVIEWS,
    Question,
    rules_review,
    subject_review,
    user_of,
)
from federate.check.hubaddress import place_of
from federate.check.kubeletapi import MOST_SAID, Probe
from federate.cluster.identity import cluster_identity, namespace_identity
from federate.cluster.port import ClusterPort
from federate.cluster.sessions import Access
from federate.cluster.upstream import OpenCall, UpstreamCall
from federate.companions.environment import Advertised
from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Unauthorized,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey, status_of
from federate.model.resources import (
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    SERVICE_RANGES,
    SERVICEACCOUNTS,
    STORAGE_CLASSES,
    Resource,
)
from federate.services.ranges import RangeSources

MOST_READ = 8 * MOST_SAID
"""Bytes of an answer in words."""

AT_ONCE = 8
"""Questions under way: they are cheap, and an API server that is slow is not pressed."""

AUTHORITIES = ObjectKey("kube-system", "kube-root-ca.crt")
"""Whom pods believe; the same stands in every namespace."""

KUBEADM = ObjectKey("kube-system", "kubeadm-config")


async def read_user(client: ClusterPort) -> str:
    """Ask who we are; "" where the server is too old to tell (before 1.28).

    Raises:
        Unauthorized: nobody.
    """
    try:
        return user_of(await client.create(SUBJECT_REVIEWS, subject_review()))
    except (NotFound, ServerFault, Forbidden, Rejected):
        # It answered somebody, or nobody: asking for a right tells which.
        await client.create(
            ACCESS_REVIEWS,
            {
                "apiVersion": ACCESS_REVIEWS.group_version,
                "kind": ACCESS_REVIEWS.kind,
                "spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}},
            },
        )
        return ""


async def read_version(client: ClusterPort) -> str:
    """Return what the server says it is, as in `v1.34.4`."""
    return str((await client.raw_get("/version")).get("gitVersion") or "")


async def read_identity(client: ClusterPort) -> str:
    """Return the uid of kube-system, "" where it may not be read."""
    try:
        return await cluster_identity(client)
    except (Forbidden, NotFound):
        return ""


async def read_namespace_identities(
    client: ClusterPort, namespaces: Iterable[str]
) -> frozenset[str]:
    """Return what these namespaces tell the cluster by, as it stands on record."""
    found = set()
    for namespace in namespaces:
        try:
            found.add(await namespace_identity(client, namespace))
        except (Forbidden, NotFound):
            continue
    return frozenset(name for name in found if name)


async def ask_all(client: ClusterPort, questions: Iterable[Question]) -> dict[Question, bool]:
    """Ask whether each may be done, a few at a time.

    Raises:
        ClusterError: an answer did not come.
    """
    bound = asyncio.Semaphore(AT_ONCE)

    async def ask(question: Question) -> bool:
        async with bound:
            reply = await client.create(ACCESS_REVIEWS, question.review())
        return bool(status_of(reply).get("allowed"))

    asked = list(questions)
    answers = await asyncio.gather(*(ask(question) for question in asked))
    return dict(zip(asked, answers, strict=True))


async def ask_by_rules(
    client: ClusterPort, questions: Iterable[Question]
) -> dict[Question, bool] | None:
    """Answer the questions by the list of all rules; None where that is not the whole truth.

    For servers that do not answer single questions.
    """
    rules: dict[str, JsonObject] = {}
    answers: dict[Question, bool] = {}
    for question in questions:
        namespace = question.right.namespace
        if namespace not in rules:
            reply = await client.create(RULES_REVIEWS, rules_review(question.right))
            rules[namespace] = reply
        answers[question] = question.is_allowed_by(rules[namespace])
        if not answers[question] and status_of(rules[namespace]).get("incomplete"):
            return None
    return answers


async def read_object(client: ClusterPort, resource: Resource, key: ObjectKey) -> JsonDict | None:
    """Read one object; None where there is none.

    Raises:
        Forbidden: it may not be read.
    """
    try:
        return await client.get(resource, key)
    except NotFound:
        return None


async def read_access_of_pods(client: ClusterPort, advertised: Advertised) -> Access | None:
    """Say how a pod reaches the hub: by the authorities that it is given, and as nobody.

    None where it is given none.

    Raises:
        Forbidden: they may not be read.
    """
    found = await read_object(client, CONFIGMAPS, AUTHORITIES)
    authorities = str(((found or {}).get("data") or {}).get("ca.crt") or "")
    try:
        # Without authorities of its own it would be those of this host.
        tls = ssl.create_default_context(cadata=authorities) if authorities else None
    except (ssl.SSLError, ValueError):
        return None
    return Access(server=f"https://{place_of(advertised)}", tls=tls) if tls is not None else None


async def read_everywhere(
    client: ClusterPort,
    resource: Resource,
    *,
    namespaces: Sequence[str] = (),
    label_selector: str = "",
    metadata_only: bool = False,
) -> list[JsonDict]:
    """List in the given namespaces, or in all."""
    found: list[JsonDict] = []
    for namespace in namespaces or ("",):
        listing = await client.list(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            metadata_only=metadata_only,
        )
        found += listing.items
    return found


async def read_range_sources(client: ClusterPort) -> RangeSources:
    """Read whatever tells of address ranges; what cannot be read is None."""
    nodes, service_ranges, kubeadm = await asyncio.gather(
        _list_if_possible(client, NODES),
        _list_if_possible(client, SERVICE_RANGES),
        _get_if_possible(client, CONFIGMAPS, KUBEADM),
    )
    return RangeSources(nodes=nodes, service_ranges=service_ranges, kubeadm=kubeadm)


async def _list_if_possible(client: ClusterPort, resource: Resource) -> list[JsonDict] | None:
    try:
        return (await client.list(resource)).items
    except ClusterError:
        return None


async def _get_if_possible(
    client: ClusterPort, resource: Resource, key: ObjectKey
) -> JsonDict | None:
    try:
        return await client.get(resource, key)
    except ClusterError:
        return None


async def read_namespaces(
    client: ClusterPort, names: Iterable[str]
) -> tuple[list[JsonDict], list[str]]:
    """Read the namespaces of these names; returns those there are, and the names of the others."""
    there, missing = [], []
    for name in names:
        found = await read_object(client, NAMESPACES, ObjectKey("", name))
        if found is None:
            missing.append(name)
        else:
            there.append(found)
    return there, missing


async def read_storage_classes(
    client: ClusterPort, names: Iterable[str]
) -> dict[str, JsonDict | None]:
    """Read the storage classes of these names; None where there is none.

    Raises:
        Forbidden: they may not be read.
    """
    return {name: await read_object(client, STORAGE_CLASSES, ObjectKey("", name)) for name in names}


async def read_accounts(
    client: ClusterPort, namespaces: Iterable[str], name: str
) -> dict[str, JsonDict | None]:
    """Read the service account of one name in each namespace, a few at a time.

    Raises:
        ClusterError: an answer did not come; Forbidden: it may not be read in one of them.
    """
    bound = asyncio.Semaphore(AT_ONCE)

    async def read(namespace: str) -> JsonDict | None:
        async with bound:
            return await read_object(client, SERVICEACCOUNTS, ObjectKey(namespace, name))

    asked = list(namespaces)
    found = await asyncio.gather(*map(read, asked))
    return dict(zip(asked, found, strict=True))


async def probe_kubelet(open_call: OpenCall, node_name: str) -> Probe:
    """Have the hub's API server ask the kubelet API of a node how it is.

    Raises:
        ClusterError: the API server itself does not answer.
    """
    path = NODES.path(name=node_name, subresource="proxy/healthz")
    try:
        async with open_call(UpstreamCall(method="GET", path=path)) as reply:
            said = b""
            if reply.body is not None:
                async for chunk in reply.body:
                    said += chunk
                    if len(said) >= MOST_READ:
                        break
            return Probe(status=reply.status, said=said[:MOST_READ].decode("utf-8", "replace"))
    except Unauthorized as error:
        # The server knows us, or it would have said so before: whoever is asked does not know it.
        return Probe(status=401, said=error.detail)

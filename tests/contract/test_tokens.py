"""How an API server issues tokens for pods, asked of the in-memory one and of a real one."""

from __future__ import annotations

import pytest

from federate.cluster.port import ClusterPort
from federate.companions.lifetimes import facts_of
from federate.errors import ClusterError
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import PODS
from tests.contract.servers import Server

WEB: JsonDict = {
    "metadata": {"name": "web"},
    "spec": {"nodeName": "edge", "containers": [{"name": "main", "image": "busybox:1"}]},
}


async def asked(client: ClusterPort, account: ObjectKey, **spec: object) -> str:
    """Return what became of a request, in a word."""
    try:
        reply = await client.request_token(account, {"spec": {"expirationSeconds": 600, **spec}})
    except ClusterError as error:
        return type(error).__name__
    facts = facts_of(reply["status"]["token"])
    assert facts is not None
    return f"{','.join(facts.audiences)} for {facts.life_seconds:g}"


@pytest.fixture
def bound() -> JsonDict:
    return {"apiVersion": "v1", "kind": "Pod", "name": "web"}


async def test_a_token_is_for_that_very_pod_or_refused(server: Server, bound: JsonDict) -> None:
    """A missing account, a missing pod, another uid and a short life are told apart."""
    async with server.open() as (client, namespace):
        pod = await client.create(PODS, WEB, namespace=namespace)
        account = ObjectKey(namespace, "default")
        mine = {**bound, "uid": uid_of(pod)}
        vault = {"audiences": ["vault"]}
        assert await asked(client, account, boundObjectRef=mine, **vault) == "vault for 600"
        for said, others in {
            "NotFound": {**mine, "name": "other"},
            "Conflict": {**mine, "uid": "another"},
        }.items():
            assert await asked(client, account, boundObjectRef=others) == said
        robot = ObjectKey(namespace, "robot")
        assert await asked(client, robot, boundObjectRef=mine) == "NotFound"
        short = {"boundObjectRef": mine, "expirationSeconds": 60}
        assert await asked(client, account, **short) == "Rejected"


async def test_a_token_says_which_pod_it_is_for(server: Server, bound: JsonDict) -> None:
    """What is read from it is what it was asked for."""
    async with server.open() as (client, namespace):
        pod = await client.create(PODS, WEB, namespace=namespace)
        spec = {"expirationSeconds": 3600, "boundObjectRef": {**bound, "uid": uid_of(pod)}}
        reply = await client.request_token(ObjectKey(namespace, "default"), {"spec": spec})
        facts = facts_of(reply["status"]["token"])
        assert facts is not None and facts.audiences
        assert (facts.pod_uid, facts.life_seconds) == (uid_of(pod), 3600)

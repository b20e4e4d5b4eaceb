"""What the in-memory cluster can do beyond a real one: faults, lag, and playing everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from federate.cluster.port import ClusterPort, WatchEvent
from federate.errors import Expired, NotFound, Throttled, Unreachable
from federate.model.objects import JsonDict, ObjectKey, key_of, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, SERVICEACCOUNTS
from federate.patch.document import MERGE, PatchBody
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import (
    Call,
    Crash,
    CrashAfter,
    CrashBefore,
    Delay,
    Fault,
    LostReply,
    LostRequest,
    Refuse,
)
from tests.support.fakecluster import FakeCluster

KEY = ObjectKey("default", "config")
WEB = ObjectKey("default", "web")
CONFIG: JsonDict = {"metadata": {"name": "config", "namespace": "default"}, "data": {"a": "1"}}


def make_cluster() -> FakeCluster:
    return FakeCluster("edge", virtual_loop().time)


def on(verb: str, fault: Fault) -> Callable[[Call], Fault | None]:
    return lambda call: fault if call.verb == verb else None


def reading(watch: AsyncIterator[WatchEvent]) -> asyncio.Task[list[str]]:
    async def read() -> list[str]:
        return [event.type async for event in watch]

    return asyncio.create_task(read())


@virtual_time
async def test_it_satisfies_the_port() -> None:
    """The client of the in-memory cluster is what product code is written against."""
    client: ClusterPort = make_cluster().client("somebody")
    assert client.name == "somebody"


@virtual_time
async def test_calls_are_written_down() -> None:
    """Every call is recorded with its body; reads and dry runs are no writes."""
    cluster = make_cluster()
    client = cluster.client()
    await client.create(CONFIGMAPS, CONFIG)
    await client.create(CONFIGMAPS, {"metadata": {"name": "b"}}, namespace="default", dry_run=True)
    await client.get(CONFIGMAPS, KEY)
    patch = PatchBody(media_type=MERGE, body={"data": {"a": "2"}})
    await client.patch(CONFIGMAPS, KEY, patch)
    uid = uid_of(cluster.read(CONFIGMAPS, KEY))
    await client.delete(CONFIGMAPS, KEY, uid=uid, grace_seconds=0)
    assert [str(call) for call in cluster.writes()] == [
        "create configmaps default/config",
        "patch configmaps default/config",
        "delete configmaps default/config",
    ]
    assert [call.number for call in cluster.calls] == [0, 1, 2, 3, 4]
    assert cluster.writes()[1].body == {"data": {"a": "2"}}
    assert (cluster.writes()[2].body or {})["gracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("fault", "raised", "carried_out"),
    [
        (LostRequest(), Unreachable, False),
        (LostReply(), Unreachable, True),
        (Refuse(Throttled("slow down")), Throttled, False),
        (CrashBefore(), Crash, False),
        (CrashAfter(), Crash, True),
        (Delay(3600), Unreachable, False),
    ],
)
@virtual_time
async def test_faults(fault: Fault, raised: type[BaseException], carried_out: bool) -> None:
    """A fault on the way there prevents the write, one on the way back only hides it."""
    cluster = make_cluster()
    cluster.faults = on("create", fault)
    with pytest.raises(raised):
        await cluster.client().create(CONFIGMAPS, CONFIG)
    assert (cluster.find(CONFIGMAPS, KEY) is not None) == carried_out
    assert len(cluster.writes()) == 1


@virtual_time
async def test_a_delay_takes_its_time_up_to_the_clients_patience() -> None:
    """A slow request is carried out late; a hung one ends after 30 s."""
    cluster = make_cluster()
    cluster.faults = on("create", Delay(7))
    start = virtual_loop().time()
    await cluster.client().create(CONFIGMAPS, CONFIG)
    assert virtual_loop().time() - start == 7
    cluster.faults = on("get", Delay(3600))
    with pytest.raises(Unreachable):
        await cluster.client().get(CONFIGMAPS, KEY)
    assert virtual_loop().time() - start == 37


@virtual_time
async def test_a_throttled_reply_keeps_its_wish() -> None:
    """Retry-After reaches the caller."""
    throttled = Throttled("slow down")
    throttled.retry_after_seconds = 17
    cluster = make_cluster()
    cluster.faults = on("get", Refuse(throttled))
    with pytest.raises(Throttled) as caught:
        await cluster.client().get(CONFIGMAPS, KEY)
    assert caught.value.retry_after_seconds == 17
    assert caught.value.cluster == "edge"


@virtual_time
async def test_a_cluster_that_is_down_breaks_watches_and_answers_nobody() -> None:
    """While a cluster is down nothing gets through; afterwards everything is as it was."""
    cluster = make_cluster()
    client = cluster.client()
    version = (await client.list(CONFIGMAPS)).resource_version
    task = reading(client.watch(CONFIGMAPS, resource_version=version))
    await asyncio.sleep(1)
    cluster.go_down()
    with pytest.raises(Unreachable):
        await task
    with pytest.raises(Unreachable):
        await client.list(CONFIGMAPS)
    cluster.come_up()
    assert (await client.list(CONFIGMAPS)).resource_version == version
    assert cluster.store.watches == []


@virtual_time
async def test_a_closed_client_is_closed() -> None:
    """Closing a client ends its watches, not those of others, and refuses its requests."""
    cluster = make_cluster()
    client, other = cluster.client("a"), cluster.client("b")
    version = (await client.list(CONFIGMAPS)).resource_version
    tasks = [reading(c.watch(CONFIGMAPS, resource_version=version)) for c in (client, other)]
    await asyncio.sleep(1)
    await client.aclose()
    with pytest.raises(Unreachable):
        await tasks[0]
    with pytest.raises(Unreachable):
        await client.list(CONFIGMAPS)
    assert not tasks[1].done()
    assert await tasks[1] == []


@virtual_time
async def test_watches_get_bookmarks_and_ends() -> None:
    """Bookmarks come on demand; a closed watch ends, a broken one raises."""
    cluster = make_cluster()
    client = cluster.client()
    version = (await client.list(CONFIGMAPS)).resource_version
    task = reading(client.watch(CONFIGMAPS, resource_version=version))
    await asyncio.sleep(1)
    cluster.add(CONFIGMAPS, CONFIG)
    cluster.bookmark()
    cluster.close_watches()
    assert await task == ["ADDED", "BOOKMARK"]
    task = reading(client.watch(CONFIGMAPS, resource_version=version))
    await asyncio.sleep(1)
    cluster.break_watches()
    with pytest.raises(Unreachable):
        await task


@virtual_time
async def test_compacted_versions_are_expired() -> None:
    """After a compaction, only the latest version can be watched from."""
    cluster = make_cluster()
    client = cluster.client()
    old = (await client.list(CONFIGMAPS)).resource_version
    cluster.add(CONFIGMAPS, CONFIG)
    cluster.compact()
    with pytest.raises(Expired) as caught:
        await reading(client.watch(CONFIGMAPS, resource_version=old))
    assert caught.value.cluster == "edge"
    new = (await client.list(CONFIGMAPS)).resource_version
    assert await reading(client.watch(CONFIGMAPS, resource_version=new)) == []


@virtual_time
async def test_cached_reads_lag_behind() -> None:
    """With a lagging cache, reads of version 0 show the past and quorum reads the present."""
    cluster = make_cluster()
    client = cluster.client()
    cluster.add(CONFIGMAPS, {**CONFIG, "metadata": {"name": "stays", "namespace": "default"}})
    cluster.add(CONFIGMAPS, CONFIG)
    cluster.edit(CONFIGMAPS, KEY, lambda config: config["data"].update(a="2"))
    cluster.add(PODS, pod("web").build())
    cluster.delete_by_user(CONFIGMAPS, KEY)

    async def seen(version: str | None) -> list[object]:
        listing = await client.list(CONFIGMAPS, namespace="default", resource_version=version)
        return [item["data"]["a"] for item in listing.items if "a" in item["data"]]

    assert await seen(None) == ["1"]
    for lag, shown in ((0, ["1"]), (1, ["2", "1"]), (3, ["1", "1"]), (4, ["1"])):
        cluster.cache_lag = lag
        assert await seen("0") == shown
        assert await seen(None) == ["1"]


@virtual_time
async def test_two_names_can_be_asked_for_documents() -> None:
    """Documents such as the version are answered, unknown paths are not found."""
    client = make_cluster().client()
    assert (await client.raw_get("/version"))["minor"] == "34"
    with pytest.raises(NotFound):
        await client.raw_get("/nonsense")


@virtual_time
async def test_a_pods_life_can_be_played() -> None:
    """Scheduler and kubelet can be played from binding to the end of a termination."""
    cluster = make_cluster()
    client = cluster.client()
    await client.create(PODS, pod("web").build())
    cluster.schedule(WEB, "node-1")
    cluster.set_pod_status(WEB, phase="Pending")
    running = cluster.set_pod_status(WEB, phase="Running", restarts=2)
    assert running["spec"]["nodeName"] == "node-1"
    (status,) = running["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 2)
    types = [c["type"] for c in running["status"]["conditions"]]
    assert types == ["PodScheduled", "Ready", "ContainersReady"]
    cluster.delete_by_user(PODS, WEB)
    failed = cluster.set_pod_status(WEB, phase="Failed", exit_code=3)
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert failed["metadata"]["deletionGracePeriodSeconds"] == 30
    cluster.finish_termination(WEB)
    assert cluster.find(PODS, WEB) is None


@virtual_time
async def test_garbage_is_collected_on_demand() -> None:
    """What has only owners that are gone is deleted; owners of unknown kinds live until told."""
    cluster = make_cluster()
    owner = cluster.add(CONFIGMAPS, CONFIG)
    owned = pod("owned").owned_by("ConfigMap", "config", uid=uid_of(owner)).build()
    foreign = pod("foreign").owned_by("ReplicaSet", "web", uid="replicas").build()
    cluster.add(PODS, owned)
    cluster.add(PODS, foreign)
    assert cluster.collect_garbage() == 0
    cluster.delete_by_user(CONFIGMAPS, KEY)
    assert cluster.collect_garbage() == 1
    assert cluster.find(PODS, key_of(owned)) is None
    cluster.gone_owners.add("replicas")
    assert cluster.collect_garbage() == 1


@virtual_time
async def test_namespaces_can_be_bare_and_can_be_finished() -> None:
    """Without controllers a new namespace has no service account; a deleted one can be emptied."""
    cluster = make_cluster()
    cluster.provisions_namespaces = False
    client = cluster.client()
    bare = await client.create(NAMESPACES, {"metadata": {"name": "bare"}})
    assert cluster.find(SERVICEACCOUNTS, ObjectKey("bare", "default")) is None
    cluster.add_namespace("full")
    assert cluster.find(SERVICEACCOUNTS, ObjectKey("full", "default"))
    cluster.add(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "bare"}})
    await client.delete(NAMESPACES, ObjectKey("", "bare"), uid=uid_of(bare))
    cluster.finish_namespace("bare")
    assert cluster.find(NAMESPACES, ObjectKey("", "bare")) is None
    assert cluster.find(CONFIGMAPS, ObjectKey("bare", "a")) is None


@virtual_time
async def test_what_is_handed_out_is_a_copy() -> None:
    """Changing what was read or sent changes nothing in the cluster."""
    cluster = make_cluster()
    client = cluster.client()
    body: JsonDict = {"metadata": {"name": "config"}, "data": {"a": "1"}}
    created = await client.create(CONFIGMAPS, body, namespace="default")
    task = reading(client.watch(CONFIGMAPS, resource_version="0", timeout_seconds=1))
    for obj in (body, created, await client.get(CONFIGMAPS, KEY)):
        obj["data"]["a"] = "changed"
    assert (await client.get(CONFIGMAPS, KEY))["data"] == {"a": "1"}
    assert set(await task) == {"ADDED"}
    assert uid_of(body) == ""


def test_built_pods_look_like_the_servers() -> None:
    """Builders read like sentences, share what is half built, and give complete pods."""
    web = pod("web").bound_to("edge").with_labels({"app": "web"}).with_requests(cpu="1")
    running = web.running(restarts=1).build()
    assert running["spec"]["nodeName"] == "edge"
    assert running["spec"]["restartPolicy"] == "Always"
    assert running["status"]["phase"] == "Running"
    assert running["status"]["qosClass"] == "Burstable"
    assert [c["type"] for c in running["status"]["conditions"]] == [
        "PodScheduled",
        "Ready",
        "ContainersReady",
    ]
    ending = (
        web.with_restart_policy("Never")
        .with_uid("u")
        .with_annotations({"a": "1"})
        .with_finalizers("example.com/hold")
        .with_image("busybox:2")
        .with_container("side")
        .with_spec(hostNetwork=False)
        .owned_by("ReplicaSet", "web-1")
        .terminating(grace=5)
        .failed(exit_code=2)
        .build()
    )
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 5
    assert ending["metadata"]["ownerReferences"][0]["controller"] is True
    states = [s["state"]["terminated"]["exitCode"] for s in ending["status"]["containerStatuses"]]
    assert states == [2, 2]
    assert pod("done").succeeded().build()["status"]["phase"] == "Succeeded"
    assert pod("odd").with_condition("X", "False", reason="R", message="m").build()["status"][
        "conditions"
    ] == [
        {
            "type": "X",
            "status": "False",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "R",
            "message": "m",
        }
    ]
    assert "nodeName" not in pod("idle").build()["spec"]

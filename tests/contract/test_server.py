"""What federate relies on in an API server, asked of the in-memory one and of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from federate.cluster.port import ClusterPort, WatchEvent
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Rejected,
)
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    drop_managed_fields,
    key_of,
    labels_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, LEASES, NAMESPACES, NODES, PODS
from federate.patch.document import MERGE, STRATEGIC, PatchBody
from tests.contract.servers import Server

FUTURE = "999999999"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "some-owner"}


def a_pod(name: str = "web", *, node: str = "some-node", **spec: object) -> JsonDict:
    containers = [{"name": "main", "image": "busybox:1"}]
    bound = {"nodeName": node} if node else {}
    return {"metadata": {"name": name}, "spec": {"containers": containers, **bound, **spec}}


def a_configmap(name: str = "config", **labels: str) -> JsonDict:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


def merge(**body: object) -> PatchBody:
    return PatchBody(media_type=MERGE, body=body)


def strategic(**body: object) -> PatchBody:
    return PatchBody(media_type=STRATEGIC, body=body)


async def new_pod(client: ClusterPort, namespace: str, **spec: object) -> JsonDict:
    return await client.create(PODS, a_pod(**spec), namespace=namespace)  # type: ignore[arg-type]


async def exists(client: ClusterPort, key: ObjectKey) -> bool:
    try:
        await client.get(PODS, key)
    except NotFound:
        return False
    return True


async def collect(watch: AsyncIterator[WatchEvent]) -> list[WatchEvent]:
    return [event async for event in watch]


async def events_until(
    client: ClusterPort, count: int, version: str, namespace: str, label_selector: str = ""
) -> list[WatchEvent]:
    """Read `count` events that are no bookmarks."""
    events: list[WatchEvent] = []
    watch = client.watch(
        CONFIGMAPS,
        resource_version=version,
        namespace=namespace,
        label_selector=label_selector,
        timeout_seconds=20,
    )
    async for event in watch:
        if event.type != "BOOKMARK":
            events.append(event)
        if len(events) == count:
            break
    await watch.aclose()  # type: ignore[attr-defined]
    return events


async def test_create_fills_in_identity(server: Server) -> None:
    """A created object has a uid, a version and a time, and reads back as it was answered."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        meta = created["metadata"]
        assert meta["namespace"] == namespace
        assert meta["uid"]
        assert meta["resourceVersion"]
        assert meta["creationTimestamp"].endswith("Z")
        read = await client.get(CONFIGMAPS, ObjectKey(namespace, "config"))
        assert read == created
        assert (read["apiVersion"], read["kind"]) == ("v1", "ConfigMap")


async def test_a_name_is_taken_once(server: Server) -> None:
    """A second create of a name answers AlreadyExists."""
    async with server.open() as (client, namespace):
        await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        with pytest.raises(AlreadyExists):
            await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)


async def test_a_generated_name_begins_as_asked(server: Server) -> None:
    """generateName is completed by the server."""
    async with server.open() as (client, namespace):
        body = {"metadata": {"generateName": "config-"}}
        created = await client.create(CONFIGMAPS, body, namespace=namespace)
        assert created["metadata"]["name"].startswith("config-")
        assert len(created["metadata"]["name"]) == len("config-") + 5


async def test_a_missing_namespace_is_not_found(server: Server) -> None:
    """Creating in a namespace that does not exist answers NotFound, naming the namespace."""
    async with server.open() as (client, _):
        with pytest.raises(NotFound, match="nowhere"):
            await client.create(CONFIGMAPS, a_configmap(), namespace="nowhere")


async def test_a_terminating_namespace_refuses_creates(server: Server) -> None:
    """A deleted namespace stays Terminating until it is emptied, and refuses new content: 403."""
    async with server.open() as (client, namespace):
        key = ObjectKey("", namespace)
        found = await client.get(NAMESPACES, key)
        assert found["status"]["phase"] == "Active"
        assert labels_of(found)["kubernetes.io/metadata.name"] == namespace
        reply = await client.delete(NAMESPACES, key, uid=uid_of(found))
        assert reply
        assert reply["status"]["phase"] == "Terminating"
        with pytest.raises(Forbidden, match="being terminated"):
            await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)


async def test_a_dry_run_stores_nothing(server: Server) -> None:
    """A dry run answers as if, and leaves nothing."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace, dry_run=True)
        assert created["metadata"]["uid"]
        with pytest.raises(NotFound):
            await client.get(CONFIGMAPS, ObjectKey(namespace, "config"))
        real = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        change = merge(data={"a": "2"})
        patched = await client.patch(CONFIGMAPS, key_of(real), change, dry_run=True)
        assert patched["data"] == {"a": "2"}
        assert await client.get(CONFIGMAPS, key_of(real)) == real


async def test_errors_say_what_was_attempted(server: Server) -> None:
    """An error names the cluster, the verb and the object."""
    async with server.open() as (client, namespace):
        with pytest.raises(NotFound) as caught:
            await client.get(PODS, ObjectKey(namespace, "absent"))
        error: ClusterError = caught.value
        assert (error.cluster, error.verb, error.reason) == (client.name, "get", "NotFound")
        assert error.status == 404
        assert "absent" in error.subject
        with pytest.raises(NotFound):
            await client.patch(PODS, ObjectKey(namespace, "absent"), merge(metadata={}))


async def test_pods_get_the_servers_defaults(server: Server) -> None:
    """A new pod is Pending, of generation 1, and its spec is filled in the same way everywhere."""
    async with server.open() as (client, namespace):
        body = a_pod(node="") | {"status": {"phase": "Running"}}
        pod = await client.create(PODS, body, namespace=namespace)
        assert pod["status"]["phase"] == "Pending"
        assert pod["status"]["qosClass"] == "BestEffort"
        assert pod["metadata"]["generation"] == 1
        spec = pod["spec"]
        (volume,) = spec.pop("volumes")
        assert volume["name"].startswith("kube-api-access-")
        (container,) = spec.pop("containers")
        (mount,) = container.pop("volumeMounts")
        assert mount["name"] == volume["name"]
        assert container == {
            "name": "main",
            "image": "busybox:1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
        assert [t["key"] for t in spec.pop("tolerations")] == [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ]
        assert spec == {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        }


async def test_a_pod_of_an_unknown_service_account_is_forbidden(server: Server) -> None:
    """A service account that is not there yet answers 403, not 404."""
    async with server.open() as (client, namespace):
        with pytest.raises(Forbidden, match="service account"):
            await new_pod(client, namespace, serviceAccountName="absent")


async def test_invalid_objects_are_rejected(server: Server) -> None:
    """A pod without containers answers 422."""
    async with server.open() as (client, namespace):
        with pytest.raises(Rejected) as caught:
            await client.create(
                PODS, {"metadata": {"name": "x"}, "spec": {"containers": []}}, namespace=namespace
            )
        assert caught.value.status == 422


async def test_every_write_has_a_new_version_and_no_change_is_no_write(server: Server) -> None:
    """A patch that changes nothing keeps the version; one that does has a new one."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        change = merge(metadata={"labels": {"a": "1"}})
        first = await client.patch(PODS, key_of(pod), change)
        again = await client.patch(PODS, key_of(pod), change)
        assert resource_version_of(first) != resource_version_of(pod)
        assert again == first
        same_status = merge(status={"phase": "Pending"})
        unchanged = await client.patch(PODS, key_of(pod), same_status, subresource="status")
        assert resource_version_of(unchanged) == resource_version_of(first)


async def test_the_last_label_leaves_no_trace(server: Server) -> None:
    """Removing the last annotation and label removes their maps."""
    async with server.open() as (client, namespace):
        body = a_configmap(a="1")
        created = await client.create(CONFIGMAPS, body, namespace=namespace)
        emptied = merge(metadata={"labels": {"a": None}})
        patched = await client.patch(CONFIGMAPS, key_of(created), emptied)
        assert "labels" not in patched["metadata"]


async def test_versions_are_preconditions(server: Server) -> None:
    """A patch or replace from a stale version answers Conflict; without a version it goes on."""
    async with server.open() as (client, namespace):
        old = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        key = key_of(old)
        await client.patch(CONFIGMAPS, key, merge(data={"a": "2"}))
        stale = merge(metadata={"resourceVersion": resource_version_of(old)}, data={"a": "3"})
        with pytest.raises(Conflict):
            await client.patch(CONFIGMAPS, key, stale)
        with pytest.raises(Conflict):
            await client.replace(CONFIGMAPS, key, {**old, "data": {"a": "3"}})
        unconditional = {"metadata": {"name": key.name}, "data": {"b": "4"}}
        replaced = await client.replace(CONFIGMAPS, key, unconditional)
        assert replaced["data"] == {"b": "4"}
        assert uid_of(replaced) == uid_of(old)


async def test_a_uid_is_a_precondition(server: Server) -> None:
    """Another uid answers 422 in a patch of the object or its status, and Conflict in a replace."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        for subresource in ("", "status"):
            for media_type in (MERGE, STRATEGIC):
                body = {"metadata": {"uid": "another", "annotations": {"a": "1"}}}
                patch = PatchBody(media_type=media_type, body=body)
                with pytest.raises(Rejected, match="immutable") as caught:
                    await client.patch(PODS, key_of(pod), patch, subresource=subresource)
                assert caught.value.status == 422
        config = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        other = {"metadata": {"name": "config", "uid": "another"}}
        with pytest.raises(Conflict):
            await client.replace(CONFIGMAPS, key_of(config), other)
        own = merge(metadata={"uid": uid_of(pod), "annotations": {"a": "1"}})
        patched = await client.patch(PODS, key_of(pod), own, subresource="status")
        assert annotations_of(patched) == {"a": "1"}


async def test_a_lease_is_replaced_only_from_a_version(server: Server) -> None:
    """A lease without a resourceVersion is not replaced: two holders cannot both win."""
    async with server.open() as (client, namespace):
        body = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": "a"}}
        lease = await client.create(LEASES, body, namespace=namespace)
        with pytest.raises(Rejected):
            await client.replace(LEASES, key_of(lease), body)
        taken = await client.replace(
            LEASES, key_of(lease), {**lease, "spec": {"holderIdentity": "b"}}
        )
        assert taken["spec"]["holderIdentity"] == "b"
        with pytest.raises(Conflict):
            await client.replace(LEASES, key_of(lease), {**lease, "spec": {}})


async def test_status_and_spec_are_written_apart(server: Server) -> None:
    """pods/status takes status, labels and annotations only; the pod itself takes no status."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        key = key_of(pod)
        mixed = merge(
            metadata={
                "labels": {"l": "1"},
                "annotations": {"a": "1"},
                "ownerReferences": [OWNER],
            },
            spec={"activeDeadlineSeconds": 5},
            status={"phase": "Running"},
        )
        patched = await client.patch(PODS, key, mixed, subresource="status")
        assert patched["status"]["phase"] == "Running"
        assert labels_of(patched) == {"l": "1"}
        assert annotations_of(patched) == {"a": "1"}
        assert "ownerReferences" not in patched["metadata"]
        assert patched["spec"] == pod["spec"]
        assert patched["metadata"]["generation"] == 1
        through_main = await client.patch(PODS, key, merge(status={"phase": "Failed"}))
        assert through_main == patched


async def test_nodes_keep_their_status_on_create_only(server: Server) -> None:
    """A node is created with its status, which later only nodes/status changes."""
    async with server.open() as (client, namespace):
        name = f"node-{namespace}"
        body = {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}}
        node = await client.create(NODES, body)
        assert node["status"]["capacity"] == {"cpu": "4"}
        patch = merge(spec={"unschedulable": True}, status={"capacity": {"cpu": "8"}})
        main = await client.patch(NODES, key_of(node), patch)
        assert main["spec"]["unschedulable"] is True
        assert main["status"]["capacity"] == {"cpu": "4"}
        status = await client.patch(NODES, key_of(node), patch, subresource="status")
        assert status["status"]["capacity"] == {"cpu": "8"}
        assert "generation" not in status["metadata"]
        await client.delete(NODES, key_of(node), uid=uid_of(node))
        with pytest.raises(NotFound):
            await client.get(NODES, key_of(node))


async def test_a_pods_spec_is_frozen_but_for_a_few_fields(server: Server) -> None:
    """Image, deadline and added tolerations may change; other fields answer 422."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        key = key_of(pod)
        image = strategic(spec={"containers": [{"name": "main", "image": "busybox:2"}]})
        patched = await client.patch(PODS, key, image)
        assert patched["spec"]["containers"][0]["image"] == "busybox:2"
        assert patched["metadata"]["generation"] == 2
        more = strategic(spec={"tolerations": [{"key": "x", "operator": "Exists"}]})
        tolerant = await client.patch(PODS, key, more)
        assert any(t.get("key") == "x" for t in tolerant["spec"]["tolerations"])
        await client.patch(PODS, key, merge(spec={"activeDeadlineSeconds": 100}))
        changes: list[JsonDict] = [
            {"activeDeadlineSeconds": 200},
            {"tolerations": []},
            {"hostname": "other"},
            {"nodeName": "other"},
        ]
        for forbidden in changes:
            with pytest.raises(Rejected) as caught:
                await client.patch(PODS, key, merge(spec=forbidden))
            assert caught.value.status == 422


async def test_ephemeral_containers_come_through_their_subresource(server: Server) -> None:
    """pods/ephemeralcontainers adds a container and nothing else."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        debug = {"name": "debug", "image": "busybox"}
        patch = strategic(spec={"ephemeralContainers": [debug]})
        patched = await client.patch(PODS, key_of(pod), patch, subresource="ephemeralcontainers")
        assert [c["name"] for c in patched["spec"]["ephemeralContainers"]] == ["debug"]
        with pytest.raises(Rejected):
            await client.patch(
                PODS,
                key_of(pod),
                merge(spec={"ephemeralContainers": []}),
                subresource="ephemeralcontainers",
            )


async def test_resources_come_through_the_resize_subresource(server: Server) -> None:
    """pods/resize changes requests and limits, the pod itself does not."""
    async with server.open() as (client, namespace):
        resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
        containers = [{"name": "main", "image": "busybox", "resources": resources}]
        pod = await new_pod(client, namespace, containers=containers)
        assert pod["status"]["qosClass"] == "Burstable"
        more = {"name": "main", "resources": {"limits": {"cpu": "3"}}}
        patch = strategic(spec={"containers": [more]})
        with pytest.raises(Rejected):
            await client.patch(PODS, key_of(pod), patch)
        patched = await client.patch(PODS, key_of(pod), patch, subresource="resize")
        assert patched["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "3"}


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
async def test_a_subresource_takes_no_record_and_minds_the_uid(
    server: Server, subresource: str
) -> None:
    """Annotations and images are left out in silence; another uid, or version, is refused."""
    async with server.open() as (client, namespace):
        resources = {"requests": {"cpu": "1"}}
        containers = [{"name": "main", "image": "busybox", "resources": resources}]
        pod = await new_pod(client, namespace, containers=containers)
        main: JsonDict = {"name": "main", "image": "other", "resources": {"requests": {"cpu": "2"}}}
        spec = {"containers": [main], "ephemeralContainers": [{"name": "debug", "image": "b"}]}
        meta = {"annotations": {"a": "1"}, "labels": {"b": "1"}}
        strangers: tuple[tuple[JsonDict, type[ClusterError]], ...] = (
            ({"uid": "other"}, Rejected),
            ({"uid": uid_of(pod), "resourceVersion": "1"}, Conflict),
        )
        for stranger, kind in strangers:
            patch = strategic(metadata={**meta, **stranger}, spec=spec)
            with pytest.raises(kind):
                await client.patch(PODS, key_of(pod), patch, subresource=subresource)
        own = {"uid": uid_of(pod), "resourceVersion": pod["metadata"]["resourceVersion"]}
        patch = strategic(metadata={**meta, **own}, spec=spec)
        patched = await client.patch(PODS, key_of(pod), patch, subresource=subresource)
        assert not patched["metadata"].get("annotations")
        assert not patched["metadata"].get("labels")
        assert patched["metadata"]["generation"] == 2
        assert patched["spec"]["containers"][0]["image"] == "busybox"
        again = strategic(metadata={"uid": uid_of(pod)}, spec=spec)
        same = await client.patch(PODS, key_of(pod), again, subresource=subresource)
        assert same["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]


async def test_what_a_resize_may_not_do(server: Server) -> None:
    """No request or limit is taken away, and the class of service stays."""
    async with server.open() as (client, namespace):
        resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
        containers = [{"name": "main", "image": "busybox", "resources": resources}]
        pod = await new_pod(client, namespace, containers=containers)
        refused: list[JsonDict] = [
            {"limits": {"cpu": None}},
            {"requests": {"ephemeral-storage": "1Gi"}},
            {
                "requests": {"cpu": "2", "memory": "1Gi"},
                "limits": {"cpu": "2", "memory": "1Gi"},
            },
        ]
        for change in refused:
            patch = strategic(spec={"containers": [{"name": "main", "resources": change}]})
            with pytest.raises(Rejected):
                await client.patch(PODS, key_of(pod), patch, subresource="resize")


async def test_only_the_seconds_of_a_toleration_change(server: Server) -> None:
    """A toleration that is there can get other seconds, and nothing else."""
    async with server.open() as (client, namespace):
        own = {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
        pod = await new_pod(client, namespace, tolerations=[own])
        others = [t for t in pod["spec"]["tolerations"] if t["key"] != "x"]
        shorter = merge(spec={"tolerations": [{**own, "tolerationSeconds": 3}, *others]})
        patched = await client.patch(PODS, key_of(pod), shorter)
        assert {t.get("tolerationSeconds") for t in patched["spec"]["tolerations"]} == {3, 300}
        renamed = merge(spec={"tolerations": [{**own, "key": "y"}, *others]})
        with pytest.raises(Rejected):
            await client.patch(PODS, key_of(pod), renamed)


async def test_an_unknown_subresource_is_not_found(server: Server) -> None:
    """As pods/resize is to a server that is older: the pod is there all the same."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        with pytest.raises(NotFound):
            await client.patch(PODS, key_of(pod), merge(spec={}), subresource="bogus")
        assert uid_of(await client.get(PODS, key_of(pod))) == uid_of(pod)


async def test_the_server_does_not_guard_the_phase(server: Server) -> None:
    """Failed may become Running again as far as the server is concerned: federate must not."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, restartPolicy="Never")
        for phase in ("Failed", "Running"):
            patch = merge(status={"phase": phase})
            patched = await client.patch(PODS, key_of(pod), patch, subresource="status")
            assert patched["status"]["phase"] == phase


@pytest.mark.parametrize(
    ("policy", "exit_code", "allowed"),
    [
        ("Always", 0, True),
        ("OnFailure", 1, True),
        ("OnFailure", 0, False),
        ("Never", 1, False),
    ],
)
async def test_ended_containers_stay_ended(
    server: Server, policy: str, exit_code: int, allowed: bool
) -> None:
    """A container that ended for good under the restart policy cannot be reported running."""

    def report(state: JsonDict) -> PatchBody:
        status = {"name": "main", "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
        return merge(status={"containerStatuses": [{**status, "state": state}]})

    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, restartPolicy=policy)
        ended = report({"terminated": {"exitCode": exit_code}})
        await client.patch(PODS, key_of(pod), ended, subresource="status")
        running = client.patch(PODS, key_of(pod), report({"running": {}}), subresource="status")
        if allowed:
            assert "running" in (await running)["status"]["containerStatuses"][0]["state"]
        else:
            with pytest.raises(Rejected, match="non-terminated"):
                await running


async def test_conditions_merge_by_type(server: Server) -> None:
    """A strategic patch adds, changes and deletes single conditions; a merge patch replaces all."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)

        async def patch(patch_body: PatchBody) -> JsonDict:
            return await client.patch(PODS, key_of(pod), patch_body, subresource="status")

        ready = {"type": "Ready", "status": "True"}
        theirs = {"type": "example.com/theirs", "status": "True"}
        both = await patch(strategic(status={"conditions": [ready, theirs]}))
        assert [c["type"] for c in both["status"]["conditions"]] == ["Ready", theirs["type"]]
        changed = await patch(strategic(status={"conditions": [ready | {"status": "False"}]}))
        assert (condition_of(changed, "Ready") or {})["status"] == "False"
        assert condition_of(changed, theirs["type"])
        gone = {"type": "Ready", "$patch": "delete"}
        deleted = await patch(strategic(status={"conditions": [gone]}))
        assert [c["type"] for c in deleted["status"]["conditions"]] == [theirs["type"]]
        replaced = await patch(merge(status={"conditions": [ready]}))
        assert [c["type"] for c in replaced["status"]["conditions"]] == ["Ready"]


async def test_a_malformed_patch_is_rejected(server: Server) -> None:
    """An unknown directive in a strategic patch is refused."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        with pytest.raises((Rejected, ClusterError)):
            patch = strategic(metadata={"$patch": "nonsense"})
            await client.patch(PODS, key_of(pod), patch)


async def test_deletes_mean_one_uid(server: Server) -> None:
    """Deleting another uid or version answers Conflict, deleting what is gone answers None."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        key = key_of(pod)
        with pytest.raises(Conflict):
            await client.delete(PODS, key, uid="another")
        with pytest.raises(Conflict):
            await client.delete(PODS, key, uid=uid_of(pod), resource_version="1")
        assert await client.delete(PODS, key, uid=uid_of(pod), grace_seconds=0)
        assert await client.delete(PODS, key, uid=uid_of(pod)) is None


async def test_a_deleted_config_map_answers_with_a_status(server: Server) -> None:
    """The reply to a config map's delete is a Status, not the object."""
    async with server.open() as (client, namespace):
        config = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        reply = await client.delete(CONFIGMAPS, key_of(config), uid=uid_of(config))
        assert reply
        assert (reply["kind"], reply["status"]) == ("Status", "Success")


async def test_a_scheduled_pod_is_given_its_grace(server: Server) -> None:
    """A bound pod stays, terminating; its grace gets shorter, never longer; 0 removes it."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, terminationGracePeriodSeconds=60)
        key, uid = key_of(pod), uid_of(pod)
        reply = await client.delete(PODS, key, uid=uid)
        assert reply
        assert reply["metadata"]["deletionGracePeriodSeconds"] == 60
        assert reply["metadata"]["generation"] == 2
        assert await client.get(PODS, key) == reply
        assert await client.delete(PODS, key, uid=uid, grace_seconds=90) == reply
        assert await client.delete(PODS, key, uid=uid) == reply
        shorter = await client.delete(PODS, key, uid=uid, grace_seconds=20)
        assert shorter
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 20
        assert shorter["metadata"]["deletionTimestamp"] < reply["metadata"]["deletionTimestamp"]
        assert resource_version_of(shorter) != resource_version_of(reply)
        await client.patch(PODS, key, merge(status={"phase": "Running"}), subresource="status")
        assert await client.delete(PODS, key, uid=uid, grace_seconds=0)
        assert not await exists(client, key)


@pytest.mark.parametrize("phase", ["", "Succeeded", "Failed"])
async def test_a_pod_that_runs_nowhere_goes_at_once(server: Server, phase: str) -> None:
    """Pods that are not scheduled or have ended are removed by their first delete."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, node="some-node" if phase else "")
        if phase:
            patch = merge(status={"phase": phase})
            await client.patch(PODS, key_of(pod), patch, subresource="status")
        assert await client.delete(PODS, key_of(pod), uid=uid_of(pod), grace_seconds=30)
        assert not await exists(client, key_of(pod))


async def test_finalizers_hold_an_object(server: Server) -> None:
    """A finalizer keeps a deleted object, none may join, and without the last one it goes."""
    async with server.open() as (client, namespace):
        body = a_configmap()
        body["metadata"]["finalizers"] = ["example.com/hold"]
        config = await client.create(CONFIGMAPS, body, namespace=namespace)
        key = key_of(config)
        reply = await client.delete(CONFIGMAPS, key, uid=uid_of(config))
        assert reply
        assert reply["metadata"]["deletionTimestamp"]
        assert reply["metadata"]["deletionGracePeriodSeconds"] == 0
        joined = merge(metadata={"finalizers": ["example.com/hold", "example.com/late"]})
        with pytest.raises(Rejected):
            await client.patch(CONFIGMAPS, key, joined)
        await client.patch(CONFIGMAPS, key, merge(metadata={"finalizers": None}))
        with pytest.raises(NotFound):
            await client.get(CONFIGMAPS, key)


async def test_a_pod_with_finalizer_outlives_its_grace(server: Server) -> None:
    """A pod whose grace is over waits for its finalizer, and goes with it."""
    async with server.open() as (client, namespace):
        body = a_pod()
        body["metadata"]["finalizers"] = ["example.com/hold"]
        pod = await client.create(PODS, body, namespace=namespace)
        key = key_of(pod)
        await client.delete(PODS, key, uid=uid_of(pod))
        await client.delete(PODS, key, uid=uid_of(pod), grace_seconds=0)
        assert await exists(client, key)
        await client.patch(PODS, key, merge(metadata={"finalizers": None}))
        assert not await exists(client, key)


async def test_immutable_config_maps_are(server: Server) -> None:
    """The data of an immutable config map does not change; its labels do."""
    async with server.open() as (client, namespace):
        body = {**a_configmap(), "immutable": True}
        config = await client.create(CONFIGMAPS, body, namespace=namespace)
        with pytest.raises(Rejected):
            await client.patch(CONFIGMAPS, key_of(config), merge(data={"a": "2"}))
        labelled = merge(metadata={"labels": {"x": "y"}})
        assert labels_of(await client.patch(CONFIGMAPS, key_of(config), labelled)) == {"x": "y"}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abcd"),
        ("app=web", "ab"),
        ("app==web", "ab"),
        ("app!=web", "cd"),
        ("app in (web, db)", "abc"),
        ("app notin (web)", "cd"),
        ("app", "abc"),
        ("!app", "d"),
        ("app=web,tier!=back", "a"),
        ("tier in (front,back),app in (web)", "ab"),
        ("example.com/long.key=v", "d"),
    ],
)
async def test_label_selectors(server: Server, selector: str, names: str) -> None:
    """Label selectors of every kind select the same objects, in the order of their names."""
    labels = {
        "b": {"app": "web", "tier": "back"},
        "a": {"app": "web", "tier": "front"},
        "c": {"app": "db"},
        "d": {"example.com/long.key": "v"},
    }
    async with server.open() as (client, namespace):
        for name, wanted in labels.items():
            await client.create(CONFIGMAPS, a_configmap(name, **wanted), namespace=namespace)
        listing = await client.list(CONFIGMAPS, namespace=namespace, label_selector=selector)
        found = [key_of(item).name for item in listing.items]
        assert [name for name in found if name != "kube-root-ca.crt"] == list(names)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "bc"),
        ("spec.nodeName=some-node", "ab"),
        ("spec.nodeName=", "c"),
        ("spec.nodeName!=,status.phase!=Failed", "a"),
        ("status.phase=Pending", "ac"),
    ],
)
async def test_field_selectors(server: Server, selector: str, names: str) -> None:
    """Pods are selected by name, node and phase."""
    async with server.open() as (client, namespace):
        for name, node in (("a", "some-node"), ("b", "some-node"), ("c", "")):
            await client.create(PODS, a_pod(name, node=node), namespace=namespace)
        failed = merge(status={"phase": "Failed"})
        await client.patch(PODS, ObjectKey(namespace, "b"), failed, subresource="status")
        listing = await client.list(
            PODS, field_selector=f"{selector},metadata.namespace={namespace}"
        )
        assert "".join(key_of(item).name for item in listing.items) == names


@pytest.mark.parametrize(
    ("label_selector", "field_selector"),
    [("a ~ b", ""), ("", "spec.unknown=1"), ("", "nonsense")],
)
async def test_unreadable_selectors_are_rejected(
    server: Server, label_selector: str, field_selector: str
) -> None:
    """A selector the server cannot read answers 400."""
    async with server.open() as (client, _):
        with pytest.raises(Rejected):
            await client.list(PODS, label_selector=label_selector, field_selector=field_selector)


async def test_lists_have_a_version_and_bare_items(server: Server) -> None:
    """A list has a version to watch from; its items do not repeat their kind."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        for version in (None, "0", resource_version_of(created)):
            listing = await client.list(CONFIGMAPS, namespace=namespace, resource_version=version)
            assert listing.resource_version
            assert all("kind" not in item for item in listing.items)


async def test_metadata_lists_leave_the_rest_out(server: Server) -> None:
    """A metadata-only list has the same metadata and nothing else."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(x="y"), namespace=namespace)
        listing = await client.list(
            CONFIGMAPS, namespace=namespace, label_selector="x=y", metadata_only=True
        )
        (item,) = listing.items
        assert item == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": drop_managed_fields(created)["metadata"],
        }


async def test_bare_lists_name_what_is_there(server: Server) -> None:
    """Of each object there is what tells whether it is known."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(x="y"), namespace=namespace)
        for version in (None, "0"):
            listing = await client.list(
                CONFIGMAPS,
                namespace=namespace,
                label_selector="x=y",
                resource_version=version,
                bare=True,
            )
            assert listing.resource_version
            if version is None or listing.items:  # a cache may lag behind
                (item,) = listing.items
                kept = ("namespace", "name", "uid", "resourceVersion")
                assert item == {"metadata": {name: created["metadata"][name] for name in kept}}


async def test_lists_are_whole(server: Server) -> None:
    """A list of more than one page has every object once."""
    async with server.open() as (client, namespace):
        for start in range(0, 501, 50):
            some = [f"many-{n:03}" for n in range(start, min(501, start + 50))]
            await asyncio.gather(
                *(
                    client.create(CONFIGMAPS, a_configmap(name, many="1"), namespace=namespace)
                    for name in some
                )
            )
        listing = await client.list(CONFIGMAPS, namespace=namespace, label_selector="many=1")
        assert [key_of(i).name for i in listing.items] == [f"many-{n:03}" for n in range(501)]


async def test_a_watch_sees_changes_in_order_and_resumes(server: Server) -> None:
    """A watch from a list's version sees each later change once; so does one from any event."""
    async with server.open() as (client, namespace):
        await client.create(CONFIGMAPS, a_configmap("before"), namespace=namespace)
        start = (await client.list(CONFIGMAPS, namespace=namespace)).resource_version
        created = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        key = key_of(created)
        patched = await client.patch(CONFIGMAPS, key, merge(data={"a": "2"}))
        await client.delete(CONFIGMAPS, key, uid=uid_of(created))
        events = await events_until(client, 3, start, namespace)
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert events[0].object == created
        assert events[1].object == patched
        assert events[2].object["data"] == {"a": "2"}
        last = resource_version_of(events[2].object)
        assert last not in (resource_version_of(created), resource_version_of(patched))
        resumed = await events_until(client, 1, resource_version_of(patched), namespace)
        assert resumed == events[2:]


async def test_a_watch_waits_for_changes(server: Server) -> None:
    """A change made while the watch is open arrives."""
    async with server.open() as (client, namespace):
        start = (await client.list(CONFIGMAPS, namespace=namespace)).resource_version
        reading = asyncio.create_task(events_until(client, 1, start, namespace))
        await asyncio.sleep(0.05)
        await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        (event,) = await reading
        assert (event.type, key_of(event.object).name) == ("ADDED", "config")


async def test_a_watch_with_a_selector_sees_objects_come_and_go(server: Server) -> None:
    """An object that starts to match is ADDED; one that stops is DELETED as it last matched."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(x="no"), namespace=namespace)
        key = key_of(created)
        for value in ("yes", "no"):
            label = merge(metadata={"labels": {"x": value}}, data={"a": value})
            last = await client.patch(CONFIGMAPS, key, label)
        start = resource_version_of(created)
        events = await events_until(client, 2, start, namespace, label_selector="x=yes")
        assert [event.type for event in events] == ["ADDED", "DELETED"]
        assert events[1].object["data"] == {"a": "yes"}
        assert resource_version_of(events[1].object) == resource_version_of(last)


async def test_a_watch_from_any_version_begins_with_what_is(server: Server) -> None:
    """A watch from version 0 first shows the existing objects as ADDED."""
    async with server.open() as (client, namespace):
        created = await client.create(CONFIGMAPS, a_configmap(x="y"), namespace=namespace)
        (event,) = await events_until(client, 1, "0", namespace, label_selector="x=y")
        assert (event.type, event.object) == ("ADDED", created)


async def test_a_watch_can_show_metadata_only(server: Server) -> None:
    """A metadata-only watch shows PartialObjectMetadata."""
    async with server.open() as (client, namespace):
        start = (await client.list(CONFIGMAPS, namespace=namespace)).resource_version
        created = await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        watch = client.watch(
            CONFIGMAPS, resource_version=start, namespace=namespace, metadata_only=True
        )
        async with aclosing(watch):  # type: ignore[type-var]
            event = await anext(watch)
        assert event.object["kind"] == "PartialObjectMetadata"
        assert event.object["metadata"] == created["metadata"]
        assert "data" not in event.object


async def test_a_watch_ends_after_its_time(server: Server) -> None:
    """The server ends a watch after the time asked for, in good order."""
    async with server.open() as (client, namespace):
        start = (await client.list(LEASES, namespace=namespace)).resource_version
        watch = client.watch(LEASES, resource_version=start, namespace=namespace, timeout_seconds=1)
        assert [event.type async for event in watch if event.type != "BOOKMARK"] == []


async def test_a_watch_from_before_memory_is_expired(server: Server) -> None:
    """A watch from before what the server remembers answers Expired."""
    async with server.open() as (client, namespace):
        with pytest.raises(Expired):
            async for _ in client.watch(
                CONFIGMAPS, resource_version="1", namespace=namespace, timeout_seconds=5
            ):
                pass


async def test_a_watch_from_the_future_is_silent(server: Server) -> None:
    """A watch from a version that was never reached shows no change and no error: beware."""
    async with server.open() as (client, namespace):
        watch = client.watch(
            CONFIGMAPS, resource_version=FUTURE, namespace=namespace, timeout_seconds=2
        )
        reading = asyncio.create_task(collect(watch))
        await asyncio.sleep(0.2)
        await client.create(CONFIGMAPS, a_configmap(), namespace=namespace)
        events = await reading
        assert [event for event in events if event.type != "BOOKMARK"] == []


async def test_a_list_from_the_future_is_expired(server: Server) -> None:
    """A list no older than a version that was never reached answers Expired."""
    async with server.open() as (client, namespace):
        with pytest.raises(Expired, match="Too large"):
            await client.list(CONFIGMAPS, namespace=namespace, resource_version=FUTURE)


async def test_a_running_pod_forced_away_is_marked_then_removed(server: Server) -> None:
    """A forced delete of a bound pod shows as terminating first, then as gone."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace)
        await client.delete(PODS, key_of(pod), uid=uid_of(pod), grace_seconds=0)
        seen: list[tuple[str, object]] = []
        watch = client.watch(
            PODS, resource_version=resource_version_of(pod), namespace=namespace, timeout_seconds=2
        )
        async for event in watch:
            if event.type != "BOOKMARK":
                meta = event.object["metadata"]
                seen.append((event.type, meta.get("deletionGracePeriodSeconds")))
        assert seen == [("MODIFIED", 0), ("DELETED", 0)]


GATE, OTHER_GATE = {"name": "federate.dev/recorded"}, {"name": "somebody.else/waits"}


def lift(gate: JsonDict, uid: str) -> PatchBody:
    gone = {"$patch": "delete", **gate}
    return strategic(metadata={"uid": uid}, spec={"schedulingGates": [gone]})


async def test_a_gated_pod_says_so_and_is_bound_by_nobody(server: Server) -> None:
    """A pod with a scheduling gate says that it waits, and the server refuses to bind it."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, node="", schedulingGates=[GATE, OTHER_GATE])
        assert pod["spec"]["schedulingGates"] == [GATE, OTHER_GATE]
        told = condition_of(pod, "PodScheduled") or {}
        assert (told["status"], told["reason"]) == ("False", "SchedulingGated")
        with pytest.raises(Conflict, match="schedulingGates"):
            await server.bind(client, key_of(pod), "some-node")
        assert await client.get(PODS, key_of(pod)) == pod
        with pytest.raises(Rejected, match="nodeName"):
            await new_pod(client, namespace, name="bound", schedulingGates=[GATE])


async def test_a_gate_is_lifted_by_its_name(server: Server) -> None:
    """A strategic patch lifts one gate and leaves others; lifting it again is no write."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, node="", schedulingGates=[GATE, OTHER_GATE])
        key = key_of(pod)
        with pytest.raises(Rejected, match="immutable"):
            await client.patch(PODS, key, lift(GATE, "another"))
        lifted = await client.patch(PODS, key, lift(GATE, uid_of(pod)))
        assert lifted["spec"]["schedulingGates"] == [OTHER_GATE]
        assert lifted["metadata"]["generation"] == pod["metadata"]["generation"] + 1
        again = await client.patch(PODS, key, lift(GATE, uid_of(pod)))
        assert again == lifted
        open_to_all = await client.patch(PODS, key, lift(OTHER_GATE, uid_of(pod)))
        assert "schedulingGates" not in open_to_all["spec"]
        assert open_to_all["status"] == pod["status"]
        once_more = await client.patch(PODS, key, lift(GATE, uid_of(pod)))
        assert once_more == open_to_all
        await server.bind(client, key, "some-node")
        bound = await client.get(PODS, key)
        assert bound["spec"]["nodeName"] == "some-node"
        told = condition_of(bound, "PodScheduled") or {}
        assert told["status"] == "True"
        with pytest.raises(Conflict):
            await server.bind(client, key, "other-node")


@pytest.mark.parametrize("gates", [[], [OTHER_GATE]])
async def test_no_gate_is_ever_added(server: Server, gates: list[JsonDict]) -> None:
    """What was let go cannot be held back: a new gate answers 422, in every kind of patch."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, node="", schedulingGates=gates)
        for added in (strategic, merge):
            body = {"schedulingGates": [*gates, GATE]}
            with pytest.raises(Rejected, match="schedulingGates") as caught:
                await client.patch(PODS, key_of(pod), added(spec=body))
            assert caught.value.status == 422


async def test_a_gated_pod_is_deleted_at_once(server: Server) -> None:
    """Nothing runs of it, so it gets no grace, and its name is free again."""
    async with server.open() as (client, namespace):
        pod = await new_pod(client, namespace, node="", schedulingGates=[GATE])
        await client.delete(PODS, key_of(pod), uid=uid_of(pod), grace_seconds=30)
        with pytest.raises(NotFound):
            await client.get(PODS, key_of(pod))
        again = await new_pod(client, namespace, node="", schedulingGates=[GATE])
        assert uid_of(again) != uid_of(pod)
        with pytest.raises(Conflict):
            await client.delete(PODS, key_of(pod), uid=uid_of(pod))

"""Which pods the kubelet API of a virtual node finds: its own, and never by an annotation alone."""

from __future__ import annotations

import json

import pytest

from federate.cluster.store import Store
from federate.model.marks import Origin, Scope
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from federate.runtime.hosted import HostedPods

SCOPE = Scope(hub_id="hub-1", node_name="edge")
KEY = ObjectKey("shop", "web-0")
MIRROR_KEY = ObjectKey("hub-x-shop", "web-0")


def mirror(
    *, key: ObjectKey = MIRROR_KEY, uid: str = "mirror-1", pod: ObjectKey = KEY, pod_uid: str = "p"
) -> JsonDict:
    origin = Origin(scope=SCOPE, pod=pod, pod_uid=pod_uid)
    return {
        "metadata": {
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid,
            "resourceVersion": "1",
            "labels": origin.labels(),
            "annotations": origin.annotations(),
        }
    }


def hub_pod(*, uid: str = "p", recorded: str | None = "mirror-1", pod_uid: str = "p") -> JsonDict:
    metadata: JsonDict = {
        "namespace": KEY.namespace,
        "name": KEY.name,
        "uid": uid,
        "resourceVersion": "1",
    }
    if recorded is not None:
        record = {
            "podUID": pod_uid,
            "namespace": MIRROR_KEY.namespace,
            "name": MIRROR_KEY.name,
            "uid": recorded,
        }
        metadata["annotations"] = {"federate.dev/mirror": json.dumps(record)}
    return {"metadata": metadata}


def hosted(pod: JsonDict, *mirrors: JsonDict) -> HostedPods:
    store = Store()
    store.replace([pod])
    by_uid: dict[str, JsonObject] = {uid_of(found): found for found in mirrors}
    return HostedPods(hub_pods=store, mirror_by_uid=by_uid.get)


def test_a_hub_pod_is_found_with_its_mirror() -> None:
    """By its name, and by its uid where that is asked for."""
    standing = mirror()
    pods = hosted(hub_pod(), standing)
    for uid in ("", "p"):
        found = pods.find(KEY, uid)
        assert found is not None
        assert (found.mirror, found.mirror_uid, found.mirror_pod) == (
            MIRROR_KEY,
            "mirror-1",
            standing,
        )
    assert pods.find(KEY, "another") is None
    assert pods.find(ObjectKey("shop", "web-1")) is None
    assert [found.mirror for found in pods.located()] == [MIRROR_KEY]
    assert len(list(pods.all())) == 1


@pytest.mark.parametrize(
    "pod",
    [hub_pod(recorded=None), hub_pod(recorded=""), hub_pod(pod_uid="other")],
    ids=["no record", "an intent", "the record of another pod"],
)
def test_a_pod_without_a_mirror_on_record_is_listed_only(pod: JsonDict) -> None:
    """It waits: there is nothing to look into yet."""
    pods = hosted(pod, mirror())
    assert pods.find(KEY) is None
    assert list(pods.located()) == []
    assert len(list(pods.all())) == 1


@pytest.mark.parametrize(
    "standing",
    [
        mirror(uid="mirror-2"),
        mirror(pod_uid="q"),
        mirror(pod=ObjectKey("shop", "web-1")),
        {"metadata": {"namespace": "kube-system", "name": "etcd", "uid": "mirror-1"}},
    ],
    ids=["out of sight", "of an earlier pod", "of a neighbour", "no mirror at all"],
)
def test_an_annotation_alone_leads_nowhere(standing: JsonDict) -> None:
    """Who may edit a hub pod could write any record: the mirror has to say the same."""
    pods = hosted(hub_pod(), standing)
    assert pods.find(KEY) is None
    assert list(pods.located()) == []

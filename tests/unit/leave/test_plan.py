"""What leaving comes to, before anything is done."""

from __future__ import annotations

from dataclasses import replace

from federate.companions.keys import CompanionKey, Kind, name_of
from federate.garbage.brought import Brought
from federate.leave.plan import (
    STATIC_POD_ANNOTATION,
    Found,
    PodKind,
    describe,
    describe_abandoned,
    kind_of,
    listed,
    plan_drain,
    tell_remaining,
)
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, Origin, Scope
from federate.model.objects import JsonDict, ObjectKey
from tests.support.builders import pod

SCOPE = Scope(hub_id="hub", node_name="edge")


def recorded(name: str, *, mirror_uid: str = "m") -> JsonDict:
    record = MirrorRecord(
        pod_uid=f"uid-{name}", mirror=ObjectKey("hub-x-default", name), mirror_uid=mirror_uid
    )
    owned = pod(name).bound_to("edge").owned_by("Job", "job").running()
    return owned.with_annotations({RECORD_ANNOTATION: record.format()}).build()


def mirror_of(name: str) -> JsonDict:
    origin = Origin(scope=SCOPE, pod=ObjectKey("default", name), pod_uid=f"uid-{name}")
    marked = pod(name, namespace="hub-x-default").with_labels(origin.labels())
    return marked.with_annotations(origin.annotations()).build()


def found(*hub_pods: JsonDict, node: JsonDict | None = None) -> Found:
    return Found(scope=SCOPE, node=node, hub_pods=hub_pods)


def test_pods_leave_as_kubectl_drain_has_them_leave() -> None:
    """Owned and ended ones are evicted; bare, DaemonSet and static ones are told apart.

    One that never had a mirror may tolerate the cordon: its successor would come here at once.
    """
    bare = pod("bare").bound_to("edge").running()
    assert kind_of(bare.build()) is PodKind.BARE
    assert kind_of(pod("ended").succeeded().build()) is PodKind.EVICTED
    assert kind_of(recorded("owned")) is PodKind.EVICTED
    assert kind_of(pod("back").owned_by("ReplicaSet", "r").build()) is PodKind.WAITING
    assert kind_of(bare.owned_by("DaemonSet", "d").build()) is PodKind.DAEMONSET
    static = bare.with_annotations({STATIC_POD_ANNOTATION: "x"}).owned_by("Node", "n")
    assert kind_of(static.build()) is PodKind.STATIC


def test_a_drain_sorts_what_is_there() -> None:
    """Who is to be asked, who is ending, who may not be asked; DaemonSets wait for the end."""
    daemon = pod("daemon").owned_by("DaemonSet", "d").running().build()
    pods = [
        recorded("a"),
        pod("going").owned_by("Job", "j").terminating().build(),
        pod("bare").running().build(),
        daemon,
    ]
    first = plan_drain(pods, force=False)
    assert [p["metadata"]["name"] for p in first.due] == ["a"]
    assert [p["metadata"]["name"] for p in first.going] == ["going"]
    assert first.unforced == ("default/bare",)
    assert not first.is_done
    assert not plan_drain(pods, force=True).unforced
    assert plan_drain([daemon], force=False).is_done
    assert plan_drain([daemon], force=False, mirrors=[]).is_done
    last = plan_drain([daemon], force=False, mirrors=[mirror_of("daemon")])
    assert last.due == (daemon,)


def test_what_is_waited_for_is_said_in_a_line() -> None:
    """Budgets and the finalizers of others are named: only a person can do something there."""
    held = pod("held").owned_by("Job", "j").terminating(grace=0).with_finalizers("x").build()
    remaining = plan_drain([recorded("a"), recorded("b"), held], force=False)
    assert tell_remaining(remaining, ["default/a"]) == (
        "1 held by a PodDisruptionBudget: default/a; 1 asked to go; 1 ending; "
        "held by finalizers of others: default/held"
    )


def test_what_leaving_means_is_said_before() -> None:
    """Counts, what is lost, namespaces, and the order at the end."""
    local = (
        pod("local")
        .owned_by("ReplicaSet", "r")
        .with_spec(volumes=[{"name": "scratch", "emptyDir": {}}])
    )
    bare = pod("bare").running().build()
    text = "\n".join(
        describe(found(recorded("a"), local.build(), bare, node={}), target_name="edge")
    )
    assert "1 hub pod evicted" in text
    assert "1 hub pod left to the end: it never had a mirror" in text
    assert "1 hub pod deleted for good" in text
    assert "bare pods: default/bare" in text
    assert "emptyDir volumes are lost: default/local" in text
    assert "hub-x-default" in text
    assert "then its Node, and its leases" in text
    assert "gone already" in describe(found(), target_name="edge")[0]


def test_what_came_along_is_counted_before() -> None:
    keys = [
        CompanionKey("hub-x-default", kind, "default", name)
        for kind, name in ((Kind.SECRET, "a"), (Kind.SECRET, "b"), (Kind.CONFIGMAP, "a"))
    ]
    along = [Brought(key.kind, name_of(SCOPE, key), key) for key in keys]
    text = "\n".join(describe(replace(found(node={}), brought=along), target_name="edge"))
    assert "  1 ConfigMap and 2 Secrets in edge, which came along with pods, removed" in text
    assert "came along" not in "\n".join(describe(found(node={}), target_name="edge"))


def test_copies_that_stay_behind_are_named() -> None:
    """By their names on the hub; what a mirror was never made for, or cannot exist, is none."""

    def naming(hub_pod: JsonDict, *names: str) -> JsonDict:
        spec = {**hub_pod["spec"], "imagePullSecrets": [{"name": name} for name in names]}
        return {**hub_pod, "spec": spec}

    pods = (
        naming(recorded("a"), "login", "../../x"),
        naming(recorded("b"), "login"),
        naming(recorded("c", mirror_uid=""), "never"),
    )
    text = "\n".join(describe_abandoned(found(*pods, node={}), target_name="edge"))
    assert "    copies of Secrets of the hub: default/login\n" in text
    assert "think of renewing" in text
    assert "never\n" not in text
    assert "delete configmap,secret -A" in text
    assert "copies" not in "\n".join(
        describe_abandoned(found(recorded("a"), node={}), target_name="edge")
    )


def test_what_is_abandoned_is_named() -> None:
    """Mirrors by name, what may run twice, and how to clean up later."""
    text = "\n".join(
        describe_abandoned(
            found(recorded("a"), recorded("b", mirror_uid=""), node={}), target_name="edge"
        )
    )
    assert "mirrors: hub-x-default/a" in text
    assert "never ran: hub-x-default/b" in text
    assert "STILL RUNNING" in text
    assert "twice" in text
    assert SCOPE.selector in text


def test_the_data_that_is_abandoned_is_named_by_the_hubs_claims() -> None:
    """Only of pods that have a mirror on record: the others have nothing there."""
    stored, waiting = recorded("a"), recorded("b", mirror_uid="")
    for each, name in ((stored, "grain"), (waiting, "chaff")):
        claim = {"claimName": name}
        each["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    text = "\n".join(describe_abandoned(found(stored, waiting, node={}), target_name="edge"))
    assert "data of claims of the hub: default/grain" in text
    assert "chaff" not in text
    assert "data of claims" not in "\n".join(
        describe_abandoned(found(recorded("a"), node={}), target_name="edge")
    )


def test_long_lists_are_cut() -> None:
    """A thousand names help nobody."""
    assert listed([str(n) for n in range(25)]).endswith("18, 19 and 5 more")


def test_nothing_is_nothing_only_if_all_is_gone() -> None:
    """A lease, an anchor or a mirror is something; pods of an absent Node are pod GC's."""
    assert found(recorded("a")).is_nothing
    assert not found(node={}).is_nothing
    for part in ("mirrors", "anchors", "brought", "leases"):
        assert not Found(scope=SCOPE, node=None, hub_pods=(), **{part: ({},)}).is_nothing  # type: ignore[arg-type]

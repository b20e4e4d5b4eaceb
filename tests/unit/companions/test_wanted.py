"""Who wants which companion, kept along with the events of pods."""

from __future__ import annotations

from typing import Any

import pytest

from federate.companions import wanted as module
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.references import wants_of
from federate.companions.wanted import Wanted
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, Origin
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from tests.support.companions import TARGET_NAMESPACE, key_for
from tests.support.companionworlds import needing
from tests.support.views import SCOPE

DB, SETTINGS = key_for(Kind.SECRET, "db"), key_for(Kind.CONFIGMAP, "settings")
BOTH = ((Kind.SECRET, "db"), (Kind.CONFIGMAP, "settings"))
A, B = ObjectKey("default", "a"), ObjectKey("default", "b")
MIRROR = ObjectKey(TARGET_NAMESPACE, "a")


def fresh(**fields: Any) -> Wanted:
    given: dict[str, Any] = {
        "scope": SCOPE,
        "shared": frozenset(),
        "brings_tokens": False,
        "is_refused": lambda _pod: False,
        "has_mirror": lambda _pod: True,
        **fields,
    }
    return Wanted(**given)


def hub_pod(name: str = "a", *objects: tuple[Kind, str], **metadata: Any) -> JsonDict:
    made = needing(name, *(objects or BOTH)).with_uid(f"uid-{name}").build()
    made["metadata"] |= {"generation": 1, **metadata}
    return made


def tell(wanted: Wanted, pod: JsonObject, *, now: float = 0.0) -> module.Shift:
    key = ObjectKey("default", pod["metadata"]["name"])
    return wanted.hub_pod_is(key, pod, TARGET_NAMESPACE, now=now)


def mirror_of(*keys: CompanionKey) -> JsonDict:
    names = [(key.kind, name_of(SCOPE, key).name) for key in keys]
    made = needing("a", *names).with_uid("mirror-a").build()
    origin = Origin(scope=SCOPE, pod=A, pod_uid="uid-a")
    made["metadata"] |= {
        "namespace": TARGET_NAMESPACE,
        "labels": origin.labels(),
        "annotations": origin.annotations(),
    }
    return made


def test_c30_what_only_a_refused_debug_container_names_is_not_wanted() -> None:
    """It reaches no target: neither does the Secret, with or without a mirror."""
    for is_mirrored in (True, False):
        wanted = fresh(travelling=without_debuggers, has_mirror=lambda _pod, is_=is_mirrored: is_)
        pod = hub_pod("a", BOTH[1])
        pod["spec"]["ephemeralContainers"] = [
            {"name": "look", "envFrom": [{"secretRef": {"name": "db"}}]}
        ]
        assert {key.name for key in tell(wanted, pod).begun} == {"settings"}


def without_debuggers(pod: JsonObject) -> JsonDict:
    return {**pod, "spec": {**pod["spec"], "ephemeralContainers": []}}


def test_what_the_first_pod_wants_begins_and_what_the_last_wanted_ends() -> None:
    wanted = fresh()
    assert tell(wanted, hub_pod("a")).begun == {DB, SETTINGS}
    assert tell(wanted, hub_pod("b", (Kind.SECRET, "db"))).begun == frozenset()
    assert wanted.hub_pod_is_gone(A).ended == {SETTINGS}
    assert wanted.wants(DB)
    assert not wanted.wants(SETTINGS)
    assert set(wanted) == {DB}
    assert wanted.of_object(Kind.SECRET, ObjectKey("default", "db")) == (DB,)
    assert wanted.hub_pod_is_gone(B).ended == {DB}
    assert wanted.of_object(Kind.SECRET, ObjectKey("default", "db")) == ()
    assert wanted.hub_pod_is_gone(B).ended == frozenset()


def test_references_are_read_once_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of status writes do not read them again; a debug container does."""
    calls: list[str] = []

    def counting(*args: Any, **named: Any) -> Any:
        calls.append("read")
        return wants_of(*args, **named)

    monkeypatch.setattr(module, "wants_of", counting)
    wanted, pod = fresh(), hub_pod("a")
    for number in range(100):
        told = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(number)}}
        tell(wanted, told)
    assert len(calls) == 1
    debug = {"name": "debug", "envFrom": [{"secretRef": {"name": "tools"}}]}
    with_debugger = {**pod, "spec": {**pod["spec"], "ephemeralContainers": [debug]}}
    assert tell(wanted, with_debugger).begun == {key_for(Kind.SECRET, "tools")}
    assert len(calls) == 2


def test_a_pod_keeps_the_time_when_it_was_first_seen() -> None:
    wanted = fresh()
    tell(wanted, hub_pod("a"), now=10.0)
    again = tell(wanted, hub_pod("a", generation=2), now=50.0).wish
    assert again is not None
    assert again.seen_at == 10.0
    anew = tell(wanted, hub_pod("a", uid="another"), now=60.0).wish
    assert anew is not None
    assert anew.seen_at == 60.0


def test_a_terminal_pod_wants_nothing() -> None:
    wanted = fresh()
    tell(wanted, hub_pod("a"))
    over = {**hub_pod("a"), "status": {"phase": "Succeeded"}}
    assert tell(wanted, over).ended == {DB, SETTINGS}


def test_a_refused_pod_wants_nothing_until_it_has_a_mirror() -> None:
    wanted = fresh(is_refused=lambda _pod: True)
    assert tell(wanted, hub_pod("a")).begun == frozenset()
    assert tell(wanted, claiming()).begun == {DB, SETTINGS}


def test_c30_a_label_decides_whether_a_pod_is_refused_and_bumps_no_generation() -> None:
    """A pod that is not refused any more gets a mirror: then it waits for what it needs, too."""
    wanted = fresh(is_refused=lambda pod: bool(pod["metadata"].get("labels")))
    assert tell(wanted, hub_pod("a", labels={"marked": "yes"})).begun == frozenset()
    assert tell(wanted, hub_pod("a")).begun == {DB, SETTINGS}
    assert tell(wanted, hub_pod("a")).begun == frozenset()
    assert tell(wanted, hub_pod("a", labels={"marked": "yes"})).ended == {DB, SETTINGS}


def claiming() -> JsonDict:
    """A hub pod whose record says that it has a mirror."""
    record = MirrorRecord(pod_uid="uid-a", mirror=MIRROR, mirror_uid="mirror-a")
    return hub_pod("a", annotations={RECORD_ANNOTATION: record.format()})


def test_c30_a_pod_that_claims_a_mirror_wants_nothing_until_that_stands_there() -> None:
    """A forged record brings nothing; at a start it is only that mirrors are told of later."""
    standing: set[str] = set()
    refusals: list[str] = []

    def is_refused(pod: JsonObject) -> bool:
        refusals.append(uid_of(pod))
        return False

    wanted = fresh(has_mirror=lambda pod: uid_of(pod) in standing, is_refused=is_refused)
    assert tell(wanted, hub_pod("a")).begun == {DB, SETTINGS}
    assert wanted.mirror_of(A) is None
    tell(wanted, claiming())
    assert not wanted.has_hub_pod(DB)
    assert wanted.mirror_of(A) is False
    standing.add("uid-a")
    assert tell(wanted, claiming()).begun == {DB, SETTINGS}
    assert wanted.mirror_of(A) is True
    assert wanted.mirror_of(B) is None
    assert refusals == ["uid-a"]  # which costs: not for each pod of a start
    standing.clear()
    tell(wanted, claiming())
    assert not wanted.has_hub_pod(DB)


def test_c30_what_a_pod_with_a_mirror_out_of_sight_has_is_not_taken_from_it() -> None:
    """Somebody in the target took the marks off: it runs on, and is not touched any more."""
    standing = {"uid-a"}
    wanted = fresh(has_mirror=lambda pod: uid_of(pod) in standing)
    tell(wanted, claiming())
    wanted.mirror_is(MIRROR, mirror_of(DB, SETTINGS))
    standing.clear()
    assert wanted.mirror_is(MIRROR, None) == frozenset()
    assert tell(wanted, claiming()).ended == frozenset()
    assert wanted.wants(DB)
    assert wanted.demand().wants(SCOPE, DB)
    assert not wanted.has_hub_pod(DB)
    assert not wanted.wants(DB, leaving=True)
    over = {**claiming(), "status": {"phase": "Failed"}}
    assert tell(wanted, over).ended == {DB, SETTINGS}


def test_without_a_place_for_the_mirror_nothing_is_wanted() -> None:
    assert fresh().hub_pod_is(A, hub_pod("a"), None, now=0.0).begun == frozenset()


def test_what_is_shared_is_not_wanted() -> None:
    wanted = fresh(shared=frozenset({(Kind.SECRET, "db")}))
    assert tell(wanted, hub_pod("a")).begun == {SETTINGS}


def test_what_a_mirror_refers_to_is_in_use() -> None:
    """Though its hub pod is gone; and again when it comes to its end."""
    wanted = fresh()
    tell(wanted, hub_pod("a"))
    mirror = mirror_of(DB)
    assert wanted.mirror_is(MIRROR, mirror) == frozenset()
    assert wanted.hub_pod_is_gone(A).ended == {SETTINGS}
    assert wanted.wants(DB)
    assert wanted.wants(DB, leaving=True)
    assert wanted.mirror_is(MIRROR, mirror) == frozenset()
    over = {**mirror, "status": {"phase": "Failed"}}
    assert wanted.mirror_is(MIRROR, over) == {DB}
    assert wanted.mirror_is(MIRROR, None) == frozenset()
    assert wanted.mirror_is(MIRROR, None) == frozenset()
    assert not wanted.wants(DB)


def test_what_a_mirror_refers_to_is_asked_for_by_its_place() -> None:
    """Without a look at each mirror of a namespace, of which there may be ten thousand."""
    wanted, place = fresh(), name_of(SCOPE, DB)
    wanted.mirror_is(MIRROR, mirror_of(DB))
    assert wanted.is_used(Kind.SECRET, place)
    assert not wanted.is_used(Kind.CONFIGMAP, place)
    wanted.mirror_is(MIRROR, None)
    assert not wanted.is_used(Kind.SECRET, place)


def test_what_a_hub_pod_wants_begins_though_its_mirror_was_told_of_first() -> None:
    """So it is at every other start: both sides are listed beside each other."""
    wanted = fresh()
    wanted.mirror_is(MIRROR, mirror_of(DB, SETTINGS))
    assert tell(wanted, hub_pod("a")).begun == {DB, SETTINGS}
    assert wanted.hub_pod_is_gone(A).ended == frozenset()


def test_a_mirror_without_our_marks_says_nothing() -> None:
    wanted = fresh()
    wanted.heard_of(DB)
    stranger = mirror_of(DB)
    stranger["metadata"]["labels"] = {}
    wanted.mirror_is(MIRROR, stranger)
    assert not wanted.wants(DB)
    wanted.mirror_is(MIRROR, mirror_of(DB))
    assert wanted.wants(DB)
    assert wanted.mirror_is(MIRROR, stranger) == {DB}


def test_while_leaving_only_mirrors_want_anything() -> None:
    wanted = fresh()
    tell(wanted, hub_pod("a"))
    assert wanted.wants(DB)
    assert not wanted.wants(DB, leaving=True)


def test_the_demand_is_that_of_both_sides() -> None:
    wanted = fresh()
    tell(wanted, hub_pod("a", (Kind.CONFIGMAP, "settings")))
    wanted.mirror_is(MIRROR, mirror_of(DB))
    demand = wanted.demand()
    assert demand.wants(SCOPE, DB)
    assert demand.wants(SCOPE, SETTINGS)
    assert not demand.wants(SCOPE, key_for(Kind.SECRET, "other"))


def test_a_pod_is_known_in_the_version_that_was_told() -> None:
    """By metadata alone, as a listing shows it."""
    wanted = fresh()
    tell(wanted, hub_pod("a"))
    wanted.mirror_is(MIRROR, mirror_of(DB))
    assert wanted.is_hub_pod_known({"metadata": hub_pod("a")["metadata"]})
    assert not wanted.is_hub_pod_known({"metadata": hub_pod("a", generation=2)["metadata"]})
    assert not wanted.is_hub_pod_known({"metadata": hub_pod("a", uid="x")["metadata"]})
    assert not wanted.is_hub_pod_known({"metadata": hub_pod("b")["metadata"]})
    assert wanted.is_mirror_known({"metadata": mirror_of(DB)["metadata"]})
    assert not wanted.is_mirror_known({"metadata": {"namespace": "x", "name": "y"}})


def test_a_companion_that_is_gone_is_forgotten() -> None:
    wanted = fresh()
    wanted.mirror_is(MIRROR, mirror_of(DB))
    wanted.heard_of(DB)
    wanted.forget(DB)
    assert wanted.mirror_is(MIRROR, None) == frozenset()

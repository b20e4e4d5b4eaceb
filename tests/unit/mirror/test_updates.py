"""What changed in a hub pod, as requests: each field and subresource, and mirrors of old (C25)."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from federate.companions.holding import Hold
from federate.companions.keys import CompanionKey, Kind
from federate.companions.references import references_of
from federate.companions.steps import Blocked
from federate.mirror.render import RenderRules, render_mirror
from federate.mirror.updates import (
    RECORD_ONLY,
    Update,
    is_recorded,
    pending_updates,
    record_patch,
    update_patch,
)
from federate.model.marks import (
    HUB_GENERATION_ANNOTATION,
    LAST_APPLIED_SPEC_ANNOTATION,
    Origin,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    spec_of,
    uid_of,
)
from federate.model.reasons import PodReason
from tests.support.builders import PodBuilder, pod
from tests.support.companions import target_name
from tests.support.fakepods import TOKEN_PATH, TOKEN_VOLUME
from tests.support.strategic import apply_strategic_patch
from tests.support.views import SCOPE, hub_pod

RULES = RenderRules()
SECONDS = {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}


def app() -> PodBuilder:
    return hub_pod().with_requests(cpu="1", memory="1Gi").with_container("side", "side:1")


def created(builder: PodBuilder) -> JsonDict:
    """Return the mirror of the pod as the target's API server made it."""
    key = ObjectKey("default", "web")
    made = render_mirror(
        builder.build(),
        origin=Origin(scope=SCOPE, pod=key, pod_uid="uid-web"),
        mirror=key,
        anchor={"metadata": {"name": "federate-anchor", "uid": "anchor-1"}},
        rules=RULES,
    )
    made["metadata"] |= {"uid": "mirror-web", "resourceVersion": "5", "generation": 1}
    return made


def changed(builder: PodBuilder, **spec: Any) -> JsonDict:
    """Return the hub pod after a change of its spec: of the next generation."""
    built = builder.build()
    built["spec"] |= spec
    built["metadata"]["generation"] += 1
    return built


def images(built: JsonObject, **by_name: str) -> list[JsonDict]:
    containers = spec_of(built)["containers"]
    return [{**c, "image": by_name.get(c["name"], c["image"])} for c in containers]


def only(updates: tuple[Update, ...]) -> Update:
    assert len(updates) == 1, updates
    return updates[0]


def carried_out(update: Update, mirror: JsonDict) -> JsonDict:
    """Return the mirror after one update, as an API server would have it."""
    mirror = apply_strategic_patch(mirror, update_patch(update, mirror).body, kind="Pod")
    if update.subresource:
        mirror = apply_strategic_patch(mirror, record_patch(update, mirror).body, kind="Pod")
    return mirror


def settled(hub: JsonObject, mirror: JsonDict, limit: int = 9) -> tuple[JsonDict, list[Update]]:
    """Carry out what is pending, one after the other, as API servers would."""
    done: list[Update] = []
    while updates := pending_updates(hub, mirror, RULES):
        done.append(updates[0])
        mirror = carried_out(updates[0], mirror)
        assert len(done) < limit, "it does not come to rest"
    return mirror, done


def test_a_new_mirror_lacks_nothing() -> None:
    """It is created with the record of what it is made from."""
    assert pending_updates(app().build(), created(app()), RULES) == ()


def test_an_image_is_changed_where_it_changed() -> None:
    """One request, with the record and the hub pod's generation in it, for that very version."""
    mirror, hub = created(app()), changed(app(), containers=images(app().build(), main="app:2"))
    update = only(pending_updates(hub, mirror, RULES))
    assert update.spec == {"containers": [{"name": "main", "image": "app:2"}]}
    assert update.subresource == ""
    body = update_patch(update, mirror).body
    assert body["metadata"]["uid"] == uid_of(mirror)
    assert body["metadata"]["resourceVersion"] == "5"
    after, _ = settled(hub, mirror)
    assert [c["image"] for c in after["spec"]["containers"]] == ["app:2", "side:1"]
    assert annotations_of(after)[HUB_GENERATION_ANNOTATION] == "2"
    assert is_recorded(update, after)


def test_an_image_of_an_init_container() -> None:
    """Init containers have images too."""
    before = app().with_spec(initContainers=[{"name": "init", "image": "init:1"}])
    hub = changed(before, initContainers=[{"name": "init", "image": "init:2"}])
    update = only(pending_updates(hub, created(before), RULES))
    assert update.spec == {"initContainers": [{"name": "init", "image": "init:2"}]}


def test_what_the_target_made_of_an_image_stays() -> None:
    """Admission rewrites images: the record is compared with the hub pod, never the mirror."""
    mirror = created(app())
    mirror["spec"]["containers"][0]["image"] = "cache.example/busybox"
    assert pending_updates(app().build(), mirror, RULES) == ()
    hub = changed(app(), containers=images(app().build(), side="side:2"))
    after, done = settled(hub, mirror)
    assert [c["image"] for c in after["spec"]["containers"]] == ["cache.example/busybox", "side:2"]
    assert len(done) == 1


def test_a_change_that_the_target_undoes_is_not_made_again() -> None:
    """The record says that it was applied, whatever became of it."""
    hub = changed(app(), containers=images(app().build(), main="app:2"))
    mirror, _ = settled(hub, created(app()))
    mirror["spec"]["containers"][0]["image"] = "undone"
    assert pending_updates(hub, mirror, RULES) == ()


@pytest.mark.parametrize(("before", "now"), [(None, 60), (60, 30), (60, 0)])
def test_a_deadline_is_set_and_shortened(before: int | None, now: int) -> None:
    """activeDeadlineSeconds goes to the mirror."""
    pod_before = app().with_spec(activeDeadlineSeconds=before) if before else app()
    hub = changed(pod_before, activeDeadlineSeconds=now)
    update = only(pending_updates(hub, created(pod_before), RULES))
    assert update.spec == {"activeDeadlineSeconds": now}


def test_a_toleration_is_added_to_those_that_are_there() -> None:
    """The whole list is sent, with what the target's admission added."""
    hub = app().build()
    hub = changed(app(), tolerations=[*hub["spec"]["tolerations"], SECONDS])
    mirror = created(app())
    own = {"key": "target", "operator": "Exists"}
    mirror["spec"]["tolerations"].append(own)
    after, done = settled(hub, mirror)
    assert own in after["spec"]["tolerations"]
    assert SECONDS in after["spec"]["tolerations"]
    assert len(after["spec"]["tolerations"]) == 4
    assert len(done) == 1


def test_other_seconds_of_a_toleration_replace_it() -> None:
    """Of a toleration that is there only the seconds may change."""
    before = app().with_spec(tolerations=[SECONDS])
    tolerations = [{**t} for t in before.build()["spec"]["tolerations"]]
    tolerations[0]["tolerationSeconds"] = 5
    after, _ = settled(changed(before, tolerations=tolerations), created(before))
    seconds = [t.get("tolerationSeconds") for t in after["spec"]["tolerations"]]
    assert seconds == [5, 300, 300]


def test_a_toleration_of_a_virtual_node_stays_behind() -> None:
    """Only the record moves on, so that the hub pod's generation counts as observed."""
    taint = {"key": "virtual-kubelet.io/provider", "operator": "Exists"}
    hub = changed(app(), tolerations=[*app().build()["spec"]["tolerations"], taint])
    update = only(pending_updates(hub, created(app()), RULES))
    assert update.what == RECORD_ONLY
    assert update.spec == {}
    after, _ = settled(hub, created(app()))
    assert annotations_of(after)[HUB_GENERATION_ANNOTATION] == "2"


def test_resources_go_through_the_resize_subresource() -> None:
    """Only what changed is named, and the record follows in a request of its own."""
    containers = app().build()["spec"]["containers"]
    containers[0]["resources"] = {"requests": {"cpu": "2", "memory": "1Gi"}}
    hub, mirror = changed(app(), containers=containers), created(app())
    mirror["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "9"}  # by a LimitRange
    update = only(pending_updates(hub, mirror, RULES))
    main = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    assert update.spec == {"containers": [main]}
    assert update.subresource == "resize"
    assert "annotations" not in update_patch(update, mirror).body["metadata"]
    assert "spec" not in record_patch(update, mirror).body
    after, _ = settled(hub, mirror)
    assert after["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"cpu": "9"},
    }


def test_resources_of_sidecars_and_of_the_pod_as_a_whole() -> None:
    """Restartable init containers can be resized, and pods on newer servers."""
    sidecar = {"name": "log", "image": "log", "restartPolicy": "Always"}
    before = app().with_spec(
        initContainers=[{**sidecar, "resources": {"requests": {"cpu": "1"}}}],
        resources={"limits": {"cpu": "4"}},
    )
    hub = changed(
        before,
        initContainers=[{**sidecar, "resources": {"requests": {"cpu": "2"}}}],
        resources={"limits": {"cpu": "8"}},
    )
    assert only(pending_updates(hub, created(before), RULES)).spec == {
        "initContainers": [{"name": "log", "resources": {"requests": {"cpu": "2"}}}],
        "resources": {"limits": {"cpu": "8"}},
    }


def test_who_died_before_the_record_resizes_to_the_same() -> None:
    """The same change again is no change; then it is on record."""
    containers = app().build()["spec"]["containers"]
    containers[0]["resources"]["requests"]["cpu"] = "2"
    hub, mirror = changed(app(), containers=containers), created(app())
    update = only(pending_updates(hub, mirror, RULES))
    halfway = apply_strategic_patch(mirror, update_patch(update, mirror).body, kind="Pod")
    again = only(pending_updates(hub, halfway, RULES))
    assert again.fingerprint == update.fingerprint
    after, _ = settled(hub, halfway)
    assert after["spec"] == halfway["spec"]


def debugging(*containers: JsonDict) -> JsonDict:
    return changed(app(), ephemeralContainers=list(containers))


def test_a_debug_container_goes_through_its_subresource() -> None:
    """What `kubectl debug` adds to the hub pod comes to the mirror, one request and its record."""
    debug = {"name": "debug", "image": "busybox", "targetContainerName": "main"}
    hub, mirror = debugging(debug), created(app())
    update = only(pending_updates(hub, mirror, RULES))
    assert update.subresource == "ephemeralcontainers"
    assert update.spec == {"ephemeralContainers": [debug]}
    after, done = settled(hub, mirror)
    assert after["spec"]["ephemeralContainers"] == [debug]
    assert len(done) == 1


def test_a_second_debug_container_leaves_the_first_alone() -> None:
    """One that is there can neither be changed nor removed, and the target may have changed it."""
    first, second = ({"name": n, "image": "busybox"} for n in ("one", "two"))
    mirror, _ = settled(debugging(first), created(app()))
    mirror["spec"]["ephemeralContainers"][0]["image"] = "cache.example/busybox"
    hub = debugging(first, second)
    hub["metadata"]["generation"] = 3
    assert only(pending_updates(hub, mirror, RULES)).spec == {"ephemeralContainers": [second]}


@pytest.mark.parametrize(
    "spoilt", ['{"\\ud800":{}}', '{"a":' * 1000 + "1" + "}" * 1000], ids=["surrogate", "deep"]
)
def test_a_record_that_no_request_can_carry_says_nothing(spoilt: str) -> None:
    """Whoever may edit the mirror could else keep its pod from being looked at at all."""
    mirror = created(app())
    record = json.loads(annotations_of(mirror)[LAST_APPLIED_SPEC_ANNOTATION])
    record["resources"]["pod"] = "SPOILT"
    text = json.dumps(record).replace('"SPOILT"', spoilt)
    mirror["metadata"]["annotations"][LAST_APPLIED_SPEC_ANNOTATION] = text
    hub = changed(app(), containers=images(app().build(), main="app:2"))
    for update in pending_updates(hub, mirror, RULES):
        assert update.fingerprint
        assert orjson.dumps(update_patch(update, mirror).body)


def test_a_debug_container_that_is_refused_does_not_hold_up_the_next() -> None:
    """Each is a request of its own, told apart from the others; order does not matter."""
    refused, second = {"name": "refused", "image": "a"}, {"name": "second", "image": "b"}
    mirror = created(app())
    hub = debugging(refused, second)
    updates = pending_updates(hub, mirror, RULES)
    assert [u.what for u in updates] == [
        "ephemeralContainers refused",
        "ephemeralContainers second",
    ]
    assert [u.spec["ephemeralContainers"] for u in updates] == [[refused], [second]]
    after = carried_out(updates[1], mirror)
    left = only(pending_updates(hub, after, RULES))
    assert left.spec == {"ephemeralContainers": [refused]}
    whole, _ = settled(hub, after)
    assert [c["name"] for c in whole["spec"]["ephemeralContainers"]] == ["second", "refused"]


def test_a_debug_container_that_was_added_before_a_crash_is_only_recorded() -> None:
    """Sent again after admission changed it, it would be refused as a change."""
    mirror = created(app())
    mirror["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "cache.example/busybox"}]
    update = only(pending_updates(debugging({"name": "debug", "image": "busybox"}), mirror, RULES))
    assert (update.spec, update.subresource) == ({}, "")


def test_c4_a_debug_container_that_runs_weaker_is_told_for_as_long_as_it_is_there() -> None:
    """An older target dropped a part of its securityContext; nobody can take it away again."""
    profile = {"appArmorProfile": {"type": "RuntimeDefault"}, "runAsUser": 7}
    debug = {"name": "debug", "image": "busybox", "securityContext": profile}
    mirror = created(app())
    mirror["spec"]["ephemeralContainers"] = [{**debug, "securityContext": {"runAsUser": 7}}]
    update = only(pending_updates(debugging(debug), mirror, RULES))
    assert update.refusal is not None
    assert update.refusal.reason == PodReason.MIRROR_WEAKENED
    assert "debug lacks securityContext.appArmorProfile" in update.refusal.message


def test_a_pod_that_is_debugged_before_it_has_a_mirror() -> None:
    """A create with debug containers is refused: they follow, and only then all is applied."""
    before = app().with_spec(ephemeralContainers=[{"name": "debug", "image": "busybox"}])
    made = created(before)
    assert "ephemeralContainers" not in made["spec"]
    assert HUB_GENERATION_ANNOTATION not in annotations_of(made)
    after, _ = settled(before.build(), made)
    assert [c["name"] for c in after["spec"]["ephemeralContainers"]] == ["debug"]
    assert annotations_of(after)[HUB_GENERATION_ANNOTATION] == "1"


def test_c30_a_debug_container_never_reads_the_targets_own_objects() -> None:
    """Without companions one that needs a Secret stays behind, and it is told; another is added."""
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "k"}}}]
    needy = {"name": "needy", "image": "busybox", "env": env}
    plain = {"name": "plain", "image": "busybox"}
    hub = debugging(needy, plain)
    added, refused = pending_updates(hub, created(app()), RULES)
    assert added.spec == {"ephemeralContainers": [plain]}
    assert added.generation == ""
    assert refused.refusal is not None
    assert refused.refusal.reason == PodReason.COMPANION_MISSING
    assert 'needy needs Secret "theirs"' in refused.refusal.message


WITH = RenderRules(scope=SCOPE)


def reading(name: str, secret: str) -> JsonDict:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]
    return {"name": name, "image": "busybox", "env": env}


def test_c30_a_debug_container_reads_companions() -> None:
    """Under their names, and never what the target has under the hub's."""
    update = only(pending_updates(debugging(reading("debug", "db")), created(app()), WITH))
    assert references_of(update.spec)[0].name == target_name(Kind.SECRET, "db")


def test_c32_a_debug_container_is_told_of_the_hub_pod() -> None:
    """Not of its mirror."""
    asked = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    debug = {"name": "debug", "image": "busybox", "env": [{"name": "NS", "valueFrom": asked}]}
    update = only(pending_updates(debugging(debug), created(app()), WITH))
    assert update.spec["ephemeralContainers"][0]["env"] == [{"name": "NS", "value": "default"}]


def held(*coming: str, stuck: str = "") -> Hold:
    """What the pod waits for: Secrets that are coming, and one that cannot come."""
    why = Blocked(reason="CompanionTooLarge", message=f"{stuck} is too large")
    *on_their_way, last = (
        CompanionKey("default", Kind.SECRET, "default", name) for name in (*coming, stuck)
    )
    return Hold(coming=tuple(on_their_way), stuck=((last, why),) if stuck else ())


@pytest.mark.parametrize("hold", [held("db"), held(stuck="db")])
def test_c30_a_debug_container_waits_for_its_companions(hold: Hold) -> None:
    """Alone; and until it is there the hub pod's generation is not all applied."""
    hub = debugging(reading("held", "db"), reading("free", "other"))
    free, waiting = pending_updates(hub, created(app()), WITH, hold)
    assert free.spec["ephemeralContainers"][0]["name"] == "free"
    assert free.generation == ""
    assert not free.is_kept_back
    assert waiting.is_kept_back
    assert waiting.holds == {"held": hold}
    after = carried_out(free, created(app()))
    assert [u.holds for u in pending_updates(hub, after, WITH, hold)] == [{"held": hold}]
    done = only(pending_updates(hub, after, WITH, None))
    assert done.generation == "2"


def test_c30_what_only_the_pod_waits_for_holds_no_debug_container() -> None:
    """It may be needed for finding out why."""
    hub = debugging({"name": "plain", "image": "busybox"}, reading("debug", "db"))
    hold = held("tls", stuck="conf")
    assert [u.is_kept_back for u in pending_updates(hub, created(app()), WITH, hold)] == [
        False,
        False,
    ]


def test_c30_a_debug_container_that_is_there_waits_for_nothing() -> None:
    """Only the record of it is missing."""
    hub = debugging(reading("debug", "db"))
    halfway = created(app())
    update = only(pending_updates(hub, halfway, WITH))
    halfway = apply_strategic_patch(halfway, update_patch(update, halfway).body, kind="Pod")
    assert not only(pending_updates(hub, halfway, WITH, held("db"))).is_kept_back


def test_a_debug_container_leaves_the_admission_made_token_behind() -> None:
    """The mirror has no such volume."""
    before = pod("web").bound_to(SCOPE.node_name)
    mount = {"name": TOKEN_VOLUME, "mountPath": TOKEN_PATH}
    data = {"name": "data", "mountPath": "/data"}
    debug = {"name": "debug", "image": "busybox", "volumeMounts": [mount, data]}
    update = only(
        pending_updates(changed(before, ephemeralContainers=[debug]), created(before), RULES)
    )
    assert update.spec["ephemeralContainers"][0]["volumeMounts"] == [data]


def test_several_changes_are_several_requests() -> None:
    """So that a refused one keeps no other waiting; the last one brings the generation."""
    containers = images(app().build(), main="app:2")
    containers[0] = {**containers[0], "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    hub = changed(
        app(),
        containers=containers,
        activeDeadlineSeconds=9,
        tolerations=[*app().build()["spec"]["tolerations"], SECONDS],
        ephemeralContainers=[{"name": "debug", "image": "busybox"}],
    )
    updates = pending_updates(hub, created(app()), RULES)
    assert [u.what for u in updates] == [
        "images",
        "activeDeadlineSeconds",
        "tolerations",
        "resources",
        "ephemeralContainers debug",
    ]
    assert {u.generation for u in updates} == {""}
    after, done = settled(hub, created(app()))
    assert [bool(u.generation) for u in done] == [False, False, False, False, True]
    assert annotations_of(after)[HUB_GENERATION_ANNOTATION] == "2"


# -- mirrors without a record ----------------------------------------------------------------------


def without_record(mirror: JsonDict, *, generation: str = "1") -> JsonDict:
    del mirror["metadata"]["annotations"][LAST_APPLIED_SPEC_ANNOTATION]
    mirror["metadata"]["annotations"][HUB_GENERATION_ANNOTATION] = generation
    return mirror


def test_an_unchanged_hub_pod_of_an_older_mirror_is_only_recorded() -> None:
    """Nothing is written over what the target's admission made of the mirror."""
    mirror = without_record(created(app()))
    mirror["spec"]["containers"][0]["image"] = "cache.example/busybox"
    update = only(pending_updates(app().build(), mirror, RULES))
    assert (update.what, update.spec) == (RECORD_ONLY, {})
    after, _ = settled(app().build(), mirror)
    hub = changed(app(), activeDeadlineSeconds=5)
    assert only(pending_updates(hub, after, RULES)).spec == {"activeDeadlineSeconds": 5}


def test_a_change_that_an_older_federate_missed_is_made() -> None:
    """The mirror's own values are all there is to compare with; what the target added stays."""
    mirror = without_record(created(app()))
    mirror["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "9"}
    mirror["spec"]["activeDeadlineSeconds"] = 99
    hub = changed(app(), activeDeadlineSeconds=9)
    after, done = settled(hub, mirror)
    assert [u.spec for u in done] == [{"activeDeadlineSeconds": 9}]
    assert annotations_of(after)[HUB_GENERATION_ANNOTATION] == "2"


def test_c20_a_rewritten_image_of_an_older_mirror_is_not_set_back() -> None:
    """Its container would run a second time, for a change that is none."""
    mirror = without_record(created(app()))
    mirror["spec"]["containers"][0]["image"] = "cache.example/busybox"
    hub = changed(app(), activeDeadlineSeconds=9)
    after, done = settled(hub, mirror)
    assert [u.spec for u in done] == [{"activeDeadlineSeconds": 9}]
    assert after["spec"]["containers"][0]["image"] == "cache.example/busybox"
    _, later = settled(changed(app(), containers=images(app().build(), main="app:2")), after)
    assert [u.what for u in later] == []  # the same generation: nothing changed since


def test_without_generations_an_older_mirror_is_left_as_it_is() -> None:
    """A hub before 1.33 tells nothing of what changed before: only what changes from now on."""
    before = app().build()
    del before["metadata"]["generation"]
    mirror = without_record(created(app()))
    del mirror["metadata"]["annotations"][HUB_GENERATION_ANNOTATION]
    mirror["spec"]["containers"][0]["image"] = "cache.example/busybox"
    after, done = settled(before, mirror)
    assert [u.what for u in done] == [RECORD_ONLY]
    before["spec"]["activeDeadlineSeconds"] = 7
    _, done = settled(before, after)
    assert [u.spec for u in done] == [{"activeDeadlineSeconds": 7}]


def test_a_forged_record_does_no_worse_than_to_apply_again() -> None:
    """Whoever may edit a mirror may write anything there."""
    forged = {"images": 5, "resources": {"containers": {"evil": {"limits": {}}, "main": 3}}}
    mirror = created(app())
    mirror["metadata"]["annotations"] |= {
        LAST_APPLIED_SPEC_ANNOTATION: json.dumps(forged),
        HUB_GENERATION_ANNOTATION: "0",
    }
    after, _ = settled(app().build(), mirror)
    assert after["spec"] == created(app())["spec"]

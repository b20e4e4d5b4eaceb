"""What a target's policy makes of plans, mirrors, updates and statuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from federate.mirror.plan import plan_pod
from federate.mirror.refusal import refusal_of
from federate.mirror.render import RenderRules, render_mirror, render_spec, rendered_debugger
from federate.mirror.steps import (
    AnchorState,
    CreateMirror,
    DeleteHubPod,
    LookUpShared,
    Nothing,
    PlanRules,
    PrepareGround,
    Step,
    WriteHubPod,
)
from federate.mirror.updates import Update, pending_updates
from federate.model.marks import Origin
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    labels_of,
    status_of,
)
from federate.policy.rules import DaemonSetMode, ImageRewrite, OnRefusal, Outcome, PolicyRules
from tests.support.builders import PodBuilder
from tests.support.views import (
    RULES,
    SCOPE,
    condition_status,
    hub_pod,
    intending,
    mirror,
    mirror_key,
    outcome,
    recording,
    sure,
    view,
)

EDGE = (ImageRewrite(before="docker.io", after="edge:5000"),)
APPARMOR = "container.apparmor.security.beta.kubernetes.io/main"
NEVER = AnchorState.NEVER


def ruled(**fields: Any) -> PlanRules:
    return replace(RULES, render=RenderRules(policy=PolicyRules(**fields)))


FAILING = ruled(on_refusal=OnRefusal.FAIL)


def privileged() -> PodBuilder:
    context = {"privileged": True}
    container = {"name": "main", "image": "busybox", "securityContext": context}
    return hub_pod().with_spec(containers=[container]).owned_by("ReplicaSet", "web")


def daemon() -> PodBuilder:
    return hub_pod().owned_by("DaemonSet", "cni")


def told(step: Step, hub: JsonObject, reason: str) -> JsonDict:
    """The hub pod after a write that says why."""
    assert isinstance(step, WriteHubPod), step
    assert step.refusal is not None
    assert step.refusal.reason == reason
    return outcome(hub, step)


# -- refused ---------------------------------------------------------------------------------------


def test_c26_a_refused_pod_waits_and_nothing_is_prepared() -> None:
    """Not even its namespace: the plan says why before it asks for any ground."""
    hub = privileged().build()
    after = told(plan_pod(view(hub, anchor=NEVER), RULES), hub, "PolicyRefused")
    assert status_of(after)["phase"] == "Pending"
    assert status_of(after)["message"] == (
        "berlin refuses spec.containers[main].securityContext.privileged (a privileged container, "
        "policy.privileged). Leave it out, or ask the operator of berlin to allow it"
    )
    assert isinstance(plan_pod(view(after, anchor=NEVER), RULES), Nothing)
    for word in (Outcome.ALLOW, Outcome.STRIP):
        rules = ruled(outcomes={"privileged": word})
        assert isinstance(plan_pod(view(after, anchor=NEVER), rules), PrepareGround)


def test_c26_a_pod_of_another_namespace_waits() -> None:
    """A target takes the hub namespaces that its operator names."""
    hub = hub_pod().build()
    after = told(plan_pod(view(hub), ruled(namespaces=("team-*",))), hub, "PolicyRefused")
    assert "pods of namespace default" in status_of(after)["message"]


def test_c26_a_refused_pod_fails_where_its_operator_wants_it() -> None:
    """One at a time: whose turn it is not waits Pending until then, and looks again."""
    hub = privileged().build()
    step = plan_pod(view(hub), FAILING)
    assert isinstance(step, WriteHubPod)
    assert step.fails
    after = told(step, hub, "PolicyRefused")
    assert status_of(after)["phase"] == "Failed"
    assert isinstance(plan_pod(view(after), FAILING), Nothing)
    later = view(hub, fail_wait_seconds=7.5)
    waiting = told(plan_pod(later, FAILING), hub, "PolicyRefused")
    assert status_of(waiting)["phase"] == "Pending"
    again = plan_pod(view(waiting, fail_wait_seconds=7.5), FAILING)
    assert isinstance(again, Nothing)
    assert again.again_at == later.now + timedelta(seconds=7.5)


def test_c26_nothing_else_fails_a_pod() -> None:
    """What heals, or is no rule of the policy, waits as ever."""
    hub = hub_pod().build()
    after = told(plan_pod(sure(hub, target_reachable=False), FAILING), hub, "TargetUnreachable")
    assert status_of(after)["phase"] == "Pending"


def test_c26_a_mirror_that_runs_is_left_alone() -> None:
    """A policy that became stricter stops nothing."""
    hub = recording(privileged().running()).build()
    step = plan_pod(sure(hub, mirror().running().build()), RULES)
    assert not isinstance(step, WriteHubPod) or step.refusal is None


def apart(**namespaces: Any) -> PodBuilder:
    terms = [{"topologyKey": "zone", **namespaces}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return hub_pod().with_spec(affinity=affinity)


@pytest.mark.parametrize("word", [*Outcome])
def test_c21_a_mirror_never_names_its_namespace_as_the_hub_does(word: Outcome) -> None:
    """There it is called otherwise, whatever becomes of others' names."""
    rules = ruled(outcomes={"otherNamespaces": word}).render
    hub = apart(namespaces=["default"]).build()
    assert render_spec(hub, rules)["affinity"]["podAntiAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]
    }


def test_c30_nobody_asks_the_target_for_what_stays_behind() -> None:
    """Not even whether it shares something of that name."""
    volume = {"name": "v", "rbd": {"secretRef": {"name": "s"}}}
    hub = intending(hub_pod().with_spec(volumes=[volume])).build()

    def step(word: Outcome) -> Step:
        rules = ruled(outcomes={"storageVolumes": word})
        return plan_pod(sure(hub, shared={}), replace(rules, render=scoped(rules.render)))

    assert isinstance(step(Outcome.ALLOW), LookUpShared)
    assert isinstance(step(Outcome.STRIP), CreateMirror)


def scoped(render: RenderRules) -> RenderRules:
    return replace(render, scope=SCOPE)


def test_c30_a_stripped_storage_asks_for_nothing_else() -> None:
    """Endpoints that no target has refuse the pod only where its volume travels."""
    volume = {"name": "v", "glusterfs": {"endpoints": "e", "path": "p"}}
    hub = hub_pod().with_spec(volumes=[volume]).build()

    def reason(word: Outcome) -> str | None:
        rules = ruled(outcomes={"storageVolumes": word})
        found = refusal_of(
            hub,
            mirror_key=mirror_key(ObjectKey("default", "web")),
            rules=rules.render,
            target_name=rules.target_name,
        )
        return found.reason if found is not None else None

    assert [reason(word) for word in Outcome] == ["CompanionMissing", None, "PolicyRefused"]


# -- DaemonSets ------------------------------------------------------------------------------------


def test_c26_a_daemonsets_pod_can_pretend() -> None:
    """It is ready at once, has no mirror, keeps still, and goes as soon as it is deleted."""
    rules, hub = ruled(daemon_sets=DaemonSetMode.PRETEND), daemon().build()
    after = told(plan_pod(view(hub, anchor=NEVER), rules), hub, "NotRunHere")
    assert condition_status(after, "Ready") == "True"
    assert isinstance(plan_pod(view(after, anchor=NEVER), rules), Nothing)
    going = daemon().terminating().build()
    step = plan_pod(sure({**going, "status": after["status"]}), rules)
    assert isinstance(step, DeleteHubPod)


def test_c26_a_daemonsets_pod_can_be_mirrored() -> None:
    """Then it is judged like others."""
    rules = ruled(daemon_sets=DaemonSetMode.MIRROR)
    assert isinstance(plan_pod(view(daemon().build(), anchor=NEVER), rules), PrepareGround)
    asking = daemon().with_spec(hostPID=True).build()
    told(plan_pod(view(asking, anchor=NEVER), rules), asking, "PolicyRefused")


def test_c26_a_pod_that_pretended_says_so_no_more() -> None:
    """Another mode takes the word back."""
    hub = daemon().build()
    after = outcome(hub, plan_pod(view(hub), ruled(daemon_sets=DaemonSetMode.PRETEND)))
    waiting = outcome(after, plan_pod(view(after), RULES))
    assert condition_status(waiting, "Ready") == "False"
    assert status_of(waiting)["phase"] == "Pending"


@pytest.mark.parametrize(
    ("mode", "is_refused"),
    [(DaemonSetMode.PENDING, True), (DaemonSetMode.PRETEND, True), (DaemonSetMode.MIRROR, False)],
)
def test_c26_who_is_not_mirrored_brings_nothing_along(
    mode: DaemonSetMode, is_refused: bool
) -> None:
    """Companions and tokens ask for the same refusal."""
    found = refusal_of(
        daemon().build(),
        mirror_key=ObjectKey("ns", "cni"),
        target_name="berlin",
        rules=RenderRules(policy=PolicyRules(daemon_sets=mode)),
    )
    assert (found is not None) is is_refused


# -- shaped ----------------------------------------------------------------------------------------


def test_c26_what_is_stripped_is_not_in_the_mirror() -> None:
    """A pod without its node's network has a hostname of its own."""
    rules = RenderRules(policy=PolicyRules(outcomes={"hostNetwork": Outcome.STRIP}))
    made = render_spec(hub_pod().with_spec(hostNetwork=True).build(), rules)
    assert "hostNetwork" not in made
    assert made["hostname"] == "web"


def test_c21_classes_are_mapped() -> None:
    """By the target's names."""
    rules = RenderRules(policy=PolicyRules(priority_classes={"gold": "high"}))
    hub = hub_pod().with_spec(priorityClassName="gold", runtimeClassName="kata").build()
    made = render_spec(hub, rules)
    assert made["priorityClassName"] == "high"
    assert "runtimeClassName" not in made
    assert "schedulerName" not in made


def test_c24_denied_keys_stay_behind_and_the_pod_is_told_of_them() -> None:
    """The downward API reads a fact where the mirror lacks the label."""
    rules = RenderRules(
        policy=PolicyRules(denied_labels=("inject.io/",), denied_annotations=("note",))
    )
    field = {"fieldRef": {"fieldPath": "metadata.labels['inject.io/on']"}}
    variable = {"name": "ON", "valueFrom": field}
    container = {"name": "main", "image": "busybox", "env": [variable]}
    hub = (
        hub_pod()
        .with_labels({"inject.io/on": "yes", "app": "web"})
        .with_annotations({"note": "x", APPARMOR: "unconfined", "kept": "y"})
        .with_spec(containers=[container])
        .build()
    )
    made = render_mirror(
        hub,
        origin=Origin(scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web"),
        mirror=mirror_key(ObjectKey("default", "web")),
        anchor={"metadata": {"name": "anchor", "uid": "a"}},
        rules=rules,
    )
    assert labels_of(made).get("app") == "web"
    assert "inject.io/on" not in labels_of(made)
    assert {"note", APPARMOR}.isdisjoint(annotations_of(made))
    assert annotations_of(made)["kept"] == "y"
    assert made["spec"]["containers"][0]["env"] == [{"name": "ON", "value": "yes"}]


# -- changes ---------------------------------------------------------------------------------------


def updates(hub: PodBuilder, rules: RenderRules) -> tuple[Update, ...]:
    there = mirror().build()
    changed = hub.build()
    changed["metadata"]["generation"] = 2
    return pending_updates(changed, there, rules)


def test_c25_a_new_image_is_pulled_from_elsewhere_too() -> None:
    """The record keeps the hub's name."""
    rules = RenderRules(policy=PolicyRules(images=EDGE))
    [update] = updates(hub_pod().with_image("nginx:2"), rules)
    assert update.spec == {"containers": [{"name": "main", "image": "edge:5000/library/nginx:2"}]}
    assert "edge:5000" not in str(update.record)


def test_c25_another_rule_for_images_restarts_nothing() -> None:
    """What was applied is compared by the hub's names."""
    rules = RenderRules(policy=PolicyRules(images=EDGE))
    found = updates(hub_pod().with_spec(activeDeadlineSeconds=9), rules)
    assert [update.what for update in found] == ["activeDeadlineSeconds"]


def test_c25_a_debug_container_is_judged_by_itself() -> None:
    """One that is refused is told and not added; what is stripped is added without."""
    bad = {"name": "bad", "image": "busybox", "securityContext": {"privileged": True}}
    good = {"name": "good", "image": "busybox"}
    hub = hub_pod().with_spec(ephemeralContainers=[bad, good])
    found = {update.what: update for update in updates(hub, RenderRules())}
    assert found["ephemeralContainers good"].spec == {"ephemeralContainers": [good]}
    refused = found["ephemeralContainers that are refused"]
    assert refused.refusal is not None
    assert refused.refusal.reason == "PolicyRefused"
    assert "spec.ephemeralContainers[bad].securityContext.privileged" in refused.refusal.message
    stripping = RenderRules(policy=PolicyRules(outcomes={"privileged": Outcome.STRIP}, images=EDGE))
    assert rendered_debugger(bad, hub.build(), stripping) == {
        "name": "bad",
        "image": "edge:5000/library/busybox",
    }


def test_c25_tolerations_that_come_later_are_no_way_in() -> None:
    """A toleration that is not on the list is not added to a mirror that runs."""
    policy = PolicyRules(outcomes={"tolerations": Outcome.STRIP}, toleration_keys=("x.io/",))
    hub = hub_pod().with_spec(
        tolerations=[{"key": "x.io/a", "operator": "Exists"}, {"key": "y", "operator": "Exists"}]
    )
    [update] = updates(hub, RenderRules(policy=policy))
    keys = {toleration["key"] for toleration in update.spec["tolerations"]}
    assert "x.io/a" in keys
    assert "y" not in keys


# -- told ------------------------------------------------------------------------------------------


def test_c40_images_are_called_as_on_the_hub() -> None:
    """The status of a pod that is pulled from elsewhere names what its user wrote."""
    its_mirror = mirror().with_image("edge:5000/library/busybox").running().build()
    hub = recording(hub_pod()).build()
    after = outcome(hub, plan_pod(sure(hub, its_mirror), ruled(images=EDGE)))
    [container] = status_of(after)["containerStatuses"]
    assert container["image"] == "docker.io/library/busybox"

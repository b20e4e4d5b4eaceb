"""The mirror's status in the hub's terms: what flows, what is translated, what is hidden."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from federate.model.marks import HUB_GENERATION_ANNOTATION
from federate.model.objects import JsonDict, JsonObject, condition_of, status_of
from federate.model.pods import container_statuses_of
from federate.status.project import (
    MIRROR_SCHEDULED,
    UPDATE_REJECTED,
    Addresses,
    derive_base,
    disruption_condition,
    disruption_marked_status,
    final_status,
    keep_transition_time,
    lost_status,
    owned_part,
    project_status,
    still_update_rejected,
    waiting_status,
    with_update_rejected,
)
from tests.support.builders import CREATED_AT, PodBuilder
from tests.support.views import ADDRESSES, condition_status, hub_pod, mirror

NOW = "2026-01-01T02:00:00Z"
HIDDEN = Addresses(node_address="192.0.2.10")


def projected(hub: PodBuilder, its_mirror: PodBuilder, addresses: Addresses = ADDRESSES) -> Any:
    """Project twice: the same input gives the same status and stays as it was."""
    wanted, there = hub.build(), its_mirror.build()
    before = copy.deepcopy((wanted, there))
    status = project_status(wanted, there, addresses)
    assert project_status(wanted, there, addresses) == status
    assert (wanted, there) == before
    return status


def with_status(status: JsonObject) -> JsonDict:
    return {"status": status}


# -- what flows ------------------------------------------------------------------------------------


def test_c40_phase_containers_and_times_flow() -> None:
    """What the mirror says of itself the hub pod says."""
    status = projected(hub_pod(), mirror().running(restarts=3))
    assert status["phase"] == "Running"
    assert status["startTime"] == CREATED_AT
    [container] = status["containerStatuses"]
    assert (container["name"], container["restartCount"], container["ready"]) == ("main", 3, True)
    assert container["state"] == {"running": {"startedAt": CREATED_AT}}


def test_c40_fields_of_newer_versions_flow() -> None:
    """A status field that federate has never heard of comes up."""
    assert projected(hub_pod(), mirror().with_status(allocatedGlitter={"x": 1}))[
        "allocatedGlitter"
    ] == {"x": 1}


@pytest.mark.parametrize(
    "field",
    ["qosClass", "nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus"],
)
def test_what_belongs_to_the_target_alone_stays_there(field: str) -> None:
    """Immutable fields and names of the target's objects are no news for the hub."""
    assert field not in projected(hub_pod(), mirror().with_status(**{field: "x"}))


SAID = 'secret "db-x" not found'


def in_hub_words(text: str) -> str:
    return text.replace("db-x", "db")


def test_c30_what_is_said_about_the_pod_is_said_in_the_hubs_words() -> None:
    """By kubelet and scheduler; what a container said last is its own."""
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": SAID}}
    ended = {"terminated": {"exitCode": 1, "message": SAID}}
    containers = [
        {"name": "main", "state": waiting, "lastState": ended},
        {"name": "side", "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]
    unready = {"type": "Ready", "status": "False", "message": SAID}
    there = mirror().with_status(
        phase="Pending", message=SAID, containerStatuses=containers, conditions=[unready]
    )
    hub = hub_pod().with_container("side").build()
    built = there.build()
    before = copy.deepcopy(built)
    status = project_status(hub, built, ADDRESSES, in_hub_words)
    assert built == before
    told = 'secret "db" not found'
    assert status["message"] == told
    assert (condition_of(with_status(status), "Ready") or {})["message"] == told
    main, side = status["containerStatuses"]
    assert main["state"]["waiting"] == {"reason": "CreateContainerConfigError", "message": told}
    assert main["lastState"]["terminated"]["message"] == SAID
    assert side == containers[1]
    assert project_status(hub, built, ADDRESSES)["message"] == SAID


def test_c40_the_words_of_the_targets_scheduler_are_the_hubs_too() -> None:
    """In the condition of our own and in Ready's message."""
    there = mirror().with_condition("PodScheduled", "False", reason="Unschedulable", message=SAID)
    status = with_status(project_status(hub_pod().build(), there.build(), ADDRESSES, in_hub_words))
    for kind in (MIRROR_SCHEDULED, "Ready"):
        assert (condition_of(status, kind) or {})["message"] == 'secret "db" not found'


def test_a_mirror_without_a_status_is_pending() -> None:
    """A mirror nobody has looked at yet is Pending, and nothing else."""
    bare = mirror().build()
    bare["status"] = {}
    assert project_status(hub_pod().build(), bare, ADDRESSES) == {"phase": "Pending"}


# -- addresses (C40, C47) --------------------------------------------------------------------------


def test_c40_the_host_address_is_the_virtual_nodes() -> None:
    """hostIP leads to the virtual node, not to a node of the target."""
    ip = "10.9.9.9"
    status = projected(hub_pod(), mirror().running().with_status(hostIP=ip, hostIPs=[{"ip": ip}]))
    assert status["hostIP"] == "192.0.2.10"
    assert status["hostIPs"] == [{"ip": "192.0.2.10"}]


def test_c40_a_host_address_is_not_invented() -> None:
    """Before the mirror has a node, or without an address of our own, none is shown."""
    assert "hostIP" not in projected(hub_pod(), mirror())
    assert "hostIPs" not in projected(hub_pod(), mirror().with_status(hostIPs=[{"ip": "10.9.9.9"}]))
    nowhere = Addresses(node_address="", decision=ADDRESSES.decision)
    hosted = mirror().with_status(hostIP="10.9.9.9", hostIPs=[{"ip": "10.9.9.9"}])
    status = projected(hub_pod(), hosted, nowhere)
    assert "hostIP" not in status
    assert "hostIPs" not in status


def test_c47_pod_addresses_are_shown_or_hidden() -> None:
    """An address of an overlapping range would lead to a stranger: by default it is hidden."""
    assert projected(hub_pod(), mirror().running())["podIP"] == "10.1.0.7"
    status = projected(hub_pod(), mirror().running(), HIDDEN)
    assert "podIP" not in status
    assert "podIPs" not in status


# -- generations -----------------------------------------------------------------------------------


def test_c40_observed_generations_are_the_hubs() -> None:
    """Which spec the status is about is said in the hub's count."""
    seen = mirror().running().with_annotations({HUB_GENERATION_ANNOTATION: "7"})
    built = seen.with_status(observedGeneration=2).build()
    for condition in built["status"]["conditions"]:
        condition["observedGeneration"] = 2
    status = project_status(hub_pod().build(), built, ADDRESSES)
    assert status["observedGeneration"] == 7
    assert {c["observedGeneration"] for c in status["conditions"]} == {7}


def test_c40_a_generation_the_kubelet_has_not_seen_is_not_told() -> None:
    """While the mirror's kubelet is behind, what was said before stays."""
    seen = mirror().running().with_annotations({HUB_GENERATION_ANNOTATION: "7"})
    behind = seen.with_status(observedGeneration=2).build()
    behind["metadata"]["generation"] = 3
    for condition in behind["status"]["conditions"]:
        condition["observedGeneration"] = 2 if condition["type"] == "Ready" else 3
    before = hub_pod().running().with_status(observedGeneration=6).build()
    for condition in before["status"]["conditions"]:
        condition["observedGeneration"] = 5
    status = project_status(before, behind, ADDRESSES)
    assert status["observedGeneration"] == 6
    told = {c["type"]: c["observedGeneration"] for c in status["conditions"]}
    assert told == {"Ready": 5, "ContainersReady": 7}
    fresh = project_status(hub_pod().build(), behind, ADDRESSES)
    assert "observedGeneration" not in fresh


def test_c25_what_was_told_of_a_refused_change_stands_or_goes() -> None:
    """It keeps the time since when it is so; a pod that ended says it no more."""
    words = {"reason": "UpdateRejected", "message": "no"}
    first = with_update_rejected({}, hub_pod().build(), now="2026-01-01T00:00:00Z", **words)
    hub = hub_pod().build()
    hub["status"]["conditions"] = first["conditions"]
    again = with_update_rejected({}, hub, now="2026-01-02T00:00:00Z", **words)
    assert again["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert still_update_rejected({}, hub)["conditions"] == first["conditions"]
    assert still_update_rejected({}, hub_pod().build()) == {}
    lost = lost_status(hub, message="gone", now="2026-01-02T00:00:00Z")
    assert UPDATE_REJECTED not in [c["type"] for c in lost["conditions"]]


@pytest.mark.parametrize("text", ["", "seven", "-1", "²"])
def test_an_unreadable_generation_is_left_out(text: str) -> None:
    """A record that somebody spoilt in the target stops nothing."""
    seen = mirror().running().with_annotations({HUB_GENERATION_ANNOTATION: text})
    built = seen.with_status(observedGeneration=2).build()
    built["status"]["conditions"][0]["observedGeneration"] = 2
    status = project_status(hub_pod().build(), built, ADDRESSES)
    assert "observedGeneration" not in status
    assert all("observedGeneration" not in c for c in status["conditions"])


# -- containers ------------------------------------------------------------------------------------


def test_c40_containers_the_target_injected_are_hidden() -> None:
    """A sidecar of the target's mesh is no container of the hub pod."""
    status = projected(hub_pod(), mirror().with_container("istio-proxy").running())
    assert [c["name"] for c in status["containerStatuses"]] == ["main"]


def test_c40_lists_with_injected_containers_alone_disappear() -> None:
    """A list of nothing but strangers is no list."""
    injected = [{"name": "mesh-init", "state": {}}]
    status = projected(hub_pod(), mirror().running().with_status(initContainerStatuses=injected))
    assert "initContainerStatuses" not in status


def test_c40_init_and_ephemeral_containers_come_up() -> None:
    """Every kind of container is told."""
    hub = hub_pod().with_spec(
        initContainers=[{"name": "prepare", "image": "busybox"}],
        ephemeralContainers=[{"name": "debug", "image": "busybox"}],
    )
    status = projected(
        hub,
        mirror()
        .running()
        .with_status(
            initContainerStatuses=[{"name": "prepare", "state": {}}, {"name": "mesh", "state": {}}],
            ephemeralContainerStatuses=[{"name": "debug", "state": {}}],
        ),
    )
    assert [c["name"] for c in container_statuses_of(with_status(status))] == [
        "prepare",
        "main",
        "debug",
    ]


# -- conditions ------------------------------------------------------------------------------------


def test_c40_conditions_of_the_kubelet_flow_and_others_stay() -> None:
    """What a controller of the target says of the mirror is not the hub's business."""
    seen = mirror().running().with_condition("Initialized", "True")
    seen = seen.with_condition("PodScheduled", "True").with_condition("example.com/mesh", "True")
    status = projected(hub_pod(), seen)
    kinds = [c["type"] for c in status["conditions"]]
    assert sorted(kinds) == ["ContainersReady", "Initialized", "Ready"]


def test_c40_the_target_schedulers_words_come_up() -> None:
    """An unschedulable mirror says so in Ready and in a condition of its own (C46)."""
    words = "0/3 nodes are available: 3 Insufficient cpu."
    seen = mirror().with_condition("PodScheduled", "False", reason="Unschedulable", message=words)
    status = with_status(projected(hub_pod(), seen))
    told = condition_of(status, "federate.dev/MirrorScheduled")
    assert told is not None
    assert (told["status"], told["message"]) == ("False", words)
    assert told["reason"] == "TargetLacksRoom"
    ready = condition_of(status, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "MirrorUnschedulable")
    assert ready["message"] == words
    assert condition_of(status, "PodScheduled") is None


@pytest.mark.parametrize("reason", ["SchedulingGated", "SchedulerError"])
def test_c40_what_the_scheduler_did_not_judge_keeps_its_reason(reason: str) -> None:
    """A gate that somebody in the target put there, or a scheduler that failed, is no shortage."""
    words = "0/3 nodes are available: 3 Insufficient cpu."
    seen = mirror().with_spec(schedulingGates=[{"name": "example.com/queue"}])
    seen = seen.with_condition("PodScheduled", "False", reason=reason, message=words)
    told = condition_of(with_status(projected(hub_pod(), seen)), "federate.dev/MirrorScheduled")
    assert told is not None
    assert told["reason"] == reason
    assert told["message"].startswith(words)
    assert ("example.com/queue" in told["message"]) is (reason == "SchedulingGated")


def test_c40_one_condition_of_a_type_even_where_ready_is_there_already() -> None:
    """A mirror that is unscheduled and not ready gives one Ready, not two."""
    seen = mirror().with_condition("PodScheduled", "False").with_condition("Ready", "False")
    kinds = [c["type"] for c in projected(hub_pod(), seen)["conditions"]]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize("gate", [None, "False"])
def test_c40_readiness_gates_are_evaluated_on_the_hub(gate: str | None) -> None:
    """A gate that the hub's controller has not opened keeps the pod not ready."""
    hub = hub_pod().with_spec(readinessGates=[{"conditionType": "example.com/lb"}])
    if gate:
        hub = hub.with_condition("example.com/lb", gate)
    status = with_status(projected(hub, mirror().running()))
    ready = condition_of(status, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    assert '"example.com/lb"' in ready["message"]
    assert condition_status(status, "ContainersReady") == "True"


def test_c40_an_open_gate_lets_ready_through() -> None:
    """With the gate open the mirror's own word stands."""
    hub = hub_pod().with_spec(readinessGates=[{"conditionType": "example.com/lb"}])
    hub = hub.with_condition("example.com/lb", "True")
    assert condition_status(with_status(projected(hub, mirror().running())), "Ready") == "True"


def test_a_transition_time_stays_while_the_status_does() -> None:
    """When something became so does not move with every write."""
    new = {"type": "Ready", "status": "False", "lastTransitionTime": NOW}
    same = hub_pod().with_condition("Ready", "False").build()
    assert keep_transition_time(new, same)["lastTransitionTime"] == CREATED_AT
    other = hub_pod().with_condition("Ready", "True").build()
    assert keep_transition_time(new, other)["lastTransitionTime"] == NOW
    assert keep_transition_time(new, hub_pod().build())["lastTransitionTime"] == NOW


# -- waiting (C26, C27) ----------------------------------------------------------------------------


def test_c26_a_waiting_pod_is_pending_with_a_reason() -> None:
    """`kubectl get pods` and `kubectl describe` both show why."""
    status = waiting_status(hub_pod().build(), reason="NameTaken", message="taken", now=NOW)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Pending",
        "NameTaken",
        "taken",
    )
    for kind in ("Ready", "federate.dev/Mirrored"):
        condition = condition_of(with_status(status), kind)
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "NameTaken")
    assert "containerStatuses" not in status


# -- ended -----------------------------------------------------------------------------------------


def test_c43_a_lost_pod_is_failed_in_a_kubelets_words() -> None:
    """Failed, MirrorLost, exit code 137, not ready, DisruptionTarget."""
    hub = hub_pod().with_container("second").running(restarts=2).build()
    status = lost_status(hub, message="it vanished", now=NOW)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "MirrorLost",
        "it vanished",
    )
    assert [c["name"] for c in status["containerStatuses"]] == ["main", "second"]
    for container in status["containerStatuses"]:
        ended = container["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        assert (ended["startedAt"], ended["finishedAt"]) == (CREATED_AT, NOW)
        assert (container["ready"], container["started"]) == (False, False)
        assert container["restartCount"] == 2
    told = with_status(status)
    assert condition_status(told, "Ready") == "False"
    assert condition_status(told, "ContainersReady") == "False"
    disruption = condition_of(told, "DisruptionTarget")
    assert disruption is not None
    assert (disruption["status"], disruption["reason"]) == ("True", "MirrorLost")


def test_c43_the_loss_outranks_an_earlier_disruption() -> None:
    """There is one DisruptionTarget, and it names the loss."""
    hub = hub_pod().running().with_condition("DisruptionTarget", "True", reason="Other").build()
    status = lost_status(hub, message="it vanished", now=NOW)
    kinds = [c["type"] for c in status["conditions"]]
    assert kinds.count("DisruptionTarget") == 1
    assert condition_of(with_status(status), "DisruptionTarget")["reason"] == "MirrorLost"  # type: ignore[index]


def test_c43_a_pod_that_never_showed_a_container_ends_with_all_of_them() -> None:
    """Containers nobody has seen are told as ended too."""
    status = lost_status(hub_pod().with_container("second").build(), message="gone", now=NOW)
    assert [c["name"] for c in status["containerStatuses"]] == ["main", "second"]
    assert all(c["state"]["terminated"]["startedAt"] == NOW for c in status["containerStatuses"])
    assert status["containerStatuses"][1]["image"] == "busybox"


def test_c42_containers_that_had_ended_keep_their_end() -> None:
    """An exit code once told is not overwritten by a loss."""
    hub = hub_pod().failed(exit_code=3).with_status(phase="Running").build()
    [container] = lost_status(hub, message="gone", now=NOW)["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3


def test_every_kind_of_container_ends_with_its_pod() -> None:
    """An init or ephemeral container that ran does not run on in a Failed pod."""
    running = {"name": "x", "state": {"running": {"startedAt": CREATED_AT}}}
    hub = (
        hub_pod()
        .running()
        .with_status(initContainerStatuses=[running], ephemeralContainerStatuses=[running])
        .build()
    )
    status = with_status(lost_status(hub, message="gone", now=NOW))
    assert all("terminated" in c["state"] for c in container_statuses_of(status))


def test_c50_the_final_status_is_the_mirrors_last_one() -> None:
    """Exit codes of a graceful end come up."""
    last = mirror().failed(exit_code=9).terminating().build()
    status = final_status(hub_pod().running().build(), last, ADDRESSES, now=NOW)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
    assert condition_of(with_status(status), "DisruptionTarget") is None


@pytest.mark.parametrize("seen", [True, False])
def test_c50_without_a_terminal_last_state_the_end_is_unknown(seen: bool) -> None:
    """A mirror that went before its containers' end was told ends as Failed, unknown."""
    last = mirror().running().terminating().build() if seen else None
    status = final_status(hub_pod().running().build(), last, ADDRESSES, now=NOW)
    assert status["phase"] == "Failed"
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert condition_of(with_status(status), "DisruptionTarget") is None


def test_the_words_of_waiting_do_not_outlive_the_pod() -> None:
    """An ended pod does not say any more that it waits or is not scheduled."""
    hub = hub_pod().with_condition("federate.dev/MirrorScheduled", "False")
    hub = hub.with_condition("federate.dev/Mirrored", "False").with_condition("Initialized", "True")
    status = with_status(final_status(hub.build(), None, ADDRESSES, now=NOW))
    kinds = sorted(c["type"] for c in status_of(status)["conditions"])
    assert kinds == ["ContainersReady", "Initialized", "Ready"]


# -- disrupted (C43) -------------------------------------------------------------------------------


def test_c43_a_disruption_keeps_the_phase_and_tells_why() -> None:
    """Not ready at once, in federate's words where the target has none."""
    hub = hub_pod().running().build()
    status = disruption_marked_status(hub, mirror().running().terminating().build(), now=NOW)
    assert status["phase"] == "Running"
    told = with_status(status)
    ready = condition_of(told, "Ready")
    assert ready is not None
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", NOW)
    disruption = condition_of(told, "DisruptionTarget")
    assert disruption is not None
    assert disruption["reason"] == "DeletedInTarget"


def test_c43_the_targets_own_words_are_copied() -> None:
    """An eviction's reason is the hub pod's too."""
    evicted = mirror().running().with_condition("DisruptionTarget", "True", reason="Preempted")
    status = disruption_marked_status(hub_pod().build(), evicted.terminating().build(), now=NOW)
    condition = condition_of(with_status(status), "DisruptionTarget")
    assert condition is not None
    assert condition["reason"] == "Preempted"


def test_a_disruption_keeps_its_time() -> None:
    """Told twice it is the same disruption."""
    hub = hub_pod().with_condition("DisruptionTarget", "True").build()
    condition = disruption_condition(hub, reason="r", message="m", now=NOW)
    assert condition["lastTransitionTime"] == CREATED_AT


# -- what is ours (C41) ----------------------------------------------------------------------------


def test_c41_what_others_wrote_is_not_ours() -> None:
    """Conditions of controllers and of the scheduler are not in the base of the merge."""
    hub = hub_pod().running().with_condition("example.com/lb", "True").build()
    kinds = [c["type"] for c in owned_part(hub)["conditions"]]
    assert sorted(kinds) == ["ContainersReady", "Ready"]
    assert "qosClass" not in owned_part(hub)


def test_c41_a_disruption_may_be_somebody_elses() -> None:
    """The hub's own eviction writes DisruptionTarget: it is never removed by a merge."""
    hub = hub_pod().running().with_condition("DisruptionTarget", "True").build()
    assert "DisruptionTarget" in [c["type"] for c in owned_part(hub)["conditions"]]
    assert "DisruptionTarget" not in [c["type"] for c in derive_base(hub)["conditions"]]


def test_c41_a_fresh_pod_has_nothing_of_ours() -> None:
    """No empty list of conditions is invented."""
    assert owned_part(hub_pod().build()) == {"phase": "Pending"}
    assert derive_base(hub_pod().build()) == {"phase": "Pending"}

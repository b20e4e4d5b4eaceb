"""The Node that ought to stand on the hub, and the writes that bring it about (C10, C11, C16)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from federate.model.marks import (
    ANCHORS_ANNOTATION,
    LAST_APPLIED_ANNOTATION,
    LAST_APPLIED_STATUS_ANNOTATION,
    SHOWN_RANGES_ANNOTATION,
)
from federate.model.objects import JsonDict, annotations_of, condition_of, labels_of
from federate.model.reasons import NodeReason
from federate.model.taints import Taint, TaintEffect
from federate.node.credentials import CredentialsWord
from federate.node.daemonsets import DaemonSetsWord
from federate.node.reachability import TargetState
from federate.node.render import (
    ASSUMED_LABELS,
    CREDENTIALS_VALID,
    DAEMONSETS_KEPT_OFF,
    KUBELET_SERVING,
    KubeletWord,
    NodeFacts,
    NodeShape,
    common_labels,
    new_node,
    node_patch,
    node_status_patch,
    render_node,
)
from federate.services.addresses import (
    ADDRESSES_REFLECTED,
    UNDECIDED,
    AddressDecision,
    decide_addresses,
)
from federate.services.ranges import Ranges, parse_networks
from federate.services.rules import AddressMode
from tests.support.strategic import apply_strategic_patch
from tests.support.views import SCOPE, condition_status

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
OFFER: Mapping[str, str] = {"cpu": "8", "memory": "16Gi", "pods": "110"}
FACTS = NodeFacts(
    scope=SCOPE,
    target_name="berlin",
    address="192.0.2.10",
    kubelet_version="v1.34.0",
    federate_version="1.0",
    offer=OFFER,
    state=TargetState.REACHABLE,
    state_message="the target answers",
    target_labels=ASSUMED_LABELS,
)


def facts(**fields: Any) -> NodeFacts:
    return replace(FACTS, **fields)


def registered(**fields: Any) -> JsonDict:
    node = new_node(
        render_node(facts(**fields), None, now=NOW),
        memory={},
    )
    node["metadata"] = {**node["metadata"], "uid": "node-1", "resourceVersion": "5"}
    return copy.deepcopy(node)


def patched(present: JsonDict, now: str = LATER, **fields: Any) -> JsonDict:
    """Write what differs; writing again finds nothing."""
    node = present
    for write in (node_patch, node_status_patch):
        patch = write(render_node(facts(**fields), node, now=now), node)
        if patch is not None:
            assert patch.body["metadata"]["uid"] == "node-1"
            node = apply_strategic_patch(node, patch.body, kind="Node")
        assert write(render_node(facts(**fields), node, now=now), node) is None
    return node


# -- what stands there -----------------------------------------------------------------------------


def test_c10_a_node_says_what_a_virtual_node_says() -> None:
    """Labels, taint, provider id, address, versions."""
    node = render_node(FACTS, None, now=NOW)
    assert labels_of(node) == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "virtual-kubelet",
        "kubernetes.io/hostname": "edge",
        "kubernetes.io/role": "agent",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "node.kubernetes.io/exclude-disruption": "true",
    }
    assert node["spec"] == {
        "providerID": "federate://berlin",
        "taints": [
            {"key": "virtual-kubelet.io/provider", "value": "federate", "effect": "NoSchedule"}
        ],
    }
    status = node["status"]
    assert status["addresses"] == [{"type": "InternalIP", "address": "192.0.2.10"}]
    assert status["capacity"] == status["allocatable"] == OFFER
    info = status["nodeInfo"]
    assert (info["kubeletVersion"], info["containerRuntimeVersion"]) == (
        "v1.34.0",
        "federate://1.0",
    )


def test_c10_labels_of_target_and_user_flow_but_not_over_ours() -> None:
    """The user's word counts more than the target's, and neither changes what the node is."""
    node = render_node(
        facts(
            target_labels={"zone": "z", "kubernetes.io/arch": "arm64", "rack": "t"},
            user_labels={"rack": "u", "type": "forged", "kubernetes.io/hostname": "forged"},
        ),
        None,
        now=NOW,
    )
    labels = labels_of(node)
    assert (labels["zone"], labels["rack"], labels["kubernetes.io/arch"]) == ("z", "u", "arm64")
    assert (labels["type"], labels["kubernetes.io/hostname"]) == ("virtual-kubelet", "edge")
    assert node["status"]["nodeInfo"]["architecture"] == "arm64"


def test_c10_a_node_of_several_kinds_claims_none() -> None:
    """Where the target's nodes differ in architecture, no pod is drawn to one that may not fit."""
    node = render_node(facts(target_labels={"kubernetes.io/os": "linux"}), None, now=NOW)
    assert "kubernetes.io/arch" not in labels_of(node)
    info = node["status"]["nodeInfo"]
    assert (info["operatingSystem"], info["architecture"]) == ("linux", "")
    told = facts(target_labels={}, user_labels={"kubernetes.io/arch": "arm64"})
    said = render_node(told, None, now=NOW)
    assert said["status"]["nodeInfo"]["architecture"] == "arm64"


def test_c10_the_user_says_what_the_node_looks_like() -> None:
    """Value and effect of our taint, more taints, provider id; the taint's key is not theirs."""
    extra = Taint(key="gpu", value="only", effect=TaintEffect.NO_EXECUTE)
    shape = NodeShape(
        taint_value="berlin",
        taint_effect=TaintEffect.PREFER_NO_SCHEDULE,
        taints=[extra],
        provider_id="cloud://7",
    )
    spec = render_node(facts(shape=shape), None, now=NOW)["spec"]
    assert spec == {
        "providerID": "cloud://7",
        "taints": [
            {"key": "virtual-kubelet.io/provider", "value": "berlin", "effect": "PreferNoSchedule"},
            {"key": "gpu", "value": "only", "effect": "NoExecute"},
        ],
    }


def test_c10_a_taint_without_value_costs_no_write() -> None:
    """A server leaves an empty value out, so it is not said either."""
    shape = NodeShape(taint_value="", taints=[Taint(key="gpu")])
    spec = render_node(facts(shape=shape), None, now=NOW)["spec"]
    assert spec["taints"] == [
        {"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"},
        {"key": "gpu", "effect": "NoSchedule"},
    ]


def test_c10_a_node_without_our_taint_goes_on_without() -> None:
    """Taken away it goes, and comes back with what is asked next; those of others stay."""
    node = registered()
    node["spec"]["taints"].append({"key": "theirs", "effect": "NoSchedule"})
    bare = patched(node, shape=NodeShape(taint_effect=None))
    assert [t["key"] for t in bare["spec"]["taints"]] == ["theirs"]
    bare["spec"]["taints"] = []
    assert not patched(bare, shape=NodeShape(taint_effect=None))["spec"].get("taints")
    soft = patched(bare, shape=NodeShape(taint_effect=TaintEffect.PREFER_NO_SCHEDULE))
    ours = {"key": "virtual-kubelet.io/provider", "value": "federate"}
    assert soft["spec"]["taints"] == [{**ours, "effect": "PreferNoSchedule"}]
    hard = patched(soft, shape=NodeShape(taint_effect=TaintEffect.NO_EXECUTE))
    assert hard["spec"]["taints"] == [{**ours, "effect": "NoExecute"}]


def test_c10_a_node_that_never_had_our_taint_is_made_without() -> None:
    """And costs no write once it stands there: a server keeps no empty list."""
    node = registered(shape=NodeShape(taint_effect=None))
    assert not node["spec"].pop("taints")
    assert patched(node, now=NOW, shape=NodeShape(taint_effect=None)) == node


def test_c10_taints_follow_the_configuration() -> None:
    """One that is dropped goes, a value that changed changes, and those of others stay."""
    node = registered(shape=NodeShape(taints=[Taint(key="gpu")]))
    node["spec"]["taints"].append({"key": "theirs", "effect": "NoSchedule"})
    after = patched(node, shape=NodeShape(taint_value="paris"))
    assert [(t["key"], t.get("value")) for t in after["spec"]["taints"]] == [
        ("virtual-kubelet.io/provider", "paris"),
        ("theirs", None),
    ]


def test_c10_a_provider_id_stays_while_the_node_does() -> None:
    """The API server refuses to change one, so a new one waits for a new Node."""
    node = registered()
    assert patched(node, shape=NodeShape(provider_id="cloud://7")) == node


def test_common_labels_are_those_all_target_nodes_share() -> None:
    """What differs, and what tells nodes apart or makes them special, is not common."""
    first = {
        "zone": "z",
        "disk": "ssd",
        "kubernetes.io/hostname": "a",
        "type": "x",
        "kubernetes.io/role": "agent",
        "federate.dev/x": "y",
        "node-role.kubernetes.io/worker": "",
        "node.kubernetes.io/exclude-disruption": "true",
    }
    second = {**first, "disk": "hdd"}
    nodes = [{"metadata": {"labels": labels}} for labels in (first, second)]
    assert common_labels(nodes) == {"zone": "z"}
    assert common_labels(nodes[:1]) == {"zone": "z", "disk": "ssd"}
    assert common_labels([*nodes, {"metadata": {}}]) == {}
    assert common_labels([]) == {}


# -- conditions (C12, C16) -------------------------------------------------------------------------


def test_c16_a_reachable_target_is_ready() -> None:
    """Every condition of a node is there, with its times."""
    node = render_node(FACTS, None, now=NOW)
    statuses = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    assert statuses == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "NetworkUnavailable": "False",
        "federate.dev/TargetReachable": "True",
        "Ready": "True",
    }
    assert {c["lastTransitionTime"] for c in node["status"]["conditions"]} == {NOW}


def test_c12_refused_credentials_are_told_at_once() -> None:
    """401 and 403 are authenticated answers: Ready=False with the reason."""
    node = render_node(facts(state=TargetState.REFUSED, state_message="no access"), None, now=NOW)
    for kind in ("Ready", "federate.dev/TargetReachable"):
        condition = condition_of(node, kind)
        assert condition is not None
        assert (condition["status"], condition["reason"], condition["message"]) == (
            "False",
            "TargetRefuses",
            "no access",
        )


def test_c12_silence_leaves_ready_to_the_hub() -> None:
    """An unreachable target says so, and leaves Ready as it is."""
    node = registered()
    dead = patched(node, state=TargetState.UNREACHABLE, state_message="no answer within 3 s")
    assert condition_status(dead, "federate.dev/TargetReachable") == "False"
    assert condition_of(dead, "Ready") == condition_of(node, "Ready")
    fresh = render_node(facts(state=TargetState.UNREACHABLE), None, now=NOW)
    assert condition_of(fresh, "Ready") is None


def test_c12_ready_comes_back_after_the_outage() -> None:
    """What the hub's node controller wrote meanwhile is put right."""
    dead = patched(registered(), state=TargetState.UNREACHABLE, state_message="gone")
    for condition in dead["status"]["conditions"]:
        condition.update(status="Unknown", reason="NodeStatusUnknown")
    back = patched(dead)
    assert condition_status(back, "Ready") == "True"
    assert condition_status(back, "federate.dev/TargetReachable") == "True"
    assert condition_of(back, "Ready")["lastTransitionTime"] == LATER  # type: ignore[index]


def test_c23_an_uninstalled_namespace_is_said_by_the_node() -> None:
    """The node stays Ready, names the namespaces, and says what to do."""
    ready = condition_of(render_node(facts(uninstalled=["a", "b"]), None, now=NOW), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "Uninstalled")
    assert "a, b" in ready["message"]
    assert "federate.dev/reinstall" in ready["message"]


def test_c14_the_node_says_why_it_offers_less() -> None:
    """It stays Ready; what is wrong with an anchor is told beside it, and first."""
    ready = condition_of(render_node(facts(offer_trouble="no quota"), None, now=NOW), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"], ready["message"]) == (
        "True",
        "CapacityUnknown",
        "no quota",
    )
    both = facts(offer_trouble="no quota", uninstalled=["a"])
    ready = condition_of(render_node(both, None, now=NOW), "Ready")
    assert ready is not None
    assert ready["reason"] == "Uninstalled"
    assert ready["message"].endswith("; no quota")


def test_c30_the_node_says_what_of_companions_is_left() -> None:
    """It stays Ready: pods that run are none the worse for it."""
    left = facts(companions_left="2 left", offer_trouble="no quota")
    ready = condition_of(render_node(left, None, now=NOW), "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("True", "CapacityUnknown")
    assert ready["message"] == "no quota; 2 left"
    ready = condition_of(render_node(facts(companions_left="2 left"), None, now=NOW), "Ready") or {}
    assert (ready["reason"], ready["message"]) == ("CompanionsLeft", "2 left")


@pytest.mark.parametrize(("is_valid", "status"), [(True, "True"), (False, "False")])
def test_c72_the_node_says_how_the_credentials_stand(is_valid: bool, status: str) -> None:
    """A condition says so, whatever else is the matter; without a word there is none."""
    word = CredentialsWord(
        is_valid=is_valid, reason=NodeReason.CREDENTIALS_EXPIRE_SOON, message="token ends soon"
    )
    for state in (TargetState.REACHABLE, TargetState.REFUSED, TargetState.UNREACHABLE):
        node = registered(credentials=word, state=state)
        told = condition_of(node, CREDENTIALS_VALID) or {}
        assert (told["status"], told["message"]) == (status, "token ends soon")
        assert told["reason"] == "CredentialsExpireSoon"
    assert condition_of(registered(), CREDENTIALS_VALID) is None


def test_times_stay_while_nothing_changes() -> None:
    """A transition is dated once; a new message is a heartbeat, no transition."""
    node = registered()
    same = render_node(FACTS, node, now=LATER)
    assert same["status"]["conditions"] == node["status"]["conditions"]
    ready = condition_of(render_node(facts(uninstalled=["a"]), node, now=LATER), "Ready")
    assert ready is not None
    assert (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == (NOW, LATER)


# -- writes (C10, C11) -----------------------------------------------------------------------------


def test_c11_an_unchanged_node_costs_no_write() -> None:
    """Right after registration there is nothing to write."""
    node = registered()
    rendered = render_node(FACTS, node, now=LATER)
    assert node_patch(rendered, node) is None
    assert node_status_patch(rendered, node) is None


def test_the_memory_of_anchors_is_registered_with_the_node() -> None:
    """A Node that somebody deleted gets its memory back."""
    rendered = render_node(FACTS, None, now=NOW)
    node = new_node(rendered, memory={ANCHORS_ANNOTATION: '{"ns":"1"}'})
    assert annotations_of(node)[ANCHORS_ANNOTATION] == '{"ns":"1"}'
    assert ANCHORS_ANNOTATION not in annotations_of(registered())


def test_c10_what_others_put_there_survives() -> None:
    """Foreign labels, annotations, taints and conditions stay through every change of ours."""
    node = registered()
    node["metadata"]["labels"]["team"] = "blue"
    node["metadata"]["annotations"]["note"] = "x"
    node["spec"]["taints"].append({"key": "maintenance", "effect": "NoSchedule"})
    node["spec"]["unschedulable"] = True
    node["status"]["conditions"].append({"type": "example.com/Healthy", "status": "True"})
    node["status"]["capacity"]["example.com/dongle"] = "2"
    after = patched(node, user_labels={"a": "b"}, offer={"cpu": "1"})
    assert (labels_of(after)["team"], labels_of(after)["a"]) == ("blue", "b")
    assert annotations_of(after)["note"] == "x"
    assert [t["key"] for t in after["spec"]["taints"]] == [
        "virtual-kubelet.io/provider",
        "maintenance",
    ]
    assert after["spec"]["unschedulable"] is True
    assert condition_status(after, "example.com/Healthy") == "True"
    assert after["status"]["capacity"] == {"cpu": "1", "example.com/dongle": "2"}


def test_c10_what_we_no_longer_say_is_taken_back() -> None:
    """A label that left the configuration leaves the Node."""
    after = patched(registered(user_labels={"a": "b"}))
    assert "a" not in labels_of(after)


def test_c10_our_taint_comes_back() -> None:
    """A taint that somebody removed is put back."""
    node = registered()
    node["spec"]["taints"] = []
    assert [t["key"] for t in patched(node)["spec"]["taints"]] == ["virtual-kubelet.io/provider"]


@pytest.mark.parametrize("text", ["", "nonsense", "[]"])
def test_an_unreadable_record_removes_nothing(text: str) -> None:
    """Where the last applied state is spoilt, ours is set and nothing is taken away."""
    node = registered(user_labels={"a": "b"})
    for key in (LAST_APPLIED_ANNOTATION, LAST_APPLIED_STATUS_ANNOTATION):
        node["metadata"]["annotations"][key] = text
    after = patched(node, user_labels={"c": "d"}, offer={"cpu": "1"})
    assert (labels_of(after)["a"], labels_of(after)["c"]) == ("b", "d")
    assert after["status"]["capacity"]["cpu"] == "1"


# -- the kubelet API -------------------------------------------------------------------------------


def kubelet(port: int, *, is_serving: bool = True) -> KubeletWord:
    reason = NodeReason.KUBELET_SERVING if is_serving else NodeReason.KUBELET_PORT_TAKEN
    return KubeletWord(port=port, is_serving=is_serving, reason=reason, message="as it is")


def test_a_node_says_where_it_answers_as_a_kubelet() -> None:
    """The hub's API server asks the port that stands there, and people read why not."""
    served = registered(kubelet=kubelet(10250))
    assert served["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert condition_status(served, KUBELET_SERVING) == "True"
    moved = patched(served, kubelet=kubelet(10251))
    assert moved["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10251}}
    taken = patched(moved, kubelet=kubelet(0, is_serving=False))
    assert not (taken["status"].get("daemonEndpoints") or {}).get("kubeletEndpoint")
    assert condition_status(taken, KUBELET_SERVING) == "False"
    found = condition_of(taken, KUBELET_SERVING)
    assert found is not None and found["reason"] == "KubeletPortTaken"


def test_a_node_without_a_kubelet_api_says_nothing_of_it() -> None:
    """Turned off, it names no port, and a condition of before goes."""
    node = render_node(FACTS, None, now=NOW)
    assert "daemonEndpoints" not in node["status"]
    assert condition_of(node, KUBELET_SERVING) is None
    off = patched(registered(kubelet=kubelet(10250)))
    assert condition_of(off, KUBELET_SERVING) is None
    assert not (off["status"].get("daemonEndpoints") or {}).get("kubeletEndpoint")


# -- DaemonSets of the hub -------------------------------------------------------------------------


def test_c26_a_node_says_which_daemonsets_tolerate_it() -> None:
    """Each change is told; where they may not be looked at, a condition of before goes."""
    waiting = DaemonSetsWord(
        is_kept_off=False, reason=NodeReason.DAEMONSETS_WAIT, message="kube-system/cni: it waits"
    )
    well = DaemonSetsWord(is_kept_off=True, reason=NodeReason.DAEMONSETS_KEPT_OFF, message="none")
    node = registered(daemonsets=waiting)
    found = condition_of(node, DAEMONSETS_KEPT_OFF) or {}
    assert (found["status"], found["reason"], found["message"]) == (
        "False",
        "DaemonSetsWait",
        "kube-system/cni: it waits",
    )
    kept_off = patched(node, daemonsets=well)
    assert condition_status(kept_off, DAEMONSETS_KEPT_OFF) == "True"
    assert condition_of(patched(kept_off), DAEMONSETS_KEPT_OFF) is None


# -- addresses (C47) -------------------------------------------------------------------------------

APART = decide_addresses(
    AddressMode.REFLECT,
    hub=Ranges(),
    target=Ranges(pods=parse_networks("10.42.0.0/16")),
    target_name="berlin",
)
HIDDEN = decide_addresses(AddressMode.HIDE, hub=Ranges(), target=Ranges(), target_name="berlin")


@pytest.mark.parametrize(
    ("decision", "status", "shown"),
    [(APART, "True", "10.42.0.0/16"), (HIDDEN, "False", None), (UNDECIDED, "Unknown", None)],
)
def test_the_node_says_whether_addresses_are_shown(
    decision: AddressDecision, status: str, shown: str | None
) -> None:
    node = render_node(facts(addresses=decision), None, now=NOW)
    said = condition_of(node, ADDRESSES_REFLECTED)
    assert said is not None
    assert (said["status"], said["reason"]) == (status, decision.reason)
    assert annotations_of(node).get(SHOWN_RANGES_ANNOTATION) == shown


def test_until_it_is_decided_anew_the_last_leaders_word_stands() -> None:
    """So that a restart neither flaps the condition nor lets another node show its addresses."""
    present = registered(addresses=APART)
    present["status"] = render_node(facts(addresses=APART), None, now=NOW)["status"]
    node = render_node(facts(addresses=UNDECIDED), present, now=LATER)
    assert condition_of(node, ADDRESSES_REFLECTED) == condition_of(present, ADDRESSES_REFLECTED)
    assert annotations_of(node)[SHOWN_RANGES_ANNOTATION] == "10.42.0.0/16"
    assert node_status_patch(node, present) is None


def test_ranges_that_are_not_shown_any_more_leave_the_node() -> None:
    present = registered(addresses=APART)
    patch = node_patch(render_node(facts(addresses=HIDDEN), present, now=LATER), present)
    assert patch is not None
    assert SHOWN_RANGES_ANNOTATION not in annotations_of(
        apply_strategic_patch(present, patch.body, kind="Node")
    )


def test_where_nobody_decides_nothing_is_said() -> None:
    assert condition_of(render_node(FACTS, None, now=NOW), ADDRESSES_REFLECTED) is None

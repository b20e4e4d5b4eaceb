"""Which Services follow, and how they look in the target."""

from __future__ import annotations

from typing import Any

import pytest

from federate.mirror.render import RenderRules, looks_of
from federate.model.marks import (
    COMPANION_LABEL,
    COMPANION_OF_ANNOTATION,
    FOLLOW_LABEL,
    HUB_LABEL,
    HUB_POD_NAMESPACE_LABEL,
    Origin,
    Scope,
)
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, ObjectKey, key_of, labels_of, spec_of
from federate.model.resources import SERVICES
from federate.services.following import (
    ServiceKey,
    disown_patch,
    is_followed,
    is_marked,
    others_owners,
    render_service,
    service_of,
    service_patch,
    services_selector,
)
from federate.services.rules import FollowMode
from federate.services.selecting import service_selects
from tests.support.builders import pod
from tests.support.scene import SCOPE
from tests.support.selectors import select
from tests.support.strategic import apply_merge_patch

KEY = ServiceKey("there", "default", "web")
ANCHOR = {"metadata": {"name": anchor_name(SCOPE), "uid": "anchor-uid"}}
OTHER = Scope(hub_id=SCOPE.hub_id, node_name="edge-2")
OTHERS_ANCHOR = {"metadata": {"name": anchor_name(OTHER), "uid": "others-uid"}}
OURS = {HUB_LABEL: SCOPE.hub_id, HUB_POD_NAMESPACE_LABEL: "default"}


def hub_service(labels: dict[str, str] | None = None, **spec: Any) -> JsonDict:
    return {
        "metadata": {"namespace": "default", "name": "web", "labels": labels or {}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.0.7",
            "selector": {"app": "web"},
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": "http"}],
            **spec,
        },
    }


def rendered(service: JsonDict | None = None) -> JsonDict:
    return render_service(KEY, service or hub_service(), scope=SCOPE, anchor=ANCHOR)


def stored(**spec: Any) -> JsonDict:
    """What an API server makes of it."""
    body = rendered(hub_service(**spec))
    body["metadata"] |= {"uid": "service-uid", "resourceVersion": "7"}
    body["spec"] = {
        **{k: v for k, v in body["spec"].items() if v is not None},
        "clusterIP": body["spec"].get("clusterIP", "10.43.0.9"),
        "clusterIPs": ["10.43.0.9"],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }
    return body


# -- which follow ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "of_all", "of_labelled"),
    [
        ({}, True, False),
        ({FOLLOW_LABEL: "true"}, True, True),
        ({FOLLOW_LABEL: "false"}, False, False),
        ({FOLLOW_LABEL: "yes"}, True, False),
    ],
)
def test_the_mode_and_the_label_say_what_follows(
    labels: dict[str, str], of_all: bool, of_labelled: bool
) -> None:
    service = hub_service(labels)
    assert is_followed(service, FollowMode.ALL) is of_all
    assert is_followed(service, FollowMode.LABELLED) is of_labelled
    assert not is_followed(service, FollowMode.IGNORE)


@pytest.mark.parametrize(
    "service",
    [
        hub_service(selector={}),
        hub_service(selector=None),
        hub_service(type="ExternalName", externalName="db.example"),
        hub_service({COMPANION_LABEL: "service"}),
    ],
)
def test_what_has_no_pods_of_its_own_never_follows(service: JsonDict) -> None:
    assert not is_followed(service, FollowMode.ALL)


# -- how they look ---------------------------------------------------------------------------------


def test_it_has_the_same_name_and_selects_mirrors_of_this_hub_alone() -> None:
    body = rendered(hub_service(selector={"app": "web", HUB_LABEL: "a-stranger"}))
    assert body["metadata"]["name"] == "web"
    assert body["metadata"]["namespace"] == "there"
    assert body["spec"]["selector"] == {"app": "web", **OURS}


def test_two_virtual_nodes_of_a_hub_select_alike_in_one_namespace_and_apart_in_two() -> None:
    """Mappings of two may meet in one target namespace; there each Service has its own pods."""
    shared = render_service(KEY, hub_service(), scope=OTHER, anchor=OTHERS_ANCHOR)
    assert shared["spec"]["selector"] == rendered()["spec"]["selector"]
    service = hub_service()
    service["metadata"]["namespace"] = "another"
    apart = render_service(
        ServiceKey("there", "another", "web"), service, scope=OTHER, anchor=OTHERS_ANCHOR
    )
    here = mirror_of(hub_pod_in("default"), SCOPE)
    assert service_selects(rendered(), labels_of(here))
    assert not service_selects(apart, labels_of(here))
    assert service_selects(apart, labels_of(mirror_of(hub_pod_in("another"), OTHER)))


def mirror_of(hub_pod: JsonDict, scope: Scope) -> JsonDict:
    """What is created for it."""
    origin = Origin(scope=scope, pod=key_of(hub_pod), pod_uid="u")
    looks = looks_of(hub_pod, origin=origin, rules=RenderRules())
    return {"metadata": {"labels": looks.labels}}


def hub_pod_in(namespace: str) -> JsonDict:
    return pod("web-1", namespace=namespace).with_labels({"app": "web"}).build()


def test_nothing_that_reaches_out_of_the_cluster_travels() -> None:
    """externalIPs would take the traffic of whoever owns the address (CVE-2020-8554)."""
    service = hub_service(
        type="LoadBalancer",
        externalIPs=["10.0.0.1"],
        loadBalancerIP="1.2.3.4",
        loadBalancerClass="x",
        loadBalancerSourceRanges=["0.0.0.0/0"],
        externalTrafficPolicy="Local",
        healthCheckNodePort=30001,
        allocateLoadBalancerNodePorts=True,
        externalName="db.example",
        clusterIPs=["10.96.0.7"],
        ipFamilies=["IPv4"],
        ports=[{"port": 80, "targetPort": 8080, "nodePort": 30002, "protocol": "TCP"}],
    )
    service["metadata"] |= {"labels": {"a": "b"}, "annotations": {"external-dns": "x"}}
    body = rendered(service)
    assert set(body["spec"]) == {
        "type",
        "selector",
        "ports",
        "sessionAffinity",
        "sessionAffinityConfig",
        "publishNotReadyAddresses",
        "internalTrafficPolicy",
    }
    assert body["spec"]["type"] == "ClusterIP"
    assert body["spec"]["ports"] == [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]
    assert "a" not in body["metadata"]["labels"]
    assert set(body["metadata"]["annotations"]) == {COMPANION_OF_ANNOTATION}


def test_what_says_who_answers_travels() -> None:
    affinity = {"clientIP": {"timeoutSeconds": 60}}
    body = rendered(
        hub_service(
            clusterIP="None",
            publishNotReadyAddresses=True,
            sessionAffinity="ClientIP",
            sessionAffinityConfig=affinity,
            internalTrafficPolicy="Local",
            ports=[
                {"name": "a", "port": 1, "appProtocol": "h2c", "protocol": "UDP"},
                {"name": "b", "port": 2, "targetPort": "named", "protocol": "TCP"},
            ],
        )
    )
    spec = body["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert (spec["sessionAffinity"], spec["sessionAffinityConfig"]) == ("ClientIP", affinity)
    assert spec["internalTrafficPolicy"] == "Local"
    assert spec["ports"][0] == {
        "name": "a",
        "port": 1,
        "targetPort": 1,
        "appProtocol": "h2c",
        "protocol": "UDP",
    }


def test_a_timeout_goes_with_the_affinity_that_has_one() -> None:
    """An API server refuses one without."""
    config = {"clientIP": {"timeoutSeconds": 60}}
    spec = rendered(hub_service(sessionAffinity="None", sessionAffinityConfig=config))["spec"]
    assert (spec["sessionAffinity"], spec["sessionAffinityConfig"]) == ("None", None)


# -- marks -----------------------------------------------------------------------------------------


def test_what_was_made_is_found_again_by_its_marks() -> None:
    body = rendered()
    assert service_of(SCOPE, body) == KEY
    assert service_of(OTHER, body) == KEY  # another virtual node of the same hub
    selection = select(
        SERVICES, namespace="", label_selector=services_selector(SCOPE), field_selector=""
    )
    assert selection.matches(body)
    assert is_marked(SCOPE, body)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("labels", HUB_LABEL, "another-hub"),
        ("labels", COMPANION_LABEL, "configmap"),
        ("annotations", COMPANION_OF_ANNOTATION, "nonsense"),
        ("annotations", COMPANION_OF_ANNOTATION, '{"kind":"Secret","namespace":"a","name":"web"}'),
        ("annotations", COMPANION_OF_ANNOTATION, '{"kind":"Service","namespace":"a","name":"b"}'),
        ("annotations", COMPANION_OF_ANNOTATION, "[]"),
    ],
)
def test_whatever_does_not_agree_is_not_ours(part: str, name: str, value: str) -> None:
    body = rendered()
    body["metadata"][part][name] = value
    assert service_of(SCOPE, body) is None


def test_a_service_of_another_hub_namespace_is_not_this_one() -> None:
    body = rendered()
    body["metadata"]["annotations"][COMPANION_OF_ANNOTATION] = (
        '{"kind":"Service","namespace":"other","name":"web"}'
    )
    assert service_of(SCOPE, body) == ServiceKey("there", "other", "web")


def test_a_key_names_both_sides() -> None:
    assert KEY.hub_key == ObjectKey("default", "web")
    assert KEY.target_key == ObjectKey("there", "web")
    assert str(KEY) == "Service default/web"


# -- changes ---------------------------------------------------------------------------------------


def test_what_an_api_server_made_of_it_is_the_same() -> None:
    assert service_patch(rendered(), stored()) is None
    headless = rendered(hub_service(clusterIP="None"))
    assert service_patch(headless, stored(clusterIP="None")) is None


CHANGES: tuple[dict[str, Any], ...] = (
    {"selector": {"app": "db"}},
    {"selector": {"app": "web", "tier": "front"}},
    {"ports": [{"port": 81, "targetPort": 8081, "protocol": "TCP"}]},
    {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 9}}},
    {"publishNotReadyAddresses": True},
    {"internalTrafficPolicy": "Local"},
)


@pytest.mark.parametrize("before", [{}, *CHANGES])
@pytest.mark.parametrize("after", [{}, *CHANGES])
def test_one_patch_makes_any_service_what_it_ought_to_be(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    wanted, there = rendered(hub_service(**after)), stored(**before)
    patch = service_patch(wanted, there)
    if patch is None:
        assert before == after
        return
    assert patch.body["metadata"]["uid"] == "service-uid"
    assert patch.body["metadata"]["resourceVersion"] == "7"
    changed = apply_merge_patch(there, patch.body)
    assert service_patch(wanted, changed) is None
    assert spec_of(changed)["selector"] == wanted["spec"]["selector"]
    assert spec_of(changed)["clusterIPs"] == ["10.43.0.9"]


def test_what_decides_who_answers_is_put_back_and_the_rest_stays() -> None:
    there = stored()
    there["spec"]["selector"] = {"app": "web", "sneaky": "x"}
    there["spec"]["type"] = "NodePort"
    there["metadata"]["labels"] |= {"team": "edge"}
    there["metadata"]["annotations"] |= {"note": "kept"}
    patch = service_patch(rendered(), there)
    assert patch is not None
    changed = apply_merge_patch(there, patch.body)
    assert changed["spec"]["selector"] == {"app": "web", **OURS}
    assert changed["spec"]["type"] == "ClusterIP"
    assert changed["metadata"]["labels"]["team"] == "edge"
    assert changed["metadata"]["annotations"]["note"] == "kept"


# -- owners ----------------------------------------------------------------------------------------


def test_virtual_nodes_of_one_hub_share_a_service_by_its_owners() -> None:
    there = stored()
    joined = render_service(KEY, hub_service(), scope=OTHER, anchor=OTHERS_ANCHOR)
    patch = service_patch(joined, there)
    assert patch is not None
    assert "spec" not in patch.body
    shared = apply_merge_patch(there, patch.body)
    owners = {owner["uid"] for owner in shared["metadata"]["ownerReferences"]}
    assert owners == {"anchor-uid", "others-uid"}
    assert not any(owner.get("controller") for owner in shared["metadata"]["ownerReferences"])
    assert [owner["uid"] for owner in others_owners(SCOPE, shared)] == ["others-uid"]
    left = apply_merge_patch(shared, disown_patch(SCOPE, shared).body)
    assert [owner["uid"] for owner in left["metadata"]["ownerReferences"]] == ["others-uid"]


def test_a_former_anchor_gives_way_to_the_present_one() -> None:
    there = stored()
    there["metadata"]["ownerReferences"][0]["uid"] = "former-uid"
    patch = service_patch(rendered(), there)
    assert patch is not None
    [owner] = patch.body["metadata"]["ownerReferences"]
    assert owner["uid"] == "anchor-uid"

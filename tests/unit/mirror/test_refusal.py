"""Why a hub pod gets no mirror, and what a failed create means."""

from __future__ import annotations

import pytest

from federate.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.mirror.refusal import (
    create_failure_of,
    debugger_refusal,
    refusal_of,
    undone_refusal,
    update_refusal_of,
)
from federate.model.objects import ObjectKey
from tests.support.builders import PodBuilder
from tests.support.views import hub_pod, mirror

KEY = ObjectKey("hub-0a-default", "web")


def reason_of(builder: PodBuilder, key: ObjectKey = KEY) -> str:
    refusal = refusal_of(builder.build(), mirror_key=key)
    return refusal.reason if refusal is not None else ""


def test_an_ordinary_pod_is_not_refused() -> None:
    """A pod with the server's defaults, its token volume included, may be mirrored."""
    assert reason_of(hub_pod()) == ""
    assert reason_of(hub_pod().owned_by("ReplicaSet", "web")) == ""


@pytest.mark.parametrize("mark", ["hub", "virtual-node", "hub-pod-uid"])
def test_c3_any_one_mark_refuses(mark: str) -> None:
    """Whatever hub it names: a pod with a mark is a mirror."""
    assert reason_of(hub_pod().with_labels({f"federate.dev/{mark}": "x"})) == "MirrorOfMirror"
    assert reason_of(mirror()) == "MirrorOfMirror"


def test_c26_daemonset_pods_are_refused_with_a_remedy() -> None:
    """A DaemonSet that tolerates everything is told how to stay away."""
    refusal = refusal_of(hub_pod().owned_by("DaemonSet", "cni").build(), mirror_key=KEY)
    assert refusal is not None
    assert refusal.reason == "DaemonSetNotMirrored"
    assert "type NotIn virtual-kubelet" in refusal.message


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease"])
def test_c22_system_namespaces_are_refused_unless_asked_for(namespace: str) -> None:
    """Namespace `same` does not let a hub user into the target's system."""
    key = ObjectKey(namespace, "web")
    assert reason_of(hub_pod(), key) == "SystemNamespaceRefused"
    assert refusal_of(hub_pod().build(), mirror_key=key, allow_system_namespaces=True) is None


def test_c30_what_does_not_travel_is_named() -> None:
    """A pod that leans on a Secret waits, and says on which."""
    hub = hub_pod().with_spec(
        volumes=[{"name": "v", "secret": {"secretName": "tls"}}],
        imagePullSecrets=[{"name": "pull"}],
    )
    refusal = refusal_of(hub.build(), mirror_key=KEY)
    assert refusal is not None
    assert refusal.reason == "CompanionMissing"
    assert refusal.message.endswith('Secret "pull", Secret "tls"')


# -- failed creates (C27) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason", "slow"),
    [
        ('pods "web" is forbidden: exceeded quota: compute, used: pods=1', "QuotaExceeded", True),
        ('violates PodSecurity "baseline:latest": privileged', "PodSecurityRefused", True),
        ("unable to create new content in namespace x because it is being terminated",
         "NamespaceTerminating", False),
        ("error looking up service account x/default: serviceaccount not found",
         "ServiceAccountMissing", False),
        ('serviceaccount "default" not found', "ServiceAccountMissing", False),
        ("maximum cpu usage per Container is 1, but limit is 2", "LimitRangeRefused", True),
        ('admission webhook "x.y" denied the request: no', "AdmissionDenied", True),
        ('User "u" cannot create resource "pods"', "Forbidden", False),
    ],
)  # fmt: skip
def test_c27_a_403_is_told_by_its_text(text: str, reason: str, slow: bool) -> None:
    """Quota, policy, admission and RBAC all answer 403: the words pick reason and pace."""
    failure = create_failure_of(Forbidden(text, status=403), target_name="berlin")
    assert (failure.refusal.reason, failure.slow) == (reason, slow)
    assert failure.refusal.message == f"berlin answered: {text}"


@pytest.mark.parametrize(
    ("error", "reason", "slow"),
    [
        (Throttled("slow down", status=429), "TargetBusy", False),
        (NotFound("namespaces not found", status=404), "NamespaceMissing", False),
        (Rejected("spec.x: Invalid value", status=422), "MirrorInvalid", True),
        (ServerFault("etcdserver: timeout", status=500), "TargetError", False),
        (Unauthorized("Unauthorized", status=401), "TargetError", False),
        (Unreachable("refused"), "TargetUnreachable", False),
        (Conflict("modified", status=409), "TargetError", False),
        (Expired("too old", status=410), "TargetError", False),
    ],
)
def test_c27_only_an_invalid_mirror_waits_for_a_person(
    error: ClusterError, reason: str, slow: bool
) -> None:
    """Everything is told and retried; 422 slowly."""
    failure = create_failure_of(error, target_name="berlin")
    assert (failure.refusal.reason, failure.slow) == (reason, slow)
    assert "berlin" in failure.refusal.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Rejected("spec.x: Invalid value", status=422), "UpdateRejected"),
        (Forbidden("exceeded quota: q", status=403), "UpdateRejected"),
        (NotFound("could not find the requested resource", status=404), "UpdateNotSupported"),
        (ServerFault("failed calling webhook", status=500), "TargetError"),
    ],
)
def test_c25_a_refused_update_is_told_in_the_targets_words(
    error: ClusterError, reason: str
) -> None:
    """What was to be changed, who refused it, and why."""
    refusal = update_refusal_of(error, target_name="berlin", what="images")
    assert refusal is not None
    assert refusal.reason == reason
    for word in ("berlin", "images", error.detail):
        assert word in refusal.message


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("refused"),
        Throttled("slow down", status=429),
        ServerFault("bad gateway", status=502),
        Conflict("modified", status=409),
        Unauthorized("Unauthorized", status=401),
    ],
)
def test_c25_a_passing_fault_is_no_refusal(error: ClusterError) -> None:
    """It is tried again at the common pace, and nobody is told."""
    assert update_refusal_of(error, target_name="berlin", what="images") is None


def test_c25_what_federate_refuses_is_named() -> None:
    """Which debug container, and what it needs."""
    refusal = debugger_refusal({"d": ('Secret "s"', 'ConfigMap "c"')})
    assert 'd needs Secret "s", ConfigMap "c"' in refusal.message
    assert "resources" in undone_refusal("berlin", "resources", "x").message

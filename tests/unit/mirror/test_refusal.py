"""Why a hub pod gets no mirror, and what a failed create means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federate.claims.rules import ClaimMode, ClaimRules
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
    needs_of,
    refusal_of,
    undone_refusal,
    update_refusal_of,
)
from federate.mirror.render import RenderRules
from federate.model.objects import JsonDict, ObjectKey
from tests.support.builders import PodBuilder, pod
from tests.support.companions import PlayedIdentity as Played
from tests.support.views import SCOPE, hub_pod, mirror

KEY = ObjectKey("hub-0a-default", "web")
RULES = RenderRules(scope=SCOPE)
WITHOUT = RenderRules()
"""Nothing comes along."""


def reason_of(builder: PodBuilder, key: ObjectKey = KEY) -> str:
    refusal = refusal_of(builder.build(), mirror_key=key, target_name="berlin", rules=RULES)
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
    refusal = refusal_of(
        hub_pod().owned_by("DaemonSet", "cni").build(),
        mirror_key=KEY,
        target_name="berlin",
        rules=RULES,
    )
    assert refusal is not None
    assert refusal.reason == "DaemonSetNotMirrored"
    assert "type NotIn virtual-kubelet" in refusal.message


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease"])
def test_c22_system_namespaces_are_refused_unless_asked_for(namespace: str) -> None:
    """Namespace `same` does not let a hub user into the target's system."""
    key = ObjectKey(namespace, "web")
    assert reason_of(hub_pod(), key) == "SystemNamespaceRefused"
    allowed = refusal_of(
        hub_pod().build(),
        mirror_key=key,
        target_name="berlin",
        rules=RULES,
        allow_system_namespaces=True,
    )
    assert allowed is None


# -- what a pod leans on (C30) ---------------------------------------------------------------------


def test_c30_what_comes_along_is_not_refused() -> None:
    """ConfigMaps and Secrets, wherever they are named, optional or not."""
    hub = hub_pod().with_spec(
        volumes=[{"name": "v", "secret": {"secretName": "tls"}}],
        imagePullSecrets=[{"name": "pull"}],
    )
    assert reason_of(hub) == ""


@pytest.mark.parametrize("rules", [RULES, WITHOUT])
def test_c33_what_does_not_travel_is_named(rules: RenderRules) -> None:
    """A pod that leans on a claim waits, and says where, unless the target makes storage."""
    hub = hub_pod().with_spec(
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]
    )
    refusal = refusal_of(hub.build(), mirror_key=KEY, target_name="berlin", rules=rules)
    assert refusal is not None
    assert refusal.reason == "ClaimRefused"
    assert refusal.message.startswith("spec.volumes[0].persistentVolumeClaim: ")
    served = replace(rules, claims=ClaimRules(mode=ClaimMode.TARGET))
    assert refusal_of(hub.build(), mirror_key=KEY, target_name="berlin", rules=served) is None


def test_c30_without_companions_all_that_is_named_is_missing() -> None:
    """A pod that leans on a Secret waits, and says on which."""
    hub = hub_pod().with_spec(
        volumes=[{"name": "v", "secret": {"secretName": "tls"}}],
        imagePullSecrets=[{"name": "pull"}],
    )
    refusal = refusal_of(hub.build(), mirror_key=KEY, target_name="berlin", rules=WITHOUT)
    assert refusal is not None
    assert refusal.reason == "CompanionMissing"
    assert refusal.message.endswith('(companions are off): Secret "pull", Secret "tls"')


def leaning(*sources: JsonDict) -> JsonDict:
    return {"volumes": [{"name": "v", "projected": {"sources": list(sources)}}]}


TOKEN_SOURCE: JsonDict = {"serviceAccountToken": {"path": "token"}}


def test_c31_a_token_is_refused_unless_there_is_an_identity() -> None:
    """Of the hub, or of the target: whose it is, is no matter here."""
    spec = leaning(TOKEN_SOURCE)
    assert needs_of(spec, RULES) == ("a service account token",)
    refusal = refusal_of(
        hub_pod().with_spec(**spec).build(), mirror_key=KEY, target_name="berlin", rules=RULES
    )
    assert refusal is not None
    assert refusal.message.endswith("(identity is none): a service account token")
    for brings_tokens in (False, True):
        identity = Played(brings_tokens=brings_tokens, travelling_tokens=True)
        assert needs_of(spec, replace(RULES, identity=identity)) == ()


def test_c31_the_admission_made_volume_counts_where_it_stays() -> None:
    """With an identity of the hub it refers to the hub's CA like any other volume."""
    spec = hub_pod().build()["spec"]
    identity = Played(brings_tokens=True, travelling_tokens=True)
    assert needs_of(spec, WITHOUT) == ()
    assert needs_of(spec, replace(WITHOUT, identity=identity)) == ('ConfigMap "kube-root-ca.crt"',)


def test_c30_an_ordinary_pod_needs_nothing() -> None:
    """The admission-made token does not count."""
    assert needs_of(pod("x").build()["spec"], WITHOUT) == ()
    assert needs_of({}, WITHOUT) == ()


@pytest.mark.parametrize(
    ("volume", "need"),
    [
        ({"configMap": {"name": "c"}}, 'ConfigMap "c"'),
        ({"configMap": {"name": "c", "optional": True}}, 'ConfigMap "c"'),
        ({"secret": {"secretName": "s"}}, 'Secret "s"'),
        ({"persistentVolumeClaim": {"claimName": "p"}}, 'PersistentVolumeClaim "p"'),
        ({"projected": {"sources": [{"configMap": {"name": "c"}}]}}, 'ConfigMap "c"'),
        ({"projected": {"sources": [{"secret": {"name": "s"}}]}}, 'Secret "s"'),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, "a service account token"),
        ({"projected": {"sources": [{"clusterTrustBundle": {}}]}}, "a ClusterTrustBundle"),
        ({"projected": {"sources": [{"podCertificate": {}}]}}, "a pod certificate"),
        ({"csi": {"nodePublishSecretRef": {"name": "n"}}}, 'Secret "n"'),
        ({"cephfs": {"secretRef": {"name": "k"}}}, 'Secret "k"'),
        ({"azureFile": {"secretName": "a"}}, 'Secret "a"'),
        ({"ephemeral": {}}, "a PersistentVolumeClaim of an ephemeral volume"),
    ],
)
def test_c30_volumes_lean_on_objects(volume: JsonDict, need: str) -> None:
    """Every way a volume points at an object of its namespace, optional or not."""
    assert needs_of({"volumes": [{"name": "v", **volume}]}, WITHOUT) == (need,)


@pytest.mark.parametrize(
    "volume",
    [
        {"emptyDir": {}},
        {"downwardAPI": {"items": []}},
        {"projected": {"sources": [{"downwardAPI": {}}]}},
        {"csi": {"driver": "d"}},
        {"cephfs": {"secretRef": {}}},
        {"projected": {}},
    ],
)
def test_volumes_that_stand_alone(volume: JsonDict) -> None:
    """What brings everything along needs nothing."""
    assert needs_of({"volumes": [{"name": "v", **volume}]}, WITHOUT) == ()


@pytest.mark.parametrize("field", ["initContainers", "containers", "ephemeralContainers"])
def test_c30_environments_lean_on_objects(field: str) -> None:
    """`env` and `envFrom` of every kind of container."""
    env: list[Any] = [
        {"name": "A", "value": "plain"},
        {"name": "B", "valueFrom": {"fieldRef": {}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c1"}}},
        {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s1"}}},
    ]
    env_from = [{"configMapRef": {"name": "c2"}}, {"secretRef": {"name": "s2"}}]
    container = {"name": "x", "env": env, "envFrom": env_from}
    assert needs_of({field: [container]}, WITHOUT) == (
        'ConfigMap "c1"',
        'ConfigMap "c2"',
        'Secret "s1"',
        'Secret "s2"',
    )


def test_c30_needs_are_told_once_in_order() -> None:
    """Pull secrets and claims count, repeats do not."""
    spec = {
        "imagePullSecrets": [{"name": "s"}],
        "resourceClaims": [{"name": "gpu"}],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
    }
    assert needs_of(spec, WITHOUT) == ('ResourceClaim "gpu"', 'Secret "s"')


# -- failed creates (C27) --------------------------------------------------------------------------


SAID = 'pods "web" is forbidden: '
"""How an API server begins when an admission plugin says no."""
OUR_USER = "system:serviceaccount:federate:federate"


@pytest.mark.parametrize(
    ("text", "reason", "slow"),
    [
        (SAID + "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
         "QuotaExceeded", True),
        (SAID + "failed quota: q: must specify limits.cpu for: main; requests.cpu for: main",
         "QuotaExceeded", True),
        (SAID + "insufficient quota to match these scopes: [{PriorityClass In [high]}]",
         "QuotaExceeded", True),
        (SAID + "status unknown for quota: q, resources: pods", "QuotaExceeded", False),
        (SAID + 'violates PodSecurity "baseline:latest": privileged', "PodSecurityRefused", True),
        (SAID + "unable to create new content in namespace x because it is being terminated",
         "NamespaceTerminating", False),
        (SAID + 'error looking up service account x/default: serviceaccount "default" not found',
         "ServiceAccountMissing", False),
        ('serviceaccount "default" not found', "ServiceAccountMissing", False),
        ("the namespace's anchor is still being removed", "NamespaceTerminating", False),
        ("the namespace's default service account is not there yet", "ServiceAccountMissing",
         False),
        (SAID + 'volume with secret.secretName="s" is not allowed because service account default '
         "does not reference that secret", "AdmissionDenied", True),
        (SAID + "maximum cpu usage per Container is 1, but limit is 2", "LimitRangeRefused", True),
        (SAID + "[minimum memory usage per Pod is 1Mi.  No request is specified, cpu max limit to "
         "request ratio per Container is 1, but provided ratio is 2.000000]",
         "LimitRangeRefused", True),
        (SAID + "cpu max limit to request ratio per Container is 1, but provided ratio is 2.000000",
         "LimitRangeRefused", True),
        (SAID + "no PriorityClass with name high was found", "ClassMissing", True),
        (SAID + 'pod rejected: RuntimeClass "sandbox" not found', "ClassMissing", True),
        (SAID + "image policy webhook backend denied one or more images: no", "AdmissionDenied",
         True),
        (SAID + "unable to validate against any security context constraint: []",
         "AdmissionDenied", True),
        ('pods "serviceaccount-web" is forbidden: maximum cpu usage per Pod is 1, but limit is 2',
         "LimitRangeRefused", True),
        ('admission webhook "x.y" denied the request: no', "AdmissionDenied", True),
        (f'pods is forbidden: User "{OUR_USER}" cannot create resource "pods" in API group "" in '
         'the namespace "x"', "Forbidden", False),
        ("a proxy on the way says no", "Forbidden", False),
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
        (Unauthorized("Unauthorized", status=401), "Forbidden", False),
        (Unreachable("refused"), "TargetUnreachable", False),
        (Conflict("resourcequotas: modified", status=409), "TargetBusy", False),
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


def test_c27_a_refusal_is_told_in_the_hubs_words() -> None:
    """What a companion is called in the target is no name that a user knows."""
    failure = create_failure_of(Forbidden("Secret fed-s is not allowed"), target_name="berlin")
    told = failure.in_words(lambda text: text.replace("fed-s", "s"))
    assert told.refusal.message == "berlin answered: Secret s is not allowed"
    assert (told.refusal.reason, told.slow) == (failure.refusal.reason, failure.slow)


WEBHOOK = 'admission webhook "x.y" denied the request: '
POLICY = SAID + "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no such images"
FAILING = 'Internal error occurred: failed calling webhook "x.y": failed to call webhook: refused'


@pytest.mark.parametrize(
    ("error", "reason", "slow"),
    [
        (Rejected(WEBHOOK + "spec.x: Invalid value", status=422), "AdmissionDenied", True),
        (Rejected(WEBHOOK + "no", status=400), "AdmissionDenied", True),
        (Forbidden(WEBHOOK + "exceeded quota of images", status=403), "AdmissionDenied", True),
        (NotFound(WEBHOOK + "no such team", status=404), "AdmissionDenied", True),
        (Throttled(WEBHOOK + "too many", status=429), "AdmissionDenied", True),
        (ServerFault(WEBHOOK + "cannot tell", status=500), "AdmissionDenied", True),
        (Rejected(POLICY, status=422), "AdmissionDenied", True),
        (Forbidden(POLICY, status=403), "AdmissionDenied", True),
        (ServerFault(FAILING, status=500), "AdmissionFailed", False),
    ],
)
def test_c27_a_webhook_or_policy_is_known_whatever_status_it_chose(
    error: ClusterError, reason: str, slow: bool
) -> None:
    """Its words come first, and may hold those of others."""
    failure = create_failure_of(error, target_name="berlin")
    assert (failure.refusal.reason, failure.slow) == (reason, slow)
    assert failure.refusal.message == f"berlin answered: {error.detail}"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ServerFault(FAILING, status=500), "AdmissionFailed"),
        (Rejected("spec.x: Invalid value", status=422), "UpdateRejected"),
        (Forbidden("exceeded quota: q", status=403), "UpdateRejected"),
        (NotFound("could not find the requested resource", status=404), "UpdateNotSupported"),
        (ServerFault("etcdserver: timeout", status=500), "TargetError"),
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

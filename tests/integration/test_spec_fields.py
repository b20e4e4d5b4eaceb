"""Each field of a pod's spec travels to the mirror, or is on the list of those that do not.

The fields come from the schema that real API servers publish, of two minors: whoever adds a field
to Kubernetes adds it to these tests.
"""

from __future__ import annotations

import copy

import pytest

from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.claims.places import claims_used, with_claims
from federate.mirror.refusal import refusal_of
from federate.mirror.render import (
    NEVER_TRAVELS,
    NOT_VIRTUAL,
    RenderRules,
    render_spec,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY
from federate.policy.rules import COMMON_NODE_KEYS, Outcome, PolicyRules
from federate.policy.topics import TOPICS
from tests.support.builders import pod
from tests.support.podschema import POD_SPEC, fields_of

pytestmark = pytest.mark.integration

KEPT_KEY = min(COMMON_NODE_KEYS)
NEXT = ClusterSpec(
    name="spec-fields-next", minor="1.36", with_controller_manager=False, with_scheduler=False
)
RULES = RenderRules(policy=PolicyRules(outcomes={topic.key: Outcome.ALLOW for topic in TOPICS}))
"""All that a target can allow."""

ALWAYS: JsonObject = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "hostname": "web",
}
"""What a mirror always says, and a hub pod may say otherwise only of the hostname."""

REWRITTEN = ("tolerations", "nodeSelector", "affinity.nodeAffinity")
"""Parts with rules of their own, each with a test below."""

ONLY_IN_1_35 = {"workloadRef"}
"""It came with alpha in 1.35, and 1.36 replaced it by schedulingGroup."""

REFERENCES = frozenset(
    {
        "ClusterTrustBundleProjection",
        "ConfigMapEnvSource",
        "ConfigMapKeySelector",
        "ConfigMapProjection",
        "ConfigMapVolumeSource",
        "EphemeralVolumeSource",
        "LocalObjectReference",
        "PersistentVolumeClaimVolumeSource",
        "PodCertificateProjection",
        "PodResourceClaim",
        "SecretEnvSource",
        "SecretKeySelector",
        "SecretProjection",
        "SecretReference",
        "SecretVolumeSource",
        "ServiceAccountTokenProjection",
    }
)
"""Types that point at another object of the cluster, or at what only the hub can give."""


@pytest.fixture(scope="session", params=["1.34", "1.36"])
def schemas(request: pytest.FixtureRequest, testbed_factory: TestbedFactory) -> JsonDict:
    cluster: LocalCluster = (
        request.getfixturevalue("light_hub")
        if request.param == "1.34"
        else testbed_factory.cluster(NEXT)
    )
    found: JsonDict = cluster.api.get("/openapi/v3/api/v1")["components"]["schemas"]
    return found


def hub_pod(fragment: JsonObject) -> JsonDict:
    """A hub pod whose spec is the fragment and, where it has none, a container."""
    spec = copy.deepcopy(dict(fragment))
    spec.setdefault("containers", [{"name": "main", "image": "busybox"}])
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def expected_spec(fragment: JsonObject) -> JsonDict:
    """The whole hub spec less the deny list, with what every mirror says."""
    spec = hub_pod(fragment)["spec"]
    hostname = {k: spec[k] for k in ("hostname",) if k in spec}
    if spec.get("hostNetwork") or spec.get("hostnameOverride"):
        always = {k: v for k, v in ALWAYS.items() if k != "hostname"}
    else:
        always = {**ALWAYS}
    spec = {k: v for k, v in spec.items() if k not in NEVER_TRAVELS}
    spec |= {**always, **hostname}
    affinity = spec.setdefault("affinity", {})
    affinity["nodeAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [NOT_VIRTUAL]}]
        }
    }
    return spec


# --- the tests ------------------------------------------------------------------------------------


def test_every_field_travels_or_is_on_the_list(schemas: JsonDict) -> None:
    """A field outside the deny list reaches the mirror unchanged, and takes nothing with it."""
    fields = list(fields_of(schemas, POD_SPEC))
    assert len(fields) > 500
    for field in fields:
        if field.path.startswith(REWRITTEN):
            continue
        before = hub_pod(field.fragment)
        given = copy.deepcopy(before)
        # A claim is another in the target, of the pod's own too.
        names = {use.volume: "there" for use in claims_used(before)}
        wanted = expected_spec(with_claims(field.fragment, names))
        assert render_spec(before, RULES, names) == wanted, field.path
        assert before == given, f"{field.path}: the hub pod was changed"


def test_every_entry_of_the_deny_list_is_a_field(
    light_hub: LocalCluster, testbed_factory: TestbedFactory
) -> None:
    """No entry is a misspelling: each is a field of one of both minors, or of the one between."""
    known: set[str] = set()
    for cluster in (light_hub, testbed_factory.cluster(NEXT)):
        document = cluster.api.get("/openapi/v3/api/v1")
        known |= set(document["components"]["schemas"][POD_SPEC]["properties"])
    assert set(NEVER_TRAVELS) - known == ONLY_IN_1_35


def test_every_field_of_a_toleration_travels(schemas: JsonDict) -> None:
    """A toleration of a key that is not the virtual node's stays whole; blanket ones go."""
    for field in fields_of(schemas, POD_SPEC):
        if not field.path.startswith("tolerations."):
            continue
        toleration = {"key": "example.com/x", **field.fragment["tolerations"][0]}
        theirs = [toleration, {"operator": "Exists"}, {"key": VIRTUAL_NODE_TAINT_KEY}]
        rendered = render_spec(hub_pod({"tolerations": theirs}), RULES)
        assert rendered["tolerations"] == [toleration], field.path


def test_every_field_of_node_affinity_on_a_common_key_travels(schemas: JsonDict) -> None:
    """Expressions on keys that mean the same everywhere stay, with all they have."""
    seen = 0
    kinds = {"required": "nodeSelectorTerms", "preferred": "preference"}
    for field in fields_of(schemas, POD_SPEC):
        if ".matchExpressions." not in field.path or not field.path.startswith(REWRITTEN[2]):
            continue
        kind = next(k for k in kinds if f".{k}During" in field.path)
        fragment = copy.deepcopy(field.fragment)
        rule = fragment["affinity"]["nodeAffinity"][f"{kind}DuringSchedulingIgnoredDuringExecution"]
        term = rule["nodeSelectorTerms"][0] if kind == "required" else rule[0]["preference"]
        expression = term["matchExpressions"][0] = {
            **term["matchExpressions"][0],
            "key": KEPT_KEY,
        }
        rendered = render_spec(hub_pod(fragment), RULES)["affinity"]["nodeAffinity"]
        told = rendered[f"{kind}DuringSchedulingIgnoredDuringExecution"]
        term = told["nodeSelectorTerms"][0] if kind == "required" else told[0]["preference"]
        assert expression in term["matchExpressions"], field.path
        seen += 1
    assert seen >= 6


def test_node_selectors_on_common_keys_travel() -> None:
    """A selector on an architecture means the same in the target; one on a zone does not."""
    fragment = {"nodeSelector": {KEPT_KEY: "x", "example.com/zone": "y"}}
    assert render_spec(hub_pod(fragment), RULES)["nodeSelector"] == {KEPT_KEY: "x"}


def test_the_admission_made_token_volume_stays_behind() -> None:
    """The hub's service account token and its mounts do not travel; the pod's own volumes do."""
    mine = {"name": "mine", "emptyDir": {}}
    found = pod("web").with_spec(volumes=[mine]).build()
    assert len(found["spec"]["volumes"]) == 2
    rendered = render_spec(found, RULES)
    assert rendered["volumes"] == [mine]
    assert "volumeMounts" not in rendered["containers"][0]


def test_every_name_of_another_object_is_a_known_type(schemas: JsonDict) -> None:
    """No type of the schema points elsewhere without this test knowing it."""
    known = REFERENCES | HARMLESS
    for field in fields_of(schemas, POD_SPEC):
        kind = field.types[-1]
        if not set(field.types) & known and field.path.partition(".")[0] not in NEVER_TRAVELS:
            assert not kind.endswith(("Reference", "Selector", "Projection", "EnvSource")), field
            assert not field.path.endswith((".secretName", ".claimName")), field.path


HARMLESS = frozenset(
    {
        "AzureFileVolumeSource",  # refused by its secretName; see the test below
        "DownwardAPIProjection",
        "FileKeySelector",  # a file of the pod's own volume
        "LabelSelector",
        "NodeSelector",
        "ObjectFieldSelector",
        "ResourceFieldSelector",
    }
)


def test_without_companions_a_secret_named_by_a_string_is_refused() -> None:
    """azureFile names its Secret without a reference type. (With companions each name is another:
    see test_companion_fields.)"""
    volume = {"name": "v", "azureFile": {"secretName": "s", "shareName": "x"}}
    refusal = refusal_of(
        hub_pod({"volumes": [volume]}),
        mirror_key=ObjectKey("ns", "web"),
        target_name="t",
        rules=RULES,
    )
    assert refusal is not None
    assert refusal.reason == "CompanionMissing"

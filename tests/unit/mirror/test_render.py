"""The mirror that ought to exist: what travels, what stays behind, what is never tolerated."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from federate.companions.downward import split_subscript
from federate.companions.keys import Kind
from federate.companions.references import references_of
from federate.mirror.render import (
    NEVER_TRAVELS,
    NOT_VIRTUAL,
    RenderRules,
    flowing_metadata,
    metadata_changes,
    parse_managed_keys,
    render_mirror,
    render_spec,
    rendered_debugger,
)
from federate.model.marks import (
    HUB_LABELS_ANNOTATION,
    HUB_POD_NAMESPACE_LABEL,
    MANAGED_KEYS_ANNOTATION,
    Origin,
    origin_of,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey, annotations_of, labels_of
from federate.policy.rules import PolicyRules
from federate.services.dns import DnsRules
from federate.services.hubnames import HubApi
from tests.support.builders import PodBuilder, pod
from tests.support.companions import TARGET_NAMESPACE, PlayedIdentity, target_name
from tests.support.fakepods import TOKEN_PATH, TOKEN_VOLUME
from tests.support.strategic import apply_merge_patch
from tests.support.views import SCOPE, hub_pod, mirror

RULES = RenderRules()
ANCHOR = {"metadata": {"name": "federate-anchor-x", "uid": "anchor-1"}}
KEY = ObjectKey("hub-0a-default", "web")


def rendered(builder: PodBuilder, rules: RenderRules = RULES) -> JsonDict:
    """Render twice: the same pod gives the same mirror, and stays as it was."""
    hub = builder.build()
    before = copy.deepcopy(hub)
    origin = Origin(scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web")

    def render() -> JsonDict:
        return render_mirror(hub, origin=origin, mirror=KEY, anchor=ANCHOR, rules=rules)

    assert render() == render()
    assert hub == before
    return render()


def spec(builder: PodBuilder, rules: RenderRules = RULES) -> JsonDict:
    return render_spec(builder.build(), rules)


# -- the whole -------------------------------------------------------------------------------------


def test_a_mirror_carries_its_origin_and_its_anchor() -> None:
    """Marks, name and one controller, so that nothing else can adopt it (C23)."""
    made = rendered(hub_pod())
    assert origin_of(made) == Origin(
        scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web"
    )
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("hub-0a-default", "web")
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "federate-anchor-x",
            "uid": "anchor-1",
            "controller": True,
        }
    ]


def test_c21_no_metadata_but_labels_and_annotations_travels() -> None:
    """Job-tracking finalizers and owners stay on the hub."""
    hub = hub_pod().with_finalizers("batch.kubernetes.io/job-tracking").owned_by("Job", "j")
    made = rendered(hub)
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(made["metadata"]) == {
        "namespace",
        "name",
        "labels",
        "annotations",
        "ownerReferences",
    }
    assert [r["kind"] for r in made["metadata"]["ownerReferences"]] == ["ConfigMap"]


def test_the_hubs_generation_is_kept_for_the_way_back() -> None:
    """Which spec the mirror was made from can be told later."""
    assert annotations_of(rendered(hub_pod()))["federate.dev/hub-generation"] == "1"
    bare = hub_pod().build()
    del bare["metadata"]["generation"]
    origin = Origin(scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web")
    made = render_mirror(bare, origin=origin, mirror=KEY, anchor=ANCHOR, rules=RULES)
    assert "federate.dev/hub-generation" not in annotations_of(made)


def test_a_user_cannot_forge_marks_or_records() -> None:
    """Our prefix never flows from hub metadata (C24)."""
    hub = hub_pod().with_labels({"federate.dev/hub": "forged", "federate.dev/x": "y", "app": "a"})
    hub = hub.with_annotations({"federate.dev/managed-keys": "{}", "federate.dev/mirror": "{}"})
    made = rendered(hub)
    ours = {**origin_of(made).labels(), HUB_POD_NAMESPACE_LABEL: "default"}  # type: ignore[union-attr]
    assert labels_of(made) == {"app": "a", **ours}
    assert "federate.dev/mirror" not in annotations_of(made)
    assert parse_managed_keys(made) == (frozenset({"app"}), frozenset())


# -- the spec --------------------------------------------------------------------------------------


def test_c21_unknown_fields_travel() -> None:
    """A field of a newer Kubernetes comes along without anybody adding it."""
    made = spec(hub_pod().with_spec(sparkle={"a": 1}).with_container("b", glow=True))
    assert made["sparkle"] == {"a": 1}
    assert made["containers"][1]["glow"] is True


@pytest.mark.parametrize("field", sorted(NEVER_TRAVELS))
def test_c21_the_deny_list_stays_behind(field: str) -> None:
    """Every field that names or computes something of the hub stays there, with a reason."""
    hub = hub_pod().build()
    hub["spec"][field] = "x"
    assert field not in render_spec(hub, RULES)
    assert NEVER_TRAVELS[field]


def test_c21_what_is_forced_is_forced() -> None:
    """No service links, no token of the target."""
    made = spec(hub_pod().with_spec(enableServiceLinks=True, automountServiceAccountToken=True))
    assert made["enableServiceLinks"] is False
    assert made["automountServiceAccountToken"] is False


def test_c21_the_admission_made_token_stays_behind() -> None:
    """Volume and mounts of the hub's token are dropped in every container; others stay."""
    mine = {"name": "data", "mountPath": "/data"}
    hub = (
        hub_pod()
        .with_container("second", volumeMounts=[mine])
        .with_spec(
            volumes=[{"name": "data", "emptyDir": {}}],
            initContainers=[{"name": "prepare", "image": "busybox"}],
        )
    )
    assert any("kube-api-access" in v["name"] for v in hub.build()["spec"]["volumes"])
    made = spec(hub)
    assert made["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert "volumeMounts" not in made["containers"][0]
    assert "volumeMounts" not in made["initContainers"][0]
    assert made["containers"][1]["volumeMounts"] == [mine]
    assert "volumes" not in spec(hub_pod())


def test_c21_a_pod_without_a_token_keeps_its_volumes() -> None:
    """Where admission added nothing, nothing is dropped."""
    hub = hub_pod().with_spec(
        automountServiceAccountToken=False, volumes=[{"name": "data", "emptyDir": {}}]
    )
    assert spec(hub)["volumes"] == [{"name": "data", "emptyDir": {}}]


def test_c3_no_mirror_tolerates_a_virtual_node() -> None:
    """Tolerations of our taint, and of everything, are dropped; others stay."""
    gpu = {"key": "gpu", "operator": "Exists"}
    hub = hub_pod().with_spec(
        tolerations=[
            {"key": "virtual-kubelet.io/provider", "operator": "Exists"},
            {"operator": "Exists"},
            {"key": "", "operator": "Exists", "effect": "NoExecute"},
            {"key": "example.com/virtual", "operator": "Exists"},
            gpu,
        ]
    )
    keys = frozenset({"virtual-kubelet.io/provider", "example.com/virtual"})
    assert spec(hub, RenderRules(policy=PolicyRules(own_taint_keys=keys)))["tolerations"] == [gpu]
    blanket = hub_pod().with_spec(tolerations=[{"operator": "Exists"}])
    assert "tolerations" not in spec(blanket)


@pytest.mark.parametrize("affinity", [None, {}, {"podAffinity": {"x": 1}}])
def test_c3_every_mirror_keeps_off_virtual_nodes(affinity: Any) -> None:
    """The required node affinity is added to whatever there is."""
    hub = hub_pod() if affinity is None else hub_pod().with_spec(affinity=affinity)
    made = spec(hub)["affinity"]
    assert made["nodeAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [NOT_VIRTUAL]}]
        }
    }
    assert {k: v for k, v in made.items() if k != "nodeAffinity"} == (affinity or {})


def expression(key: str) -> JsonDict:
    return {"key": key, "operator": "In", "values": ["x"]}


def test_c21_node_affinity_keeps_what_means_the_same_everywhere() -> None:
    """Every required term keeps its common keys and excludes virtual nodes; equal ones merge."""
    terms = [
        {"matchExpressions": [expression("kubernetes.io/os"), expression("hub-rack")]},
        {"matchExpressions": [expression("hub-rack")]},
        {"matchFields": [expression("metadata.name")]},
        {},
    ]
    required = {"nodeSelectorTerms": terms}
    hub = hub_pod().with_spec(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    )
    made = spec(hub)["affinity"]["nodeAffinity"]
    assert made["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [expression("kubernetes.io/os"), NOT_VIRTUAL]},
        {"matchExpressions": [NOT_VIRTUAL]},
    ]


def test_c21_preferences_keep_their_weight() -> None:
    """A preference on hub labels alone is dropped, a common one stays."""
    preferred = [
        {"weight": 7, "preference": {"matchExpressions": [expression("kubernetes.io/arch")]}},
        {"weight": 9, "preference": {"matchExpressions": [expression("hub-rack")]}},
        {"weight": 1},
    ]
    hub = hub_pod().with_spec(
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    )
    made = spec(hub)["affinity"]["nodeAffinity"]
    assert made["preferredDuringSchedulingIgnoredDuringExecution"] == preferred[:1]


def test_c21_node_selectors_keep_common_keys() -> None:
    """A selector on labels that only hub nodes carry would find no node of the target."""
    both = {"kubernetes.io/os": "linux", "type": "virtual-kubelet"}
    assert spec(hub_pod().with_spec(nodeSelector=both))["nodeSelector"] == {
        "kubernetes.io/os": "linux"
    }
    assert "nodeSelector" not in spec(hub_pod().with_spec(nodeSelector={"type": "virtual-kubelet"}))
    rules = RenderRules(policy=PolicyRules(node_keys={"gpu": "accelerator"}))
    assert spec(hub_pod().with_spec(nodeSelector={"gpu": "a"}), rules)["nodeSelector"] == {
        "accelerator": "a"
    }


@pytest.mark.parametrize(
    ("name", "hostname"),
    [
        ("web-0", "web-0"),
        ("a" * 70, "a" * 63),
        ("a" * 62 + "-" + "b" * 7, "a" * 62),
        ("a.b", None),
    ],
)
def test_c21_an_unset_hostname_is_the_hub_pods_name(name: str, hostname: str | None) -> None:
    """Cut as a kubelet cuts it; a name with dots is left to the kubelet."""
    assert spec(hub_pod(name)).get("hostname") == hostname


@pytest.mark.parametrize(
    ("name", "hostname"), [("web-0", "web-0"), ("a.b", "a-b"), ("a" * 62 + "." + "b", "a" * 62)]
)
def test_c21_a_mirror_of_another_name_has_the_hub_pods_hostname(name: str, hostname: str) -> None:
    """The kubelet would make one of the mangled name; dots cannot stay in a hostname."""
    rules = RenderRules(keeps_names=False)
    assert spec(hub_pod(name), rules)["hostname"] == hostname
    kept = spec(hub_pod(name).with_spec(hostname="own", subdomain="db"), rules)
    assert (kept["hostname"], kept["subdomain"]) == ("own", "db")


@pytest.mark.parametrize(
    "fields", [{"hostname": "own"}, {"hostNetwork": True}, {"hostnameOverride": "own"}]
)
def test_c21_a_hostname_that_is_settled_stays(fields: JsonDict) -> None:
    """A hostname of its own, the host's, or an override is not touched."""
    assert spec(hub_pod().with_spec(**fields)).get("hostname") == fields.get("hostname")


# -- labels and annotations (C24) ------------------------------------------------------------------


def test_c24_the_deny_list_stays_behind() -> None:
    """The manifest that kubectl keeps in an annotation does not travel."""
    hub = hub_pod().with_annotations(
        {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "blue"}
    )
    assert flowing_metadata(hub.build(), RULES) == ({}, {"team": "blue"})


def changed(hub: PodBuilder, its_mirror: JsonDict) -> JsonDict:
    """Return the mirror after the change; a second look finds nothing to do."""
    changes = metadata_changes(hub.build(), its_mirror, RULES)
    assert changes is not None
    after = apply_merge_patch(its_mirror, {"metadata": changes})
    assert metadata_changes(hub.build(), after, RULES) is None
    return after


def test_c24_a_fresh_mirror_needs_no_change() -> None:
    """What was created says what the hub pod says."""
    hub = hub_pod().with_labels({"app": "web"}).with_annotations({"team": "blue"})
    assert metadata_changes(hub.build(), rendered(hub), RULES) is None


def test_a_mirror_that_was_made_without_its_hub_namespace_is_given_it() -> None:
    """Services select by it (C33); no label of the hub pod's can say another one."""
    hub = hub_pod().with_labels({HUB_POD_NAMESPACE_LABEL: "forged"})
    made = rendered(hub)
    assert made["metadata"]["labels"].pop(HUB_POD_NAMESPACE_LABEL) == "default"
    assert changed(hub, made)["metadata"]["labels"][HUB_POD_NAMESPACE_LABEL] == "default"
    made["metadata"]["labels"][HUB_POD_NAMESPACE_LABEL] = "forged"
    assert changed(hub, made)["metadata"]["labels"][HUB_POD_NAMESPACE_LABEL] == "default"


def test_c24_labels_and_annotations_follow_the_hub_pod() -> None:
    """New, changed and removed keys reach the mirror; what the target added stays."""
    hub = hub_pod().with_labels({"app": "web", "old": "1"}).with_annotations({"team": "blue"})
    made = rendered(hub)
    made["metadata"]["labels"]["target.example/added"] = "x"
    made["metadata"]["annotations"]["target.example/added"] = "y"
    later = hub_pod().with_labels({"app": "api", "new": "1"})
    after = changed(later, made)
    assert {k: v for k, v in labels_of(after).items() if not k.startswith("federate.dev/")} == {
        "app": "api",
        "new": "1",
        "target.example/added": "x",
    }
    assert "team" not in annotations_of(after)
    assert annotations_of(after)["target.example/added"] == "y"
    assert origin_of(after) == origin_of(made)


def test_c24_a_key_the_target_removed_is_not_removed_again() -> None:
    """A managed key that is gone on both sides leaves only the record to be put right."""
    made = rendered(hub_pod().with_labels({"app": "web"}))
    del made["metadata"]["labels"]["app"]
    changes = metadata_changes(hub_pod().build(), made, RULES)
    assert changes == {
        "annotations": {MANAGED_KEYS_ANNOTATION: json.dumps(
            {"labels": [], "annotations": []}, separators=(",", ":")
        )}
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "3", '{"labels": 3}', '{"labels": [[]]}', {}]
)
def test_c24_an_unreadable_record_manages_nothing(text: Any) -> None:
    """Where the record is spoilt nothing is removed, and it is written anew."""
    spoilt = mirror().with_annotations({MANAGED_KEYS_ANNOTATION: text, "team": "blue"}).build()
    assert parse_managed_keys(spoilt) == (frozenset(), frozenset())
    after = changed(hub_pod().with_labels({"app": "web"}), spoilt)
    assert annotations_of(after)["team"] == "blue"
    assert parse_managed_keys(after) == (frozenset({"app"}), frozenset())


# -- what comes along (C30) and what is told of the hub pod (C32) ----------------------------------

WITH = RenderRules(scope=SCOPE)


def named(rendered_spec: JsonObject) -> set[str]:
    return {found.name for found in references_of(rendered_spec, brings_tokens=True)}


def leaning() -> PodBuilder:
    """A pod that names objects in each kind of container, in volumes and for its images."""
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "k"}}}]
    return (
        hub_pod()
        .with_container("side", envFrom=[{"configMapRef": {"name": "conf", "optional": True}}])
        .with_spec(
            initContainers=[{"name": "init", "image": "busybox", "env": env}],
            imagePullSecrets=[{"name": "pull"}],
            volumes=[{"name": "v", "secret": {"secretName": "tls"}}],
        )
    )


def test_c30_a_mirror_names_nothing_but_companions() -> None:
    """Whatever the target has under the hub's names is not the pod's."""
    assert named(spec(leaning(), WITH)) == {
        target_name(Kind.SECRET, "db"),
        target_name(Kind.CONFIGMAP, "conf"),
        target_name(Kind.SECRET, "pull"),
        target_name(Kind.SECRET, "tls"),
    }


def test_c30_what_is_shared_keeps_its_name() -> None:
    """Those objects only that the target's operator named."""
    rules = replace(WITH, shared=frozenset({(Kind.SECRET, "pull"), (Kind.CONFIGMAP, "tls")}))
    found = named(spec(leaning(), rules))
    assert "pull" in found
    assert target_name(Kind.SECRET, "tls") in found
    assert not found & {"db", "conf", "tls"}


def fact(path: str) -> JsonDict:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def telling() -> PodBuilder:
    """A pod that is told of itself, in its environment and in files."""
    items = [{"path": name, **fact(f"metadata.{name}")} for name in ("labels", "uid")]
    env = [{"name": "UID", "valueFrom": fact("metadata.uid")}]
    return (
        hub_pod()
        .with_labels({"app": "web"})
        .with_container("side", env=env)
        .with_spec(volumes=[{"name": "v", "downwardAPI": {"items": items}}])
    )


@pytest.mark.parametrize("rules", [RULES, WITH])
def test_c32_a_pod_is_told_of_itself_and_not_of_its_mirror(rules: RenderRules) -> None:
    """With or without companions: literals in the environment, annotations behind the files."""
    made = rendered(telling(), rules)
    [side] = [c for c in made["spec"]["containers"] if c["name"] == "side"]
    assert side["env"] == [{"name": "UID", "value": "uid-web"}]
    told = read_files(made)
    assert told == {"labels": 'app="web"', "uid": "uid-web"}


def read_files(made: JsonObject) -> dict[str, str]:
    """What a kubelet writes into the files of volume `v`."""
    items = made["spec"]["volumes"][0]["downwardAPI"]["items"]
    asked = {i["path"]: split_subscript(i["fieldRef"]["fieldPath"])[1] for i in items}
    return {path: annotations_of(made)[key or ""] for path, key in asked.items()}


def test_c32_files_follow_the_hub_pod_in_the_request_that_changes_its_labels() -> None:
    """One write, after which nothing is left to do."""
    after = changed(telling().with_labels({"app": "api"}), rendered(telling()))
    assert labels_of(after)["app"] == "api"
    assert read_files(after)["labels"] == 'app="api"'


def test_c32_files_that_somebody_changed_in_the_target_are_put_right() -> None:
    """The annotations behind them are federate's."""
    made = rendered(telling())
    made["metadata"]["annotations"][HUB_LABELS_ANNOTATION] = "theirs"
    assert read_files(changed(telling(), made))["labels"] == 'app="web"'


def test_c32_a_mirror_that_reads_no_facts_is_not_written_to() -> None:
    """One that was made by an older federate, and each ordinary one."""
    assert not [k for k in annotations_of(rendered(hub_pod())) if "hub-value" in k]
    hub = telling()
    old = rendered(hub)
    old["spec"]["volumes"] = hub.build()["spec"]["volumes"]
    for key in [k for k in annotations_of(old) if "hub-value" in k or k == HUB_LABELS_ANNOTATION]:
        del old["metadata"]["annotations"][key]
    assert metadata_changes(hub.build(), old, RULES) is None


@pytest.mark.parametrize("brings_tokens", [True, False])
def test_c31_an_identity_dresses_what_is_rendered(brings_tokens: bool) -> None:
    """The spec and each debug container, with the token volume where its tokens come along."""
    identity = PlayedIdentity(brings_tokens=brings_tokens, travelling_tokens=True)
    rules = replace(WITH, identity=identity)
    made = spec(hub_pod(), rules)
    assert made["dressed"] == "web"
    names = {volume["name"] for volume in made.get("volumes", ())}
    assert (TOKEN_VOLUME in names) is brings_tokens
    assert ("volumeMounts" in made["containers"][0]) is brings_tokens
    assert (target_name(Kind.CONFIGMAP, "kube-root-ca.crt") in named(made)) is brings_tokens
    mount = {"name": TOKEN_VOLUME, "mountPath": TOKEN_PATH}
    debug = {"name": "debug", "image": "busybox", "volumeMounts": [mount]}
    assert ("volumeMounts" in rendered_debugger(debug, pod("web").build(), rules)) is brings_tokens


def test_c30_words_are_the_hubs_where_companions_are() -> None:
    """Without, they are the target's own."""
    said = f'secret "{target_name(Kind.SECRET, "db")}" not found'
    hub = leaning().build()
    assert WITH.words(hub, TARGET_NAMESPACE)(said) == 'secret "db" not found'
    assert RULES.words(hub, TARGET_NAMESPACE)(said) == said


def test_a_mirror_asks_the_dns_that_the_target_adds() -> None:
    """What the pod says itself comes first."""
    rules = RenderRules(dns=DnsRules(nameservers=("10.0.0.53",), searches=("corp.example.org",)))
    own = {"searches": ["mine"]}
    spec = render_spec(pod("a").with_spec(dnsPolicy="ClusterFirst", dnsConfig=own).build(), rules)
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["dnsConfig"] == {
        "nameservers": ["10.0.0.53"],
        "searches": ["mine", "corp.example.org"],
    }


def test_the_names_of_the_api_server_lead_to_the_hubs() -> None:
    """Beside what the pod leads elsewhere itself; where they are led nowhere, nothing is added."""
    own = {"ip": "203.0.113.9", "hostnames": ["db"]}
    hub = pod("a").with_spec(hostAliases=[own]).build()
    rules = RenderRules()
    assert render_spec(hub, rules)["hostAliases"] == [own]
    led = render_spec(hub, rules.leading(HubApi("10.96.0.7", "corp.example")))
    names = [
        *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        *("kubernetes.default.svc.cluster.local", "kubernetes.default.svc.corp.example"),
    ]
    assert led["hostAliases"] == [own, {"ip": "10.96.0.7", "hostnames": names}]

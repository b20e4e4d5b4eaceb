"""Pods are judged and shaped: what is refused, in which words, and what becomes of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from federate.model.objects import JsonDict, copied
from federate.policy.rules import ImageRewrite, Outcome, PolicyRules
from federate.policy.topics import TOPICS
from federate.policy.verdict import (
    applied,
    applied_annotations,
    applied_debugger,
    applied_labels,
    applied_tolerations,
    asked_spec,
    is_travelling_key,
    judge,
    judge_debugger,
    refusal_words,
    refusals_of,
    travelling_pod,
)
from tests.support.builders import pod

DEFAULT = PolicyRules()
APPARMOR = "container.apparmor.security.beta.kubernetes.io/main"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"


def rules(**outcomes: str) -> PolicyRules:
    return PolicyRules(outcomes={key: Outcome(word) for key, word in outcomes.items()})


def privileged(kind: str = "containers") -> JsonDict:
    built = pod("web").build()
    container = {"name": "main", "image": "busybox", "securityContext": {"privileged": True}}
    built["spec"][kind] = [container]
    return built


# -- judging ---------------------------------------------------------------------------------------


def test_an_ordinary_pod_is_taken_as_it_is() -> None:
    """Nothing to refuse, nothing to say."""
    verdict = judge(pod("web").build(), DEFAULT)
    assert verdict.refused == () == verdict.notes


def test_c26_a_refusal_names_field_rule_and_remedy() -> None:
    """One sentence says what, which rule, and what to do."""
    refused = judge(privileged(), DEFAULT).refused
    assert refusal_words(refused, "edge-1") == (
        "edge-1 refuses spec.containers[main].securityContext.privileged (a privileged container, "
        "policy.privileged). Leave it out, or ask the operator of edge-1 to allow it"
    )


def test_a_long_refusal_is_cut() -> None:
    """Four are named, and the rest is counted; an Event has room for it."""
    context = {"capabilities": {"add": [f"C{n}" for n in range(9)]}}
    built = pod("web").build()
    built["spec"]["containers"][0]["securityContext"] = context
    words = refusal_words(refusals_of(built, DEFAULT), "edge-1")
    assert words.count("policy.capabilities") == 4
    assert "and 5 more. Leave them out" in words
    long = {"sysctls": [{"name": "a" * 253}] * 9}
    built["spec"]["securityContext"] = long
    built["spec"]["containers"][0].pop("securityContext")
    assert len(refusal_words(refusals_of(built, DEFAULT), "e" * 63)) < 1500


def test_what_a_user_wrote_stays_on_one_line() -> None:
    """Values of annotations are any text: no line of a log or Event is made by them."""
    built = pod("web").with_annotations({APPARMOR: "x\n\nREADY  " + "y" * 999}).build()
    words = refusal_words(refusals_of(built, DEFAULT), "edge-1")
    assert "profile x READY yyy" in words
    assert "\n" not in words
    assert len(words) < 600
    (note, *_) = judge(built, rules(appArmor="strip")).notes
    assert "\n" not in note


def test_only_what_is_refused_is_refused() -> None:
    """The outcome decides: what is allowed or stripped refuses no pod."""
    assert refusals_of(privileged(), rules(privileged="allow")) == ()
    assert refusals_of(privileged(), rules(privileged="strip")) == ()
    assert len(refusals_of(privileged(), rules(privileged="refuse"))) == 1


def test_pods_of_other_namespaces_are_refused_first() -> None:
    """Where the namespace may not run there, nothing else is said."""
    only = PolicyRules(namespaces=("team-*", "web"))
    assert refusals_of(pod("x", namespace="team-a").build(), only) == ()
    refused = refusals_of({**privileged(), "metadata": {"namespace": "shop"}}, only)
    assert refusal_words(refused, "edge-1") == (
        "edge-1 does not run pods of namespace shop (policy.namespaces); ask the operator of edge-1"
    )


def test_debug_containers_do_not_refuse_their_pod() -> None:
    """They come later, through their own subresource, and are judged there."""
    debugger = {"name": "look", "image": "busybox", "securityContext": {"privileged": True}}
    built = pod("web").with_spec(ephemeralContainers=[debugger]).build()
    assert refusals_of(built, DEFAULT) == ()
    (refused,) = judge_debugger(debugger, built, DEFAULT)
    assert refused.spot.path == "spec.ephemeralContainers[look].securityContext.privileged"
    assert judge_debugger({"name": "look"}, built, DEFAULT) == ()


def test_a_debug_container_is_not_blamed_for_its_pod() -> None:
    """What the pod asks for is the pod's, and in whose user space it runs, too."""
    built = pod("web").with_spec(hostPID=True, hostUsers=False).build()
    debugger = {"name": "look", "securityContext": {"procMount": "Unmasked"}}
    assert judge_debugger(debugger, built, DEFAULT) == ()
    assert len(judge_debugger(debugger, pod("web").build(), DEFAULT)) == 1


def test_annotations_ask_for_profiles_too() -> None:
    """An AppArmor annotation that confines nothing is refused, as the field is."""
    built = pod("web").with_annotations({APPARMOR: "unconfined"}).build()
    assert [v.spot.path for v in refusals_of(built, DEFAULT)] == [
        f"metadata.annotations[{APPARMOR}]"
    ]
    assert refusals_of(built, rules(appArmor="strip")) == ()


def test_notes_say_what_is_another_in_the_target() -> None:
    """What is stripped, mapped, pulled from elsewhere and not asked for."""
    built = (
        pod("web")
        .with_spec(
            runtimeClassName="gvisor",
            priorityClassName="gold",
            schedulerName="default-scheduler",
            nodeSelector={"zone": "a"},
            hostPID=True,
        )
        .with_annotations({APPARMOR: "unconfined"})
        .build()
    )
    verdict = judge(
        built,
        PolicyRules(
            outcomes={"hostPID": Outcome.STRIP, "appArmor": Outcome.STRIP},
            priority_classes={"gold": "high"},
            images=(ImageRewrite(before="docker.io", after="edge:5000"),),
        ),
    )
    assert verdict.refused == ()
    assert verdict.notes == (
        "spec.hostPID stays behind (the node's processes, policy.hostPID)",
        f"metadata.annotations[{APPARMOR}] stays behind (the AppArmor profile unconfined, "
        "policy.appArmor)",
        "spec.runtimeClassName stays behind (the runtime class gvisor, policy.runtimeClass)",
        "spec.priorityClassName is high in the target, gold on the hub",
        "spec.containers[main].image is edge:5000/library/busybox in the target, busybox on the "
        "hub (policy.images)",
        "the node label zone is not asked for in the target (policy.nodeKeys)",
    )
    assert judge(built, DEFAULT).notes == ()


def test_c30_what_never_reaches_the_target_needs_nothing_there() -> None:
    """A volume that is stripped, a debug container that is refused: their Secrets stay at home."""
    secret = [{"secretRef": {"name": "s"}}]
    strong = {"name": "a", "envFrom": secret, "securityContext": {"privileged": True}}
    plain = {"name": "b", "envFrom": secret}
    volumes = [{"name": "v", "rbd": {"secretRef": {"name": "s"}}}, {"name": "w", "emptyDir": {}}]
    whole = {"volumes": volumes, "ephemeralContainers": [strong, plain]}
    built = pod("web").with_spec(**whole).build()
    before = copied(built)
    empty = {"name": "v", "emptyDir": {}}
    left = travelling_pod(built, rules(storageVolumes="strip"))["spec"]
    assert left["volumes"][:2] == [empty, volumes[1]]
    assert left["ephemeralContainers"] == [plain]
    assert left["containers"] is built["spec"]["containers"]
    assert built == before
    allowed = rules(storageVolumes="allow", privileged="allow")
    assert travelling_pod(built, allowed) is built
    assert travelling_pod(pod("web").build(), DEFAULT)["spec"]["containers"]


# -- shaping ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "is_left"), [("allow", True), ("strip", False)])
def test_what_is_allowed_stays_and_what_is_stripped_goes(word: str, is_left: bool) -> None:
    """By its outcome; what is refused never gets so far."""
    shaped = applied(privileged()["spec"], rules(privileged=word))
    assert ("securityContext" in shaped["containers"][0]) is is_left


@pytest.mark.parametrize(
    ("spec", "policy", "left"),
    [
        ({"schedulerName": "default-scheduler"}, DEFAULT, {}),
        ({"schedulerName": "default-scheduler"}, rules(scheduler="allow"), {}),
        ({"schedulerName": "default-scheduler"}, PolicyRules(schedulers={"default-scheduler": "x"}),
         {"schedulerName": "x"}),
        ({"schedulerName": "volcano"}, rules(scheduler="allow"), {"schedulerName": "volcano"}),
        ({"priorityClassName": "gold"}, PolicyRules(priority_classes={"gold": "high"}),
         {"priorityClassName": "high"}),
        ({"priorityClassName": "tin"}, PolicyRules(priority_classes={"gold": "high"}), {}),
        ({"runtimeClassName": "gvisor"}, rules(runtimeClass="allow"),
         {"runtimeClassName": "gvisor"}),
        ({"runtimeClassName": "a"}, PolicyRules(runtime_classes={"a": "b", "b": "c"}),
         {"runtimeClassName": "b"}),
    ],
)  # fmt: skip
def test_c21_classes_and_schedulers_are_mapped(
    spec: JsonDict, policy: PolicyRules, left: JsonDict
) -> None:
    """A name of the map first; of the rest the outcome decides. A default is nobody's wish."""
    assert applied(spec, policy) == left


def test_images_are_pulled_from_elsewhere() -> None:
    """In the spec and in a debug container that comes later."""
    policy = PolicyRules(images=(ImageRewrite(before="docker.io", after="edge:5000"),))
    built = pod("web").build()
    before = copied(built)
    assert applied(built["spec"], policy)["containers"][0]["image"] == "edge:5000/library/busybox"
    debugger = {"name": "look", "image": "alpine:3"}
    assert applied_debugger(debugger, built, policy)["image"] == "edge:5000/library/alpine:3"
    assert built == before


def test_a_debug_container_is_stripped_like_others() -> None:
    """And nothing else of its pod comes with it."""
    debugger = {"name": "look", "securityContext": {"privileged": True, "runAsUser": 1}}
    built = pod("web").with_spec(hostUsers=False).build()
    assert applied_debugger(debugger, built, rules(privileged="strip")) == {
        "name": "look",
        "securityContext": {"runAsUser": 1},
    }
    assert debugger["securityContext"] == {"privileged": True, "runAsUser": 1}


def test_c24_denied_keys_stay_behind() -> None:
    """Labels and annotations by lists of their own."""
    policy = PolicyRules(denied_labels=("a", "x.io/"), denied_annotations=("b",))
    keys = dict.fromkeys(("a", "b", "x.io/c", "y"), "v")
    assert applied_labels(keys, policy) == {"b": "v", "y": "v"}
    assert applied_annotations(keys, policy) == {"a": "v", "x.io/c": "v", "y": "v"}


GRANTING = (
    "iam.amazonaws.com/role",
    "aadpodidbinding",
    "azure.workload.identity/use",
    "vault.hashicorp.com/agent-inject",
    "sidecar.istio.io/userVolume",
    "k8s.v1.cni.cncf.io/networks",
    "io.katacontainers.config.hypervisor.path",
    "kubernetes.io/config.mirror",
)
ORDINARY = (
    "app",
    "app.kubernetes.io/name",
    "prometheus.io/scrape",
    "kubectl.kubernetes.io/default-container",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "service.istio.io/canonical-name",
    "pod-template-hash",
)


@pytest.mark.parametrize("key", GRANTING)
def test_c24_what_would_give_a_pod_more_than_its_spec_says_stays_behind(key: str) -> None:
    """An identity, a secret, a network, a container: as a label and as an annotation."""
    assert applied_labels({key: "x"}, DEFAULT) == {} == applied_annotations({key: "x"}, DEFAULT)
    assert not is_travelling_key(key, DEFAULT)
    more = PolicyRules(denied_labels=("mine",), denied_annotations=("mine",))
    assert applied_labels({key: "x", "mine": "y"}, more) == {}
    built = pod("web").with_annotations({key: "x"}).build()
    assert judge(built, DEFAULT).notes == (f"{key} stays behind (policy.allowedMetadata)",)
    allowed = PolicyRules(allowed_metadata=(key,))
    assert applied_labels({key: "x"}, allowed) == {key: "x"}
    assert applied_annotations({key: "x"}, allowed) == {key: "x"}
    assert is_travelling_key(key, allowed)
    assert judge(built, allowed).notes == ()


@pytest.mark.parametrize("key", ORDINARY)
def test_c24_what_tells_of_a_pod_travels(key: str) -> None:
    """What selectors, dashboards and people go by."""
    assert applied_labels({key: "x"}, DEFAULT) == {key: "x"}
    assert applied_annotations({key: "x"}, DEFAULT) == {key: "x"}
    assert is_travelling_key(key, DEFAULT)


def test_what_is_denied_is_denied_whatever_else_is_allowed() -> None:
    """An operator's own word against a key counts."""
    both = PolicyRules(denied_labels=("spiffe.io/",), allowed_metadata=("spiffe.io/",))
    keys = {"spiffe.io/id": "x"}
    assert applied_labels(keys, both) == {}
    assert applied_annotations(keys, both) == keys


def affine(**term: Any) -> JsonDict:
    terms = [{"topologyKey": "zone", **term}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod("web", namespace="shop").with_spec(affinity=affinity).build()


@pytest.mark.parametrize(
    ("term", "asks"),
    [
        ({}, False),
        ({"namespaces": ["shop"]}, False),
        ({"namespaces": ["shop", "shop"]}, False),
        ({"namespaces": ["shop", "kube-system"]}, True),
        ({"namespaces": ["kube-system"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"namespaces": ["shop"], "namespaceSelector": {}}, True),
    ],
)
def test_c21_a_pod_may_name_its_own_namespace(term: JsonDict, asks: bool) -> None:
    """It is another in the target; and others are other people's there."""
    built = affine(**term)
    before = copied(built)
    refused = refusals_of(built, rules(otherNamespaces="refuse"))
    assert [violation.key for violation in refused] == ["otherNamespaces"] * asks
    notes = judge(built, DEFAULT).notes
    assert len(notes) == asks
    left = applied(asked_spec(built), DEFAULT)
    assert ("affinity" in left) is not asks
    assert "namespace" not in str(left.get("affinity"))
    assert built == before


@pytest.mark.parametrize(
    ("key", "travels"),
    [
        ("a", False),
        ("b", False),
        ("x.io/c", False),
        ("y", True),
        (APPARMOR, False),
        (SECCOMP, False),
    ],
)
def test_c32_what_may_stay_behind_is_told_to_the_pod_otherwise(key: str, travels: bool) -> None:
    """The downward API reads from the mirror what surely travels, and nothing else."""
    policy = PolicyRules(denied_labels=("a", "x.io/"), denied_annotations=("b",))
    assert is_travelling_key(key, policy) is travels


@pytest.mark.parametrize(("key", "topic"), [(APPARMOR, "appArmor"), (SECCOMP, "seccomp")])
@pytest.mark.parametrize(
    ("value", "travels"), [("unconfined", False), ("runtime/default", True), ("localhost/x", True)]
)
def test_annotations_that_loosen_stay_behind(
    key: str, topic: str, value: str, travels: bool
) -> None:
    """Whenever they come: a pod that was judged without one could get it later."""
    annotations = {key: value, "other": "unconfined"}
    kept: Any = {**annotations} if travels else {"other": "unconfined"}
    assert applied_annotations(annotations, DEFAULT) == kept
    assert applied_annotations(annotations, rules(**{topic: "strip"})) == kept
    assert applied_annotations(annotations, rules(**{topic: "allow"})) == annotations


@pytest.mark.parametrize(("word", "grows"), [("allow", True), ("strip", False), ("refuse", False)])
def test_c25_tolerations_that_come_later_are_shaped_too(word: str, grows: bool) -> None:
    """What would have refused the pod, or been stripped, does not come in by a later change."""
    spec = {"tolerations": [{"key": "x.io/a"}, {"key": "y.io/b"}, {"operator": "Exists"}]}
    policy = PolicyRules(outcomes={"tolerations": Outcome(word)}, toleration_keys=("x.io/",))
    kept = [{"key": "x.io/a"}, *([{"key": "y.io/b"}] if grows else []), {"operator": "Exists"}]
    assert applied_tolerations(spec, policy) == kept
    assert applied_tolerations({}, policy) == []
    assert len(spec["tolerations"]) == 3


def test_nothing_is_copied_where_nothing_changes() -> None:
    """An ordinary pod costs a look."""
    spec = pod("web").build()["spec"]
    assert applied(spec, DEFAULT)["containers"] is spec["containers"]
    everything = PolicyRules(outcomes={t.key: Outcome.ALLOW for t in TOPICS})
    asking = privileged()["spec"]
    assert applied(asking, everything)["containers"] is asking["containers"]

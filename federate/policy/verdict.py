"""Judge a hub pod, and give what may run the shape it may run in. Pure.

A pod is judged before anything is made for it: one that is refused leaves no trace in the target.
What is made of one that is not refused has no more rights than it asked for. Debug containers come
later, and are judged and shaped by themselves; so are images and annotations that change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    copied,
    labels_of,
    metadata_of,
    spec_of,
)
from federate.model.pods import CONTAINER_FIELDS
from federate.policy.confinement import (
    APPARMOR_PREFIX,
    SECCOMP_PREFIXES,
    find_apparmor_annotations,
    is_apparmor_loose,
    is_seccomp_loose,
)
from federate.policy.images import images_in, rewrite_images, rewritten
from federate.policy.names import fits_any, is_listed_key
from federate.policy.naming import DEFAULT_SCHEDULER, mapped_names
from federate.policy.placing import left_node_keys, with_own_namespace
from federate.policy.rules import GRANTING_KEYS, Outcome, PolicyRules
from federate.policy.spots import Spot
from federate.policy.topics import (
    APPARMOR,
    SECCOMP,
    STORAGE_VOLUMES,
    TOLERATIONS,
    TOPIC_OF,
    TOPICS,
    Topic,
)

NAMED = 4
"""How many violations a message names; an Event has room for about as many."""
PIECE_LENGTH = 180
"""What a user wrote is cut after so many characters: names are shorter, but for kernel settings."""

_DEBUGGERS = "spec.ephemeralContainers["


def _shown(text: str) -> str:
    """Put what a user wrote on one line, and not too long a one."""
    return " ".join(text.split())[:PIECE_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that a pod asks for and that a target refuses."""

    key: str
    """What of the configuration refuses it, below `policy`."""
    spot: Spot

    def __str__(self) -> str:
        path, words = map(_shown, self.spot)
        return f"{path} ({words}, policy.{self.key})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a target's policy makes of a pod."""

    refused: tuple[Violation, ...] = ()
    notes: tuple[str, ...] = ()
    """In words, what of a pod that is not refused is another in the target."""


# -- judging ---------------------------------------------------------------------------------------


def judge(hub_pod: JsonObject, rules: PolicyRules) -> Verdict:
    """Say whether the pod may run; debug containers come later (`judge_debugger`)."""
    refused = refusals_of(hub_pod, rules)
    return Verdict(refused=refused, notes=() if refused else tuple(_notes(hub_pod, rules)))


def refusals_of(hub_pod: JsonObject, rules: PolicyRules) -> tuple[Violation, ...]:
    """List what the target refuses of the pod: where its namespace is, nothing else counts."""
    namespace: str = metadata_of(hub_pod).get("namespace") or ""
    if not runs_namespace(namespace, rules):
        spot = Spot("metadata.namespace", f"namespace {namespace}")
        return (Violation(key="namespaces", spot=spot),)
    spec = {**asked_spec(hub_pod), "ephemeralContainers": ()}
    return tuple(_refused(spec, annotations_of(hub_pod), rules))


def runs_namespace(hub_namespace: str, rules: PolicyRules) -> bool:
    """Tell whether pods of a hub namespace may run at all."""
    return not rules.namespaces or fits_any(hub_namespace, rules.namespaces)


def judge_debugger(
    container: JsonObject, hub_pod: JsonObject, rules: PolicyRules
) -> tuple[Violation, ...]:
    """List what the target refuses of a debug container; its pod decides in what user space."""
    spec = _alone(container, spec_of(hub_pod))
    found = _refused(spec, {}, rules)
    return tuple(one for one in found if one.spot.path.startswith(_DEBUGGERS))


def _refused(
    spec: JsonObject, annotations: Mapping[str, str], rules: PolicyRules
) -> Iterator[Violation]:
    for topic, spot in _found(spec, annotations, rules, Outcome.REFUSE):
        yield Violation(key=topic.key, spot=spot)


def _found(
    spec: JsonObject, annotations: Mapping[str, str], rules: PolicyRules, outcome: Outcome
) -> Iterator[tuple[Topic, Spot]]:
    for topic in TOPICS:
        if topic.outcome(rules) is outcome:
            for spot in topic.find(spec, rules):
                yield topic, spot
            if topic.key == APPARMOR:
                for spot in find_apparmor_annotations(annotations):
                    yield topic, spot


def refusal_words(refused: tuple[Violation, ...], target_name: str) -> str:
    """Say what is refused and what to do, to the user of the pod."""
    if refused[0].key == "namespaces":
        namespace = refused[0].spot.words
        return (
            f"{target_name} does not run pods of {namespace} (policy.namespaces); "
            f"ask the operator of {target_name}"
        )
    named = ", ".join(map(str, refused[:NAMED]))
    more = f" and {len(refused) - NAMED} more" if len(refused) > NAMED else ""
    them = "it" if len(refused) == 1 else "them"
    return (
        f"{target_name} refuses {named}{more}. Leave {them} out, or ask the operator of "
        f"{target_name} to allow {them}"
    )


def _notes(hub_pod: JsonObject, rules: PolicyRules) -> Iterator[str]:
    spec = asked_spec(hub_pod)
    for topic, spot in _found(spec, annotations_of(hub_pod), rules, Outcome.STRIP):
        path, words = map(_shown, spot)
        yield f"{path} stays behind ({words}, policy.{topic.key})"
    for field, there in mapped_names(spec, rules).items():
        yield f"spec.{field} is {there} in the target, {spec[field]} on the hub"
    for path, image in images_in(spec) if rules.images else ():
        if (there := rewritten(image, rules.images)) != image:
            yield f"{path} is {there} in the target, {image} on the hub (policy.images)"
    for key in left_node_keys(spec, rules.node_keys):
        yield f"the node label {key} is not asked for in the target (policy.nodeKeys)"
    for key in sorted({*labels_of(hub_pod), *annotations_of(hub_pod)}):
        if _is_granting(key, rules):
            yield f"{key} stays behind (policy.allowedMetadata)"


# -- shaping ---------------------------------------------------------------------------------------


def asked_spec(hub_pod: JsonObject) -> JsonObject:
    """Return what a pod asks for: where it names its own namespace, nobody else's."""
    return with_own_namespace(spec_of(hub_pod), metadata_of(hub_pod).get("namespace") or "")


def travelling_pod(hub_pod: JsonObject, rules: PolicyRules) -> JsonObject:
    """Return a pod without the parts that never reach the target: what they name is not needed.

    Volumes that are stripped, and debug containers that are refused. What is the same is shared.
    """
    spec = spec_of(hub_pod)
    debuggers = spec.get("ephemeralContainers") or ()
    kept = [one for one in debuggers if not judge_debugger(one, hub_pod, rules)]
    topic = TOPIC_OF[STORAGE_VOLUMES]
    strips = topic.outcome(rules) is Outcome.STRIP and _finds(topic, spec, rules)
    if len(kept) == len(debuggers) and not strips:
        return hub_pod
    part: JsonDict = {"volumes": copied(spec.get("volumes") or [])}
    if strips:
        topic.strip(part, rules)
    return {**hub_pod, "spec": {**spec, **part, "ephemeralContainers": kept}}


def applied(spec: JsonObject, rules: PolicyRules) -> JsonDict:
    """Return a spec as the target may have it; again changes nothing more but images.

    What is the same is shared with the hub pod's spec, and nothing is to be changed in it.
    """
    stripped = [
        topic
        for topic in TOPICS
        if topic.outcome(rules) is Outcome.STRIP and _finds(topic, spec, rules)
    ]
    names = mapped_names(spec, rules)
    shaped: JsonDict = copied(spec) if stripped or rules.images else dict(spec)
    for topic in stripped:
        topic.strip(shaped, rules)
    if rules.images:
        rewrite_images(shaped, rules.images)
    if shaped.get("schedulerName") == DEFAULT_SCHEDULER:
        # What the hub's API server put in says nothing of the target's.
        del shaped["schedulerName"]
    return {**shaped, **names}


def _finds(topic: Topic, spec: JsonObject, rules: PolicyRules) -> bool:
    return next(iter(topic.find(spec, rules)), None) is not None


def applied_debugger(container: JsonObject, hub_pod: JsonObject, rules: PolicyRules) -> JsonDict:
    """Return a debug container as the target may have it."""
    shaped = applied(_alone(container, spec_of(hub_pod)), rules)
    debugger: JsonDict = shaped["ephemeralContainers"][0]
    return debugger


def _alone(container: JsonObject, spec: JsonObject) -> JsonDict:
    """Return a spec in which a debug container is the only one, and the rest as it is."""
    others = dict.fromkeys(CONTAINER_FIELDS, ())
    return {**spec, **others, "ephemeralContainers": [dict(container)]}


def applied_tolerations(spec: JsonObject, rules: PolicyRules) -> list[JsonObject]:
    """Return the tolerations of a spec that `applied` leaves: they may grow while a mirror runs."""
    kept: JsonDict = {"tolerations": list(spec.get("tolerations") or ())}
    topic = TOPIC_OF[TOLERATIONS]
    if topic.outcome(rules) is not Outcome.ALLOW:
        topic.strip(kept, rules)
    tolerations: list[JsonObject] = kept["tolerations"]
    return tolerations


def is_travelling_key(key: str, rules: PolicyRules) -> bool:
    """Tell whether a label or annotation of that key travels as it is, whatever its value.

    What does not is told to the pod's downward API in another way.
    """
    may_loosen = key.startswith((APPARMOR_PREFIX, *SECCOMP_PREFIXES))
    denied = (*rules.denied_labels, *rules.denied_annotations)
    return not may_loosen and not _is_denied(key, denied, rules)


def applied_labels(labels: Mapping[str, str], rules: PolicyRules) -> dict[str, str]:
    """Return the labels that travel."""
    return {k: v for k, v in labels.items() if not _is_denied(k, rules.denied_labels, rules)}


def _is_denied(key: str, denied: tuple[str, ...], rules: PolicyRules) -> bool:
    return is_listed_key(key, denied) or _is_granting(key, rules)


def _is_granting(key: str, rules: PolicyRules) -> bool:
    return _grants(key) and not is_listed_key(key, rules.allowed_metadata)


@lru_cache(maxsize=4096)
def _grants(key: str) -> bool:
    return is_listed_key(key, GRANTING_KEYS)


def applied_annotations(annotations: Mapping[str, str], rules: PolicyRules) -> dict[str, str]:
    """Return the annotations that travel: they can change while the mirror runs.

    One that loosens a container's confinement stays behind wherever that is not allowed.
    """
    keeps_apparmor = TOPIC_OF[APPARMOR].outcome(rules) is Outcome.ALLOW
    keeps_seccomp = TOPIC_OF[SECCOMP].outcome(rules) is Outcome.ALLOW
    return {
        key: value
        for key, value in annotations.items()
        if not _is_denied(key, rules.denied_annotations, rules)
        and (keeps_apparmor or not is_apparmor_loose(key, value))
        and (keeps_seccomp or not is_seccomp_loose(key, value))
    }

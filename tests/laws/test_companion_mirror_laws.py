"""Laws of mirrors whose pods need something beside themselves: ours only, told of the hub pod, and
not a write more than any other mirror costs."""

from __future__ import annotations

import copy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.companions.holding import Hold, hold_of
from federate.companions.keys import CompanionKey, Kind, companion_name
from federate.companions.places import PLACES
from federate.companions.references import references_of, wants_of
from federate.companions.steps import Blocked, Rest, Standing
from federate.mirror.plan import plan_pod
from federate.mirror.render import RenderRules, metadata_changes, render_mirror, rendered_debugger
from federate.mirror.steps import (
    Created,
    CreateMirror,
    Nothing,
    PatchMirror,
    UngateMirror,
    UpdateMirror,
    WriteHubPod,
)
from federate.mirror.updates import pending_updates, record_patch, update_patch
from federate.model.marks import MADE_AS_ANNOTATION, Origin
from federate.model.objects import JsonDict, JsonObject, key_of, metadata_of, uid_of
from federate.policy.rules import Outcome, PolicyRules
from tests.support.companions import ANCHOR, TARGET_NAMESPACE, merged, naming_fragment
from tests.support.strategic import apply_merge_patch, apply_strategic_patch
from tests.support.views import NOW, RULES, SCOPE, hub_pod, mirror_key, outcome, view

LAW = settings(max_examples=60, deadline=None)
ALLOWED = PolicyRules(outcomes={"storageVolumes": Outcome.ALLOW})
"""Volumes of such kinds name Secrets; by default they are refused whatever they name."""
WITH = RenderRules(scope=SCOPE, policy=ALLOWED)
PLAN = replace(RULES, render=WITH)

NAMES = st.sampled_from(["db", "kube-root-ca.crt", "..", "a/b", "x" * 70, "foreign-secret"])
FACTS = st.sampled_from(
    [
        "metadata.name",
        "metadata.uid",
        "metadata.labels",
        "metadata.annotations",
        "metadata.labels['app']",
        "metadata.annotations['federate.dev/mirror']",
        "status.podIP",
    ]
)
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "$b", ""]))


def fact(path: str) -> JsonDict:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


@st.composite
def hub_pods(draw: st.DrawFn) -> JsonDict:
    """A pod that names objects in any of the places, debug containers too, and tells of itself."""
    named = draw(st.lists(st.tuples(st.sampled_from(PLACES), NAMES), max_size=6))
    spec = merged([naming_fragment(place, name) for place, name in named])
    facts = draw(st.lists(FACTS, max_size=3))
    if facts:
        items = [{"path": str(n), **fact(path)} for n, path in enumerate(facts)]
        spec.setdefault("volumes", []).append({"name": "facts", "downwardAPI": {"items": items}})
        env = [{"name": f"V{n}", "valueFrom": fact(path)} for n, path in enumerate(facts)]
        spec.setdefault("containers", []).append({"name": "telling", "env": env})
    spec.setdefault("containers", []).append({"name": "main"})
    for container in spec["containers"]:
        container["image"] = "app:1"
    return hub_pod().with_labels(draw(LABELS)).with_spec(**spec).build()


def mirror_of(hub: JsonObject, rules: RenderRules = WITH) -> JsonDict:
    """The mirror as the target's API server has made it."""
    key = mirror_key(key_of(hub))
    origin = Origin(scope=SCOPE, pod=key_of(hub), pod_uid=uid_of(hub))
    made = render_mirror(hub, origin=origin, mirror=key, anchor=ANCHOR, rules=rules)
    made["metadata"] |= {"uid": "mirror-web", "resourceVersion": "5", "generation": 1}
    return copy.deepcopy(made)


@LAW
@given(hub=hub_pods())
def test_a_mirror_names_what_its_pod_wants_and_nothing_else(hub: JsonDict) -> None:
    """Whatever its user calls things: a foreign object of the target is never named."""
    wanted = {
        companion_name(SCOPE, key.kind, key.hub_key) for key in wants_of(hub, TARGET_NAMESPACE)
    }
    named = {reference.name for reference in references_of(mirror_of(hub)["spec"])}
    for container in hub["spec"].get("ephemeralContainers") or ():
        part = {"ephemeralContainers": [rendered_debugger(container, hub, WITH)]}
        named |= {reference.name for reference in references_of(part)}
    assert named == wanted


ASKED: dict[str, frozenset[tuple[Kind, str]]] = {TARGET_NAMESPACE: frozenset()}
"""The target was asked what its people share: a read, once for each crowd of pods."""


@LAW
@given(hub=hub_pods())
def test_a_new_mirror_needs_no_change_of_its_metadata(hub: JsonDict) -> None:
    """What it tells of the hub pod came with its creation."""
    assert metadata_changes(hub, mirror_of(hub), WITH) is None


@LAW
@given(hub=hub_pods(), labels=LABELS, rules=st.sampled_from([WITH, RenderRules()]))
def test_new_labels_cost_one_write(
    hub: JsonDict, labels: dict[str, str], rules: RenderRules
) -> None:
    """Labels and the files that tell of them; then it is as if it had been made so."""
    its_mirror = mirror_of(hub, rules)
    later = copy.deepcopy(hub)
    later["metadata"]["labels"] = labels
    changes = metadata_changes(later, its_mirror, rules)
    assert (changes is None) == (labels == (metadata_of(hub).get("labels") or {}))
    after = apply_merge_patch(its_mirror, {"metadata": changes}) if changes else its_mirror
    assert metadata_changes(later, after, rules) is None
    made = mirror_of(later, rules)
    for each in (after, made):
        del each["metadata"]["annotations"][MADE_AS_ANNOTATION]  # of its creation, once for all
    for name in ("labels", "annotations"):
        assert after["metadata"][name] == made["metadata"][name]


@LAW
@given(hub=hub_pods())
def test_what_a_pod_needs_costs_its_mirror_no_write(hub: JsonDict) -> None:
    """The road from nothing to a mirror that runs has the steps it has without: intent, create,
    record, start, and one request and its record for each debug container."""
    bare = hub_pod().build()
    debuggers = [{"name": c["name"]} for c in hub["spec"].get("ephemeralContainers") or ()]
    bare["spec"]["ephemeralContainers"] = debuggers
    assert steps_to_rest(hub) == steps_to_rest(bare)


def steps_to_rest(hub: JsonDict) -> list[str]:
    """Plan and carry out until nothing is left; each step is decided twice."""
    its_mirror: JsonDict | None = None
    made: Created | None = None
    steps: list[str] = []
    while True:
        mirrors = (its_mirror,) if its_mirror is not None else ()
        seen = view(
            hub, *mirrors, attempt_open=True, hub_pod_fresh=True, shared=ASKED, created=made
        )
        step = plan_pod(seen, PLAN)
        assert plan_pod(seen, PLAN) == step
        if isinstance(step, Nothing):
            return steps
        steps.append(type(step).__name__)
        assert len(steps) < 30, steps
        match step:
            case WriteHubPod():
                hub = outcome(hub, step)
            case CreateMirror():
                its_mirror = mirror_of(hub)
                made = Created(uid=uid_of(its_mirror), spec=its_mirror["spec"])
            case UngateMirror(mirror=known):
                its_mirror = copy.deepcopy(dict(known))
                del its_mirror["spec"]["schedulingGates"]
            case PatchMirror(mirror=known, metadata=metadata):
                its_mirror = apply_merge_patch(dict(known), {"metadata": metadata})
            case UpdateMirror(mirror=known, update=update):
                its_mirror = apply_strategic_patch(
                    dict(known), update_patch(update, known).body, kind="Pod"
                )
                if update.subresource:
                    patch = record_patch(update, its_mirror)
                    its_mirror = apply_strategic_patch(its_mirror, patch.body, kind="Pod")
            case _:
                raise AssertionError(step)


RESTS = st.sampled_from(
    [
        None,
        Rest(reason="", standing=Standing.SETTLED),
        Rest(reason="", standing=Standing.ABSENT),
        Rest(
            reason="",
            standing=Standing.BLOCKED,
            blocked=Blocked(reason="NameTaken", message="somebody has it"),
        ),
    ]
)


@st.composite
def held_pods(draw: st.DrawFn) -> tuple[JsonDict, Hold | None]:
    """A pod, and what it waits for of what it wants."""
    hub = draw(hub_pods())
    known: dict[CompanionKey, Rest] = {}
    for key in sorted(wants_of(hub, TARGET_NAMESPACE)):
        rest = draw(RESTS)
        if rest is not None:
            known[key] = rest
    return hub, hold_of(wants_of(hub, TARGET_NAMESPACE), known)


@LAW
@given(held=held_pods())
def test_no_mirror_is_made_while_something_is_held(held: tuple[JsonDict, Hold | None]) -> None:
    """Neither coming nor blocked; and nothing else holds it."""
    hub, hold = held
    step = plan_pod(view(hub, hold=hold, held_since=NOW, attempt_open=True, shared=ASKED), PLAN)
    if isinstance(step, WriteHubPod):
        hub = outcome(hub, step)
        step = plan_pod(view(hub, hold=hold, held_since=NOW, attempt_open=True, shared=ASKED), PLAN)
    assert isinstance(step, CreateMirror) == (hold is None)


@LAW
@given(held=held_pods())
def test_a_debug_container_is_added_when_what_it_names_is_there(
    held: tuple[JsonDict, Hold | None],
) -> None:
    """Each by itself, whatever the others wait for; and nothing counts as applied before."""
    hub, hold = held
    waits = {c["name"] for c in hub["spec"].get("ephemeralContainers") or () if _names_any(c, hold)}
    updates = pending_updates(hub, mirror_of(hub), WITH, hold)
    assert {name for update in updates for name in update.holds} == waits
    sent = {c["name"] for u in updates for c in u.spec.get("ephemeralContainers", ())}
    assert not sent & waits
    assert not waits or not any(update.generation for update in updates)


def _names_any(container: JsonObject, hold: Hold | None) -> bool:
    keys = {*hold.coming, *(key for key, _ in hold.stuck)} if hold is not None else set()
    return any(
        CompanionKey(TARGET_NAMESPACE, r.kind, "default", r.name) in keys
        for r in references_of({"ephemeralContainers": [container]})
    )

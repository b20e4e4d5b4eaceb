"""Take a mechanism of the product out, and the laws find it out: each with a short history.

So a law that no longer notices is noticed. Every history passes with the product as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from federate.cluster import reflector
from federate.errors import ClusterError
from federate.garbage.sweeper import Sweeper
from federate.mirror import plan, ports, updates, upkeep
from federate.mirror import round as rounds
from federate.mirror.applied import Part, changeable
from federate.mirror.ground import Ground
from federate.mirror.ports import PodMemories
from federate.mirror.reconciler import PodReconciler
from federate.mirror.render import render_mirror
from federate.mirror.round import Round
from federate.mirror.steps import (
    AnchorState,
    CreateMirror,
    DeleteHubPod,
    Nothing,
    PodView,
    Step,
    UngateMirror,
    WriteHubPod,
)
from federate.model.marks import Origin
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_gated, is_terminal, node_name_of, phase_of
from federate.runtime.mirroring import Mirroring
from tests.support.fakeclient import FakeClient
from tests.support.histories import Act, live, run
from tests.support.quiet import quiet
from tests.support.scene import SCOPE
from tests.support.worlds import World

A = ObjectKey("default", "a")
History = Sequence[tuple[Act, float]]
Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    with quiet():
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A mechanism, how it is taken out, and the history that misses it.

    `found` is what the laws say; `given` is broken in both lives: the mechanism makes up for it.
    """

    broken: Break
    history: History
    found: str
    given: Break | None = None
    is_brisk: bool = True
    with_nets: bool = True
    ends: Callable[[World], bool] | None = None

    def live(self) -> None:
        run(
            live(
                self.history,
                is_brisk=self.is_brisk,
                with_nets=self.with_nets,
                ends=self.ends,
            )
        )


def put(owner: object, name: str, value: object) -> Break:
    """Replace one attribute."""
    return lambda patch: patch.setattr(owner, name, value)


def nothing(*_args: object, **_kwargs: object) -> Nothing:
    return Nothing(reason="broken")


async def never(*_args: object, **_kwargs: object) -> None:
    """A net that is not there."""


# --- mechanisms taken out -------------------------------------------------------------------------


def born_free(patch: pytest.MonkeyPatch) -> None:
    """Mirrors are made without a gate."""

    def without_gate(*args: Any, **kwargs: Any) -> JsonDict:
        mirror = render_mirror(*args, **kwargs)
        del mirror["spec"]["schedulingGates"]
        return mirror

    patch.setattr(rounds, "render_mirror", without_gate)


def let_go_before_the_record(patch: pytest.MonkeyPatch) -> None:
    recording = plan._plan_recording

    def first_let_go(view: PodView, rules: Any, hub_pod: JsonObject, mirror: JsonObject) -> Step:
        if is_gated(mirror):
            return UngateMirror(reason="broken", mirror=mirror)
        return recording(view, rules, hub_pod, mirror)

    patch.setattr(plan, "_plan_recording", first_let_go)


def no_intent(patch: pytest.MonkeyPatch) -> None:
    create = plan._plan_create

    def at_once(*args: Any) -> Step:
        step = create(*args)
        is_intent = isinstance(step, WriteHubPod) and step.intent is not None
        return CreateMirror(reason="broken") if is_intent else step

    patch.setattr(plan, "_plan_create", at_once)


def record_moves_to_the_second(patch: pytest.MonkeyPatch) -> None:
    """A second mirror takes the first one's place, instead of being deleted."""
    mirrored = plan._plan_mirrored

    def adopt(
        view: PodView, rules: Any, hub_pod: JsonObject, mirror: JsonObject, *rest: Any
    ) -> Step:
        step = mirrored(view, rules, hub_pod, mirror, *rest)
        is_second = "runs once" in step.reason or "not the recorded" in step.reason
        return plan._plan_recording(view, rules, hub_pod, mirror) if is_second else step

    patch.setattr(plan, "_plan_mirrored", adopt)


def orphans_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    orphans = plan._plan_orphans
    patch.setattr(plan, "_plan_orphans", lambda view: orphans(replace(view, hub_pod_fresh=True)))


def loss_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    lost = plan._plan_lost
    patch.setattr(
        plan, "_plan_lost", lambda view, *rest: lost(replace(view, mirrors_fresh=True), *rest)
    )


def hub_pod_first(_view: PodView, _rules: Any, hub_pod: JsonObject, _mirror: JsonObject) -> Step:
    """The hub pod is let go without waiting for its mirror."""
    return DeleteHubPod(
        reason="broken",
        uid=uid_of(hub_pod),
        resource_version=resource_version_of(hub_pod),
        grace_seconds=0,
    )


def everything_is_ours(patch: pytest.MonkeyPatch) -> None:
    def forged(pod: JsonObject) -> Origin:
        return Origin(scope=SCOPE, pod=ObjectKey("default", key_of(pod).name), pod_uid="earlier")

    for module in (plan, ports, rounds):
        patch.setattr(module, "origin_of", forged)


def terminal_is_not_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        plan, "is_terminal", lambda pod: node_name_of(pod) != SCOPE.node_name and is_terminal(pod)
    )


def no_preconditions(patch: pytest.MonkeyPatch) -> None:
    """What is sent names neither the uid nor the version it is meant for."""
    call = FakeClient._call

    def bare(self: FakeClient, verb: str, *args: Any, **kwargs: Any) -> Any:
        body = kwargs.get("body") or {}
        if verb == "delete":
            kwargs["body"] = {k: v for k, v in body.items() if k != "preconditions"}
        if verb == "patch":
            meta = body.get("metadata") or {}
            bare_meta = {k: v for k, v in meta.items() if k not in ("uid", "resourceVersion")}
            kwargs["body"] = {**body, "metadata": bare_meta}
        return call(self, verb, *args, **kwargs)

    patch.setattr(FakeClient, "_call", bare)


def against_the_mirror(patch: pytest.MonkeyPatch) -> None:
    """What changed is told by the mirror's own values, as if nothing were on record."""

    def there(mirror: JsonObject) -> dict[Part, Any]:
        spec = spec_of(mirror)
        return changeable(spec, tolerations=spec.get("tolerations") or ())

    patch.setattr(updates, "parse_applied", there)


def uninstalls_go_unseen(patch: pytest.MonkeyPatch) -> None:
    state = Ground.anchor_state

    def unseen(self: Ground, namespace: str) -> AnchorState:
        known = state(self, namespace)
        return AnchorState.PRESENT if known is AnchorState.GONE else known

    patch.setattr(Ground, "anchor_state", unseen)


class NeverRaised(ClusterError):
    pass


# --- which history misses them --------------------------------------------------------------------

CREATE = (Act("hub_create", "a", "Never"), 2.0)
RUN: History = [CREATE, (Act("play", "a", "Running"), 1.0)]
LATE_CREATE: History = [
    (Act("fault", "b", "late", 4), 0.0),  # the create of the mirror
    (Act("hub_create", "a", "Never"), 1.0),
    (Act("outage", "a"), 0.0),
    (Act("target_vanish", "a"), 5.0),
    (Act("outage", "a"), 5.0),
]
TWO_LEADERS: History = [
    CREATE,
    (Act("fault", "a", "stop unnoticed"), 6.0),  # any call: it is stopped with all it knows
]

VARIANTS: dict[str, Variant] = {
    "a mirror is born gated": Variant(
        broken=born_free, history=[CREATE], found="was not born gated"
    ),
    "a mirror is let go when it is on record": Variant(
        broken=let_go_before_the_record, history=[CREATE], found="is not the one on record"
    ),
    "a mirror on record is let go": Variant(
        broken=put(plan, "is_gated", lambda _pod: False), history=[CREATE], found="was not let go"
    ),
    "intent before deed": Variant(
        broken=no_intent, history=[CREATE], found="without an intent on record"
    ),
    "a second mirror is deleted": Variant(
        broken=put(plan, "_plan_second_run", nothing),
        history=LATE_CREATE,
        found="does not remember its mirror",
    ),
    "a record is never changed": Variant(
        broken=record_moves_to_the_second, history=LATE_CREATE, found="on record, and has"
    ),
    "orphans are deleted": Variant(
        broken=put(plan, "_plan_orphans", nothing),
        history=[*RUN, (Act("hub_delete", "a", number=0), 1.0)],
        found="orphan mirror",
    ),
    "an orphan is confirmed on the hub": Variant(
        broken=orphans_unconfirmed,
        history=[
            *TWO_LEADERS,
            (Act("watches", "a", "stall"), 0.0),
            (Act("hub_create", "b", "Never"), 45.0),
            (Act("watches", "a", "catch up"), 1.0),
        ],
        found="the mirror of the living default/b was deleted",
    ),
    "a loss is confirmed in the target": Variant(
        broken=loss_unconfirmed,
        history=[
            *TWO_LEADERS,
            (Act("watches", "b", "stall"), 0.0),
            (Act("hub_create", "b", "Never"), 45.0),
            (Act("watches", "b", "catch up"), 1.0),
        ],
        found="said to have ended while its mirror lives",
    ),
    "a predecessor's mirror is deleted": Variant(
        broken=put(plan, "_plan_predecessor", nothing),
        history=[
            *RUN,
            (Act("hub_delete", "a", number=0), 0.0),
            (Act("hub_create", "a", "Never"), 3.0),
        ],
        found="has no mirror and says nothing",
    ),
    "the mirror goes before its hub pod": Variant(
        broken=put(plan, "_plan_ending_mirror", hub_pod_first),
        history=[*RUN, (Act("hub_delete", "a", number=30), 1.0)],
        found="was removed before its mirror",
    ),
    "a mirror gets its hub pod's grace": Variant(
        broken=put(plan, "_mirror_grace", lambda _hub_pod: 0),
        history=[*RUN, (Act("hub_delete", "a", number=30), 1.0)],
        found="was removed without a grace",
    ),
    "a shortened grace is shortened": Variant(
        broken=put(plan, "grace_seconds_of", lambda _pod: None),
        history=[*RUN, (Act("hub_delete", "a", number=7), 1.0)],
        found="instead of 7",
    ),
    "a hub pod follows a mirror that is deleted in the target": Variant(
        broken=put(plan, "_plan_disrupted", nothing),
        history=[*RUN, (Act("target_evict", "a"), 5.0)],
        found="has no mirror and says nothing",
    ),
    "an uninstall leaves hub pods alone": Variant(
        broken=uninstalls_go_unseen,
        history=[*RUN, (Act("target_uninstall"), 0.3), (Act("controllers"), 2.0)],
        found="did not end as it must",
        ends=lambda world: world.hub_pod(A) is not None,
    ),
    "what is not ours is left alone": Variant(
        broken=everything_is_ours,
        history=[(Act("hub_create", "b", "Never"), 2.0), (Act("target_foreign", "a"), 0.0), CREATE],
        found="federate wrote the foreign pod",
    ),
    "terminal is for ever": Variant(
        broken=terminal_is_not_for_ever,
        history=[*RUN, (Act("hub_fail", "a"), 1.0)],
        found="went from Failed to Running",
    ),
    "a late delete meets its mirror or nothing": Variant(
        broken=no_preconditions,
        history=[
            *RUN,
            (Act("fault", "b", "very late"), 0.0),  # the delete of the orphan
            (Act("hub_delete", "a", number=0), 5.0),
            (Act("hub_create", "a", "Never"), 30.0),
        ],
        found="the mirror of the living default/a was deleted",
    ),
    "a late status meets its version or nothing": Variant(
        broken=no_preconditions,
        history=[
            CREATE,
            (Act("fault", "a", "very late"), 0.0),  # the status `Running`
            (Act("play", "a", "Running"), 5.0),
            (Act("hub_fail", "a"), 30.0),
        ],
        found="went from Failed to Running",
        is_brisk=False,
    ),
    "who leads no more writes no more": Variant(
        broken=put(Round, "_fence", lambda _self: None),
        history=[
            *RUN,
            (Act("outage", "b"), 0.0),  # or its successor would delete the orphan first
            (Act("fault", "a", "stop"), 0.0),  # while it asks for the hub pod of the orphan
            (Act("hub_delete", "a", number=0), 22.0),
            (Act("outage", "b"), 60.0),
        ],
        found="who knows that another leads wrote",
    ),
    "a mirror's end outranks its loss": Variant(
        broken=put(PodMemories, "note_end", lambda *_args, **_kwargs: None),
        history=[
            *RUN,
            (Act("watches", "b", "stall"), 0.3),
            (Act("play", "a", "Succeeded"), 0.3),
            (Act("target_vanish", "a"), 0.3),
            (Act("watches", "b", "catch up"), 1.0),
        ],
        found="did not end as it must",
        ends=lambda world: phase_of(world.hub_pod(A) or {}) == "Succeeded",
    ),
    "both sides are read anew behind the watches": Variant(
        broken=put(Mirroring, "_verify", never),
        history=[CREATE, (Act("watches", "b", "swallow"), 0.0), (Act("play", "a", "Running"), 1.0)],
        found="is Pending, its mirror Running",
        is_brisk=False,
    ),
    "both stores are compared behind the events": Variant(
        given=put(PodReconciler, "on_mirror", lambda _self, _change: None),
        broken=put(Mirroring, "_compare", never),
        history=RUN,
        found="is Pending, its mirror Running",
        is_brisk=False,
    ),
    "an expired watch begins with a list": Variant(
        broken=put(reflector, "Expired", NeverRaised),
        history=[
            CREATE,
            (Act("target_foreign", "b"), 0.3),  # a version that our watch never sees
            (Act("watches", "b", "compact"), 0.0),
            (Act("play", "a", "Running"), 1.0),
        ],
        found="is Pending, its mirror Running",
        is_brisk=False,
        with_nets=False,
    ),
    "a change of the spec is taken over": Variant(
        broken=put(upkeep, "pending_updates", lambda *_args: ()),
        history=[*RUN, (Act("hub_update", "a", "image"), 1.0)],
        found="has the image app:1",
    ),
    "what was applied is on record": Variant(
        broken=against_the_mirror,
        history=[
            *RUN,
            (Act("target_mutates", "a"), 1.0),
            (Act("hub_update", "a", "toleration"), 1.0),
        ],
        found="against the target's will",
    ),
    "a late update meets its version or nothing": Variant(
        broken=no_preconditions,
        history=[
            *RUN,
            (Act("fault", "b", "very late"), 0.0),  # the image app:1
            (Act("hub_update", "a", "image"), 5.0),
            (Act("hub_update", "a", "image"), 30.0),
        ],
        found="went back to app:1",
    ),
    "an empty namespace is given back": Variant(
        broken=put(Sweeper, "run", never),
        history=[*RUN, (Act("namespace_goes", "a"), 1.0)],
        found="was not given back",
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_mechanism_taken_out_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history is lawful with the mechanism, and is not without it."""
    variant = VARIANTS[name]
    if variant.given is not None:
        variant.given(monkeypatch)
    variant.live()
    variant.broken(monkeypatch)
    with pytest.raises(AssertionError, match=variant.found):
        variant.live()

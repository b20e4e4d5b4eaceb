"""Laws of companions: no foreign name survives, nobody's object is touched, all comes to rest.

The world of the last laws is an API server in small: it refuses what a real one refuses, and every
request says which version it is for.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from federate.companions.downward import escaped
from federate.companions.entries import is_made_with
from federate.companions.keys import (
    CompanionKey,
    Kind,
    companion_name,
    companion_of,
    hub_names,
    in_hub_words,
    name_of,
)
from federate.companions.places import PLACES
from federate.companions.plan import plan_companion
from federate.companions.references import references_of, unsupported_of, wants_of
from federate.companions.rewrite import renaming, with_companion_names
from federate.companions.steps import (
    CompanionView,
    ConfirmUnwanted,
    CreateCompanion,
    DeleteCompanion,
    Enlist,
    Ground,
    LookUpCompanion,
    LookUpHubObject,
    PatchCompanion,
    PrepareGround,
    Rest,
    Standing,
    Step,
    Strike,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey, metadata_of
from tests.support.companions import (
    ANCHOR,
    TARGET_NAMESPACE,
    companion,
    entry_for,
    hub_object,
    key_for,
    merged,
    naming_fragment,
)
from tests.support.strategic import apply_merge_patch
from tests.support.views import OTHER_SCOPE, SCOPE

LAW = settings(max_examples=60, deadline=None)
LONG_LAW = settings(max_examples=200, deadline=None)
"""Two thousand examples each were run when the plan was written."""

ANY_NAME = st.one_of(
    st.sampled_from(["db", "kube-root-ca.crt", "default", "..", "a/b", "foreign-secret"]),
    st.text(min_size=1, max_size=60),
)
RENAME = renaming(SCOPE, "default")


# -- names -----------------------------------------------------------------------------------------


@st.composite
def specs(draw: st.DrawFn) -> JsonDict:
    """A spec that names objects in any of the places, as often as it likes."""
    named = draw(st.lists(st.tuples(st.sampled_from(PLACES), ANY_NAME), max_size=8))
    optional = {"optional": True} if draw(st.booleans()) else {}
    return merged([naming_fragment(place, name, **optional) for place, name in named])


def names_in(spec: JsonObject) -> list[str]:
    return [reference.name for reference in references_of(spec)]


@LAW
@given(spec=specs())
def test_no_foreign_name_survives_rewriting(spec: JsonDict) -> None:
    """Every name in a mirror is a generated one, of this virtual node and that hub namespace."""
    generated = {RENAME(r.kind, r.name) for r in references_of(spec)}
    renamed = with_companion_names(spec, RENAME)
    assert set(names_in(renamed)) == generated
    assert generated.isdisjoint(names_in(spec))
    assert unsupported_of(renamed) == ()


@LAW
@given(spec=specs())
def test_rewriting_changes_names_and_nothing_else(spec: JsonDict) -> None:
    """With every name put back it is the same spec; the one that was given is untouched."""
    before = copy.deepcopy(spec)
    back = {(r.kind, RENAME(r.kind, r.name)): r.name for r in references_of(spec)}
    renamed = with_companion_names(spec, RENAME)
    assert with_companion_names(renamed, lambda kind, name: back[kind, name]) == before == spec


@LAW
@given(spec=specs())
def test_what_a_pod_wants_is_what_its_mirror_uses(spec: JsonDict) -> None:
    """Hub pod and mirror agree on the companions, so neither can be forgotten by the other."""
    hub_pod = {"metadata": {"namespace": "default"}, "spec": spec}
    wanted = {(key.kind, name_of(SCOPE, key)) for key in wants_of(hub_pod, TARGET_NAMESPACE)}
    used = {
        (r.kind, ObjectKey(TARGET_NAMESPACE, r.name))
        for r in references_of(with_companion_names(spec, RENAME))
    }
    assert wanted == used


IDENTITIES = st.tuples(
    st.sampled_from([SCOPE, OTHER_SCOPE]),
    st.sampled_from(Kind),
    st.builds(ObjectKey, st.sampled_from(["default", "prod"]), ANY_NAME),
)


@LONG_LAW
@given(a=IDENTITIES, b=IDENTITIES)
@example(
    a=(SCOPE, Kind.SECRET, ObjectKey("default", "a.b")),
    b=(SCOPE, Kind.SECRET, ObjectKey("default", "a-b")),
)
def test_names_are_injective(a: Any, b: Any) -> None:
    """Two objects never meet in one companion."""
    assert (companion_name(*a) == companion_name(*b)) == (a == b)


@LAW
@given(names=st.lists(ANY_NAME, min_size=1, max_size=4, unique=True), kind=st.sampled_from(Kind))
def test_whatever_a_kubelet_says_is_put_back_into_the_hubs_words(
    names: list[str], kind: Kind
) -> None:
    """Also where names are odd, or look like other names."""
    keys = [key_for(kind, name) for name in names]
    said = "; ".join(f'{kind} "{name_of(SCOPE, key).name}" not found' for key in keys)
    told = "; ".join(f'{kind} "{name}" not found' for name in names)
    assert in_hub_words(said, hub_names(SCOPE, keys)) == told


# -- the environment -------------------------------------------------------------------------------


def expand(text: str, variables: dict[str, str]) -> str:
    """What a kubelet makes of a value: `$$` is `$`, `$(VAR)` its value or itself."""
    told, at = "", 0
    while at < len(text):
        end = text.find(")", at + 2)
        if text.startswith("$$", at):
            told, at = told + "$", at + 2
        elif text.startswith("$(", at) and end >= 0:
            name = text[at + 2 : end]
            told, at = told + variables.get(name, f"$({name})"), end + 1
        else:
            told, at = told + text[at], at + 1
    return told


@LAW
@given(text=st.text(alphabet="$()ab", max_size=12), value=st.text(max_size=3))
def test_a_literal_is_read_as_it_was_meant(text: str, value: str) -> None:
    """Whatever variables there are."""
    assert expand(escaped(text), {"a": value, "b": value, "": value}) == text


VARIABLES = st.dictionaries(st.sampled_from("ABCDE"), st.sampled_from(["1", "2", "$(A)", "$(B)x"]))


def environment(
    sources: list[dict[str, str]], env: dict[str, str], services: dict[str, str]
) -> dict[str, str]:
    """What a kubelet makes of `envFrom`, `env` and Services."""
    told: dict[str, str] = {}
    for source in sources:
        told.update(source)
    for name, value in env.items():
        told[name] = expand(value, {**services, **told})
    return {**services, **told}


@LAW
@given(
    sources=st.lists(VARIABLES, max_size=3),
    env=VARIABLES,
    services=st.dictionaries(st.sampled_from("ABCDEF"), st.sampled_from("xy")),
    target=st.dictionaries(st.sampled_from("ABCDEF"), st.sampled_from("zw")),
)
def test_services_as_the_first_source_are_as_a_kubelet_tells_them(
    sources: list[dict[str, str]],
    env: dict[str, str],
    services: dict[str, str],
    target: dict[str, str],
) -> None:
    """The same environment as on the hub, in spite of what the target's kubelet tells itself."""
    assume(target.keys() <= services.keys())
    assert environment([services, *sources], env, target) == environment(sources, env, services)


# -- one companion in a world ----------------------------------------------------------------------


@dataclass(slots=True)
class World:
    """A hub object, and what stands in the target under its companion's name."""

    key: CompanionKey
    hub: JsonDict | None
    target: JsonDict | None
    is_wanted: bool
    entry: JsonDict | None
    ground: Ground
    version: int = 100
    reads: set[str] = field(default_factory=set)

    def view(self) -> CompanionView:
        return CompanionView(
            key=self.key,
            scope=SCOPE,
            hub_object=self.hub if "hub" in self.reads else None,
            hub_fresh="hub" in self.reads,
            companion=self.target if "target" in self.reads else None,
            companion_fresh="target" in self.reads,
            is_wanted=self.is_wanted,
            has_hub_pod=self.is_wanted,
            unwanted_fresh="unwanted" in self.reads,
            ground=self.ground,
            anchor=ANCHOR if self.ground is Ground.READY else None,
            entry=self.entry if self.reads & {"target", "entry"} else None,
            entry_fresh="entry" in self.reads,
            is_held="written" in self.reads,
            target_name="berlin",
        )

    def carry_out(self, step: Step) -> None:
        match step:
            case LookUpHubObject():
                self.reads.add("hub")
            case LookUpCompanion():
                self.reads.add("target")
            case ConfirmUnwanted():
                self.reads.add("unwanted")
            case PrepareGround():
                self.ground = Ground.READY
            case Enlist():
                self._enlist()
            case Strike(entry=entry):
                assert self.target is None
                assert entry == self.entry
                self.entry = None
            case CreateCompanion(body=body):
                assert self.target is None
                assert self.key.kind is Kind.CONFIGMAP or is_made_with(self.entry, body)
                self._store(body)
            case PatchCompanion(patch=patch):
                self._patch(patch.body)
            case DeleteCompanion():
                self._delete(step)
            case Rest():
                raise AssertionError("the law stops here")

    def has_ours(self) -> bool:
        if self.target is None:
            return False
        is_marked = companion_of(SCOPE, self.target) == self.key
        return is_marked or is_made_with(self.entry, self.target)

    def _enlist(self) -> None:
        """Whoever struck the entry under the version that it had comes too late."""
        self.version += 1
        if self.entry is None:
            self.entry = entry_for(self.key)
            self.entry["metadata"]["uid"] = f"entry-{self.version}"
        metadata = {**self.entry["metadata"], "resourceVersion": str(self.version)}
        self.entry = {**self.entry, "metadata": metadata}
        self.reads.add("entry")

    def _store(self, obj: JsonObject) -> None:
        self.version += 1
        self.reads.add("written")
        self.target = copy.deepcopy(dict(obj))
        self.target["metadata"]["resourceVersion"] = str(self.version)
        self.target["metadata"].setdefault("uid", f"made-{self.version}")

    def _patch(self, body: JsonObject) -> None:
        assert self.target is not None
        assert self.has_ours()
        for name in ("uid", "resourceVersion"):
            assert body["metadata"][name] == self.target["metadata"][name]
        after = apply_merge_patch(self.target, body)
        if self.target.get("immutable"):
            for name in ("data", "binaryData", "immutable"):
                assert (after.get(name) or {}) == (self.target.get(name) or {})
        assert after.get("type") == self.target.get("type")
        assert not set(after.get("data") or {}) & set(after.get("binaryData") or {})
        assert sum(bool(o.get("controller")) for o in after["metadata"]["ownerReferences"]) == 1
        self._store(after)

    def _delete(self, step: DeleteCompanion) -> None:
        assert self.target is not None
        assert self.has_ours()
        metadata = metadata_of(self.target)
        assert (step.uid, step.resource_version) == (metadata["uid"], metadata["resourceVersion"])
        if metadata.get("finalizers"):
            self._store({**self.target, "metadata": {**metadata, "deletionTimestamp": "x"}})
        else:
            self.target = None


VALUES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["AA==", "AQ=="]), max_size=3)


@st.composite
def hub_objects(draw: st.DrawFn, key: CompanionKey) -> JsonDict:
    data = draw(VALUES)
    fields: JsonDict = {"data": data}
    if key.kind is Kind.SECRET:
        fields["type"] = draw(
            st.sampled_from(["Opaque", "kubernetes.io/tls", "kubernetes.io/service-account-token"])
        )
    elif draw(st.booleans()):
        fields["binaryData"] = {k: v for k, v in draw(VALUES).items() if k not in data}
    if draw(st.booleans()):
        fields["immutable"] = draw(st.booleans())
    return hub_object(key, {}, **fields)


@st.composite
def there(draw: st.DrawFn, key: CompanionKey) -> JsonDict | None:
    """What may stand in the target: nothing, ours of another time, edited, or somebody else's."""
    kind = draw(st.sampled_from(["nothing", "ours", "theirs", "unmarked"]))
    if kind == "nothing":
        return None
    scope = OTHER_SCOPE if kind == "theirs" else SCOPE
    made = companion(key, draw(hub_objects(key)), scope=scope)
    made["metadata"]["name"] = name_of(SCOPE, key).name
    if kind == "unmarked":
        made["metadata"]["labels"] = {}
    if draw(st.booleans()):
        made["metadata"]["labels"]["theirs"] = "1"
    if draw(st.booleans()):
        made["metadata"]["finalizers"] = ["example.com/x"]
    if draw(st.booleans()):
        others = [{"kind": "Pod", "name": "p", "uid": "u"}]
        made["metadata"]["ownerReferences"] = others if draw(st.booleans()) else []
    if draw(st.booleans()) and made["metadata"].get("finalizers"):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


@st.composite
def worlds(draw: st.DrawFn) -> World:
    name = draw(st.sampled_from(["db", "kube-root-ca.crt", "../x"]))
    key = key_for(draw(st.sampled_from(Kind)), name)
    hub = draw(st.none() | hub_objects(key)) if key.can_exist else None
    target = draw(there(key)) if key.can_exist else None
    is_listed = draw(st.booleans()) and key.kind is Kind.SECRET
    return World(
        key=key,
        hub=hub,
        target=target,
        is_wanted=draw(st.booleans()),
        entry=entry_for(key) if is_listed and key.can_exist else None,
        ground=draw(st.sampled_from(Ground)),
    )


MOST_STEPS = 12


def come_to_rest(world: World, crash_at: int = -1) -> Rest:
    """Plan and carry out, and forget once everything that was read: somebody new goes on."""
    for number in range(MOST_STEPS):
        if number == crash_at:
            world.reads.clear()
        step = plan_companion(world.view())
        assert plan_companion(world.view()) == step
        if isinstance(step, Rest):
            return step
        world.carry_out(step)
    raise AssertionError("it does not come to rest")


def contents(obj: JsonObject) -> str:
    values = [obj.get(name) or {} for name in ("data", "binaryData")]
    return json.dumps([values, bool(obj.get("immutable"))], sort_keys=True)


@LONG_LAW
@given(world=worlds(), crash_at=st.integers(-1, MOST_STEPS))
def test_a_companion_comes_to_rest_as_it_ought_to_be(world: World, crash_at: int) -> None:
    """From any state, with a crash anywhere: settled is the same, absent is gone, and nothing that
    is not ours is touched."""
    was, was_ours = copy.deepcopy(world.target), world.has_ours()
    uninstalled = world.ground is Ground.UNINSTALLED
    end = come_to_rest(world, crash_at)
    if not was_ours and was is not None:
        assert world.target == was
        return
    if world.is_wanted and world.hub is not None:
        _check_wanted(world, end, world.hub, uninstalled=uninstalled)
    else:
        assert end.standing is Standing.ABSENT
        assert world.target is None or world.target["metadata"]["deletionTimestamp"]
        assert world.target is not None or world.entry is None
    assert isinstance(plan_companion(world.view()), Rest)


def _check_wanted(world: World, end: Rest, hub: JsonObject, *, uninstalled: bool) -> None:
    if end.standing is Standing.BLOCKED:
        assert end.blocked is not None
        assert uninstalled or metadata_of(world.target or {}).get("deletionTimestamp")
        return
    assert end.standing is Standing.SETTLED
    assert world.target is not None
    assert contents(world.target) == contents(hub)
    assert world.key.kind is Kind.CONFIGMAP or is_made_with(world.entry, world.target)


@LAW
@given(world=worlds(), data=st.data())
def test_a_companion_follows_its_hub_object(world: World, data: st.DataObject) -> None:
    """Changes of values, type and immutability, deletions and returns reach the target."""
    assume(world.target is None or world.has_ours())
    assume(not metadata_of(world.target or {}).get("finalizers"))
    world.ground, world.is_wanted = Ground.READY, True
    for _ in range(3):
        come_to_rest(world)
        world.reads.clear()
        world.hub = data.draw(st.none() | hub_objects(world.key)) if world.key.can_exist else None
        end = come_to_rest(world)
        if world.hub is None:
            assert (end.standing, world.target) == (Standing.ABSENT, None)
        else:
            _check_wanted(world, end, world.hub, uninstalled=False)

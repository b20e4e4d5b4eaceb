"""Laws of the three-way merge, on random objects with every kind of list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.model.objects import JsonDict
from federate.patch.document import merge_patch, strategic_patch
from federate.patch.listkeys import OPEN_MAPS, POD, ListKind
from federate.patch.threeway import apply_edits, merge
from tests.support.strategic import apply_merge_patch, apply_strategic_patch

LAW = settings(max_examples=40, deadline=None)
"""Objects are large; a thousand examples each were run when the merge was written."""

VALUES = st.sampled_from(["1", "2", "3"])


def open_map(names: str) -> st.SearchStrategy[JsonDict]:
    return st.dictionaries(st.sampled_from(list(names)), VALUES, max_size=3)


def keyed(key: str, names: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    element = st.fixed_dictionaries({key: st.sampled_from(list(names))}, optional=fields)
    return st.lists(element, max_size=3, unique_by=lambda e: str(e[key]))


def pods(names: str = "abc") -> st.SearchStrategy[JsonDict]:
    """Pods whose map keys, element names and set values come from `names`."""
    metadata = st.fixed_dictionaries(
        {"name": st.just("x")},
        optional={
            "labels": open_map(names),
            "finalizers": st.lists(st.sampled_from(list(names)), max_size=3, unique=True),
            "ownerReferences": keyed("uid", names, name=VALUES),
        },
    )
    port = st.fixed_dictionaries(
        {"containerPort": st.sampled_from([80, 81]), "protocol": st.sampled_from(["TCP", "UDP"])},
        optional={"name": VALUES},
    )
    ports = st.lists(
        port, max_size=3, unique_by=lambda p: (str(p["containerPort"]), str(p["protocol"]))
    )
    container = {
        "image": VALUES,
        "env": keyed("name", names, value=VALUES),
        "args": st.lists(VALUES, max_size=2),
        "ports": ports,
        "resources": st.fixed_dictionaries({}, optional={"limits": open_map(names)}),
    }
    volume = {
        "emptyDir": st.fixed_dictionaries({}, optional={"sizeLimit": VALUES}),
        "hostPath": st.fixed_dictionaries({"path": VALUES}),
    }
    spec = st.fixed_dictionaries(
        {"x": st.just(1)},
        optional={
            "containers": keyed("name", names, **container),
            "volumes": keyed("name", names, **volume),
        },
    )
    status = st.fixed_dictionaries(
        {},
        optional={
            "phase": VALUES,
            "conditions": keyed("type", names, status=VALUES, message=VALUES),
            "podIPs": keyed("ip", names),
            "containerStatuses": keyed("name", names, image=VALUES),
        },
    )
    return st.fixed_dictionaries({"metadata": metadata}, optional={"spec": spec, "status": status})


def edited(base: JsonDict, ours: JsonDict, theirs: JsonDict) -> JsonDict:
    return apply_edits(theirs, merge(base, ours, theirs, lists=POD))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def plain(value: Any, path: tuple[str, ...] = ()) -> Any:
    """The value up to what makes no difference: order of keyed lists and sets, emptiness."""
    if isinstance(value, Mapping):
        fields = {k: plain(v, (*path, k)) for k, v in value.items()}
        return {
            k: v
            for k, v in fields.items()
            if v is not None and v != [] and not (v == {} and k in OPEN_MAPS)
        }
    if isinstance(value, list):
        items = [plain(v, path) for v in value]
        return items if POD.rule(path).kind is ListKind.ATOMIC else sorted(items, key=_text)
    return value


def atoms(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Every leaf by its path; elements of keyed lists and sets are steps, atomic lists leaves."""
    if isinstance(value, Mapping):
        found: dict[tuple[Any, ...], Any] = {}
        for name, child in value.items():
            found |= atoms(child, (*path, name))
        return found
    rule = POD.rule(tuple(p for p in path if isinstance(p, str)))
    if not isinstance(value, list) or rule.kind is ListKind.ATOMIC:
        return {path: value} if value != [] else {}
    if rule.kind is ListKind.SET:
        return {(*path, (item,)): item for item in value}
    found = {}
    for item in value:
        found |= atoms(item, (*path, rule.identity(item)))
    return found


def shuffled(value: Any, draw: Any, path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Mapping):
        return {k: shuffled(v, draw, (*path, k)) for k, v in value.items()}
    if isinstance(value, list):
        items = [shuffled(v, draw, path) for v in value]
        atomic = POD.rule(path).kind is ListKind.ATOMIC
        return items if atomic else draw(st.permutations(items))
    return value


@LAW
@given(pods(), pods())
def test_nothing_changed_gives_no_edits(base: JsonDict, ours: JsonDict) -> None:
    """What is as we want it gets no edits and no conflicts, whatever it was."""
    edits = merge(base, ours, ours, lists=POD)
    assert not edits
    assert not edits.conflicts
    assert strategic_patch(edits) is None


@LAW
@given(pods(), pods(), pods())
def test_merging_again_gives_no_edits(base: JsonDict, ours: JsonDict, theirs: JsonDict) -> None:
    """After the edits nothing is left to do, whichever base is remembered; inputs stay."""
    inputs = deepcopy((base, ours, theirs))
    result = edited(base, ours, theirs)
    assert not merge(base, ours, result, lists=POD)
    assert not merge(ours, ours, result, lists=POD)
    assert (base, ours, theirs) == inputs


@LAW
@given(pods(), pods(), pods())
def test_ours_is_there_and_foreign_fields_survive(
    base: JsonDict, ours: JsonDict, theirs: JsonDict
) -> None:
    """The result has all of ours, and of theirs all that base did not have, unless ours says so."""
    result = atoms(edited(base, ours, theirs))
    wanted, known, there = atoms(ours), atoms(base), atoms(theirs)
    assert result | wanted == result
    for path, value in there.items():
        under_dropped_element = any(
            is_element(path, i)
            and prefix_in(known, path[: i + 1])
            and not prefix_in(wanted, path[: i + 1])
            for i in range(len(path))
        )
        if path not in wanted and path not in known and not under_dropped_element:
            assert result.get(path) == value, path
    for path in result:
        assert path in wanted or path in there


def is_element(path: tuple[Any, ...], at: int) -> bool:
    return isinstance(path[at], tuple)


def prefix_in(found: dict[tuple[Any, ...], Any], prefix: tuple[Any, ...]) -> bool:
    return any(path[: len(prefix)] == prefix for path in found)


@LAW
@given(pods(), pods(), pods())
def test_dropped_fields_go_only_if_they_were_in_base(
    base: JsonDict, ours: JsonDict, theirs: JsonDict
) -> None:
    """What base had and ours lacks is gone from the result."""
    result, wanted = atoms(edited(base, ours, theirs)), atoms(ours)
    for path in atoms(base):
        if path not in wanted:
            assert path not in result


@LAW
@given(pods("ab"), pods("ab"), pods("cd"), pods("cd"), pods("abcd"))
def test_disjoint_edits_commute(
    base1: JsonDict, ours1: JsonDict, base2: JsonDict, ours2: JsonDict, theirs: JsonDict
) -> None:
    """Two writers with different keys may go in either order."""
    shared = ("args", "image", "phase", "podIPs", "containerStatuses", "x")

    def own(pod: JsonDict) -> JsonDict:
        copy = {k: v for k, v in deepcopy(pod).items() if k != "spec"}
        status = copy.setdefault("status", {})  # the map itself belongs to both
        for name in shared:
            status.pop(name, None)
        return copy

    first = merge(own(base1), own(ours1), theirs, lists=POD)
    second = merge(own(base2), own(ours2), theirs, lists=POD)
    one = apply_edits(apply_edits(theirs, first), second)
    two = apply_edits(apply_edits(theirs, second), first)
    assert plain(one) == plain(two)


@LAW
@given(pods(), pods(), pods(), st.data())
def test_order_of_keyed_lists_and_sets_is_nothing(
    base: JsonDict, ours: JsonDict, theirs: JsonDict, data: st.DataObject
) -> None:
    """Shuffled inputs give the same result, and a shuffle alone gives no edits."""
    mixed = [shuffled(pod, data.draw) for pod in (base, ours, theirs)]
    assert plain(edited(base, ours, theirs)) == plain(edited(*mixed))
    assert not merge(base, ours, shuffled(ours, data.draw), lists=POD)


@LAW
@given(pods(), pods(), pods())
def test_a_server_makes_of_the_patch_what_we_make_of_the_edits(
    base: JsonDict, ours: JsonDict, theirs: JsonDict
) -> None:
    """The strategic patch, applied by an independent twin of the server, is the edits applied."""
    edits = merge(base, ours, theirs, lists=POD)
    patch = strategic_patch(edits, resource_version="7")
    served = apply_strategic_patch(theirs, patch.body, kind="Pod") if patch else theirs
    served = {**served, "metadata": dict(served["metadata"])}
    served["metadata"].pop("resourceVersion", None)
    assert plain(served) == plain(apply_edits(theirs, edits))


@LAW
@given(open_map("abc"), open_map("abc"), open_map("abc"))
def test_a_merge_patch_of_maps_is_the_edits_applied(
    base: JsonDict, ours: JsonDict, theirs: JsonDict
) -> None:
    """Labels travel as an RFC 7386 patch just as well."""
    old, new, there = ({"metadata": {"name": "x", "labels": m}} for m in (base, ours, theirs))
    edits = merge(old, new, there, lists=POD)
    patch = merge_patch(edits)
    served = apply_merge_patch(there, patch.body) if patch else there
    assert plain(served) == plain(apply_edits(there, edits))


@LAW
@given(pods(), pods(), pods())
def test_conflicts_are_changes_of_both(base: JsonDict, ours: JsonDict, theirs: JsonDict) -> None:
    """A conflict has three different values, and a side that changed nothing has none."""
    for conflict in merge(base, ours, theirs, lists=POD).conflicts:
        assert conflict.base != conflict.ours
        assert conflict.base != conflict.theirs
    assert not merge(base, base, theirs, lists=POD).conflicts
    assert not merge(base, ours, base, lists=POD).conflicts

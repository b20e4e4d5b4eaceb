"""The three-way merge by example; the laws are in tests/laws/test_threeway_laws.py."""

from __future__ import annotations

from typing import Any

import pytest

from federate.patch.edits import (
    AddToSet,
    Conflict,
    Edits,
    Element,
    Remove,
    RemoveFromSet,
    ReplaceList,
    SetValue,
)
from federate.patch.listkeys import NODE, POD
from federate.patch.threeway import apply_edits, merge

READY = {"type": "Ready", "status": "True"}
OURS_TAINT = {"key": "virtual-kubelet.io/provider", "value": "federate", "effect": "NoSchedule"}
THEIR_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def conditions(*items: Any) -> dict[str, Any]:
    return {"status": {"conditions": list(items)}}


def taints(*items: Any) -> dict[str, Any]:
    return {"spec": {"taints": list(items)}}


def labels(**items: str) -> dict[str, Any]:
    return {"metadata": {"labels": items}}


def merged(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], lists: Any = POD
) -> dict[str, Any]:
    return apply_edits(theirs, merge(base, ours, theirs, lists=lists))


# --- maps and scalars ---------------------------------------------------------------------------


def test_only_our_changes_are_edits() -> None:
    """A changed field is set, a dropped one removed, foreign ones survive."""
    edits = merge(labels(a="1", b="1"), labels(a="2"), labels(a="1", b="1", c="1"), lists=POD)
    assert edits.edits == (
        SetValue(path=("metadata", "labels", "a"), value="2"),
        Remove(path=("metadata", "labels", "b")),
    )
    assert list(edits) == list(edits.edits)
    assert not edits.needs_resource_version


def test_what_base_did_not_have_is_not_removed() -> None:
    """A field that ours lacks survives unless base had it."""
    assert not merge({}, {}, labels(a="1"), lists=POD)
    assert not merge(labels(a="1"), {}, {}, lists=POD)


def test_null_and_empty_equal_absent() -> None:
    """Null, an empty list and an empty map with free keys make no edits."""
    ours: dict[str, Any] = {"metadata": {"labels": {}, "finalizers": [], "creationTimestamp": None}}
    assert not merge({}, ours, {"metadata": {"name": "x"}}, lists=POD)
    assert not merge({}, {"metadata": {}}, ours, lists=POD)


def test_an_empty_map_without_free_keys_counts() -> None:
    """`emptyDir: {}` is set and removed like any value."""
    volume = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    bare = {"spec": {"volumes": [{"name": "v"}]}}
    path = ("spec", "volumes", Element("name", "v"), "emptyDir")
    assert merge(bare, volume, bare, lists=POD).edits == (SetValue(path=path, value={}),)
    assert merge(volume, bare, volume, lists=POD).edits == (Remove(path=path),)


def test_a_map_of_ours_is_removed_whole_when_nothing_else_is_in_it() -> None:
    """A dropped map goes away as a whole; with foreign keys in it only our keys go."""
    base = {"spec": {"x": {"limit": "1", "deep": {"a": 1}}, "y": 1}}
    ours = {"spec": {"y": 1}}
    assert merge(base, ours, base, lists=POD).edits == (Remove(path=("spec", "x")),)
    theirs = {"spec": {"x": {"limit": "1", "deep": {"a": 1}, "foreign": 1}, "y": 1}}
    assert merged(base, ours, theirs) == {"spec": {"x": {"foreign": 1}, "y": 1}}


def test_a_map_with_free_keys_is_never_removed_whole() -> None:
    """Dropping all labels removes them one by one: someone may be adding another."""
    edits = merge(labels(a="1"), {}, labels(a="1") | {"kind": "Pod"}, lists=POD)
    assert edits.edits == (Remove(path=("metadata",)),)
    named = {"metadata": {"name": "x", "labels": {"a": "1"}}}
    edits = merge(labels(a="1"), {}, named, lists=POD)
    assert edits.edits == (Remove(path=("metadata", "labels", "a")),)


def test_types_may_change() -> None:
    """A map may take the place of a scalar, and a scalar that of a map."""
    assert merged({}, {"a": {"b": 1}}, {"a": 1}) == {"a": {"b": 1}}
    assert merged({}, {"a": 1}, {"a": {"b": 1}}) == {"a": 1}
    assert merged({"a": {"b": 1}}, {}, {"a": 1}) == {}
    assert merged({"a": [1]}, {}, {"a": 1}) == {}


# --- lists --------------------------------------------------------------------------------------


def test_keyed_elements_merge_one_by_one() -> None:
    """Conditions of others survive, ours are set, added and removed by type; order is nothing."""
    base = conditions(READY, {"type": "Old", "status": "True"})
    ours = conditions({"type": "New", "status": "True"}, {**READY, "status": "False"})
    theirs = conditions({"type": "Theirs"}, *base["status"]["conditions"])
    edits = merge(base, ours, theirs, lists=NODE)
    path = ("status", "conditions")
    assert edits.edits == (
        SetValue(path=(*path, Element("type", "New")), value={"type": "New", "status": "True"}),
        SetValue(path=(*path, Element("type", "Ready"), "status"), value="False"),
        Remove(path=(*path, Element("type", "Old"))),
    )
    assert apply_edits(theirs, edits) == conditions(
        {"type": "Theirs"}, {**READY, "status": "False"}, {"type": "New", "status": "True"}
    )


def test_a_dropped_keyed_list_leaves_foreign_elements() -> None:
    """Dropping the whole list removes the elements that base had."""
    theirs = conditions(READY, {"type": "Theirs"})
    assert merged(conditions(READY), {"status": {}}, theirs) == conditions({"type": "Theirs"})
    assert merged(conditions(READY), {}, conditions(READY)) == {}


def test_sets_gain_and_lose_values() -> None:
    """Finalizers are added and removed one by one, order is nothing."""

    def finalizers(*names: str) -> dict[str, Any]:
        return {"metadata": {"finalizers": list(names), "name": "x"}}

    path = ("metadata", "finalizers")
    edits = merge(finalizers("a", "b"), finalizers("c", "a"), finalizers("x", "b", "a"), lists=POD)
    assert edits.edits == (
        RemoveFromSet(path=path, values=("b",)),
        AddToSet(path=path, values=("c",)),
    )
    assert not merge({}, finalizers("a", "b"), finalizers("b", "a"), lists=POD)
    dropped = merged(finalizers("a"), {"metadata": {"name": "x"}}, finalizers("a", "x"))
    assert dropped == finalizers("x")


def test_atomic_lists_are_replaced_and_removed_whole() -> None:
    """An unnamed list is one value."""
    path = ("spec", "tolerations")
    base: dict[str, Any] = {"spec": {"tolerations": [1], "x": 1}}
    ours: dict[str, Any] = {"spec": {"tolerations": [2], "x": 1}}
    edits = merge(base, ours, base, lists=POD)
    assert edits.edits == (ReplaceList(path=path, items=(2,)),)
    assert not edits.needs_resource_version
    edits = merge(base, {"spec": {"x": 1}}, base, lists=POD)
    assert edits.edits == (Remove(path=path),)


def test_lists_whose_order_counts_are_replaced_over_the_servers_merge() -> None:
    """The pod's IPs keep our order; the server is told not to merge them by ip."""
    theirs = {"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    ours = {"status": {"podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}]}}
    (edit,) = merge(theirs, ours, theirs, lists=POD)
    items = ({"ip": "10.0.0.2"}, {"ip": "fd00::1"})
    path = ("status", "podIPs")
    assert edit == ReplaceList(path=path, items=items, server_merges=True)


def test_taints_are_merged_by_us_and_guarded() -> None:
    """The taint list goes out whole, with foreign taints in it, under a resourceVersion."""
    theirs = taints({**OURS_TAINT, "timeAdded": "now"}, THEIR_TAINT)
    assert not merge({}, taints(OURS_TAINT), theirs, lists=NODE)
    new = {"key": "example.com/new", "effect": "NoExecute"}
    ours = taints({**OURS_TAINT, "value": "other"}, new)
    edits = merge(taints(OURS_TAINT), ours, theirs, lists=NODE)
    assert edits.needs_resource_version
    assert apply_edits(theirs, edits) == taints(
        {**OURS_TAINT, "value": "other", "timeAdded": "now"}, THEIR_TAINT, new
    )
    left = merge(taints(OURS_TAINT), {"spec": {}}, theirs, lists=NODE)
    assert left.needs_resource_version
    assert apply_edits(theirs, left) == taints(THEIR_TAINT)


def test_ports_of_one_number_and_two_protocols_stay_apart() -> None:
    """TCP and UDP 53 are two ports, and a port without protocol is TCP."""

    def ports(*items: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "dns", "ports": list(items)}]}}

    udp, tcp = {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}
    theirs = ports({**tcp, "protocol": "TCP"}, udp)
    assert not merge({}, ports(udp, tcp), theirs, lists=POD)
    assert merged(ports(udp, tcp), ports(tcp), theirs) == ports({**tcp, "protocol": "TCP"})


def test_elements_that_cannot_be_told_apart_are_merged_as_wholes() -> None:
    """Doubled keys and missing keys lose nobody's elements."""
    double = [{"type": "A", "n": 1}, {"type": "A", "n": 2}]
    ours, theirs = conditions(*double), conditions({"type": "B"}, double[0])
    edits = merge({}, ours, theirs, lists=POD)
    assert edits.needs_resource_version
    assert apply_edits(theirs, edits) == conditions({"type": "B"}, *double)
    assert not merge({}, conditions({"n": 1}), conditions({"n": 1}, {"type": "B"}), lists=POD)
    dropped = merged(ours, {"status": {}}, conditions(*double, {"type": "B"}))
    assert dropped == conditions({"type": "B"})
    assert merged(ours, {}, ours) == {}


# --- conflicts ----------------------------------------------------------------------------------


def test_conflicts_are_reported_and_ours_wins() -> None:
    """Where both sides moved away from base, differently, the conflict is data."""
    base, ours, theirs = labels(a="1", b="1"), labels(a="2", b="1"), labels(a="3", b="9")
    edits = merge(base, ours, theirs, lists=POD)
    path = ("metadata", "labels", "a")
    assert edits.conflicts == (Conflict(path=path, base="1", ours="2", theirs="3"),)
    assert apply_edits(theirs, edits) == labels(a="2", b="1")


def test_conflicts_in_lists() -> None:
    """Elements and lists that both sides changed are conflicts, agreeing changes are none."""
    old, new = [{"type": "A", "n": 1}], [{"type": "A", "n": 2}]
    removed = merge(conditions(*old), conditions(*new), {"status": {}}, lists=POD)
    (conflict,) = removed.conflicts
    path = ("status", "conditions", Element("type", "A"))
    assert conflict == Conflict(path=path, base=old[0], ours=new[0], theirs=None)
    dropped = merge(conditions(*old), {"status": {}}, conditions(*new), lists=POD)
    assert dropped.conflicts == (Conflict(path=path, base=old[0], ours=None, theirs=new[0]),)
    assert not merge(conditions(*old), conditions(*new), conditions(*new), lists=POD).conflicts


def test_conflicts_in_taints() -> None:
    """A taint changed by both sides, or changed by them and dropped by us, is a conflict."""
    mine, yours = {**OURS_TAINT, "value": "mine"}, {**OURS_TAINT, "value": "yours"}
    base = taints(OURS_TAINT)
    both = merge(base, taints(mine), taints(yours), lists=NODE)
    path = ("spec", "taints")
    assert both.conflicts == (Conflict(path=path, base=OURS_TAINT, ours=mine, theirs=yours),)
    gone = merge(base, taints(THEIR_TAINT), taints(yours), lists=NODE)
    assert gone.conflicts == (Conflict(path=path, base=OURS_TAINT, ours=None, theirs=yours),)


# --- applying -----------------------------------------------------------------------------------


def test_edits_make_what_is_absent_on_the_way() -> None:
    """Edits to an object that lacks the parents make them, as a server does."""
    edits = Edits(
        edits=(
            SetValue(path=("a", Element("n", 1), "x"), value={"deep": 1}),
            SetValue(path=("a", Element("n", 1)), value={"n": 1, "x": {"more": 1}}),
            Remove(path=("a", Element("n", 2))),
            RemoveFromSet(path=("s",), values=(1,)),
            AddToSet(path=("t",), values=(1,)),
        )
    )
    theirs: dict[str, Any] = {"t": [1], "b": 1}
    assert apply_edits(theirs, edits) == {
        "a": [{"n": 1, "x": {"deep": 1, "more": 1}}],
        "s": [],
        "t": [1],
        "b": 1,
    }
    assert theirs == {"t": [1], "b": 1}


def test_an_element_takes_no_set_edit() -> None:
    """An edit of values at an element is a mistake of the caller."""
    edits = Edits(edits=(AddToSet(path=("a", Element("n", 1)), values=(1,)),))
    with pytest.raises(TypeError, match="element"):
        apply_edits({}, edits)

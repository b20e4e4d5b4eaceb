"""The table of rights: complete, by the source itself; and no more than is needed, by mode (C1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from federate.check import readers
from federate.check.reference import render_reference
from federate.check.rights import (
    FEATURES,
    TABLE,
    Circumstances,
    Feature,
    Right,
    Row,
    Side,
    circumstances_of,
    covers,
    rights,
    usual_features,
)
from federate.model import resources
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import ObjectKey
from federate.model.resources import Resource
from federate.node.capacity import CapacityMode, CapacityRules

ROOT = Path(__file__).parents[3]

ALL = frozenset(Feature)

CALLS = {verb: verb for verb in ("get", "list", "watch", "create", "patch", "delete")} | {
    "replace": "update"
}
"""Methods of a ClusterPort, and the verbs that API servers know them by."""

RESOURCES: dict[str, Resource] = {
    name: value
    for module in (resources, readers)
    for name, value in vars(module).items()
    if isinstance(value, Resource)
}

ANSWERED_TO_EVERYBODY = frozenset({"ACCESS_REVIEWS", "RULES_REVIEWS", "SUBJECT_REVIEWS"})


def asked_in_source() -> Iterator[tuple[str, str, str, str]]:
    """Yield where in the product which verb is asked of which group and resource."""
    for path in sorted((ROOT / "federate").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            for verb, group, resource in _asked(node):
                yield where, verb, group, resource


def _asked(call: ast.Call) -> Iterator[tuple[str, str, str]]:
    named = [arg.id for arg in call.args if isinstance(arg, ast.Name) and arg.id in RESOURCES]
    called = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if called == "evict":
        yield "create", "", "pods/eviction"
    if not named or named[0] in ANSWERED_TO_EVERYBODY:
        return
    plural = RESOURCES[named[0]].plural
    group = RESOURCES[named[0]].group
    if called in ("Reflector", "keeping"):
        yield from (("list", group, plural), ("watch", group, plural))
    if called in CALLS and call.args[0] == next(
        a for a in call.args if isinstance(a, ast.Name) and a.id == named[0]
    ):
        subresource = next((k.value for k in call.keywords if k.arg == "subresource"), None)
        match subresource:
            case None:
                yield CALLS[called], group, plural
            case ast.Constant(value=str(text)):
                yield CALLS[called], group, f"{plural}/{text}" if text else plural


def test_every_request_in_the_source_is_in_the_table() -> None:
    """Whoever adds a request adds its right; what is asked with a variable shows in real runs."""
    found = list(asked_in_source())
    assert len(found) > 40, "the scan finds what is asked"
    for where, verb, group, resource in found:
        granted = any(
            (row.group, row.resource) == (group, resource) and verb in row.verbs for row in TABLE
        )
        assert granted, f"{where} asks to {verb} {resource}: add it to federate/check/rights.py"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.side}-{row.resource}-{row.verbs[0]}")
def test_every_right_has_its_reason(row: Row) -> None:
    """Each says what it is for and what is lost without it; only a feature's is optional or not."""
    assert row.why and row.without
    assert not row.why.endswith(".") and not row.without.endswith(".")
    if row.feature is not None:
        assert not row.is_required


def hub(features: frozenset[Feature] = ALL, **more: object) -> Circumstances:
    return Circumstances(side=Side.HUB, node_names=("edge",), features=features, **more)  # type: ignore[arg-type]


def confined(capacity: CapacityMode = CapacityMode.STATIC, **more: object) -> Circumstances:
    return Circumstances(
        side=Side.TARGET,
        confined_to=("team-a", "team-b"),
        capacity=capacity,
        **more,  # type: ignore[arg-type]
    )


def find(found: tuple[Right, ...], resource: str, verb: str) -> list[Right]:
    return [right for right in found if right.resource == resource and verb in right.verbs]


def test_a_confined_target_needs_roles_alone() -> None:
    """No right is cluster-wide, none is outside the given namespaces, whatever the capacity."""
    for mode in (CapacityMode.STATIC, CapacityMode.QUOTA):
        around = confined(
            mode,
            quota_namespace="team-a",
            features=usual_features(is_confined=True),
        )
        assert {right.namespace for right in rights(around)} == {"team-a", "team-b"}


def test_a_confined_target_never_lists_nodes_or_makes_namespaces() -> None:
    """Those rights are of the cluster-wide strategies and of capacity aggregate."""
    found = rights(confined(features=ALL))
    assert not find(found, "nodes", "list")
    assert not find(found, "namespaces", "create")
    assert not find(found, "*", "list")


def test_a_check_reads_the_given_namespaces_by_their_roles() -> None:
    """A Role may grant the read of its own namespace, and of no other; running needs none."""
    assert not find(rights(confined()), "namespaces", "get")
    found = find(rights(confined(features=frozenset({Feature.CHECK}))), "namespaces", "get")
    assert [(r.namespace, r.names) for r in found] == [
        ("team-a", ("team-a",)),
        ("team-b", ("team-b",)),
    ]


def test_the_identity_of_a_confined_target_is_a_feature() -> None:
    """Its kube-system is read only where the admin grants it."""
    assert "kube-system" not in {right.namespace for right in rights(confined())}
    with_it = rights(confined(features=frozenset({Feature.IDENTITY})))
    [right] = [r for r in with_it if r.namespace == "kube-system"]
    assert (right.resource, right.verbs, right.names) == ("namespaces", ("get",), ("kube-system",))


def test_names_limit_what_can_be_limited() -> None:
    """Nodes and leases of the virtual nodes alone; a create has no name to limit."""
    found = rights(hub())
    for right in found:
        if right.resource in ("nodes", "nodes/status") and right.is_required:
            assert right.names == (() if "create" in right.verbs else ("edge",))
        if right.resource == "leases" and "update" in right.verbs:
            own = "edge" if right.namespace == "kube-node-lease" else "federate-edge"
            assert right.names == (own,)


def test_leases_are_rights_of_two_namespaces() -> None:
    """The heartbeat's and the leader's, which may be elsewhere."""
    found = rights(hub(leader_lease_namespace="federate"))
    assert {r.namespace for r in found if r.resource == "leases"} == {"kube-node-lease", "federate"}


@pytest.mark.parametrize("mode", CapacityMode)
def test_capacity_asks_for_its_own_rights_alone(mode: CapacityMode) -> None:
    """Nodes are read for `aggregate`, quotas for `quota`, neither for `static`."""
    found = rights(Circumstances(side=Side.TARGET, capacity=mode, quota_namespace="team-a"))
    assert bool(find(found, "nodes", "watch")) == (mode is CapacityMode.AGGREGATE)
    quotas = find(found, "resourcequotas", "watch")
    assert [right.namespace for right in quotas] == (
        ["team-a"] if mode is CapacityMode.QUOTA else []
    )


def test_features_come_and_go_with_their_rights() -> None:
    """Without any, only what nothing works without, and what says so, is left."""
    bare = rights(Circumstances(side=Side.TARGET))
    assert not find(bare, "events", "watch")
    assert not find(bare, "namespaces", "delete")
    full = rights(Circumstances(side=Side.TARGET, features=ALL))
    assert find(full, "events", "watch")
    assert find(full, "namespaces", "delete")


@pytest.mark.parametrize(
    "around", [hub(), Circumstances(side=Side.TARGET, features=ALL), confined()]
)
def test_secrets_are_listed_nowhere(around: Circumstances) -> None:
    """But for the look whether a namespace is empty, which is named and may be left out."""
    features = (ALL if around.features == ALL else usual_features(is_confined=True)) - {
        Feature.GIVE_BACK
    }
    for right in rights(replace(around, features=features)):
        assert not covers(right, resource="secrets", verb="list"), right


def test_what_comes_along_is_read_by_name_and_written_where_mirrors_are() -> None:
    """On the hub get and watch; in a confined target nothing outside of what was given."""
    for resource in ("secrets", "configmaps"):
        usual = rights(hub(features=usual_features(is_confined=False)))
        verbs = {
            verb for r in usual if r.resource == resource and not r.namespace for verb in r.verbs
        }
        assert verbs == {"get", "watch"}
        there = rights(confined(features=usual_features(is_confined=True)))
        assert {r.namespace for r in there if r.resource == resource} == {"team-a", "team-b"}
    bare = usual_features(is_confined=False) - {Feature.COMPANIONS}
    for found in (rights(hub(features=bare)), rights(confined(features=bare))):
        assert not [right for right in found if right.resource == "secrets"]


def test_the_right_to_become_any_service_account_is_not_usual() -> None:
    assert not find(
        rights(hub(features=usual_features(is_confined=False))), "serviceaccounts/token", "create"
    )
    [right] = find(
        rights(hub(features=frozenset({Feature.POD_IDENTITY}))), "serviceaccounts/token", "create"
    )
    assert not right.is_required and not right.namespace


def test_circumstances_follow_the_settings() -> None:
    """A quota's namespace comes along; the hub is never confined."""
    quota = CapacityRules(mode=CapacityMode.QUOTA, quota=ObjectKey("team-a", "q"))
    single = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="team-a")
    target = circumstances_of(Side.TARGET, node_names=(), namespaces=single, capacity=quota)
    assert target.confined_to == ("team-a",)
    assert (target.quota_namespace, target.quota_name) == ("team-a", "q")
    assert Feature.GIVE_BACK not in target.features
    on_hub = circumstances_of(Side.HUB, node_names=("e",), namespaces=single, capacity=quota)
    assert not on_hub.is_confined
    assert Feature.GIVE_BACK in on_hub.features


def test_a_quota_that_has_a_name_is_the_only_one_read() -> None:
    """Lists and watches by name can be granted by name."""
    around = confined(
        CapacityMode.QUOTA, quota_namespace="team-a", quota_name="q", features=frozenset()
    )
    [right] = find(rights(around), "resourcequotas", "list")
    assert (right.namespace, right.names) == ("team-a", ("q",))


def test_a_wildcard_covers_every_resource() -> None:
    """`list *` is what the look into a namespace needs."""
    [right] = [r for r in rights(Circumstances(side=Side.TARGET, features=ALL)) if r.group == "*"]
    assert covers(right, resource="secrets", verb="list")
    assert not covers(right, resource="secrets", verb="get")
    assert str(right) == "list *.*"


def test_the_reference_page_is_the_table() -> None:
    """docs/reference/rights.md is written by `python -m federate.check`."""
    page = ROOT / "docs" / "reference" / "rights.md"
    assert page.read_text(encoding="utf-8") == render_reference()


def test_every_feature_is_described() -> None:
    assert set(FEATURES) == set(Feature)

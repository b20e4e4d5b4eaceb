"""Where companions stand, whose word counts for it, and which Secrets are on record."""

from __future__ import annotations

import pytest

from federate.companions.demand import (
    has_mirror,
    listed_in,
    listing_entry,
    target_namespace_of,
)
from federate.companions.keys import CompanionKey, name_of
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, Scope
from federate.model.objects import JsonDict, ObjectKey
from tests.support.companions import ANCHOR, key_for
from tests.support.views import SCOPE, hub_pod

DB = key_for()


def anchor(*keys: CompanionKey, scope: Scope = SCOPE, **entries: str) -> JsonDict:
    listed = {name_of(scope, key).name: listing_entry(key) for key in keys}
    metadata = {**ANCHOR["metadata"], "labels": scope.labels()}
    return {
        "metadata": metadata,
        "data": {"README": "Secret things/live here", **listed, **entries},
    }


# -- where -----------------------------------------------------------------------------------------

OLD = ObjectKey("old", "web")


def recorded(mirror_uid: str = "m", mirror: ObjectKey = OLD) -> JsonDict:
    record = MirrorRecord(pod_uid="uid-web", mirror=mirror, mirror_uid=mirror_uid)
    return hub_pod().with_annotations({RECORD_ANNOTATION: record.format()}).build()


def test_companions_stand_where_the_mirror_does() -> None:
    """A changed namespace strategy moves no mirror, nor its companions."""
    rule = ObjectKey("new", "web")
    assert target_namespace_of(recorded(), rule, is_mirrored=True) == "old"
    assert target_namespace_of(recorded(), None, is_mirrored=True) == "old"
    assert target_namespace_of(hub_pod().build(), rule, is_mirrored=False) == "new"
    assert target_namespace_of(hub_pod().build(), None, is_mirrored=False) is None


def test_c30_a_record_alone_leads_to_no_other_namespace() -> None:
    """Whoever may annotate a pod can write one: his Secrets go where the rules say, or nowhere."""
    assert target_namespace_of(recorded(), ObjectKey("new", "web"), is_mirrored=False) == "new"
    assert target_namespace_of(recorded(), None, is_mirrored=False) is None


@pytest.mark.parametrize(
    ("pod", "standing", "has_one"),
    [
        (recorded(), {OLD: "m"}, True),
        (recorded(), {OLD: "m", ObjectKey("new", "web"): "n"}, True),
        (recorded(), {OLD: "another"}, False),
        (recorded(), {ObjectKey("new", "web"): "m"}, False),
        (recorded(), {}, False),
        (recorded(""), {OLD: "m"}, False),
        (recorded(""), {OLD: ""}, False),
        (hub_pod().build(), {OLD: "m"}, False),
    ],
)
def test_a_mirror_is_the_pods_where_both_sides_say_so(
    pod: JsonDict, standing: dict[ObjectKey, str], has_one: bool
) -> None:
    """By place and uid; what stands there comes from the marks in the target."""
    assert has_mirror(pod, standing) is has_one


# -- the inventory ---------------------------------------------------------------------------------


def test_secrets_are_found_by_the_list_in_the_anchor() -> None:
    """Each entry says which it is, to programs and to people."""
    assert listing_entry(DB) == "Secret default/db"
    assert list(listed_in(SCOPE, anchor(DB))) == [DB]
    assert list(listed_in(SCOPE, {"metadata": {}})) == []


@pytest.mark.parametrize(
    "entry", ["", "Secret", "Secret default", "ConfigMap default/db", "Secret default/other", "/"]
)
def test_an_entry_that_does_not_fit_its_name_is_none(entry: str) -> None:
    """Whoever may edit the anchor cannot lead us to another object."""
    listing = anchor()
    listing["data"][name_of(SCOPE, DB).name] = entry
    assert list(listed_in(SCOPE, listing)) == []

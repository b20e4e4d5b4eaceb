"""Who wants which companion, and which nobody wants."""

from __future__ import annotations

import pytest

from federate.companions.demand import (
    Demand,
    demand_of,
    listed_in,
    listing_entry,
    target_namespace_of,
    unwanted_companions,
)
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.rewrite import renaming, with_companion_names
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, Scope
from federate.model.objects import JsonDict, ObjectKey
from tests.support.companions import ANCHOR, TARGET_NAMESPACE, companion, hub_object, key_for
from tests.support.views import OTHER_SCOPE, SCOPE, hub_pod, mirror

DB, APP = key_for(), key_for(Kind.CONFIGMAP, "app")
NOTHING = Demand(keys=frozenset(), used=frozenset())


def wanting(*keys: CompanionKey) -> JsonDict:
    return {"volumes": [_volume(key) for key in keys]}


def _volume(key: CompanionKey) -> JsonDict:
    if key.kind is Kind.SECRET:
        return {"secret": {"secretName": key.name}}
    return {"configMap": {"name": key.name}}


def anchor(*keys: CompanionKey, scope: Scope = SCOPE, **entries: str) -> JsonDict:
    listed = {name_of(scope, key).name: listing_entry(key) for key in keys}
    metadata = {**ANCHOR["metadata"], "labels": scope.labels()}
    return {
        "metadata": metadata,
        "data": {"README": "Secret things/live here", **listed, **entries},
    }


# -- where -----------------------------------------------------------------------------------------


def test_companions_stand_where_the_mirror_does() -> None:
    """A changed namespace strategy moves no mirror, nor its companions."""
    rule = ObjectKey("new", "web")
    record = MirrorRecord(pod_uid="uid-web", mirror=ObjectKey("old", "web"), mirror_uid="m")
    recorded = hub_pod().with_annotations({RECORD_ANNOTATION: record.format()}).build()
    assert target_namespace_of(recorded, rule) == "old"
    intent = MirrorRecord(pod_uid="uid-web", mirror=ObjectKey("old", "web"))
    intended = hub_pod().with_annotations({RECORD_ANNOTATION: intent.format()}).build()
    assert target_namespace_of(intended, rule) == "new"
    assert target_namespace_of(hub_pod().build(), rule) == "new"
    assert target_namespace_of(hub_pod().build(), None) is None


# -- who -------------------------------------------------------------------------------------------


def demand(*specs: JsonDict, mirrors: tuple[JsonDict, ...] = (), shared: bool = False) -> Demand:
    pods = [(hub_pod().with_spec(**spec).build(), TARGET_NAMESPACE) for spec in specs]
    lost = (hub_pod().with_spec(**wanting(key_for(name="unplaced"))).build(), None)
    return demand_of(
        scope=SCOPE,
        hub_pods=[*pods, lost],
        mirrors=mirrors,
        shared={(Kind.SECRET, "db")} if shared else (),
    )


def test_a_companion_is_wanted_while_a_hub_pod_refers_to_it() -> None:
    """However many do."""
    wanted = demand(wanting(DB), wanting(DB, APP))
    assert wanted.keys == {DB, APP}
    assert wanted.wants(SCOPE, DB)
    assert not wanted.wants(SCOPE, key_for(name="unplaced"))
    assert demand(wanting(DB), shared=True) == NOTHING


def test_a_companion_is_wanted_while_a_mirror_lives_that_uses_it() -> None:
    """Its hub pod may be gone: an orphan keeps what it needs to its end."""
    spec = with_companion_names(wanting(DB), renaming(SCOPE, "default"))
    orphan = mirror().with_spec(**spec).build()
    wanted = demand(mirrors=(orphan,))
    assert wanted.keys == frozenset()
    assert wanted.wants(SCOPE, DB)
    assert not wanted.wants(SCOPE, APP)
    elsewhere = CompanionKey("elsewhere", *DB[1:])
    assert not wanted.wants(SCOPE, elsewhere)


def test_mirrors_of_others_want_nothing_of_ours() -> None:
    """Nor do pods that only look like mirrors."""
    spec = with_companion_names(wanting(DB), renaming(SCOPE, "default"))
    theirs = mirror(scope=OTHER_SCOPE).with_spec(**spec).build()
    plain = hub_pod().with_spec(**spec).build()
    assert demand(mirrors=(theirs, plain)) == NOTHING


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


def test_what_nobody_wants_is_listed_for_a_closer_look() -> None:
    """ConfigMaps by their marks, Secrets by the list; what is wanted is left out."""
    made = [companion(APP, hub_object(APP)), companion(key_for(), hub_object(DB))]
    found = unwanted_companions(
        scope=SCOPE, demand=NOTHING, configmaps=[*made, ANCHOR], anchors=[anchor(DB)]
    )
    assert found == (APP, DB)
    wanted = demand(wanting(DB, APP))
    assert not unwanted_companions(
        scope=SCOPE, demand=wanted, configmaps=made, anchors=[anchor(DB)]
    )


def test_what_others_made_is_left_out() -> None:
    """Other virtual nodes and hubs, and objects that lost a mark."""
    theirs = companion(APP, hub_object(APP), scope=OTHER_SCOPE)
    unmarked = companion(APP, hub_object(APP))
    unmarked["metadata"]["labels"] = SCOPE.labels()
    no_anchor = anchor(DB)
    no_anchor["metadata"]["labels"] = {}
    assert not unwanted_companions(
        scope=SCOPE,
        demand=NOTHING,
        configmaps=[theirs, unmarked],
        anchors=[anchor(DB, scope=OTHER_SCOPE), no_anchor],
    )

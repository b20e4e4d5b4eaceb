"""Names and marks of companions, and their way back into the hub's words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from federate.companions.keys import (
    CompanionKey,
    Kind,
    companion_name,
    companion_of,
    hub_names,
    in_hub_words,
    is_object_name,
    name_of,
)
from federate.model.marks import COMPANION_LABEL, COMPANION_OF_ANNOTATION, HUB_LABEL, Scope
from federate.model.objects import ObjectKey
from federate.model.resources import CONFIGMAPS, SECRETS
from tests.support.companions import TARGET_NAMESPACE, companion, hub_object, key_for
from tests.support.views import OTHER_SCOPE, SCOPE

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


# -- names -----------------------------------------------------------------------------------------


def test_a_name_can_be_read_and_stays_for_ever() -> None:
    """Mirrors that run carry these names: the rule never changes."""
    name = companion_name(SCOPE, Kind.CONFIGMAP, ObjectKey("default", "kube-root-ca.crt"))
    assert name == "kube-root-ca-crt-uuae6jrm6ftcms6a"


@pytest.mark.parametrize(
    "name",
    ["db", "a.b", "a" * 253, "x" * 46 + "-y", "-", "../../evil", "Größe", "a/b\nc", "\ud800"],
)
def test_a_name_is_a_dns_label_whatever_the_user_wrote(name: str) -> None:
    """API servers do not check the names of volumes and pull secrets: one may be anything."""
    made = companion_name(SCOPE, Kind.SECRET, ObjectKey("default", name))
    assert LABEL.fullmatch(made)
    assert len(made) <= 63


def test_whatever_differs_makes_another_name() -> None:
    """Hub, virtual node, kind, namespace and name tell companions apart."""
    other_hub = Scope(hub_id="another", node_name=SCOPE.node_name)
    names = {
        companion_name(scope, kind, ObjectKey(namespace, name))
        for scope in (SCOPE, OTHER_SCOPE, other_hub)
        for kind in Kind
        for namespace in ("default", "prod")
        for name in ("db", "d.b", "d-b", "D-b", "default\ndb")
    }
    assert len(names) == 3 * 2 * 2 * 5


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("db", True), ("a.b-c", True), ("a" * 253, True), ("a" * 254, False), ("", False),
     ("A", False), ("a..b", False), ("-a", False), ("a/b", False), ("..", False),
     ("a\n", False), ("%2e", False)],
)  # fmt: skip
def test_only_names_that_can_exist_are_asked_for(name: str, is_one: bool) -> None:
    """Anything else never becomes a part of a URL."""
    assert is_object_name(name) is is_one
    assert key_for(name=name).can_exist is is_one


def test_a_key_is_told_as_people_write_it() -> None:
    """Kind, namespace and name of the hub's object."""
    key = key_for()
    assert str(key) == "Secret default/db"
    assert key.hub_key == ObjectKey("default", "db")
    assert name_of(SCOPE, key).namespace == TARGET_NAMESPACE


def test_each_kind_has_its_place_in_the_api() -> None:
    """Where to read and write them."""
    assert {kind: kind.resource for kind in Kind} == {
        Kind.SECRET: SECRETS,
        Kind.CONFIGMAP: CONFIGMAPS,
    }


# -- marks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Kind)
def test_a_companion_says_whose_it_is(kind: Kind) -> None:
    """The key is read back from what was made of it."""
    key = key_for(kind)
    assert companion_of(SCOPE, companion(key, hub_object(key))) == key


def test_another_scopes_companion_is_not_ours() -> None:
    """Hub and virtual node bound everything."""
    key = key_for()
    assert companion_of(OTHER_SCOPE, companion(key, hub_object(key))) is None
    assert companion_of(SCOPE, companion(key, hub_object(key), scope=OTHER_SCOPE)) is None


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("labels", HUB_LABEL, "another"),
        ("labels", COMPANION_LABEL, "configmap"),
        ("labels", COMPANION_LABEL, None),
        ("annotations", COMPANION_OF_ANNOTATION, None),
        ("annotations", COMPANION_OF_ANNOTATION, "{"),
        ("annotations", COMPANION_OF_ANNOTATION, "[]"),
        ("annotations", COMPANION_OF_ANNOTATION, "3"),
        ("annotations", COMPANION_OF_ANNOTATION, "[" * 100000),
        ("annotations", COMPANION_OF_ANNOTATION, '{"kind":"Pod","namespace":"a","name":"b"}'),
        ("annotations", COMPANION_OF_ANNOTATION,
         json.dumps({"kind": "Secret", "namespace": "default", "name": "another"})),
    ],
)  # fmt: skip
def test_a_mark_that_is_missing_or_lies_makes_it_nobodys(part: str, name: str, value: Any) -> None:
    """Who may edit marks cannot make one object pass for another."""
    key = key_for()
    made = companion(key, hub_object(key))
    if value is None:
        del made["metadata"][part][name]
    else:
        made["metadata"][part][name] = value
    assert companion_of(SCOPE, made) is None


def test_a_copy_under_another_name_is_not_ours() -> None:
    """Marks can be copied; the name says which is the one."""
    key = key_for()
    made = companion(key, hub_object(key))
    made["metadata"]["name"] = "copy"
    assert companion_of(SCOPE, made) is None


# -- words -----------------------------------------------------------------------------------------

KEYS = [key_for(), key_for(Kind.CONFIGMAP, "app")]
NAMES = hub_names(SCOPE, KEYS)
DB, APP = (name_of(SCOPE, key).name for key in KEYS)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f'secret "{DB}" not found', 'secret "db" not found'),
        (f"couldn't find key x in Secret {TARGET_NAMESPACE}/{DB}",
         "couldn't find key x in Secret default/db"),
        (f'object "{TARGET_NAMESPACE}"/"{APP}" not registered',
         'object "default"/"app" not registered'),
        (f"some image pull secrets ({DB}, {DB}); configmap {APP}",
         "some image pull secrets (db, db); configmap app"),
        (f"elsewhere/{DB}", "elsewhere/db"),
        ("nothing of ours", "nothing of ours"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_a_kubelet_says_is_told_in_the_hubs_words(said: str, told: str) -> None:
    """Users never see generated names, nor the target's namespace before one."""
    assert in_hub_words(said, NAMES) == told


def test_a_name_in_a_name_is_put_back_once() -> None:
    """Who calls a Secret as another's companion is called is told just that."""
    tricky = CompanionKey(TARGET_NAMESPACE, Kind.SECRET, "default", DB)
    names = hub_names(SCOPE, [*KEYS, tricky])
    said = f'secret "{name_of(SCOPE, tricky).name}" not found'
    assert in_hub_words(said, names) == f'secret "{DB}" not found'

"""What is issued: its name, its marks, its entry on the list."""

from __future__ import annotations

import pytest

from federate.companions.demand import listed_in
from federate.companions.issued import (
    IssuedKey,
    IssuedKind,
    issued_in,
    issued_of,
    listing_of,
    place_of,
    render_issued,
    services_key,
    token_key,
)
from federate.companions.keys import Kind, companion_name, companion_of
from federate.model.objects import JsonDict, ObjectKey
from tests.support.companions import ANCHOR, TARGET_NAMESPACE
from tests.support.views import OTHER_SCOPE, SCOPE, hub_pod

POD = hub_pod("web-0").with_uid("uid-1").build()
TOKENS = token_key(POD, TARGET_NAMESPACE)
SERVICES = services_key(TARGET_NAMESPACE, "default", has_links=True)
BOTH = pytest.mark.parametrize("key", [TOKENS, SERVICES])


def made(key: IssuedKey = TOKENS) -> JsonDict:
    return render_issued(key, {"a": "MQ=="}, scope=SCOPE, owner=ANCHOR)


def test_names_may_never_change() -> None:
    """Mirrors that run carry them."""
    assert place_of(SCOPE, TOKENS) == ObjectKey(TARGET_NAMESPACE, "web-0-td2ucjmcfevcmfqj")
    assert place_of(SCOPE, SERVICES) == ObjectKey(
        TARGET_NAMESPACE, "services-linked-buvnobq7a7bp6jhk"
    )


def test_each_pod_each_namespace_and_each_virtual_node_has_its_own() -> None:
    """A pod that is made anew under its name has other tokens."""
    keys = {
        TOKENS,
        TOKENS._replace(uid="uid-2"),
        TOKENS._replace(namespace="shop"),
        SERVICES,
        SERVICES._replace(namespace="shop"),
        SERVICES._replace(name="unlinked"),
    }
    names = {place_of(scope, key).name for key in keys for scope in (SCOPE, OTHER_SCOPE)}
    assert len(names) == 12
    assert all(len(name) <= 63 for name in names)


def test_no_pod_can_choose_a_name_that_leads_there() -> None:
    """Whatever a pod calls a Secret becomes another name."""
    wanted = place_of(SCOPE, TOKENS).name
    for name in (wanted, "web-0", "\n".join(("web-0", "uid-1"))):
        assert companion_name(SCOPE, Kind.SECRET, ObjectKey("default", name)) != wanted


@BOTH
def test_the_marks_tell_what_it_is(key: IssuedKey) -> None:
    """Marks, label and name together, and nothing takes it for a companion or an anchor."""
    obj = made(key)
    assert issued_of(SCOPE, obj) == key
    assert companion_of(SCOPE, obj) is None
    assert "federate.dev/companion" in obj["metadata"]["labels"]
    [owner] = obj["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("anchor-1", True)


def test_a_secret_is_a_secret_and_news_are_a_configmap() -> None:
    """Tokens are in no ConfigMap."""
    assert (made(TOKENS)["kind"], made(TOKENS)["type"]) == ("Secret", "Opaque")
    assert made(SERVICES)["kind"] == "ConfigMap"
    assert "type" not in made(SERVICES)


@BOTH
@pytest.mark.parametrize("lacks", ["label", "scope", "name", "annotation"])
def test_what_lacks_a_mark_is_not_ours(key: IssuedKey, lacks: str) -> None:
    """Who may edit marks must not make us take one object for another."""
    obj = made(key)
    metadata = obj["metadata"]
    match lacks:
        case "label":
            metadata["labels"]["federate.dev/companion"] = "secret"
        case "scope":
            metadata["labels"]["federate.dev/hub"] = "another"
        case "name":
            metadata["name"] = "web-0"
        case _:
            metadata["annotations"]["federate.dev/companion-of"] = "Tokens default/web-1 uid-1"
    assert issued_of(SCOPE, obj) is None


def test_the_list_is_read_back() -> None:
    """Entries whose name and words agree; those of companions are others'."""
    lied = listing_of(TOKENS._replace(uid="uid-9"))
    data = {
        place_of(SCOPE, TOKENS).name: listing_of(TOKENS),
        place_of(SCOPE, SERVICES).name: listing_of(SERVICES),
        place_of(SCOPE, TOKENS._replace(uid="uid-2")).name: lied,
        companion_name(SCOPE, Kind.SECRET, ObjectKey("default", "db")): "Secret default/db",
        "note": "of a user",
    }
    anchor = {**ANCHOR, "data": data}
    assert set(issued_in(SCOPE, anchor)) == {TOKENS, SERVICES}
    assert [key.name for key in listed_in(SCOPE, anchor)] == ["db"]
    assert list(issued_in(SCOPE, ANCHOR)) == []


@pytest.mark.parametrize("name", ["../../secrets/x", "", "A", "a/b"])
def test_who_writes_the_list_cannot_lead_us_elsewhere(name: str) -> None:
    """An entry with a path in it has a fitting name, too: it is none."""
    key = TOKENS._replace(name=name)
    anchor = {**ANCHOR, "data": {place_of(SCOPE, key).name: listing_of(key)}}
    assert list(issued_in(SCOPE, anchor)) == []


def test_they_are_told_in_words() -> None:
    """What a pod waits for is named to people."""
    assert str(TOKENS) == "tokens of pod default/web-0"
    assert str(SERVICES) == "environment of Services in default"
    assert TOKENS.pod == ObjectKey("default", "web-0")
    assert IssuedKind.TOKENS.kind is Kind.SECRET

"""References are renamed, and nothing else of a spec."""

from __future__ import annotations

import copy

import pytest

from federate.companions.keys import Kind
from federate.companions.places import PLACES, Place
from federate.companions.references import references_of
from federate.companions.rewrite import renaming, with_companion_names
from tests.support.companions import merged, naming_fragment, target_name
from tests.support.views import SCOPE

RENAME = renaming(SCOPE, "default")


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_each_place_is_renamed(place: Place) -> None:
    """What stands beside the name stays, and so does the spec that was given."""
    fragment = naming_fragment(place, "db", optional=True)
    before = copy.deepcopy(fragment)
    renamed = with_companion_names(fragment, RENAME)
    assert renamed == naming_fragment(place, target_name(place.kind, "db"), optional=True)
    assert fragment == before


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_empty_name_stays_empty(place: Place) -> None:
    """It names nothing, and shall not begin to."""
    fragment = naming_fragment(place, "")
    assert with_companion_names(fragment, RENAME) == fragment


def test_all_places_at_once() -> None:
    """A pod that names an object everywhere has each renamed."""
    spec = merged([naming_fragment(place, "db") for place in PLACES])
    names = {(r.kind, r.name) for r in references_of(with_companion_names(spec, RENAME))}
    assert names == {(kind, target_name(kind, "db")) for kind in Kind}


def test_what_the_target_shares_keeps_its_name() -> None:
    """For its kind only: a ConfigMap that is shared says nothing of a Secret of that name."""
    rename = renaming(SCOPE, "default", {(Kind.CONFIGMAP, "ca")})
    assert rename(Kind.CONFIGMAP, "ca") == "ca"
    assert rename(Kind.SECRET, "ca") == target_name(Kind.SECRET, "ca")


def test_a_foreign_secret_of_the_target_cannot_be_named() -> None:
    """The attack: a hub user names a Secret that is the target's own, or one of ours, by its name.

    The mirror asks for a generated name, which is neither.
    """
    for wished in ("cloud-credentials", target_name(Kind.SECRET, "db", namespace="prod")):
        volume = {"volumes": [{"name": "v", "secret": {"secretName": wished}}]}
        asked = with_companion_names(volume, RENAME)["volumes"][0]["secret"]["secretName"]
        assert asked == target_name(Kind.SECRET, wished)
        assert asked != wished

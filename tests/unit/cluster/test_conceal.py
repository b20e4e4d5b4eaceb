"""Our own secrets in other people's words."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from federate.cluster.conceal import INSTEAD, conceal, forms_of

SECRET = 'to"ken/with+all=sorts'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_c73_every_form_is_concealed(form: str) -> None:
    """A secret that a server repeats is taken out, however it wrote it."""
    text = f"bad header Authorization: Bearer {form}, go away"
    assert conceal(text, forms_of([SECRET])) == (
        f"bad header Authorization: Bearer {INSTEAD}, go away"
    )


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_c73_a_secret_in_a_longer_base64_is_concealed(before: str) -> None:
    """Headers that a server encodes as a whole hold no more of a secret than its edges."""
    text = base64.b64encode(f"{before}{SECRET}:after".encode()).decode()
    left = conceal(text, forms_of([SECRET])).split(INSTEAD)
    assert len(left) == 2
    assert SECRET[1:-1] not in base64.b64decode(left[0] + "A" * (-len(left[0]) % 4)).decode()


def test_other_words_stay() -> None:
    """What is no secret is told as it is; a value of a few letters is none."""
    assert conceal("the pod abc is gone", forms_of(["abc", "", SECRET])) == "the pod abc is gone"


def test_one_secret_inside_of_another() -> None:
    """The longer one is taken out first, so that nothing of it stays."""
    assert conceal("secret-and-more", forms_of(["secret-", "secret-and-more"])) == INSTEAD

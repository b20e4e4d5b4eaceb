"""Take our own secrets out of texts that others wrote. Pure.

An API server, or a proxy before it, may repeat a request's headers in its answer; what it says goes
to logs, Events and conditions (C73). `failures` passes every such text through here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote

LEAST_LENGTH = 6
"""A shorter value would be found by chance in innocent words, and is no secret worth the name."""

INSTEAD = "[concealed]"


def forms_of(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return every way in which these may stand in a text, the longest first."""
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) < LEAST_LENGTH:
            continue
        raw = secret.encode("utf-8", "surrogatepass")
        forms |= {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
        forms |= {form for offset in range(3) for form in _in_base64(raw, offset)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _in_base64(raw: bytes, offset: int) -> Iterator[str]:
    """Yield how it stands in the base64 of something longer, where `offset` bytes precede it.

    It shares its first and last characters there with what surrounds it; those are left out.
    """
    encoded = base64.b64encode(b"\0" * offset + raw).decode()
    if not offset:
        yield encoded.rstrip("=")
        yield encoded.rstrip("=").replace("+", "-").replace("/", "_")
    inner = encoded.rstrip("=")[(offset * 8 + 5) // 6 : -1]
    yield inner
    yield inner.replace("+", "-").replace("/", "_")


def conceal(text: str, forms: Iterable[str]) -> str:
    """Return `text` without them; `forms` as from `forms_of`."""
    for form in forms:
        if form in text:
            text = text.replace(form, INSTEAD)
    return text

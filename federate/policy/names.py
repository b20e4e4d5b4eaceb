"""Patterns that an operator writes for names and keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_ENDS = ("/", ".")
"""No key ends in one of them."""


def is_listed_key(key: str, listed: Iterable[str]) -> bool:
    """Tell whether a key is on a list of keys and of prefixes, which end in `/` or `.`."""
    return any(key == entry or (entry[-1:] in _ENDS and key.startswith(entry)) for entry in listed)


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether a name fits one of the patterns, in which `*` and `?` stand for any text."""
    return any(_compiled(pattern).fullmatch(name) is not None for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = ({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in pattern)
    return re.compile("".join(parts), re.DOTALL)

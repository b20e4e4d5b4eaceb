"""Unique strings that stand in for secrets, and a search for them in what others may read (C73)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote
from uuid import uuid4


def forms_of(secret: str) -> Iterator[str]:
    """Yield how a secret may look: as it is, escaped, in base64, also inside of a longer base64."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(json.dumps(secret))[1:-1]
    yield quote(secret, safe="")
    raw = secret.encode()
    for offset in range(3):
        # What is before and after shares the first and the last characters: they are left out.
        plain = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        inner = plain[(offset * 8 + 5) // 6 : -1]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


@dataclass
class Canaries:
    """Plant them, then search; a name says where a found one was planted."""

    planted: dict[str, str] = field(default_factory=dict)

    def plant(self, name: str) -> str:
        """Return a new one: with characters that JSON, URLs and shells escape."""
        return self.keep(name, f'canary"{uuid4().hex}/{name}')

    def word(self, name: str) -> str:
        """Return a new one that fits where only letters and digits do."""
        return self.keep(name, f"canary{uuid4().hex}")

    def keep(self, name: str, secret: str) -> str:
        """Take a secret that was made elsewhere."""
        self.planted[name] = secret
        return secret

    def found_in(self, text: str) -> list[str]:
        """Name those that stand in a text in any form."""
        return [
            name
            for name, secret in self.planted.items()
            if any(form in text for form in forms_of(secret))
        ]

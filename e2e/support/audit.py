"""The audit log of a cluster: who asked for what, in the API server's own words.

A cluster is started with `arguments_for` a folder; `AuditLog` reads what it wrote there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .witness import Json

READS = frozenset({"get", "list", "watch"})

SECRETS = {"level": "RequestResponse", "resources": [{"group": "", "resources": ["secrets"]}]}
EVERYTHING = {"level": "Metadata"}


def arguments_for(folder: Path) -> tuple[str, ...]:
    """Return what an API server is told to keep an audit log in the folder.

    Of requests for Secrets their bodies are logged too: that tells what anybody saw of them. A
    watch is logged when it begins.
    """
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [SECRETS, EVERYTHING],
        "omitStages": ["RequestReceived"],
    }
    (folder / "policy.yaml").write_text(json.dumps(policy))
    return (
        f"--audit-policy-file={folder / 'policy.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    )


@dataclass(frozen=True)
class Request:
    """A request as the API server noted it."""

    event: Json

    @property
    def user(self) -> str:
        """Who sent it."""
        return str(self.event["user"].get("username", ""))

    @property
    def program(self) -> str:
        """What the sender calls itself."""
        return str(self.event.get("userAgent", ""))

    @property
    def verb(self) -> str:
        return str(self.event["verb"])

    @property
    def is_write(self) -> bool:
        return self.verb not in READS

    @cached_property
    def _about(self) -> Json:
        found: Json = self.event.get("objectRef") or {}
        return found

    @property
    def resource(self) -> str:
        """The resource with its subresource, `pods/status`; "" of what is no object of the API."""
        parts = (self._about.get("resource"), self._about.get("subresource"))
        return "/".join(part for part in parts if part)

    @property
    def namespace(self) -> str:
        return str(self._about.get("namespace", ""))

    @property
    def name(self) -> str:
        """The one object asked for, by a selector of its name too; "" where it is many."""
        return str(self._about.get("name", ""))

    @property
    def code(self) -> int:
        """The HTTP status of the answer; 0 where there was none."""
        return int((self.event.get("responseStatus") or {}).get("code", 0))

    def __str__(self) -> str:
        return f"{self.verb} {self.event['requestURI']} -> {self.code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLog:
    """What one API server wrote down."""

    folder: Path

    def requests(self, *, user: str = "", program: str = "") -> list[Request]:
        """Return all requests so far, or those of a user, or of programs that call themselves so.

        A watch stands there twice once it has ended.
        """
        return [
            request
            for request in self._all()
            if user in ("", request.user) and request.program.startswith(program)
        ]

    def _all(self) -> Iterator[Request]:
        lines = (self.folder / "audit.log").read_bytes().splitlines(keepends=True)
        # The last line may be half written.
        return (Request(json.loads(line)) for line in lines if line.endswith(b"\n"))

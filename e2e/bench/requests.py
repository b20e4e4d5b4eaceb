"""Plain requests to an API server over one connection that stays open: no client library's cost."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from typing import Any, Self

import orjson

from e2e.testbed.errors import TestbedError
from e2e.testbed.local import LocalCluster

TIMEOUT_SECONDS = 120.0
"""An API server that deletes ten thousand pods may take its time."""

IDLE_SECONDS = 30.0
"""API servers hang up on connections that were idle for long, just when one is used again."""

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Connection:
    """One user's connection to one cluster; closed at the end of the `with` block."""

    def __init__(self, cluster: LocalCluster) -> None:
        api = cluster.api
        context = ssl.create_default_context(cafile=api.authority)
        context.load_cert_chain(api.user.certificate, api.user.key)
        self._name = cluster.name
        self._used_at = 0.0
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", api.port, timeout=TIMEOUT_SECONDS, context=context
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._connection.close()

    def get(self, path: str) -> Any:
        """Read an object or a list."""
        return orjson.loads(self._call("GET", path))

    def size(self, path: str) -> int:
        """Return how many bytes of JSON the answer has."""
        return len(self._call("GET", path))

    def create(self, path: str, body: Mapping[str, Any], *, may_exist: bool = False) -> Any:
        """Create an object in the collection `path`."""
        return orjson.loads(self._call("POST", path, body, ignoring=409 if may_exist else 0))

    def patch(self, path: str, body: Mapping[str, Any], *, kind: str = MERGE_PATCH) -> Any:
        """Patch an object."""
        return orjson.loads(self._call("PATCH", path, body, kind=kind))

    def delete(self, path: str, *, background: bool = True) -> None:
        """Delete an object or a collection; one that is not there is no error."""
        policy = {"propagationPolicy": "Background"} if background else {}
        self._call("DELETE", path, policy, ignoring=404)

    def _call(
        self,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
        ignoring: int = 0,
    ) -> bytes:
        if time.monotonic() - self._used_at > IDLE_SECONDS:
            self._connection.close()  # the next request opens it
        self._used_at = time.monotonic()
        content = None if body is None else orjson.dumps(body)
        where = f"{verb} {path} on {self._name}"
        try:
            self._connection.request(verb, path, content, {"Content-Type": kind})
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise TestbedError(f"{where} failed: {error!r}") from error
        if response.status >= http.HTTPStatus.BAD_REQUEST and response.status != ignoring:
            raise TestbedError(f"{where} was answered with {response.status}: {answer[:256]!r}")
        return answer

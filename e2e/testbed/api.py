"""A few plain requests to an API server: enough to wait for it and to make fake nodes.

Deliberately neither of the Kubernetes client libraries, so that the test bed takes no side when
tests compare them.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import TestbedError
from .pki import KeyPair

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Talk to the API server on a port of this machine as one user."""

    port: int
    authority: Path
    user: KeyPair

    def is_ready(self) -> bool:
        return self.status("/readyz") == http.HTTPStatus.OK

    def has(self, path: str) -> bool:
        return self.status(path) == http.HTTPStatus.OK

    def status(self, path: str) -> int | None:
        """Return the HTTP status of a GET; None when there was no answer."""
        try:
            return self._request("GET", path)[0]
        except (OSError, http.client.HTTPException):
            return None

    def get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, body)

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is no error."""
        status, text = self._request("DELETE", path)
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.NOT_FOUND):
            raise TestbedError(f"DELETE {path} was answered with {status}: {text[:256]}")

    def _call(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        where = f"{verb} {path} on port {self.port}"
        try:
            status, text = self._request(verb, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise TestbedError(f"{where} failed: {error}") from error
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise TestbedError(f"{where} was answered with {status}: {text[:256]}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _request(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.user.certificate, self.user.key)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=TIMEOUT_SECONDS, context=context
        )
        try:
            content = None if body is None else json.dumps(body)
            connection.request(verb, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

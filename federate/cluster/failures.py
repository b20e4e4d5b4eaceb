"""Turn what an API server or the HTTP library said into the errors of `federate.errors`.

The only table of HTTP statuses for replies. Nothing of the HTTP library passes beyond this module
and `client`; a message carries the server's own words, cut, and never a header of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import orjson

from federate.cluster.conceal import conceal
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.model.objects import JsonObject

MOST_RETRY_AFTER_SECONDS = 300.0
"""A longer wish is cut: a wrong clock or a bad proxy must not silence us for hours."""

MOST_READ = 65_536
"""Of what a server says. Much more than a message keeps: a secret that is cut is not recognised."""

_BY_STATUS: Mapping[int, type[ClusterError]] = {
    400: Rejected,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Rejected,
    429: Throttled,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What was attempted, in words: the part of a message that is not the reply."""

    cluster: str
    verb: str
    subject: str
    concealed: tuple[str, ...] = field(default=(), repr=False)
    """What the server may repeat of our request, and no message may hold."""

    def failure(
        self, kind: type[ClusterError], detail: str, *, reason: str = "", status: int = 0
    ) -> ClusterError:
        """Build the error of that kind."""
        return kind(
            conceal(detail[:MOST_READ], self.concealed),
            cluster=self.cluster,
            verb=self.verb,
            subject=self.subject,
            reason=conceal(reason, self.concealed),
            status=status,
        )


def refused(
    attempt: Attempt, *, status: int, body: bytes, headers: Mapping[str, str]
) -> ClusterError:
    """Map a reply that is not a success."""
    return status_failure(
        attempt,
        parse_status(body),
        status=status,
        retry_after=headers.get("Retry-After", ""),
        text=body[:MOST_READ].decode("utf-8", "replace"),
    )


def parse_status(body: bytes) -> JsonObject:
    """Return the Status object in `body`; empty where a proxy, say, answered something else."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def status_failure(
    attempt: Attempt, said: JsonObject, *, status: int, retry_after: str = "", text: str = ""
) -> ClusterError:
    """Map a Status object, from a reply or from an ERROR line of a watch."""
    reason = str(said.get("reason") or "")
    detail = str(said.get("message") or text.strip() or f"HTTP status {status}")
    kind = _kind_of(status, reason=reason, said=said, verb=attempt.verb, retry_after=retry_after)
    error = attempt.failure(kind, detail, reason=reason, status=status)
    if isinstance(error, Throttled):
        error.retry_after_seconds = _retry_after_seconds(said, retry_after)
    return error


def _kind_of(
    status: int, *, reason: str, said: JsonObject, verb: str, retry_after: str
) -> type[ClusterError]:
    if status == 409 and verb == "create" and reason == "AlreadyExists":
        return AlreadyExists
    if status == 503 and retry_after:
        return Throttled
    if _asks_for_the_future(said):
        return Expired
    if status == 404 and reason != "NotFound":
        # A proxy or ingress on the way, or a path nobody serves: no word about the object. Absence
        # decides about deletions, so it is believed only in the API server's own words.
        return ServerFault
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = Rejected if 400 <= status < 500 else ServerFault
    return kind


def _asks_for_the_future(said: JsonObject) -> bool:
    # After a restore from a backup versions start again below those we know. No waiting helps.
    causes = (said.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)


def _retry_after_seconds(said: JsonObject, header: str) -> float:
    wish = header.strip()
    if not wish:
        wish = str((said.get("details") or {}).get("retryAfterSeconds") or "")
    seconds = _seconds(wish)
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_SECONDS)


def _seconds(wish: str) -> float:
    if not wish:
        return Throttled.retry_after_seconds
    if wish.isdigit():
        return float(wish)
    try:
        instant = parsedate_to_datetime(wish)
    except ValueError:
        return Throttled.retry_after_seconds
    return (instant.astimezone(UTC) - datetime.now(UTC)).total_seconds()


def unreachable(attempt: Attempt, error: BaseException) -> ClusterError:
    """Map a failure of the transport."""
    what = type(error).__name__ if isinstance(error, TimeoutError) else str(error)
    return attempt.failure(Unreachable, f"no answer: {what or type(error).__name__}")

"""What the kubelet API answers when it does not do as asked: the one table from errors to HTTP.

Answers are `text/plain` in a kubelet's words, for the hub's API server puts them into the message
that a person sees. Of the target only its API server's own words about the pod pass on, cut, with
the mirror's names turned into the hub pod's. What went wrong between federate and the target is
told in our words: addresses and users of the target are nobody's business on the hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.kubelet.paths import PodRequest, Refusal, shown
from federate.kubelet.ports import Caller, Located, NodeAccess
from federate.model.objects import JsonObject, status_of
from federate.model.pods import container_statuses_of

TEXT = "text/plain; charset=utf-8"

REASONS: Mapping[int, str] = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

MOST_TOLD = 1024
"""Characters of the target's own words; the hub's API server reads a few thousand."""

RETRY_SECONDS = 1
"""What a client is asked to wait that finds no room."""

MOST_RETRY_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole reply."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Exception):
    """What was asked is not done; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer.status))
        self.answer = answer


UNAUTHENTICATED = "Unauthorized"

_FAILURES: tuple[tuple[type[BaseException], int, str], ...] = (
    (Unauthorized, 502, "the target cluster does not accept federate's credentials"),
    (Forbidden, 502, "the target cluster does not let federate do this"),
    (NotFound, 404, "the target cluster has no such pod"),
    (Rejected, 400, "the target cluster takes this for invalid"),
    (Throttled, 429, "the target cluster asks to wait"),
    (Unreachable, 502, "the target cluster does not answer"),
    (ServerFault, 502, "the target cluster failed"),
    (ClusterError, 502, "the target cluster did not do it"),
    (TimeoutError, 504, "the target cluster did not answer in time"),
)
"""The table: first match."""

_PASSED_ON = frozenset({400, 404, 409, 422, 429, 500, 503, 504})
"""Statuses of the target's API server that are about the pod, and mean the same on the hub."""

_IN_OUR_WORDS: Mapping[int, type[ClusterError]] = {401: Unauthorized, 403: Forbidden}


def text(status: int, message: str, *headers: tuple[str, str]) -> Answer:
    """Answer with a sentence."""
    return Answer(status=status, body=message.encode(), headers=headers)


_LIKE_YAML = re.compile(rb":(\s|$)|^\{")


def for_upgrade(answer: Answer) -> Answer:
    """Answer a request for a stream so that its words reach a person.

    Its client (client-go) takes whatever it can read as YAML for a Status: of `a: b`, an empty one.
    """
    if answer.content_type != TEXT or not _LIKE_YAML.search(answer.body):
        return answer
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": answer.body.decode(errors="replace"),
        "reason": REASONS.get(answer.status, "").replace(" ", ""),
        "code": answer.status,
    }
    return replace(answer, body=orjson.dumps(status), content_type="application/json")


def of_refusal(refusal: Refusal) -> Answer:
    """Answer what `paths` refuses."""
    allow = (("Allow", ", ".join(refusal.allow)),) if refusal.allow else ()
    return text(refusal.status, refusal.text, *allow)


def of_failure(error: BaseException) -> Answer:
    """Answer for a request to the target that failed; anything unknown is a 500 without details."""
    for kind, status, message in _FAILURES:
        if isinstance(error, kind):
            wish = error.retry_after_seconds if isinstance(error, Throttled) else None
            return text(status, message, *_retry_after(wish))
    return text(500, "internal error")


def of_hub_failure() -> Answer:
    """Answer when the hub did not tell who asks, or whether they may."""
    return text(503, "the hub did not answer who asks and what they may", *_retry_after(1))


def forbidden(caller: Caller, wanted: Sequence[NodeAccess]) -> Answer:
    """Answer a caller without rights, with what would do."""
    verb = wanted[0].verb if wanted else ""
    subresources = ", ".join(access.subresource for access in wanted)
    user = _printable(caller.user)[:MOST_TOLD]
    return text(
        403,
        f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])",
    )


def busy(what: str) -> Answer:
    """Answer where there is no room."""
    return text(429, f"too many {what}; try again later", *_retry_after(RETRY_SECONDS))


def not_mirrored(asked: PodRequest, hub_pod: JsonObject) -> Answer:
    """Answer for a pod or container of ours that is not in the target, and say why.

    With 404 kubectl would not show the words.
    """
    phase = status_of(hub_pod).get("phase")
    why = _why_waiting(hub_pod, asked.container) or "it is not in the target cluster"
    reason = _printable(str(why))
    container = f"container {shown(asked.container)} in " if asked.container else ""
    state = "is waiting to start" if phase in (None, "Pending") else "is not available"
    return text(400, f"{container}pod {shown(asked.pod.name)} {state}: {reason[:MOST_TOLD]}")


def _why_waiting(hub_pod: JsonObject, container: str) -> Any:
    for status in container_statuses_of(hub_pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        if status.get("name") == container and waiting.get("reason"):
            return waiting["reason"]
    return status_of(hub_pod).get("reason")


def of_target(
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    request: PodRequest,
    located: Located,
) -> Answer:
    """Answer what the target's API server answered instead of the stream."""
    if status in _IN_OUR_WORDS:
        return of_failure(_IN_OUR_WORDS[status](""))
    if status not in _PASSED_ON:
        return text(502, f"the target cluster answered with HTTP status {status}")
    said = message_of(headers, body) or f"the target cluster answered with HTTP status {status}"
    if status >= 500 and _OF_THE_NETWORK.search(said):
        return text(status, "the target's API server does not reach the pod's kubelet")
    wish = next((value for name, value in headers if name.lower() == "retry-after"), "")
    seconds = float(wish) if re.fullmatch(r"[0-9]{1,6}", wish) else None
    named = _in_hub_names(said, request=request, located=located)
    return text(status, named[:MOST_TOLD], *_retry_after(seconds))


def _retry_after(seconds: float | None) -> tuple[tuple[str, str], ...]:
    if seconds is None:
        return ()
    return (("Retry-After", str(min(max(round(seconds), 1), MOST_RETRY_SECONDS))),)


_OF_THE_NETWORK = re.compile(r"\bdial(?:ing)?\b|\blookup\b|x509:|\btls:|://")
"""Words of failures that name addresses of the target: they are in federate's log only."""


def message_of(headers: Sequence[tuple[str, str]], body: bytes) -> str:
    """Return the message of a Status, or the sentence of a kubelet; "" for whatever else it is.

    Pages of proxies in between are HTML.
    """
    kinds = [value.lower() for name, value in headers if name.lower() == "content-type"]
    if kinds and kinds[0].partition(";")[0].strip() == "text/plain":
        return _printable(body.decode(errors="replace"))
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(said, dict) or said.get("kind") != "Status":
        return ""
    return _printable(str(said.get("message") or ""))


def _printable(message: str) -> str:
    """Leave out what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in message[: 8 * MOST_TOLD]).strip()


def _in_hub_names(said: str, *, request: PodRequest, located: Located) -> str:
    for theirs, ours in (
        (located.mirror.name, request.pod.name),
        (located.mirror.namespace, request.pod.namespace),
    ):
        if theirs and theirs != ours:
            # As a whole name only: it may be a part of another.
            # (A name of Kubernetes means nothing special as a replacement.)
            said = re.sub(rf"(?<![\w.-]){re.escape(theirs)}(?![\w-])", ours, said)
    return said

"""Read what a request to the kubelet API asks for. Pure: a method and a target in, a record out.

Between `server`, which has a request, and the target's API server, which is asked in its own words.
Nothing of a client's path or query travels on as it came: names are looked up among the node's own
pods, options are parsed and written anew. `access_of` depends on the path alone and is asked first,
so that a caller without rights learns nothing from the way in which a request is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from federate.kubelet.ports import NodeAccess, UpstreamCall
from federate.model.objects import ObjectKey

Pairs = tuple[tuple[str, str], ...]


class Kind(StrEnum):
    """What sort of request it is, in few enough words for a metric's label."""

    LOGS = "logs"
    EXEC = "exec"
    ATTACH = "attach"
    PORT_FORWARD = "portforward"
    RUN = "run"
    PODS = "pods"
    STATS = "stats"
    METRICS = "metrics"
    HEALTH = "health"
    OTHER = "other"


STREAMING = (Kind.EXEC, Kind.ATTACH, Kind.PORT_FORWARD)
"""These begin with an upgrade of the connection, or not at all."""

_PUTS_A_HAND_IN = (*STREAMING, Kind.RUN)

MOST_PAIRS = 16_384
"""Pairs of a query: a command has one for each of its words. The header's limit is met before."""

MOST_PORTS = 256
"""Ports of one WebSocket port-forward: each costs the target's kubelet two channels."""

_FIRST_SEGMENT: Mapping[str, Kind] = {
    "containerLogs": Kind.LOGS,
    "exec": Kind.EXEC,
    "attach": Kind.ATTACH,
    "portForward": Kind.PORT_FORWARD,
    "run": Kind.RUN,
    "pods": Kind.PODS,
    "runningpods": Kind.PODS,
    "stats": Kind.STATS,
    "metrics": Kind.METRICS,
    "healthz": Kind.HEALTH,
}

_SUBRESOURCES: Mapping[str, tuple[str, ...]] = {
    "stats": ("stats",),
    "metrics": ("metrics",),
    "logs": ("log",),
    "pods": ("pods", "proxy"),
    "runningpods": ("pods", "proxy"),
    "healthz": ("healthz", "proxy"),
    "configz": ("configz", "proxy"),
}
"""As a kubelet's authorizer is asked (KEP-2862 for those with two); all others need nodes/proxy."""

_UNKNOWN_VERB = "create"
"""Of any other method: all are refused, and a verb for each that a client makes up would be as many
questions to the hub."""

_VERBS: Mapping[str, str] = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

_SUBRESOURCE_OF_POD: Mapping[Kind, str] = {
    Kind.LOGS: "log",
    Kind.EXEC: "exec",
    Kind.ATTACH: "attach",
    Kind.PORT_FORWARD: "portforward",
    Kind.RUN: "exec",
}

_METHODS: Mapping[Kind, tuple[str, ...]] = {
    **dict.fromkeys((Kind.EXEC, Kind.ATTACH, Kind.PORT_FORWARD), ("GET", "POST")),
    Kind.RUN: ("POST", "GET"),
    Kind.LOGS: ("GET",),
}
_METHODS_OF_PAGES = ("GET", "HEAD")

_ALL_OUTPUT = (("stdin", "false"), ("stdout", "true"), ("stderr", "true"), ("tty", "false"))

_PAGES = frozenset(
    {
        "/pods",
        "/runningpods",
        "/stats/summary",
        "/configz",
        "/metrics",
        "/metrics/resource",
        "/metrics/cadvisor",
        "/metrics/probes",
    }
)
_HEALTH = frozenset({"/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """Something that leads to one pod in the target."""

    kind: Kind
    method: str
    pod: ObjectKey
    uid: str = ""
    """Only that very hub pod is meant; "" is any of the name."""
    container: str = ""
    """Empty for a port-forward only."""
    query: Pairs = field(default=(), repr=False)
    """What the target's API is asked, in its own words, without the container. Not shown: the
    command of an exec may hold passwords."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A document about the node or all of its pods."""

    kind: Kind
    path: str
    query: Mapping[str, str]
    """The last value of each name."""


@dataclass(frozen=True, slots=True)
class HealthRequest:
    """Whether the kubelet API answers."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is not done, as it is answered."""

    status: int
    text: str
    allow: tuple[str, ...] = ()
    """With 405: the methods that would do."""


Asked = PodRequest | PageRequest | HealthRequest | Refusal

_NO_SUCH_PAGE = Refusal(404, "404 page not found")
_MALFORMED = Refusal(400, "malformed request path")


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.refusal = Refusal(status, text)


def kind_of(target: str) -> Kind:
    """Tell the sort of a request target, well formed or not."""
    return _FIRST_SEGMENT.get(_first_segment(target), Kind.OTHER)


def access_of(method: str, target: str) -> tuple[NodeAccess, ...]:
    """Tell which rights would do, any one of them.

    Whoever gets into a container needs `create`, also with GET, as WebSocket clients send it: to
    read is not to command. (A kubelet takes `get` for it there.) Malformed targets need
    nodes/proxy, and so do paths that only look like one of the lesser ones.
    """
    verb = _VERBS.get(method, _UNKNOWN_VERB)
    if kind_of(target) in _PUTS_A_HAND_IN and verb == "get":
        verb = "create"
    malformed = _segments(_split(target)[0]) is None
    known = () if malformed else _SUBRESOURCES.get(_first_segment(target), ())
    return tuple(NodeAccess(verb, subresource) for subresource in known or ("proxy",))


def read(method: str, target: str, *, websocket: bool = False) -> Asked:
    """Read a request; `target` is the request line's, as it came."""
    path, query = _split(target)
    segments = _segments(path)
    if segments is None:
        return _MALFORMED
    kind = kind_of(target)
    if kind in _SUBRESOURCE_OF_POD:
        return _read_pod_request(kind, method, segments[1:], query, websocket=websocket)
    return _read_page_request(kind, method, path, query)


def call_of(
    request: PodRequest, mirror: ObjectKey, headers: Iterable[tuple[str, str]] = ()
) -> UpstreamCall:
    """Say the request in the words of the target's API, about the pod's mirror."""
    container = (("container", request.container),) if request.container else ()
    subresource = _SUBRESOURCE_OF_POD[request.kind]
    return UpstreamCall(
        method="GET" if request.kind is Kind.RUN else request.method,
        path=f"/api/v1/namespaces/{mirror.namespace}/pods/{mirror.name}/{subresource}",
        query=(*container, *request.query),
        headers=tuple(headers),
    )


def _first_segment(target: str) -> str:
    return _split(target)[0].removeprefix("/").partition("/")[0]


def _split(target: str) -> tuple[str, str]:
    path, _mark, query = target.partition("?")
    return path, query


def _segments(path: str) -> list[str] | None:
    """Take a path apart, then decode: a slash that was encoded never parts anything.

    None where it is not in the plainest form: another reader might see another path in it.
    """
    if not path.startswith("/"):
        return None
    encoded = path[1:].removesuffix("/").split("/")
    segments = []
    for part in encoded:
        try:
            segment = _decoded(part)
        except ValueError:
            return None
        if segment in (".", "..") or (not segment and len(encoded) > 1):
            return None
        if any(character in "/\\#" or not character.isprintable() for character in segment):
            return None
        segments.append(segment)
    return segments


_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{2}")


def _decoded(text: str) -> str:
    """Undo percent-encoding.

    Raises:
        ValueError: an escape is cut, or it is no UTF-8.
    """
    if "%" not in text:
        text.encode("ascii")
        return text
    parts = text.encode("ascii").split(b"%")
    decoded = [parts[0]]
    for part in parts[1:]:
        if not _HEXADECIMAL.match(part):
            raise ValueError("a cut escape")
        decoded += (bytes.fromhex(part[:2].decode()), part[2:])
    return b"".join(decoded).decode("utf-8")


def _read_page_request(kind: Kind, method: str, path: str, query: str) -> Asked:
    plain = path.removesuffix("/")
    if plain not in _PAGES and plain not in _HEALTH:
        return _NO_SUCH_PAGE
    if method not in _METHODS_OF_PAGES:
        return _not_allowed(_METHODS_OF_PAGES)
    if plain in _HEALTH:
        return HealthRequest()
    try:
        return PageRequest(kind, plain, dict(_pairs(query)))
    except _Refused as refused:
        return refused.refusal


def _not_allowed(methods: Sequence[str]) -> Refusal:
    return Refusal(405, "405: Method Not Allowed", tuple(methods))


def _read_pod_request(
    kind: Kind, method: str, names: Sequence[str], query: str, *, websocket: bool
) -> Asked:
    named = _names(kind, names)
    if named is None:
        return _NO_SUCH_PAGE
    if method not in _METHODS[kind]:
        return _not_allowed(_METHODS[kind])
    pod, uid, container = named
    try:
        options = _options(kind, _pairs(query), websocket=websocket)
    except _Refused as refused:
        return refused.refusal
    return PodRequest(
        kind=kind, method=method, pod=pod, uid=uid, container=container, query=options
    )


def _names(kind: Kind, names: Sequence[str]) -> tuple[ObjectKey, str, str] | None:
    """Return pod, uid and container; they are looked up later, so any text is a name here."""
    count = len(names)
    if kind is Kind.PORT_FORWARD:
        if count not in (2, 3):
            return None
        return ObjectKey(names[0], names[1]), "".join(names[2:]), ""
    if count == 3:
        return ObjectKey(names[0], names[1]), "", names[2]
    if count == 4 and kind is not Kind.LOGS:
        return ObjectKey(names[0], names[1]), names[2], names[3]
    return None


def _pairs(query: str) -> Pairs:
    """Read a query strictly: what a client means by a malformed pair is anybody's guess."""
    if not query:
        return ()
    parts = query.split("&")
    if len(parts) > MOST_PAIRS:
        raise _Refused(400, "too many query parameters")
    try:
        return tuple(_pair(part) for part in parts if part)
    except ValueError:
        raise _Refused(400, '{"message": "Unable to decode query."}') from None


def _pair(part: str) -> tuple[str, str]:
    if ";" in part:
        raise ValueError("a semicolon parts the pairs of some readers")
    name, _mark, value = part.replace("+", " ").partition("=")
    pair = _decoded(name), _decoded(value)
    if "\0" in pair[0] or "\0" in pair[1]:
        raise ValueError("a NUL ends a text for some readers")
    return pair


def _options(kind: Kind, pairs: Pairs, *, websocket: bool) -> Pairs:
    match kind:
        case Kind.LOGS:
            return _log_options(pairs)
        case Kind.PORT_FORWARD:
            return _ports(pairs) if websocket else ()
        case Kind.RUN:
            command = _first(pairs, "cmd") or ""
            if not command:
                raise _Refused(400, "you must specify a command")
            return (*_ALL_OUTPUT, *(("command", word) for word in command.split(" ")))
        case _:
            return _streams(pairs) + (_command(pairs) if kind is Kind.EXEC else ())


def _first(pairs: Pairs, name: str) -> str | None:
    return next((value for key, value in pairs if key == name), None)


def _streams(pairs: Pairs) -> Pairs:
    """Name the streams as the API does. With a terminal there is no stderr, as on a kubelet."""
    chosen = {
        name: _first(pairs, word) == "1"
        for word, name in (
            ("input", "stdin"),
            ("output", "stdout"),
            ("error", "stderr"),
            ("tty", "tty"),
        )
    }
    if chosen["tty"]:
        chosen["stderr"] = False
    if not (chosen["stdin"] or chosen["stdout"] or chosen["stderr"]):
        raise _Refused(400, "you must specify at least 1 of stdin, stdout, stderr")
    # All four are said: left out, stdout and stderr are true to the API.
    return tuple((name, "true" if on else "false") for name, on in chosen.items())


def _command(pairs: Pairs) -> Pairs:
    command = tuple((name, value) for name, value in pairs if name == "command")
    if not command:
        raise _Refused(400, "you must specify a command")
    return command


def _ports(pairs: Pairs) -> Pairs:
    """Read the ports of a WebSocket client; those of SPDY come in the streams' own headers."""
    values = [value for name, value in pairs if name == "port"]
    if not values:
        raise _Refused(400, 'query parameter "port" is required')
    if "" in values:
        raise _Refused(400, 'query parameter "port" cannot be empty')
    ports = [port for value in values for port in value.split(",")]
    if len(ports) > MOST_PORTS:
        raise _Refused(400, f"at most {MOST_PORTS} ports at once")
    return tuple(("ports", str(_port(port))) for port in ports)


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65_535:
        raise _Refused(400, f"unable to parse {shown(text)} as a port")
    if int(text) < 1:
        raise _Refused(400, f"port {shown(text)} must be > 0")
    return int(text)


def shown(text: str) -> str:
    """Quote a client's text, cut and without what a terminal would obey."""
    plain = "".join(character if character.isprintable() else "?" for character in text[:253])
    return f'"{plain}"'


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_MOST_INTEGER = 2**63 - 1

_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)

_UNREADABLE = '{"message": "Unable to decode query."}'
_INVALID = '{"message": "Invalid request."}'

_LOG_STREAMS = ("All", "Stdout", "Stderr")


def _log_options(pairs: Pairs) -> Pairs:
    """Read v1.PodLogOptions, with a kubelet's checks. Unknown names are left out, as there."""
    options: list[tuple[str, str]] = [
        (name, "true") for name in ("follow", "previous", "timestamps") if _flag(pairs, name)
    ]
    since_seconds = _integer(pairs, "sinceSeconds")
    since_time = _first(pairs, "sinceTime")
    if since_time and not _INSTANT.fullmatch(since_time):
        raise _Refused(400, _UNREADABLE)
    if since_seconds is not None and (since_time or since_seconds < 1):
        raise _Refused(422, _INVALID)
    tail = _tail_lines(pairs)
    stream = _log_stream(pairs, tail)
    limit = _integer(pairs, "limitBytes")
    if limit is not None and limit < 1:
        raise _Refused(422, _INVALID)
    for name, value in (
        ("sinceSeconds", since_seconds),
        ("sinceTime", since_time or None),
        ("tailLines", tail),
        ("limitBytes", limit),
        ("stream", stream),
    ):
        if value is not None:
            options.append((name, str(value)))
    return tuple(options)


def _tail_lines(pairs: Pairs) -> int | None:
    """`tail` is an old name that kubelets still take; `all` is no limit."""
    old = _first(pairs, "tail")
    if old == "all":
        return None
    tail = _integer((("tail", old),), "tail") if old else _integer(pairs, "tailLines")
    if tail is not None and tail < 0:
        raise _Refused(422, _INVALID)
    return tail


def _log_stream(pairs: Pairs, tail: int | None) -> str | None:
    stream = _first(pairs, "stream")
    if not stream:
        return None
    if stream not in _LOG_STREAMS or (stream != "All" and tail is not None):
        raise _Refused(422, _INVALID)
    # "All" goes without saying, and older API servers do not know the word.
    return None if stream == "All" else stream


def _flag(pairs: Pairs, name: str) -> bool:
    """Read a boolean as Kubernetes reads one in a query: all is true that is not false or 0."""
    value = _first(pairs, name)
    return value is not None and value != "0" and value.lower() != "false"


def _integer(pairs: Pairs, name: str) -> int | None:
    text = _first(pairs, name)
    if not text:
        return None
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _MOST_INTEGER:
        raise _Refused(400, _UNREADABLE)
    return int(text)

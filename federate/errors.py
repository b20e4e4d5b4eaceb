"""The error tree, and the one table that says what to do about each.

FederateError
├─ ConfigError                      the user can fix it                              exit 2
├─ ClusterError (cluster, verb, subject)   what an API server answered, or did not
│   ├─ Unreachable                  no answer: refused, reset, timed out             back off
│   │   └─ TargetChanged            another cluster answers than the one on record   back off
│   ├─ Throttled (retry_after)      429, or 503 with Retry-After                     back off
│   ├─ ServerFault                  5xx                                              back off
│   ├─ Unauthorized · Forbidden     401 · 403 (403 also for quota and admission)     back off
│   ├─ NotFound · AlreadyExists     facts, handled where they are expected
│   ├─ Conflict                     fresh reads, first retry at once, then back off
│   ├─ Expired                      410: the reflector lists again
│   └─ Rejected                     422, and 400: invalid                            slow retry
├─ NotOurs                          our name without our mark                        slow retry
└─ LeadershipLost                   another replica leads                            stop acting
    └─ VirtualNodeLeft              `federate leave` retires the virtual node        stop for good
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "AlreadyExists",
    "ClusterError",
    "ConfigError",
    "Conflict",
    "Disposition",
    "Expired",
    "FederateError",
    "Forbidden",
    "LeadershipLost",
    "NotFound",
    "NotOurs",
    "Rejected",
    "ServerFault",
    "TargetChanged",
    "Throttled",
    "Unauthorized",
    "Unreachable",
    "VirtualNodeLeft",
    "disposition_of",
]


LONGEST_DETAIL = 1024
"""Of what a server said: it stands in logs, conditions and Events."""


class FederateError(Exception):
    """Everything federate raises on purpose."""


class ConfigError(FederateError):
    """Something the user wrote is wrong; the message says where and what was expected."""


class ClusterError(FederateError):
    """A request to an API server did not do what was asked.

    `cluster` is the client's name (`hub` or the target's), `verb` the lower-case API verb,
    `subject` the kind and key in words, `detail` the server's own message (cut, but what
    PodSecurity or a webhook says is long), `reason` the server's machine-readable reason, or "".
    """

    def __init__(
        self,
        detail: str,
        *,
        cluster: str = "",
        verb: str = "",
        subject: str = "",
        reason: str = "",
        status: int = 0,
    ) -> None:
        self.detail = detail[:LONGEST_DETAIL]
        self.cluster = cluster
        self.verb = verb
        self.subject = subject
        self.reason = reason
        self.status = status
        where = " ".join(part for part in (verb, subject) if part)
        at = f" at {cluster}" if cluster else ""
        super().__init__(f"{where}{at}: {self.detail}" if where else self.detail)


class Unreachable(ClusterError):
    """No answer came; whether the request arrived is unknown."""


class TargetChanged(Unreachable):
    """The target's client speaks to another cluster than the one on record (C5).

    The target itself is out of reach, so whatever was asked of it is tried again later.
    """


class Throttled(ClusterError):
    """The server asked to wait; `retry_after_seconds` is its wish."""

    retry_after_seconds: float = 1.0


class ServerFault(ClusterError):
    """5xx: the outcome of a write is unknown."""


class Unauthorized(ClusterError):
    """401: the credentials are not accepted."""


class Forbidden(ClusterError):
    """403: RBAC, but quota, LimitRanger, PodSecurity and missing service accounts too."""


class NotFound(ClusterError):
    """404."""


class AlreadyExists(ClusterError):
    """409 on a create."""


class Conflict(ClusterError):
    """409 on a write: the resourceVersion or uid precondition did not hold."""


class Expired(ClusterError):
    """410: the resourceVersion or continue token is too old."""


class Rejected(ClusterError):
    """422 or 400: the object is invalid in the server's eyes."""


class NotOurs(FederateError):
    """An object with a name we need exists without our mark; it is touched by nobody."""


class LeadershipLost(FederateError):
    """The leader lease is held by another replica, or could not be renewed in time."""


class VirtualNodeLeft(LeadershipLost):
    """The leader lease says that its virtual node is left for good: nobody leads it any more."""


class Disposition(Enum):
    """What a controller does with a failed key."""

    RETRY_NOW = "retry at once, then back off"
    BACK_OFF = "back off"
    SLOW = "slow retry: only a person or another controller can change the outcome"
    STOP = "stop acting"


_DISPOSITIONS: tuple[tuple[type[FederateError], Disposition], ...] = (
    (LeadershipLost, Disposition.STOP),
    (Conflict, Disposition.RETRY_NOW),
    (Rejected, Disposition.SLOW),
    (NotOurs, Disposition.SLOW),
    (ClusterError, Disposition.BACK_OFF),
)


def disposition_of(error: BaseException) -> Disposition:
    """Say how to go on after `error`; anything unknown backs off."""
    for kind, disposition in _DISPOSITIONS:
        if isinstance(error, kind):
            return disposition
    return Disposition.BACK_OFF

"""When a credential ends, and when to tell of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from federate.model.instants import format_instant

FIXED_NOTICE_SECONDS = 7 * 86_400.0
"""How long before its end a credential is told of. Shorter: a weekend may pass before somebody
looks. Longer: it is told of when nothing has to be done."""

FIXED_SHARE = 1.0 / 3.0
"""One that was given for few days only is told of in the last third of its life."""

RENEWED_SHARE = 0.1
"""What renews itself does so before: a kubelet replaces tokens after 80 % of their life, so one in
its last tenth was forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The end of a credential, in Unix time; `what` names it in messages, never its value."""

    at: float
    warn_at: float
    what: str

    @property
    def instant(self) -> str:
        """The end, as Kubernetes writes it."""
        return format_instant(datetime.fromtimestamp(self.at, tz=UTC))


def expiry_between(
    begins_at: float | None, ends_at: float, *, what: str, is_renewed: bool
) -> Expiry:
    """Say when to warn of an end; `is_renewed` where something is meant to replace it in time."""
    if begins_at is None:
        notice = 0.0 if is_renewed else FIXED_NOTICE_SECONDS
    else:
        share = RENEWED_SHARE if is_renewed else FIXED_SHARE
        notice = min(FIXED_NOTICE_SECONDS, share * max(0.0, ends_at - begins_at))
    return Expiry(at=ends_at, warn_at=ends_at - notice, what=what)


def earliest(found: Iterable[Expiry | None]) -> Expiry | None:
    """Return what ends first."""
    return min((one for one in found if one is not None), key=lambda one: one.at, default=None)

"""What the target refused of one Service, and the words for that. Pure."""

from __future__ import annotations

from federate.companions.steps import Blocked
from federate.errors import ClusterError, Forbidden, Rejected, ServerFault
from federate.flow.refusals import Refusals
from federate.model.objects import fingerprint_of, metadata_of
from federate.services.following import ServiceKey
from federate.services.steps import (
    CreateService,
    DeleteService,
    PatchService,
    ServiceReason,
    Step,
)

_INTERNAL_ERROR = 500
"""What a failing admission webhook is answered with; 502 to 504 are of proxies and of overload."""


class Memory:
    """What was tried for one Service; changes are named by `change_of`."""

    def __init__(self) -> None:
        self.stripped_uid = ""
        """An object of our own making whose marks the target took off; it is to be taken back."""
        self.refusals: Refusals[str, Blocked] = Refusals()


def change_of(step: Step) -> str:
    """Return a text for what a step changes, whatever versions it names."""
    match step:
        case CreateService():
            return fingerprint_of(["create", step.body])
        case PatchService():
            body = dict(step.patch.body)
            metadata = {**metadata_of(body), "resourceVersion": "", "uid": ""}
            return fingerprint_of(["patch", {**body, "metadata": metadata}])
        case DeleteService():
            return f"delete {step.uid}"
        case _:
            return step.reason


def refusal_of_write(error: ClusterError, key: ServiceKey, *, target_name: str) -> Blocked | None:
    """Read a failed write; None where it may be a passing fault."""
    is_broken = isinstance(error, ServerFault) and error.status == _INTERNAL_ERROR
    if not (isinstance(error, (Forbidden, Rejected)) or is_broken):
        return None
    return Blocked(
        reason=ServiceReason.SERVICE_REFUSED,
        message=f"{target_name} does not take {key}; it answered: {error.detail}",
    )


def undone_words(key: ServiceKey, *, target_name: str) -> Blocked:
    """Say that somebody in the target undoes what we write."""
    return Blocked(
        reason=ServiceReason.SERVICE_REFUSED,
        message=f"somebody in {target_name} (an admission webhook or a controller) changes or "
        f"removes what stands there for {key} each time that federate writes it",
    )


def stripped_words(key: ServiceKey, *, target_name: str) -> Blocked:
    """Say that the target takes our marks off what we make."""
    return Blocked(
        reason=ServiceReason.MARKS_REMOVED,
        message=f"{target_name} strips federate's labels or annotations from what stands for "
        f"{key} (an admission webhook or policy): let federate.dev/ keys pass there",
    )

"""Decide the next step for one followed Service. Pure.

Input: the hub's Service, what stands in the target under its name, and whether pods of its
namespace run there; output: one step with its reason. A round carries it out, looks again, and asks
for the next. Deciding twice on the same input gives the same step.

    pods there, and it follows       create it, or change it to be the same; where an API server
                                     lets it not be changed, delete it first
    the hub has none any more        delete it
    no pods there, or it does not    after a while, and once that is sure, take our anchor off its
    follow any more                  owners; delete it where there is no other owner

A Service of that name without our marks is the target's: it is told, and stays untouched. The
ground is made by the mirrors; without it nothing is made here either.
"""

from __future__ import annotations

from federate.companions.steps import Blocked, Ground
from federate.model.objects import (
    JsonObject,
    is_terminating,
    resource_version_of,
    uid_of,
)
from federate.services.following import (
    disown_patch,
    is_followed,
    is_headless,
    is_owned,
    others_owners,
    render_service,
    service_of,
    service_patch,
)
from federate.services.steps import (
    ConfirmUnwanted,
    CreateService,
    DeleteService,
    LookUpCompanion,
    LookUpHubService,
    PatchService,
    Rest,
    ServiceReason,
    ServiceView,
    Standing,
    Step,
)


def plan_service(view: ServiceView) -> Step:
    """Decide the next step."""
    if not view.is_wanted:
        return _plan_unwanted(view)
    if view.ground is Ground.NOT_YET:
        return Rest(reason="no mirror stands there yet", standing=Standing.WAITING)
    if not view.hub_fresh:
        return LookUpHubService(reason="what does the hub say?")
    if view.hub_service is None:
        return _plan_absent(view)
    if not is_followed(view.hub_service, view.mode):
        return _plan_end(view, reason="it does not follow (any more)")
    return _plan_there(view, view.hub_service)


def _plan_there(view: ServiceView, hub_service: JsonObject) -> Step:
    """The target shall have it."""
    key = view.key
    if view.ground is Ground.UNINSTALLED or view.anchor is None:
        return _blocked(
            ServiceReason.UNINSTALLED,
            f"federate was uninstalled from namespace {key.target_namespace} of "
            f"{view.target_name} (its anchor was deleted there); an operator must confirm",
        )
    if not view.companion_fresh:
        return LookUpCompanion(reason="what does the target have?")
    wanted = render_service(key, hub_service, scope=view.scope, anchor=view.anchor)
    if view.companion is None:
        return CreateService(reason="the target has none", body=wanted)
    if service_of(view.scope, view.companion) != key:
        return _blocked(
            ServiceReason.NAME_TAKEN,
            f"{view.target_name} has a Service {key.target_key} that is not federate's: it stays "
            "untouched, and pods there find it under that name. Remove or rename one of the two",
        )
    return _plan_ours(view, wanted, view.companion)


def _plan_ours(view: ServiceView, wanted: JsonObject, companion: JsonObject) -> Step:
    if is_terminating(companion):
        return _blocked(
            ServiceReason.SERVICE_ENDING,
            f"Service {view.key.target_key} of {view.target_name} is being deleted there and not "
            "gone yet",
        )
    if is_headless(wanted) != is_headless(companion):
        return _delete(companion, reason="it must be made anew: whether it has an address changed")
    patch = service_patch(wanted, companion)
    if patch is not None:
        return PatchService(reason="it differs from the hub's", patch=patch)
    return Rest(reason="as on the hub", standing=Standing.FOLLOWED)


def _plan_absent(view: ServiceView) -> Step:
    """The hub has no such Service: it goes for all virtual nodes, at once."""
    if not view.companion_fresh:
        return LookUpCompanion(reason="the hub has no such Service: has the target?")
    companion = _ours(view)
    if companion is None or is_terminating(companion):
        return Rest(reason="the hub has no such Service", standing=Standing.ABSENT)
    return _delete(companion, reason="the hub's is gone")


def _plan_unwanted(view: ServiceView) -> Step:
    if view.lingers:
        return Rest(reason="no pods just now", standing=Standing.ABSENT)
    if view.companion_fresh and _is_owned(view) and not view.unwanted_fresh:
        return ConfirmUnwanted(reason="is it sure that no pods are there?")
    return _plan_end(view, reason="no pods of its namespace are there any more")


def _plan_end(view: ServiceView, *, reason: str) -> Step:
    """Take back our part in it."""
    if not view.companion_fresh:
        return LookUpCompanion(reason=f"{reason}: is it there?")
    companion = _ours(view)
    if companion is None or is_terminating(companion) or not _is_owned(view):
        return Rest(reason=reason, standing=Standing.ABSENT)
    if others_owners(view.scope, companion):
        patch = disown_patch(view.scope, companion)
        return PatchService(reason=f"{reason}, but others want it", patch=patch)
    return _delete(companion, reason=reason)


def _is_owned(view: ServiceView) -> bool:
    companion = _ours(view)
    return companion is not None and is_owned(view.scope, companion)


def _ours(view: ServiceView) -> JsonObject | None:
    companion = view.companion
    is_ours = companion is not None and service_of(view.scope, companion) == view.key
    return companion if is_ours else None


def _delete(companion: JsonObject, *, reason: str) -> DeleteService:
    return DeleteService(
        reason=reason, uid=uid_of(companion), resource_version=resource_version_of(companion)
    )


def _blocked(reason: ServiceReason, message: str) -> Rest:
    return Rest(
        reason=reason,
        standing=Standing.BLOCKED,
        blocked=Blocked(reason=reason, message=message),
    )

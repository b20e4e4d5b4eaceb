"""Decide the next step for one issued object: tokens of a pod, or news of Services. Pure.

Input: what it ought to hold, what stands in the target under its name, and who wants it; output:
one step with its reason, as `plan` decides for companions. What differs: there is no object of the
hub to copy. Tokens are asked for one by one, and only where what stands there holds no good one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from federate.companions.entries import is_made_with, taking_up
from federate.companions.identity import TokenAsk
from federate.companions.issued import IssuedKey, IssuedKind, issued_of, place_of, render_issued
from federate.companions.keys import Kind
from federate.companions.plan import companion_patch
from federate.companions.render import SIZE_LIMIT_BYTES, size_bytes
from federate.companions.steps import (
    Blocked,
    ConfirmUnwanted,
    CreateCompanion,
    DeleteCompanion,
    Enlist,
    Ground,
    LookUpCompanion,
    PatchCompanion,
    PrepareGround,
    Rest,
    Standing,
    Strike,
)
from federate.model.marks import Scope
from federate.model.objects import (
    JsonDict,
    JsonObject,
    is_terminating,
    resource_version_of,
    uid_of,
)
from federate.model.reasons import PodReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AskForToken:
    """Ask the hub for a token; it stands in memory until it is written, and in no other place."""

    reason: str
    ask: TokenAsk


IssueStep: TypeAlias = (
    Rest
    | LookUpCompanion
    | ConfirmUnwanted
    | PrepareGround
    | Enlist
    | Strike
    | AskForToken
    | CreateCompanion
    | PatchCompanion
    | DeleteCompanion
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedView:
    """Everything a decision about one issued object rests on."""

    key: IssuedKey
    scope: Scope
    target_name: str
    is_wanted: bool
    unwanted_fresh: bool = False
    """That nobody wants it was confirmed in this round."""
    lingers: bool = False
    """It is not wanted, but was a moment ago: the next pod may want it again."""
    asks: tuple[TokenAsk, ...] = ()
    good: frozenset[TokenAsk] = frozenset()
    """Those that what stands there answers, for some time to come."""
    minted: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Tokens of this round, by key, in base64."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the environment ought to hold."""
    issued: JsonObject | None = field(default=None, repr=False)
    """What stands in the target under its name, ours or not."""
    issued_fresh: bool = False
    """`issued` (or its absence) was read from the target's quorum in this round."""
    ground: Ground = Ground.NOT_YET
    anchor: JsonObject | None = None
    entry: JsonObject | None = None
    """The entry of tokens, as in `CompanionView`; so are the next three."""
    entry_fresh: bool = False
    has_line: bool = False
    is_held: bool


def plan_issued(view: IssuedView) -> IssueStep:
    """Decide the next step."""
    return _plan_wanted(view) if view.is_wanted else _plan_unwanted(view)


def _plan_wanted(view: IssuedView) -> IssueStep:
    if view.ground is Ground.UNINSTALLED:
        return _blocked(
            PodReason.UNINSTALLED,
            f"federate was uninstalled from namespace {view.key.target_namespace} of "
            f"{view.target_name} (its anchor was deleted there); an operator must confirm",
        )
    if view.ground is Ground.NOT_YET or view.anchor is None:
        return PrepareGround(reason="the target namespace or its anchor is not there yet")
    if not view.issued_fresh:
        return LookUpCompanion(reason="what does the target have?")
    return (
        _what_blocks(view)
        or _must_make_anew(view)
        or _must_enlist(view)
        or _must_ask(view)
        or _plan_contents(view, view.entry or view.anchor)
    )


def _what_blocks(view: IssuedView) -> Rest | None:
    if view.issued is None:
        return None
    if not _is_ours(view, view.issued):
        return _name_taken(view)
    if is_terminating(view.issued):
        return _blocked(
            PodReason.COMPANION_ENDING, f"{_named(view)} is being deleted there and not gone yet"
        )
    return None


def _must_make_anew(view: IssuedView) -> DeleteCompanion | None:
    if view.issued is None or _is_marked(view, view.issued):
        return None
    return _delete(view.issued, reason="it must be made anew: its marks were taken off")


def _must_enlist(view: IssuedView) -> Enlist | None:
    """Tokens are made on an entry only that nobody else is about to strike."""
    is_good = view.entry is not None and (view.issued is not None or view.entry_fresh)
    if view.key.kind is IssuedKind.SERVICES or is_good:
        return None
    return Enlist(reason="on record before it is there")


def _must_ask(view: IssuedView) -> AskForToken | None:
    for ask in view.asks:
        if ask not in view.good and ask.value_key not in view.minted:
            return AskForToken(reason="there is none, or it grows old", ask=ask)
    return None


def _plan_contents(view: IssuedView, owner: JsonObject) -> IssueStep:
    kind = view.key.kind.kind
    wanted = render_issued(view.key, wanted_values(view), scope=view.scope, owner=owner)
    if size_bytes(kind, wanted) > SIZE_LIMIT_BYTES:
        return _blocked(
            PodReason.COMPANION_TOO_LARGE,
            f"{view.key} is larger than {SIZE_LIMIT_BYTES} bytes: no API server takes it. Pods "
            "with enableServiceLinks: false are not told of Services",
        )
    if view.issued is None:
        return CreateCompanion(reason="the target has none", body=wanted)
    patch = companion_patch(kind, wanted, view.issued)
    if patch is None and not view.is_held:
        return PatchCompanion(reason="taken up before it is used", patch=taking_up(view.issued))
    if patch is None:
        return Rest(reason="as it ought to be", standing=Standing.SETTLED)
    is_fixed = view.issued.get("immutable") or view.issued.get("type") != wanted.get("type")
    if is_fixed:
        return _delete(view.issued, reason="it must be made anew: somebody there fixed it")
    return PatchCompanion(reason="it is not as it ought to be", patch=patch)


def wanted_values(view: IssuedView) -> JsonDict:
    """Return what it ought to hold: new tokens, good ones that are there, or the variables."""
    if view.key.kind is IssuedKind.SERVICES:
        return dict(view.variables)
    there = (view.issued or {}).get("data") or {}
    return {
        ask.value_key: view.minted.get(ask.value_key) or there[ask.value_key] for ask in view.asks
    }


def _plan_unwanted(view: IssuedView) -> IssueStep:
    if view.lingers:
        return Rest(reason="nobody wants it just now", standing=Standing.ABSENT)
    if not view.issued_fresh:
        return LookUpCompanion(reason="nobody wants it: is it there?")
    if view.issued is None or not _is_ours(view, view.issued):
        return _plan_record(view)
    if not view.unwanted_fresh:
        return ConfirmUnwanted(reason="is it sure that nobody wants it?")
    if is_terminating(view.issued):
        return Rest(reason="it is ending", standing=Standing.ABSENT)
    return _delete(view.issued, reason="nobody wants it any more")


def _is_marked(view: IssuedView, issued: JsonObject) -> bool:
    return issued_of(view.scope, issued) == view.key


def _plan_record(view: IssuedView) -> IssueStep:
    """There is none, or none of ours: see what is on record of it."""
    if view.entry is None and not view.has_line:
        return Rest(reason="nobody wants it", standing=Standing.ABSENT)
    if view.issued is not None:
        # It may be ours, stripped of all that would tell: then the record is the only trace.
        return _name_taken(view)
    return Strike(reason="there is none any more", entry=view.entry)


def _is_ours(view: IssuedView, issued: JsonObject) -> bool:
    """Tell whether it is ours by its marks, or by its owner where the target took them off."""
    return _is_marked(view, issued) or is_made_with(view.entry, issued)


def _name_taken(view: IssuedView) -> Rest:
    return _blocked(
        PodReason.NAME_TAKEN,
        f"{_named(view)} has a name of federate's, but not its marks: it stays untouched. Remove "
        "or rename it there",
    )


def _delete(issued: JsonObject, *, reason: str) -> DeleteCompanion:
    return DeleteCompanion(
        reason=reason, uid=uid_of(issued), resource_version=resource_version_of(issued)
    )


def _named(view: IssuedView) -> str:
    kind: Kind = view.key.kind.kind
    return f"{kind} {place_of(view.scope, view.key)} of {view.target_name}, the {view.key},"


def _blocked(reason: PodReason, message: str) -> Rest:
    return Rest(
        reason=reason,
        standing=Standing.BLOCKED,
        blocked=Blocked(reason=reason, message=message),
    )

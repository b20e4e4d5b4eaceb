"""What came along with pods and nobody wants: found, and removed (C30, C51).

While federate runs, `CompanionSweeper` hands what nobody wants, and what is wanted and missing, to
the queue of the companions, which confirms and acts. The command line has `survey_brought` and
`remove_brought`; `federate leave` the latter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.demand import Demand
from federate.companions.entries import is_made_with
from federate.companions.keys import CompanionKey, Kind
from federate.companions.record import key_of_brought, told_by
from federate.errors import Conflict, Forbidden, NotFound
from federate.garbage.brought import (
    Brought,
    brought,
    of_others,
    wanted_anywhere,
)
from federate.model.marks import COMPANION_LABEL, HUB_LABEL, Scope
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, PODS, Resource

log = structlog.stdlib.get_logger(__name__)

SWEEP_PERIOD_SECONDS = 60.0
"""How often what stands in the target is compared with what pods want; events come first."""

ASKED = "asked to go"
NOT_OURS = "left alone: it does not carry federate's marks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What stood there for one thing when somebody looked: metadata alone; None for nothing."""

    found: JsonObject | None
    entry: JsonObject | None
    """A Secret's entry, where it tells of that very thing."""


async def sight(target: ClusterPort, scope: Scope, one: Brought) -> Sighting:
    """Read by name what stands there; an entry first, so that one put to use meanwhile stays."""
    entry = await _entry_of(target, scope, one) if one.kind is Kind.SECRET else None
    return Sighting(found=await _found(target, one.kind.resource, one.place), entry=entry)


async def remove_brought(
    target: ClusterPort,
    scope: Scope,
    one: Brought,
    *,
    fence: Callable[[], None],
    seen: Sighting | None = None,
) -> str:
    """Delete it as it was seen, by marks, name and version; say why not, "" where it was gone.

    A virtual node that puts to use what is there makes another version of it first. So whoever is
    told that nobody wants it hands over what he saw *before* that; else it is looked at now. The
    entry of a Secret goes once that is gone.
    """
    seen = seen or await sight(target, scope, one)
    found, entry = seen.found, seen.entry
    said = ""
    if found is not None:
        is_ours = key_of_brought(scope, found) == one.key or is_made_with(entry, found)
        said = await _remove_found(target, one, found, fence=fence) if is_ours else NOT_OURS
    if entry is None or said not in ("", ASKED):
        return said
    if said and await _found(target, one.kind.resource, one.place) is not None:
        return said
    return await _delete(target, CONFIGMAPS, entry, fence=fence) or said


async def _remove_found(
    target: ClusterPort, one: Brought, found: JsonObject, *, fence: Callable[[], None]
) -> str:
    if is_terminating(found):
        return "ending"
    return await _delete(target, one.kind.resource, found, fence=fence) or ASKED


async def _entry_of(target: ClusterPort, scope: Scope, one: Brought) -> JsonDict | None:
    entry = await _found(target, CONFIGMAPS, one.place)
    return entry if entry is not None and told_by(scope, entry) == one.key else None


async def _found(target: ClusterPort, resource: Resource, place: ObjectKey) -> JsonDict | None:
    try:
        return await target.get(resource, place, metadata_only=True)
    except NotFound:
        return None


async def _delete(
    target: ClusterPort, resource: Resource, found: JsonObject, *, fence: Callable[[], None]
) -> str:
    """Delete that very version; say why not, "" where the target took it or it was gone."""
    fence()
    try:
        await target.delete(
            resource,
            key_of(found),
            uid=uid_of(found),
            resource_version=resource_version_of(found),
        )
    except NotFound:
        return ""
    except Conflict:
        return "changed meanwhile"
    return ""


# -- while federate runs ---------------------------------------------------------------------------


class Companions(Protocol):
    """The companions of a running virtual node, as `companions.reconciler` has them."""

    def inventory(self) -> frozenset[CompanionKey]:
        """Return what the target shows."""

    def demand(self) -> Demand:
        """Return what pods want."""

    def missing(self) -> Sequence[CompanionKey]:
        """Return what is wanted and has not come to rest."""

    def enqueue(self, key: CompanionKey) -> None:
        """Have one looked at."""


class CompanionSweeper:
    """The net under the events, both ways: what nobody wants, and what is wanted and missing.

    Nothing is deleted on its word: the queue confirms each by complete listings of both sides.
    """

    def __init__(self, companions: Companions, scope: Scope) -> None:
        self._companions = companions
        self._scope = scope

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_SECONDS)
            self.sweep()

    def sweep(self) -> frozenset[CompanionKey]:
        """Have looked at whatever is there and unwanted, or wanted and not there."""
        demand = self._companions.demand()
        unwanted = {
            key for key in self._companions.inventory() if not demand.wants(self._scope, key)
        }
        missing = set(self._companions.missing())
        if unwanted or missing:
            log.debug("companions compared", unwanted=len(unwanted), missing=len(missing))
        for key in sorted(unwanted | missing):
            self._companions.enqueue(key)
        return frozenset(unwanted | missing)


# -- by hand ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtSurvey:
    """What a look at both sides found: `unwanted` may be removed, `unknown` only by leaving."""

    found: tuple[Brought, ...]
    unwanted: tuple[Brought, ...]
    unknown: Mapping[str, int]
    """How many objects of other virtual nodes of this hub are there, by node name."""


async def survey_brought(
    hub: ClusterPort,
    target: ClusterPort,
    scope: Scope,
    *,
    confirm_hub: Callable[[], Awaitable[None]],
    namespaces: Sequence[str] = ("",),
    are_made: bool = True,
) -> BroughtSurvey:
    """Read the target first, then all hub pods of the node, and compare.

    In this order what a hub pod that is created meanwhile refers to is seen, and kept. Where
    companions are off (not `are_made`) only mirrors want any.
    """
    configmaps, anchors, mirrors = await _read_target(target, scope, namespaces)
    hub_pods = await hub.list(PODS, field_selector=f"spec.nodeName={scope.node_name}")
    await confirm_hub()
    found = brought(scope, configmaps=configmaps, anchors=anchors)
    wanted = wanted_anywhere(scope, hub_pods.items if are_made else (), mirrors)
    return BroughtSurvey(
        found=found,
        unwanted=tuple(one for one in found if not wanted(one)),
        unknown=of_others(scope, configmaps, anchors),
    )


async def _read_target(
    target: ClusterPort, scope: Scope, namespaces: Sequence[str]
) -> tuple[list[JsonDict], list[JsonDict], list[JsonDict]]:
    ours = f"{HUB_LABEL}={scope.hub_id}"
    configmaps: list[JsonDict] = []
    anchors: list[JsonDict] = []
    mirrors: list[JsonDict] = []
    for namespace in namespaces:
        try:
            listings = [
                await target.list(
                    CONFIGMAPS,
                    namespace=namespace,
                    label_selector=f"{ours},{COMPANION_LABEL}",
                    metadata_only=True,
                ),
                await target.list(
                    CONFIGMAPS, namespace=namespace, label_selector=f"{ours},!{COMPANION_LABEL}"
                ),
                await target.list(PODS, namespace=namespace, label_selector=ours),
            ]
        except Forbidden as error:
            if not namespace:
                raise
            log.warning("a target namespace is not swept", namespace=namespace, error=str(error))
            continue
        for whole, listing in zip((configmaps, anchors, mirrors), listings, strict=True):
            whole += listing.items
    return configmaps, anchors, mirrors

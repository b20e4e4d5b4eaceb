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
from federate.companions.keys import CompanionKey
from federate.errors import Conflict, Forbidden, NotFound
from federate.garbage.brought import (
    Brought,
    brought,
    brought_key_of,
    of_others,
    wanted_anywhere,
)
from federate.model.marks import COMPANION_LABEL, HUB_LABEL, Scope
from federate.model.objects import JsonDict, is_terminating, resource_version_of, uid_of
from federate.model.resources import CONFIGMAPS, PODS

log = structlog.stdlib.get_logger(__name__)

SWEEP_PERIOD_SECONDS = 60.0
"""How often what stands in the target is compared with what pods want; events come first."""

NOT_OURS = "left alone: it does not carry federate's marks"


async def remove_brought(
    target: ClusterPort, scope: Scope, one: Brought, *, fence: Callable[[], None]
) -> str:
    """Delete it as it is found now, by marks and name; say why not, "" where it is gone."""
    try:
        found = await target.get(one.kind.resource, one.place, metadata_only=True)
    except NotFound:
        return ""
    if brought_key_of(scope, found) != one.key:
        return NOT_OURS
    if is_terminating(found):
        return "ending"
    fence()
    try:
        await target.delete(
            one.kind.resource,
            one.place,
            uid=uid_of(found),
            resource_version=resource_version_of(found),
        )
    except NotFound:
        return ""
    except Conflict:
        return "changed meanwhile"
    return "asked to go"


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
) -> BroughtSurvey:
    """Read the target first, then all hub pods of the node, and compare.

    In this order what a hub pod that is created meanwhile refers to is seen, and kept.
    """
    configmaps, anchors, mirrors = await _read_target(target, scope, namespaces)
    hub_pods = await hub.list(PODS, field_selector=f"spec.nodeName={scope.node_name}")
    await confirm_hub()
    found = brought(scope, configmaps=configmaps, anchors=anchors)
    wanted = wanted_anywhere(scope, hub_pods.items, mirrors)
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

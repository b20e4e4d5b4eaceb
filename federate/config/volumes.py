"""The part of the configuration file that says what of storage a target has (docs/volumes.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field

from federate.claims.rules import ClaimMode, ClaimRules
from federate.config import values
from federate.config.parts import Part, Says, one_of
from federate.config.tree import Loc

ClassName = Annotated[str, AfterValidator(values.object_name), Says("name of an object")]
TargetClass = Annotated[str, AfterValidator(values.object_name_or_none), Says("name of an object")]
Classes: TypeAlias = Annotated[
    dict[ClassName, TargetClass], Says("classes of the target by the hub's")
]


class VolumesPart(Part):
    """Which volumes pods may have."""

    claims: Annotated[ClaimMode, one_of(ClaimMode)] = Field(
        default=ClaimMode.REFUSE,
        description="What becomes of pods with PersistentVolumeClaims or `ephemeral` volumes. "
        "`refuse`: they wait, and say so. `target`: their storage is made in the target.",
    )
    storage_classes: Classes = Field(
        default_factory=dict,
        description="Which class of the target stands for a class of the hub; an empty text: "
        "whichever is the target's default. Claims of other classes are refused. `target`, which "
        "needs it.",
    )
    csi_drivers: Annotated[list[ClassName], Says("list of drivers")] = Field(
        default_factory=list,
        description="CSI drivers of the target that pods may call by `csi` volumes. Each acts "
        "there with rights of its own, on what a hub user writes.",
    )


def claim_rules(part: VolumesPart) -> ClaimRules:
    """Turn the part into rules."""
    return ClaimRules(
        mode=part.claims,
        storage_classes=part.storage_classes,
        csi_drivers=frozenset(part.csi_drivers),
    )


def volumes_findings(part: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    """Say what is wrong between the keys of the part."""
    is_target = part.get("claims") == ClaimMode.TARGET
    if is_target and not part.get("storageClasses"):
        yield ("storageClasses",), "missing; claims target needs it"
    if not is_target and part.get("storageClasses"):
        yield ("storageClasses",), "does nothing with claims refuse; expected claims target"

"""A taint that a virtual node carries besides the one that tells what it is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint, as it stands in a Node's spec."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE

"""The taints that a virtual node carries. Pure.

One tells what it is, and keeps off pods that do not ask for such a node; more are the user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from federate.model.objects import JsonDict
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"

    @property
    def is_hard(self) -> bool:
        """Tell whether a scheduler, and the DaemonSet controller, keep such pods off."""
        return self is not TaintEffect.PREFER_NO_SCHEDULE


class VirtualNodeTaintEffect(StrEnum):
    """What the taint does that tells a virtual node: an effect, or there is none."""

    NO_SCHEDULE = TaintEffect.NO_SCHEDULE
    PREFER_NO_SCHEDULE = TaintEffect.PREFER_NO_SCHEDULE
    NO_EXECUTE = TaintEffect.NO_EXECUTE
    NONE = "none"

    @property
    def effect(self) -> TaintEffect | None:
        """Return the effect; None: there is no such taint."""
        return None if self is VirtualNodeTaintEffect.NONE else TaintEffect(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint, as it stands in a Node's spec."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE

    def as_json(self) -> JsonDict:
        """Return what stands in the Node.

        An empty value is left out, as servers do: else it would be written again and again.
        """
        value = {"value": self.value} if self.value else {}
        return {"key": self.key, **value, "effect": str(self.effect)}


def taints_of_virtual_node(
    *, value: str, effect: TaintEffect | None, more: Iterable[Taint]
) -> tuple[Taint, ...]:
    """Return all taints of a virtual node; effect None: without the one that tells what it is.

    C3 does not rest on that one: a mirror never tolerates it, and is kept off virtual nodes by its
    required node affinity and by its marks besides.
    """
    own = () if effect is None else (Taint(key=VIRTUAL_NODE_TAINT_KEY, value=value, effect=effect),)
    return (*own, *more)

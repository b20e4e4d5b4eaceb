"""What of a pod names a class or a scheduler, which may mean something else in the target. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from federate.model.objects import JsonDict, JsonObject
from federate.policy.rules import PolicyRules
from federate.policy.spots import Spot

DEFAULT_SCHEDULER = "default-scheduler"
"""What API servers put in where nothing was asked for."""

NAMED: Mapping[str, Callable[[PolicyRules], Mapping[str, str]]] = {
    "runtimeClassName": lambda rules: rules.runtime_classes,
    "priorityClassName": lambda rules: rules.priority_classes,
    "schedulerName": lambda rules: rules.schedulers,
}
"""Fields that name such a thing, and the map with the target's names."""


def find_runtime_class(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find a runtime class that has no name in the target."""
    yield from _find(spec, rules, "runtimeClassName", "the runtime class")


def find_priority_class(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find a priority class that has no name in the target."""
    yield from _find(spec, rules, "priorityClassName", "the priority class")


def find_scheduler(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find a scheduler that was asked for and has no name in the target."""
    if spec.get("schedulerName") != DEFAULT_SCHEDULER:
        yield from _find(spec, rules, "schedulerName", "the scheduler")


def _find(spec: JsonObject, rules: PolicyRules, field: str, words: str) -> Iterator[Spot]:
    name = spec.get(field)
    if name and name not in NAMED[field](rules):
        yield Spot(f"spec.{field}", f"{words} {name}")


def strip_runtime_class(spec: JsonDict, rules: PolicyRules) -> None:
    """Leave the class to the target."""
    _strip(spec, rules, "runtimeClassName")


def strip_priority_class(spec: JsonDict, rules: PolicyRules) -> None:
    """Leave the class to the target."""
    _strip(spec, rules, "priorityClassName")


def strip_scheduler(spec: JsonDict, rules: PolicyRules) -> None:
    """Leave the scheduler to the target."""
    _strip(spec, rules, "schedulerName")


def _strip(spec: JsonDict, rules: PolicyRules, field: str) -> None:
    if spec.get(field) not in NAMED[field](rules):
        spec.pop(field, None)


def mapped_names(spec: JsonObject, rules: PolicyRules) -> dict[str, str]:
    """Return the fields that name something by another name in the target, with that name."""
    return {
        field: there
        for field, names_of in NAMED.items()
        if (there := names_of(rules).get(spec.get(field) or "")) is not None
    }

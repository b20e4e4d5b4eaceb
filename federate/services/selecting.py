"""What selects pods: a Service by equality, a NetworkPolicy by a label selector. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from federate.model.objects import JsonObject, spec_of

EXTERNAL_NAME = "ExternalName"


def service_selects(service: JsonObject, labels: Mapping[str, str]) -> bool:
    """Tell whether a Service sends traffic to pods with these labels, in its namespace."""
    selector: Mapping[str, str] = spec_of(service).get("selector") or {}
    if not selector or spec_of(service).get("type") == EXTERNAL_NAME:
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def policy_selects(policy: JsonObject, labels: Mapping[str, str]) -> bool:
    """Tell whether a NetworkPolicy is about pods with these labels, in its namespace."""
    return label_selector_selects(spec_of(policy).get("podSelector") or {}, labels)


def label_selector_selects(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    """Evaluate a LabelSelector; an empty one selects all."""
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _holds(expression: JsonObject, labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            # Of a newer Kubernetes: rather one policy too many is told of than one too few.
            return True

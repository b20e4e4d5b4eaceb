"""What is kept of the hub's Services and NetworkPolicies: as much as anybody asks for. Pure."""

from __future__ import annotations

from federate.model.marks import COMPANION_LABEL, FOLLOW_LABEL
from federate.model.objects import JsonDict, JsonObject, labels_of, metadata_of, spec_of

_KNOWN_BY = ("namespace", "name", "uid", "resourceVersion")
_LABELS = (FOLLOW_LABEL, COMPANION_LABEL)

SERVICE_FIELDS = (
    "clusterIP",
    "internalTrafficPolicy",
    "ports",
    "publishNotReadyAddresses",
    "selector",
    "sessionAffinity",
    "sessionAffinityConfig",
    "type",
)


def service_facts(service: JsonDict) -> JsonObject:
    """Keep of a Service what follows it, what selects pods, and what pods are told of it."""
    spec = spec_of(service)
    return {
        "metadata": _outline(service),
        "spec": {name: spec[name] for name in SERVICE_FIELDS if name in spec},
    }


def policy_facts(policy: JsonDict) -> JsonObject:
    """Keep of a NetworkPolicy whom it selects."""
    spec = spec_of(policy)
    kept = {"podSelector": spec["podSelector"]} if "podSelector" in spec else {}
    return {"metadata": _outline(policy), "spec": kept}


def _outline(obj: JsonObject) -> JsonDict:
    metadata = metadata_of(obj)
    outline: JsonDict = {name: metadata[name] for name in _KNOWN_BY if name in metadata}
    labels = {key: value for key, value in labels_of(obj).items() if key in _LABELS}
    return {**outline, "labels": labels} if labels else outline

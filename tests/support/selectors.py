"""Label and field selectors as an API server reads them, and what they select.

Written for the in-memory cluster; a selector it does not understand is refused as the server does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from federate.errors import Rejected
from federate.model.objects import JsonObject, key_of, labels_of, spec_of, status_of
from federate.model.resources import CORE_EVENTS, PODS, Resource

Matcher: TypeAlias = Callable[[JsonObject], bool]

_SET_TERM = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY_TERM = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!\s]*)$")
_EXISTS_TERM = re.compile(r"^(?P<negated>!?)\s*(?P<key>[^=!\s(),]+)$")

_POD_FIELDS: Mapping[str, Callable[[JsonObject], str]] = {
    "spec.nodeName": lambda pod: spec_of(pod).get("nodeName") or "",
    "spec.restartPolicy": lambda pod: spec_of(pod).get("restartPolicy") or "",
    "spec.schedulerName": lambda pod: spec_of(pod).get("schedulerName") or "",
    "spec.serviceAccountName": lambda pod: spec_of(pod).get("serviceAccountName") or "",
    "status.phase": lambda pod: status_of(pod).get("phase") or "",
    "status.podIP": lambda pod: status_of(pod).get("podIP") or "",
}
_EVENT_FIELDS: Mapping[str, Callable[[JsonObject], str]] = {
    "involvedObject.kind": lambda event: (event.get("involvedObject") or {}).get("kind") or "",
    "involvedObject.uid": lambda event: (event.get("involvedObject") or {}).get("uid") or "",
}
_ALL_FIELDS: Mapping[str, Callable[[JsonObject], str]] = {
    "metadata.name": lambda obj: key_of(obj).name,
    "metadata.namespace": lambda obj: key_of(obj).namespace,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a resource a list or watch sees."""

    resource: Resource
    namespace: str
    terms: tuple[Matcher, ...]

    def matches(self, obj: JsonObject) -> bool:
        if self.namespace and key_of(obj).namespace != self.namespace:
            return False
        return all(term(obj) for term in self.terms)


def select(
    resource: Resource, *, namespace: str, label_selector: str, field_selector: str
) -> Selection:
    """Read both selectors.

    Raises:
        Rejected: a selector is malformed, or names a field that cannot be selected by.
    """
    labels = tuple(_label_term(term) for term in split_terms(label_selector))
    fields = tuple(_field_term(resource, term) for term in split_terms(field_selector))
    return Selection(resource=resource, namespace=namespace, terms=labels + fields)


def split_terms(selector: str) -> list[str]:
    """Cut at the commas outside parentheses."""
    terms = re.split(r",(?![^(]*\))", selector)
    return [term.strip() for term in terms if term.strip()]


def _label_term(term: str) -> Matcher:
    if found := _SET_TERM.match(term):
        key, negated = found["key"], found["operator"] == "notin"
        values = {value.strip() for value in found["values"].split(",")}
        # As on the server, `notin` and `!=` hold for objects without the label, too.
        return lambda obj: (labels_of(obj).get(key) in values) != negated
    if found := _EQUALITY_TERM.match(term):
        key, value, negated = found["key"], found["value"], found["operator"] == "!="
        return lambda obj: (labels_of(obj).get(key) == value) != negated
    if found := _EXISTS_TERM.match(term):
        key, negated = found["key"], bool(found["negated"])
        return lambda obj: (key in labels_of(obj)) != negated
    raise Rejected(f"unable to parse requirement: {term}", reason="BadRequest", status=400)


def _field_term(resource: Resource, term: str) -> Matcher:
    found = _EQUALITY_TERM.match(term)
    if not found:
        raise Rejected(f"invalid field selector: {term}", reason="BadRequest", status=400)
    own = {PODS: _POD_FIELDS, CORE_EVENTS: _EVENT_FIELDS}.get(resource, {})
    fields = {**_ALL_FIELDS, **own}
    field = fields.get(found["key"])
    if field is None:
        raise Rejected(
            f"field label not supported: {found['key']}", reason="BadRequest", status=400
        )
    value, negated = found["value"], found["operator"] == "!="
    return lambda obj: (field(obj) == value) != negated

"""A target that lets federate do no more than a Role in some namespaces says (C1, C22)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from federate.errors import Forbidden
from tests.support.fakeclient import Call, Fault, Refuse

ROLE: Mapping[str, Collection[str]] = {
    "pods": ("get", "list", "watch", "create", "patch", "delete"),
    "pods/ephemeralcontainers": ("patch",),
    "pods/resize": ("patch",),
    "configmaps": ("get", "list", "watch", "create", "patch", "delete"),
    "secrets": ("get", "create", "patch", "delete"),
    "serviceaccounts": ("get",),
    "events": ("watch",),
    "pods/log": ("get",),
    "pods/exec": ("get", "create"),
    "pods/attach": ("get", "create"),
    "pods/portforward": ("get", "create"),
    "pods.metrics.k8s.io": ("list",),
}
"""All that federate needs in a namespace it is confined to."""


def role_in(*namespaces: str, refused: list[str] | None = None) -> Callable[[Call], Fault | None]:
    """Refuse whatever the role in these namespaces does not grant, and note it."""

    def judge(call: Call) -> Fault | None:
        resource = "/".join(part for part in (call.resource.plural, call.subresource) if part)
        if resource.startswith("/"):
            return None  # a document like /version, which everybody may read
        if call.key.namespace in namespaces and call.verb in ROLE.get(resource, ()):
            return None
        if refused is not None:
            refused.append(str(call))
        detail = f'{resource} is forbidden: User "federate" cannot {call.verb} resource'
        return Refuse(Forbidden(detail, reason="Forbidden", status=403))

    return judge

"""Rights become manifests that `kubectl apply -f -` takes, each rule with its reason. Pure.

Written by hand instead of by a YAML library, because the comments are half of what an admin reads.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from federate.check.rights import SYSTEM_NAMESPACE, Circumstances, Right, rights

WIDTH = 96

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who gets the rights: a service account that is made for it, or a user who is there."""

    name: str
    """Of the roles and bindings, and of the service account."""
    namespace: str
    user: str = ""

    @property
    def subject(self) -> tuple[str, ...]:
        """Return the subject of a binding, as lines."""
        if self.user:
            return (f"- apiGroup: {RBAC}", "  kind: User", f"  name: {_text(self.user)}")
        return (
            "- kind: ServiceAccount",
            f"  name: {_text(self.name)}",
            f"  namespace: {_text(self.namespace)}",
        )


def account_namespace(around: Circumstances) -> str:
    """Return where the service account stands unless somebody says otherwise.

    An admin who gives away single namespaces gives away no account elsewhere.
    """
    return around.confined_to[0] if around.confined_to else SYSTEM_NAMESPACE


def render_manifests(around: Circumstances, account: Account, *, title: str) -> str:
    """Render the service account, roles and bindings as one YAML stream."""
    found = rights(around)
    documents = [] if account.user else [_account(account)]
    everywhere = [right for right in found if not right.namespace]
    if everywhere:
        documents += [_role("", account, everywhere), _binding("", account)]
    for namespace in dict.fromkeys(right.namespace for right in found if right.namespace):
        there = [right for right in found if right.namespace == namespace]
        documents += [_role(namespace, account, there), _binding(namespace, account)]
    return "\n".join(_comment(title)) + "\n" + "---\n".join(["", *documents])


def _account(account: Account) -> str:
    return _lines(
        "apiVersion: v1",
        "kind: ServiceAccount",
        "metadata:",
        f"  name: {_text(account.name)}",
        f"  namespace: {_text(account.namespace)}",
    )


def _role(namespace: str, account: Account, found: Sequence[Right]) -> str:
    return _lines(
        f"apiVersion: {RBAC}/v1",
        f"kind: {_kind(namespace)}",
        "metadata:",
        f"  name: {_text(account.name)}",
        *([f"  namespace: {_text(namespace)}"] if namespace else []),
        "rules:",
        *(line for right in found for line in _rule(right)),
    )


def _rule(right: Right) -> Iterator[str]:
    need = "Without it" if right.is_required else "Optional; without it"
    yield from _comment(f"{_sentence(right.why)} {need} {right.without}.")
    yield f"- apiGroups: {_list([right.group])}"
    yield f"  resources: {_list([right.resource])}"
    if right.names:
        yield f"  resourceNames: {_list(right.names)}"
    yield f"  verbs: {_list(right.verbs)}"


def _binding(namespace: str, account: Account) -> str:
    return _lines(
        f"apiVersion: {RBAC}/v1",
        f"kind: {_kind(namespace)}Binding",
        "metadata:",
        f"  name: {_text(account.name)}",
        *([f"  namespace: {_text(namespace)}"] if namespace else []),
        "roleRef:",
        f"  apiGroup: {RBAC}",
        f"  kind: {_kind(namespace)}",
        f"  name: {_text(account.name)}",
        "subjects:",
        *account.subject,
    )


def _kind(namespace: str) -> str:
    return "Role" if namespace else "ClusterRole"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _comment(text: str) -> list[str]:
    return [
        f"# {part}".rstrip()
        for line in text.splitlines()
        for part in textwrap.wrap(line, WIDTH) or [""]
    ]


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    # JSON is YAML: a namespace called `null` or `1234` stays a string.
    return json.dumps(value)


def _list(values: Iterable[str]) -> str:
    return json.dumps(list(values))

"""Say why a hub pod gets no mirror, in words a user can act on. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from federate.claims.places import volume_refusals
from federate.companions.holding import Hold
from federate.companions.keys import Kind
from federate.companions.references import references_of, unsupported_of
from federate.companions.steps import Blocked
from federate.companions.words import Words
from federate.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.mirror.render import RenderRules
from federate.model.hostports import HostPort
from federate.model.marks import carries_marks
from federate.model.naming import SYSTEM_NAMESPACES
from federate.model.objects import JsonObject, ObjectKey, spec_of
from federate.model.pods import is_daemonset_pod
from federate.model.reasons import PodReason
from federate.policy.rules import DaemonSetMode
from federate.policy.verdict import Violation, refusal_words, refusals_of, travelling_pod

_BROUGHT = tuple(f'{kind} "' for kind in Kind)
_TOKEN = "a service account token"  # noqa: S105 (words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod waits: `reason` is PascalCase and documented, `message` says what to do."""

    reason: str
    message: str


def refusal_of(
    hub_pod: JsonObject,
    *,
    mirror_key: ObjectKey,
    rules: RenderRules,
    target_name: str,
    allow_system_namespaces: bool = False,
) -> Refusal | None:
    """Refuse what must not, or cannot yet, run in a target; None where nothing speaks against."""
    if carries_marks(hub_pod):
        return Refusal(
            reason=PodReason.MIRROR_OF_MIRROR,
            message="the pod carries federate's marks: a mirror is never mirrored again. "
            "Remove the labels federate.dev/… from the pod or its template",
        )
    daemon = _daemon_refusal(rules.policy.daemon_sets) if is_daemonset_pod(hub_pod) else None
    if daemon is not None:
        return daemon
    if mirror_key.namespace in SYSTEM_NAMESPACES and not allow_system_namespaces:
        return Refusal(
            reason=PodReason.SYSTEM_NAMESPACE_REFUSED,
            message=f"pods are not run in the target's system namespace {mirror_key.namespace}",
        )
    forbidden = refusals_of(hub_pod, rules.policy)
    if forbidden:
        return policy_refusal(forbidden, target_name)
    unlent = volume_refusals(hub_pod, rules.claims, target_name=target_name)
    if unlent:
        return companion_refusal(unlent[0])
    return _needs_refusal(hub_pod, rules)


def policy_refusal(forbidden: Sequence[Violation], target_name: str) -> Refusal:
    """Say what the target's operator refuses of a pod, or of a part of one."""
    return Refusal(
        reason=PodReason.POLICY_REFUSED, message=refusal_words(tuple(forbidden), target_name)
    )


def _daemon_refusal(mode: DaemonSetMode) -> Refusal | None:
    match mode:
        case DaemonSetMode.MIRROR:
            return None
        case DaemonSetMode.PRETEND:
            return Refusal(
                reason=PodReason.NOT_RUN_HERE,
                message="DaemonSet pods are not run in targets: this one is taken for ready, so "
                "that roll-outs go on (policy.daemonSets is pretend)",
            )
        case DaemonSetMode.PENDING:
            return Refusal(
                reason=PodReason.DAEMONSET_NOT_MIRRORED,
                message="DaemonSet pods are not run in targets. Keep the DaemonSet off the virtual "
                "node with a node affinity: type NotIn virtual-kubelet",
            )
        case _:
            assert_never(mode)


def _needs_refusal(hub_pod: JsonObject, rules: RenderRules) -> Refusal | None:
    needs = needs_of(spec_of(travelling_pod(hub_pod, rules.policy)), rules)
    if needs:
        return Refusal(
            reason=PodReason.COMPANION_MISSING,
            message="the pod needs what federate does not bring to a target"
            f"{_why_not_brought(needs, rules)}: {', '.join(needs)}",
        )
    return None


def _why_not_brought(needs: Sequence[str], rules: RenderRules) -> str:
    """Say what of the configuration is the reason; "" where nothing there would help."""
    why = []
    if rules.scope is None and any(need.startswith(_BROUGHT) for need in needs):
        why.append("companions are off")
    if _TOKEN in needs:
        why.append("identity is none")
    return f" ({', '.join(why)})" if why else ""


def needs_of(spec: JsonObject, rules: RenderRules) -> tuple[str, ...]:
    """Say in words what of the hub a spec leans on, and does not find in the target; sorted.

    Optional references count: a mirror may never point at a target object that is not ours, present
    or not.
    """
    brings_tokens = rules.brings_tokens
    found = set(
        unsupported_of(
            spec,
            brings_tokens=brings_tokens,
            travelling_tokens=rules.travelling_tokens,
            travelling_claims=rules.claims.are_made,
        )
    )
    if rules.scope is None:
        references = references_of(spec, brings_tokens=brings_tokens)
        found.update(f'{named.kind} "{named.name}"' for named in references)
    return tuple(sorted(found))


def names_objects(spec: JsonObject, rules: RenderRules) -> bool:
    """Tell whether a spec, or a part of one, names objects that its mirror calls otherwise."""
    if rules.scope is None:
        return False
    named = references_of(spec, brings_tokens=rules.brings_tokens)
    return any((reference.kind, reference.name) not in rules.shared for reference in named)


def companion_refusal(blocked: Blocked) -> Refusal:
    """Say what keeps a companion from coming, and so the pod from starting."""
    return Refusal(reason=blocked.reason, message=blocked.message)


def coming_refusal(target_name: str, hold: Hold) -> Refusal:
    """Say that a companion is long in coming: the first of them, so that words seldom change."""
    return Refusal(
        reason=PodReason.COMPANION_COMING,
        message=f"{hold.coming[0]} is not in {target_name} yet: it is waited for, hub or target "
        "answer slowly",
    )


def unmapped_refusal(target_name: str, namespace: str) -> Refusal:
    """Say that the namespace rules have no place for the pod."""
    return Refusal(
        reason=PodReason.NAMESPACE_NOT_MAPPED,
        message=f"pods of namespace {namespace} are not run in {target_name}: its map of "
        "namespaces has no entry for it",
    )


def uninstalled_refusal(target_name: str, namespace: str) -> Refusal:
    """Say that somebody took federate's anchor out of the target namespace."""
    return Refusal(
        reason=PodReason.UNINSTALLED,
        message=f"federate was uninstalled from namespace {namespace} of {target_name} (its anchor "
        "was deleted there); an operator must confirm",
    )


def predecessor_refusal(target_name: str) -> Refusal:
    """Say that an earlier pod's mirror has the name, and goes."""
    return Refusal(
        reason=PodReason.PREDECESSOR_TERMINATING,
        message=f"the mirror of an earlier pod of this name still ends in {target_name}",
    )


def name_taken_refusal(target_name: str, key: ObjectKey) -> Refusal:
    """Say that a stranger's pod has the name."""
    return Refusal(
        reason=PodReason.NAME_TAKEN,
        message=f"a pod {key} that is not this virtual node's exists in {target_name}; federate "
        "does not touch it. Remove or rename it there, or rename this pod",
    )


def ports_refusal(port: HostPort) -> Refusal:
    """Say, in a kubelet's words, that another pod of the virtual node has the host port."""
    return Refusal(
        reason=PodReason.NODE_PORTS,
        message="Predicate NodePorts failed: node(s) didn't have free ports for the requested pod "
        f"ports: {port} is taken by another pod of this node",
    )


def rejected(refusal: Refusal) -> Refusal:
    """Say of what a kubelet would not admit that it ended by that."""
    return replace(refusal, message=f"Pod was rejected: {refusal.message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFailure:
    """What a failed create means: what the hub pod says, and whether waiting alone may heal it."""

    refusal: Refusal
    slow: bool = False
    """Only a person or another controller changes the outcome: retry at minutes' pace."""

    def in_words(self, words: Words) -> CreateFailure:
        """Put the target's words into the hub's: users do not know what companions are called."""
        refusal = replace(self.refusal, message=words(self.refusal.message))
        return replace(self, refusal=refusal)


_BY_WORDS: tuple[tuple[re.Pattern[str], PodReason, bool], ...] = (
    (
        re.compile(r'admission webhook "[^"]*" denied the request'),
        PodReason.ADMISSION_DENIED,
        True,
    ),
    (re.compile(r"admissionpolicy '[^']*' with binding '"), PodReason.ADMISSION_DENIED, True),
    (re.compile(r'failed calling webhook "'), PodReason.ADMISSION_FAILED, False),
)
"""Of answers with any status: a webhook or a policy chooses its own, and may say anything, so that
these come first."""

_FORBIDDEN_TEXTS: tuple[tuple[re.Pattern[str], PodReason, bool], ...] = (
    (re.compile(r'user "[^"]*" cannot '), PodReason.FORBIDDEN, False),
    (re.compile(r"exceeded quota|failed quota|insufficient quota"), PodReason.QUOTA_EXCEEDED, True),
    (re.compile(r"status unknown for quota"), PodReason.QUOTA_EXCEEDED, False),
    (re.compile(r"violates podsecurity"), PodReason.POD_SECURITY_REFUSED, True),
    (
        re.compile(r"is being terminated|anchor is still being removed"),
        PodReason.NAMESPACE_TERMINATING,
        False,
    ),
    (re.compile(r"usage per|limit to request ratio per"), PodReason.LIMIT_RANGE_REFUSED, True),
    (
        re.compile(
            r'looking up service ?account|service ?account "[^"]*" not found'
            r"|service account is not there"  # ours: see ground
        ),
        PodReason.SERVICE_ACCOUNT_MISSING,
        False,
    ),
    (
        re.compile(r'no priorityclass with name|runtimeclass "[^"]*" not found'),
        PodReason.CLASS_MISSING,
        True,
    ),
    (re.compile(r"is forbidden: "), PodReason.ADMISSION_DENIED, True),
)
"""403 stands for very different things; the server's text is all there is to tell them apart.

First the authorizer's, whose user may be called `system:serviceaccount:…`; last what any other
admission plugin says. What is none of these was not said by an API server."""


_ANSWERS: tuple[tuple[type[ClusterError], PodReason, bool], ...] = (
    (NotFound, PodReason.NAMESPACE_MISSING, False),
    (Conflict, PodReason.TARGET_BUSY, False),
    (Unauthorized, PodReason.FORBIDDEN, False),
    (Rejected, PodReason.MIRROR_INVALID, True),
)


def create_failure_of(error: ClusterError, *, target_name: str) -> CreateFailure:
    """Read a failed create (C27): nothing transient ends a pod, everything is told and retried."""
    words = f"{target_name} answered: {error.detail}"
    if isinstance(error, Unreachable):
        message = f"{target_name} does not answer; the pod starts when it does"
        return _failure(PodReason.TARGET_UNREACHABLE, message)
    by_words = _read(_BY_WORDS, error)
    if by_words is not None:
        reason, slow = by_words
        return _failure(reason, words, slow=slow)
    if isinstance(error, Throttled):
        return _failure(PodReason.TARGET_BUSY, f"{target_name} asks to wait")
    if isinstance(error, Forbidden):
        reason, slow = _read(_FORBIDDEN_TEXTS, error) or (PodReason.FORBIDDEN, False)
        return _failure(reason, words, slow=slow)
    for kind, reason, slow in _ANSWERS:
        if isinstance(error, kind):
            return _failure(reason, words, slow=slow)
    return _failure(PodReason.TARGET_ERROR, words)


def stripped_refusal(target_name: str) -> Refusal:
    """Say that the target takes federate's marks off new pods."""
    return Refusal(
        reason=PodReason.MARKS_REMOVED,
        message=f"{target_name} strips federate's labels or annotations from new pods (an "
        "admission webhook or policy): let federate.dev/ keys pass there",
    )


def weakened_refusal(target_name: str, fields: str) -> Refusal:
    """Say that the target would run the pod with more rights than asked, or to another end (C4)."""
    return Refusal(
        reason=PodReason.MIRROR_WEAKENED,
        message=f"{target_name} does not know, and dropped: {fields}. The pod would run weaker "
        "than asked, so it is not run. Upgrade the target or leave these fields out; it is tried "
        "again when federate is started again",
    )


_INTERNAL_ERROR = 500
"""What a failing admission webhook is answered with; 502 to 504 are of proxies and of overload."""


def update_refusal_of(error: ClusterError, *, target_name: str, what: str) -> Refusal | None:
    """Say that the target refuses a change of a running pod; None where it may be a passing fault.

    Nothing in here ends a pod: the mirror stays as it is, and the change is tried again slowly.
    """
    words = f"{target_name} answered: {error.detail}"
    if isinstance(error, NotFound):
        message = f"{target_name} cannot change {what} of a pod that exists: {error.detail}"
        return Refusal(reason=PodReason.UPDATE_NOT_SUPPORTED, message=message)
    if isinstance(error, ServerFault) and error.status == _INTERNAL_ERROR:
        reason, _ = _read(_BY_WORDS, error) or (PodReason.TARGET_ERROR, False)
        return Refusal(reason=reason, message=f"the change of {what}: {words}")
    if isinstance(error, (Rejected, Forbidden)):
        message = f"the change of {what} was refused; {words}"
        return Refusal(reason=PodReason.UPDATE_REJECTED, message=message)
    return None


def undone_refusal(target_name: str, what: str, fields: str) -> Refusal:
    """Say that the target took a change and kept nothing of it."""
    return Refusal(
        reason=PodReason.UPDATE_NOT_SUPPORTED,
        message=f"{target_name} did not keep of the change of {what}: {fields}",
    )


def debugger_refusal(needs: Mapping[str, Sequence[str]]) -> Refusal:
    """Say which debug containers need what federate does not bring: never a target's own (C30)."""
    told = "; ".join(f"{name} needs {', '.join(needed)}" for name, needed in needs.items())
    return Refusal(
        reason=PodReason.COMPANION_MISSING,
        message=f"not every debug container was added to the mirror: {told}",
    )


def held_debugger_refusal(target_name: str, holds: Mapping[str, Hold]) -> Refusal:
    """Say which debug containers wait for what they refer to."""
    told = {name: _held(target_name, hold) for name, hold in holds.items()}
    return Refusal(
        reason=next(iter(told.values())).reason,
        message="not every debug container was added to the mirror: "
        + "; ".join(f"{name}: {refusal.message}" for name, refusal in told.items()),
    )


def _held(target_name: str, hold: Hold) -> Refusal:
    blocked = hold.blocked
    return coming_refusal(target_name, hold) if blocked is None else companion_refusal(blocked)


def weakened_debugger_refusal(fields: Mapping[str, Sequence[str]]) -> Refusal:
    """Say which debug containers run with more rights than asked, since the target dropped fields.

    Nobody can remove one again from a pod that exists.
    """
    told = "; ".join(f"{name} lacks {', '.join(paths)}" for name, paths in fields.items())
    return Refusal(
        reason=PodReason.MIRROR_WEAKENED,
        message=f"a debug container runs weaker than asked, and goes only with its pod: {told}",
    )


def _read(
    table: Sequence[tuple[re.Pattern[str], PodReason, bool]], error: ClusterError
) -> tuple[PodReason, bool] | None:
    """Find what a server's words stand for; None where the table does not know them."""
    text = error.detail.lower()
    return next(((reason, slow) for words, reason, slow in table if words.search(text)), None)


def _failure(reason: str, message: str, *, slow: bool = False) -> CreateFailure:
    return CreateFailure(refusal=Refusal(reason=reason, message=message), slow=slow)

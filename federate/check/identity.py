"""Judge which clusters these are, whose the Node is, and who leads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federate.check.findings import Finding, FindingId
from federate.model.marks import NODE_HUB_ANNOTATION, TARGET_IDENTITY_ANNOTATION
from federate.model.objects import JsonObject, annotations_of

UNKNOWN = "unknown"
"""What stands on the Node where the target's identity may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Uids of kube-system; "" where it may not be read. `node` is the virtual node, if any."""

    hub: str
    target: str
    node_name: str
    node: JsonObject | None
    hub_name: str = ""
    """What the hub is called in marks, where that is configured; else its uid."""
    may_meet_hub: bool = False
    """Whether mirrors could have the names of hub pods, were both one cluster."""
    told_by_namespaces: frozenset[str] = frozenset()
    """What single namespaces of the target tell it by, as on record: `NAMESPACE/UID`."""

    @property
    def names(self) -> frozenset[str]:
        """All that the target may be on record as."""
        return self.told_by_namespaces | ({self.target} if self.target else set())


def judge_hub_identity(uid: str) -> tuple[Finding, ...]:
    """Judge what is known of the hub."""
    if uid:
        return ()
    return (
        Finding(
            id=FindingId.HUB_IDENTITY_UNREADABLE,
            what="namespace kube-system may not be read: federate does not know which hub this is, "
            "and does not start",
            fix="federate rbac --side hub | kubectl apply -f -",
        ),
    )


def judge_target_identity(known: Identities) -> tuple[Finding, ...]:
    """Judge the target against the hub and what is on record."""
    found: list[Finding] = []
    if not known.names:
        found.append(
            Finding(
                id=FindingId.TARGET_IDENTITY_UNKNOWN,
                what="nothing in the target that may be read tells which cluster it is: only the "
                "anchors tell it from another one",
                fix="federate rbac --side target --with identity grants that read and no more",
            )
        )
    elif known.target and known.target == known.hub and known.may_meet_hub:
        found.append(
            Finding(
                id=FindingId.TARGET_IS_HUB,
                what="target and hub are one cluster, where mirrors of this namespace strategy "
                "would meet their hub pods",
                fix="use --namespaces prefixed, or the other kubeconfig",
            )
        )
    return (*found, *_judge_record(known))


def _judge_record(known: Identities) -> tuple[Finding, ...]:
    if known.node is None or is_strangers(known):
        return ()
    recorded = annotations_of(known.node).get(TARGET_IDENTITY_ANNOTATION, "")
    if recorded in ("", UNKNOWN, *known.names):
        return ()
    comparable = [name for name in known.names if _teller(name) == _teller(recorded)]
    if not comparable:
        return ()
    return (
        Finding(
            id=FindingId.TARGET_CHANGED,
            what=f"another cluster is on record at Node {known.node_name}: {recorded}; this one is "
            f"{comparable[0]}. Nothing is written to it",
            fix=f"point the kubeconfig back, or: federate accept {known.node_name}",
        ),
    )


def _teller(identity: str) -> str:
    """Return which namespace tells it; "" where kube-system does."""
    return identity.rpartition("/")[0]


def is_strangers(known: Identities) -> bool:
    """Tell whether the Node of the name was registered by somebody else."""
    if known.node is None:
        return False
    registered_for = annotations_of(known.node).get(NODE_HUB_ANNOTATION, "")
    return registered_for != (known.hub_name or known.hub)


def judge_node(known: Identities) -> tuple[Finding, ...]:
    """Judge the Node that has the virtual node's name."""
    if not known.hub or not is_strangers(known):
        return ()
    return (
        Finding(
            id=FindingId.STRANGERS_NODE,
            what=f"a Node {known.node_name} exists that federate did not register; it is never "
            "touched, and no pod is mirrored",
            fix=f"choose another name for the target, or: kubectl delete node {known.node_name} "
            "if it is a leftover",
        ),
    )


def say_identity(known: Identities) -> str:
    """Say in a few words which cluster the target is."""
    if not known.names:
        return ""
    if known.target and known.target == known.hub:
        return f"{known.target} (the hub itself)"
    recorded = annotations_of(known.node or {}).get(TARGET_IDENTITY_ANNOTATION, "")
    if recorded in known.names:
        return f"{recorded}, as on record"
    return f"{known.target or min(known.names)}, not on record yet"


def judge_leader(lease: JsonObject | None, silent_seconds: float | None) -> tuple[Finding, ...]:
    """Judge who leads; `silent_seconds` is since the last renewal, None where nobody ever did."""
    spec: Mapping[str, object] = (lease or {}).get("spec") or {}
    lasts = spec.get("leaseDurationSeconds")
    duration = float(lasts) if isinstance(lasts, int | float) else 0.0
    is_led = (
        bool(spec.get("holderIdentity"))
        and silent_seconds is not None
        and silent_seconds <= duration
    )
    if is_led:
        return ()
    return (
        Finding(
            id=FindingId.NO_LEADER,
            what="no federate leads this virtual node at the moment",
            fix="nothing before the first start; else start federate run",
        ),
    )

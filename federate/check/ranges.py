"""Judge whether addresses of both sides may be told apart (C47). Pure.

Two clusters that give pods or Services the same addresses cannot see each other's pods by address:
traffic for a reflected address would reach a stranger. What nobody tells is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from federate.check.findings import Finding, FindingId
from federate.services.ranges import Ranges, overlaps, unknown_kinds


def judge_ranges(hub: Ranges, target: Ranges, *, target_name: str) -> tuple[Finding, ...]:
    """Compare both sides: overlaps first, then what is not known."""
    return (*_overlaps(hub, target, target_name), *_unknown(hub, target, target_name))


def _overlaps(hub: Ranges, target: Ranges, target_name: str) -> Iterable[Finding]:
    pairs = [
        f"{met.our_kind} of the hub ({met.ours}) with {met.their_kind} of {target_name} "
        f"({met.theirs})"
        for met in overlaps(hub, target)
    ]
    if pairs:
        yield Finding(
            id=FindingId.RANGES_OVERLAP,
            what=f"addresses in common: {'; '.join(pairs)}. The address of a mirrored pod may be a "
            "stranger's on the hub",
            fix="give one of the clusters other ranges when it is built (K3s: --cluster-cidr, "
            "--service-cidr; kubeadm: podSubnet, serviceSubnet); until then `addresses` auto or "
            "hide keeps mirrored pods out of hub Services",
        )


def _unknown(hub: Ranges, target: Ranges, target_name: str) -> Iterable[Finding]:
    lacking = [
        f"{kind} of {name}"
        for name, side in (("the hub", hub), (target_name, target))
        for kind in unknown_kinds(side)
    ]
    if lacking:
        yield Finding(
            id=FindingId.RANGES_UNKNOWN,
            what=f"not known: addresses of {', '.join(lacking)}",
            fix="compare them by hand, or grant the reads: federate rbac --side hub|target "
            "--with check",
        )

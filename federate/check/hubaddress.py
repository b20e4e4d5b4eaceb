"""Judge the address at which pods in a target are to reach the hub's API server (C31). Pure.

What is seen from here is no proof of what a pod there sees: it is in another network. But whose
certificate answers is the same everywhere.
"""

from __future__ import annotations

from federate.check.connection import Leg, WayFacts, is_loopback
from federate.check.findings import Finding, FindingId
from federate.companions.environment import Advertised

API_NAME = "kubernetes.default.svc"
"""By which most programs dial the API server of their cluster."""


def place_of(advertised: Advertised) -> str:
    """Write host and port as in a URL."""
    host = f"[{advertised.host}]" if ":" in advertised.host else advertised.host
    return f"{host}:{advertised.port}"


def judge_no_authorities(*, target_name: str) -> Finding:
    """Say that pods could believe nobody."""
    return Finding(
        id=FindingId.HUB_ADDRESS_NOT_BELIEVED,
        what="the hub has no ConfigMap kube-system/kube-root-ca.crt with an authority in it, so "
        f"pods in {target_name} could not believe any API server",
        fix="see why the hub's controller manager does not write it (--root-ca-file)",
    )


def judge_hub_address(way: WayFacts, *, target_name: str) -> tuple[Finding, ...]:
    """Judge what was met at the address."""
    place = way.server.removeprefix("https://")
    if is_loopback(way.host):
        return (
            Finding(
                id=FindingId.HUB_ADDRESS_UNREACHABLE,
                what=f"hubAddress {place} is, in each pod of {target_name}, the pod itself",
                fix=f"put an address into hubAddress that pods in {target_name} reach",
            ),
        )
    match way.failed:
        case None:
            return ()
        case Leg.TLS:
            return (
                Finding(
                    id=FindingId.HUB_ADDRESS_NOT_BELIEVED,
                    what=f"pods in {target_name} would not believe {place}: {way.error}",
                    fix="put a name or address into hubAddress that stands in the certificate of "
                    "the hub's API server, or add one there (kubeadm: apiServer.certSANs; K3s: "
                    "--tls-san); a proxy before it must pass TLS through",
                ),
            )
        case _:
            return (
                Finding(
                    id=FindingId.HUB_ADDRESS_UNREACHABLE,
                    what=f"hubAddress {place} does not answer here: {way.error}. Whether it does "
                    f"in {target_name}, only a pod there can tell",
                    fix=f"correct hubAddress, or try it from a pod in {target_name}: curl -k "
                    f"https://{place}/version",
                ),
            )


def judge_hub_names(way: WayFacts, *, target_name: str) -> tuple[Finding, ...]:
    """Judge what was met at the address by whoever expects it to be called `API_NAME`."""
    if way.failed is not Leg.TLS:
        return ()
    place = way.server.removeprefix("https://")
    return (
        Finding(
            id=FindingId.HUB_NAMES_NOT_BELIEVED,
            what=f"programs in pods of {target_name} that dial {API_NAME} would not believe "
            f"{place}, where that name leads: {way.error}",
            fix=f"add {API_NAME} to the certificate of the hub's API server, where every cluster "
            "has it by default (kubeadm: apiServer.certSANs; K3s: --tls-san); a load balancer that "
            "goes by the name in the TLS handshake must know it, too",
        ),
    )

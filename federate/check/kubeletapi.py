"""Judge whether the hub reaches the kubelet API of a virtual node: logs, exec, metrics. Pure.

The hub's API server is asked to pass a question on (`nodes/NODE/proxy/healthz`): the way that
`kubectl logs` takes. What it says tells which part of the way is broken.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass

from federate.check.findings import Finding, FindingId
from federate.model.objects import JsonObject, condition_of, status_of
from federate.model.reasons import NodeReason
from federate.node.render import KUBELET_SERVING

MOST_SAID = 300
"""Characters of an answer that a finding repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the hub's API server said when it was to ask the kubelet API how it is."""

    status: int
    said: str


def port_of(node: JsonObject) -> int:
    """Return the port of the kubelet API, 0 where the Node tells none."""
    endpoints = status_of(node).get("daemonEndpoints") or {}
    port = (endpoints.get("kubeletEndpoint") or {}).get("Port")
    return port if isinstance(port, int) else 0


def address_of(node: JsonObject) -> str:
    """Return where API servers look for the kubelet API: the first address of a Node."""
    addresses = status_of(node).get("addresses") or ()
    return next((str(one.get("address")) for one in addresses), "")


def judge_serving(node: JsonObject, *, name: str) -> tuple[Finding, ...]:
    """Judge what the Node itself says."""
    condition = condition_of(node, KUBELET_SERVING)
    if condition is None:
        return ()
    message = str(condition.get("message") or condition.get("reason") or "")
    if condition.get("status") == "False":
        return (
            Finding(
                id=FindingId.KUBELET_DEGRADED,
                what=f"the kubelet API of {name} is not well: {message}",
                fix=f"see `{condition.get('reason')}` in docs/operations.md",
            ),
        )
    if condition.get("reason") == NodeReason.KUBELET_CERTIFICATE_PENDING:
        return (
            Finding(
                id=FindingId.KUBELET_CERTIFICATE_PENDING,
                what=f"the kubelet API of {name} serves with a self-signed certificate: {message}",
                fix="kubectl certificate approve the request, or let federate approve its own "
                "(federate rbac --side hub --with approve), or leave it: most hubs do not verify "
                "kubelets",
            ),
        )
    return ()


_SYSTEM_WITH_TUNNEL = re.compile(r"\+(k3s|rke2)")


def tunnelling_system(version: str) -> str:
    """Return which system tunnels to kubelets by default, by its version; "" for none known."""
    found = _SYSTEM_WITH_TUNNEL.search(version)
    return found[1] if found else ""


def judge_beforehand(version: str) -> tuple[Finding, ...]:
    """Judge a hub where the virtual node is not registered yet."""
    system = tunnelling_system(version)
    if not system:
        return ()
    return (
        Finding(
            id=FindingId.KUBELET_MAY_BE_TUNNELLED,
            what=f"the hub is {system}: by default its API server reaches kubelets only through "
            "the tunnels of its own agents, so `kubectl logs` and `exec` will fail for virtual "
            "nodes (502)",
            fix=tunnel_fix(system),
        ),
    )


def tunnel_fix(system: str) -> str:
    """Say both ways out of a tunnel that has no end at a virtual node."""
    file = f"/etc/rancher/{system or 'k3s'}/config.yaml"
    return (
        f"either put `egress-selector-mode: disabled` into {file} on every server and restart "
        "them (servers must then reach the agents' kubelets directly); or leave it, and ask the "
        "target itself: the annotation federate.dev/mirror of a pod says where it runs"
    )


_LOOPBACK = re.compile(r"address not allowed")
"""API servers go to a loopback address for logs and exec, but never for the node proxy."""
_TUNNELLED = re.compile(r"proxy error from .* code \d+|failed to find Session for client")
_NOT_BELIEVED = re.compile(r"x509: |tls: failed to verify|certificate signed by unknown")
_HUB_REFUSES = re.compile(r'"reason":\s*"Forbidden"')


def judge_probe(probe: Probe, *, name: str, address: str, version: str) -> tuple[Finding, ...]:
    """Judge what came back."""
    if 200 <= probe.status < 300:
        return ()
    said = _words_of(probe)
    if _TUNNELLED.search(probe.said):
        return (
            Finding(
                id=FindingId.KUBELET_TUNNELLED,
                what="the hub's API server sends requests to kubelets through a tunnel, which has "
                f"no end at {name}: {said}",
                fix=tunnel_fix(tunnelling_system(version)),
            ),
        )
    if probe.status == 403 and _HUB_REFUSES.search(probe.said):
        return (
            Finding(
                id=FindingId.NOT_READABLE,
                what=f"not known whether the hub reaches the kubelet API of {name}: {said}",
                fix="federate rbac --side hub --with check | kubectl apply -f -",
            ),
        )
    if probe.status in (401, 403):
        return (_refused(probe, name=name, said=said),)
    if _NOT_BELIEVED.search(probe.said):
        return (
            Finding(
                id=FindingId.KUBELET_NOT_BELIEVED,
                what=f"the hub verifies kubelets, and does not believe {name}: {said}",
                fix="serve with a certificate that the hub signed (`certificate: csr`, and approve "
                "the request) or that its --kubelet-certificate-authority did (`files`)",
            ),
        )
    is_loopback = _LOOPBACK.search(probe.said) is not None
    return (
        Finding(
            id=FindingId.KUBELET_UNREACHABLE,
            what=f"the kubelet API of {name} is at {address}: only an API server on federate's own "
            "host reaches it, and nobody asks for metrics there"
            if is_loopback
            else f"the hub's API server does not reach the kubelet API of {name} at {address}: "
            f"{said}",
            fix="give an address of federate that the API server reaches (`nodeAddress`, "
            "--node-address), and open the port (a fixed `kubelet.port` behind firewalls and "
            "Services)",
        ),
    )


def _words_of(probe: Probe) -> str:
    """Return what was said, without the Status around it."""
    said = probe.said
    with suppress(ValueError):
        status = json.loads(said)
        if isinstance(status, dict) and status.get("message"):
            said = str(status["message"])
    return " ".join(said.split())[:MOST_SAID] or f"status {probe.status}"


def _refused(probe: Probe, *, name: str, said: str) -> Finding:
    if probe.status == 401:
        return Finding(
            id=FindingId.KUBELET_REFUSES,
            what=f"the kubelet API of {name} does not know the hub's API server: its client "
            "certificate is not from the client CA that the hub publishes",
            fix="name a file with the authority of the API server's kubelet client certificate as "
            "`clientCAFile`",
        )
    return Finding(
        id=FindingId.KUBELET_REFUSES,
        what=f"the hub's API server may not use the kubelet API of {name}: {said}",
        fix="bind the user it names: kubectl create clusterrolebinding kubelet-api "
        "--clusterrole=system:kubelet-api-admin --user=USER",
    )

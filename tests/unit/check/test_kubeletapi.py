"""What the hub's API server says of the way to a kubelet API, and what that means (C74)."""

from __future__ import annotations

import pytest

from federate.check.findings import Finding, FindingId
from federate.check.kubeletapi import (
    Probe,
    address_of,
    judge_beforehand,
    judge_probe,
    judge_serving,
    port_of,
    tunnelling_system,
)
from federate.model.objects import JsonDict
from federate.node.render import KUBELET_SERVING

TUNNEL = (
    "Error trying to reach service: 'proxy error from 127.0.0.1:6443 while dialing "
    "10.0.0.9:10250, code 502: 502 Bad Gateway'"
)
FORBIDDEN = (
    '{"kind":"Status","message":"nodes \\"edge\\" is forbidden: User \\"jane\\" cannot get '
    'resource \\"nodes/proxy\\"","reason":"Forbidden","code":403}'
)


def judged(status: int, said: str, *, version: str = "v1.34.4") -> tuple[Finding, ...]:
    probe = Probe(status=status, said=said)
    return judge_probe(probe, name="edge", address="10.0.0.9:10250", version=version)


@pytest.mark.parametrize(
    ("status", "said", "found"),
    [
        (503, TUNNEL, FindingId.KUBELET_TUNNELLED),
        (502, "failed to find Session for client edge", FindingId.KUBELET_TUNNELLED),
        (503, "dial tcp 10.0.0.9:10250: connect: refused", FindingId.KUBELET_UNREACHABLE),
        (503, "dial tcp 10.0.0.9:10250: i/o timeout", FindingId.KUBELET_UNREACHABLE),
        (500, "", FindingId.KUBELET_UNREACHABLE),
        (503, "tls: failed to verify certificate: x509: no", FindingId.KUBELET_NOT_BELIEVED),
        (403, FORBIDDEN, FindingId.NOT_READABLE),
        (403, "Forbidden (user=apiserver, verb=get)", FindingId.KUBELET_REFUSES),
        (401, "Unauthorized", FindingId.KUBELET_REFUSES),
    ],
)
def test_each_broken_part_of_the_way_is_told_by_itself(
    status: int, said: str, found: FindingId
) -> None:
    [finding] = judged(status, said)
    assert finding.id is found
    assert finding.fix


def test_of_a_status_only_the_words_are_repeated() -> None:
    [finding] = judged(503, '{"kind":"Status","message":"dial tcp: refused","code":503}')
    assert finding.what.endswith("at 10.0.0.9:10250: dial tcp: refused")
    [finding] = judged(503, '{"kind": ')
    assert finding.what.endswith('{"kind":')


def test_a_loopback_address_is_told_as_such() -> None:
    """API servers refuse the node proxy there, whether logs can be had or not."""
    [finding] = judged(400, '{"kind":"Status","message":"address not allowed","code":400}')
    assert finding.id is FindingId.KUBELET_UNREACHABLE
    assert "only an API server on federate's own host reaches it" in finding.what
    assert "--node-address" in finding.fix


def test_an_answer_is_a_good_way() -> None:
    assert judged(200, "ok") == ()


def test_a_tunnel_has_two_ways_out() -> None:
    """Both are named, with the file of the system that the version tells."""
    [finding] = judged(503, TUNNEL, version="v1.34.4+rke2r1")
    assert "egress-selector-mode: disabled` into /etc/rancher/rke2/config.yaml" in finding.fix
    assert "federate.dev/mirror" in finding.fix


def test_what_a_stranger_says_is_cut() -> None:
    [finding] = judged(500, "x " * 10_000)
    assert len(finding.what) < 500


@pytest.mark.parametrize(
    ("version", "system"),
    [("v1.34.4+k3s1", "k3s"), ("v1.34.4+rke2r1", "rke2"), ("v1.34.4", ""), ("", "")],
)
def test_hubs_that_tunnel_are_known_beforehand(version: str, system: str) -> None:
    assert tunnelling_system(version) == system
    assert bool(judge_beforehand(version)) == bool(system)


def node_with(status: str, reason: str) -> JsonDict:
    condition = {"type": KUBELET_SERVING, "status": status, "reason": reason, "message": "words"}
    return {"status": {"conditions": [condition]}}


def test_what_the_node_says_of_itself_is_told() -> None:
    [pending] = judge_serving(node_with("True", "KubeletCertificatePending"), name="edge")
    assert pending.id is FindingId.KUBELET_CERTIFICATE_PENDING
    [degraded] = judge_serving(node_with("False", "KubeletPortTaken"), name="edge")
    assert degraded.id is FindingId.KUBELET_DEGRADED
    assert "words" in degraded.what
    assert judge_serving(node_with("True", "KubeletServing"), name="edge") == ()
    assert judge_serving({}, name="edge") == ()


def test_port_and_address_are_those_of_the_node() -> None:
    endpoint = {"kubeletEndpoint": {"Port": 10250}}
    assert port_of({"status": {"daemonEndpoints": endpoint}}) == 10250
    assert port_of({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": "x"}}}}) == 0
    assert port_of({}) == 0
    assert address_of({"status": {"addresses": [{"address": "10.0.0.9"}]}}) == "10.0.0.9"
    assert address_of({}) == ""

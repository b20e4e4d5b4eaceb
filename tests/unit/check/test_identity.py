"""Which clusters these are, whose the Node is, and who leads (C3, C5)."""

from __future__ import annotations

from dataclasses import replace

from federate.check.findings import FindingId, Severity
from federate.check.identity import (
    Identities,
    judge_hub_identity,
    judge_leader,
    judge_node,
    judge_target_identity,
    say_identity,
)
from federate.model.marks import NODE_HUB_ANNOTATION, TARGET_IDENTITY_ANNOTATION
from federate.model.objects import JsonDict


def known(
    *, target: str = "t", node: JsonDict | None = None, same: bool = False, hub_name: str = ""
) -> Identities:
    return Identities(
        hub="h", hub_name=hub_name, target=target, node_name="edge", node=node, may_meet_hub=same
    )


def node(*, hub: str = "h", recorded: str = "") -> JsonDict:
    annotations = {NODE_HUB_ANNOTATION: hub}
    if recorded:
        annotations[TARGET_IDENTITY_ANNOTATION] = recorded
    return {"metadata": {"name": "edge", "annotations": annotations}}


def test_a_hub_that_does_not_tell_its_uid_stops_work() -> None:
    assert judge_hub_identity("h") == ()
    [finding] = judge_hub_identity("")
    assert finding.severity is Severity.FAIL


def test_a_target_that_is_the_hub_is_only_refused_with_same_names() -> None:
    assert judge_target_identity(known(target="h")) == ()
    [finding] = judge_target_identity(known(target="h", same=True))
    assert finding.id is FindingId.TARGET_IS_HUB
    assert "the hub itself" in say_identity(known(target="h"))


def test_another_cluster_than_the_one_on_record_stops_work() -> None:
    [finding] = judge_target_identity(known(node=node(recorded="old")))
    assert finding.id is FindingId.TARGET_CHANGED
    assert "federate accept edge" in finding.fix
    for recorded in ("t", "", "unknown"):
        assert judge_target_identity(known(node=node(recorded=recorded))) == ()
    assert "as on record" in say_identity(known(node=node(recorded="t")))
    assert "not on record yet" in say_identity(known())


def test_a_record_by_a_namespace_is_compared_with_that_namespace_alone() -> None:
    """kube-system's uid is no contradiction, another uid in that namespace is one."""
    recorded = node(recorded="team-a/uid")
    assert judge_target_identity(known(node=recorded)) == ()
    alike = replace(known(node=recorded, target=""), told_by_namespaces=frozenset({"team-a/uid"}))
    assert judge_target_identity(alike) == ()
    assert say_identity(alike) == "team-a/uid, as on record"
    another = replace(alike, told_by_namespaces=frozenset({"team-a/other", "team-b/x"}))
    [finding] = judge_target_identity(another)
    assert finding.id is FindingId.TARGET_CHANGED
    assert "team-a/other" in finding.what


def test_a_target_that_does_not_tell_its_uid_is_noted() -> None:
    [finding] = judge_target_identity(known(target="", node=node(recorded="old")))
    assert finding.id is FindingId.TARGET_IDENTITY_UNKNOWN
    assert finding.severity is Severity.NOTE


def test_a_strangers_node_is_never_ours() -> None:
    assert judge_node(known()) == ()
    assert judge_node(known(node=node())) == ()
    [finding] = judge_node(known(node=node(hub="another")))
    assert finding.id is FindingId.STRANGERS_NODE
    assert [f.id for f in judge_node(known(node={"metadata": {"name": "edge"}}))] == [
        FindingId.STRANGERS_NODE
    ]


def test_a_configured_name_of_the_hub_stands_for_its_uid() -> None:
    assert judge_node(known(node=node(hub="main"), hub_name="main")) == ()
    assert judge_node(known(node=node(), hub_name="main")) != ()


def test_a_strangers_record_says_nothing() -> None:
    """Somebody may have copied annotations."""
    assert judge_target_identity(known(node=node(hub="another", recorded="old"))) == ()


def test_who_leads_is_told_by_a_fresh_lease() -> None:
    lease = {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    assert judge_leader(lease, 3.0) == ()
    for stale in (judge_leader(lease, 16.0), judge_leader(lease, None), judge_leader(None, None)):
        assert [finding.id for finding in stale] == [FindingId.NO_LEADER]
    released = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}}
    assert judge_leader(released, 1.0)[0].severity is Severity.NOTE

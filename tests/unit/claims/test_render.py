"""What is made in the target, and on the hub, for a claim."""

from __future__ import annotations

from typing import Any

from federate.claims.keys import origin_of_claim
from federate.claims.render import capacity_of, reclaim_of, render_claim, render_storage_class
from federate.model.objects import JsonDict
from tests.support.claimstage import hub_claim
from tests.support.claimviews import KEY, PLACE, claim_there, volume_of
from tests.support.scene import SCOPE, TARGET_NAMESPACE


def rendered(**fields: Any) -> JsonDict:
    return render_claim(
        KEY, hub_claim(**fields), scope=SCOPE, namespace=TARGET_NAMESPACE, target_class="fast"
    )


def test_what_a_claim_asks_of_storage_travels_and_nothing_else() -> None:
    claim = rendered(accessModes=["ReadWriteMany"], volumeMode="Block", volumeName="pvc-1")
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeMode": "Block",
        "storageClassName": "fast",
    }


def test_a_claim_in_the_target_has_marks_and_no_owner() -> None:
    """Nothing of the hub user's metadata; and deleting the anchor deletes no data."""
    metadata = rendered()["metadata"]
    assert set(metadata) == {"namespace", "name", "labels", "annotations"}
    assert metadata["labels"] == SCOPE.labels()
    assert "note" not in metadata["annotations"]
    assert origin_of_claim(SCOPE, {"metadata": metadata}) == KEY


def test_the_targets_default_class_is_left_to_the_target() -> None:
    claim = render_claim(KEY, hub_claim(), scope=SCOPE, namespace=TARGET_NAMESPACE, target_class="")
    assert "storageClassName" not in claim["spec"]


def test_the_hubs_volume_is_for_that_claim_and_node_alone() -> None:
    volume = volume_of(reclaim="Delete")
    spec = volume["spec"]
    assert volume["metadata"]["name"] == f"pvc-{KEY.uid}"
    assert spec["claimRef"]["uid"] == KEY.uid
    assert spec["csi"] == {"driver": "federate.dev", "volumeHandle": f"{PLACE}/uid-there"}
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [SCOPE.node_name]}
    ]
    assert spec["persistentVolumeReclaimPolicy"] == "Delete"
    assert spec["storageClassName"] == "fed"
    assert spec["accessModes"] == ["ReadWriteOnce"]


def test_the_hub_is_told_of_the_size_that_there_is_and_never_of_less_than_asked() -> None:
    asked = hub_claim(resources={"requests": {"storage": "1024Mi"}})
    assert capacity_of(asked, claim_there(phase="Pending")) == "1024Mi"
    assert capacity_of(asked, claim_there(size="10Gi")) == "10Gi"
    assert capacity_of(asked, claim_there(size="1Gi")) == "1Gi"
    assert capacity_of(asked, claim_there(size="1G")) == "1024Mi"


def test_data_is_kept_unless_the_class_asks_for_its_end() -> None:
    assert reclaim_of({"reclaimPolicy": "Delete"}) == "Delete"
    assert reclaim_of({"reclaimPolicy": "Retain"}) == "Retain"
    assert reclaim_of({}) == "Retain"


def test_the_printed_class_keeps_data_and_is_offered_on_the_nodes_that_serve_it() -> None:
    rendered = render_storage_class("federate", node_names=["edge-2", "edge-1"])
    assert rendered["reclaimPolicy"] == "Retain"
    assert rendered["volumeBindingMode"] == "WaitForFirstConsumer"
    assert rendered["allowVolumeExpansion"] is True
    (topology,) = rendered["allowedTopologies"]
    assert topology["matchLabelExpressions"] == [
        {"key": "kubernetes.io/hostname", "values": ["edge-1", "edge-2"]}
    ]
    assert "allowedTopologies" not in render_storage_class("federate")

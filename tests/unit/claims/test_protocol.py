"""When we are asked for storage, as Kubernetes tells a provisioner."""

from __future__ import annotations

import pytest

from federate.claims.protocol import (
    PROVISIONER,
    SELECTED_NODE_ANNOTATION,
    STORAGE_PROVISIONER_ANNOTATIONS,
    class_of,
    is_chosen,
    is_for,
)
from tests.support.claimstage import chosen, hub_claim
from tests.support.claimviews import bound_hub_claim, volume_of
from tests.support.scene import SCOPE


@pytest.mark.parametrize("name", STORAGE_PROVISIONER_ANNOTATIONS)
def test_we_are_asked_where_node_and_provisioner_are_ours(name: str) -> None:
    claim = hub_claim()
    claim["metadata"]["annotations"] = {SELECTED_NODE_ANNOTATION: "edge", name: PROVISIONER}
    assert is_chosen(claim, "edge")


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        chosen("another"),
        {SELECTED_NODE_ANNOTATION: SCOPE.node_name},
        {STORAGE_PROVISIONER_ANNOTATIONS[0]: PROVISIONER},
        {**chosen(), STORAGE_PROVISIONER_ANNOTATIONS[0]: "disk.example.org"},
    ],
)
def test_else_we_are_not(annotations: dict[str, str]) -> None:
    claim = hub_claim()
    claim["metadata"]["annotations"] = annotations
    assert not is_chosen(claim, SCOPE.node_name)


def test_the_older_name_of_a_class_goes_first_as_in_kubernetes() -> None:
    claim = hub_claim(storageClassName="new")
    assert class_of(claim) == "new"
    claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"] = "old"
    assert class_of(claim) == "old"


def test_claim_and_volume_belong_together_where_each_names_the_other() -> None:
    assert is_for(volume_of(), bound_hub_claim())
    assert not is_for(volume_of(), hub_claim())
    other = bound_hub_claim()
    other["metadata"]["uid"] = "uid-after"
    assert not is_for(volume_of(), other)

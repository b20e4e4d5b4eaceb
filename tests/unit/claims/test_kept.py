"""What stays in the target when a virtual node is left, and how it is removed."""

from __future__ import annotations

from dataclasses import replace

from federate.claims.kept import kept_claims
from federate.claims.words import kept_words
from federate.model.resources import CLAIMS
from tests.support.claimviews import PLACE, claim_there
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakecluster import FakeCluster
from tests.support.scene import SCOPE, TARGET_NAMESPACE


@virtual_time
async def test_the_claims_of_this_virtual_node_are_listed_with_the_way_to_remove_them() -> None:
    target = FakeCluster("berlin", virtual_loop().time)
    target.add(CLAIMS, claim_there())
    stranger = claim_there()
    stranger["metadata"] |= {"name": "treasure", "labels": {}}
    target.add(CLAIMS, stranger)
    copy = claim_there()
    copy["metadata"]["name"] = "copy"
    target.add(CLAIMS, copy)
    for namespaces in ([""], [TARGET_NAMESPACE]):
        kept = await kept_claims(target.client(), SCOPE, namespaces)
        assert kept_words(SCOPE, kept) == [
            f"{PLACE} (1Gi, of PersistentVolumeClaim default/data): kubectl --namespace "
            f"{PLACE.namespace} delete persistentvolumeclaim {PLACE.name}"
        ]
    assert await kept_claims(target.client(), SCOPE, ["elsewhere"]) == []
    other = replace(SCOPE, node_name="other")
    assert await kept_claims(target.client(), other, [""]) == []


def test_a_claim_without_storage_says_so() -> None:
    (line,) = kept_words(SCOPE, [claim_there(phase="Pending")])
    assert "without storage" in line

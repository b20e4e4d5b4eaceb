"""What a pod refers to, and what does not come along."""

from __future__ import annotations

import pytest

from federate.companions.keys import CompanionKey, Kind
from federate.companions.places import PLACES, UNSUPPORTED, Place, Use
from federate.companions.references import (
    names_used,
    references_of,
    unsupported_of,
    wants_of,
)
from federate.model.objects import JsonDict
from tests.support.builders import pod
from tests.support.companions import naming_fragment


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_each_place_is_a_reference(place: Place) -> None:
    """Kind, name and what a kubelet does with it."""
    (reference,) = references_of(naming_fragment(place, "db"))
    assert (reference.kind, reference.name, reference.use) == (place.kind, "db", place.use)
    assert reference.is_optional is (place.use is Use.PULL)
    assert reference.keys is None


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_empty_name_names_nothing(place: Place) -> None:
    """As a kubelet sees it: entries with an empty name are passed over."""
    assert references_of(naming_fragment(place, "")) == ()


def test_an_optional_reference_is_one() -> None:
    """Optional ones are followed too, but their lack keeps nothing back."""
    variable = {
        "name": "A",
        "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}},
    }
    (reference,) = references_of({"containers": [{"env": [variable]}]})
    assert reference.is_optional
    assert reference.keys == frozenset({"k"})


def test_items_say_which_keys_are_needed() -> None:
    """A volume takes all keys, or those that it lists."""
    items = [{"key": "a", "path": "x"}, {"key": "b", "path": "y"}]
    (reference,) = references_of({"volumes": [{"configMap": {"name": "c", "items": items}}]})
    assert reference.keys == frozenset({"a", "b"})


def test_the_admission_made_token_volume_does_not_count() -> None:
    """It names kube-root-ca.crt and a token, and stays behind."""
    spec = pod("web").build()["spec"]
    assert spec["volumes"]
    assert references_of(spec) == ()
    assert unsupported_of(spec) == ()


def test_a_root_certificate_that_is_asked_for_comes_along() -> None:
    """Only the admission-made volume is passed over."""
    volumes = [{"name": "ca", "configMap": {"name": "kube-root-ca.crt"}}]
    spec = pod("web").with_spec(volumes=volumes).build()["spec"]
    assert [r.name for r in references_of(spec)] == ["kube-root-ca.crt"]


def wanting(*names: str) -> JsonDict:
    sources = [{"secretRef": {"name": name}} for name in names]
    containers = [{"name": "main", "image": "busybox", "envFrom": sources}]
    return pod("web").with_spec(containers=containers).build()


def test_a_pod_wants_each_object_once_where_its_mirror_stands() -> None:
    """However often it is named."""
    assert wants_of(wanting("a", "a", "b"), "there") == {
        CompanionKey("there", Kind.SECRET, "default", name) for name in "ab"
    }


def test_what_the_target_shares_needs_no_companion() -> None:
    """The operator of the target lets hub pods use it by its own name."""
    shared = {(Kind.SECRET, "a"), (Kind.CONFIGMAP, "b")}
    wanted = wants_of(wanting("a", "b"), "there", shared)
    assert {key.name for key in wanted} == {"b"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_wants_nothing(phase: str) -> None:
    """Nothing of it is ever started again (C42)."""
    done = wanting("a")
    done["status"]["phase"] = phase
    assert wants_of(done, "there") == frozenset()
    assert names_used(done) == frozenset()


def test_a_mirror_says_what_it_uses() -> None:
    """Its hub pod may be gone; while it lives its companions are in use."""
    assert names_used(wanting("a")) == {(Kind.SECRET, "a")}


UNSUPPORTED_FRAGMENTS: dict[str, JsonDict] = {
    'PersistentVolumeClaim "c"': {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]},
    "PersistentVolumeClaim": {"volumes": [{"persistentVolumeClaim": {}}]},
    "a PersistentVolumeClaim of an ephemeral volume": {"volumes": [{"ephemeral": {}}]},
    "a service account token": {
        "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    },
    "a ClusterTrustBundle": {"volumes": [{"projected": {"sources": [{"clusterTrustBundle": {}}]}}]},
    "a pod certificate": {"volumes": [{"projected": {"sources": [{"podCertificate": {}}]}}]},
    'ResourceClaim "gpu"': {"resourceClaims": [{"name": "gpu"}]},
    'SecretProviderClass "vault"': {
        "volumes": [{"csi": {"volumeAttributes": {"secretProviderClass": "vault"}}}]
    },
    'Endpoints "g"': {"volumes": [{"glusterfs": {"endpoints": "g", "path": "p"}}]},
    'GMSACredentialSpec "w"': {
        "securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "w"}}
    },
    "what volumes[].vault.secretRef points at": {"volumes": [{"vault": {"secretRef": {"a": "b"}}}]},
}  # fmt: skip


@pytest.mark.parametrize("words", UNSUPPORTED_FRAGMENTS)
def test_what_does_not_come_along_is_told_in_words(words: str) -> None:
    """Each with its name, where it has one (C33)."""
    assert unsupported_of(UNSUPPORTED_FRAGMENTS[words]) == (words,)


def test_every_unsupported_place_is_tried_here() -> None:
    """One fragment at least for each kind in the table."""
    told = " ".join(UNSUPPORTED_FRAGMENTS)
    assert all(other.what in told for other in UNSUPPORTED)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumes": [{"csi": {"driver": "d", "volumeAttributes": {"size": "1"}}}]},
        {"securityContext": {"windowsOptions": {"runAsUserName": "x"}}},
        {"volumes": [{"emptyDir": {}}, {"secret": {"secretName": "s"}}]},
    ],
)
def test_what_comes_along_is_not_refused(spec: JsonDict) -> None:
    """Nor is what needs nothing."""
    assert unsupported_of(spec) == ()

"""Where a pod names other objects, and what no table knows."""

from __future__ import annotations

import pytest

from federate.companions.places import PLACES, UNSUPPORTED, Place, named_in, stray_places
from federate.model.objects import JsonDict
from tests.support.builders import pod
from tests.support.companions import naming_fragment


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_each_place_finds_the_name_it_holds(place: Place) -> None:
    """The mapping that holds a name is found, wherever it stands; an absent one is not."""
    fragment = naming_fragment(place, "db")
    ((found, holder),) = named_in(fragment)
    assert found is place
    assert holder[place.name_field] == "db"
    assert named_in({}) == []


def test_a_place_is_shown_as_people_write_paths() -> None:
    """Lists have brackets."""
    assert "containers[].env[].valueFrom.secretKeyRef" in map(str, PLACES)
    assert "imagePullSecrets[]" in map(str, PLACES)


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [None], ["x"], {"secret": None}])
def test_what_has_another_shape_names_nothing(junk: object) -> None:
    """A spec from a strange server does not break the walk."""
    spec = {"volumes": junk, "containers": [junk], "imagePullSecrets": junk}
    assert named_in(spec) == []
    odd: JsonDict = {"volumes": [{"persistentVolumeClaim": "x", "csi": 3}, junk]}
    assert not [words for other in UNSUPPORTED for words in other.found(odd)]


def test_no_two_places_are_the_same() -> None:
    """Each path stands in one table, once."""
    paths = [place.path for place in PLACES] + [other.path for other in UNSUPPORTED]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("fragment", "path"),
    [
        ({"volumes": [{"name": "v", "vault": {"secretRef": {"name": "x"}}}]},
         "volumes[].vault.secretRef"),
        ({"volumes": [{"name": "v", "glow": {"secretName": "x"}}]}, "volumes[].glow.secretName"),
        ({"containers": [{"env": [{"valueFrom": {"vaultSecretKeyRef": {"name": "x"}}}]}]},
         "containers[].env[].valueFrom.vaultSecretKeyRef"),
        ({"containers": [{"envFrom": [{"configMapSelector": {"a": "b"}}]}]},
         "containers[].envFrom[].configMapSelector"),
        ({"shapeRef": {"name": "x"}}, "shapeRef"),
        ({"volumes": [{"projected": {"sources": [{"identityToken": {"path": "x"}}]}}]},
         "volumes[].projected.sources[].identityToken"),
        ({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"spaceRef": {}}}}]}]},
         "containers[].env[].valueFrom.secretKeyRef.spaceRef"),
        ({"volumes": [{"secret": {"secretName": "x", "configMapOverlay": "y"}}]},
         "volumes[].secret.configMapOverlay"),
        ({"volumes": [{"csi": {"driver": "file.csi.azure.com", "volumeAttributes": {
            "secretName": "registry", "shareName": "x"}}}]},
         "volumes[].csi.volumeAttributes.secretName"),
        ({"volumes": [{"csi": {"driver": "d", "volumeAttributes": {"sharedConfigMap": "x"}}}]},
         "volumes[].csi.volumeAttributes.sharedConfigMap"),
        ({"volumes": [{"flexVolume": {"driver": "d", "options": {"secretName": "x"}}}]},
         "volumes[].flexVolume.options.secretName"),
    ],
)  # fmt: skip
def test_a_field_that_points_and_is_in_no_table_is_found(
    fragment: dict[str, object], path: str
) -> None:
    """What a newer Kubernetes adds is told by its name, not let through (C30)."""
    assert stray_places(fragment) == (path,)


@pytest.mark.parametrize(
    "fragment",
    [
        {"nodeSelector": {"secret-zone": "x"}},
        {"volumes": [{"csi": {"driver": "d", "volumeAttributes": {"shareName": "x"}}}]},
        {"volumes": [{"csi": {"volumeAttributes": {"secretProviderClass": "x"}}}]},
        {"volumes": [{"flexVolume": {"driver": "d", "options": {"size": "x"}}}]},
        {"containers": [{"resources": {"claims": [{"name": "gpu"}]}}]},
        {"volumes": [{"ephemeral": {"volumeClaimTemplate": {"spec": {"dataSourceRef": {}}}}}]},
        {"volumes": [{"projected": {"sources": [{"podCertificate": {"keyPath": "token"}}]}}]},
        {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]},
        {"automountServiceAccountToken": False},
        {"glow": {"secret": None}},
    ],
)
def test_a_users_words_and_what_is_refused_anyway_are_no_strays(
    fragment: dict[str, object],
) -> None:
    """Keys of open maps are no fields, and what a table refuses is told once."""
    assert stray_places(fragment) == ()


def test_an_ordinary_pod_points_nowhere() -> None:
    """The default pod of a hub has no strays, its token volume included."""
    spec = dict(pod("web").build()["spec"])
    spec["volumes"] = []
    assert stray_places(spec) == ()

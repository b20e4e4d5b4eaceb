"""Each field of a pod that names a ConfigMap or Secret is renamed; whatever else points is told.

The fields come from the schemas of real API servers of two minors: whoever adds a field to
Kubernetes that names another object adds it to these tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.companions.keys import Kind
from federate.companions.places import EACH, PLACES, UNSUPPORTED, Path
from federate.companions.references import references_of, unsupported_of
from federate.companions.rewrite import renaming, with_companion_names
from federate.mirror.render import NEVER_TRAVELS
from federate.model.objects import JsonDict, JsonObject
from tests.support.podschema import POD_SPEC, Field, fields_of
from tests.support.views import SCOPE

pytestmark = pytest.mark.integration

NEXT = ClusterSpec(
    name="spec-fields-next", minor="1.36", with_controller_manager=False, with_scheduler=False
)

BROUGHT = {
    "AzureFileVolumeSource": Kind.SECRET,
    "ConfigMapEnvSource": Kind.CONFIGMAP,
    "ConfigMapKeySelector": Kind.CONFIGMAP,
    "ConfigMapProjection": Kind.CONFIGMAP,
    "ConfigMapVolumeSource": Kind.CONFIGMAP,
    "LocalObjectReference": Kind.SECRET,
    "SecretEnvSource": Kind.SECRET,
    "SecretKeySelector": Kind.SECRET,
    "SecretProjection": Kind.SECRET,
    "SecretReference": Kind.SECRET,
    "SecretVolumeSource": Kind.SECRET,
}
"""Types that name an object which comes along. In a pod a LocalObjectReference is a Secret's."""

REFUSED = frozenset(
    {
        "ClusterTrustBundleProjection",
        "EphemeralVolumeSource",
        "PersistentVolumeClaimVolumeSource",
        "PodCertificateProjection",
        "PodResourceClaim",
        "ServiceAccountTokenProjection",
    }
)
"""Types that lean on what does not come along, whatever of them is set."""

REFUSED_BY_NAME = frozenset({"endpoints", "gmsaCredentialSpecName"})
"""Fields of other types that name an object which does not come along."""

NAMES = frozenset({"name", "secretName"})


@pytest.fixture(scope="session", params=["1.34", "1.36"])
def schemas(request: pytest.FixtureRequest, testbed_factory: TestbedFactory) -> JsonDict:
    cluster: LocalCluster = (
        request.getfixturevalue("light_hub")
        if request.param == "1.34"
        else testbed_factory.cluster(NEXT)
    )
    found: JsonDict = cluster.api.get("/openapi/v3/api/v1")["components"]["schemas"]
    return found


def travelling(schemas: JsonObject) -> Iterator[Field]:
    for field in fields_of(schemas, POD_SPEC):
        top = field.path.partition(".")[0]
        if top not in NEVER_TRAVELS or top == "ephemeralContainers":
            yield field


def brought_kind(field: Field) -> Kind | None:
    """The kind of object that a field names, by its type, if it names one that comes along."""
    is_name = field.path.rpartition(".")[2] in NAMES
    return BROUGHT.get(field.types[-1]) if is_name else None


def is_refused(field: Field) -> bool:
    return bool(REFUSED.intersection(field.types)) or (
        field.path.rpartition(".")[2] in REFUSED_BY_NAME
    )


def test_every_name_of_a_configmap_or_secret_is_read_and_renamed(schemas: JsonDict) -> None:
    """Whatever its place, the name that a user wrote does not reach the target (C30)."""
    rename = renaming(SCOPE, "default")
    places = set()
    for field in travelling(schemas):
        kind = brought_kind(field)
        if kind is None or is_refused(field):
            continue
        places.add(field.path)
        assert [(r.kind, r.name) for r in references_of(field.fragment)] == [(kind, "text")], field
        renamed = with_companion_names(field.fragment, rename)
        assert renamed == json.loads(
            json.dumps(field.fragment).replace('"text"', json.dumps(rename(kind, "text")))
        ), field.path
        assert unsupported_of(field.fragment) == (), field.path
    assert len(places) == 3 * 4 + 13 + 1


def test_every_other_object_is_refused_by_its_name(schemas: JsonDict) -> None:
    """Claims, tokens, certificates and the like are told, wherever they stand."""
    types: set[str] = set()
    for field in travelling(schemas):
        if is_refused(field):
            types.update(REFUSED.intersection(field.types))
            assert unsupported_of(field.fragment), field.path
            assert not any("points at" in words for words in unsupported_of(field.fragment)), field
    assert types == REFUSED


def test_no_other_field_is_taken_for_a_name(schemas: JsonDict) -> None:
    """What points nowhere is neither read, renamed nor refused: no pod is held back by mistake."""
    rename = renaming(SCOPE, "default")
    for field in travelling(schemas):
        if brought_kind(field) is None and not is_refused(field):
            assert references_of(field.fragment) == (), field.path
            assert with_companion_names(field.fragment, rename) == field.fragment, field.path
            assert unsupported_of(field.fragment) == (), field.path


def test_every_place_of_the_tables_is_a_field(schemas: JsonDict) -> None:
    """No entry is a misspelling."""
    known = {field.path for field in fields_of(schemas, POD_SPEC)}
    for place in PLACES:
        assert plain((*place.path, place.name_field)) in known, str(place)
    for other in UNSUPPORTED:
        if other.path[-1] != "volumeAttributes":
            path = plain((*other.path, other.name_field) if other.name_field else other.path)
            assert any(f"{field}.".startswith(f"{path}.") for field in known), path


def plain(path: Path) -> str:
    return ".".join(step for step in path if step != EACH)

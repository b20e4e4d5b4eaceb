"""The volumes part of the file: what is written becomes rules."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from federate.claims.rules import ClaimMode, ClaimRules
from federate.config.schema import virtual_node_findings
from federate.config.volumes import VolumesPart, claim_rules


def read(written: dict[str, Any]) -> ClaimRules:
    return claim_rules(VolumesPart.model_validate(written))


def test_nothing_written_refuses_claims_and_drivers() -> None:
    """A file and a bare `--target` mean the same."""
    assert read({}) == ClaimRules()


def test_everything_written_becomes_rules() -> None:
    """An empty text leaves the class to the target."""
    written = {
        "claims": "target",
        "storageClasses": {"federate": "fast", "any": ""},
        "csiDrivers": ["certs.example.org"],
    }
    assert read(written) == ClaimRules(
        mode=ClaimMode.TARGET,
        storage_classes={"federate": "fast", "any": ""},
        csi_drivers=frozenset({"certs.example.org"}),
    )


@pytest.mark.parametrize(
    "written",
    [
        {"claims": "hub"},
        {"storageClasses": {"No_Name": "fast"}},
        {"storageClasses": {"federate": "No_Name"}},
        {"csiDrivers": ["No_Name"]},
        {"classes": {}},
    ],
)
def test_what_is_none_is_refused(written: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"claims": "target"}, "claims target needs it"),
        ({"claims": "target", "storageClasses": {}}, "claims target needs it"),
        ({"storageClasses": {"a": "b"}}, "does nothing with claims refuse"),
    ],
)
def test_what_does_not_fit_together_is_told(written: dict[str, Any], words: str) -> None:
    ((loc, said),) = virtual_node_findings({"volumes": written})
    assert loc == ("volumes", "storageClasses")
    assert words in said

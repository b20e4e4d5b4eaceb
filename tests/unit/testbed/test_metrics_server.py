"""What is installed as metrics-server, as far as it needs no cluster."""

from pathlib import Path

import pytest

from e2e.testbed.errors import TestbedError
from e2e.testbed.kept import KeptPair, Wish
from e2e.testbed.metrics_server import NAME, NAMESPACE, PORT, image_reference, manifests
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec


def test_the_manifest_fits_together() -> None:
    """The API leads to the service, the service to the pods, and the pods to their rights."""
    found = {item["kind"]: item for item in manifests()}
    service, deployment = found["Service"], found["Deployment"]
    assert found["APIService"]["spec"]["service"] == {"name": NAME, "namespace": NAMESPACE}
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"] == template["metadata"]["labels"]
    assert service["spec"]["ports"][0]["targetPort"] == PORT
    assert f"--secure-port={PORT}" in template["spec"]["containers"][0]["args"]
    assert template["spec"]["containers"][0]["image"] == image_reference()
    account = found["ServiceAccount"]["metadata"]["name"]
    assert template["spec"]["serviceAccountName"] == account
    subjects = [s["name"] for item in manifests() for s in item.get("subjects", ())]
    assert subjects == [account] * 3


def test_only_kind_can_have_it(tmp_path: Path) -> None:
    """Where no containers run it is refused before anything starts."""
    places = Places(
        environment={"HOME": str(tmp_path), "PATH": str(tmp_path)}, checkout=tmp_path / "checkout"
    )
    wish = Wish(
        provider="local",
        hub=ClusterSpec(name="hub"),
        target=ClusterSpec(name="target"),
        with_metrics_server=True,
    )
    with pytest.raises(TestbedError, match="kind can"):
        KeptPair(places, Progress(quiet=True)).up(wish)

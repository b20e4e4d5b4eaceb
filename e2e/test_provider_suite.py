"""The virtual-kubelet project's own suite for providers, on the virtual node.

Pods are played and end at once, as the suite takes it of a provider. `python -m e2e.providersuite`
runs it on real containers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from e2e.conformance.results import Outcome, Result
from e2e.providersuite.keeping import Keeping
from e2e.providersuite.place import federation, image_of
from e2e.providersuite.program import PROGRAM, Wish, run_specs
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "judged"

RUNS_MORE = 2
"""Of what fails: the suite gives a node one second, whatever else runs on the machine."""


@pytest.fixture
def judged(
    worlds: Worlds,
    testbed_factory: TestbedFactory,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path: Path,
) -> Iterator[Space]:
    """A namespace for the pods of a node whose kubelet API the hub's API server reaches."""
    file = tmp_path / "federation.yaml"
    document = federation(NODE, hub=local_hub, target=local_target, places=testbed_factory.places)
    file.write_text(yaml.safe_dump(document))
    with worlds.world(node=NODE, hub=local_hub, target=local_target, config=file) as world:
        space = Space(world, "provider-suite")
        space.open()
        yield space
        space.close()


def test_the_suite_for_providers_passes(
    judged: Space,
    testbed_factory: TestbedFactory,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path: Path,
) -> None:
    """The virtual node does what that project asks of a node, but for what no kubelet does."""
    keeping = Keeping()
    exemptions = keeping.exemptions(with_containers=False)
    program = testbed_factory.binaries.find(PROGRAM)
    wish = Wish(
        kubeconfig=local_hub.kubeconfig,
        namespace=judged.namespace,
        node=NODE,
        image=image_of(local_target),
        without=[one.pattern for one in exemptions],
    )
    places = testbed_factory.places
    results = run_specs(program, wish, folder=tmp_path, places=places)
    assert results.keys() == {
        name for name in keeping.read() if not any(one.matches(name) for one in exemptions)
    }
    for _ in range(RUNS_MORE):
        if failing := failing_among(results):
            again = replace(wish, only=failing)
            results |= run_specs(program, again, folder=tmp_path, places=places)
    assert not failing_among(results)


def failing_among(results: Mapping[str, Result]) -> dict[str, Result]:
    return {name: one for name, one in results.items() if one.outcome is not Outcome.PASSED}

"""The kind clusters of a run that was killed are removed by the next start, and no others."""

import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

from e2e.support.measuring import Measurements
from e2e.support.world import wait_for
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster, delete_cluster, remove_leftovers
from e2e.testbed.kind_claims import KIND_LABEL, Claim, Claims
from e2e.testbed.kubeconfigs import read_kubeconfig, server_of
from e2e.testbed.places import Places

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

OWNER_PROGRAM = """
from e2e.testbed.binaries import Binaries
from e2e.testbed.kind import KindProvider
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec

KindProvider(Binaries(Places(), Progress())).start(ClusterSpec(name="killed"))
"""


def test_what_a_killed_run_left_is_removed_and_nothing_else(
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    measured: Measurements,
) -> None:
    """A run killed while kind creates its cluster leaves a claim, by which all of it is found."""
    docker, binaries = testbed_factory.kind.docker, testbed_factory.binaries
    claims = Claims(docker)
    ours = {cluster.cluster_name for cluster in real_hub_and_target}

    def containers(*more: str) -> set[str]:
        template = f'{{{{.Label "{KIND_LABEL}"}}}}'
        return set(docker.lines("ps", "--all", "--format", template, *more))

    def claims_of(process: "subprocess.Popen[bytes]") -> list[Claim]:
        return [
            claim
            for claim in claims.all()
            if claim.owner and claim.owner.process and claim.owner.process.pid == process.pid
        ]

    other = subprocess.Popen([sys.executable, "-c", OWNER_PROGRAM], cwd=Places().checkout)
    try:
        claim = wait_for("the other run claims a cluster", lambda: claims_of(other))[0]
        wait_for("its node is being made", lambda: claim.cluster in containers())
        remove_leftovers(binaries, docker)
        assert claim.cluster in containers(), "its owner lives"
    finally:
        other.kill()
        other.wait()

    # The claim is young, and stays: what the dead asked Docker for may still be on its way.
    def is_removed() -> bool:
        remove_leftovers(binaries, docker)
        return claim.cluster not in containers()

    started = time.monotonic()
    wait_for("nothing of the dead run comes any more", lambda: is_removed() and is_removed())
    measured.seconds("leftovers removed", time.monotonic() - started, promise=10.0)
    assert claim in claims.all()
    assert ours <= containers("--filter", "status=running")
    claims.drop(claim.cluster)


def test_a_deleted_cluster_is_deleted_again_in_peace(testbed_factory: TestbedFactory) -> None:
    """A name that kind knows nothing of is no error: somebody may have been faster."""
    delete_cluster(testbed_factory.binaries, "federate-never-was")


def test_the_internal_kubeconfig_leads_to_the_nodes_container(
    real_hub_and_target: tuple[RealCluster, RealCluster],
) -> None:
    """Whoever is in Docker's network reaches the API server by the container's name."""
    for cluster in real_hub_and_target:
        server = server_of(read_kubeconfig(cluster.internal_kubeconfig))
        assert urlsplit(server).hostname == cluster.node_name
        assert urlsplit(cluster.api_url).hostname == "127.0.0.1"

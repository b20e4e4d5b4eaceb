"""The Node and `federate check` tell that the credentials for the target end, or ended (C72)."""

import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.support.measuring import Measurements
from e2e.support.pods import is_ready
from e2e.support.process import FederateProcess, run_cli
from e2e.support.world import World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.kubeconfigs import render_kubeconfig, write_kubeconfig
from e2e.testbed.local import LocalCluster
from e2e.testbed.pki import KeyPair, issue_client_for

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

SOON_SECONDS = 600.0
"""An end that is near, and does not come while we look."""
ENDS_SECONDS = 3.0


def issue(seconds: float, cluster: LocalCluster, folder: Path) -> KeyPair:
    return issue_client_for(
        seconds,
        by=cluster.pki.authority,
        folder=folder,
        file="target",
        user="testbed-admin",
        groups=["system:masters"],
    )


def give(file: Path, cluster: LocalCluster, user: KeyPair) -> None:
    """Put a certificate into the kubeconfig that federate runs with."""
    content = render_kubeconfig(
        name="target",
        server=cluster.api_url,
        authority=cluster.ca_certificate,
        user=user,
    )
    write_kubeconfig(file, content)


def reason(world: World) -> str:
    """Say what the Node tells of the credentials for its target."""
    conditions = world.read_node()["status"]["conditions"]
    told: str = next(c["reason"] for c in conditions if c["type"].endswith("/CredentialsValid"))
    return told


def checked(world: World) -> set[str]:
    """Name what `federate check` finds."""
    options = world.federate.options
    told = run_cli(
        *("check", "--hub", str(options.hub), "-o", "json"),
        *("--target", f"{options.node}={options.target}"),
    )
    found = json.loads(told.stdout)
    return {one["id"] for step in found["steps"] for one in step["findings"]}


def test_c72_credentials_that_end_are_told_and_heal_when_they_are_replaced(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path: Path,
    measured: Measurements,
) -> None:
    """A certificate that ends soon, one that ends, and one that does not: without a restart."""
    file = tmp_path / "target.yaml"
    give(file, local_target, issue(SOON_SECONDS, local_target, tmp_path))
    with worlds.world(
        node="short-lived", hub=local_hub, target=local_target, started=False
    ) as plain:
        federate = FederateProcess(replace(plain.federate.options, target=file), folder=tmp_path)
        world = replace(plain, federate=federate)
        with closing(federate):
            world.start_federate()
            assert reason(world) == "CredentialsExpireSoon"
            assert "CredentialsExpire" in checked(world)

            give(file, local_target, issue(ENDS_SECONDS, local_target, tmp_path))
            began = time.monotonic()
            wait_for(
                "the Node says that they ended",
                lambda: reason(world) == "CredentialsExpired",
                timeout_seconds=60.0,
                explain=federate.log_tail,
            )
            measured.note("a certificate's end is told", f"{time.monotonic() - began:.1f} s")
            found = checked(world)
            assert "CredentialsExpired" in found

            began = time.monotonic()
            give(file, local_target, local_target.pki.admin)
            wait_for(
                "the Node is ready again",
                lambda: reason(world) == "CredentialsValid" and is_ready(world.read_node()),
                timeout_seconds=60.0,
                explain=federate.log_tail,
            )
            measured.note("new credentials are taken on", f"{time.monotonic() - began:.1f} s")
            assert not {"CredentialsExpire", "CredentialsExpired"} & checked(world)

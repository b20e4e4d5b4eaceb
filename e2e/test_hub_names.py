"""With identity `hub`, names of the API server are the hub's, by the printed rights (C1, C31)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.support.accounts import account_of
from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import name_of
from e2e.support.process import FederateProcess, RunOptions, run_cli
from e2e.support.rights import asked_by, assert_all_granted, assert_all_in_table
from e2e.support.witness import Json
from e2e.support.world import Space, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

HUB_ADDRESS = "192.0.2.7:6443"
"""Nobody is asked there: what is looked at is what mirrors are told."""
NAMES = ["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
DOOR = "federate.dev/companion=hub-api"
WITH = ("--with", "pod-identity")


@contextmanager
def federating(
    node: str,
    worlds: Worlds,
    hub: TestCluster,
    target: TestCluster,
    *granted: str,
    folder: Path,
    address: str = HUB_ADDRESS,
) -> Iterator[Space]:
    """Run federate with what is printed, `granted` on top in the target, and nothing else."""
    with ExitStack() as stack:
        hub_file = stack.enter_context(
            account_of(hub, "--side", "hub", "--node", node, *WITH, folder=folder)
        )
        target_file = stack.enter_context(
            account_of(target, "--side", "target", *granted, folder=folder)
        )
        options = RunOptions(
            node=node, hub=hub_file, target=target_file, arguments=("--hub-address", address)
        )
        federate = FederateProcess(options, folder=folder)
        stack.callback(federate.close)
        found = stack.enter_context(worlds.world(node=node, hub=hub, target=target, started=False))
        wait_granted(options, "nodes/status")
        world = replace(found, federate=federate)
        world.start_federate()
        space = Space(world, "names")
        space.open()
        yield space
        space.close()


def check(options: RunOptions) -> str:
    """Ask whether all is there; returns what it says, in one line."""
    ended = run_cli(
        *("check", "--hub", str(options.hub), "--target", f"{options.node}={options.target}"),
        *options.arguments,
    )
    return " ".join(ended.stdout.split())


def wait_granted(options: RunOptions, right: str) -> None:
    """Wait until the API servers know the rights."""

    def is_granted() -> bool:
        return f"may not patch {right}" not in check(options)

    wait_for("the rights are granted", is_granted, explain=lambda: check(options))


def aliases(space: Space, name: str) -> list[Json]:
    """Return what a mirror has beside the usual in its hosts file."""
    found: list[Json] = space.read_mirror(name)["spec"].get("hostAliases") or []
    return found


def test_a_service_of_the_target_leads_to_the_hub(
    worlds: Worlds, hub: TestCluster, target: TestCluster, tmp_path: Path
) -> None:
    """With the printed rights nothing is refused; what somebody deletes comes back as it was."""
    with federating("door", worlds, hub, target, *WITH, folder=tmp_path) as space:
        federate = space.world.federate
        space.create(pod("web", pod_spec("door")))
        space.wait_running("web")
        [door] = space.target.list("Service", space.target_namespace, labels=DOOR)
        [slice_] = space.target.list("EndpointSlice", space.target_namespace, labels=DOOR)
        address = door["spec"]["clusterIP"]
        assert aliases(space, "web") == [{"ip": address, "hostnames": NAMES}]
        assert [port["port"] for port in door["spec"]["ports"]] == [443]
        assert [each["addresses"] for each in slice_["endpoints"]] == [["192.0.2.7"]]
        assert [port["port"] for port in slice_["ports"]] == [6443]
        assert "endpointslices" not in check(federate.options)

        space.target.delete("Service", space.target_namespace, name_of(door))
        asked = asked_by(federate)
        federate.restart()

        def is_back() -> bool:
            found = space.target.list("Service", space.target_namespace, labels=DOOR)
            return [each["spec"]["type"] for each in found] == ["ClusterIP"]

        space.wait("the Service is there again", is_back)
        asked += asked_by(federate)
        assert_all_granted(asked, federate)
        assert_all_in_table(asked)


def test_a_pod_starts_without_the_names_where_the_right_is_missing(
    worlds: Worlds, hub: TestCluster, target: TestCluster, tmp_path: Path
) -> None:
    """One Event says so, `federate check` says what to grant, and nothing is made."""
    with federating("doorless", worlds, hub, target, folder=tmp_path) as space:
        for name in ("web", "other"):
            space.create(pod(name, pod_spec("doorless")))
            space.wait_running(name)
            assert aliases(space, name) == []

        def told() -> list[Json]:
            events = space.hub.list("Event", space.namespace)
            return [each for each in events if each["reason"] == "HubNamesMissing"]

        [event] = space.wait("an Event tells of it", told)
        assert "forbidden" in event["message"].lower()
        assert "endpointslices" in check(space.world.federate.options)
        for kind in ("Service", "EndpointSlice"):
            assert space.target.list(kind, space.target_namespace, labels=DOOR) == []


def test_an_address_that_serves_at_443_takes_no_right(
    worlds: Worlds, hub: TestCluster, target: TestCluster, tmp_path: Path
) -> None:
    """It stands in the mirror itself."""
    with federating(
        "straight", worlds, hub, target, folder=tmp_path, address="192.0.2.7:443"
    ) as space:
        space.create(pod("web", pod_spec("straight")))
        space.wait_running("web")
        assert aliases(space, "web") == [{"ip": "192.0.2.7", "hostnames": NAMES}]
        assert "endpointslices" not in check(space.world.federate.options)

"""`federate check` on a running pair: all is well, or it says what is broken and the fix (C74)."""

import json
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.support.accounts import account_of
from e2e.support.manifests import container, pod, pod_spec
from e2e.support.process import run_cli
from e2e.support.witness import Json
from e2e.support.world import Space, wait_for
from e2e.testbed.kubeconfigs import read_kubeconfig, write_kubeconfig
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def check(space: Space, *, hub: Path | None = None, target: Path | None = None) -> Json:
    """Check the pair of a space as JSON; the exit code says the same."""
    options = space.world.federate.options
    told = run_cli(
        *("check", "--hub", str(hub or options.hub), "-o", "json"),
        *("--target", f"{options.node}={target or options.target}"),
    )
    assert told.returncode in (0, 1), told.stderr
    found: Json = json.loads(told.stdout)
    assert found["ok"] == (told.returncode == 0)
    return found


def findings(checked: Json, found: str = "") -> list[Any]:
    """List the findings, of one kind or all."""
    listed = [one for step in checked["steps"] for one in step["findings"]]
    return [one for one in listed if found in ("", one["id"])]


def statuses(checked: Json, end: str) -> dict[str, str]:
    return {step["step"]: step["status"] for step in checked["steps"] if step["end"] == end}


def test_a_running_pair_is_well(space: Space) -> None:
    """Every step of both ends is taken; the node, its leader and its record are found."""
    space.run_pod(pod("one", pod_spec(space.node)))
    checked = check(space)
    assert checked["ok"], findings(checked)
    hub, edge = statuses(checked, "hub"), statuses(checked, space.node)
    assert "skip" not in {*hub.values(), *edge.values()}
    assert hub["rights"] == edge["rights"] == "ok"
    assert hub[f"node {space.node}"] == hub[f"leader {space.node}"] == "ok"
    said = {step["step"]: step["said"] for step in checked["steps"] if step["end"] == space.node}
    assert "as on record" in said["hub and target"]


def test_a_kubeconfig_of_another_machine_is_explained(space: Space, tmp_path: Path) -> None:
    """Its server is 127.0.0.1, where nothing listens here; the hub is checked all the same."""
    options = space.world.federate.options
    content = read_kubeconfig(options.target)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        for cluster in content["clusters"]:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{held.getsockname()[1]}"
        file = write_kubeconfig(tmp_path / "edge.yaml", content)
        told = run_cli("check", "--hub", str(options.hub), "--target", f"{options.node}={file}")
    assert told.returncode == 1, told.stdout
    lines = [" ".join(line.split()) for line in told.stdout.splitlines()]
    assert any(line.startswith(f"{space.node} fail connection") for line in lines)
    assert any(line.startswith("LoopbackAddress: 127.0.0.1 is this machine") for line in lines)
    assert any(line.startswith("-> ") and "set-cluster" in line for line in lines)
    assert f"{space.node} skip rights" in lines
    assert any(line.startswith("hub ok rights") for line in lines)


def test_a_missing_right_is_named_with_the_command_that_grants_it(
    space: Space, hub: TestCluster, tmp_path: Path
) -> None:
    """And the command grants it, to the account that lacks it."""
    with account_of(hub, "--side", "hub", "--node", space.node, folder=tmp_path) as file:
        name = file.stem
        role = json.loads(hub.kubectl("get", "clusterrole", name, "-o", "json"))
        role["rules"] = [one for one in role["rules"] if one["resources"] != ["pods/status"]]
        hub.kubectl("replace", "-f", "-", stdin=json.dumps(role))

        def missing() -> list[Any]:
            return findings(check(space, hub=file), "RightMissing")

        [finding] = wait_for("the right is missed", missing)
        assert "may not patch pods/status cluster-wide" in finding["what"]
        assert name in finding["what"]
        command, _, kubectl = finding["fix"].partition(" | ")
        assert kubectl == "kubectl apply -f -"
        printed = run_cli(*shlex.split(command)[1:])
        hub.kubectl("apply", "-f", "-", stdin=printed.stdout)
        wait_for("it is granted again", lambda: check(space, hub=file)["ok"])


def test_what_stands_beside_federate_is_told(
    space: Space, hub: TestCluster, target: TestCluster
) -> None:
    """A DaemonSet on the node, a budget and a Service on mirrors: warnings, with their fixes.

    The DaemonSet's patch is run as printed; the next check is content with it.
    """
    space.create(tolerates_everything("agent", space.namespace))
    space.run_pod(pod("one", pod_spec(space.node), labels={"app": "web"}))
    with applied(target, *selecting("web", space.target_namespace)):
        checked = check(space)
    assert checked["ok"], findings(checked)
    for kind in ("BudgetCountsMirrors", "ServiceSelectsMirrors"):
        assert naming(checked, kind, f"{space.target_namespace}/selecting"), kind
    daemonset = ("DaemonSetToleratesNode", f"{space.namespace}/agent")
    [finding] = naming(checked, *daemonset)
    words = shlex.split(finding["fix"])
    assert words[0] == "kubectl"
    hub.kubectl(*words[1:])
    assert not naming(check(space), *daemonset)


def naming(checked: Json, found: str, name: str) -> list[Any]:
    """List the findings of a kind that name an object."""
    return [one for one in findings(checked, found) if name in one["what"]]


def tolerates_everything(name: str, namespace: str) -> Json:
    labels = {"app": name}
    spec = {"containers": [container()], "tolerations": [{"operator": "Exists"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def selecting(app: str, namespace: str) -> list[Json]:
    """Render a budget and a Service that select pods of an app."""
    meta = {"name": "selecting", "namespace": namespace}
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
    service = {"selector": {"app": app}, "ports": [{"port": 80}]}
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": budget,
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
    ]


@contextmanager
def applied(cluster: TestCluster, *objects: Json) -> Iterator[None]:
    """Have objects in a cluster for a while."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "-f", "-", stdin=text)
    try:
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=text)

"""DaemonSets of the hub that tolerate virtual nodes: in each mode, on whole clusters (C26).

One federate process serves a virtual node for each mode. The DaemonSet is there before it, as those
of a hub's network and storage are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from e2e.support.manifests import container, daemon_set
from e2e.support.pods import condition_of, is_ready, name_of, phase_of, uid_of, waiting_reason
from e2e.support.witness import Json
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

MODES = {"ds-pending": "pending", "ds-mirror": "mirror", "ds-pretend": "pretend"}
WAITING, MIRRORING, PRETENDING = MODES
KEPT_OFF = "federate.dev/DaemonSetsKeptOff"


def agent(*, round_number: int = 1) -> Json:
    """Render a DaemonSet that tolerates everything, kept to these virtual nodes."""
    chosen = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(MODES)}
    affinity = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
    body = daemon_set(
        "agent",
        {
            "containers": [container()],
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}
            },
        },
    )
    body["spec"]["template"]["metadata"]["annotations"] = {"round": str(round_number)}
    # The pod that waits for ever is one that is never available.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    body["spec"]["updateStrategy"] = rolling
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    space: Space

    def pods(self) -> dict[str, Json]:
        """Return the DaemonSet's pods that are to stay, by node."""
        found = [p for p in self.space.pods() if "deletionTimestamp" not in p["metadata"]]
        return {pod["spec"].get("nodeName", ""): pod for pod in found}

    def is_available(self, count: int) -> bool:
        """Tell whether the controller has rolled out all, and counts so many as available."""
        found = self.space.hub.get("DaemonSet", self.space.namespace, "agent")
        assert found is not None
        status = found.get("status", {})
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        counts = (status.get("updatedNumberScheduled"), status.get("numberAvailable", 0))
        return bool(is_seen and counts == (len(MODES), count))


@pytest.fixture(scope="module")
def stage(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    document = {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(local_hub.kubeconfig)},
        "virtualNodes": [
            {
                "nodeName": name,
                "target": {"kubeconfig": str(local_target.kubeconfig)},
                "policy": {"daemonSets": mode},
            }
            for name, mode in MODES.items()
        ],
    }
    file = tmp_path_factory.mktemp("daemonsets") / "federate.yaml"
    file.write_text(yaml.safe_dump(document))
    with worlds.world(
        node=WAITING,
        hub=local_hub,
        target=local_target,
        config=file,
        also=[MIRRORING, PRETENDING],
        started=False,
    ) as world:
        space = Space(world, "daemonsets")
        space.open()
        space.create(agent())
        world.start_federate()
        yield Stage(space=space)
        space.close()


def test_c26_a_daemonset_in_each_mode(stage: Stage) -> None:
    """Its pod waits, runs in the target, or says Ready and runs nowhere; and the node says so."""
    space = stage.space
    space.wait("two of three pods are available", lambda: stage.is_available(2))
    pods = stage.pods()
    assert waiting_reason(pods[WAITING]) == "DaemonSetNotMirrored"
    assert pods[PRETENDING]["status"]["reason"] == "NotRunHere"
    running = pods[MIRRORING]
    assert phase_of(running) == "Running" and is_ready(running)
    assert [name_of(mirror) for mirror in space.mirrors()] == [name_of(running)]
    for node, reason, words in (
        (WAITING, "DaemonSetsWait", "a pod of each waits here for ever"),
        (MIRRORING, "DaemonSetsMirrored", "a pod of each runs in the target"),
        (PRETENDING, "DaemonSetsPretended", "a pod of each says Ready here and runs nowhere"),
    ):

        def told(node: str = node) -> Json | None:
            found = space.hub.get("Node", "", node)
            return (condition_of(found, KEPT_OFF) if found else None) or None

        condition = space.wait(f"{node} tells of DaemonSets", told)
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert condition["message"].startswith(f"{space.namespace}/agent: {words}")
        assert f"kubectl -n {space.namespace} patch daemonset agent" in condition["message"]


def test_c26_a_roll_out_goes_through_virtual_nodes(stage: Stage) -> None:
    """Where its pods are mirrored or pretended they are replaced, and available again."""
    space = stage.space
    space.wait("two of three pods are available", lambda: stage.is_available(2))
    before = {uid_of(pod) for pod in stage.pods().values()}
    template = agent(round_number=2)["spec"]["template"]
    body = {"spec": {"template": {"metadata": template["metadata"]}}}
    space.hub.patch("DaemonSet", space.namespace, "agent", body)

    def is_over() -> bool:
        after = {uid_of(pod) for pod in stage.pods().values()}
        return stage.is_available(2) and len(after) == len(MODES) and not after & before

    space.wait("all pods are replaced, two of three available", is_over)
    space.assert_one_mirror_each()

"""The steps of the story. Each asserts what it shows."""

import shlex
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from e2e.support.manifests import APP as PROGRAM
from e2e.support.manifests import container, deployment, pod_spec
from e2e.support.pods import hub_pod_uid_of, is_ready, is_terminating, name_of, uid_of
from e2e.support.witness import Json

from .narrator import Narrator, StoryError
from .stage import APP, NAMESPACE, NODE, Stage
from .tables import (
    HUB_POD_HEADS,
    HUB_POD_NAMESPACE,
    HUB_POD_UID,
    MIRROR_HEADS,
    NODE_HEADS,
    agree,
    hub_pod_row,
    mirror_row,
    node_row,
)

KUBECTL_SECONDS = 30.0

SELECTION = """\
The pods ask for the virtual node:
  nodeSelector: {kubernetes.io/hostname: edge}
  tolerations:
  - {key: virtual-kubelet.io/provider, operator: Equal, value: federate, effect: NoSchedule}"""


class Story:
    """Play the steps in order, on a stage."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self.stage = stage
        self.hub = stage.hub
        self.target = stage.target
        self.federate = stage.federate
        self.narrator = narrator

    def play(self) -> None:
        """Play everything.

        Raises:
            StoryError: something did not come true.
        """
        for step in (
            self.show_clusters,
            self.start_federate,
            self.submit,
            self.look_inside,
            self.scale,
            self.delete_mirror,
            self.kill_federate,
            self.delete_deployment,
        ):
            step()

    # -- the steps; the first heading is printed by whoever starts the clusters --

    def show_clusters(self) -> None:
        """Show what was started."""
        self.narrator.table(
            "clusters",
            ("NAME", "KUBERNETES", "API SERVER", "NODES"),
            (
                (cluster.name, cluster.version, cluster.api_url, str(len(witness.list("Node"))))
                for cluster, witness in zip(
                    self.stage.clusters, (self.hub, self.target), strict=True
                )
            ),
        )

    def start_federate(self) -> None:
        """Start federate; the target becomes a node of the hub."""
        self.narrator.step("federate makes the target a node of the hub")
        self.narrator.command(self.federate.command_line)
        self.federate.start()
        self._wait(f"virtual node {self.federate.node} is Ready", self._is_node_usable)
        nodes = [self.hub.get("Node", "", self.federate.node) or {}]
        self.narrator.table("hub: nodes", NODE_HEADS, map(node_row, nodes))
        self.narrator.table("target: nodes", NODE_HEADS, map(node_row, self.target.list("Node")))
        self.narrator.say("The virtual node is as large as what is free on the target's nodes.")
        self._clear()

    def submit(self) -> None:
        """Submit a Deployment to the hub; it runs in the target."""
        self.narrator.step("A Deployment of 3 is submitted to the hub and runs in the target")
        self.narrator.say(SELECTION)
        self._create()
        self._wait_replicas(3)
        self._show()
        self.narrator.check(
            "phase, readiness, start time and the node of every mirror are back in its hub pod",
            all(agree(pod, self._mirror_of(uid_of(pod))) for pod in self._pods()),
        )

    def look_inside(self) -> None:
        """Read what a container printed, through the hub; on fake nodes nothing runs."""
        if not self.stage.runs_containers:
            return
        self.narrator.step("kubectl logs and exec on the hub reach the container in the target")
        pod = name_of(self._pods()[0])
        for words in (("logs", pod), ("exec", pod, "--", "/app", "version")):
            self.narrator.command(f"kubectl {' '.join(words)}")
            self._wait(f"kubectl {words[0]} answers", partial(self._answers, *words))

    def _answers(self, *words: str) -> bool:
        """Run kubectl on the hub; True once it succeeds, and shown then."""
        kubeconfig = self.stage.clusters[0].kubeconfig
        finished = subprocess.run(
            [str(self.stage.kubectl), f"--kubeconfig={kubeconfig}", "-n", NAMESPACE, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
            check=False,
        )
        if finished.returncode == 0:
            self.narrator.say(finished.stdout.rstrip())
        return finished.returncode == 0

    def scale(self) -> None:
        """Scale up and down; the target follows."""
        self.narrator.step("It is scaled to 6, then to 2")
        for replicas in (6, 2):
            self.narrator.command(f"kubectl scale deployment {APP} --replicas={replicas}")
            self.hub.patch("Deployment", NAMESPACE, APP, {"spec": {"replicas": replicas}})
            self._wait_replicas(replicas)
            self._show()

    def delete_mirror(self) -> None:
        """Delete a mirror in the target; the hub replaces the pod."""
        self.narrator.step("Somebody deletes a mirror in the target, behind federate's back")
        mirror = self._mirrors()[0]
        name, namespace = name_of(mirror), mirror["metadata"]["namespace"]
        self.narrator.command(f"kubectl --kubeconfig target.yaml -n {namespace} delete pod {name}")
        self.target.delete("Pod", namespace, name)
        self._wait_replicas(2, without=hub_pod_uid_of(mirror))
        self.narrator.say("The hub pod ended with its mirror, and the ReplicaSet made another:")
        self._show()

    def kill_federate(self) -> None:
        """Kill federate, delete a hub pod meanwhile, start federate again: the orphan goes."""
        self.narrator.step("federate is killed, and a hub pod is force-deleted meanwhile")
        lost, other = self._pods()
        kept_mirror = self._mirror_of(uid_of(other))
        self.narrator.command("kill -9 (federate)")
        self.federate.kill()
        self.narrator.command(f"kubectl delete pod {name_of(lost)} --force --grace-period=0")
        self.hub.delete("Pod", NAMESPACE, name_of(lost), grace_seconds=0)
        self.narrator.wait(
            "the ReplicaSet has made another hub pod, which waits",
            lambda: len(self._pods()) == 2 and self._find_pod(uid_of(lost)) is None,
        )
        self._show()
        orphan = self._mirror_of(uid_of(lost))
        self.narrator.say(f"{name_of(orphan)} in the target stands for nothing now: an orphan.")
        self.narrator.command(self.federate.command_line)
        self.federate.start()
        self._wait(
            "the orphan is collected",
            lambda: all(uid_of(found) != uid_of(orphan) for found in self._mirrors()),
        )
        self._wait_replicas(2)
        self._show()
        self.narrator.check(
            f"{name_of(kept_mirror)} has run on all the time, in the same mirror",
            uid_of(self._mirror_of(uid_of(other))) == uid_of(kept_mirror),
        )

    def delete_deployment(self) -> None:
        """Delete everything; nothing is left."""
        self.narrator.step("The Deployment is deleted")
        self.narrator.command(f"kubectl delete deployment {APP}")
        self.hub.delete("Deployment", NAMESPACE, APP)
        self._wait("nothing is left on either side", self._is_empty)
        self._show()

    def leave_something(self) -> None:
        """Submit the Deployment again, for a person to look at."""
        self.narrator.step(f"Deployment {APP} is submitted again, for you to look at")
        self._create()
        self._wait_replicas(3)

    def sketch(self) -> str:
        """Say how both sides are, for a story that failed."""
        lines = []
        for name, read in (("hub", self._pods), ("target", self._mirrors)):
            try:
                rows = [" ".join(hub_pod_row(pod, now=datetime.now(UTC))) for pod in read()]
            except Exception as error:
                rows = [f"does not answer: {error!r}"[:256]]
            lines += [f"{name} pods:", *(f"  {row}" for row in rows or ["none"])]
        return "\n".join([*lines, "federate's log ends:", self.federate.log_tail()])

    # -- looking --

    def _pods(self) -> list[Json]:
        return self.hub.list("Pod", NAMESPACE)

    def _mirrors(self) -> list[Json]:
        """List the mirrors of the demo's pods, wherever they are in the target."""
        return [
            mirror
            for mirror in self.target.list("Pod", labels=HUB_POD_UID)
            if mirror["metadata"]["annotations"].get(HUB_POD_NAMESPACE) == NAMESPACE
        ]

    def _find_pod(self, uid: str) -> Json | None:
        return next((pod for pod in self._pods() if uid_of(pod) == uid), None)

    def _mirror_of(self, hub_pod_uid: str) -> Json:
        for mirror in self._mirrors():
            if hub_pod_uid_of(mirror) == hub_pod_uid:
                return mirror
        raise StoryError(f"The hub pod with uid {hub_pod_uid} has no mirror.")

    def _is_node_usable(self) -> bool:
        """Tell whether the hub's scheduler would use the virtual node."""
        node = self.hub.get("Node", "", self.federate.node)
        if node is None or not is_ready(node) or not self.federate.is_ready():
            return False
        taints = node["spec"].get("taints") or ()
        return not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)

    def _is_empty(self) -> bool:
        return not self._pods() and not self._mirrors()

    def _show(self) -> None:
        """Show both sides as they are now."""
        now = datetime.now(UTC)
        self.narrator.table(
            f"hub: pods in namespace {NAMESPACE}",
            HUB_POD_HEADS,
            (hub_pod_row(pod, now=now) for pod in self._pods()),
        )
        mirrors = self._mirrors()
        namespaces = {mirror["metadata"]["namespace"] for mirror in mirrors}
        where = f" in namespace {', '.join(sorted(namespaces))}" if namespaces else ""
        self.narrator.table(f"target: mirrors{where}", MIRROR_HEADS, map(mirror_row, mirrors))

    # -- acting and waiting --

    def _create(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.hub.create_if_absent(namespace)
        # Pods are refused until their namespace has its ServiceAccount.
        self._poll(lambda: self.hub.get("ServiceAccount", NAMESPACE, "default") is not None)
        talking = container(command=[PROGRAM, "lines", "3"])
        spec = pod_spec(self.federate.node, containers=[talking])
        replicas = deployment(APP, spec, replicas=3)
        self.narrator.command(f"kubectl apply -f {APP}.yaml     # Deployment {APP}, 3 replicas")
        self.hub.create(replicas, NAMESPACE)

    def _poll(self, probe: Callable[[], bool]) -> None:
        self.narrator.wait(f"namespace {NAMESPACE} is there", probe)

    def _clear(self) -> None:
        """Remove what an earlier demo left in clusters that were kept."""
        if self.hub.delete("Deployment", NAMESPACE, APP) or not self._is_empty():
            self._wait("what an earlier demo left is gone", self._is_empty)

    def _wait_replicas(self, replicas: int, *, without: str = "") -> None:
        """Wait until there are so many pods, on both sides, ready; none of them `without`."""

        def probe() -> bool:
            pods, mirrors = self._pods(), self._mirrors()
            return (
                len(pods) == len(mirrors) == replicas
                and all(is_ready(pod) and not is_terminating(pod) for pod in [*pods, *mirrors])
                and {uid_of(pod) for pod in pods} == set(map(hub_pod_uid_of, mirrors))
                and without not in {uid_of(pod) for pod in pods}
            )

        self._wait(f"{replicas} pods run in the target and are Ready in the hub", probe)

    def _wait(self, what: str, probe: Callable[[], bool]) -> None:
        """Wait for something that federate does."""

        def alive() -> bool:
            if probe():
                return True
            if not self.federate.is_running:
                raise StoryError(f"federate ended while this was waited for: {what}.")
            return False

        self.narrator.wait(what, alive)


def how_to_look_around(stage: Stage) -> str:
    """Say what a kept stage can be looked at with, and how to end it."""
    hub, target = (shlex.quote(str(cluster.kubeconfig)) for cluster in stage.clusters)
    kubectl = shlex.quote(str(stage.kubectl))
    return "\n".join(
        (
            "Hub, target and federate go on running. To look around:",
            f"  export KUBECONFIG={hub}     # the hub; the target: {target}",
            f"  alias kubectl={kubectl}",
            "  kubectl get nodes",
            f"  kubectl -n {NAMESPACE} get pods -o wide",
            f"  kubectl -n {NAMESPACE} scale deployment {APP} --replicas=10",
            f"  kubectl --kubeconfig {target} get pods -A -o wide",
            "  .venv/bin/federate status --watch",
            f"  .venv/bin/federate explain pod {NAMESPACE}/NAME --target {NODE}={target}",
            f"  curl -s http://127.0.0.1:{stage.federate.port}/metrics | grep ^federate_",
            f"  tail -f {shlex.quote(str(stage.federate.log))}",
            "To end all three, and what is in the clusters:",
            "  make clusters-down",
        )
    )

"""A space whose pods have real containers, and what tests ask about those."""

import json
from collections.abc import Callable, Mapping

from e2e.images.build import tag_of
from e2e.support.manifests import pod_spec
from e2e.support.pods import is_terminating, uid_of
from e2e.support.witness import Json
from e2e.support.world import Space, World
from e2e.testbed.kind import RealCluster

from .reports import PORT, Report, Reports

ROLLOUT_SECONDS = 90
"""How long a user's command may wait for what takes seconds on an idle machine."""

NOWHERE = "127.0.0.1:1/absent:1"
"""An image of a registry that refuses connections, on the node itself."""

PULL_FAILED = ("ErrImagePull", "ImagePullBackOff")
"""What a kubelet says of such an image, in turn."""


class Crate(Space):
    """One hub namespace for the stories of a module."""

    def __init__(
        self, world: World, name: str, *, hub: RealCluster, target: RealCluster, reports: Reports
    ) -> None:
        super().__init__(world, name)
        self.hub_cluster = hub
        self.target_cluster = target
        self._reports = reports

    # -- manifests --

    def spec(self, *containers: Json, **more: object) -> Json:
        """Render the spec of a pod that runs in the target."""
        return pod_spec(self.node, containers=list(containers), **more)

    def app(
        self,
        *arguments: str,
        name: str = "main",
        version: str = "1",
        linger: int = 0,
        **more: object,
    ) -> Json:
        """Render a container of the test image; `linger` is how long it takes to end."""
        return {
            "name": name,
            "image": tag_of(version),
            "args": list(arguments),
            "env": [
                {"name": key, "value": value}
                for key, value in self.environment(name, linger=linger).items()
            ]
            + [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
            **more,
        }

    def environment(self, container: str, *, linger: int = 0) -> Mapping[str, str]:
        """What a container must know to tell the witness of itself."""
        return {
            "WITNESS": self._reports.url,
            "SPACE": self.namespace,
            "CONTAINER": container,
            "LINGER": str(linger),
        }

    # -- acting --

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl on the hub in this namespace."""
        return self.hub_cluster.kubectl(
            f"--namespace={self.namespace}", *arguments, timeout_seconds=2.0 * ROLLOUT_SECONDS
        )

    def ask(self, pod: str, path: str) -> str:
        """Read something of what the container in the target serves."""
        return self.target.call_pod(self.target_namespace, pod, path, port=PORT)

    def switch(self, pod: str, check: str, *, ok: bool) -> None:
        """Let a check of the container, `/healthz` or `/ready`, fail or succeed from now on."""
        path = f"{check}?ok={json.dumps(ok)}"
        self.target.call_pod(self.target_namespace, pod, path, port=PORT, method="POST")

    # -- looking --

    def told(self, pod: str, container: str = "") -> list[Report]:
        """Return what a pod's containers told, in order."""
        return self._reports.all(space=self.namespace, pod=pod, container=container)

    def events(self, pod: str) -> list[tuple[str, str]]:
        """Return what happened in a pod, in order, as container and event."""
        return [(report.container, report.event) for report in self.told(pod)]

    def starts(self, pod: str, container: str = "main") -> int:
        """Count how often a container of a pod was started."""
        return sum(report.event == "started" for report in self.told(pod, container))

    def pods_of(self, app: str) -> list[Json]:
        """List the hub pods of a workload that nobody has deleted."""
        found = self.hub.list("Pod", self.namespace, labels=f"app={app}")
        return [pod for pod in found if not is_terminating(pod)]

    def read(self, kind: str, name: str) -> Json:
        """Read an object that has to be there."""
        found = self.hub.get(kind, self.namespace, name)
        assert found is not None, f"There is no {kind} {name}.\n{self.explain()}"
        return found

    def container(self, pod: str, name: str = "main") -> Json:
        """Return what the hub says of a container; nothing where it says nothing."""
        found = self.pod(pod)
        return statuses_of(found).get(name, {}) if found else {}

    # -- waiting --

    def wait_told(self, pod: str, event: str, container: str = "main") -> Report:
        """Wait until a container told of the event."""

        def probe() -> Report | None:
            return next((r for r in self.told(pod, container) if r.event == event), None)

        return self.wait(f"{container} of {pod} told: {event}", probe)

    def wait_serving(self, pod: str) -> None:
        """Wait until a pod's container can be asked: it serves, and its address is known."""
        self.wait_told(pod, "started")
        self.wait_container(pod, "is ready", lambda c: bool(c["ready"]))

    def wait_rolled_out(self, name: str) -> None:
        """Wait for a Deployment or StatefulSet as a user does."""
        self.kubectl("rollout", "status", name, f"--timeout={ROLLOUT_SECONDS}s")

    def wait_container(self, pod: str, what: str, is_wanted: Callable[[Json], bool]) -> Json:
        """Wait until the hub says of the container `main` what is wanted."""

        def probe() -> Json | None:
            found = self.container(pod)
            return found if found and is_wanted(found) else None

        return self.wait(f"the container of {pod} {what}", probe)

    # -- judging --

    def wait_starts_agree(self) -> None:
        """Wait until all containers were started as often as the hub says, and no other ones.

        A container that was started once too often never agrees.
        """
        self.wait(
            "starts that the witness counted are those of the hub's restart counts",
            lambda: not self.disagreements(),
        )

    def disagreements(self) -> list[str]:
        """Say where witness and hub count differently; gone pods may have run once."""
        present = {uid_of(pod): pod for pod in self.pods()}
        counted = self._counted()
        found = [
            f"{hub_pod}: {container} was started {starts} times"
            for (hub_pod, container), starts in counted.items()
            if hub_pod not in present and starts > 1
        ]
        for hub_pod, pod in present.items():
            for name, status in statuses_of(pod).items():
                told, said = counted.get((hub_pod, name), 0), starts_of(status)
                if told != said:
                    found.append(f"{pod['metadata']['name']}: {name} {told} told, {said} said")
        return found

    def _counted(self) -> dict[tuple[str, str], int]:
        """Count runs by hub pod uid and container."""
        hub_pods = self._hub_pod_uids()
        found: dict[tuple[str, str], int] = {}
        for (uid, container), starts in self._reports.starts(space=self.namespace).items():
            key = hub_pods.get(uid, uid), container
            found[key] = found.get(key, 0) + len({start.run for start in starts})
        return found

    def _hub_pod_uids(self) -> Mapping[str, str]:
        """Map each mirror's uid to its hub pod's: a container may be told either."""
        mirrors = self.world.target_record.mirror_uids(self.target_namespace)
        return {mirror: hub_pod for hub_pod, uids in mirrors.items() for mirror in uids}

    def explain(self) -> str:
        """Describe both sides, and add what containers told."""
        told = [
            f"{r.pod}/{r.container} v{r.version} run {r.run[:6]}: {r.event} {r.detail}"
            for r in self._reports.all(space=self.namespace)
        ]
        return "\n".join(
            [
                super().explain(),
                "-- what containers told:",
                *told,
                "-- where the counts of starts differ:",
                *self.disagreements(),
            ]
        )


def probe(path: str, **more: object) -> Json:
    """Render a probe that asks every second; a busy machine may take its time to answer."""
    get = {"path": path, "port": PORT}
    return {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 10, **more}


def statuses_of(pod: Json) -> dict[str, Json]:
    """Return the statuses of all containers by name."""
    status = pod.get("status", {})
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {c["name"]: c for kind in kinds for c in status.get(kind) or ()}


def waits_for_image(status: Json) -> bool:
    """Tell whether the image of a container could not be had."""
    return status["state"].get("waiting", {}).get("reason") in PULL_FAILED


def starts_of(status: Json) -> int:
    """Tell how often a container ran, by what is said of it."""
    now, before = status.get("state", {}), status.get("lastState", {})
    is_under_way = "running" in now or _is_of_a_run(now)
    if not is_under_way and not _is_of_a_run(before):
        return 0
    restarts: int = status.get("restartCount", 0)
    return 1 + restarts


def _is_of_a_run(state: Json) -> bool:
    return bool(state.get("terminated", {}).get("containerID"))

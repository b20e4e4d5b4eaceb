"""The test bed itself: clusters work, live side by side, and vanish with whoever started them."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from e2e.support.measuring import Measurements
from e2e.testbed.beds import Beds
from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import LIGHT_HUB, TARGET, TestbedFactory
from e2e.testbed.identity import Identity
from e2e.testbed.lagging import LaggingStorage
from e2e.testbed.local import LocalCluster
from e2e.testbed.places import Places
from e2e.testbed.processes import wait_until
from e2e.testbed.provider import Storage

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

BREAKABLE = replace(LIGHT_HUB, name="outages")

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

OWNER_PROGRAM = """
import json, sys, time
from e2e.testbed.binaries import Binaries
from e2e.testbed.fixtures import LIGHT_HUB
from e2e.testbed.local import LocalProvider
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress

provider = LocalProvider(Binaries(Places(), Progress()), tied=sys.argv[1] == "tied")
cluster = provider.start(LIGHT_HUB)
pids = [server.pid for server in cluster.servers.values()]
print(json.dumps({"bed": str(provider.bed.folder), "pids": pids}), flush=True)
time.sleep(600)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRun:
    """A test run in another process, with one light cluster of its own."""

    process: subprocess.Popen[str]
    bed: Path
    servers: tuple[Identity, ...]

    @property
    def is_serving(self) -> bool:
        return all(server.is_alive for server in self.servers)

    @property
    def is_gone(self) -> bool:
        return not any(server.is_alive for server in self.servers)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def other_run(kind: str) -> Iterator[OtherRun]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER_PROGRAM, kind],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Places().checkout,
    )
    with process:
        try:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            found = [Identity.of(pid) for pid in facts["pids"]]
            servers = tuple(identity for identity in found if identity is not None)
            assert len(servers) == len(facts["pids"])
            yield OtherRun(process=process, bed=Path(facts["bed"]), servers=servers)
        finally:
            process.kill()


def test_two_beds_run_at_once_and_a_killed_owner_takes_its_servers_along(
    light_hub: LocalCluster,
) -> None:
    """Servers die with a test run that is killed, and the clusters of other runs go on."""
    with other_run("tied") as other:
        assert other.is_serving
        assert light_hub.api.is_ready()
        other.kill()
        assert wait_until(lambda: other.is_gone, timeout_seconds=5.0)
        Beds(Places()).remove_leftovers()
        assert not other.bed.exists()
        assert light_hub.api.is_ready()


def test_the_next_start_removes_detached_servers_of_a_killed_start() -> None:
    """A killed `up` leaves servers behind only until the test bed is used again."""
    with other_run("detached") as other:
        Beds(Places()).remove_leftovers()
        assert other.is_serving, "the owner lives, so its bed is nobody's to remove"
        other.kill()
        assert other.is_serving, "nothing ties detached servers to their owner"
        removed = Beds(Places()).remove_leftovers()
        assert removed.servers == len(other.servers)
        assert other.is_gone
        assert not other.bed.exists()


def test_the_target_plays_pods_and_jobs(local_target: LocalCluster) -> None:
    """Pods on fake nodes become ready, and the pod of a Job ends after a second."""
    local_target.kubectl("create", "deployment", "played", "--image=none", "--replicas=5")
    local_target.kubectl("create", "job", "played", "--image=none")
    local_target.kubectl("wait", "deployment/played", "--for=condition=Available")
    local_target.kubectl("wait", "job/played", "--for=condition=Complete")
    local_target.kubectl("delete", "deployment/played", "job/played")
    local_target.kubectl("wait", "pods", "--all", "--for=delete")


def test_kwok_leaves_other_nodes_alone(local_target: LocalCluster) -> None:
    """A node without kwok's annotation keeps the status its own agent gave it, which is none."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "not-played"}}
    local_target.kubectl("create", "-f", "-", stdin=json.dumps(node))
    local_target.kubectl("create", "deployment", "later", "--image=none")
    local_target.kubectl("wait", "deployment/later", "--for=condition=Available")
    conditions = local_target.kubectl(
        "get", "node", "not-played", "-o", "jsonpath={.status.conditions[?(@.status=='True')]}"
    )
    local_target.kubectl("delete", "node/not-played", "deployment/later")
    assert conditions == ""


def test_the_hub_has_no_nodes_and_a_service_account(local_hub: LocalCluster) -> None:
    """A fresh hub waits for its virtual node and takes pods at once."""
    assert local_hub.kubectl("get", "nodes", "-l", "type!=virtual-kubelet", "-o", "name") == ""
    assert "default" in local_hub.kubectl("get", "serviceaccounts", "-o", "name")


def test_a_paused_api_server_is_silent_and_a_killed_one_is_gone(
    testbed_factory: TestbedFactory,
) -> None:
    """An outage can be made of either kind, and ends without loss."""
    cluster = testbed_factory.cluster(BREAKABLE)
    cluster.kubectl("create", "namespace", "survives")
    cluster.pause_apiserver()
    assert not cluster.api.is_ready()
    cluster.resume_apiserver()
    assert cluster.api.is_ready()
    cluster.kill_apiserver()
    with pytest.raises(TestbedError, match="refused"):
        cluster.kubectl("get", "namespaces")
    cluster.start_apiserver()
    cluster.restart_apiserver()
    assert "survives" in cluster.kubectl("get", "namespaces", "-o", "name")


class Writer(threading.Thread):
    """Create ConfigMaps 0, 1, 2... one after the other, as fast as they are taken."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self._api = cluster.api
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            body = {"metadata": {"name": f"written-{self.acknowledged}"}}
            self._api.post(CONFIG_MAPS, body)
            self.acknowledged += 1

    def wait_for(self, count: int) -> None:
        assert wait_until(lambda: self.acknowledged >= count, 60.0)

    def close(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize("storage", ["etcd", pytest.param("kine", marks=pytest.mark.long)])
def test_a_restored_cluster_is_as_it_was(
    testbed_factory: TestbedFactory, measured: Measurements, storage: Storage
) -> None:
    """A snapshot under load has every write before it and no gap; a restore forgets the others."""
    name = BREAKABLE.name if storage == "etcd" else f"outages-{storage}"
    cluster = testbed_factory.cluster(replace(BREAKABLE, name=name, storage=storage))
    writer = Writer(cluster)
    writer.start()
    with closing(writer):
        writer.wait_for(20)
        before, started = writer.acknowledged, time.monotonic()
        snapshot = cluster.snapshot()
        took, after = time.monotonic() - started, writer.acknowledged
        writer.wait_for(after + 20)
    version_then = latest_version(cluster)
    started = time.monotonic()
    cluster.restore(snapshot)
    measured.note("snapshot and restore", f"{took:.2f} s, {time.monotonic() - started:.2f} s")
    found = cluster.api.get(CONFIG_MAPS)["items"]
    numbers = sorted(int(item["metadata"]["name"].removeprefix("written-")) for item in found)
    assert numbers == list(range(len(numbers)))
    # The last may be in storage without its answer having reached the writer.
    assert before <= len(numbers) <= after + 1
    assert latest_version(cluster) < version_then
    cluster.api.post(CONFIG_MAPS, {"metadata": {"name": f"written-{len(numbers)}"}})


def latest_version(cluster: LocalCluster) -> int:
    return int(cluster.api.get(CONFIG_MAPS)["metadata"]["resourceVersion"])


def test_a_second_api_server_may_lag_behind_the_first(
    testbed_factory: TestbedFactory, measured: Measurements
) -> None:
    """A lagging API server answers at once: old news from its cache, the truth from the storage."""
    cluster = testbed_factory.cluster(BREAKABLE)
    with (
        LaggingStorage(cluster.storage_port) as relay,
        cluster.second_apiserver(storage_port=relay.port) as second,
    ):

        def cached() -> set[str]:
            items = second.api.get(f"{CONFIG_MAPS}?resourceVersion=0")["items"]
            return {item["metadata"]["name"] for item in items}

        relay.lag_seconds = 3600.0
        cluster.api.post(CONFIG_MAPS, {"metadata": {"name": "news"}})
        started = time.monotonic()
        assert second.api.has(f"{CONFIG_MAPS}/news")
        measured.note("a read past the cache", f"{time.monotonic() - started:.3f} s")
        second.api.post(CONFIG_MAPS, {"metadata": {"name": "more-news"}})
        assert cluster.api.has(f"{CONFIG_MAPS}/more-news")
        assert not cached() & {"news", "more-news"}
        relay.lag_seconds = 0.0
        assert wait_until(lambda: cached() >= {"news", "more-news"}, 30.0)
    assert cluster.api.is_ready()


@pytest.mark.parametrize(
    ("storage", "minor"),
    [
        pytest.param("kine", "1.34", marks=pytest.mark.long),
        pytest.param("etcd", "1.36", marks=pytest.mark.long),
        ("kine", "1.36"),
    ],
)
def test_every_variant_plays_pods(
    testbed_factory: TestbedFactory, storage: Storage, minor: str
) -> None:
    """Storage in SQLite and the newer Kubernetes minor behave like the default.

    Those that differ in one way only are targets in test_deployment_variants too.
    """
    name = f"{storage}-{minor.replace('.', '-')}"
    cluster = testbed_factory.cluster(replace(TARGET, name=name, storage=storage, minor=minor))
    assert cluster.version.startswith(f"v{minor}.")
    cluster.kubectl("create", "job", "played", "--image=none")
    cluster.kubectl("wait", "job/played", "--for=condition=Complete")
    cluster.stop()

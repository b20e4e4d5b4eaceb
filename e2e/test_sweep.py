"""Mirrors nobody wants go, at once or by a net under the events, and no other pod does (C51)."""

import hashlib
import http.server
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Self
from uuid import uuid4

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import (
    HUB_POD_UID_LABEL,
    VIRTUAL_NODE_LABEL,
    hub_pod_uid_of,
    is_terminating,
    uid_of,
    version_of,
)
from e2e.support.process import run_cli
from e2e.support.proxied import proxied
from e2e.support.recorder import Change
from e2e.support.spare import (
    Pair,
    lent,
    never_again,
    numbered,
    phases,
    run_never_again,
    spare_pair,
)
from e2e.support.witness import Json, Witness
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

EVENT_SECONDS = 1.0
NET_SECONDS = 7.0
"""Both sides are read anew every 5 s, and what differs is looked at again a second later."""

ORPHANS = 300
ORPHANS_PER_SECOND = 50.0
ORPHANS_AT_ONCE = 100
UNDER_WAY = 24
"""So many answers may come together that were asked for apart: as many as there are workers."""


class ListsNothing:
    """A server that answers every list of pods with none, at the version that is the hub's now."""

    def __init__(self, hub: TestCluster) -> None:
        witness = Witness(hub.name, hub.kubeconfig)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                version = witness.listing("ConfigMap", "default")["metadata"]["resourceVersion"]
                metadata = {"resourceVersion": version}
                answer = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": []}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._witness = witness
        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._witness.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A world whose requests can be counted."""

    world: World
    hub: FaultProxy
    target: FaultProxy

    def sweep(self, node: str, *arguments: str) -> str:
        """Run `federate sweep` for a virtual node, through the proxies; returns what it said."""
        target = f"{node}={self.target.kubeconfig}"
        told = run_cli("sweep", "--hub", str(self.hub.kubeconfig), "--target", target, *arguments)
        assert told.returncode == 0, told.stderr
        return told.stdout

    def writes(self) -> list[str]:
        """Return the requests so far that were no reads."""
        passed = [*self.hub.passed(), *self.target.passed()]
        return [f"{request.method} {request.path}" for request in passed if request.method != "GET"]


@pytest.fixture(scope="module")
def swept_world(worlds: Worlds, hub: TestCluster, target: TestCluster) -> Iterator[Swept]:
    with (
        ListsNothing(hub) as lists_nothing,
        FaultProxy.before(hub, upstreams=[hub.api_url, lists_nothing.url]) as hub_proxy,
        FaultProxy.before(target) as target_proxy,
        hub_proxy.send_to(0),
        proxied(
            worlds,
            node="swept",
            hub=hub,
            target=target,
            hub_proxy=hub_proxy,
            target_proxy=target_proxy,
        ) as world,
    ):
        yield Swept(world=world, hub=hub_proxy, target=target_proxy)


@pytest.fixture
def swept(swept_world: Swept, monkeypatch: pytest.MonkeyPatch) -> Swept:
    """A world that works, whatever the last test left."""
    # Names would be folded in the table of a narrow terminal.
    monkeypatch.setenv("COLUMNS", "400")
    if not swept_world.world.federate.is_running:
        swept_world.world.start_federate()
    return swept_world


@pytest.fixture
def swept_space(swept: Swept, request: pytest.FixtureRequest) -> Iterator[Space]:
    space = Space(swept.world, request.node.name.removeprefix("test_").replace("_", "-"))
    space.open()
    yield space
    if not swept.world.federate.is_running:
        swept.world.start_federate()
    space.close()


def destroy(space: Space, name: str) -> float:
    """Delete a hub pod by force; returns when that was done."""
    space.delete_pod(name, grace_seconds=0)
    return time.monotonic()


def orphan_like(mirror: Json, name: str) -> Json:
    """Render a mirror of a hub pod that never was; nothing runs it."""
    metadata = mirror["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**metadata["labels"], HUB_POD_UID_LABEL: str(uuid4())},
            "annotations": {**metadata["annotations"], "federate.dev/hub-pod-name": name},
        },
        "spec": {
            "containers": mirror["spec"]["containers"],
            "schedulingGates": [{"name": "example.com/never"}],
        },
    }


def test_a_mirror_goes_with_its_hub_pod(space: Space, measured: Measurements) -> None:
    """A hub pod that is deleted by force takes its mirror along at once."""
    space.run_pod(pod("destroyed", pod_spec(space.node)))
    destroyed_at = destroy(space, "destroyed")
    space.wait_mirror_gone("destroyed")
    measured.seconds(
        "until the mirror is gone", time.monotonic() - destroyed_at, promise=EVENT_SECONDS
    )


def test_orphans_of_an_absence_go_at_the_start(
    swept: Swept, swept_space: Space, measured: Measurements
) -> None:
    """Mirrors that became orphans while federate was down go when it starts, others stay."""
    space, names = swept_space, numbered("orphan", 3)
    run_never_again(space, "kept", "again", *names)
    kept = space.mirror("kept")
    assert kept is not None
    swept.world.federate.kill()
    for name in ("again", *names):
        destroy(space, name)
    (successor,) = [space.create(pod("again", pod_spec(space.node, restartPolicy="Never")))]
    started = time.monotonic()
    swept.world.start_federate()
    space.wait("orphans are gone", lambda: not any(map(space.mirror, names)))
    measured.note("from the start of the process", f"{time.monotonic() - started:.2f} s")
    assert uid_of(space.wait_phase("again", "Running")) == uid_of(successor)
    after = space.mirror("kept")
    assert after is not None and uid_of(after) == uid_of(kept) and not is_terminating(after)
    space.assert_one_mirror_each()


def tells_of_deletion(event: Json) -> bool:
    return event["type"] == "DELETED" or is_terminating(event["object"])


def test_an_orphan_goes_although_no_event_told_of_it(
    swept: Swept, swept_space: Space, measured: Measurements
) -> None:
    """A hub pod's end that no event tells of is found by reading the hub anew."""
    space = swept_space
    space.run_pod(pod("unseen", pod_spec(space.node)))
    # A deletion by force is two events: the end is announced, and it is there.
    with swept.hub.swallow(2, name="unseen", where=tells_of_deletion) as swallowed:
        destroyed_at = destroy(space, "unseen")
        space.wait_mirror_gone("unseen")
        seconds = time.monotonic() - destroyed_at
        swallowed.wait_done()
    measured.seconds("until the mirror is gone", seconds, promise=NET_SECONDS)


def test_a_sweep_by_hand_shows_first_and_deletes_what_it_was_asked_for(
    swept: Swept, swept_space: Space
) -> None:
    """A dry run only reads; mirrors of another virtual node go when its name is said, only then."""
    space = swept_space
    run_never_again(space, "wanted", "orphan")
    swept.world.federate.stop()
    destroy(space, "orphan")
    wanted = space.mirror("wanted")
    assert wanted is not None
    left = of_virtual_node(orphan_like(wanted, "left"), "former")
    space.target.create(left, space.target_namespace)
    before, writes = sorted(map(version_of, space.mirrors())), swept.writes()

    told = swept.sweep(space.node, "--dry-run")
    assert f"{space.namespace}/orphan" in told
    assert f"{space.namespace}/left" in told.partition("Not touched")[2]
    assert f"{space.namespace}/wanted" not in told
    assert swept.writes() == writes
    assert sorted(map(version_of, space.mirrors())) == before

    assert "orphan: deleted" in swept.sweep(space.node, "--yes")
    space.wait_mirror_gone("orphan")
    assert "left: deleted" in swept.sweep("former", "--yes")
    space.wait_mirror_gone("left")
    assert space.mirror("wanted") is not None
    deleted = [f"DELETE {path_of_mirror(space, name)}" for name in ("orphan", "left")]
    assert swept.writes() == [*writes, *deleted]


def of_virtual_node(mirror: Json, node: str) -> Json:
    """Mark a mirror as another virtual node's of the same hub."""
    metadata = mirror["metadata"]
    hub_id = metadata["labels"]["federate.dev/hub"]
    known_by = hashlib.sha256(f"{hub_id}\n{node}".encode()).hexdigest()[:16]
    marks = {**metadata["labels"], VIRTUAL_NODE_LABEL: known_by}
    told = {**metadata["annotations"], "federate.dev/node-name": node}
    return {**mirror, "metadata": {**metadata, "labels": marks, "annotations": told}}


def path_of_mirror(space: Space, name: str) -> str:
    return f"/api/v1/namespaces/{space.target_namespace}/pods/{name}"


def test_many_orphans_go_no_faster_than_the_documented_rate(
    fragile_space: Space, measured: Measurements
) -> None:
    """A hundred orphans may go at once and then fifty a second, so that an error has a chance."""
    space, names = fragile_space, numbered("orphan", ORPHANS)
    world = space.world
    space.run_pod(pod("wanted", pod_spec(space.node)))
    mirror = space.mirror("wanted")
    assert mirror is not None
    world.federate.stop()
    for name in names:
        space.target.create(orphan_like(mirror, name), space.target_namespace)
    world.start_federate()
    space.wait("orphans are gone", lambda: len(space.mirrors()) == 1, timeout_seconds=60.0)
    # The last deletions may be told a moment after they are seen.
    space.wait("all are told", lambda: len(orphans_deleted_at(space)) == ORPHANS)
    deleted_at = orphans_deleted_at(space)
    measured.note(f"for {ORPHANS} orphans", f"{deleted_at[-1] - deleted_at[0]:.2f} s")
    for later, at in enumerate(deleted_at):
        for earlier in range(later):
            allowed = ORPHANS_AT_ONCE + ORPHANS_PER_SECOND * (at - deleted_at[earlier])
            assert later - earlier < allowed + UNDER_WAY, deleted_at
    assert space.mirror("wanted") is not None


def orphans_deleted_at(space: Space) -> list[float]:
    """Read when federate deleted orphans, by its own clock: a witness would see them in heaps."""
    lines = space.world.federate.log.read_text().splitlines()
    deleted = (line for line in lines if 'event="mirror deleted"' in line and "orphan: " in line)
    found = (re.match(r"timestamp=(\S+)", line) for line in deleted if space.namespace in line)
    return sorted(datetime.fromisoformat(at[1]).timestamp() for at in found if at)


def test_a_hub_that_lists_nothing_is_not_believed(swept: Swept, swept_space: Space) -> None:
    """A list without pods, of a hub that has some, deletes no mirror: each is asked for first."""
    space, names = swept_space, numbered("kept", 5)
    hub_pods = run_never_again(space, *names)
    mirrors = sorted(map(uid_of, space.mirrors()))
    swept.world.federate.kill()

    def untouched() -> bool:
        found = [mirror for mirror in space.mirrors() if not is_terminating(mirror)]
        return sorted(map(uid_of, found)) == mirrors

    with swept.hub.send_to(1, r"GET /api/v1/pods\?(?!.*watch=).*") as emptied:
        told = swept.sweep(space.node, "--yes")
        assert told.count("kept: its hub pod exists") == len(names)
        swept.world.start_federate()
        # The sweep, the first list, and the list that is compared with what is known.
        space.wait("the hub is read anew", lambda: emptied.inflicted >= 3 and untouched())
        space.hold("no mirror is touched", untouched, seconds=2.0)
    assert [uid_of(space.wait_phase(name, "Running")) for name in names] == [
        uid_of(hub_pod) for hub_pod in hub_pods
    ]
    assert untouched()


@pytest.fixture
def pair(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[Pair]:
    with lent(spare_pair(testbed_factory), worlds) as found:
        yield found


@pytest.mark.long
def test_another_hub_behind_the_same_address_costs_no_mirror(
    pair: Pair, worlds: Worlds, measured: Measurements
) -> None:
    """An empty hub that took the place of ours is not believed: not one mirror is deleted."""
    names = numbered("kept", 5)
    with worlds.world(node="loyal", hub=pair.hub, target=pair.target) as world:
        space = Space(world, "other-hub")
        space.open()
        hub_pods = run_never_again(space, *names)
        mirrors = {hub_pod_uid_of(mirror): uid_of(mirror) for mirror in space.mirrors()}
        snapshot = pair.hub.snapshot()
        pair.hub.rebuild()
        started = time.monotonic()
        wait_for(
            "federate tells that the hub is another cluster",
            lambda: "is another cluster now" in world.federate.log_tail(500),
            explain=world.federate.log_tail,
        )
        measured.note("until it is told", f"{time.monotonic() - started:.2f} s")

        def untouched() -> bool:
            found = [mirror for mirror in space.mirrors() if not is_terminating(mirror)]
            return {hub_pod_uid_of(mirror): uid_of(mirror) for mirror in found} == mirrors

        space.hold("no mirror is touched", untouched, seconds=75.0)
        assert world.hub.get("Node", "", "loyal") is None
        served_at = pair.hub.restore(snapshot)
        space.create(never_again("new", space.node))
        # federate looks again at its hub ever more rarely, up to once a minute.
        space.wait(
            "a new pod runs", lambda: phases(space, "new") == ["Running"], timeout_seconds=180.0
        )
        measured.note("from our hub's return", f"{time.monotonic() - served_at:.2f} s")
        assert [uid_of(p) for p in map(space.pod, names) if p] == list(map(uid_of, hub_pods))
        record = world.target_record.events(namespace=space.target_namespace)
        assert not [event.name for event in record if event.change is Change.DELETING]
        space.close()

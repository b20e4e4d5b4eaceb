"""A leader is frozen between its last check and its request, which arrives when all is over (C70).

A proxy stands for the network that keeps requests of the first process; meanwhile a second process
takes over and finishes what the first began. Then the requests are delivered, and the first process
wakes up.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from e2e.support.manifests import container, pod, pod_spec, run_once
from e2e.support.measuring import Measurements
from e2e.support.pods import annotations_of, uid_of, version_of, waiting_reason
from e2e.support.process import FederateProcess, RunOptions
from e2e.support.proxied import proxied
from e2e.support.replicas import TAKEOVER_SECONDS, leader_of, wait_leading
from e2e.support.witness import Json
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.faults import Hold
from e2e.testbed.local import LocalCluster
from federate.model.marks import RECORD_ANNOTATION

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE, RULED = "late", "late-ruled"

SLOW_DELETE_SECONDS = 1.0
"""How long the second process's deletes take: time for a scheduler to start what may start."""
REMOVED_SECONDS = 3.0 + SLOW_DELETE_SECONDS
"""From a late create to its mirror's end."""
QUIET_SECONDS = 2.0

WRITES = "(POST|PUT|PATCH|DELETE) .*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The ways of both processes to the clusters."""

    hub: FaultProxy
    """The first process's way to the hub."""
    target: FaultProxy
    """The first process's way to the target."""
    target_of_second: FaultProxy


@pytest.fixture
def way(local_hub: LocalCluster, local_target: LocalCluster) -> Iterator[Way]:
    with (
        FaultProxy.before(local_hub) as to_hub,
        FaultProxy.before(local_target) as to_target,
        FaultProxy.before(local_target) as of_second,
    ):
        yield Way(hub=to_hub, target=to_target, target_of_second=of_second)


@pytest.fixture
def first(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, way: Way
) -> Iterator[World]:
    """The process that leads at the start."""
    with proxied(
        worlds,
        node=NODE,
        hub=local_hub,
        target=local_target,
        hub_proxy=way.hub,
        target_proxy=way.target,
        arguments=["--identity", "first"],
    ) as found:
        yield found


@pytest.fixture
def second(first: World, local_hub: LocalCluster, way: Way, tmp_path: Path) -> Iterator[World]:
    """The process that takes over, not started yet."""
    options = RunOptions(
        node=NODE,
        hub=local_hub.kubeconfig,
        target=way.target_of_second.kubeconfig,
        arguments=["--identity", "second"],
    )
    standby = FederateProcess(options, folder=tmp_path / "standby")
    yield replace(first, federate=standby)
    standby.close()


def hold_all(space: Space, way: Way) -> dict[str, Hold]:
    """Make the first process send one request of each kind, none of which arrives."""
    held = {
        "gone": way.target.hold("POST .*/pods", body='"name": ?"gone"'),
        "ended": way.target.hold("POST .*/pods", body='"name": ?"ended"'),
        "started": way.target.hold("PATCH .*/pods/started"),
        "told": way.hub.hold("PATCH .*/pods/told/status", body='"phase": ?"Running"'),
        "removed": way.target.hold("DELETE .*/pods/removed"),
        "let-go": way.hub.hold("DELETE .*/pods/let-go"),
    }
    for name in ("removed", "let-go"):
        space.run_pod(pod(name, pod_spec(NODE)))
    for name in ("gone", "ended", "started", "told"):
        space.create(run_once(name, NODE))
    for name in ("removed", "let-go"):
        space.delete_pod(name)
    for hold in held.values():
        hold.wait_caught()
    return held


def live_on(space: Space) -> None:
    """See the second process finish what the first began, and let the pods' names be used again."""
    for name in ("gone", "ended", "started", "told"):
        space.wait_phase(name, "Succeeded")
    for name in ("gone", "started"):
        space.delete_pod(name)
    for name in ("gone", "started", "removed", "let-go"):
        space.wait_pod_gone(name)
        space.wait_mirror_gone(name)
    # A target's own pod collector removes what has ended.
    assert space.target.delete("Pod", space.target_namespace, "ended", grace_seconds=0)
    space.wait_mirror_gone("ended")
    for name in ("started", "removed", "let-go"):
        space.run_pod(pod(name, pod_spec(NODE)))


def versions(space: Space) -> dict[str, str]:
    """Return the version of every hub pod, and of every mirror that ran."""
    ran = runs(space)
    found = space.pods() + [mirror for mirror in space.mirrors() if uid_of(mirror) in ran]
    return {uid_of(each): version_of(each) for each in found}


def runs(space: Space) -> set[str]:
    """Return the uids of all mirrors that were ever put on a node: they ran."""
    events = space.world.target_record.events(namespace=space.target_namespace)
    return {event.uid for event in events if event.node and event.hub_pod_uid}


def test_requests_of_a_frozen_leader_do_no_harm_when_they_arrive_late(
    first: World, second: World, way: Way, measured: Measurements
) -> None:
    """A create, patch or delete that arrives after another leader's work runs and harms nothing."""
    space = Space(second, "late")
    space.open()
    space.run_pod(pod("bystander", pod_spec(NODE)))
    held = hold_all(space, way)
    first.federate.freeze()
    second.federate.start()
    measured.seconds("takeover", wait_leading(second, "second"), promise=TAKEOVER_SECONDS)
    live_on(space)
    before = versions(space)
    way.target_of_second.delay(SLOW_DELETE_SECONDS, "DELETE .*/pods/.*")

    started = time.monotonic()
    answers = {name: hold.release() for name, hold in held.items()}
    measured.note("answers to the late requests", answers)
    first.federate.thaw()
    resumed_at = time.monotonic()
    for name in ("gone", "ended"):
        space.wait_mirror_gone(name)
    seconds = time.monotonic() - started
    measured.seconds("until the late mirrors were gone", seconds, promise=REMOVED_SECONDS)
    space.hold("nothing else changes", lambda: versions(space) == before, seconds=QUIET_SECONDS)

    assert answers["gone"] == answers["ended"] == 201, "the names were free"
    assert {answers[name] for name in ("told", "removed", "let-go")} == {409}
    assert answers["started"] in (409, 422)
    assert_ran_once(space)
    assert leader_of(second) == "second"
    assert writes_of_first(way, since=resumed_at) == [], first.federate.log_tail()
    assert 'federate_leader{node="late"} 0.0' in first.federate.fetch("/metrics")
    space.close()


def assert_ran_once(space: Space) -> None:
    """Make sure that no hub pod ran twice, also those that had a second mirror for a moment."""
    ran = runs(space)
    mirrors = space.world.target_record.mirror_uids(space.target_namespace)
    assert mirrors.keys() == space.hub_pod_uids(), space.explain()
    assert [len(uids & ran) for uids in mirrors.values()] == [1] * len(mirrors), space.explain()
    assert sorted(len(uids) for uids in mirrors.values())[-2:] == [2, 2], "two creates were late"


def writes_of_first(way: Way, *, since: float) -> list[str]:
    """Return what the first process wrote; refused writes did no harm, and Events tell a story."""
    return [
        f"{each.method} {each.path}"
        for each in way.hub.passed(WRITES) + way.target.passed(WRITES)
        if each.at > since and each.status < 400 and "/events" not in each.path
    ]


# -- rules that became stricter --------------------------------------------------------------------


def ruled(folder: Path, *, hub: Path, target: Path, privileged: str) -> Path:
    """Write a configuration by which privileged pods are allowed, or refused."""
    node = {
        "nodeName": RULED,
        "target": {"kubeconfig": str(target)},
        "policy": {"privileged": privileged},
    }
    document = {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub)},
        "virtualNodes": [node],
    }
    file = folder / f"{privileged}.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def process(world: World, file: Path, folder: Path) -> World:
    """Return the world with another process for its virtual node, not started yet."""
    options = replace(world.federate.options, config=file)
    return replace(world, federate=FederateProcess(options, folder=folder / file.stem))


@pytest.fixture
def lax_and_strict(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, way: Way, tmp_path: Path
) -> Iterator[tuple[World, World]]:
    """A process that leads by lax rules, and one by strict rules, not started yet."""
    hub, target = way.hub.kubeconfig, way.target.kubeconfig
    lax = ruled(tmp_path, hub=hub, target=target, privileged="allow")
    plainly = {"hub": local_hub.kubeconfig, "target": local_target.kubeconfig}
    strict = ruled(tmp_path, **plainly, privileged="refuse")
    with worlds.world(node=RULED, hub=local_hub, target=local_target, started=False) as world:
        first, second = (process(world, file, tmp_path) for file in (lax, strict))
        try:
            first.start_federate()
            yield first, second
        finally:
            first.federate.close()
            second.federate.close()


def powerful(name: str) -> Json:
    """A privileged pod that runs once."""
    spec = run_once(name, RULED)["spec"]
    spec["containers"] = [container(securityContext={"privileged": True})]
    return pod(name, spec)


def test_c26_what_a_laxer_leader_made_or_sent_never_runs(
    lax_and_strict: tuple[World, World], way: Way
) -> None:
    """It dies over its create, which arrives later, and over the patch that would let one go."""
    first, second = lax_and_strict
    space = Space(second, "ruled")
    space.open()
    space.run_pod(pod("bystander", pod_spec(RULED)))
    sent = way.target.hold("POST .*/pods", body='"name": ?"sent"')
    made = way.target.hold("PATCH .*/pods/made")
    for name in ("sent", "made"):
        space.create(powerful(name))
    for hold in (sent, made):
        hold.wait_caught()
    on_record = annotations_of(space.pod("made") or {})[RECORD_ANNOTATION]
    assert uid_of(space.read_mirror("made")) in on_record
    first.federate.kill()
    second.start_federate()
    space.wait("both are refused", lambda: both_wait(space))
    space.wait_mirror_gone("made")

    assert sent.release() == 201, "the name was free, and the namespace takes such pods"
    assert made.release() in (404, 409, 422)
    space.wait_mirror_gone("sent")
    space.hold(
        "they wait, and nothing is made",
        lambda: both_wait(space) and len(space.mirrors()) == 1,
        seconds=QUIET_SECONDS,
    )
    uids = {uid_of(found) for found in space.pods() if found["metadata"]["name"] != "bystander"}
    mirrors = space.world.target_record.mirror_uids(space.target_namespace)
    assert [len(mirrors[uid]) for uid in uids] == [1, 1], space.explain()
    assert not set().union(*(mirrors[uid] for uid in uids)) & runs(space), space.explain()
    space.close()


def both_wait(space: Space) -> bool:
    found = [space.pod(name) for name in ("sent", "made")]
    return [waiting_reason(each) for each in found if each] == ["PolicyRefused"] * 2

"""Host ports, whatever users, targets and networks do: nobody is rejected but for a living holder.

Pods that all want one port come and go, bound past the scheduler or by one that looks first, while
requests are lost, federate dies, and users write records themselves. Judged by what stands in both
clusters at the moment of each write.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federate.errors import Forbidden, ServerFault
from federate.model.hostports import host_ports_of
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, origin_of, record_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_terminal, phase_of
from federate.model.resources import PODS
from federate.policy.rules import Outcome, PolicyRules
from tests.support.builders import pod
from tests.support.clock import VirtualLoop
from tests.support.fakeclient import (
    Call,
    CrashAfter,
    CrashBefore,
    Fault,
    LostReply,
    LostRequest,
    Refuse,
)
from tests.support.fakestore import Change, Eyes
from tests.support.quiet import quiet
from tests.support.scene import SCOPE
from tests.support.worlds import Planned, World

EXAMPLES = int(os.environ.get("FEDERATE_LAW_EXAMPLES", "60"))
NAMES = ("a", "b", "c")
FAULTS: dict[str, Planned] = {
    "lost request": LostRequest(),
    "lost reply": LostReply(),
    "crash before": CrashBefore(),
    "crash after": CrashAfter(),
    "fault": Refuse(ServerFault("no", status=500)),
}
ACTS = (
    *("by hand", "placed", "refused", "intend", "forge"),
    *("delete", "force", "running", "ends", "finish", "kill", "quota", "silence", *FAULTS),
)
HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(ACTS), st.sampled_from(NAMES), st.sampled_from((0.0, 0.02, 0.5, 6.0))
    ),
    min_size=3,
    max_size=14,
)
AT_REST_SECONDS = 700.0
"""Longer than the longest back-off of an owner's pods, twice."""


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    with quiet():
        yield


def wanting(name: str, *, is_refused: bool = False) -> JsonDict:
    ports = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    container: JsonDict = {"name": "main", "image": "app", "ports": ports}
    if is_refused:
        container["securityContext"] = {"privileged": True}
    built = pod(name).with_restart_policy("Never").with_spec(containers=[container])
    body = built.owned_by("StatefulSet", "ss").build()
    del body["metadata"]["uid"]
    return body


def is_refused(hub_pod: JsonObject) -> bool:
    return "securityContext" in spec_of(hub_pod)["containers"][0]


def _lives(found: JsonObject) -> bool:
    return not is_terminal(found) and not is_terminating(found)


def _pod_uid(mirror: JsonObject) -> str:
    origin = origin_of(mirror)
    return origin.pod_uid if origin is not None else ""


def no_creates(call: Call) -> Fault | None:
    if call.client == "target" and call.verb == "create" and call.resource == PODS:
        return Refuse(Forbidden("exceeded quota", status=403, cluster="target"))
    return None


class Ports:
    """A world in which everybody wants one port, and a witness of who was rejected."""

    def __init__(self) -> None:
        self.world = World(policy=PolicyRules(outcomes={"hostPorts": Outcome.ALLOW}))
        self.wrong: list[str] = []
        self.world.hub.store.watches.append(Eyes(self._see))

    def _see(self, change: Change) -> None:
        old, new = change.old, change.new
        if change.resource != PODS or old is None or new is None or is_terminal(old):
            return
        if phase_of(new) != "Failed" or new["status"].get("reason") != "NodePorts":
            return
        if not any(map(self._holds, self._others(new))):
            self.wrong.append(f"{key_of(new)} was rejected, and nobody holds the port")
        if record_of(new) is not None:
            self.wrong.append(f"{key_of(new)} was rejected after it was admitted")

    def _others(self, mine: JsonObject) -> Iterator[JsonObject]:
        for resource, found in self.world.hub.store.all():
            if resource == PODS and key_of(found) != key_of(mine):
                yield found

    def _holds(self, other: JsonObject) -> bool:
        """Tell whether one has what takes the port: its record proves nothing."""
        return _lives(other) and any(
            _lives(mirror) and host_ports_of(spec_of(mirror)) and _pod_uid(mirror) == uid_of(other)
            for resource, mirror in self.world.target.store.all()
            if resource == PODS
        )

    def act(self, what: str, name: str) -> None:
        """Let one thing happen."""
        world, key = self.world, ObjectKey("default", name)
        found = world.hub_pod(key)
        match what:
            case "by hand" | "placed" | "refused" if found is None:
                self._create(what, name)
            case "intend" | "forge" if found is not None and is_refused(found):
                self._write_record(found, is_intent=what == "intend")
            case "delete" | "force" if found is not None:
                with world.others():
                    grace = 30 if what == "delete" else 0
                    world.hub.delete_by_user(PODS, key, grace_seconds=grace)
            case "running" | "ends":
                world.play(key, "Running" if what == "running" else "Succeeded")
            case "finish":
                world.kubelets_finish()
            case "kill":
                world.kill()
            case "quota":
                world.fault_of = None if world.fault_of else no_creates
            case "silence":
                world.target.swallows = 2
            case _ if what in FAULTS:
                world.plan_fault("target" if name == "c" else "hub", FAULTS[what])

    def _create(self, what: str, name: str) -> None:
        body = wanting(name, is_refused=what == "refused")
        body["spec"]["nodeName"] = SCOPE.node_name
        if what == "placed":
            if any(not is_terminal(other) for other in self._others(body)):
                return  # a scheduler that looks first
            body["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        with self.world.others():
            self.world.hub.add(PODS, body)

    def _write_record(self, mine: JsonObject, *, is_intent: bool) -> None:
        """The user of a pod that is refused claims a mirror: some place, or another pod's."""
        mirrors = [found for kind, found in self.world.target.store.all() if kind == PODS]
        theirs = None if is_intent or not mirrors else mirrors[0]
        place = ObjectKey("some", "where") if theirs is None else key_of(theirs)
        record = MirrorRecord(
            pod_uid=uid_of(mine), mirror=place, mirror_uid="" if theirs is None else uid_of(theirs)
        )

        def write(found: JsonDict) -> None:
            found["metadata"].setdefault("annotations", {})[RECORD_ANNOTATION] = record.format()

        with self.world.others():
            self.world.hub.edit(PODS, key_of(mine), write)

    def unrest(self) -> list[str]:
        """Say what did not come to rest: who lives has a mirror by now."""
        found = []
        for resource, hub_pod in self.world.hub.store.all():
            if resource != PODS or not _lives(hub_pod) or is_refused(hub_pod):
                continue
            if self.world.mirror(key_of(hub_pod)) is None:
                found.append(f"{key_of(hub_pod)} still waits: {hub_pod['status']}")
        return found


async def live(history: list[tuple[str, str, float]]) -> None:
    ports = Ports()
    async with ports.world.running():
        for what, name, pause in history:
            ports.act(what, name)
            await asyncio.sleep(pause)
        ports.world.heal()
        for _ in range(10):
            ports.world.kubelets_finish()
            await asyncio.sleep(AT_REST_SECONDS / 10)
        assert not ports.wrong, ports.wrong
        assert not ports.world.broken, ports.world.broken
        assert not ports.unrest(), ports.unrest()


def run(living: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(living)


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
@given(HISTORIES)
def test_c27_nobody_is_rejected_but_for_a_living_holder(
    history: list[tuple[str, str, float]],
) -> None:
    """And at rest nobody waits: who lives is mirrored, who clashed has failed."""
    run(live(history))


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("number", range(6))
def test_a_fault_at_each_of_the_first_calls(kind: str, number: int) -> None:
    """Two come at once, and one of the next requests to the hub meets the fault."""

    async def clash() -> None:
        ports = Ports()
        async with ports.world.running():
            ports.act("by hand", "a")
            await asyncio.sleep(1.0)
            ports.world.plan_fault("hub", FAULTS[kind], after=number)
            ports.act("by hand", "b")
            ports.act("by hand", "c")
            await asyncio.sleep(60.0)
            phases = [phase_of(ports.world.hub_pod(ObjectKey("default", n)) or {}) for n in NAMES]
            assert phases == ["Pending", "Failed", "Failed"]
            assert not ports.wrong, ports.wrong
            assert not ports.world.broken, ports.world.broken

    run(clash())

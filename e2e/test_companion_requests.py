"""What companions cost, whose they are, and that a crash at any request leaves none behind.

Both API servers stand behind proxies: what federate asks for is read there, and held back there.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal
from uuid import uuid4

import pytest

from e2e.support.companions import (
    KINDS,
    companion,
    companions,
    listed,
    value_of,
    wait_no_companion,
    wait_value,
)
from e2e.support.manifests import container, deployment, pod, pod_spec
from e2e.support.matrix import (
    configmap,
    encoded,
    from_configmap,
    from_secret,
    keyed,
    mounted,
    secret,
)
from e2e.support.measuring import Measurements
from e2e.support.pods import hub_pod_uid_of, labels_of, name_of, uid_of
from e2e.support.proxied import proxied
from e2e.support.recorder import Change
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE, SINGLE_NODE = "ferry", "raft"

LINGER_SECONDS = 60.0
"""How long a companion stays that nobody refers to."""
SWEPT_SECONDS = 200.0
"""It lingers, and the pass that looks for such comes each minute."""
MANY_SECONDS = 600.0
CHANGE_SECONDS = 2.0

CANARY = "canary-of-the-hub"
"""The content of a Secret."""

GENERATED = re.compile(r"[a-z0-9-]+-[a-z2-7]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """federate's ways to both API servers."""

    hub: FaultProxy
    target: FaultProxy


@pytest.fixture(scope="module")
def way(local_hub: LocalCluster, local_target: LocalCluster) -> Iterator[Way]:
    with FaultProxy.before(local_hub) as hub, FaultProxy.before(local_target) as target:
        yield Way(hub=hub, target=target)


@pytest.fixture(scope="module")
def ferry(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, way: Way
) -> Iterator[World]:
    with proxied(
        worlds,
        node=NODE,
        hub=local_hub,
        target=local_target,
        hub_proxy=way.hub,
        target_proxy=way.target,
    ) as found:
        yield found


@pytest.fixture
def space(ferry: World, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A hub namespace of the test's own."""
    found = Space(ferry, f"ferry-{uuid4().hex[:6]}")
    found.open()
    yield found
    if not ferry.federate.is_running:
        ferry.start_federate()
    found.close()


def needing(
    *, node: str = NODE, maps: tuple[str, ...] = (), secrets: tuple[str, ...] = (), **more: object
) -> Json:
    """Render the spec of a pod that has the objects as volumes."""
    volumes, mounts = mounted(
        {f"map-{n}": from_configmap(name) for n, name in enumerate(maps)}
        | {f"secret-{n}": from_secret(name) for n, name in enumerate(secrets)}
    )
    return pod_spec(node, volumes=volumes, containers=[container(volumeMounts=mounts, **more)])


# -- what they cost --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.long)])
def test_many_pods_share_three_objects(
    space: Space, way: Way, measured: Measurements, count: int
) -> None:
    """However many pods name the same objects, the target has each once, made by one request."""
    for body in (
        configmap("settings", {"a": "1"}),
        configmap("more", {"b": "2"}),
        secret("login", {"word": CANARY}),
    ):
        space.create(body)
    before = writes(way, space)
    began = time.monotonic()
    spec = needing(maps=("settings", "more"), secrets=("login",))
    space.create(deployment("many", spec, replicas=count))
    wait_ready(space, count)
    measured.note(f"{count} pods up", f"{time.monotonic() - began:.1f} s")
    asked = writes(way, space)[len(before) :]
    measured.note("requests for companions", asked)
    assert [len(companions(space, kind)) for kind in KINDS] == [2, 1]
    # Two objects, the anchor, one Secret and its entry.
    assert sorted(asked) == [*["POST configmaps"] * 4, "POST secrets"]
    reads = way.hub.passed(f"GET .*/namespaces/{space.namespace}/(configmaps|secrets)/.*")
    assert len(reads) <= 3 * 2, reads
    for cluster, namespace in ((way.hub, space.namespace), (way.target, space.target_namespace)):
        assert not cluster.passed(f"GET (/api/v1|.*/namespaces/{namespace})/secrets")
    for told in (space.world.federate.log.read_text(), space.world.federate.fetch("/metrics")):
        assert CANARY not in told and encoded(CANARY) not in told
    # To delete a thousand with one request may take longer than one waits for it.
    space.scale("many", 0)
    space.wait("all are gone", lambda: not living(space), timeout_seconds=MANY_SECONDS)


def living(space: Space) -> int:
    """Count the hub pods; the recorder tells, which costs the hub nothing."""
    latest = space.world.hub_record.latest(space.namespace)
    return sum(event.change is not Change.DELETED for event in latest)


def writes(way: Way, space: Space) -> list[str]:
    """Return what federate wrote of ConfigMaps and Secrets where the mirrors are."""
    pattern = f"(POST|PUT|PATCH|DELETE) .*/namespaces/{space.target_namespace}/"
    return [
        f"{each.method} {each.path.split(f'{space.target_namespace}/')[1].split('/')[0]}"
        for each in way.target.passed(f"{pattern}(configmaps|secrets).*")
    ]


def wait_ready(space: Space, count: int) -> None:
    """Wait until so many pods are ready. The recorder tells, which costs the hub nothing."""

    def all_ready() -> bool:
        record = space.world.hub_record.histories(space.namespace)
        latest = [history[-1] for history in record.values()]
        return sum(e.is_ready and e.change is not Change.DELETED for e in latest) == count

    space.wait(f"{count} pods are ready", all_ready, timeout_seconds=MANY_SECONDS)


@pytest.mark.long
def test_what_nobody_names_any_more_goes(space: Space, measured: Measurements) -> None:
    """While one pod is left all stays; a minute after the last one has gone nothing is there."""
    space.create(configmap("settings", {"a": "1"}))
    space.create(secret("login", {"word": "one"}))
    for name in ("first", "second"):
        space.run_pod(pod(name, needing(maps=("settings",), secrets=("login",))))
    space.delete_pod("first")
    space.wait_pod_gone("first")
    space.hold(
        "the other pod's objects stay",
        lambda: all(len(companions(space, kind)) == 1 for kind in KINDS),
        seconds=LINGER_SECONDS + 15.0,
    )
    began = time.monotonic()
    space.delete_pod("second")
    for kind in KINDS:
        wait_no_companion(space, kind, "", timeout_seconds=SWEPT_SECONDS)
    space.wait("no entry is left", lambda: not listed(space))
    measured.note("gone after", f"{time.monotonic() - began:.0f} s")


# -- whose they are --------------------------------------------------------------------------------


def test_pods_of_one_target_namespace_do_not_read_each_others_objects(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster
) -> None:
    """Where all hub namespaces share one of the target, names lead to the hub namespace's own."""
    namespace = f"e2e-single-{uuid4().hex[:4]}"
    with ExitStack() as stack:
        to_target = stack.enter_context(FaultProxy.before(local_target))
        world = stack.enter_context(
            proxied(
                worlds,
                node=SINGLE_NODE,
                hub=local_hub,
                target=local_target,
                target_proxy=to_target,
                arguments=("--namespaces", f"single={namespace}"),
                started=False,
            )
        )
        make_namespace(world, namespace)
        stack.callback(world.target.delete, "Namespace", "", namespace)
        world.start_federate()
        victim, thief = (shared_space(world, name, namespace) for name in ("victim", "thief"))
        stack.callback(thief.close)
        stack.callback(victim.close)
        # Each waits until no mirror is left, and both see those of both.
        for each in (victim, thief):
            stack.callback(world.hub.delete_all, "Pod", each.namespace)
        steal(victim, thief)
        touched = to_target.passed(f".* .*/namespaces/{namespace}/secrets/treasure")
        # It is asked whether it is shared: test_theft shows that no more than metadata is seen.
        assert {each.method for each in touched} <= {"GET"}, touched


def make_namespace(world: World, name: str) -> None:
    world.target.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_for(
        f"{name} has its service account",
        lambda: world.target.get("ServiceAccount", name, "default"),
    )


def shared_space(world: World, name: str, target_namespace: str) -> Space:
    found = Space(world, name)
    found.target_namespace = target_namespace
    found.open()
    return found


def steal(victim: Space, thief: Space) -> None:
    """Name the target's and another namespace's Secrets in all ways; the mirror names none."""
    target, namespace = thief.target, thief.target_namespace
    target.create(secret("treasure", {"word": "canary"}), namespace)
    forged = secret("login", {"word": "one"})
    forged["metadata"] |= {
        "labels": {"federate.dev/companion": "secret", "app": "x"},
        "annotations": {"helm.sh/hook": "x"},
        "finalizers": ["example.com/held-by-test"],
    }
    victim.create(forged)
    victim.run_pod(pod("owner", needing(node=SINGLE_NODE, secrets=("login",))))
    known = companion(victim, "Secret", "login")
    assert value_of(known, "word") == "one"
    assert not {"app", "helm.sh/hook"} & {*labels_of(known), *known["metadata"]["annotations"]}
    assert "finalizers" not in known["metadata"]
    victim.hub.patch("Secret", victim.namespace, "login", {"metadata": {"finalizers": None}})

    wanted = ("login", "treasure", name_of(known))
    env = [keyed(f"WORD{n}", "Secret", name, "word") for n, name in enumerate(wanted)]
    spec = needing(node=SINGLE_NODE, secrets=wanted, env=env)
    spec["imagePullSecrets"] = [{"name": name} for name in (*wanted, "../configmaps/x", "A_B")]
    uid = uid_of(thief.create(pod("thief", spec)))
    mirror = thief.wait(
        "the thief has a mirror",
        lambda: next((m for m in thief.mirrors() if hub_pod_uid_of(m) == uid), None),
    )
    named = set(re.findall(r'"(?:secretName|name)": "([^"]*)"', json.dumps(secrets_of(mirror))))
    assert len(named) == len(wanted) + 2
    assert all(map(GENERATED.fullmatch, named)), named
    assert [n for n in named if target.get("Secret", namespace, n)] == []

    # What the thief has under the name in its own namespace is its own.
    thief.create(secret("login", {"word": "two"}))
    wait_value(thief, "Secret", "login", "word", "two")
    assert uid_of(companion(victim, "Secret", "login")) == uid_of(known)
    assert value_of(companion(victim, "Secret", "login"), "word") == "one"
    found = target.get("Secret", namespace, "treasure")
    assert found is not None and not labels_of(found)


def secrets_of(mirror: Json) -> list[Json]:
    """Return the parts of a mirror's spec that name Secrets."""
    spec = mirror["spec"]
    env = [variable["valueFrom"] for variable in spec["containers"][0].get("env", ())]
    volumes = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
    return [
        *spec["imagePullSecrets"],
        *(each["secretKeyRef"] | {"key": ""} for each in env),
        *volumes,
    ]


# -- crashes ---------------------------------------------------------------------------------------

Arrival = Literal["never", "at once", "afterwards"]
"""When the request arrives that a killed federate was about to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A request at which federate is killed."""

    what: str
    line: str
    """Ends with the path below the namespace; `NAME` stands for the objects' name on the hub,
    `SECRET` and `MAP` for what the target's are called."""
    body: str = ""
    is_hubs: bool = False


IS = '"federate.dev/companion": ?"'

COMING = (
    Moment(what="reads the Secret", is_hubs=True, line="GET {}/secrets/NAME"),
    Moment(what="puts it on record", line="POST {}/configmaps", body=f'{IS}entry"'),
    Moment(what="makes the Secret", line="POST {}/secrets"),
    Moment(what="makes the ConfigMap", line="POST {}/configmaps", body=f'{IS}configmap"'),
)
CHANGING = (
    Moment(what="changes the Secret", line="PATCH {}/secrets/SECRET"),
    Moment(what="changes the ConfigMap", line="PATCH {}/configmaps/MAP"),
)
GOING = (
    Moment(what="deletes the Secret", line="DELETE {}/secrets/SECRET"),
    Moment(what="strikes it off", line="DELETE {}/configmaps/SECRET"),
    Moment(what="deletes the ConfigMap", line="DELETE {}/configmaps/MAP"),
)


@pytest.mark.parametrize(
    "arrival",
    [
        "at once",
        pytest.param("never", marks=pytest.mark.long),
        pytest.param("afterwards", marks=pytest.mark.long),
    ],
)
def test_a_crash_at_any_request_leaves_nothing_undone(
    space: Space, way: Way, measured: Measurements, arrival: Arrival
) -> None:
    """Killed at each request for a companion, federate finishes what it began, and forgets none."""
    began = time.monotonic()
    for number, moment in enumerate(COMING):
        name = f"coming-{number}"
        with crash(space, way, moment, name, arrival) as settled:
            make(space, name, "one")
            space.create(pod(name, needing(maps=(name,), secrets=(name,))))
        settled(partial(settle_running, space, name, "one"))
    for number, moment in enumerate(CHANGING):
        name = f"coming-{number}"
        with crash(space, way, moment, name, arrival) as settled:
            change(space, name, "two")
        settled(partial(settle, space, name, "two"))
    for number, moment in enumerate(GOING):
        name = f"coming-{number}"
        with crash(space, way, moment, name, arrival) as settled:
            unmake(space, name)
        settled(partial(settle_gone, space, name))
    left = {name_of(each) for each in companions(space, "Secret")}
    assert len(left) == len(COMING) - len(GOING)
    space.wait("the entries tell what is there", lambda: listed(space) == left)
    measured.note("nine crashes", f"{time.monotonic() - began:.0f} s")
    space.assert_one_mirror_each()


def make(space: Space, name: str, word: str) -> None:
    space.create(configmap(name, {"word": word}))
    space.create(secret(name, {"word": word}))


def change(space: Space, name: str, word: str) -> None:
    space.hub.patch("ConfigMap", space.namespace, name, {"data": {"word": word}})
    space.hub.patch("Secret", space.namespace, name, {"stringData": {"word": word}})


def unmake(space: Space, name: str) -> None:
    for kind in KINDS:
        assert space.hub.delete(kind, space.namespace, name)


def settle(space: Space, name: str, word: str) -> None:
    """Wait until the target has both as they are on the hub."""
    for kind in KINDS:
        wait_value(space, kind, name, "word", word)


def settle_running(space: Space, name: str, word: str) -> None:
    """Wait until the pod runs, too."""
    space.wait_running(name)
    settle(space, name, word)


def settle_gone(space: Space, name: str) -> None:
    """Wait until the target has neither."""
    for kind in KINDS:
        wait_no_companion(space, kind, name)


@contextmanager
def crash(
    space: Space, way: Way, moment: Moment, name: str, arrival: Arrival
) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Kill federate at the request that what the block does leads to, and start another.

    Yields what waits, afterwards, until all is as it should be: before a late request and after it.
    """
    namespace = space.namespace if moment.is_hubs else space.target_namespace
    line = moment.line.format(f".*/namespaces/{namespace}").replace("NAME", name)
    for word, kind in (("SECRET", "Secret"), ("MAP", "ConfigMap")):
        if word in line:
            line = line.replace(word, name_of(companion(space, kind, name)))
    proxy = way.hub if moment.is_hubs else way.target
    federate = space.world.federate
    with proxy.hold(line, body=moment.body) as hold:

        def settled(wait: Callable[[], object]) -> None:
            wait()
            if arrival == "afterwards":
                hold.release()
                wait()

        yield settled
        hold.wait_caught()
        federate.kill()
        if arrival == "at once":
            hold.release()
    space.world.start_federate()

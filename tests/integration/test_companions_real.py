"""What pods need comes along, between real API servers: rights, watches, what a burst costs."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from e2e.testbed.local import LocalCluster
from federate.check.manifests import Account, render_manifests
from federate.check.rights import Circumstances, Side, usual_features
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.store import Change, Store
from federate.companions.entries import ENTRY
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.ports import CompanionPorts
from federate.companions.reconciler import Companions
from federate.errors import NotFound
from federate.flow.ratebound import RateBound
from federate.mirror.ground import Ground, GroundRules
from federate.model.marks import COMPANION_LABEL, Scope
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import JsonDict, ObjectKey, spec_of, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, SECRETS, SERVICEACCOUNTS
from federate.patch.document import MERGE, PatchBody
from federate.runtime.companions import CompanionGround
from tests.integration.test_reconciler_real import world_of
from tests.support.companions import encoded
from tests.support.companionworlds import needing
from tests.support.quiet import quiet
from tests.support.realworld import RealWorld, until
from tests.support.scene import agreed

pytestmark = pytest.mark.integration

LIMITED = "federate-limited"
CM, SECRET = Kind.CONFIGMAP, Kind.SECRET


# -- with the rights that federate asks for --------------------------------------------------------


async def give_rights(
    cluster: LocalCluster, side: Side, *, less: tuple[str, str] = ("", "")
) -> None:
    """Let a user do what `federate rbac` prints, less one verb on one resource."""
    around = Circumstances(side=side, features=usual_features(is_confined=False))
    account = Account(name=LIMITED, namespace="default", user=LIMITED)
    documents = list(yaml.safe_load_all(render_manifests(around, account, title="test")))
    for document in documents:
        for rule in document.get("rules") or ():
            if less[0] in rule["resources"]:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb != less[1]]
        document.get("rules", [])[:] = [r for r in document.get("rules") or () if r["verbs"]]
    text = yaml.safe_dump_all([document for document in documents if document])
    await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", stdin=text)


def as_limited(cluster: LocalCluster, folder: Path) -> Path:
    """Write a kubeconfig of that user: the admin acts as him."""
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"][0]["user"]["as"] = LIMITED
    path = folder / f"{cluster.name}-limited"
    path.write_text(yaml.safe_dump(content))
    return path


class Requests:
    """Counts what a client sends."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def __call__(self, *, verb: str, resource: str, outcome: str, seconds: float) -> None:
        self.counts[verb, resource, outcome] += 1

    def of(self, resource: str, *verbs: str) -> int:
        return sum(n for (v, r, _), n in self.counts.items() if r == resource and v in verbs)

    def done(self, resource: str, verb: str) -> int:
        """Count those that were answered well: what a busy server never answered is sent again."""
        return self.counts[verb, resource, "ok"]

    def refused(self) -> list[tuple[str, str]]:
        return [(verb, r) for (verb, r, outcome) in self.counts if outcome == "Forbidden"]


@asynccontextmanager
async def limited_world(
    hub: LocalCluster, target: LocalCluster, folder: Path, *, less: tuple[str, str] = ("", "")
) -> AsyncIterator[tuple[RealWorld, RealWorld, Requests, Requests]]:
    """A world whose leader has the printed rights, and the admin's own look at it."""
    await give_rights(hub, Side.HUB, less=less)
    await give_rights(target, Side.TARGET)
    of_hub, of_target = Requests(), Requests()
    clients = [
        await connect(as_limited(hub, folder), name="hub", observer=of_hub),
        await connect(as_limited(target, folder), name="target", observer=of_target),
    ]
    try:
        async with world_of(hub, target) as admin:
            limited = RealWorld(*clients)
            limited.scope, limited.namespace = admin.scope, admin.namespace
            limited.target_namespace, limited.events = admin.target_namespace, admin.events
            yield admin, limited, of_hub, of_target
    finally:
        for client in clients:
            await client.aclose()


async def give(world: RealWorld, kind: Kind, name: str, **values: str) -> None:
    data = {k: encoded(v) if kind is SECRET else v for k, v in values.items()}
    body = {"metadata": {"name": name}, "data": data}
    await world.hub.create(kind.resource, body, namespace=world.namespace)


async def change(world: RealWorld, kind: Kind, name: str, **values: str | None) -> None:
    data = {k: encoded(v) if kind is SECRET and v else v for k, v in values.items()}
    patch = PatchBody(media_type=MERGE, body={"data": data})
    await world.hub.patch(kind.resource, world.key(name), patch)


def place_of(world: RealWorld, kind: Kind, name: str) -> ObjectKey:
    key = CompanionKey(world.target_namespace, kind, world.namespace, name)
    return name_of(world.scope, key)


async def companion(world: RealWorld, kind: Kind, name: str) -> JsonDict | None:
    with suppress(NotFound):
        return await world.target.get(kind.resource, place_of(world, kind, name))
    return None


async def wait_for(condition: Callable[[], object], *, seconds: float = 60.0) -> float:
    """Wait until what `condition` awaits for is true; returns how long it took."""
    began_at = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await condition():  # type: ignore[misc]  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return time.monotonic() - began_at


async def submit(world: RealWorld, name: str, *objects: tuple[Kind, str]) -> None:
    (container,) = needing(name, *objects).build()["spec"]["containers"]
    container.pop("volumeMounts", None)  # admission puts in its own
    await world.submit(name, containers=[container])


async def test_c30_with_the_printed_rights_what_a_pod_needs_comes_along(
    light_hub: LocalCluster, light_target: LocalCluster, tmp_path: Path
) -> None:
    """Made, changed, revoked and removed; nothing is refused, and no Secret is ever listed."""
    both = ((CM, "settings"), (SECRET, "db"))
    async with limited_world(light_hub, light_target, tmp_path) as (admin, limited, hub, target):
        for kind, name in both:
            await give(admin, kind, name, a="1")
        async with limited.leading():
            began_at = time.monotonic()
            await submit(admin, "a", *both)
            mirror = await admin.mirrored("a")
            print(f"mirrored with two companions after {time.monotonic() - began_at:.2f} s")
            sources = spec_of(mirror)["containers"][0]["envFrom"]
            names = [next(iter(source.values()))["name"] for source in sources]
            assert names == [place_of(admin, kind, name).name for kind, name in both]
            for kind, name in both:
                assert (await companion(admin, kind, name) or {})["data"] == {
                    "a": encoded("1") if kind is SECRET else "1"
                }
            await asyncio.sleep(3.0)  # the watches are open
            for kind, name in both:
                await change(admin, kind, name, a=None, b="2")

                async def has_changed(kind: Kind = kind, name: str = name) -> bool:
                    return list((await companion(admin, kind, name) or {}).get("data", {})) == ["b"]

                took = await wait_for(has_changed)
                print(f"a change of a {kind} was in the target after {took * 1000:.0f} ms")
                assert took < 5.0
            found = await admin.hub.get(SECRETS, admin.key("db"))
            await admin.hub.delete(SECRETS, admin.key("db"), uid=uid_of(found))

            async def is_revoked() -> bool:
                return await companion(admin, SECRET, "db") is None

            took = await wait_for(is_revoked)
            print(f"a deleted Secret was gone from the target after {took * 1000:.0f} ms")
            assert took < 5.0
        assert hub.of("secrets", "list") == target.of("secrets", "list", "watch") == 0
        assert not [each for each in (*hub.refused(), *target.refused()) if each[1] == "secrets"]
        assert ("get", "configmaps") not in hub.refused()


async def test_without_the_right_to_watch_changes_are_found_by_asking(
    light_hub: LocalCluster, light_target: LocalCluster, tmp_path: Path
) -> None:
    """Within the time that is promised; the refused watch is not tried all the time."""
    less = ("secrets", "watch")
    async with limited_world(light_hub, light_target, tmp_path, less=less) as parts:
        admin, limited, hub, _target = parts
        await give(admin, SECRET, "db", a="1")
        async with limited.leading():
            await submit(admin, "a", (SECRET, "db"))
            await admin.mirrored("a")
            await change(admin, SECRET, "db", a="2")

            async def has_changed() -> bool:
                return (await companion(admin, SECRET, "db") or {}).get("data") == {
                    "a": encoded("2")
                }

            took = await wait_for(has_changed, seconds=150.0)
            print(f"found by asking after {took:.1f} s")
        assert hub.of("secrets", "watch") <= 2


async def test_without_the_right_to_read_the_pod_says_so(
    light_hub: LocalCluster, light_target: LocalCluster, tmp_path: Path
) -> None:
    """In the hub's own words; pods that need nothing are not held up."""
    less = ("secrets", "get")
    async with limited_world(light_hub, light_target, tmp_path, less=less) as parts:
        admin, limited, _hub, _target = parts
        await give(admin, SECRET, "db", a="1")
        async with limited.leading():
            await submit(admin, "a", (SECRET, "db"))
            await admin.submit("b")
            await admin.mirrored("b")

            async def says_so() -> bool:
                found = await admin.hub_pod("a") or {}
                return "CompanionUnreadable" in json.dumps(found.get("status") or {})

            await wait_for(says_so)
            assert await admin.mirror("a") is None
    await give_rights(light_hub, Side.HUB)


# -- a thousand objects ----------------------------------------------------------------------------


@dataclass
class Crowd:
    """The companions of a virtual node without its pods: those are only told of."""

    hub: ClusterClient
    target: ClusterClient
    namespace: str

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.scope = Scope(hub_id=f"hub-{self.namespace}", node_name="edge")
        self.requests = 0
        anchors, register = Store(), _Register()
        ground = Ground(
            rules=GroundRules(
                scope=self.scope,
                namespaces=NamespaceRules(strategy=NamespaceStrategy.SINGLE, single=self.namespace),
            ),
            target=self.target,
            anchors=anchors,
            register=register,
            confirm_target=agreed,
            fence=lambda: None,
            now=lambda: datetime.now(UTC),
        )
        self.companions = Companions(
            CompanionPorts(
                scope=self.scope,
                target_name="target",
                hub=self.hub,
                target=self.target,
                hub_pods=Store(),
                anchors=anchors,
                ground=CompanionGround(ground),
                shared=frozenset(),
                brings_tokens=False,
                target_namespace=lambda _pod: self.namespace,
                has_mirror=lambda _pod: False,
                is_refused=lambda _pod: False,
                watched=lambda: (self.namespace,),
                wake=lambda _key: None,
                admit=lambda: None,
                target_reachable=lambda: True,
                leaving=lambda: False,
                confirm_hub=agreed,
                confirm_target=agreed,
                fence=lambda: None,
                fence_target=lambda: None,
                count_read=lambda _cluster: None,
                delete_bound=RateBound(per_second=50, burst=100, clock=loop.time),
                clock=loop.time,
                random=random.Random(1),
            ),
        )

    def again(self) -> Crowd:
        """The next process, which remembers nothing."""
        return Crowd(self.hub, self.target, self.namespace)

    def tell(self, name: str, namespace: str, *objects: tuple[Kind, str]) -> None:
        """A hub pod that refers to these."""
        pod = needing(name, *objects).with_uid(f"uid-{namespace}-{name}").build()
        pod["metadata"]["namespace"] = namespace
        key = ObjectKey(namespace, name)
        self.companions.on_hub_pod(Change(key=key, old=None, new=pod))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(part()) for part in self.companions.parts().values()]
        tasks += [asyncio.create_task(r.run()) for r in self.companions.open()]
        try:
            yield
            assert not [task for task in tasks if task.done()], tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def settled(self) -> int:
        return self.companions.counts().get("settled", 0)


class _Register:
    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def recorded(self) -> dict[str, str]:
        return self.known

    async def record(self, namespace: str, uid: str) -> None:
        self.known[namespace] = uid


@asynccontextmanager
async def crowd_of(
    hub: LocalCluster, target: LocalCluster
) -> AsyncIterator[tuple[Crowd, Requests]]:
    requests = Requests()
    hub_client = await connect(hub.kubeconfig, name="hub", observer=requests)
    target_client = await connect(target.kubeconfig, name="target")
    namespace = f"crowd-{random.randrange(16**6):06x}"
    try:
        await target_client.create(NAMESPACES, {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "default"}}
        await target_client.create(SERVICEACCOUNTS, account, namespace=namespace)
        yield Crowd(hub_client, target_client, namespace), requests
    finally:
        await hub_client.aclose()
        await target_client.aclose()


async def fill(hub: ClusterClient, namespaces: list[str], each: int) -> None:
    """Make so many Secrets in each of the namespaces, some side by side."""
    gate = asyncio.Semaphore(20)

    async def make(namespace: str, number: int) -> None:
        async with gate:
            await give_one(hub, namespace, f"s{number}")

    async def make_all(namespace: str) -> None:
        async with gate:
            await hub.create(NAMESPACES, {"metadata": {"name": namespace}})
        await asyncio.gather(*(make(namespace, number) for number in range(each)))

    await asyncio.gather(*map(make_all, namespaces))


async def give_one(hub: ClusterClient, namespace: str, name: str) -> None:
    body = {"metadata": {"name": name}, "data": {"a": encoded("1")}}
    await hub.create(SECRETS, body, namespace=namespace)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def settled(crowd: Crowd, count: int, *, seconds: float) -> None:
    """Wait until so many stand. To count very many is some work: it is not done all the time."""
    async with asyncio.timeout(seconds):
        while crowd.settled() != count:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def changed(crowd: Crowd, namespace: str, name: str, *, seconds: float) -> float:
    patch = PatchBody(media_type=MERGE, body={"data": {"a": encoded("2")}})
    await crowd.hub.patch(SECRETS, ObjectKey(namespace, name), patch)
    place = name_of(crowd.scope, CompanionKey(crowd.namespace, SECRET, namespace, name))

    async def has_changed() -> bool:
        return bool((await crowd.target.get(SECRETS, place))["data"] == {"a": encoded("2")})

    return await wait_for(has_changed, seconds=seconds)


@pytest.mark.parametrize(
    "count", [100, pytest.param(1000, marks=pytest.mark.long)], ids=["hundred", "thousand"]
)
async def test_the_objects_of_one_namespace_are_one_connection(
    light_hub: LocalCluster, light_target: LocalCluster, count: int
) -> None:
    """All stand in the target soon, each on record; a change comes at once."""
    async with crowd_of(light_hub, light_target) as (crowd, requests):
        namespace = f"{crowd.namespace}-hub"
        await fill(crowd.hub, [namespace], count)
        requests.counts.clear()
        began_at = time.monotonic()
        async with crowd.running():
            for first in range(0, count, 50):
                some = [(SECRET, f"s{number}") for number in range(first, first + 50)]
                crowd.tell(f"p{first}", namespace, *some)
            await until(lambda: crowd.settled() == count, seconds=300.0)
            took = time.monotonic() - began_at
            await until(lambda: crowd.companions.asked() == 0, seconds=60.0)
            watches = crowd.companions.watches
            latency = await changed(crowd, namespace, f"s{count // 2}", seconds=60.0)
            entries = await crowd.target.list(
                CONFIGMAPS, namespace=crowd.namespace, label_selector=f"{COMPANION_LABEL}={ENTRY}"
            )
            listed = len(entries.items)
            reads = requests.of("secrets", "get")
        print(
            f"{count} Secrets of one namespace: settled in {took:.1f} s, {watches} connection(s), "
            f"{reads} reads of the hub, a change after {latency * 1000:.0f} ms"
        )
        assert watches == 1
        assert listed == count
        assert requests.of("secrets", "list") == 0
        assert reads <= 2 * count + 100
        assert latency < 5.0


@pytest.mark.parametrize(
    "count",
    [200, pytest.param(30_000, marks=pytest.mark.long)],
    ids=["hundreds", "thirty-thousand"],
)
async def test_a_namespace_may_have_any_number_of_secrets(
    light_hub: LocalCluster, light_target: LocalCluster, count: int
) -> None:
    """No list grows too long: all are on record, and the next process learns of them at once."""
    with quiet():
        await any_number(light_hub, light_target, count)


async def any_number(light_hub: LocalCluster, light_target: LocalCluster, count: int) -> None:
    async with crowd_of(light_hub, light_target) as (crowd, _requests):
        namespace = f"{crowd.namespace}-hub"
        await fill(crowd.hub, [namespace], count)
        began_at, memory = time.monotonic(), resident_bytes()
        async with crowd.running():
            for first in range(0, count, 50):
                some = [(SECRET, f"s{number}") for number in range(first, first + 50)]
                crowd.tell(f"p{first}", namespace, *some)
            await settled(crowd, count, seconds=120.0 + count / 20)
            took, grown = time.monotonic() - began_at, resident_bytes() - memory
            [first_of, *_] = crowd.companions.inventory()
        following = crowd.again()
        began_at, memory = time.monotonic(), resident_bytes()
        async with following.running():
            await until(lambda: len(following.companions.inventory()) == count, seconds=300.0)
            listed, kept = time.monotonic() - began_at, resident_bytes() - memory
            began_at = time.monotonic()
            assert first_of in following.companions.inventory()
            gathered = time.monotonic() - began_at
            await give_one(crowd.hub, namespace, "one-more")
            began_at = time.monotonic()
            following.tell("one-more", namespace, (SECRET, "one-more"))
            await until(lambda: following.settled() == 1, seconds=60.0)
            latency = time.monotonic() - began_at
        print(
            f"{count} Secrets of one target namespace: settled in {took:.1f} s "
            f"({grown / 2**20:.0f} MB); the next process lists them in {listed:.1f} s "
            f"({kept / 2**20:.0f} MB), gathers the inventory in {gathered * 1000:.0f} ms, and one "
            f"more takes {latency * 1000:.0f} ms"
        )
        assert latency < 5.0
        assert gathered < 1.0


@pytest.mark.parametrize(
    "namespaces", [230, pytest.param(1000, marks=pytest.mark.long)], ids=["some", "thousand"]
)
async def test_objects_of_many_namespaces_share_two_hundred_connections(
    light_hub: LocalCluster, light_target: LocalCluster, namespaces: int
) -> None:
    """What is beyond is asked for at a bounded pace, and its changes come later."""
    async with crowd_of(light_hub, light_target) as (crowd, requests):
        names = [f"{crowd.namespace}-{number}" for number in range(namespaces)]
        await fill(crowd.hub, names, 1)
        requests.counts.clear()
        began_at = time.monotonic()
        async with crowd.running():
            for name in names:
                crowd.tell("p", name, (SECRET, "s0"))
            await until(lambda: crowd.settled() == namespaces, seconds=300.0)
            took = time.monotonic() - began_at
            await until(lambda: crowd.companions.asked() == namespaces - 200, seconds=120.0)
            watching = crowd.companions._watching
            is_live = {n: watching.is_live(SECRET, ObjectKey(n, "s0")) for n in names}
            near = next(name for name, live in is_live.items() if live)
            far = next(name for name, live in is_live.items() if not live)
            at_once = await changed(crowd, near, "s0", seconds=60.0)
            later = await changed(crowd, far, "s0", seconds=300.0)
            watches = crowd.companions.watches
        print(
            f"{namespaces} Secrets of as many namespaces: settled in {took:.1f} s, {watches} "
            f"connections; a change came after {at_once * 1000:.0f} ms where it is watched, "
            f"{later:.1f} s where it is asked for"
        )
        assert watches == 200
        assert at_once < 5.0
        assert later < 5 * max(30.0, namespaces / 20)

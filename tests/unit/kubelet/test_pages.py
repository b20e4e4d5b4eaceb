"""The documents of a virtual node, and where their numbers come from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from federate.cluster.port import Listing
from federate.errors import ClusterError, Forbidden, NotFound, ServerFault, Unreachable
from federate.kubelet.pages import FRESH_SECONDS, YIELD_EVERY, MetricsPages
from federate.kubelet.ports import Located, Reply, UpstreamCall
from federate.kubelet.sources import FETCH_SECONDS, MOST_PAGE_BYTES, REFUSED_SECONDS, Sources
from federate.model.objects import JsonObject, ObjectKey
from federate.model.resources import POD_METRICS, Resource
from tests.support.clock import virtual_loop, virtual_time
from tests.unit.cluster.test_reflector import ScriptedPort
from tests.unit.kubelet.test_usage import MIB, START, instant, located, own_container

KUBELET = """\
container_cpu_usage_seconds_total{{container="{c}",namespace="hub-one",pod="web"}} 12.5 {at}
container_memory_working_set_bytes{{container="{c}",namespace="hub-one",pod="web"}} 1048576 {at}
container_cpu_usage_seconds_total{{container="x",namespace="kube-system",pod="secret"}} 99 {at}
container_memory_working_set_bytes{{container="x",namespace="kube-system",pod="secret"}} 99 {at}
"""

PROBES = """\
# TYPE prober_probe_total counter
prober_probe_total{container="main",namespace="hub-one",pod="web",pod_uid="m",result="ok"} 7
prober_probe_total{container="proxy",namespace="hub-one",pod="web",pod_uid="m",result="ok"} 8
prober_probe_total{container="main",namespace="kube-system",pod="secret",pod_uid="s"} 9
"""


class Pods:
    """The pods of a virtual node, as the tests set them."""

    def __init__(self, *places: Located) -> None:
        self.places = list(places)
        self.listed = 0

    def find(self, key: ObjectKey, uid: str = "") -> Located | None:
        raise AssertionError("documents are about all pods")

    def hub_pod(self, key: ObjectKey) -> JsonObject | None:
        raise AssertionError("documents are about all pods")

    def all(self) -> Sequence[JsonObject]:
        self.listed += 1
        return [place.hub_pod for place in self.places]

    def located(self) -> Sequence[Located]:
        return self.places


class Target(ScriptedPort):
    """A target with metrics.k8s.io and kubelets, either of which may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.api_failure: ClusterError | None = None
        self.kubelet_status = 200
        self.bodies: dict[str, str] = {}
        self.is_hanging = False
        self.namespaces_asked: list[str] = []
        self.kubelets_asked: list[str] = []
        self.items: list[dict[str, Any]] = []

    async def list(self, resource: Resource, **options: Any) -> Listing:
        assert resource is POD_METRICS
        assert options["label_selector"] == "ours"
        self.namespaces_asked.append(options["namespace"])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.api_failure is not None:
            raise self.api_failure
        return Listing(items=self.items, resource_version="")

    @asynccontextmanager
    async def open(self, call: UpstreamCall) -> AsyncIterator[Reply]:
        assert call.method == "GET"
        self.kubelets_asked.append(call.path)
        text = next((t for end, t in self.bodies.items() if call.path.endswith(end)), "")

        async def body() -> AsyncIterator[bytes]:
            yield text.encode()

        yield Reply(status=self.kubelet_status, headers=(), body=body())


class Stage:
    """Pages over a target, with clocks that the test turns."""

    def __init__(self, *places: Located, namespaces: Sequence[str] = ("",)) -> None:
        self.target = Target()
        self.pods = Pods(*places)
        self.now = 1000.0
        self.pages = MetricsPages(
            node_name="edge",
            pods=self.pods,
            sources=Sources(
                target=self.target,
                open_call=self.target.open,
                selector="ours",
                namespaces=lambda: namespaces,
            ),
            started_at=START,
            clock=lambda: self.now,
            wall_clock=lambda: START + self.now,
        )

    async def text(self, path: str) -> str:
        page = await self.pages.page(path, {}, {})
        assert page is not None
        return page.body.decode()


def metrics_of(place: Located) -> dict[str, Any]:
    usage = {"cpu": "250m", "memory": "64Mi"}
    return {
        "metadata": {"name": place.mirror.name, "namespace": place.mirror.namespace},
        "timestamp": instant(START + 300),
        "window": "15s",
        "containers": [{"name": own_container(place), "usage": usage}],
    }


async def test_usage_comes_from_the_targets_metrics_api() -> None:
    """One list, bound to our mirrors, gives the page in the hub's names."""
    place = located()
    stage = Stage(place)
    stage.target.items = [metrics_of(place)]
    text = await stage.text("/metrics/resource")
    assert f"node_memory_working_set_bytes {64 * MIB}" in text
    assert 'namespace="default",pod="web"' in text
    assert "hub-one" not in text
    assert (stage.target.namespaces_asked, stage.target.kubelets_asked) == ([""], [])


async def test_confined_rights_are_kept_to() -> None:
    """Where only some namespaces may be listed, those are asked, and no other."""
    stage = Stage(located(), namespaces=("one", "two"))
    await stage.text("/metrics/resource")
    assert sorted(stage.target.namespaces_asked) == ["one", "two"]


@pytest.mark.parametrize("failure", [NotFound(""), Forbidden(""), ServerFault("")])
async def test_else_the_kubelets_are_asked(failure: ClusterError) -> None:
    """Without metrics.k8s.io the kubelets that run our mirrors tell, and nothing of others."""
    place = located()
    stage = Stage(place)
    stage.target.api_failure = failure
    at = int((START + 20) * 1000)
    stage.target.bodies["/metrics/resource"] = KUBELET.format(c=own_container(place), at=at)
    text = await stage.text("/metrics/resource")
    assert stage.target.kubelets_asked == ["/api/v1/nodes/worker/proxy/metrics/resource"]
    assert "12.50000" in text
    assert "secret" not in text
    assert "99" not in text
    stage.now += FRESH_SECONDS
    await stage.text("/metrics/resource")
    assert len(stage.target.namespaces_asked) == 1, (
        "what is not there is not asked for at each scrape"
    )
    stage.now += REFUSED_SECONDS
    await stage.text("/metrics/resource")
    assert len(stage.target.namespaces_asked) == 2


async def test_without_any_source_the_page_says_so() -> None:
    """Two closed doors are no failure of the virtual node: the page tells it."""
    stage = Stage(located())
    stage.target.api_failure, stage.target.kubelet_status = NotFound(""), 403
    assert "resource_scrape_error 1" in await stage.text("/metrics/resource")
    summary = await stage.text("/stats/summary")
    assert [told["podRef"]["name"] for told in json.loads(summary)["pods"]] == ["web"]
    assert "usage" not in summary


async def test_a_target_that_does_not_answer_is_a_failure_for_all_who_ask() -> None:
    """A dead target is asked once by many scrapers, and again after moments."""
    stage = Stage(located())
    stage.target.api_failure = Unreachable("gone")
    results = await asyncio.gather(
        *(stage.pages.page("/metrics/resource", {}, {}) for _ in range(50)), return_exceptions=True
    )
    assert all(isinstance(result, Unreachable) for result in results)
    assert len(stage.target.namespaces_asked) == 1
    stage.now += FRESH_SECONDS
    with pytest.raises(Unreachable):
        await stage.text("/stats/summary")
    assert len(stage.target.namespaces_asked) == 2


async def test_many_scrapers_share_one_fetch() -> None:
    """Whatever is asked for at once is fetched once, and the counters are counted once."""
    place = located()
    stage = Stage(place)
    stage.target.items = [metrics_of(place)]
    paths = ["/metrics/resource", "/stats/summary"] * 20
    pages = await asyncio.gather(*(stage.pages.page(path, {}, {}) for path in paths))
    assert len(stage.target.namespaces_asked) == 1
    assert len({page.body for page in pages if page is not None}) == 2


async def test_a_scraper_that_goes_leaves_the_fetch_to_the_next() -> None:
    """Who hangs up does not take the others' page along."""
    place = located()
    stage = Stage(place)
    stage.target.items = [metrics_of(place)]
    first = asyncio.create_task(stage.text("/metrics/resource"))
    second = asyncio.create_task(stage.text("/metrics/resource"))
    await asyncio.sleep(0)
    first.cancel()
    assert "pod=" in await second


async def test_a_page_that_is_too_large_is_not_read() -> None:
    """A kubelet that sends without end costs a bounded amount of memory."""
    stage = Stage(located())
    stage.target.bodies["/metrics/probes"] = "x" * (MOST_PAGE_BYTES + 1)
    with pytest.raises(ServerFault, match="larger"):
        await stage.text("/metrics/probes")


@virtual_time
async def test_a_target_that_hangs_is_waited_for_shorter_than_scrapers_wait() -> None:
    """A fetch is bounded as a whole; who asked gets a failure, not silence."""
    stage = Stage(located())
    stage.target.is_hanging = True
    began = virtual_loop().time()
    with pytest.raises(Unreachable, match="within"):
        await stage.text("/metrics/resource")
    assert virtual_loop().time() - began == FETCH_SECONDS < 10


async def test_probes_are_told_in_the_hubs_names() -> None:
    """Lines about own containers are relayed and renamed; all others are dropped."""
    place = located()
    stage = Stage(place)
    stage.target.bodies["/metrics/probes"] = PROBES.replace('"main"', f'"{own_container(place)}"')
    text = await stage.text("/metrics/probes")
    assert text.count("prober_probe_total{") == 1
    assert 'namespace="default",pod="web",pod_uid="uid-web",result="ok"} 7' in text


async def test_pods_are_listed_as_the_hub_has_them() -> None:
    """/pods is a PodList of all, /runningpods/ the names and images of those that run."""
    place = located()
    stage = Stage(place, located("two"))
    listed = json.loads(await stage.text("/pods"))
    assert (listed["kind"], len(listed["items"])) == ("PodList", 2)
    assert listed["items"][0] == place.hub_pod
    running = json.loads(await stage.text("/runningpods/"))["items"]
    assert running[0]["metadata"] == {"name": "web", "namespace": "default", "uid": "uid-web"}
    assert [c["name"] for c in running[0]["spec"]["containers"]] == [own_container(place)]
    assert not stage.target.namespaces_asked, "what the hub knows is not asked of the target"


@pytest.mark.parametrize("path", ["/pods", "/runningpods/", "/stats/summary"])
async def test_which_pods_there_are_is_told_as_of_now(path: str) -> None:
    """Who asks twice within a moment sees the pods that came and went in between."""
    stage = Stage(located(), located("two"))
    stage.target.items = [metrics_of(place) for place in stage.pods.places]
    assert '"name":"two"' in await stage.text(path)
    stage.pods.places = [stage.pods.places[0], located("three")]
    text = await stage.text(path)
    assert '"name":"two"' not in text
    assert '"name":"three"' in text


async def test_who_asks_while_pods_are_listed_gets_a_list_of_its_own() -> None:
    """A list that was begun before may lack what the asker knows of."""
    stage = Stage(*(located(f"pod-{number}") for number in range(3 * YIELD_EVERY)))
    first = asyncio.create_task(stage.text("/pods"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (stage.pods.listed, first.done()) == (1, False)
    stage.pods.places = [located("new")]
    assert [one["metadata"]["name"] for one in json.loads(await stage.text("/pods"))["items"]] == [
        "new"
    ]
    assert len(json.loads(await first)["items"]) == 3 * YIELD_EVERY


async def test_many_who_ask_for_pods_at_once_cost_little() -> None:
    """They get the same list, and so do all who come while it is made: the next one."""
    stage = Stage(*(located(f"pod-{number}") for number in range(3 * YIELD_EVERY)))
    asked = [asyncio.create_task(stage.text("/pods")) for _ in range(50)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert (stage.pods.listed, any(task.done() for task in asked)) == (1, False)
    asked += [asyncio.create_task(stage.text("/pods")) for _ in range(50)]
    await asyncio.gather(*asked)
    assert stage.pods.listed == 2


async def test_who_gives_up_takes_nobodys_list_along() -> None:
    """Whoever waits behind one that hangs up makes the list."""
    stage = Stage(*(located(f"pod-{number}") for number in range(3 * YIELD_EVERY)))
    first = asyncio.create_task(stage.text("/pods"))
    second = asyncio.create_task(stage.text("/pods"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert stage.pods.listed == 1
    first.cancel()
    assert len(json.loads(await second)["items"]) == 3 * YIELD_EVERY


async def test_a_pod_that_was_not_measured_yet_is_in_the_summary() -> None:
    """What runs is listed as on a kubelet, at once; numbers follow when there are some."""
    place, new = located(), located("new", extra="proxy")
    stage = Stage(place, new)
    stage.target.items = [metrics_of(place)]
    told = {
        one["podRef"]["name"]: one for one in json.loads(await stage.text("/stats/summary"))["pods"]
    }
    assert told["web"]["containers"][0]["memory"]["workingSetBytes"] == 64 * MIB
    (container,) = told["new"]["containers"]
    assert container == {"name": own_container(new), "startTime": instant(START)}
    assert "cpu" not in told["new"]
    assert "new" not in await stage.text("/metrics/resource"), "there a series is a number"


async def test_the_node_tells_its_name_and_what_it_runs() -> None:
    """/metrics has what dashboards join on."""
    text = await Stage(located()).text("/metrics")
    assert 'kubelet_node_name{node="edge"} 1' in text
    assert "kubelet_running_pods 1" in text
    assert 'kubelet_running_containers{container_state="running"} 1' in text


async def test_what_a_kubelet_has_not_there_is_none() -> None:
    """Other paths are no documents."""
    assert await Stage().pages.page("/configz", {}, {}) is None

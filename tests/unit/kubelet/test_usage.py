"""Usage: what targets tell, how it is counted, and what metrics-server makes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.kubelet.counters import (
    BEGINNING,
    STALE_SECONDS,
    NodeUsage,
    UsageBook,
    running_pod,
)
from federate.kubelet.exposition import render
from federate.kubelet.ports import Located
from federate.kubelet.summary import resource_families, summary_of
from federate.kubelet.usage import (
    WHOLE_POD,
    PodReadings,
    Reading,
    ResourcePage,
    parse_duration,
    read_pod_metrics,
)
from federate.model.instants import format_instant
from federate.model.objects import JsonDict, ObjectKey
from tests.support.builders import pod

START = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
MIB = 2**20
MIRROR = ObjectKey("hub-one", "web")


def read_resource_page(text: str) -> PodReadings:
    page = ResourcePage()
    for line in text.split("\n"):
        page.take(line)
    return page.readings()


def located(name: str = "web", *, started: float = START, extra: str = "") -> Located:
    """A running pod with one container `main` (and one the target injected)."""
    hub_pod = pod(name).with_uid(f"uid-{name}").running().build()
    container = hub_pod["spec"]["containers"][0]["name"]
    names = [container, *([extra] if extra else [])]
    running = {"running": {"startedAt": instant(started)}}
    mirror = {
        "metadata": {"name": name, "namespace": "hub-one"},
        "spec": {"nodeName": "worker", "containers": [{"name": n} for n in names]},
        "status": {
            "phase": "Running",
            "startTime": instant(started),
            "containerStatuses": [{"name": n, "state": running} for n in names],
        },
    }
    return Located(
        hub_pod=hub_pod, mirror=ObjectKey("hub-one", name), mirror_uid="m", mirror_pod=mirror
    )


def own_container(place: Located) -> str:
    name: str = place.hub_pod["spec"]["containers"][0]["name"]
    return name


def instant(seconds: float) -> str:
    return format_instant(datetime.fromtimestamp(seconds, UTC))


def rated(at: float, cores: float, *, memory: float = MIB, window: float = 15) -> Reading:
    return Reading(at=at, memory_bytes=memory, cores=cores, window_seconds=window)


def counted(at: float, cpu_seconds: float, *, memory: float = MIB) -> Reading:
    return Reading(at=at, memory_bytes=memory, cpu_seconds=cpu_seconds)


def of(place: Located, reading: Reading, **others: Reading) -> PodReadings:
    return {place.mirror: {own_container(place): reading, WHOLE_POD: reading, **others}}


def merged(*readings: PodReadings) -> PodReadings:
    found: dict[ObjectKey, Mapping[str, Reading]] = {}
    for one in readings:
        found.update(one)
    return found


class Scraper:
    """Takes readings and remembers what was told, as metrics-server does."""

    def __init__(self, *places: Located) -> None:
        self.book = UsageBook()
        self.places: Sequence[Located] = places
        self.clock = 0.0

    def scrape(self, readings: PodReadings, *, after: float = 15.0) -> NodeUsage:
        self.clock += after
        pods = [pod for place in self.places if (pod := running_pod(place)) is not None]
        return self.book.take(readings, pods, clock=self.clock, now=START + self.clock)


def only(usage: NodeUsage) -> Any:
    (one,) = usage.pods
    (container,) = one.containers.values()
    return container


# -- reading --


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15.036s", 15.036), ("1m0s", 60.0), ("1h1m1.5s", 3661.5), ("500ms", 0.5), ("10µs", 1e-5)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """A window is read in every form that Go writes."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "-3s", "1d", "15s ", "nans"])
def test_what_is_no_duration_is_none(text: str) -> None:
    """A window that cannot be read is none."""
    assert parse_duration(text) is None


def pod_metrics(**more: Any) -> JsonDict:
    return {
        "metadata": {"name": "web", "namespace": "hub-one"},
        "timestamp": "2026-01-01T12:00:15Z",
        "window": "15s",
        "containers": [
            {"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}},
            {"name": "proxy", "usage": {"cpu": "50000000n", "memory": "16Mi"}},
        ],
        **more,
    }


def test_pod_metrics_are_read_with_their_sum() -> None:
    """metrics.k8s.io tells rates; the pod is the sum of all that runs in it."""
    found = read_pod_metrics([pod_metrics()])[MIRROR]
    assert found["main"] == rated(START + 15, 0.25, memory=64 * MIB)
    whole = found[WHOLE_POD]
    assert whole.cores == pytest.approx(0.3)
    assert whole.memory_bytes == 80 * MIB


@pytest.mark.parametrize(
    "broken",
    [
        {"timestamp": None},
        {"timestamp": "yesterday"},
        {"window": ""},
        {"window": "0s"},
        {"containers": None},
        {"containers": [{"name": "main", "usage": {"cpu": "much", "memory": "1Mi"}}]},
        {"containers": [{"name": "main", "usage": {"cpu": "-1", "memory": "1Mi"}}]},
        {"containers": [{"name": "main", "usage": {"cpu": "1e30", "memory": "1Mi"}}]},
        {"containers": [{"name": "main"}]},
        {"containers": ["main"]},
        {"containers": 1},
        {"timestamp": "9000-01-01T00:00:00Z"},
    ],
)
def test_unreadable_usage_is_left_out(broken: JsonDict) -> None:
    """What has no time, no window or no sensible amount does not count."""
    assert read_pod_metrics([pod_metrics(**broken)]) == {}


def test_a_kubelets_page_is_read() -> None:
    """A kubelet tells counters with times, for containers and pods; its node is not ours."""
    text = """\
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="hub-one",pod="web"} 12.5 1767268815000
container_memory_working_set_bytes{container="main",namespace="hub-one",pod="web"} 1.048576e+06 1767268815000
container_start_time_seconds{container="main",namespace="hub-one",pod="web"} 1.7672688e+09
container_cpu_usage_seconds_total{container="timeless",namespace="hub-one",pod="web"} 12.5
container_memory_working_set_bytes{container="timeless",namespace="hub-one",pod="web"} 1
container_swap_usage_bytes{container="main",namespace="hub-one",pod="web"} 0 1767268815000
node_cpu_usage_seconds_total 1000 1767268815000
pod_cpu_usage_seconds_total{namespace="hub-one",pod="web"} 13 1767268815000
pod_memory_working_set_bytes{namespace="hub-one",pod="web"} 2097152 1767268815000
"""  # noqa: E501 (as it travels)
    found = read_resource_page(text)
    assert found == {
        MIRROR: {
            "main": Reading(at=START + 15, memory_bytes=MIB, cpu_seconds=12.5, started_at=START),
            WHOLE_POD: Reading(at=START + 15, memory_bytes=2 * MIB, cpu_seconds=13.0),
        }
    }


@pytest.mark.parametrize(
    ("value", "at"),
    [("+Inf", "1767268815000"), ("NaN", "1767268815000"), ("-1", "1767268815000"), ("1", "9" * 18)],
)
def test_a_kubelets_impossible_numbers_are_left_out(value: str, at: str) -> None:
    """No number, no time and no infinity of a target reaches a counter."""
    labels = '{container="main",namespace="hub-one",pod="web"}'
    text = f"container_cpu_usage_seconds_total{labels} {value} {at}\n"
    assert not read_resource_page(f"{text}container_memory_working_set_bytes{labels} 1 {at}\n")


# -- counting --


def test_a_rate_becomes_a_counter_with_the_same_rate() -> None:
    """Whoever divides the growth by the time between the samples gets the target's own rate."""
    place = located()
    scraper = Scraper(place)
    one = only(scraper.scrape(of(place, rated(START + 300, 0.25))))
    two = only(scraper.scrape(of(place, rated(START + 315, 0.5))))
    assert (two.cpu_seconds - one.cpu_seconds) / (two.at - one.at) == pytest.approx(0.5)
    assert (one.at, two.at) == (START + 300, START + 315), "never newer than what was measured"


def test_the_same_sample_is_not_counted_twice() -> None:
    """Who scrapes faster than the target measures sees the same counter at the same time."""
    place = located()
    scraper = Scraper(place)
    one = only(scraper.scrape(of(place, rated(START + 300, 1))))
    two = only(scraper.scrape(of(place, rated(START + 300, 1)), after=5))
    older = only(scraper.scrape(of(place, rated(START + 285, 9)), after=5))
    assert one == two == older


def test_an_idle_container_has_a_counter_above_zero() -> None:
    """metrics-server drops a whole pod for a counter of zero, so an idle one does not tell zero."""
    place = located()
    usage = only(Scraper(place).scrape(of(place, rated(START + 300, 0))))
    assert usage.cpu_seconds == BEGINNING
    assert int(usage.cpu_seconds * 1e9) > 0


def test_an_old_containers_past_is_no_burst() -> None:
    """A kubelet's counter of days begins here with nothing, and grows as the kubelet's does."""
    place = located()
    scraper = Scraper(place)
    first = scraper.scrape(of(place, counted(START + 90_000, 50_000)))
    then = scraper.scrape(of(place, counted(START + 90_010, 50_005)))
    assert only(first).cpu_seconds == BEGINNING
    assert only(then).cpu_seconds - only(first).cpu_seconds == pytest.approx(5)
    assert only(then).cores == pytest.approx(0.5)
    assert first.whole is not None
    assert then.whole is not None
    assert then.whole.cpu_seconds - first.whole.cpu_seconds == pytest.approx(5)


def test_a_young_containers_whole_life_counts() -> None:
    """metrics-server divides a fresh container's counter by its age, and gets its rate."""
    place = located()
    of_rates = only(Scraper(place).scrape(of(place, rated(START + 12, 0.5, window=12))))
    of_counters = only(Scraper(place).scrape(of(place, counted(START + 12, 6))))
    for usage in (of_rates, of_counters):
        assert usage.cpu_seconds / (usage.at - usage.started_at) == pytest.approx(0.5, rel=1e-3)


def test_a_change_of_source_is_no_jump() -> None:
    """From metrics.k8s.io to a kubelet and back, a counter grows as if nothing had happened."""
    place = located()
    scraper = Scraper(place)
    told = [
        only(scraper.scrape(of(place, reading)))
        for reading in (
            rated(START + 1000, 0.5),
            rated(START + 1015, 0.5),
            counted(START + 1030, 90_000),
            counted(START + 1045, 90_007.5),
            rated(START + 1060, 0.5),
            counted(START + 1075, 90_022.5),
        )
    ]
    growth = [b.cpu_seconds - a.cpu_seconds for a, b in pairwise(told)]
    assert growth == pytest.approx([7.5] * 5)


def test_a_restarted_container_counts_anew() -> None:
    """A restart begins a new counter under the new start; its predecessor's sample is left out."""
    before, after = located(), located(started=START + 600)
    scraper = Scraper(before)
    old = only(scraper.scrape(of(before, rated(START + 590, 1, window=100))))
    scraper.places = (after,)
    assert not scraper.scrape(of(after, rated(START + 590, 1))).pods, "that was the one before"
    new = only(scraper.scrape(of(after, rated(START + 615, 0.1))))
    assert new.cpu_seconds < old.cpu_seconds
    assert new.started_at == START + 600
    assert len(scraper.book.series) == 2, "nothing is kept of what is over"


def test_a_sample_that_stands_still_is_left_out() -> None:
    """Who is not measured any more loses its usage, and is told again when it is measured."""
    place = located()
    scraper = Scraper(place)
    reading = of(place, rated(START + 300, 1))
    assert scraper.scrape(reading).pods
    assert scraper.scrape(reading, after=STALE_SECONDS).pods
    assert not scraper.scrape(reading, after=1).pods
    assert scraper.scrape(of(place, rated(START + 600, 1)), after=1).pods


def test_the_clock_of_the_target_does_not_matter() -> None:
    """Samples of a target whose clock is hours away are neither stale nor changed."""
    place = located(started=START + 86_400)
    scraper = Scraper(place)
    assert only(scraper.scrape(of(place, rated(START + 90_000, 1)))).at == START + 90_000


def test_a_gap_of_the_target_is_no_new_beginning() -> None:
    """A pod that is not told of for a while goes on from where it was."""
    place = located()
    scraper = Scraper(place)
    one = only(scraper.scrape(of(place, counted(START + 300, 100))))
    assert not scraper.scrape({}).pods
    two = only(scraper.scrape(of(place, counted(START + 330, 115))))
    assert two.cpu_seconds - one.cpu_seconds == pytest.approx(15)


def test_lines_of_a_kubelet_without_names_are_left_out() -> None:
    """A sum without a pod, or a container without a name, belongs to nobody."""
    at = int(START * 1000)
    assert not read_resource_page(
        f"pod_cpu_usage_seconds_total 1 {at}\npod_memory_working_set_bytes 1 {at}\n"
        f'container_cpu_usage_seconds_total{{namespace="hub-one",pod="web"}} 1 {at}\n'
        f'container_memory_working_set_bytes{{namespace="hub-one",pod="web"}} 1 {at}\n'
    )


def test_a_clock_that_is_put_back_is_followed_in_the_end() -> None:
    """Samples from a clock's false future hold a counter up for minutes, not for years."""
    place = located()
    scraper = Scraper(place)
    ahead = scraper.scrape(of(place, rated(START + 1e9, 1)))
    assert not scraper.scrape(of(place, rated(START + 300, 1)), after=STALE_SECONDS + 1).pods[1:]
    then = scraper.scrape(of(place, rated(START + 315, 1)))
    last = scraper.scrape(of(place, rated(START + 330, 1)))
    assert [only(then).at, only(last).at] == [START + 315, START + 330]
    assert only(last).cpu_seconds - only(ahead).cpu_seconds == pytest.approx(30)
    assert last.whole is not None
    assert ahead.whole is not None
    assert last.whole.at == START + 330
    assert last.whole.cpu_seconds - ahead.whole.cpu_seconds == pytest.approx(30)


def test_one_clock_far_ahead_does_not_carry_the_others_along() -> None:
    """A node of the target whose clock is wrong adds minutes of usage at most, once."""
    right, wrong = located("right"), located("wrong")
    scraper = Scraper(right, wrong)
    at = START + 300
    readings = merged(of(right, rated(at, 1)), of(wrong, rated(at + 1e8, 1)))
    whole = scraper.scrape(readings).whole
    assert whole is not None
    assert whole.cpu_seconds < 60 + STALE_SECONDS


def test_injected_containers_count_in_the_pod_only() -> None:
    """What the target injected is no container of the hub pod, but the pod pays for it."""
    place = located(extra="proxy")
    readings = {
        place.mirror: {
            own_container(place): rated(START + 300, 0.25),
            "proxy": rated(START + 300, 0.1),
            WHOLE_POD: rated(START + 300, 0.35, memory=3 * MIB),
        }
    }
    usage = Scraper(place).scrape(readings)
    assert set(usage.pods[0].containers) == {own_container(place)}
    assert usage.pods[0].whole.memory_bytes == 3 * MIB
    assert usage.whole is not None
    assert usage.whole.memory_bytes == 3 * MIB


def test_unknown_pods_are_skipped() -> None:
    """Pods of others that the target tells of, and own ones it does not, spoil nothing."""
    place, silent = located(), located("silent")
    scraper = Scraper(place, silent)
    foreign = {ObjectKey("hub-one", "foreign"): {"main": rated(START + 300, 100)}}
    usage = scraper.scrape(merged(of(place, rated(START + 300, 0.5)), foreign))
    assert [one.hub_pod["metadata"]["name"] for one in usage.pods] == ["web"]
    assert usage.whole is not None
    assert usage.whole.cores == 0.5


def test_a_container_without_memory_is_not_told() -> None:
    """One that is just beginning or ending would make metrics-server drop the whole pod."""
    place = located()
    usage = Scraper(place).scrape(of(place, rated(START + 300, 1, memory=0)))
    assert not usage.pods[0].containers


def test_ended_and_waiting_containers_have_no_usage() -> None:
    """Only what runs can be measured."""
    place = located()
    assert place.mirror_pod is not None
    place.mirror_pod["status"]["containerStatuses"][0]["state"] = {"waiting": {}}
    assert not Scraper(place).scrape(of(place, rated(START + 300, 1))).pods


# -- the node --


def test_the_node_is_the_sum_of_its_pods() -> None:
    """Memory is what runs now, CPU all that was counted."""
    one, two = located("one"), located("two")
    scraper = Scraper(one, two)
    at = START + 300
    first = scraper.scrape(merged(of(one, rated(at, 1)), of(two, rated(at, 2)))).whole
    then = scraper.scrape(merged(of(one, rated(at + 15, 1)), of(two, rated(at + 15, 2)))).whole
    assert first is not None
    assert then is not None
    assert (then.cpu_seconds - first.cpu_seconds) / (then.at - first.at) == pytest.approx(3)
    assert (then.cores, then.memory_bytes) == (3, 2 * MIB)


def test_pods_measured_at_different_times_make_no_steps() -> None:
    """Two pods that are measured in turn give a node that grows evenly."""
    one, two = located("one"), located("two")
    scraper = Scraper(one, two)
    times = {"one": START + 300.0, "two": START + 309.0}
    told = []
    for turn in range(8):
        times["one" if turn % 2 else "two"] += 10
        readings = merged(of(one, rated(times["one"], 1)), of(two, rated(times["two"], 1)))
        whole = scraper.scrape(readings, after=5).whole
        assert whole is not None
        told.append(whole)
    for earlier, later in pairwise(told):
        grown, passed = later.cpu_seconds - earlier.cpu_seconds, later.at - earlier.at
        assert grown == pytest.approx(2 * passed, abs=1e-6)


def test_the_nodes_counter_never_sinks() -> None:
    """A pod that ends takes its memory away, and nothing from the counter."""
    one, two = located("one"), located("two")
    scraper = Scraper(one, two)
    before = scraper.scrape(merged(of(one, rated(START + 300, 5)), of(two, rated(START + 290, 9))))
    scraper.places = (one,)
    after = scraper.scrape(of(one, rated(START + 301, 5)))
    assert before.whole is not None
    assert after.whole is not None
    assert after.whole.cpu_seconds >= before.whole.cpu_seconds
    assert after.whole.memory_bytes == MIB


def test_a_node_without_pods_uses_nothing() -> None:
    """Nothing runs, which is known without a measurement; where something runs, it is not."""
    place = located()
    scraper = Scraper()
    usage = scraper.scrape({})
    assert usage.whole is not None
    assert (usage.whole.cores, usage.whole.memory_bytes) == (0, 0)
    scraper.places = (place,)
    assert scraper.scrape({}).whole is None


steps = st.lists(
    st.tuples(
        st.sampled_from(["rate", "count", "none", "restart"]),
        st.floats(0, 4),
        st.floats(0.1, 120),
    ),
    max_size=20,
)


@given(steps)
def test_no_history_makes_a_burst(history: list[tuple[str, float, float]]) -> None:
    """Whatever sources, gaps and restarts there are: growth is never more than the real usage."""
    place, started, now, really = located(), START, START + 1000.0, 5_000.0
    scraper = Scraper(place)
    last: dict[float, tuple[float, float]] = {}
    for kind, cores, seconds in history:
        now += seconds
        really += 4 * seconds
        if kind == "restart":
            started, really = float(math.ceil(now)), 0.0
            now = started
            place = located(started=started)
            scraper.places = (place,)
            continue
        readings: PodReadings = {}
        if kind == "rate":
            readings = of(place, rated(now, cores, window=min(15.0, max(now - started, 0.1))))
        elif kind == "count":
            readings = of(place, counted(now, really))
        for one in scraper.scrape(readings, after=seconds).pods:
            for told in one.containers.values():
                at, before = last.get(started, (started, 0.0))
                assert told.cpu_seconds >= before
                assert told.cpu_seconds - before <= 4 * max(told.at - at, 0) + 60 + 2 * BEGINNING
                last[started] = (told.at, told.cpu_seconds)


# -- the documents --


def page_of(usage: NodeUsage | None) -> str:
    return "".join(render(resource_families(usage)))


def test_the_page_is_what_metrics_server_parses() -> None:
    """Names, labels, kinds and times are those of a kubelet's /metrics/resource."""
    place = located()
    usage = Scraper(place).scrape(of(place, rated(START + 300, 0.5, window=20)))
    name = own_container(place)
    key = ObjectKey("default", "web")
    labels = f'container="{name}",namespace="{key.namespace}",pod="{key.name}"'
    text = page_of(usage)
    at = int((START + 300) * 1000)
    for line in (
        "# TYPE container_cpu_usage_seconds_total counter",
        f"container_cpu_usage_seconds_total{{{labels}}} 10.000001 {at}",
        f"container_memory_working_set_bytes{{{labels}}} {MIB} {at}",
        f"container_start_time_seconds{{{labels}}} {int(START)}",
        "# TYPE node_cpu_usage_seconds_total counter",
        f"node_memory_working_set_bytes {MIB} {at}",
        f'pod_memory_working_set_bytes{{namespace="default",pod="web"}} {MIB} {at}',
        "resource_scrape_error 0",
    ):
        assert line in text.splitlines()
    assert "node_cpu_usage_seconds_total 10.00000" in text


def test_without_a_source_the_page_says_so() -> None:
    """Where the target lets nobody measure, the page has no usage and says that."""
    assert page_of(None).splitlines()[-1] == "resource_scrape_error 1"
    assert "usage_seconds" not in page_of(None)


def summary_with(usage: NodeUsage | None, *places: Located) -> Any:
    running = [pod for place in places if (pod := running_pod(place)) is not None]
    parts = summary_of(running, usage, node_name="edge", started_at=START)
    return json.loads(b"".join(parts))


def test_the_summary_tells_each_number_with_its_time() -> None:
    """/stats/summary has the node, its pods by their hub uids, and their containers."""
    place = located(extra="proxy")
    usage = Scraper(place).scrape(of(place, rated(START + 300, 0.5), proxy=rated(START + 300, 1)))
    summary = summary_with(usage, place)
    assert summary["node"]["nodeName"] == "edge"
    assert summary["node"]["cpu"]["usageNanoCores"] == 500_000_000
    (told,) = summary["pods"]
    assert told["podRef"] == {"name": "web", "namespace": "default", "uid": "uid-web"}
    assert [c["name"] for c in told["containers"]] == [own_container(place)]
    assert told["containers"][0]["memory"]["time"] == "2026-01-01T12:05:00Z"


def test_the_summary_has_what_runs_whether_measured_or_not() -> None:
    """A new pod is there with its start; one that ended since it was measured is not."""
    ended, new = located("ended"), located("new", started=START + 60)
    usage = Scraper(ended).scrape(of(ended, rated(START + 30, 0.5)))
    (told,) = summary_with(usage, new)["pods"]
    assert told == {
        "podRef": {"name": "new", "namespace": "default", "uid": "uid-new"},
        "startTime": instant(START + 60),
        "containers": [{"name": own_container(new), "startTime": instant(START + 60)}],
    }
    assert summary_with(None, new)["pods"] == [told]
    assert "cpu" not in summary_with(None, new)["node"]

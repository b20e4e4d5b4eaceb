"""Attacks on the kubelet API: each was a suspicion once. One thread mirrors pods beside it (C2)."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import ssl
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from typing import Any

import orjson
import pytest

from federate.errors import Forbidden, ServerFault, Throttled
from federate.kubelet import access, http, limits, sources
from federate.kubelet.answers import REASONS, Refused
from federate.kubelet.csr import self_signed
from federate.kubelet.exposition import parse_families
from federate.kubelet.limits import Admission, Limits, has_room_for_files
from federate.kubelet.paths import Kind, access_of
from federate.kubelet.ports import Caller, Unauthenticated
from federate.kubelet.running import outcome_of
from federate.kubelet.serving import build_context
from federate.kubelet.usage import MOST_WINDOW_SECONDS, parse_duration, read_pod_metrics
from federate.model.resources import TOKEN_REVIEWS
from tests.support.clock import virtual_time
from tests.support.kubeletstage import Keys, kubelet, saying, switching, until
from tests.unit.kubelet.test_access import made
from tests.unit.kubelet.test_pages import Stage as PagesStage
from tests.unit.kubelet.test_pages import metrics_of
from tests.unit.kubelet.test_serving import APPROVING, sign_it, staged
from tests.unit.kubelet.test_usage import located

LOGS = "/containerLogs/shop/web/app"
EXEC = "/exec/shop/web/app?input=1&output=1&command=sh"
SPDY = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]


async def longest_hold(work: Awaitable[Any]) -> tuple[float, Any]:
    """Return for how long others did not get their turn while it ran, and its result.

    In seconds of this process's CPU: what a busy machine gives to others in between is no hold.
    """
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            before = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - before)

    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    try:
        result = (await asyncio.gather(work, return_exceptions=True))[0]
    finally:
        looking.cancel()
    return longest, result


# -- a hostile target ------------------------------------------------------------------------------


def test_a_duration_without_end_costs_nothing() -> None:
    """Digits that no unit follows were tried in all ways in which two numbers make them up."""
    began = time.process_time()
    for text in ("1" * 100_000, "1s" * 50_000, "." * 100_000, "1" * 60 + "x"):
        assert parse_duration(text) is None
    assert time.process_time() - began < 0.5


def test_amounts_without_end_are_not_looked_at() -> None:
    item = metrics_of(located())
    [container] = item["containers"]
    for usage in ({"cpu": "9" * 200_000, "memory": "1"}, {"cpu": "1", "memory": "1" + "0" * 99}):
        container["usage"] = usage
        assert not read_pod_metrics([item])


@pytest.mark.parametrize(
    "spoilt",
    [
        {"window": f"{MOST_WINDOW_SECONDS * 2}s"},
        {"window": "9" * 60 + "h"},
        {"metadata": "none"},
        {"containers": 7},
        {"timestamp": 7},
    ],
)
def test_one_item_that_is_none_spoils_no_other(spoilt: dict[str, Any]) -> None:
    good = metrics_of(located())
    assert len(read_pod_metrics([{**good, **spoilt}, good])) == 1


LINE = (
    'container_cpu_usage_seconds_total{{container="c",cpu="total",id="/kubepods/burstable/pod1",'
    'image="nginx",name="abc",namespace="{}",pod="{}"}} 12.5 1700000000000\n'
)
STRANGERS, OURS = LINE.format("kube-system", "other"), LINE.format("hub-one", "web")


@pytest.mark.parametrize("path", ["/metrics/cadvisor", "/metrics/resource"])
@pytest.mark.parametrize(
    "filling",
    [STRANGERS, OURS, "\n", "# TYPE a b\n", "# HELP a\n"],
    ids=["strangers", "ours", "empty", "types", "helps"],
)
async def test_a_large_page_holds_up_nobody(path: str, filling: str) -> None:
    """A kubelet's page of megabytes took seconds in which no pod was mirrored."""
    stage = PagesStage(located())
    stage.target.api_failure = Forbidden("")
    most = 4 * 1024 * 1024 if filling.startswith("container") else 1024 * 1024
    stage.target.bodies[path] = filling * (most // len(filling))
    held, _page = await longest_hold(stage.pages.page(path, {}, {}))
    print(f"longest hold {held * 1000:.0f} ms")
    assert held < 0.5


@pytest.mark.parametrize("path", ["/metrics/cadvisor", "/metrics/resource"])
async def test_others_get_their_turn_while_a_page_is_read(path: str) -> None:
    """However fast the machine: after each few lines."""
    stage = PagesStage(located())
    stage.target.api_failure = Forbidden("")
    stage.target.bodies[path] = OURS * 5000
    making = asyncio.create_task(stage.pages.page(path, {}, {}))
    turns = 0
    while not making.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5000 / sources.LINES_AT_ONCE
    assert await making is not None


async def test_a_page_is_bounded_in_lines_and_in_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "MOST_KEPT_BYTES", 10_000)
    stage = PagesStage(located())
    for body in ("x" * 100_000, OURS * 100):
        stage.target.bodies["/metrics/probes"] = body
        with pytest.raises(ServerFault):
            await stage.text("/metrics/probes")
        stage.now += 100


def test_what_a_target_calls_its_families_spoils_no_page() -> None:
    """A scraper drops a page whole for one kind that it does not know."""
    [family] = [f for f in parse_families(["# TYPE a evil\r", "a 1"]) if f.samples]
    assert family.kind == "untyped"


async def test_documents_of_many_pods_are_made_once_for_all_who_ask() -> None:
    """Each of a hundred that asked at once got one of its own: tens of megabytes each."""
    places = [located(f"web-{n}") for n in range(100)]
    stage = PagesStage(*places)
    stage.target.items = [metrics_of(place) for place in places]
    for path in ("/pods", "/runningpods/", "/stats/summary", "/metrics/resource"):
        pages = await asyncio.gather(*(stage.pages.page(path, {}, {}) for _ in range(50)))
        assert len({id(page.body) for page in pages if page is not None}) == 1, path


async def test_a_measure_makes_a_new_document() -> None:
    place = located()
    stage = PagesStage(place)
    stage.target.items = [metrics_of(place)]
    before = await stage.text("/stats/summary")
    stage.now += 10
    stage.target.items[0]["containers"][0]["usage"]["memory"] = "65Mi"
    stage.target.items[0]["timestamp"] = stage.target.items[0]["timestamp"].replace(":00Z", ":30Z")
    assert await stage.text("/stats/summary") != before


class Bytes:
    """A stream of a target that says one thing, then the same without end, or ends."""

    def __init__(self, *said: bytes, forever: bytes = b"", times: int = 0) -> None:
        self.said = [*said, *[forever] * times]

    async def read(self, limit: int = 65536) -> bytes:
        return self.said.pop(0) if self.said else b""

    async def write(self, data: bytes) -> None: ...

    async def finish(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("frame", [b"\x00\x00", b"\x80\x00", b"\x8a\x00"])
async def test_empty_frames_hold_up_nobody(frame: bytes) -> None:
    """Each of a read's 32,768 empty frames had the rest copied."""
    stream = Bytes(forever=frame * 32_768, times=4)
    held, answer = await longest_hold(outcome_of(stream))
    print(f"longest hold {held * 1000:.0f} ms")
    assert isinstance(answer, ServerFault)
    assert held < 0.3


async def test_a_targets_headers_need_not_be_ascii(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = switching(("Sec-WebSocket-Protocol", "caf\xc3\xa9"))
        client = await stage.connect()
        assert (await client.ask(EXEC, "POST", headers=SPDY)).status == 101


@pytest.mark.parametrize(
    "said",
    [
        "error dialing backend: dial tcp 10.0.0.5:10250: connect: connection refused",
        'Get "https://10.0.0.5:10250/containerLogs/x": EOF',
        "error dialing backend: remote error: tls: internal error",
        "lookup worker-7.secret.example on 10.0.0.10:53: no such host",
    ],
)
async def test_addresses_of_the_target_are_in_the_log_only(
    keys: Keys, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with kubelet(keys) as stage:
        body = orjson.dumps({"kind": "Status", "message": said + "\x1b[2J"})
        stage.target.reply = saying(body, status=500)
        heard = await stage.ask(LOGS)
    assert heard.status == 500
    assert "10.0.0" not in heard.text
    assert "secret" not in heard.text
    assert "does not reach the pod's kubelet" in heard.text
    logged = capsys.readouterr().out
    assert said.split()[0] in logged
    assert "\x1b[2J" not in logged


# -- strangers, and callers without rights ---------------------------------------------------------


@virtual_time
async def test_made_up_tokens_take_few_of_the_hubs_connections() -> None:
    """Mirroring goes over the same hundred (C2); who is real waits a little instead of failing."""
    found, hub = made()
    under_way = most = 0

    async def hold() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.1)
        under_way -= 1

    hub.hold = hold
    flood = [found.authenticate(None, f"made-up-{n}") for n in range(100)]
    told = asyncio.gather(*flood, return_exceptions=True)
    await asyncio.sleep(0.01)
    hub.whose = lambda spec: {"authenticated": True, "user": {"username": "real"}}
    assert (await found.authenticate(None, "real")).user == "real"
    kinds = {type(one) for one in await told}
    assert Throttled not in kinds
    assert kinds <= {Unauthenticated, Caller}
    assert most == access.AT_ONCE
    assert hub.count(TOKEN_REVIEWS) == 101


def test_made_up_methods_are_no_new_questions() -> None:
    """Each was a verb of its own: a caller without rights could ask the hub without end."""
    asked = {access_of(f"VERB{n}", "/pods") for n in range(1000)} | {access_of("*", "/pods")}
    assert len(asked) == 1
    [(first, *_)] = asked
    assert first.verb == "create"


async def test_a_header_byte_by_byte_is_cut(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that came was looked through again with each byte: a second for each connection."""
    monkeypatch.setattr(http, "MOST_READS", 100)
    async with kubelet(keys, limits=Limits(header_seconds=60.0, linger_seconds=0.02)) as stage:
        client = await stage.connect(anonymous=True)
        sent = 0

        async def drip() -> None:
            nonlocal sent
            client.send(b"GET /healthz HTTP/1.1\r\nHost: node\r\nX: ")
            while not client.writer.is_closing() and sent < 20_000:
                client.send(b"x")
                sent += 1
                await asyncio.sleep(0)
                await asyncio.sleep(0.0002)

        dripping = asyncio.create_task(drip())
        assert (await client.hear()).status == 431
        dripping.cancel()
        print(f"cut after {sent} bytes")
        assert await stage.is_well()


async def test_a_crowd_goes_through_one_by_one() -> None:
    """What mirrors pods gets a turn after each; who has a certificate is not behind it."""
    admission = Admission(Limits())
    through: list[str] = []

    async def go(name: str) -> None:
        await admission.turn(name)
        through.append(name)

    with ExitStack() as held:
        crowd = [f"stranger-{n}" for n in range(50)]
        for name in [*crowd, "recognised", "proven"]:
            held.enter_context(admission.connection(name, lambda: None))
        admission.recognise("recognised")
        admission.prove("proven", "api")
        async with asyncio.TaskGroup() as group:
            for name in [*crowd, "recognised", "proven"]:
                group.create_task(go(name))
            rounds = 0
            while len(through) < 52:
                before = len(through)
                await asyncio.sleep(0)
                rounds += 1
                assert len(through) - before <= 3
    assert [name for name in through if name in crowd] == crowd
    assert {"recognised", "proven"} <= set(through[:5])
    assert rounds >= 50


def test_one_namespace_does_not_take_all_streams() -> None:
    """All users of a hub come as its API server: only namespaces tell them apart."""
    admission = Admission(Limits(streams=10, streams_of_caller=9, streams_of_namespace=2))
    with admission.stream("api", "greedy"), admission.stream("api", "greedy"):
        with pytest.raises(Refused) as refused, admission.stream("api", "greedy"):
            pass
        assert refused.value.answer.status == 429
        with admission.stream("api", "other"):
            assert admission.streams == 3
    with admission.stream("api", "greedy"):
        assert admission.streams == 1


async def test_labels_of_metrics_come_from_closed_sets(keys: Keys) -> None:
    """Neither who asks nor a target makes up new ones."""
    async with kubelet(keys) as stage:
        for number, status in enumerate((200, 299, 418, 500, 599, 999)):
            stage.target.reply = saying(b"x", status=status)
            await stage.ask(f"/path-{number}", f"METHOD{number}")
            await stage.ask(EXEC, "POST", headers=SPDY)
        known = {str(kind) for kind in Kind}
        assert {str(kind) for kind, _code in stage.counts.requests} <= known
        assert {code for _kind, code in stage.counts.requests} <= {101, *REASONS}


# -- open files ------------------------------------------------------------------------------------


@contextmanager
def room_for(files: int) -> Iterator[None]:
    """Let this process open so many more files, whatever gaps earlier tests left in the numbers."""
    gc.collect()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    with ExitStack() as gaps:
        while (last := gaps.enter_context(open("/dev/null")).fileno()) <= highest:
            pass
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1 + files, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def rooms_seen() -> list[bool]:
    """Say whether there is room with two files more, with four, and with none again."""
    limits.KEPT_FILES = 3
    with room_for(6), ExitStack() as held:
        seen = []
        for _ in range(2):
            for _ in range(2):
                held.enter_context(open("/dev/null"))
            seen.append(has_room_for_files())
        held.close()
        return [*seen, has_room_for_files()]


def test_mirroring_keeps_files_for_itself() -> None:
    """In a process of its own: whatever earlier tests left open may be closed at any moment."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        assert alone.submit(rooms_seen).result(60.0) == [True, False, True]


def test_where_files_are_few_a_new_stranger_takes_an_old_ones_place() -> None:
    is_full = False
    admission = Admission(Limits(), has_files=lambda: not is_full)
    gone: list[str] = []
    with admission.connection("old", lambda: gone.append("old")):
        is_full = True
        with admission.connection("new", lambda: gone.append("new")):
            assert gone == ["old"]
            admission.prove("new", "api")
            with pytest.raises(Refused), admission.connection("third", lambda: None):
                pass
            with pytest.raises(Refused), admission.stream("api", "shop"):
                pass
            is_full = False
            with admission.connection("third", lambda: None), admission.stream("api", "shop"):
                pass


async def test_a_flood_of_connections_leaves_files(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real server: whoever mirrors can open so many more at any time."""
    monkeypatch.setattr(limits, "KEPT_FILES", 100)
    async with kubelet(keys) as stage:
        assert (await stage.ask("/healthz")).status == 200
        with room_for(200):
            # The clients are in this process too, and may take what is kept.
            raw = [await stage.connect_raw() for _ in range(60)]
            await until(lambda: stage.server.admission.connections < 60)
            more = [os.open(os.devnull, os.O_RDONLY) for _ in range(70)]
            for file in more:
                os.close(file)
            for client in raw:
                client.close()
        assert await stage.is_well()


# -- certificates ----------------------------------------------------------------------------------


@virtual_time
async def test_certificates_that_are_due_at_once_are_no_flood_of_requests() -> None:
    """A signer ends what it signs with its own authority: the last are due when they are made."""
    async with staged(APPROVING) as stage:
        for _ in range(600):
            for request in stage.hub.requests():
                if "certificate" not in request.get("status", {}):
                    sign_it(stage, request, hours=0.01)
            await asyncio.sleep(1)
        print(f"{len(stage.hub.requests())} requests in ten minutes")
        assert len(stage.hub.requests()) <= 11


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, session: Any) -> ssl.SSLObject:
    """Connect in memory, and let the client hear what comes after the handshake."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(up, down, server_side=True)
    theirs = client.wrap_bio(down, up, server_hostname="edge", session=session)
    for side in (theirs, ours) * 4:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    ours.write(b"hello")
    assert theirs.read(5) == b"hello"
    return theirs


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_taken_up_again(version: ssl.TLSVersion) -> None:
    """Its client was verified at another time; and what is kept for strangers would add up."""
    pair = self_signed(node_name="edge", names=frozenset({"edge"}), now=time.time())
    server = build_context(pair, "")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = version
    first = shake_hands(server, client, None)
    assert first.session is None or not first.session.has_ticket
    assert not shake_hands(server, client, first.session).session_reused
    assert server.session_stats()["number"] == 0


# -- what a mirror is now --------------------------------------------------------------------------


async def test_a_stream_is_opened_to_the_mirror_that_is_seen_at_that_moment(keys: Keys) -> None:
    """Nothing that is waited for lies between the look at the mirror and the call."""
    async with kubelet(keys) as stage:
        client = await stage.connect()
        stage.target.waits = asyncio.Event()
        asking = asyncio.create_task(client.ask(LOGS))
        await until(lambda: bool(stage.target.calls))
        stage.pods.held.clear()
        stage.target.waits.set()
        assert (await asking).status == 200
        assert (await client.ask(LOGS)).status == 404
        assert len(stage.target.calls) == 1

"""What a request to the kubelet API asks for."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.kubelet.paths import (
    HealthRequest,
    Kind,
    PageRequest,
    PodRequest,
    Refusal,
    access_of,
    call_of,
    kind_of,
    read,
    shown,
)
from federate.kubelet.ports import NodeAccess
from federate.model.objects import ObjectKey

MIRROR = ObjectKey("hub-shop", "web-mirror")
STDOUT = (("stdin", "false"), ("stdout", "true"), ("stderr", "false"), ("tty", "false"))


def asked(target: str, method: str = "GET", *, websocket: bool = False) -> PodRequest:
    request = read(method, target, websocket=websocket)
    assert isinstance(request, PodRequest), request
    return request


def refused(target: str, method: str = "GET", *, websocket: bool = False) -> Refusal:
    refusal = read(method, target, websocket=websocket)
    assert isinstance(refusal, Refusal), refusal
    return refusal


# -- access ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "verb", "subresources"),
    [
        ("GET", "/containerLogs/shop/web/app", "get", ["proxy"]),
        ("POST", "/exec/shop/web/app?command=ls", "create", ["proxy"]),
        ("GET", "/exec/shop/web/app?command=ls", "create", ["proxy"]),
        ("GET", "/attach/shop/web/app", "create", ["proxy"]),
        ("GET", "/portForward/shop/web", "create", ["proxy"]),
        ("GET", "/run/shop/web/app", "create", ["proxy"]),
        ("GET", "/pods", "get", ["pods", "proxy"]),
        ("HEAD", "/pods/", "get", ["pods", "proxy"]),
        ("GET", "/runningpods/", "get", ["pods", "proxy"]),
        ("GET", "/healthz", "get", ["healthz", "proxy"]),
        ("GET", "/healthz/ping", "get", ["healthz", "proxy"]),
        ("GET", "/configz", "get", ["configz", "proxy"]),
        ("GET", "/stats/summary?only_cpu_and_memory=true", "get", ["stats"]),
        ("GET", "/metrics", "get", ["metrics"]),
        ("GET", "/metrics/cadvisor", "get", ["metrics"]),
        ("GET", "/logs/syslog", "get", ["log"]),
        ("GET", "/nothing", "get", ["proxy"]),
        ("GET", "/", "get", ["proxy"]),
        ("DELETE", "/pods", "delete", ["pods", "proxy"]),
        ("PUT", "/x", "update", ["proxy"]),
        ("PATCH", "/x", "patch", ["proxy"]),
        ("OPTIONS", "/x", "create", ["proxy"]),
    ],
)
def test_the_rights_are_a_kubelets(
    method: str, target: str, verb: str, subresources: list[str]
) -> None:
    """Each path needs what a kubelet asks for; to enter a container it is always `create`."""
    assert access_of(method, target) == tuple(NodeAccess(verb, one) for one in subresources)


@pytest.mark.parametrize(
    "target",
    [
        "/metrics/../exec/shop/web/app",
        "/metrics/%2e%2e/exec/shop/web/app",
        "/metrics//x",
        "//metrics",
        "/metrics/%2f",
        "/%6detrics",
        "/metricsx",
        "/Metrics",
        "/stats%2fsummary",
        "metrics",
        "/metrics/%zz",
    ],
)
def test_a_path_that_only_looks_lesser_needs_the_whole_right(target: str) -> None:
    """No trick turns nodes/metrics into more."""
    assert access_of("GET", target) == (NodeAccess("get", "proxy"),)
    assert isinstance(read("GET", target), Refusal)


# -- paths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/containerLogs/shop/../kube-system/etcd/etcd",
        "/containerLogs/shop/%2e%2e/etcd",
        "/containerLogs/shop/%2E./etcd",
        "/containerLogs/shop/./web/app",
        "/containerLogs/shop//web/app",
        "//containerLogs/shop/web/app",
        "/containerLogs/shop/web%2fapp/app",
        "/containerLogs/shop/web%5capp/app",
        "/containerLogs/shop/web%00/app",
        "/containerLogs/shop/web%0d%0aX/app",
        "/containerLogs/shop/web%/app",
        "/containerLogs/shop/web%2/app",
        "/containerLogs/shop/web%zz/app",
        "/containerLogs/shop/web%ff/app",
        "/containerLogs/shop/web%c0%af/app",
        "/containerLogs/shop/web%e2%80%ae/app",
        "/containerLogs/shop/web%23/app",
        "http://hub/containerLogs/shop/web/app",
        "*",
        "",
    ],
)
def test_a_path_that_others_might_read_otherwise_is_refused(target: str) -> None:
    """Dots, encoded slashes, NUL, cut and overlong escapes: none is mended, all are refused."""
    assert refused(target).status == 400


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/nothing",
        "/containerLogs",
        "/containerLogs/shop/web",
        "/containerLogs/shop/web/uid/app",
        "/exec/shop/web",
        "/exec/shop/web/uid/app/more",
        "/portForward/shop",
        "/portForward/shop/web/uid/more",
        "/stats",
        "/logs/",
        "/debug/pprof/heap",
        "/healthz/unknown",
        "/metrics/unknown",
        "/pods/shop",
    ],
)
def test_what_is_nowhere_is_404(target: str) -> None:
    assert refused(target).status == 404


def test_an_escape_that_hides_nothing_is_a_letter() -> None:
    assert asked("/containerLogs/shop/we%62/app").pod == ObjectKey("shop", "web")


def test_an_escape_is_undone_once() -> None:
    """What is encoded twice stays a strange name, which no pod has."""
    assert asked("/containerLogs/shop/%252e%252e/app").pod.name == "%2e%2e"


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("POST", "/containerLogs/shop/web/app", ("GET",)),
        ("HEAD", "/containerLogs/shop/web/app", ("GET",)),
        ("PUT", "/exec/shop/web/app", ("GET", "POST")),
        ("HEAD", "/exec/shop/web/app", ("GET", "POST")),
        ("POST", "/pods", ("GET", "HEAD")),
        ("DELETE", "/healthz", ("GET", "HEAD")),
    ],
)
def test_a_method_that_does_not_fit_is_405(
    method: str, target: str, allow: tuple[str, ...]
) -> None:
    refusal = refused(target, method)
    assert (refusal.status, refusal.allow) == (405, allow)


@pytest.mark.parametrize(
    ("target", "kind", "path"),
    [
        ("/pods", Kind.PODS, "/pods"),
        ("/pods/", Kind.PODS, "/pods"),
        ("/runningpods/", Kind.PODS, "/runningpods"),
        ("/stats/summary", Kind.STATS, "/stats/summary"),
        ("/metrics", Kind.METRICS, "/metrics"),
        ("/metrics/resource", Kind.METRICS, "/metrics/resource"),
        ("/metrics/cadvisor", Kind.METRICS, "/metrics/cadvisor"),
        ("/metrics/probes", Kind.METRICS, "/metrics/probes"),
        ("/configz", Kind.OTHER, "/configz"),
    ],
)
def test_pages_are_told_by_their_path(target: str, kind: Kind, path: str) -> None:
    assert read("GET", target) == PageRequest(kind, path, {})


def test_a_page_has_a_query() -> None:
    page = read("HEAD", "/stats/summary?only_cpu_and_memory=true&a=1&a=2")
    assert isinstance(page, PageRequest)
    assert page.query == {"only_cpu_and_memory": "true", "a": "2"}
    assert refused("/stats/summary?%zz").status == 400


@pytest.mark.parametrize("target", ["/healthz", "/healthz/", "/healthz/ping", "/healthz/syncloop"])
def test_health_is_asked_for(target: str) -> None:
    assert read("GET", target) == HealthRequest()


def test_uids_stand_where_a_kubelet_takes_them() -> None:
    request = asked("/exec/shop/web/6f-1/app?output=1&command=ls", "POST")
    assert (request.uid, request.container) == ("6f-1", "app")
    request = asked("/portForward/shop/web/6f-1", "POST")
    assert (request.uid, request.container) == ("6f-1", "")


@given(st.text())
def test_any_target_is_read_or_refused(target: str) -> None:
    """Nothing raises, and what is read never has a way out of its path."""
    found = read("GET", target)
    access_of("GET", target)
    kind_of(target)
    if isinstance(found, PodRequest):
        assert "/" not in found.pod.name + found.pod.namespace + found.container + found.uid
        assert found.pod.name not in ("", ".", "..")


@given(
    st.lists(
        st.sampled_from(
            ["..", ".", "", "%2e%2e", "%2F", "exec", "metrics", "shop", "web", "app", "%00", "\\"]
        ),
        max_size=6,
    )
)
def test_no_mix_of_tricks_leads_out(parts: list[str]) -> None:
    """Whatever is a pod request is one as it stands, and needs the whole right."""
    target = "/" + "/".join(parts)
    found = read("GET", target)
    if isinstance(found, PodRequest):
        assert not {"..", ".", "%2e%2e", "%2F", "%00", "\\"} & set(parts)
        assert access_of("GET", target)[0].subresource == "proxy"
    if access_of("GET", target) == (NodeAccess("get", "metrics"),):
        assert isinstance(found, (PageRequest, Refusal))


# -- logs ------------------------------------------------------------------------------------------

LOGS = "/containerLogs/shop/web/app"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ()),
        ("follow=true", (("follow", "true"),)),
        ("follow=1&previous=false&timestamps=0", (("follow", "true"),)),
        ("follow=", (("follow", "true"),)),
        ("follow=False", ()),
        ("previous=true&timestamps=true", (("previous", "true"), ("timestamps", "true"))),
        ("tailLines=0", (("tailLines", "0"),)),
        ("tailLines=10&tailLines=x", (("tailLines", "10"),)),
        ("tail=10", (("tailLines", "10"),)),
        ("tail=all&tailLines=5", ()),
        ("limitBytes=1", (("limitBytes", "1"),)),
        ("sinceSeconds=5", (("sinceSeconds", "5"),)),
        (
            "sinceTime=2026-11-30T06:00:00Z",
            (("sinceTime", "2026-11-30T06:00:00Z"),),
        ),
        (
            "sinceTime=2026-11-30T06%3A00%3A00.123%2B01%3A00",
            (("sinceTime", "2026-11-30T06:00:00.123+01:00"),),
        ),
        ("stream=All&tailLines=3", (("tailLines", "3"),)),
        ("stream=Stderr", (("stream", "Stderr"),)),
        ("unknown=1&container=other&insecureSkipTLSVerifyBackend=true", ()),
        ("&&", ()),
    ],
)
def test_log_options_are_said_anew(query: str, expected: tuple[tuple[str, str], ...]) -> None:
    """Every option of `kubectl logs` passes; what is no option does not, nor another container."""
    assert asked(f"{LOGS}?{query}").query == expected


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("tailLines=-1", 422),
        ("tail=-1", 422),
        ("limitBytes=0", 422),
        ("sinceSeconds=0", 422),
        ("sinceSeconds=-5", 422),
        ("sinceSeconds=5&sinceTime=2026-11-30T06:00:00Z", 422),
        ("stream=stdout", 422),
        ("stream=Stdout&tailLines=1", 422),
        ("tailLines=ten", 400),
        ("tailLines=9223372036854775808", 400),
        ("tailLines=" + "1" * 5000, 400),
        ("tailLines=%D9%A1", 400),
        ("sinceTime=yesterday", 400),
        ("sinceTime=2026-11-30T06:00:00", 400),
        ("sinceTime=2026-11-30T06:00:00Z%26container=x", 400),
        ("a=%zz", 400),
        ("a=%ff", 400),
        ("a=%00", 400),
        ("a=1;b=2", 400),
        ("&".join(["a"] * 20_000), 400),
    ],
)
def test_log_options_are_checked_as_on_a_kubelet(query: str, status: int) -> None:
    assert refused(f"{LOGS}?{query}").status == status


# -- exec, attach ----------------------------------------------------------------------------------


def test_streams_are_named_as_the_api_names_them() -> None:
    request = asked("/exec/shop/web/app?input=1&output=1&error=1&command=sh&command=-c", "POST")
    assert request.query == (
        ("stdin", "true"),
        ("stdout", "true"),
        ("stderr", "true"),
        ("tty", "false"),
        ("command", "sh"),
        ("command", "-c"),
    )


def test_a_terminal_has_no_stderr() -> None:
    request = asked("/attach/shop/web/app?input=1&output=1&error=1&tty=1", "POST")
    assert dict(request.query) == {
        "stdin": "true",
        "stdout": "true",
        "stderr": "false",
        "tty": "true",
    }


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/exec/shop/web/app?command=ls", "at least 1 of stdin, stdout, stderr"),
        ("/exec/shop/web/app?output=true&command=ls", "at least 1 of stdin, stdout, stderr"),
        ("/attach/shop/web/app?tty=1", "at least 1 of stdin, stdout, stderr"),
        ("/attach/shop/web/app?tty=1&error=1", "at least 1 of stdin, stdout, stderr"),
        ("/exec/shop/web/app?output=1", "specify a command"),
        ("/run/shop/web/app", "specify a command"),
    ],
)
def test_streams_are_checked_as_on_a_kubelet(target: str, words: str) -> None:
    refusal = refused(target, "POST")
    assert refusal.status == 400
    assert words in refusal.text


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1)
)
def test_a_command_arrives_word_for_word(command: list[str]) -> None:
    """Blanks, quotes, percent signs, ampersands and empty words."""
    query = urlencode([("output", "1"), *(("command", word) for word in command)])
    request = asked(f"/exec/shop/web/app?{query}", "POST")
    assert request.query == (*STDOUT, *(("command", word) for word in command))


def test_a_command_is_not_shown() -> None:
    """It may hold a password, and records are printed in tracebacks."""
    request = asked("/exec/shop/web/app?output=1&command=hunter2", "POST")
    assert "hunter2" not in repr(request)
    assert "hunter2" not in repr(call_of(request, MIRROR))


def test_run_has_its_command_in_one_text() -> None:
    request = asked("/run/shop/web/app?cmd=ls+-l+%2Ftmp", "POST")
    assert request.query[-3:] == (("command", "ls"), ("command", "-l"), ("command", "/tmp"))
    assert call_of(request, MIRROR).method == "GET"


# -- port-forward ----------------------------------------------------------------------------------


def test_ports_of_websocket_clients_are_said_anew() -> None:
    request = asked("/portForward/shop/web?port=80,443&port=65535", websocket=True)
    assert request.query == (("ports", "80"), ("ports", "443"), ("ports", "65535"))


def test_ports_of_spdy_clients_are_in_their_streams() -> None:
    assert asked("/portForward/shop/web?port=x", "POST").query == ()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "port=",
        "port=0",
        "port=65536",
        "port=-1",
        "port=80,",
        "port=http",
        "port=%D9%A1",
        "port=" + ",".join(["1"] * 300),
    ],
)
def test_ports_are_checked(query: str) -> None:
    assert refused(f"/portForward/shop/web?{query}", websocket=True).status == 400


# -- to the target ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "subresource"),
    [
        ("/containerLogs/shop/web/app?follow=1", "log"),
        ("/exec/shop/web/app?output=1&command=ls", "exec"),
        ("/attach/shop/web/app?output=1", "attach"),
    ],
)
def test_the_target_is_asked_about_the_mirror(target: str, subresource: str) -> None:
    """The path is made of the mirror's key alone, the container is the one that was looked up."""
    call = call_of(asked(target), MIRROR, [("upgrade", "websocket")])
    assert call.path == f"/api/v1/namespaces/hub-shop/pods/web-mirror/{subresource}"
    assert [value for name, value in call.query if name == "container"] == ["app"]
    assert call.headers == (("upgrade", "websocket"),)


def test_a_port_forward_names_no_container() -> None:
    call = call_of(asked("/portForward/shop/web", "POST"), MIRROR)
    assert (call.method, call.query) == ("POST", ())


def test_a_query_cannot_choose_another_container() -> None:
    """Also not by a name that is put behind the one in the path."""
    target = f"/exec/shop/web/app?output=1&command=ls&container=other&{quote('container')}=x"
    call = call_of(asked(target, "POST"), MIRROR)
    assert [value for name, value in call.query if name == "container"] == ["app"]


def test_names_are_shown_without_what_a_terminal_obeys() -> None:
    assert shown("\x1b[2Jweb\u202e") == '"?[2Jweb?"'
    assert len(shown("x" * 5000)) < 300

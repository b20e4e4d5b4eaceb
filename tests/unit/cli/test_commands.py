"""Whole commands against an API server of canned answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from federate.cli import main
from federate.model.marks import Origin, Scope
from federate.model.objects import JsonDict, ObjectKey
from federate.node.probe import changed_message
from tests.support.builders import pod

Captured = pytest.CaptureFixture[str]

ORIGIN = Origin(
    scope=Scope(hub_id="hub-uid", node_name="edge"), pod=ObjectKey("shop", "a"), pod_uid="a-uid"
)
MIRROR = pod("a").with_uid("mirror-uid").with_labels(ORIGIN.labels())
NODE: JsonDict = {
    "metadata": {"name": "edge", "annotations": {"federate.dev/hub": "hub-uid"}},
    "status": {"allocatable": {"pods": "50"}},
}
HUB_ANSWERS: JsonDict = {
    "/api/v1/nodes": {"kind": "NodeList", "items": [NODE]},
    "/api/v1/pods": {"kind": "PodList", "items": []},
    "/api/v1/namespaces/kube-system": {"metadata": {"name": "kube-system", "uid": "hub-uid"}},
}
MIRRORS = [MIRROR.with_annotations(ORIGIN.annotations()).build()]
TARGET_ANSWERS: JsonDict = {
    "/api/v1/pods": {"kind": "PodList", "items": MIRRORS},
    "/api/v1/configmaps": {"kind": "ConfigMapList", "items": []},
    "/api/v1/namespaces/default/pods/a": MIRRORS[0],
}


class Canned(BaseHTTPRequestHandler):
    """Answers GET and DELETE of known paths, and notes what was deleted."""

    answers: JsonDict
    deleted: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = path in self.answers
        body = self.answers.get(path, {"kind": "Status", "code": 404, "reason": "NotFound"})
        self._answer(200 if found else 404, body)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.deleted.append(self.path.partition("?")[0])
        self._answer(200, {"kind": "Status"})

    def _answer(self, status: int, body: JsonDict) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def kubeconfig(file: Path, port: int) -> str:
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "x", "context": {"cluster": "c"}}
    content = {"current-context": "x", "clusters": [cluster], "contexts": [context]}
    file.write_text(json.dumps(content))
    return str(file)


Serve = Callable[[JsonDict], tuple[str, list[str]]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve answers; returns the kubeconfig to them and the list of what gets deleted."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answers: JsonDict) -> tuple[str, list[str]]:
        deleted: list[str] = []
        handler = type("Answers", (Canned,), {"answers": answers, "deleted": deleted})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
        thread.start()
        servers.append((server, thread))
        file = tmp_path / f"{len(servers)}.yaml"
        return kubeconfig(file, server.server_address[1]), deleted

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def test_status_prints_a_table_or_json(serve: Serve, capsys: Captured) -> None:
    """`federate status` shows the hub's virtual nodes to people and to programs."""
    hub, _ = serve(HUB_ANSWERS)
    assert main(["status", "--hub", hub]) == 0
    assert "edge" in capsys.readouterr().out
    assert main(["status", "--hub", hub, "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [node["name"] for node in shown["nodes"]] == ["edge"]


def test_a_dry_run_deletes_nothing(serve: Serve, capsys: Captured) -> None:
    """`federate sweep --dry-run` only shows."""
    (hub, _), (target, deleted) = serve(HUB_ANSWERS), serve(TARGET_ANSWERS)
    assert main(["sweep", "--hub", hub, "--target", f"edge={target}", "--dry-run"]) == 0
    assert "default/a" in capsys.readouterr().out
    assert deleted == []


def test_a_sweep_deletes_when_told_so(serve: Serve, capsys: Captured) -> None:
    """`federate sweep --yes` deletes the orphans and says so."""
    (hub, _), (target, deleted) = serve(HUB_ANSWERS), serve(TARGET_ANSWERS)
    assert main(["sweep", "--hub", hub, "--target", f"edge={target}", "--yes"]) == 0
    assert "[1/1] default/a: deleted" in capsys.readouterr().out
    assert deleted == ["/api/v1/namespaces/default/pods/a"]


def test_accepting_a_cluster_needs_a_person_or_yes(serve: Serve, capsys: Captured) -> None:
    """`federate accept` shows what it means; in a script it needs --yes."""
    message = changed_message(node_name="edge", recorded="old-uid", found="new-uid")
    condition = {"type": "federate.dev/TargetReachable", "status": "False", "message": message}
    conditions = [{**condition, "reason": "TargetChanged"}]
    changed = {**NODE, "status": {"conditions": conditions}}
    hub, _ = serve({**HUB_ANSWERS, "/api/v1/nodes/edge": changed})
    assert main(["accept", "edge", "--hub", hub]) == 2
    shown = capsys.readouterr()
    assert "new-uid" in shown.out
    assert "expected --yes" in shown.err


def test_without_a_terminal_nobody_can_confirm(serve: Serve, capsys: Captured) -> None:
    """In a script a sweep needs --yes; without it nothing is deleted."""
    (hub, _), (target, deleted) = serve(HUB_ANSWERS), serve(TARGET_ANSWERS)
    assert main(["sweep", "--hub", hub, "--target", f"edge={target}"]) == 2
    assert "expected --yes" in capsys.readouterr().err
    assert deleted == []


def test_the_file_of_a_run_is_enough(serve: Serve, tmp_path: Path, capsys: Captured) -> None:
    """`--config` tells each command where hub and target are."""
    (hub, _), (target, deleted) = serve(HUB_ANSWERS), serve(TARGET_ANSWERS)
    file = tmp_path / "federation.yaml"
    content = {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": hub},
        "virtualNodes": [{"nodeName": "edge", "target": {"kubeconfig": target}}],
    }
    file.write_text(json.dumps(content))
    assert main(["status", "--config", str(file)]) == 0
    assert "edge" in capsys.readouterr().out
    assert main(["sweep", "--config", str(file), "--yes"]) == 0
    assert deleted == ["/api/v1/namespaces/default/pods/a"]
    assert main(["accept", "edge", "--config", str(file)]) == 1
    assert "get Node edge at hub" in capsys.readouterr().err  # these answers have none


def test_a_taken_port_ends_run_before_it_begins(tmp_path: Path, capsys: Captured) -> None:
    """`federate run` says that its port is taken, with exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        hub = kubeconfig(tmp_path / "hub.yaml", port)
        arguments = ["run", "--hub", hub, "--target", f"edge={hub}"]
        assert main([*arguments, "--listen", f"127.0.0.1:{port}"]) == 2
    captured = capsys.readouterr()
    assert "kubernetes.io/hostname: edge" in captured.out
    assert f"federate: --listen: 127.0.0.1:{port} is taken by another process" in captured.err


def test_stopping_says_what_stays(tmp_path: Path) -> None:
    """SIGTERM ends `federate run` well even while the hub does not answer."""
    hub = kubeconfig(tmp_path / "hub.yaml", 1)
    command = [sys.executable, "-m", "federate", "run", "--hub", hub, "--target", f"edge={hub}"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stderr is not None
        assert "health and metrics" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate()
        assert process.returncode == 0
    assert "Nothing is deleted: Node edge and the mirrors stay" in told

"""The witness: watches the pods of clusters and prints a line whenever one changes in what counts.

A process of its own, started as `python -m e2e.bench.witness`, with one argument per cluster (see
`Watched`). It ends when its standard input does, or with an error when a watch broke: a witness
that may have missed something is none. It reads the raw stream and decodes each event once, so that
it costs the machine little, and the same in all arms. Times are on the monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

CHUNK_BYTES = 1 << 18
PRIORITY = -10
WATCH_SECONDS = 24 * 3600
"""Longer than any benchmark: API servers end watches after some minutes by default."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One cluster to watch, as it stands in an argument: fields joined by commas."""

    name: str
    port: int
    authority: str
    certificate: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Watched:
        """Read an argument."""
        name, port, authority, certificate, key = text.split(",")
        return cls(name, int(port), authority, certificate, key)

    def format(self) -> str:
        """Render as an argument."""
        return ",".join((self.name, str(self.port), self.authority, self.certificate, self.key))


@dataclass(frozen=True, slots=True)
class PodState:
    """What counts of a pod."""

    node: str = ""
    is_ready: bool = False
    is_terminating: bool = False
    restarts: int = 0


GONE = PodState(node="-", is_terminating=True)


def state_of(pod: dict[str, Any]) -> PodState:
    """Read what counts of a pod."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    return PodState(
        node=pod["spec"].get("nodeName", ""),
        is_ready=any(
            c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()
        ),
        is_terminating="deletionTimestamp" in pod["metadata"],
        restarts=containers[0].get("restartCount", 0) if containers else 0,
    )


class ClusterWatch:
    """The pods of one cluster from now on."""

    def __init__(self, watched: Watched, output: Output) -> None:
        self._watched = watched
        self._output = output
        self._known: dict[str, PodState] = {}

    def run(self) -> None:
        """List, then watch for ever."""
        listing = orjson.loads(b"".join(self._get("/api/v1/pods")))
        for pod in listing["items"]:
            self._note(pod, gone=False)
        self._output.line(self._watched.name, "listed", "", "", PodState())
        version = listing["metadata"]["resourceVersion"]
        while True:
            # API servers end the watch of a slow reader; from its last version nothing is missed.
            version = self._watch(version)

    def _watch(self, version: str) -> str:
        """Watch from a version until the watch ends; returns the last version seen."""
        path = f"/api/v1/pods?watch=1&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        rest = b""
        for chunk in self._get(path):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = orjson.loads(line)
                if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                    raise RuntimeError(f"the watch of {self._watched.name} brought {event}")
                self._note(event["object"], gone=event["type"] == "DELETED")
                version = event["object"]["metadata"]["resourceVersion"]
        return version

    def _note(self, pod: dict[str, Any], *, gone: bool) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        before = self._known.get(uid)
        state = GONE if gone else state_of(pod)
        if state == before:
            return
        if gone:
            self._known.pop(uid, None)
        else:
            self._known[uid] = state
        self._output.line(
            self._watched.name, "gone" if gone else "is", uid, metadata["name"], state
        )

    def _get(self, path: str) -> Iterator[bytes]:
        watched = self._watched
        context = ssl.create_default_context(cafile=watched.authority)
        context.load_cert_chain(watched.certificate, watched.key)
        connection = http.client.HTTPSConnection("127.0.0.1", watched.port, context=context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise RuntimeError(f"{watched.name} answered {path} with {response.status}")
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        finally:
            connection.close()


class Output:
    """Lines of JSON on standard output, from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def line(self, cluster: str, what: str, uid: str, name: str, state: PodState) -> None:
        """Print one line; its order is `watching.Sighting`'s."""
        at = time.monotonic()
        values = [at, cluster, what, uid, name]
        values += [state.node, state.is_ready, state.is_terminating, state.restarts]
        with self._lock:
            os.write(sys.stdout.fileno(), orjson.dumps(values) + b"\n")


def main() -> None:
    """Watch what the arguments name until standard input ends."""
    # Late reading would be measured as lateness of what is watched. Not everybody may do this.
    with suppress(PermissionError):
        os.nice(PRIORITY)
    output = Output()
    watches = [ClusterWatch(Watched.parse(text), output) for text in sys.argv[1:]]

    def watch(cluster: ClusterWatch) -> None:
        try:
            cluster.run()
        except BrokenPipeError:
            pass  # nobody listens any more
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)

    for cluster in watches:
        threading.Thread(target=watch, args=(cluster,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()

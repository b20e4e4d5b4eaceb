"""How much memory hub pods and mirrors take while they stand; run it in a process of its own.

`python -m tests.support.memory PAIRS` prints the bytes by which the process grows for each pair,
once caches are full, and the bytes of the pair's JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from resource import getpagesize
from uuid import UUID

import orjson

from federate.cluster.port import WatchEvent
from federate.cluster.store import Store
from federate.mirror.render import render_mirror
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, Origin
from federate.model.objects import JsonDict, ObjectKey
from federate.runtime.mirroring import store_of_hub_pods, store_of_mirrors
from tests.support.builders import pod
from tests.support.scene import RULES, SCOPE, TARGET_NAMESPACE

FULL_AFTER = 300
"""Pairs after which what is bounded has grown as large as it gets."""

VERSIONS = 4
"""Events of each object, on its way to Running."""


def main(pairs: int) -> None:
    """Measure and print."""
    stores = store_of_hub_pods(), store_of_mirrors()
    feed(stores, range(FULL_AFTER))
    before = resident_bytes()
    feed(stores, range(FULL_AFTER, FULL_AFTER + pairs))
    print((resident_bytes() - before) // pairs, sum(map(len, pair(0))))


def feed(stores: tuple[Store, Store], numbers: Iterable[int]) -> None:
    """Let the stores hear of pods as their watches would."""
    for number in numbers:
        for store, wire in zip(stores, pair(number), strict=True):
            for version in range(VERSIONS):
                store.apply(WatchEvent(type="MODIFIED", object=received(wire, version)))


def received(wire: bytes, version: int) -> JsonDict:
    """Read an object from the wire; half of what comes is about who manages which field."""
    obj: JsonDict = orjson.loads(wire)
    obj["metadata"]["resourceVersion"] = f"{version}"
    obj["metadata"]["managedFields"] = orjson.loads(wire)
    return obj


def pair(number: int) -> tuple[bytes, bytes]:
    """Make a hub pod and its mirror, both of them running, as they come from the wire."""
    name, uids = f"web-5d4c8f9b7-{number:05}", tuple(uids_of(number))
    hub_pod = pod(name).with_uid(uids[0]).bound_to(SCOPE.node_name).running().build()
    key, mirror_key = ObjectKey("default", name), ObjectKey(TARGET_NAMESPACE, name)
    mirror = render_mirror(
        hub_pod,
        origin=Origin(scope=SCOPE, pod=key, pod_uid=uids[0]),
        mirror=mirror_key,
        anchor={"metadata": {"name": "anchor", "uid": "anchor-uid"}},
        rules=RULES.render,
    )
    mirror = {**mirror, "status": hub_pod["status"]}
    mirror["metadata"] |= {"uid": uids[1]}
    record = MirrorRecord(pod_uid=uids[0], mirror=mirror_key, mirror_uid=uids[1])
    hub_pod["metadata"]["annotations"] = {RECORD_ANNOTATION: record.format()}
    return orjson.dumps(hub_pod), orjson.dumps(mirror)


def uids_of(number: int) -> Iterator[str]:
    """Make the uids of a pair."""
    return (str(UUID(int=2 * number + side)) for side in (1, 2))


def resident_bytes() -> int:
    """Return how much of this process is in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


if __name__ == "__main__":
    main(int(sys.argv[1]))

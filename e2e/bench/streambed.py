"""What the part `streams` runs on: two kind clusters, federate between them, and one namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from e2e.images.build import app_archives
from e2e.support.desk import Desk, address_for_containers
from e2e.support.pods import condition_of
from e2e.support.world import Space, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.binaries import Binaries
from e2e.testbed.docker import Docker
from e2e.testbed.kind import KindProvider
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec, start_all

NODE = "edge"
WHOLE_LOGS = (("containerLogMaxSize", "8Gi"),)
"""A kubelet's own limit is 10 MiB, and reads what is in the newest file only."""

HUB = ClusterSpec(name="hub", service_range="10.96.0.0/16")
TARGET = ClusterSpec(name="target", service_range="10.97.0.0/16", kubelet_settings=WHOLE_LOGS)


def complaint() -> str:
    """Say why there can be no real containers; empty where there can."""
    return Docker(places=Places()).complaint()


@contextmanager
def running_desk(progress: Progress) -> Iterator[Desk]:
    """Start clusters and federate; everything is gone afterwards."""
    places = Places()
    binaries = Binaries(places, progress)
    with ExitStack() as stack:
        provider = KindProvider(binaries, images=lambda: app_archives(places, progress))
        stack.callback(provider.close)
        provider.prepare()
        with progress.long_step("Creating hub and target with kind"):
            hub, target = start_all(provider, (HUB, TARGET))
        worlds = Worlds(provider.bed.cluster_folder("federate"))
        stack.callback(worlds.close)
        arguments = ["--node-address", address_for_containers(places)]
        world = stack.enter_context(
            worlds.world(node=NODE, hub=hub, target=target, arguments=arguments)
        )
        space = Space(world, "streams")
        space.open()
        wait_for(
            "the node answers as a kubelet",
            lambda: (
                condition_of(world.read_node(), "federate.dev/KubeletServing").get("status")
                == "True"
            ),
            explain=space.explain,
        )
        yield Desk.of(space, hub=hub, target=target)
        space.close()

"""A world whose federate sees its clusters through fault proxies; the witnesses look past them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.provider import TestCluster

from .process import FederateProcess
from .world import World
from .worlds import Worlds


@contextmanager
def proxied(
    worlds: Worlds,
    *,
    node: str,
    hub: TestCluster,
    target: TestCluster,
    hub_proxy: FaultProxy | None = None,
    target_proxy: FaultProxy | None = None,
    arguments: Sequence[str] = (),
    started: bool = True,
) -> Iterator[World]:
    """Run federate for a virtual node of its own, through the proxies that are given."""
    with worlds.world(node=node, hub=hub, target=target, started=False) as plain:
        options = replace(
            plain.federate.options,
            hub=hub_proxy.kubeconfig if hub_proxy else hub.kubeconfig,
            target=target_proxy.kubeconfig if target_proxy else target.kubeconfig,
            arguments=arguments,
        )
        federate = FederateProcess(options, folder=plain.federate.log.parent.parent)
        world = replace(plain, federate=federate)
        try:
            if started:
                world.start_federate()
            yield world
        finally:
            federate.close()

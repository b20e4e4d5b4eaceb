"""Build worlds: recorders once per cluster, one federate process per virtual node."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from e2e.testbed.provider import TestCluster

from .pace import pace_of
from .process import FederateProcess, RunOptions
from .recorder import WatchRecorder
from .witness import Witness
from .world import World


class Worlds:
    """Worlds of one test session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._witnesses: dict[str, Witness] = {}
        self._records: dict[str, WatchRecorder] = {}

    @contextmanager
    def world(
        self,
        *,
        node: str,
        hub: TestCluster,
        target: TestCluster,
        arguments: Sequence[str] = (),
        started: bool = True,
        config: Path | None = None,
        also: Sequence[str] = (),
    ) -> Iterator[World]:
        """Run federate for a virtual node of its own; the node goes when the world ends.

        So do those in `also`, which a configuration file may have beside it.
        """
        options = RunOptions(
            node=node,
            hub=hub.kubeconfig,
            target=target.kubeconfig,
            arguments=arguments,
            config=config,
        )
        federate = FederateProcess(options, folder=self._folder / node)
        world = World(
            hub=self._witness(hub),
            target=self._witness(target),
            hub_record=self._record(hub),
            target_record=self._record(target),
            federate=federate,
            pace=pace_of(target),
        )
        with ExitStack() as stack:
            for one in (node, *also):
                stack.callback(world.hub.delete, "Node", "", one)
            stack.callback(federate.close)
            if started:
                world.start_federate()
            yield world

    def forget(self, cluster: TestCluster) -> None:
        """Stop looking at a cluster, before it is stopped."""
        key = str(cluster.kubeconfig)
        if record := self._records.pop(key, None):
            record.close()
        if witness := self._witnesses.pop(key, None):
            witness.close()

    def close(self) -> None:
        """Stop looking at all clusters."""
        for record in self._records.values():
            record.ask_to_stop()
        for record in self._records.values():
            record.close()
        for witness in self._witnesses.values():
            witness.close()

    def _witness(self, cluster: TestCluster) -> Witness:
        key = str(cluster.kubeconfig)
        if key not in self._witnesses:
            self._witnesses[key] = Witness(cluster.name, cluster.kubeconfig)
        return self._witnesses[key]

    def _record(self, cluster: TestCluster) -> WatchRecorder:
        key = str(cluster.kubeconfig)
        if key not in self._records:
            self._records[key] = WatchRecorder(cluster.name, cluster.kubeconfig)
        return self._records[key]

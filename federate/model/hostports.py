"""The ports of a node that a pod asks for, and which of them clash. Pure.

Compared as a scheduler and a kubelet do: by protocol, port and address, where one that names no
address takes the port of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from federate.model.objects import JsonObject, spec_of
from federate.model.pods import is_terminal

HOST_PORT_INDEX = "host-port"
"""Index of the hub pods' store: `HostPort.place` -> those that ask for it and have not ended."""

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 (compared with, never bound to)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """One port of the node."""

    port: int
    protocol: str = "TCP"
    address: str = EVERY_ADDRESS

    @property
    def place(self) -> str:
        """Where those that may clash are found; the address is not looked at."""
        return f"{self.protocol}/{self.port}"

    def clashes_with(self, other: HostPort) -> bool:
        """Tell whether one node cannot give both."""
        if self.port != other.port or self.protocol != other.protocol:
            return False
        return self.address == other.address or EVERY_ADDRESS in (self.address, other.address)

    def __str__(self) -> str:
        """Say it in a message."""
        where = "" if self.address == EVERY_ADDRESS else f" of {self.address}"
        return f"{self.protocol} {self.port}{where}"


def host_ports_of(spec: JsonObject) -> tuple[HostPort, ...]:
    """Return the node's ports that a pod takes for as long as it runs.

    Init containers that end give theirs back before others start, and do not count.
    """
    return tuple(dict.fromkeys(_host_ports(spec)))


def host_port_index(pod: JsonObject) -> Iterable[str]:
    """Index pods that have not ended by the host ports that they ask for."""
    return () if is_terminal(pod) else {port.place for port in host_ports_of(spec_of(pod))}


def _host_ports(spec: JsonObject) -> Iterator[HostPort]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*sidecars, *(spec.get("containers") or ())):
        for found in container.get("ports") or ():
            if found.get("hostPort"):
                yield HostPort(
                    port=found["hostPort"],
                    protocol=found.get("protocol") or "TCP",
                    address=found.get("hostIP") or EVERY_ADDRESS,
                )

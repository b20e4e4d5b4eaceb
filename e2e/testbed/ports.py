"""Pick TCP ports for servers that have to know their port before they start."""

import random
import socket

from .errors import TestbedError

LOWEST, HIGHEST = 20_000, 29_999
"""Below the ports the kernel gives to outgoing connections. A client that keeps dialing a stopped
server on such a port can be connected to itself, and the server could not take the port again."""


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on right now; another process may still be faster."""
    ports: list[int] = []
    for candidate in random.sample(range(LOWEST, HIGHEST + 1), k=HIGHEST + 1 - LOWEST):
        if len(ports) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
        ports.append(candidate)
    if len(ports) < count:
        raise TestbedError(f"No {count} free TCP ports between {LOWEST} and {HIGHEST}.")
    return ports


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0

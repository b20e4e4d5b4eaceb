"""A server that resets a connection before its handshake fails no test (pyproject.toml)."""

import gc
import socket
import ssl
import struct

import pytest

AT_ONCE = struct.pack("ii", 1, 0)
"""Linger for no time: closing resets the connection."""


def test_a_connection_reset_before_the_handshake_is_not_held_against_a_test() -> None:
    """Python does not close it; pytest would make an error of the warning that comes then."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        accepted.close()
        with pytest.raises(ConnectionResetError):
            ssl.create_default_context().wrap_socket(client, server_hostname="any")
        gc.collect()

"""What a virtual node asks of the host it runs on."""

from __future__ import annotations

import errno
import socket

import pytest

from federate.runtime.virtual_node import is_of_this_host


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("192.0.2.9", False), ("2001:db8::9", False)],
)
def test_an_address_is_of_this_host_or_not(address: str, is_ours: bool) -> None:
    """Loopback is a whole network; documentation's addresses are nobody's."""
    assert is_of_this_host(address) is is_ours


def test_a_host_that_may_bind_to_any_address_does_not_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with `net.ipv4.ip_nonlocal_bind`, where a floating address moves between hosts."""
    monkeypatch.setattr(socket.socket, "bind", lambda _socket, _address: None)
    assert not is_of_this_host("192.0.2.9")
    assert is_of_this_host("127.0.0.1")


def test_what_cannot_be_told_is_no_reason_to_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a free descriptor knows nothing of addresses."""

    def refuse(*_args: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", refuse)
    assert is_of_this_host("192.0.2.9")

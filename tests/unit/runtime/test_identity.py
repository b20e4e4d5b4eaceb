"""Identities in leader leases, and whom they let us call dead."""

from __future__ import annotations

import os

import pytest

from federate.runtime.identity import (
    describe_holder,
    is_dead_neighbour,
    own_identity,
    process_exists,
    process_start,
)

OURS = "host_boot_ns_100_777"


@pytest.mark.parametrize(
    ("holder", "start", "dead"),
    [
        ("host_boot_ns_200_5", None, True),  # no process has that id
        ("host_boot_ns_200_5", "6", True),  # its id belongs to a later process
        ("host_boot_ns_200_5", "5", False),  # it lives
        ("other_boot_ns_200_5", None, False),  # another host: we cannot see it
        ("host_reboot_ns_200_5", None, False),  # a boot before this one: waited for, as ever
        ("host_boot_other_200_5", None, False),  # another pid namespace
        ("host_with_boot_ns_200_5", None, False),
        ("somebody", None, False),
        ("", None, False),
        ("host_boot_ns_x_5", None, False),
        ("200_5", None, False),
    ],
)
def test_only_a_process_we_would_see_can_be_called_dead(
    holder: str, start: str | None, dead: bool
) -> None:
    """A holder elsewhere, or of another kind, is never called dead."""
    assert is_dead_neighbour(holder, OURS, lambda _pid: start) is dead


def test_a_host_without_proc_calls_nobody_dead() -> None:
    """Random identities have no place, so two of them are no neighbours."""
    assert not is_dead_neighbour("host_0011", "host_2233", lambda _pid: None)


def test_own_identity_is_stable_and_alive() -> None:
    """The process's own identity names itself, and it is not dead."""
    ours = own_identity()
    assert ours == own_identity()
    start = process_start(os.getpid())
    assert start is not None
    assert ours.endswith(f"_{os.getpid()}_{start}")
    assert not is_dead_neighbour(ours, ours)


def test_an_absent_process_has_no_start() -> None:
    """Above the greatest process id there is nobody."""
    assert process_start(2**22 + 7) is None


@pytest.mark.parametrize("exists", [True, False])
def test_a_process_whose_start_cannot_be_read_is_dead_only_if_it_is_not_there(exists: bool) -> None:
    """A /proc that hides a living holder must not make it look dead."""
    holder = "host_boot_ns_200_5"
    assert is_dead_neighbour(holder, OURS, lambda _: None, lambda _: exists) is not exists


def test_existence_is_asked_of_the_kernel() -> None:
    """We exist, and nobody does above the greatest process id."""
    assert process_exists(os.getpid())
    assert not process_exists(2**22 + 7)


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("my_host_boot_ns_200_5", "my_host (pid 200)"),
        ("federate-0", "federate-0"),
        ("host_0011", "host_0011"),
        ("", ""),
    ],
)
def test_a_holder_is_told_as_host_and_process(identity: str, words: str) -> None:
    """People read a host and a pid; a name of another kind stays as it is."""
    assert describe_holder(identity) == words

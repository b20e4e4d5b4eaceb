"""Which beds are leftovers, and which processes may be ended for them."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from e2e.testbed.beds import Bed, Beds, write_owner
from e2e.testbed.identity import Identity
from e2e.testbed.places import Places
from e2e.testbed.processes import Record, end_recorded, signal_recorded


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(environment={"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)})


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a server, or for somebody else's program."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def identity_of(process: subprocess.Popen[bytes]) -> Identity:
    identity = Identity.of(process.pid)
    assert identity is not None
    return identity


def recycled(identity: Identity) -> Identity:
    """The same pid, used by another process earlier."""
    return replace(identity, start_ticks=identity.start_ticks - 1)


def write_record(bed: Bed, identity: Identity, program: str) -> None:
    folder = bed.folder / "hub" / "processes"
    folder.mkdir(parents=True)
    (folder / "storage.json").write_text(json.dumps({**asdict(identity), "program": program}))


def test_a_bed_of_a_living_owner_stays(places: Places) -> None:
    """Nobody removes the bed of a test run that goes on."""
    bed = Beds(places).create()
    assert Beds(places).remove_leftovers().beds == 0
    assert bed.folder.is_dir()


def test_a_bed_whose_owners_pid_was_recycled_goes(places: Places) -> None:
    """A process that got a dead owner's pid does not keep its bed."""
    bed = Beds(places).create()
    write_owner(bed.folder, recycled(Identity.own()))
    assert Beds(places).remove_leftovers().beds == 1
    assert not bed.folder.exists()


def test_a_kept_bed_stays_whoever_lives(places: Places) -> None:
    """What `up` started stays until `down`."""
    bed = Beds(places).create("up")
    bed.keep()
    assert Beds(places).remove_leftovers().beds == 0
    assert bed.is_kept


@pytest.mark.parametrize("content", [None, "", "{}", '{"pid": 1}', "[1]"])
def test_a_bed_with_a_broken_owner_file_goes(places: Places, content: str | None) -> None:
    """A bed whose making was cut short belongs to nobody."""
    bed = Beds(places).create()
    owner_file = bed.folder / "owner.json"
    owner_file.unlink()
    if content is not None:
        owner_file.write_text(content)
    assert Beds(places).remove_leftovers().beds == 1


def test_leftover_servers_are_ended(places: Places, sleeper: subprocess.Popen[bytes]) -> None:
    """The recorded servers of a dead owner are ended with its bed."""
    bed = Beds(places).create()
    write_record(bed, identity_of(sleeper), "/bin/sleep")
    write_owner(bed.folder, recycled(Identity.own()))
    assert Beds(places).remove_leftovers().servers == 1
    assert sleeper.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("mismatch", ["start time", "program", "boot"])
def test_a_process_that_does_not_match_its_record_is_never_signalled(
    sleeper: subprocess.Popen[bytes], mismatch: str
) -> None:
    """A recycled pid protects whoever has it now."""
    identity = identity_of(sleeper)
    record = {
        "start time": Record(identity=recycled(identity), program="/bin/sleep"),
        "program": Record(identity=identity, program="/bin/etcd"),
        "boot": Record(identity=replace(identity, boot="another"), program="/bin/sleep"),
    }[mismatch]
    assert not signal_recorded(record, signal.SIGKILL)
    assert end_recorded([record]) == 0
    assert sleeper.poll() is None


def test_a_dead_process_has_no_identity() -> None:
    """A process that ended is nobody, even before its parent takes note."""
    with subprocess.Popen(["/bin/true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Identity.of(process.pid) is None


def test_a_broken_record_is_no_record(tmp_path: Path) -> None:
    """A record that was cut short names nobody."""
    path = tmp_path / "storage.json"
    assert Record.read(path) is None
    path.write_text('{"pid": 1')
    assert Record.read(path) is None
    path.write_text('{"pid": 1}')
    assert Record.read(path) is None

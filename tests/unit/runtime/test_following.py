"""A configuration file is followed: what is noticed, what is told, and what changes nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from federate.errors import ConfigError
from federate.runtime.following import Following
from federate.runtime.settings import Settings, TargetSettings

PATIENCE_SECONDS = 20.0


def read(content: bytes) -> Settings:
    """Read names of virtual nodes, one a line; one with a space in it is wrong."""
    names = content.decode().split("\n")
    wrong = [f"{name!r}: expected one word" for name in names if " " in name]
    if wrong:
        raise ConfigError("\n".join(wrong))
    targets = tuple(TargetSettings(name=name, kubeconfig=Path(name)) for name in names if name)
    return Settings(hub_kubeconfig=None, targets=targets, identity="me")


class Follower:
    """A file that is followed at a quick pace, and what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.taken: list[list[str]] = []
        self.refuses = False
        self.following = Following(
            path, path.read_bytes(), read, look_seconds=0.02, settle_seconds=0.02
        )

    def take_over(self, settings: Settings) -> bool:
        self.taken.append([target.name for target in settings.targets])
        return not self.refuses

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.following.run(self.take_over))
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def rest(self) -> None:
        """Let some looks pass."""
        await asyncio.sleep(0.3)


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    path = tmp_path / "f"
    path.write_text("a\n")
    return Follower(path)


def run(test: Callable[[], object]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_an_unchanged_file_is_not_taken_over_again(follower: Follower) -> None:
    """Nor one that was only touched."""

    async def test() -> None:
        async with follower.running():
            await follower.rest()
            os.utime(follower.path)
            await follower.rest()
        assert follower.taken == []
        assert follower.following.is_applied

    run(test)


def test_a_file_is_written_over_replaced_and_swapped(follower: Follower, tmp_path: Path) -> None:
    """In place, by rename, and by the links of a mounted ConfigMap."""

    async def test() -> None:
        path = follower.path
        async with follower.running():
            path.write_text("b\n")
            await follower.until(lambda: follower.taken == [["b"]])
            new = tmp_path / "new"
            new.write_text("c\n")
            new.replace(path)
            await follower.until(lambda: follower.taken[1:] == [["c"]])
            for name in ("d", "e"):
                folder = tmp_path / f"..{name}"
                folder.mkdir()
                (folder / "f").write_text(f"{name}\n")
                (tmp_path / "..tmp").symlink_to(folder.name)
                (tmp_path / "..tmp").replace(tmp_path / "..data")
                if not path.is_symlink():
                    link = tmp_path / "link"
                    link.symlink_to("..data/f")
                    link.replace(path)
                await follower.until(lambda name=name: follower.taken[-1] == [name])  # type: ignore[misc]
        assert follower.taken == [["b"], ["c"], ["d"], ["e"]]

    run(test)


def test_half_a_file_is_not_taken_for_a_short_one(tmp_path: Path) -> None:
    """Emptied and written line by line: what is taken over is the whole."""
    path = tmp_path / "f"
    path.write_text("a\nb\n")
    follower = Follower(path)
    follower.following = Following(
        path, path.read_bytes(), read, look_seconds=0.01, settle_seconds=1.0
    )

    async def test() -> None:
        async with follower.running():
            with path.open("w") as file:
                for name in "abc":
                    await asyncio.sleep(0.05)
                    file.write(f"{name}\n")
                    file.flush()
            await follower.until(lambda: bool(follower.taken))
        assert follower.taken == [["a", "b", "c"]]

    run(test)


@pytest.mark.parametrize("how", ["wrong", "away", "a folder"])
def test_a_file_that_is_wrong_is_told_once(follower: Follower, how: str) -> None:
    """With all its problems; nothing is taken over, and a right one is again."""

    async def test() -> None:
        path = follower.path
        with capture_logs() as logs:
            async with follower.running():
                match how:
                    case "wrong":
                        path.write_text("x y\nb\nu v\n")
                    case "away":
                        path.unlink()
                    case _:
                        path.unlink()
                        path.mkdir()
                await follower.until(lambda: not follower.following.is_applied)
                await follower.rest()
                problems = [e["said"] for e in logs if e["event"].startswith("problem")]
                assert (
                    problems
                    == {
                        "wrong": ["'x y': expected one word", "'u v': expected one word"],
                        "away": [f"{path}: cannot be read: No such file or directory"],
                        "a folder": [f"{path}: cannot be read: Is a directory"],
                    }[how]
                )
                assert {e["log_level"] for e in logs} == {"error"}
                assert follower.taken == []
                if path.is_dir():
                    path.rmdir()
                path.write_text("a\n")
                await follower.until(lambda: follower.following.is_applied)
        assert follower.taken == [["a"]], "back to what it was: taken over, which changes nothing"

    run(test)


def test_a_file_that_breaks_the_reader_ends_nothing(follower: Follower) -> None:
    """Whatever it raises: it is told by its kind alone, for it may repeat what it read."""

    def breaks(content: bytes) -> Settings:
        if b"canary" in content:
            raise RuntimeError(f"canary: {content!r}")
        return read(content)

    async def test() -> None:
        path = follower.path
        follower.following = Following(
            path, path.read_bytes(), breaks, look_seconds=0.02, settle_seconds=0.02
        )
        with capture_logs() as logs:
            async with follower.running():
                path.write_text("canary\n")
                await follower.until(lambda: not follower.following.is_applied)
                await follower.rest()
                path.write_text("b\n")
                await follower.until(lambda: follower.following.is_applied)
        assert [e["said"] for e in logs if "said" in e] == [f"{path}: cannot be read: RuntimeError"]
        assert "canary" not in str(logs)
        assert follower.taken == [["b"]]

    run(test)


def test_a_signal_has_it_told_again(follower: Follower) -> None:
    """Who asks, wants to hear: also of what did not change."""

    async def test() -> None:
        follower.following = Following(
            follower.path, follower.path.read_bytes(), read, look_seconds=3600, settle_seconds=0.02
        )
        with capture_logs() as logs:
            async with follower.running():
                for times in (1, 2):
                    follower.path.write_text("x y\n")
                    follower.following.look_now()
                    await follower.until(
                        lambda times=times: len([e for e in logs if "said" in e]) == times  # type: ignore[misc]
                    )
                follower.path.write_text("b\n")
                follower.following.look_now()
                await follower.until(lambda: follower.taken == [["b"]])
        assert follower.following.is_applied

    run(test)


def test_a_change_is_not_lost_with_the_connection_to_a_hub(follower: Follower) -> None:
    """The process begins anew with another hub just when a new file is being read."""

    async def test() -> None:
        reading = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(content: bytes) -> Settings:
            loop.call_soon_threadsafe(reading.set)
            time.sleep(0.1)
            return read(content)

        follower.following = Following(
            follower.path, b"a\n", slow, look_seconds=0.02, settle_seconds=0.02
        )
        follower.path.write_text("b\n")
        async with follower.running():
            await reading.wait()
        assert follower.taken == []
        async with follower.running():
            await follower.until(lambda: follower.taken == [["b"]])

    run(test)


def test_what_waits_for_a_start_counts_as_not_applied(follower: Follower) -> None:
    """The file is right, and still not what runs."""

    async def test() -> None:
        follower.refuses = True
        async with follower.running():
            follower.path.write_text("b\n")
            await follower.until(lambda: bool(follower.taken))
            await follower.rest()
        assert follower.taken == [["b"]]
        assert not follower.following.is_applied

    run(test)

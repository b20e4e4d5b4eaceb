"""Of which federate results are."""

import subprocess
from pathlib import Path

import pytest

import federate
from e2e.conformance.origin import (
    DIGITS,
    PACKAGE,
    UNKNOWN,
    Origin,
    commit_of,
    digest_of,
    origin_now,
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "product"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("1")
    (folder / "two.py").write_text("2")
    return folder


def test_the_digest_is_of_names_and_contents(package: Path) -> None:
    """What Python makes of the files is left out; nothing else is."""
    before = digest_of(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.pyc").write_text("x")
    assert digest_of(package) == before
    (package / "one.py").write_text("3")
    changed = digest_of(package)
    (package / "one.py").rename(package / "three.py")
    assert len({before, changed, digest_of(package)}) == 3


def git(checkout: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_commit_is_told_with_a_mark_for_changes(package: Path) -> None:
    """Changes elsewhere in the checkout change nothing in what was run."""
    checkout = package.parent
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    commit = git(checkout, "rev-parse", "HEAD")[:DIGITS]
    (checkout / "README").write_text("other")
    assert commit_of(checkout, "product") == commit
    (package / "new.py").write_text("4")
    assert commit_of(checkout, "product") == f"{commit}+"


def test_without_git_there_is_no_commit(package: Path) -> None:
    """An archive of the sources has none, even where it lies in somebody else's checkout."""
    assert commit_of(package.parent, "product") == ""
    git(package.parent.parent, "init", "--quiet")
    git(package.parent.parent, "commit", "--quiet", "--allow-empty", "-m", "theirs")
    assert commit_of(package.parent, "product") == ""


def test_an_origin_tells_no_place_and_no_host() -> None:
    """Results are checked in, for everybody to read."""
    origin = origin_now(kubernetes="v1.34.4", images="stand-ins", procs=4)
    assert origin.source == digest_of(PACKAGE)
    assert origin.federate == federate.__version__
    assert "/" not in repr(origin)


def test_what_was_not_recorded_is_said() -> None:
    """A result of an old file has no more than the version of Kubernetes."""
    assert UNKNOWN.program == "not recorded"
    known = Origin(kubernetes="v1", federate="0.1.0", source="aa", commit="cc+")
    assert known.program == "0.1.0, cc+, files aa"

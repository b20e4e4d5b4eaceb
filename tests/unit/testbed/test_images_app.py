"""The test images: built once, from their own sources only, and different where they should be."""

import json
import tarfile
from pathlib import Path

import pytest

from e2e.images import build
from e2e.images.build import app_archives, image_of, source_digest
from e2e.testbed.archives import write_archive
from e2e.testbed.errors import TestbedError
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress

FAKE_GO = """#!/bin/sh
echo "$CGO_ENABLED $GOOS $GOFLAGS" >> "$GO_LOG"
while [ "$1" != -o ]; do shift; done
# Its launcher, which ties it to the test run, leaves a record.
[ -e "${2%/*}/go.json" ] || exit 1
echo program > "$2"
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A made-up machine with a Go that only notes that it was called."""
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    return Places(
        environment={
            "FEDERATE_TESTBED_CACHE": str(tmp_path / "cache"),
            "PATH": str(go.parent),
            "GO_LOG": str(tmp_path / "go.log"),
            "GOFLAGS": "-tags=mine",
        }
    )


def built(places: Places) -> list[str]:
    log = Path(places.environment["GO_LOG"])
    return log.read_text().splitlines() if log.exists() else []


def find(places: Places) -> list[Path]:
    return list(app_archives(places, Progress(quiet=True)))


def test_the_images_are_built_once_with_settings_of_their_own(places: Places) -> None:
    """A second asker finds the images of the first; the user's Go flags have no say."""
    first = find(places)
    assert find(places) == first
    assert built(places) == ["0 linux "]
    assert len(first) == 2


def test_a_lost_image_is_built_again(places: Places) -> None:
    """Images that are not all there are made anew, and nothing half-made stays."""
    first = find(places)
    first[1].unlink()
    assert all(archive.is_file() for archive in find(places))
    assert len(built(places)) == 2
    folder = first[0].parent
    assert sorted(path.name for path in folder.iterdir()) == ["app-1.tar", "app-2.tar"]


def test_what_killed_builds_left_is_removed(places: Places) -> None:
    """Nothing half-made stays, even if the images are all there."""
    folder = find(places)[0].parent
    for leftover in (".building-killed", ".packing-killed"):
        (folder / leftover).mkdir()
        (folder / leftover / "part").write_text("half")
    find(places)
    assert sorted(path.name for path in folder.iterdir()) == ["app-1.tar", "app-2.tar"]
    assert len(built(places)) == 1


def test_other_sources_make_other_images(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes the program never meets an image of the old one."""
    before = source_digest()
    changed = tmp_path / "app"
    changed.mkdir()
    (changed / "main.go").write_text("package main")
    monkeypatch.setattr(build, "SOURCES", changed)
    assert source_digest() != before


def test_versions_differ_in_nothing_but_the_variable(tmp_path: Path) -> None:
    """A roll-out from one version to the other changes what VERSION says, and the image's id."""
    program = tmp_path / "program"
    program.write_bytes(b"runs")
    configs = []
    for version in ("1", "2"):
        archive = tmp_path / f"{version}.tar"
        write_archive(image_of(version, program), archive)
        with tarfile.open(archive) as opened:
            name = next(n for n in opened.getnames() if n.endswith(".json") and len(n) > 64)
            stream = opened.extractfile(name)
            assert stream is not None
            configs.append(json.load(stream))
    one, two = (config["config"].pop("Env") for config in configs)
    assert one[-1] == "VERSION=1" and two == [*one[:-1], "VERSION=2"]
    assert configs[0] == configs[1]


def test_without_go_the_message_says_what_to_install(places: Places, tmp_path: Path) -> None:
    """Without Go, one sentence says that it is needed and which."""
    (tmp_path / "path" / "go").unlink()
    with pytest.raises(TestbedError, match=r"install Go 1\.24 or newer"):
        find(places)


def test_a_failed_build_quotes_go_and_leaves_nothing(places: Places, tmp_path: Path) -> None:
    """What Go said is in the message, and no archive is left that a later start would take."""
    (tmp_path / "path" / "go").write_text("#!/bin/sh\necho broken code >&2\nexit 1\n")
    with pytest.raises(TestbedError, match="broken code"):
        find(places)
    assert not list((tmp_path / "cache").rglob("*.tar"))

"""Build the images `federate.test/app:1` and `:2` from the Go program in `app`.

They differ in the variable VERSION that is baked in, and in nothing else. They lie in the test
bed's cache, named after the sources they were made from, once per machine and user.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2e.testbed import archives
from e2e.testbed.archives import SEARCH_PATH, Image, architecture, write_archive
from e2e.testbed.builds import run_tied
from e2e.testbed.errors import TestbedError
from e2e.testbed.locks import held
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress

SOURCES = Path(__file__).resolve().parent / "app"
PROGRAM = "/app"

GO_WANTED = "Go 1.24"
BUILD_ARGUMENTS = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")

VERSIONS = ("1", "2")


def tag_of(version: str) -> str:
    """Return what a container's `image` says."""
    return f"federate.test/app:{version}"


def app_archives(places: Places, progress: Progress) -> Sequence[Path]:
    """Return the archives of all versions, building them when they are nowhere.

    Raises:
        TestbedError: there is no Go, or the build failed.
    """
    folder = places.cache / f"app-{source_digest()}-{architecture()}"
    found = [folder / f"app-{version}.tar" for version in VERSIONS]
    with held(places.cache / f"{folder.name}.lock"):
        # What is not whole yet begins with a dot; a build that was killed leaves it.
        for leftover in folder.glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if not all(archive.is_file() for archive in found):
            folder.mkdir(parents=True, exist_ok=True)
            with (
                tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as temporary,
                progress.long_step("Building the test images"),
            ):
                program = build_program(places, Path(temporary) / "app")
                for version, archive in zip(VERSIONS, found, strict=True):
                    write_archive(image_of(version, program), archive)
    return found


def image_of(version: str, program: Path) -> Image:
    """Describe one version's image."""
    return Image(
        tag=tag_of(version),
        files={PROGRAM: program},
        links={"/bin/tar": PROGRAM},
        entrypoint=[PROGRAM],
        environment=[SEARCH_PATH, f"VERSION={version}"],
    )


def source_digest() -> str:
    """Tell the sources of the images from other ones, in a name's few characters."""
    digest = hashlib.sha256()
    for path in (*sorted(SOURCES.iterdir()), Path(__file__), Path(archives.__file__)):
        digest.update(f"{path.name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:10]


def build_program(places: Places, output: Path) -> Path:
    """Build the program for this machine's containers."""
    go = shutil.which("go", path=places.search_path)
    if go is None:
        raise TestbedError(
            f"The test images are built with Go, and there is none: install {GO_WANTED} or newer."
        )
    settings = {
        "CGO_ENABLED": "0",
        "GOOS": "linux",
        "GOARCH": architecture(),
        # The user's own Go flags and workspace are about other modules.
        "GOFLAGS": "",
        "GOWORK": "off",
    }
    finished = run_tied(
        [go, "build", *BUILD_ARGUMENTS, "-o", str(output), "."],
        record=output.parent / "go.json",
        folder=SOURCES,
        environment={**places.environment, **settings},
    )
    if finished.returncode != 0:
        last = os.linesep.join(finished.stderr.strip().splitlines()[-8:])
        raise TestbedError(
            f"Building the test images' program failed; it needs {GO_WANTED} or newer. "
            f"Go said:\n{last}"
        )
    return output

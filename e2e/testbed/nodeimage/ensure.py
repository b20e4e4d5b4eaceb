"""Make sure that Docker has the node image: from the daemon, from the cache, or built now.

Whoever builds holds the one lock of all node images; others wait for it and then find the result.
What a killed build left is removed by the next, under the same lock.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ..builds import build
from ..docker import Docker
from ..errors import TestbedError
from ..locks import held
from ..places import Places
from ..processes import POLL_SECONDS
from ..progress import Progress
from .assembly import kind_files, write_node_image
from .commands import Commands
from .recipe import (
    HOST_PACKAGES,
    REPOSITORY,
    Debian,
    archive_name,
    node_image_reference,
    outdated,
    programs,
)
from .rootfs import make_root_file_system, this_debian

BUILDING = ".building-node-image-"
KEPT_IMAGES = 2
"""Each takes a gigabyte; two let a person go back and forth between two checkouts."""

REMOVE_SECONDS = 10.0
"""How long processes of a build that was killed may take to be gone."""


def ensure_node_image(places: Places, progress: Progress) -> str:
    """Return the node image's reference, when Docker has it; takes minutes with an empty cache.

    Raises:
        TestbedError: it can be neither found nor built; the message says what is missing.
    """
    reference, docker = node_image_reference(), Docker(places=places)
    check_programs(["docker"], places)
    if docker.has_image(reference):
        return reference
    with held(
        places.cache / "node-image.lock",
        on_wait=lambda: progress.say(
            "Another process is making the node image; waiting for it.", always=True
        ),
    ):
        if not docker.has_image(reference):
            archive = cached_archive(reference, places, progress)
            with progress.long_step("Loading the node image into Docker"):
                docker.load(archive)
            remove_old_images(docker, places.cache)
    return reference


def cached_archive(reference: str, places: Places, progress: Progress) -> Path:
    """Return the image's archive, built if need be; the caller holds the lock."""
    remove_leftovers(places.cache)
    archive = places.cache / archive_name(reference)
    if not archive.is_file():
        check_machine(places)
        build_archive(reference, archive, places, progress)
    os.utime(archive)
    archives = {path: path.stat().st_mtime for path in places.cache.glob("node-image-*.tar")}
    for old in outdated(archives, keep=KEPT_IMAGES):
        old.unlink()
    return archive


def remove_old_images(docker: Docker, cache: Path) -> None:
    """Let Docker forget what the cache has forgotten, unless a container uses it."""
    for image in docker.lines("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY):
        if not (cache / archive_name(image)).is_file():
            with suppress(TestbedError):
                docker.run("image", "rm", image)


def build_archive(reference: str, place: Path, places: Places, progress: Progress) -> None:
    debian = this_debian(places)
    root_file_system = places.cache / f"node-root-{debian.cache_key}.tar"
    with (
        tempfile.TemporaryDirectory(prefix=BUILDING, dir=places.cache) as temporary,
        ThreadPoolExecutor(max_workers=1) as beside,
        Commands(Path(temporary), places) as commands,
    ):
        folder = Path(temporary)
        packages = beside.submit(
            ensure_root_file_system,
            *(commands, debian),
            folder=folder,
            place=root_file_system,
            progress=progress,
        )
        built = {
            name: build(part.component, part.names, places=places, progress=progress) / name
            for part in programs()
            for name in part.names
        }
        base_files = kind_files(places)
        with progress.long_step("Waiting for Debian's packages"):
            packages.result()
        result = folder / place.name
        with progress.long_step("Putting the node image together"):
            write_node_image(
                commands,
                reference=reference,
                file_system=root_file_system,
                base_files=base_files,
                programs=built,
                folder=folder,
                place=result,
            )
        result.replace(place)


def ensure_root_file_system(
    commands: Commands, debian: Debian, *, folder: Path, place: Path, progress: Progress
) -> None:
    if place.is_file():
        return
    started = time.monotonic()
    progress.say("Making the node's root file system from Debian's packages beside.", always=True)
    make_root_file_system(commands, debian, folder=folder, place=place)
    took = time.monotonic() - started
    progress.say(f"The node's root file system is there after {took:.0f} s.", always=True)


def check_machine(places: Places) -> None:
    """Say all that is missing at once, before minutes are spent.

    Raises:
        TestbedError: this user or this machine cannot build the image.
    """
    if os.geteuid() != 0:
        raise TestbedError("Building the node image needs root; with a registry kind needs none.")
    check_programs(HOST_PACKAGES, places)


def check_programs(names: Iterable[str], places: Places) -> None:
    missing = [
        HOST_PACKAGES[name] for name in names if not shutil.which(name, path=places.search_path)
    ]
    if missing:
        raise TestbedError(
            f"The node image needs the Debian packages {', '.join(missing)}; as root:\n"
            f"  apt-get install --no-install-recommends {' '.join(missing)}"
        )


def remove_leftovers(cache: Path) -> None:
    """Remove what killed builds left; the caller holds the lock."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while leftovers := list(cache.glob(f"{BUILDING}*")):
        for leftover in leftovers:
            shutil.rmtree(leftover, ignore_errors=True)
        if time.monotonic() > deadline:
            raise TestbedError(f"{leftovers[0]} cannot be removed.")
        time.sleep(POLL_SECONDS)

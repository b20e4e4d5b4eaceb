"""Write container images as files, with neither a registry nor an image builder.

The layout is that of `docker save`, which `docker load`, containerd and `kind load image-archive`
read alike: the configuration, one layer, and a manifest. The same image always gives the same
bytes, and an archive appears whole or not at all.
"""

import hashlib
import io
import json
import platform
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

FOLDERS = ("etc", "root", "run", "tmp", "var/run", "var/tmp")
"""What programs take for granted; every image has them."""

OPEN_FOLDERS = ("tmp", "var/tmp")

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Kernel's word -> the word of Go and of image configurations, where they differ."""

CHUNK_BYTES = 1 << 20


def architecture() -> str:
    """Return what this machine's containers run, as Go and image configurations call it."""
    machine = platform.machine().lower()
    return ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image of one layer.

    `files` maps absolute paths to contents, or to a file of this machine, which keeps its
    executable bit; `links` maps paths of symbolic links to where they point.
    """

    tag: str
    files: Mapping[str, bytes | Path]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    setuid: Sequence[str] = ()
    """Those of the files of this machine that run as their owner, root, whoever starts them."""
    entrypoint: Sequence[str] = ()
    environment: Sequence[str] = (SEARCH_PATH,)
    working_folder: str = "/"
    architecture: str = field(default_factory=architecture)


def write_archive(image: Image, place: Path) -> None:
    """Write the image to the file `place`, whose folder must be there."""
    with (
        tempfile.TemporaryDirectory(prefix=".packing-", dir=place.parent) as folder,
        tempfile.TemporaryFile(dir=folder) as layer,
    ):
        digest = write_layer(image, layer)
        config = render_config(image, digest)
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        content = f"{digest}/layer.tar"
        manifest = [{"Config": name, "RepoTags": [image.tag], "Layers": [content]}]
        packed = Path(folder) / place.name
        with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as archive:
            add_bytes(archive, name, config)
            size = layer.seek(0, io.SEEK_END)
            layer.seek(0)
            add_stream(archive, content, layer, size=size)
            add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
        packed.replace(place)


def write_layer(image: Image, output: BinaryIO) -> str:
    """Write the image's files as a tar to an empty file; returns its SHA-256."""
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for folder in folders_of(image):
            add_folder(layer, folder)
        for path, source in sorted(image.files.items()):
            add_file(layer, inside(path), source, is_setuid=path in image.setuid)
        for path, points_to in sorted(image.links.items()):
            add_link(layer, inside(path), points_to)
    output.seek(0)
    digest = hashlib.sha256()
    for chunk in iter(lambda: output.read(CHUNK_BYTES), b""):
        digest.update(chunk)
    return digest.hexdigest()


def render_config(image: Image, layer_digest: str) -> bytes:
    """Render the image's configuration, whose digest is the image's identity."""
    config = {"Env": list(image.environment), "WorkingDir": image.working_folder}
    if image.entrypoint:
        config["Entrypoint"] = list(image.entrypoint)
    return json.dumps(
        {
            "architecture": image.architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created_by": "federate's test bed"}],
        }
    ).encode()


def folders_of(image: Image) -> list[str]:
    """List all folders of the image, each after the one it is in."""
    found: set[str] = set()
    for folder in (*FOLDERS, *map(inside, image.folders)):
        found.update((folder, *parents_of(folder)))
    for path in (*image.files, *image.links):
        found.update(parents_of(inside(path)))
    return sorted(found)


def parents_of(path: str) -> Iterator[str]:
    return (str(parent) for parent in PurePosixPath(path).parents if str(parent) != ".")


def inside(path: str) -> str:
    """Name a file of the image as a tar does, relative to the root."""
    return path.strip("/")


# A TarInfo says nothing of users and times unless told: everything is root's and of 1970.


def add_folder(archive: tarfile.TarFile, path: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.type = tarfile.DIRTYPE
    entry.mode = 0o1777 if path in OPEN_FOLDERS else 0o755
    archive.addfile(entry)


def add_link(archive: tarfile.TarFile, path: str, points_to: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.type = tarfile.SYMTYPE
    entry.linkname = points_to
    archive.addfile(entry)


def add_file(
    archive: tarfile.TarFile, path: str, source: bytes | Path, *, is_setuid: bool = False
) -> None:
    if isinstance(source, bytes):
        add_bytes(archive, path, source)
        return
    status = source.stat()
    with source.open("rb") as stream:
        mode = 0o755 if status.st_mode & 0o111 else 0o644
        mode |= stat.S_ISUID if is_setuid else 0
        add_stream(archive, path, stream, size=status.st_size, mode=mode)


def add_bytes(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    add_stream(archive, path, io.BytesIO(content), size=len(content))


def add_stream(
    archive: tarfile.TarFile, path: str, stream: BinaryIO, *, size: int, mode: int = 0o644
) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = size
    entry.mode = mode
    archive.addfile(entry, stream)

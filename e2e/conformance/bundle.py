"""Write several container images that share layers into one archive, with no image builder.

The layout is that of `docker save`, like that of `testbed.archives`, whose images have one layer
and no command of their own.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from e2e.testbed.archives import (
    SEARCH_PATH,
    Image,
    add_bytes,
    add_stream,
    architecture,
    write_layer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """An image of several layers, named after what they hold, the lowest first."""

    tag: str
    layers: Sequence[str]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    environment: Sequence[str] = (SEARCH_PATH,)
    architecture: str = field(default_factory=architecture)


def write_bundle(images: Sequence[Layered], layers: Mapping[str, Image], place: Path) -> None:
    """Write the images to the file `place`, whose folder must be there.

    Of what `layers` holds by name only files, links and folders count.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place.parent)))
        written: dict[str, tuple[str, BinaryIO]] = {}
        for name, content in layers.items():
            stream: BinaryIO = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            written[name] = (write_layer(content, stream), stream)
        packed = folder / place.name
        with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as archive:
            for digest, stream in written.values():
                size = stream.seek(0, io.SEEK_END)
                stream.seek(0)
                add_stream(archive, layer_path(digest), stream, size=size)
            digests = {name: digest for name, (digest, _) in written.items()}
            manifest = [add_config(archive, image, digests) for image in images]
            add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
        packed.replace(place)


def add_config(
    archive: tarfile.TarFile, image: Layered, digests: Mapping[str, str]
) -> dict[str, object]:
    """Add an image's configuration; returns its part of the manifest."""
    config = render_config(image, digests)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    add_bytes(archive, name, config)
    paths = [layer_path(digests[layer]) for layer in image.layers]
    return {"Config": name, "RepoTags": [image.tag], "Layers": paths}


def render_config(image: Layered, digests: Mapping[str, str]) -> bytes:
    """Render the image's configuration, whose digest is the image's identity."""
    config: dict[str, object] = {"Env": list(image.environment), "WorkingDir": "/"}
    if image.entrypoint:
        config["Entrypoint"] = list(image.entrypoint)
    if image.command:
        config["Cmd"] = list(image.command)
    if image.user:
        config["User"] = image.user
    # The tag keeps two images of one content apart: containerd would report either name for both.
    return json.dumps(
        {
            "architecture": image.architecture,
            "os": "linux",
            "config": config,
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{digests[layer]}" for layer in image.layers],
            },
            "history": [{"created_by": f"federate's stand-in for {image.tag}"}],
        }
    ).encode()


def layer_path(digest: str) -> str:
    """Say where in the archive a layer lies."""
    return f"{digest}/layer.tar"

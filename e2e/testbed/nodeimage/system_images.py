"""The images of the control plane's static pods and of the cluster's own, from plain programs."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ..archives import Image, write_archive
from ..errors import TestbedError
from .commands import Commands
from .recipe import CONTROL_PLANE, PROXY_LINKS, PROXY_PROGRAMS, parse_libraries

MOST_STEPS = 100
"""Longer paths than any; a link that leads to itself has no end."""


def write_system_images(
    commands: Commands,
    references: Mapping[str, str],
    *,
    programs: Mapping[str, Path],
    root: Path,
    folder: Path,
) -> list[Path]:
    """Write all images as archives to the folder.

    `references` and `programs` are by short name; kube-proxy gets the tools of the node's `root`.
    """
    images = [
        Image(tag=references[name], files={f"/usr/local/bin/{name}": programs[name]})
        for name in (*CONTROL_PLANE, "etcd")
    ]
    images += [
        Image(tag=references[name], files={f"/{name}": programs[name]}, entrypoint=(f"/{name}",))
        for name in ("coredns", "pause")
    ]
    tools = proxy_tools(commands, root)
    images.append(
        Image(
            tag=references["kube-proxy"],
            files={"/usr/local/bin/kube-proxy": programs["kube-proxy"], **tools},
            links=PROXY_LINKS,
        )
    )
    written = [folder / f"{number}.tar" for number in range(len(images))]
    for image, place in zip(images, written, strict=True):
        write_archive(image, place)
    return written


def proxy_tools(commands: Commands, root: Path) -> dict[str, Path]:
    """Find the programs that kube-proxy calls, their extensions, and all of their libraries."""
    extensions = [f"/{path.relative_to(root)}" for path in root.glob("usr/lib/*/xtables/*.so")]
    found = [*PROXY_PROGRAMS, *sorted(extensions)]
    told = commands.run("ldd", ["chroot", root, "ldd", *found])
    return {path: inside(root, path) for path in (*found, *sorted(parse_libraries(told)))}


def inside(root: Path, path: str) -> Path:
    """Find the file behind a path of the node, following links as the node would.

    Raises:
        TestbedError: it is not there.
    """
    reached, ahead = PurePosixPath("/"), list(reversed(PurePosixPath(path).parts))
    for _ in range(MOST_STEPS):
        if not ahead:
            break
        part = ahead.pop()
        file = root / reached.relative_to("/") / part.lstrip("/")
        if part == "..":
            reached = reached.parent
        elif part != "/" and file.is_symlink():
            ahead += reversed(PurePosixPath(file.readlink()).parts)
        else:
            reached /= part
    file = root / reached.relative_to("/")
    if ahead or not file.is_file():
        raise TestbedError(f"The node's packages have no usable {path}, which kube-proxy needs.")
    return file

"""Put the node image together: root file system, kind's files, ours, programs, system images."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from ..archives import add_bytes, architecture
from ..builds import find_go
from ..components import component_of
from ..errors import TestbedError
from ..places import MODULES, Places
from .commands import Commands
from .recipe import (
    BASE_SPECIFICATION,
    CNI_PLUGINS,
    ENABLED_UNITS,
    FILES,
    MASKED_UNITS,
    NODE_PROGRAMS,
    UNWANTED_LINKS,
    base_specification,
    containerd_config,
    image_config,
    importer_config,
    kubernetes_version,
    mode_of,
    system_images,
)
from .system_images import write_system_images

IMPORTER = "run/importer"
IMPORTER_SECONDS = 60.0
CTR = ("ctr", "--address", f"/{IMPORTER}/socket", "--namespace", "k8s.io", "images", "import")


def kind_files(places: Places) -> Path:
    """Find the files of kind's own base image: they are part of its Go module.

    Raises:
        TestbedError: there is no Go, or the module is neither here nor to be had.
    """
    kind = component_of("kind")
    go = find_go(kind, ["kind's base image"], places)
    finished = subprocess.run(
        [go, "mod", "download", "-json", f"sigs.k8s.io/kind@{kind.version}"],
        cwd=MODULES / kind.module,
        env={**places.environment, "GOFLAGS": "", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        told = json.loads(finished.stdout)
        return Path(told["Dir"]) / "images" / "base" / "files"
    except (ValueError, KeyError) as error:
        said = finished.stderr.strip() or finished.stdout.strip()
        raise TestbedError(f"Go could not get the module of kind {kind.version}: {said}") from error


def write_node_image(
    commands: Commands,
    *,
    reference: str,
    file_system: Path,
    base_files: Path,
    programs: Mapping[str, Path],
    folder: Path,
    place: Path,
) -> None:
    """Write the image's archive to the file `place`; `folder` is for what lies there meanwhile."""
    root = folder / "root"
    root.mkdir()
    # Docker gives the node its own devices.
    commands.run("unpack", ["tar", "-C", root, "--exclude=./dev/*", "-xf", file_system])
    version = f"--kubernetes-version={kubernetes_version()}"
    listing = commands.run(
        "wanted-images", [programs["kubeadm"], *("config", "images", "list", version)]
    )
    references = system_images(listing)
    for source in (base_files, FILES):
        copy_tree(source, root)
    settle_units(commands, root)
    settle_containerd(commands, root, pause=references["pause"])
    install_programs(programs, root)
    images = folder / "images"
    images.mkdir()
    written = write_system_images(commands, references, programs=programs, root=root, folder=images)
    import_images(commands, written, root=root)
    clean(root)
    layer = folder / "layer.tar"
    commands.run("pack", ["tar", "-C", root, "--numeric-owner", "-cf", layer, "."])
    shutil.rmtree(root)
    write_image_archive(layer, reference=reference, place=place)


def copy_tree(source: Path, root: Path) -> None:
    """Copy files to the paths they have below `source`, with the modes that the recipe says."""
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        path = file.relative_to(source)
        if path.parts[0] == "LICENSES":
            continue
        copy(file, root / path, mode=mode_of(path))


def copy(source: Path, place: Path, *, mode: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)
    place.chmod(mode)


def settle_units(commands: Commands, root: Path) -> None:
    """Let systemd start what a node needs and nothing that makes no sense in a container."""
    for pattern in UNWANTED_LINKS:
        for link in root.glob(pattern):
            link.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as journal:
        journal.write("ReadKMsg=no\n")
    init = root / "sbin/init"
    init.unlink(missing_ok=True)
    init.symlink_to("/usr/lib/systemd/systemd")
    commands.run("enable", ["chroot", root, "systemctl", "enable", *ENABLED_UNITS])
    commands.run("mask", ["chroot", root, "systemctl", "mask", *MASKED_UNITS])
    (root / "etc/kubernetes/manifests").mkdir(parents=True)


def settle_containerd(commands: Commands, root: Path, *, pause: str) -> None:
    """Configure containerd as kind does, and put the plugins where kubelets look for them."""
    config = root / "etc/containerd/config.toml"
    config.write_text(containerd_config(config.read_text(), pause=pause))
    told = commands.run("specification", ["chroot", root, "ctr", "oci", "spec"])
    specification = base_specification(json.loads(told))
    (root / BASE_SPECIFICATION).write_text(json.dumps(specification, indent=1))
    # kind's unit starts containerd from where kind's image has it.
    (root / "usr/local/bin/containerd").symlink_to("/usr/bin/containerd")
    for plugin in CNI_PLUGINS:
        copy(root / "usr/lib/cni" / plugin, root / "opt/cni/bin" / plugin, mode=0o755)


def install_programs(programs: Mapping[str, Path], root: Path) -> None:
    for name in NODE_PROGRAMS:
        copy(programs[name], root / "usr/bin" / name, mode=0o755)
    # kind reads which Kubernetes it is from here.
    (root / "kind/version").write_text(kubernetes_version())


def import_images(commands: Commands, images: list[Path], *, root: Path) -> None:
    """Put the images into the node's containerd, by that very containerd."""
    folder = root / IMPORTER
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(importer_config(f"/{IMPORTER}"))
    server = commands.server(
        "containerd", ["chroot", root, "containerd", "--config", f"/{IMPORTER}/config.toml"]
    )
    server.start()
    try:
        server.wait_ready((folder / "socket").exists, timeout_seconds=IMPORTER_SECONDS)
        for image in images:
            image.replace(folder / image.name)
            path = f"/{IMPORTER}/{image.name}"
            commands.run(
                f"import-{image.stem}",
                ["chroot", root, *CTR, "--all-platforms", "--no-unpack", path],
            )
    finally:
        server.stop(grace_seconds=IMPORTER_SECONDS)
    shutil.rmtree(folder)


def clean(root: Path) -> None:
    """Empty the folders that only a running machine fills."""
    for name in ("var/cache", "var/log", "var/lib/apt/lists", "run", "tmp"):
        for entry in os.scandir(root / name):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def write_image_archive(layer: Path, *, reference: str, place: Path) -> None:
    """Write the archive of an image with that one layer, as `docker save` would."""
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    config = image_config(architecture=architecture(), layer=digest)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    with tarfile.open(place, "w", format=tarfile.PAX_FORMAT) as archive:
        add_bytes(archive, name, config)
        archive.add(layer, "layer.tar", recursive=False)
        add_bytes(archive, "manifest.json", json.dumps(manifest).encode())

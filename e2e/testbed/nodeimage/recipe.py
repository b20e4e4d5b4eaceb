"""What goes into the node image: every decision, and no command that carries it out.

Only the standard library, so that `--packages` answers before there is an environment.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from ..components import DEFAULT_MINOR, Component, component_of
from ..errors import TestbedError

FOLDER = Path(__file__).resolve().parent
FILES = FOLDER / "files"
"""What the node gets from us, under the paths it has there."""

REPOSITORY = "federate.test/node"

HOST_PACKAGES: Mapping[str, str] = {"docker": "docker.io", "mmdebstrap": "mmdebstrap"}
"""Program the build runs -> the Debian package that has it, where Debian is not sure to have it."""

NODE_PACKAGES = (
    "bash",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "ethtool",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "libseccomp2",
    "mount",
    "nftables",
    "procps",
    "runc",
    "systemd",
    "util-linux",
)
"""What kind's own base image installs and a single node needs, with Debian's containerd and runc
in place of kind's."""

NOT_UNPACKED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

ENABLED_UNITS = ("containerd.service", "kubelet.service", "undo-mount-hacks.service")
MASKED_UNITS = ("systemd-binfmt.service",)

UNWANTED_LINKS = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
    "etc/systemd/system/*.wants/*",
)
"""What systemd would start that makes no sense in a container; removed before ours is enabled."""

CNI_PLUGINS = ("host-local", "loopback", "portmap", "ptp")

BASE_SPECIFICATION = "etc/containerd/cri-base.json"
"""The file that kind's configuration of containerd starts each container's specification with."""

PRODUCT_HOOK = "/kind/bin/mount-product-files.sh"

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE_PROGRAMS = ("kubelet", "kubeadm", "kubectl")
"""What the node itself runs, in the folder of the packages' programs."""

PROXY_PROGRAMS = ("/usr/sbin/conntrack", "/usr/sbin/xtables-nft-multi")
PROXY_LINKS = {
    f"/usr/sbin/{name}": "xtables-nft-multi"
    for family in ("iptables", "ip6tables")
    for name in (family, f"{family}-save", f"{family}-restore")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """One component and what the node image takes of it."""

    component: Component
    names: tuple[str, ...]


def kubernetes_version() -> str:
    return component_of("kubelet").version


def programs() -> list[Programs]:
    """List what is built for the image; kind is not in it, but its sources give files to it."""
    wanted = (*CONTROL_PLANE, *NODE_PROGRAMS, "kube-proxy", "etcd", "coredns", "pause")
    grouped: dict[str, tuple[Component, list[str]]] = {}
    for name in wanted:
        component = component_of(name, DEFAULT_MINOR)
        grouped.setdefault(component.name, (component, []))[1].append(name)
    return [
        Programs(component=component, names=tuple(names)) for component, names in grouped.values()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Debian:
    """The Debian that the machine takes packages from, which the node's come from too."""

    codename: str
    architecture: str
    sources: tuple[Path, ...]
    """Files of apt, whole: they say too which keys are trusted."""
    options: tuple[str, ...]
    """What apt is told about the way to the archive."""

    @property
    def cache_key(self) -> str:
        """Name the root file system; where it comes from does not matter, what is in it does."""
        content = (self.codename, self.architecture, NODE_PACKAGES, NOT_UNPACKED)
        return f"{self.codename}-{digest_of([repr(content).encode()])}"


def parse_debian(
    *, os_release: str, architecture: str, sources: Mapping[Path, str], apt_config: str
) -> Debian:
    """Read /etc/os-release, apt's files of sources, and what `apt-config dump` prints.

    Raises:
        TestbedError: this is no Debian, or its archive is not among apt's sources.
    """
    told = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    codename = told.get("VERSION_CODENAME", "").strip('"')
    if told.get("ID", "").strip('"') != "debian" or not codename:
        raise TestbedError("The node image is built from Debian's packages, on Debian only.")
    usable = tuple(
        path
        for path, text in sources.items()
        if any(codename in suites and "main" in parts for suites, parts in archives_in(path, text))
    )
    if not usable:
        raise TestbedError(
            f"apt has no source for Debian {codename} main, which the node image is built from; "
            f"see sources.list and sources.list.d in apt's folder."
        )
    way = re.compile(r"Acquire::https?::(\S*Proxy\S*|\S*CaInfo|Verify\S*) ")
    options = tuple(line for line in apt_config.splitlines() if way.match(line))
    return Debian(codename=codename, architecture=architecture, sources=usable, options=options)


def archives_in(path: Path, text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the suites and components that a file of apt names, in either of its formats."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if path.suffix == ".sources":
        for stanza in "\n".join(lines).split("\n\n"):
            fields = dict(re.findall(r"(?m)^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza))
            yield fields.get("Suites", "").split(), fields.get("Components", "").split()
        return
    for line in lines:
        if found := re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?\S+\s+(\S+)\s+(.+)", line):
            yield [found[1]], found[2].split()


def node_image_reference() -> str:
    """Name the image by Kubernetes' version and everything else that goes in.

    Debian's packages count by their names alone: another point release is the same image.
    """
    return f"{REPOSITORY}:{kubernetes_version()}-{digest_of(ingredients())}"


def ingredients() -> list[bytes]:
    keys = [part.component.cache_key() for part in programs()]
    sources = [*FOLDER.glob("*.py"), *(file for file in FILES.rglob("*") if file.is_file())]
    written = [FOLDER.parent / "archives.py", *sorted(sources)]
    named = (*keys, component_of("kind").cache_key())
    return [*(key.encode() for key in named), *(file.read_bytes() for file in written)]


def digest_of(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:10]


def archive_name(reference: str) -> str:
    """Name the image's file in the cache."""
    return f"node-image-{re.sub(r'[^A-Za-z0-9.-]+', '-', reference.rpartition(':')[2])}.tar"


def mode_of(path: PurePath) -> int:
    """Say the mode of a file that the node gets from kind or from us."""
    return 0o755 if path.parent.name == "bin" else 0o644


def system_images(listing: str) -> dict[str, str]:
    """Read `kubeadm config images list`: short name -> the reference that kubeadm asks for.

    Lines with blanks are what kubeadm has to say besides.
    """
    references = re.findall(r"(?m)^\S+:\S+$", listing)
    found = {reference.rpartition(":")[0].rpartition("/")[2]: reference for reference in references}
    wanted = {*CONTROL_PLANE, "kube-proxy", "etcd", "coredns", "pause"}
    if set(found) != wanted:
        raise TestbedError(
            f"kubeadm wants the images {', '.join(sorted(found)) or 'none at all'}; the node "
            f"image knows how to make {', '.join(sorted(wanted))}."
        )
    return found


def containerd_config(text: str, *, pause: str) -> str:
    """Change kind's configuration of containerd: our pause, and no lower out-of-memory scores.

    Nothing else could pull an image, and a node that is a container itself may not lower scores
    wherever Docker may not.
    """
    text = replace_setting(text, "sandbox_image", f'"{pause}"')
    return replace_setting(text, "restrict_oom_score_adj", "true")


def replace_setting(text: str, name: str, value: str) -> str:
    changed, count = re.subn(rf"(?m)^(\s*){name}\s*=.*$", rf"\g<1>{name} = {value}", text)
    if count != 1:
        raise TestbedError(f"kind's configuration of containerd sets {name} {count} times, not 1.")
    return changed


def base_specification(default: Mapping[str, Any]) -> dict[str, Any]:
    """Change containerd's default specification of a container as kind does.

    Limits are those of the node, and a hook hides the machine's product files.
    """
    process = {name: value for name, value in default["process"].items() if name != "rlimits"}
    hooks = dict(default.get("hooks") or {})
    hooks["createContainer"] = [*hooks.get("createContainer", ()), {"path": PRODUCT_HOOK}]
    return {**default, "process": process, "hooks": hooks}


def parse_libraries(told: str) -> set[str]:
    """Read what `ldd` prints: the paths of the shared libraries.

    With several programs, each is named on a line of its own with a colon.
    """
    words = {word for line in told.splitlines() for word in line.split()}
    return {word for word in words if word.startswith("/") and not word.endswith(":")}


def importer_config(folder: str) -> str:
    """Configure a containerd that only takes in images: neither a kubelet's side nor mounts.

    A mount would outlive a build that is killed, and hold its folder.
    """
    unused = ("aufs", "btrfs", "devmapper", "overlayfs", "zfs")
    disabled = [
        "io.containerd.grpc.v1.cri",
        *(f"io.containerd.snapshotter.v1.{name}" for name in unused),
    ]
    return "\n".join(
        (
            "version = 2",
            'root = "/var/lib/containerd"',
            f'state = "{folder}/state"',
            f"disabled_plugins = {json.dumps(disabled)}",
            "[grpc]",
            f'  address = "{folder}/socket"',
            "",
        )
    )


def image_config(*, architecture: str, layer: str) -> bytes:
    """Render the node image's configuration; kind starts its containers with the entrypoint."""
    return json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Env": [
                    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "container=docker",
                ],
                "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
                # What systemd takes for "power off".
                "StopSignal": "SIGRTMIN+3",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
            "history": [{"created_by": "federate's test bed"}],
        }
    ).encode()


def outdated(archives: Mapping[Path, float], *, keep: int) -> Sequence[Path]:
    """Choose the cached images to delete, from their last uses: all but the newest."""
    return sorted(archives, key=lambda path: archives[path], reverse=True)[keep:]

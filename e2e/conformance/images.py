"""Stand-ins for the images of Kubernetes' tests, for nodes that reach no registry.

agnhost is the real program; the rest is the machine's own busybox and bash. They go by names of our
own, and a repository list tells the tests so: nobody takes them for the originals.
"""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from e2e.testbed.archives import Image
from e2e.testbed.errors import TestbedError
from e2e.testbed.locks import held
from e2e.testbed.nodeimage.recipe import parse_libraries
from e2e.testbed.pki import Authority
from e2e.testbed.places import Places

from .bundle import Layered, write_bundle

REGISTRY = "federate.test/e2e"

REPOSITORIES = {"promoterE2eRegistry": REGISTRY}
"""What the tests call a registry -> ours. pause comes with the node."""

AGNHOST = "/agnhost"
BUSYBOX = "/bin/busybox"
HTDOCS = "/usr/local/apache2/htdocs"
NGINX_HTML = "/usr/share/nginx/html"
TOOLS = {
    "curl": "curl",
    "dig": "bind9-dnsutils",
    "getent": "libc-bin",
    "nc": "netcat-openbsd",
    "ss": "iproute2",
}
"""What tests call in agnhost and busybox lacks, or has with other options -> Debian's package."""
SHELL = "bash"
"""What `sh` is: older ones of busybox drop variables whose names no shell knows, like `data-1`."""

WHO = "/usr/bin/who-am-i"
"""A shell that is root, whoever starts it, unless privileges may not be gained."""

BASE = ("busybox", "shell")

PASSWD = b"""root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh
"""
GROUP = b"""root:x:0:
nogroup:x:65534:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
"""

MOVE = Path(__file__).resolve().parent / "files" / "mv"

PAGE = b"<html><body><h1>It works!</h1></body></html>\n"


def repository_list() -> str:
    """Render what KUBE_TEST_REPO_LIST names."""
    return yaml.safe_dump(REPOSITORIES)


def stand_in(tag: str) -> Layered | None:
    """Describe our image of that tag; None where we have none."""
    name = tag.removeprefix(f"{REGISTRY}/").rpartition(":")[0]
    agnhost = (*BASE, "tools", "agnhost")
    match name:
        case "busybox":
            return Layered(tag=tag, layers=BASE, command=["sh"])
        case "agnhost":
            return Layered(tag=tag, layers=agnhost, entrypoint=[AGNHOST], command=["pause"])
        case "jessie-dnsutils":
            return Layered(tag=tag, layers=[*BASE, "tools"], command=["sh"])
        case "nonewprivs":
            asking = [WHO, "-p", "-c", 'echo "Effective uid: $EUID"']
            return Layered(tag=tag, layers=[*BASE, "who"], command=asking)
        case "nonroot":
            return Layered(tag=tag, layers=BASE, command=["sh"], user="1234")
        case "httpd":
            return Layered(tag=tag, layers=[*BASE, "web"], command=serving(HTDOCS))
        case "nginx":
            return Layered(tag=tag, layers=[*BASE, "web"], command=serving(NGINX_HTML))
        case "nautilus" | "kitten":
            layers, command = [*agnhost, name], ["test-webserver"]
            return Layered(tag=tag, layers=layers, entrypoint=[AGNHOST], command=command)
        case _:
            return None


def serving(folder: str) -> list[str]:
    """Serve a folder on port 80, until the container is told to end.

    busybox's httpd does not listen to that as a container's first process, and every deleted pod
    would take its whole grace period.
    """
    return ["sh", "-c", f"trap 'exit 0' TERM; httpd -f -p 80 -h {folder} & wait"]


def read_image_list(listing: str) -> list[str]:
    """Read `e2e.test --list-images`: the tags that are looked for among ours."""
    lines = {line.strip() for line in listing.splitlines()}
    return sorted(line for line in lines if line.startswith(f"{REGISTRY}/"))


def image_bundle(tags: Iterable[str], *, agnhost: Path, places: Places) -> Path:
    """Return an archive with our images of those tags; what we have none of is left out.

    Raises:
        TestbedError: the machine lacks a program that goes in.
    """
    images = [image for tag in tags if (image := stand_in(tag)) is not None]
    layers = layers_of(agnhost, places)
    recipe = f"{images!r}{Path(__file__).read_text()}{MOVE.read_text()}{agnhost.parent.name}"
    name = f"conformance-images-{hashlib.sha256(recipe.encode()).hexdigest()[:10]}.tar"
    place = places.cache / name
    with held(places.cache / "conformance-images.lock"):
        if not place.is_file():
            used = {layer for image in images for layer in image.layers}
            write_bundle(images, {n: layers[n] for n in layers if n in used}, place)
            for old in places.cache.glob("conformance-images-*.tar"):
                if old != place:
                    old.unlink()
    return place


def layers_of(agnhost: Path, places: Places) -> Mapping[str, Image]:
    """Describe all layers; an upper one's files go over a lower one's."""
    busybox = static_busybox(places)
    return {
        "busybox": Image(
            tag="",
            files={
                BUSYBOX: busybox,
                "/etc/passwd": PASSWD,
                "/etc/group": GROUP,
            },
            links={
                f"/bin/{applet}": BUSYBOX for applet in applets_of(busybox) if applet != "busybox"
            },
            folders=("home/user-defined-in-image",),
        ),
        "shell": Image(
            tag="",
            files=tool_files([SHELL], places),
            links={f"/bin/{name}": f"/usr/bin/{SHELL}" for name in ("sh", SHELL)},
        ),
        "tools": Image(tag="", files=tool_files(TOOLS, places)),
        "who": Image(tag="", files={WHO: shell_of(places)}, setuid=[WHO]),
        "agnhost": Image(
            tag="",
            files={AGNHOST: agnhost, **certificate()},
            links={"/agnhost-2": AGNHOST},
            folders=("uploads",),
        ),
        "web": Image(
            tag="",
            files={
                f"{HTDOCS}/index.html": PAGE,
                f"{NGINX_HTML}/index.html": PAGE,
                "/usr/local/bin/mv": MOVE,
            },
        ),
        "nautilus": Image(tag="", files=picture("nautilus")),
        "kitten": Image(tag="", files=picture("kitten")),
    }


def certificate() -> dict[str, bytes | Path]:
    """Make what agnhost serves HTTPS with; whoever asks there takes any certificate."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Authority(Path(folder), "agnhost").issue_server(
            "localhost", addresses=["127.0.0.1"], names=["localhost"]
        )
        return {
            "/localhost.crt": pair.certificate.read_bytes(),
            "/localhost.key": pair.key.read_bytes(),
        }


def picture(name: str) -> dict[str, bytes | Path]:
    """What the test of rolling updates asks of a pod: which picture it shows."""
    return {"/data.json": f'{{\n    "image": "{name}.jpg"\n}}\n'.encode()}


def static_busybox(places: Places) -> Path:
    """Find a busybox that needs no libraries.

    Raises:
        TestbedError: there is none.
    """
    found = shutil.which("busybox", path=places.search_path)
    if found is None or "statically linked" not in linkage(found):
        raise TestbedError(
            "The tests' images are made from a static busybox, and there is none on the search "
            "path: install Debian's busybox-static, or let the nodes pull the originals (--pull)."
        )
    return Path(found)


def applets_of(busybox: Path) -> list[str]:
    """Ask busybox what it can be called."""
    return subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True
    ).stdout.split()


def shell_of(places: Places) -> bytes | Path:
    """Find the shell that the images have."""
    return tool_files([SHELL], places)[f"/usr/bin/{SHELL}"]


def tool_files(tools: Iterable[str], places: Places) -> dict[str, bytes | Path]:
    """Find the machine's own tools and the libraries they need.

    Raises:
        TestbedError: one is not installed.
    """
    files: dict[str, bytes | Path] = {}
    for tool in tools:
        found = shutil.which(tool, path=places.search_path)
        if found is None:
            package = TOOLS.get(tool, tool)
            raise TestbedError(
                f"The tests' images need {tool}, which is not installed: install Debian's "
                f"{package}, or let the nodes pull the originals (--pull)."
            )
        files[f"/usr/bin/{tool}"] = Path(found)
        files.update({path: Path(path) for path in parse_libraries(linkage(found))})
    return files


def linkage(program: str) -> str:
    """Ask which libraries a program needs."""
    finished = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if "not a dynamic executable" in finished.stderr + finished.stdout:
        return "statically linked"
    return finished.stdout

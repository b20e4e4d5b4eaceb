"""What goes into the node image, and how it is cached and loaded."""

import json
import multiprocessing
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePath
from threading import Event
from typing import Any

import pytest

from e2e.testbed.binaries import Binaries
from e2e.testbed.builds import BUILDING as BUILDING_PROGRAMS
from e2e.testbed.builds import build
from e2e.testbed.components import MINORS, Component, component_of
from e2e.testbed.errors import TestbedError
from e2e.testbed.locks import held
from e2e.testbed.nodeimage import ensure
from e2e.testbed.nodeimage.assembly import copy_tree, write_image_archive
from e2e.testbed.nodeimage.commands import Commands
from e2e.testbed.nodeimage.recipe import (
    FILES,
    HOST_PACKAGES,
    archive_name,
    archives_in,
    base_specification,
    containerd_config,
    mode_of,
    node_image_reference,
    outdated,
    parse_debian,
    parse_libraries,
    programs,
    system_images,
)
from e2e.testbed.nodeimage.system_images import inside
from e2e.testbed.places import CHECKOUT, Places
from e2e.testbed.progress import Progress

BOOKWORM = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian"\n'

SOURCES = """\
Types: deb
# Suites: trixie
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/security
Suites:
 bookworm-security
Components: main
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A made-up machine with an empty cache and an empty search path."""
    (tmp_path / "path").mkdir()
    return Places(
        environment={
            "FEDERATE_TESTBED_CACHE": str(tmp_path / "cache"),
            "PATH": str(tmp_path / "path"),
            "HOME": str(tmp_path),
        }
    )


def make_program(places: Places, name: str, script: str) -> Path:
    path = Path(places.search_path) / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


# What goes in.


def test_the_image_is_named_after_its_version_and_what_goes_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name is stable, valid for Docker, and another one when a pinned module changes."""
    reference = node_image_reference()
    assert reference == node_image_reference()
    repository, _, tag = reference.partition(":")
    assert repository == "federate.test/node"
    assert tag.startswith("v1.34.4-")
    assert len(tag) == len("v1.34.4-") + 10
    monkeypatch.setattr(Component, "cache_key", lambda _: "another")
    assert node_image_reference() != reference


def test_the_image_takes_each_program_from_one_component() -> None:
    """Programs that local clusters run too are not built a second time."""
    taken = {part.component.name: part.names for part in programs()}
    assert taken["kubernetes"] == (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    )
    assert set(taken["kubernetes-node"]) == {"kubelet", "kubeadm", "kube-proxy"}
    assert set(taken) == {"kubernetes", "kubernetes-node", "etcd", "coredns", "pause"}


def test_a_minor_is_offered_once() -> None:
    """A minor with programs for real nodes does not show twice where a person chooses one."""
    assert MINORS == ("1.34", "1.36")


def test_own_go_sources_are_part_of_a_cache_key(tmp_path: Path) -> None:
    """A change of a program of ours is built, and one beside modules of others too."""
    pause = component_of("pause")
    folder = tmp_path / pause.module
    folder.mkdir()
    (folder / "go.mod").write_text("module pause\n")
    (folder / "main.go").write_text("package main\n")
    before = pause.cache_key(tmp_path)
    (folder / "main.go").write_text("package main // changed\n")
    assert pause.cache_key(tmp_path) != before


def test_debian_comes_from_the_files_that_name_its_archive(tmp_path: Path) -> None:
    """Other archives that the machine knows have no part in the node, and the way there has."""
    debian = parse_debian(
        os_release=BOOKWORM,
        architecture="amd64",
        sources={
            Path("debian.sources"): SOURCES,
            Path("old.list"): "# deb http://mirror.example/debian bookworm main\n",
            Path("other.list"): "deb [signed-by=/k] http://other.example/linux bookworm stable\n",
            Path("own.list"): "deb [trusted=yes] http://own.example/debian bookworm main contrib\n",
        },
        apt_config='Acquire::http::Proxy "http://proxy.example";\nAPT::Architecture "amd64";\n',
    )
    assert debian.sources == (Path("debian.sources"), Path("own.list"))
    assert debian.options == ('Acquire::http::Proxy "http://proxy.example";',)
    assert debian.cache_key.startswith("bookworm-")


def test_stanzas_may_go_over_several_lines() -> None:
    """A value that starts on the line after its name is read."""
    assert list(archives_in(Path("x.sources"), SOURCES)) == [
        (["bookworm", "bookworm-updates"], ["main"]),
        (["bookworm-security"], ["main"]),
    ]


@pytest.mark.parametrize(
    ("os_release", "wanted"),
    [("ID=fedora\n", "on Debian only"), (BOOKWORM, "no source for Debian bookworm main")],
)
def test_a_machine_without_debians_packages_is_told(os_release: str, wanted: str) -> None:
    """Where the packages cannot come from, one sentence says why."""
    with pytest.raises(TestbedError, match=wanted):
        parse_debian(os_release=os_release, architecture="amd64", sources={}, apt_config="")


LISTING = "\n".join(
    f"registry.example/{name}"
    for name in (
        "kube-apiserver:v1.34.4",
        "kube-controller-manager:v1.34.4",
        "kube-scheduler:v1.34.4",
        "kube-proxy:v1.34.4",
        "coredns/coredns:v1.12.1",
        "pause:3.10.1",
        "etcd:3.6.5-0",
    )
)


def test_system_images_are_named_as_kubeadm_asks_for_them() -> None:
    """Each of kubeadm's references is found by the short name of what is in it."""
    found = system_images(f"W1129 version.go:109] could not ask: no network\n{LISTING}\n")
    assert found["coredns"] == "registry.example/coredns/coredns:v1.12.1"
    assert found["pause"] == "registry.example/pause:3.10.1"
    with pytest.raises(TestbedError, match=r"kubeadm wants the images .*novel"):
        system_images(f"{LISTING}\nregistry.example/novel:v1\n")


def test_containerd_uses_our_pause_and_lowers_no_scores() -> None:
    """A node pulls no image, and asks for nothing that its own container may not do."""
    text = '[x]\n  sandbox_image = "registry.example/pause:3"\n  restrict_oom_score_adj = false\n'
    assert containerd_config(text, pause="a/pause:4") == (
        '[x]\n  sandbox_image = "a/pause:4"\n  restrict_oom_score_adj = true\n'
    )
    with pytest.raises(TestbedError, match="sets sandbox_image 0 times"):
        containerd_config("", pause="a/pause:4")


def test_containers_have_the_nodes_limits_and_kinds_hook() -> None:
    """Limits that the node may not raise are not asked for."""
    default: dict[str, Any] = {"process": {"rlimits": [1], "user": {}}, "ociVersion": "1.0.2"}
    changed = base_specification(default)
    assert changed == {
        "ociVersion": "1.0.2",
        "process": {"user": {}},
        "hooks": {"createContainer": [{"path": "/kind/bin/mount-product-files.sh"}]},
    }
    assert "rlimits" in default["process"]


def test_libraries_are_read_from_what_ldd_says() -> None:
    """Libraries count wherever they are named; the kernel's own is no file."""
    told = (
        "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n"
        "\t/lib64/ld.so (0x3)\n/usr/sbin/other:\n\tstatically linked\n"
    )
    assert parse_libraries(told) == {"/lib/x/libc.so.6", "/lib64/ld.so"}


def test_files_for_the_node_have_its_modes(tmp_path: Path) -> None:
    """What lies in a folder for programs can be run, whatever the source's mode was."""
    assert mode_of(PurePath("usr/local/bin/entrypoint")) == 0o755
    assert mode_of(PurePath("etc/containerd/config.toml")) == 0o644
    source = tmp_path / "source"
    for name in ("kind/bin/run", "kind/about", "LICENSES/x"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
        (source / name).chmod(0o400)
    copy_tree(source, tmp_path / "root")
    modes = {
        str(path.relative_to(tmp_path / "root")): path.stat().st_mode & 0o777
        for path in (tmp_path / "root").rglob("*")
        if path.is_file()
    }
    assert modes == {"kind/bin/run": 0o755, "kind/about": 0o644}


def test_links_are_followed_as_the_node_would(tmp_path: Path) -> None:
    """An absolute link leads to a file of the node, never to one of this machine."""
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libc.so").write_text("the node's")
    (tmp_path / "lib64").symlink_to("usr/lib")
    (tmp_path / "usr/lib/ld.so").symlink_to("/lib64/../lib/libc.so")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "usr/passwd").symlink_to("/etc/passwd")
    (tmp_path / "usr/loop").symlink_to("loop")
    assert inside(tmp_path, "/lib/libc.so").read_text() == "the node's"
    assert inside(tmp_path, "/usr/lib/ld.so").read_text() == "the node's"
    for path in ("/usr/passwd", "/usr/loop", "/usr/absent"):
        with pytest.raises(TestbedError, match="no usable"):
            inside(tmp_path, path)


def test_our_files_say_what_they_should() -> None:
    """The network is valid JSON, with the plugins that the image has."""
    network = json.loads((FILES / "etc/cni/net.d/10-kindnet.conflist").read_text())
    assert [plugin["type"] for plugin in network["plugins"]] == ["ptp", "portmap"]
    assert {path.name for path in (FILES / "kind/manifests").iterdir()} == {
        "default-cni.yaml",
        "default-storage.yaml",
    }


def test_the_archive_is_what_docker_load_takes(tmp_path: Path) -> None:
    """Manifest, configuration and layer fit each other, and systemd is told to stop."""
    layer = tmp_path / "layer.tar"
    layer.write_bytes(b"a layer")
    write_image_archive(layer, reference="federate.test/node:x", place=tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as archive:
        contents = {
            member.name: (archive.extractfile(member) or pytest.fail(member.name)).read()
            for member in archive
        }
    (manifest,) = json.loads(contents["manifest.json"])
    config = json.loads(contents[manifest["Config"]])
    assert manifest["RepoTags"] == ["federate.test/node:x"]
    assert [contents[name] for name in manifest["Layers"]] == [b"a layer"]
    assert config["rootfs"]["diff_ids"] == [
        "sha256:" + subprocess.check_output(["sha256sum", layer], text=True).split()[0]
    ]
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/entrypoint", "/sbin/init"]
    assert config["config"]["StopSignal"] == "SIGRTMIN+3"


# The cache.


def test_the_newest_images_are_kept() -> None:
    """The cache holds no image that nobody asked for lately."""
    uses = {Path("a"): 1.0, Path("b"): 3.0, Path("c"): 2.0}
    assert outdated(uses, keep=2) == [Path("a")]
    assert outdated(uses, keep=3) == []


def test_an_image_of_the_daemon_is_not_loaded_again(places: Places) -> None:
    """With the image in the daemon, nothing is built and nothing written."""
    make_program(places, "docker", "[ $1 = image ] && echo sha256:1")
    assert ensure.ensure_node_image(places, Progress(quiet=True)) == node_image_reference()
    assert not places.cache.exists()


def fake_docker(places: Places) -> Path:
    """Make a docker that has what was loaded into it, and tells what it loaded."""
    loaded = Path(places.environment["HOME"]) / "loaded"
    make_program(
        places,
        "docker",
        f"case $1 in image) [ -e {loaded} ] && echo sha256:1 ; exit 0 ;; "
        f'load) echo "$4" >> {loaded} ;; esac',
    )
    return loaded


def test_a_cached_image_is_loaded_and_what_killed_builds_left_is_removed(places: Places) -> None:
    """The cached file is loaded once; leftovers and images of old are gone."""
    loaded = fake_docker(places)
    places.cache.mkdir()
    archive = places.cache / archive_name(node_image_reference())
    archive.touch()
    os.utime(archive, (1, 1))
    for age in (10, 20, 30):
        other = places.cache / f"node-image-v1.34.4-{age}.tar"
        other.touch()
        os.utime(other, (age, age))
    leftover = places.cache / f"{ensure.BUILDING}killed" / "root"
    leftover.mkdir(parents=True)
    for _ in range(2):
        assert ensure.ensure_node_image(places, Progress(quiet=True)) == node_image_reference()
    assert loaded.read_text().split() == [str(archive)]
    assert {path.name for path in places.cache.iterdir()} == {
        archive.name,
        "node-image-v1.34.4-30.tar",
        "node-image.lock",
    }


class Listener(Progress):
    """Tell the test when something was said."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Event()

    def say(self, text: str, *, always: bool = False) -> None:
        self.heard.set()


def test_docker_forgets_the_images_that_the_cache_forgot(places: Places) -> None:
    """The two that were used last stay in both; one that a container uses is no error."""
    reference, home = node_image_reference(), Path(places.environment["HOME"])
    newest, older, used = (f"federate.test/node:v1.34.4-{age}" for age in (30, 20, 10))
    listed = "\n".join((reference, newest, older, used))
    make_program(
        places,
        "docker",
        f'case "$1 $2" in "image ls") [ "$3" = --quiet ] || echo "{listed}" ;; '
        f'"image rm") echo "$3" >> {home}/removed; [ "$3" != {used} ] ;; esac',
    )
    places.cache.mkdir()
    for age, image in enumerate((used, older, newest, reference)):
        archive = places.cache / archive_name(image)
        archive.touch()
        os.utime(archive, (age, age))
    ensure.ensure_node_image(places, Progress(quiet=True))
    assert (home / "removed").read_text().split() == [older, used]


def test_an_image_that_another_process_made_is_not_loaded_again(places: Places) -> None:
    """Whoever waited for another's build uses what that one loaded."""
    loaded, progress = fake_docker(places), Listener()
    with ThreadPoolExecutor(max_workers=1) as beside:
        with held(places.cache / "node-image.lock"):
            waiting = beside.submit(ensure.ensure_node_image, places, progress)
            assert progress.heard.wait(30)
            (places.cache / archive_name(node_image_reference())).touch()
            loaded.write_text("by another")
        assert waiting.result(30) == node_image_reference()
    assert loaded.read_text() == "by another"


def test_missing_packages_are_named(places: Places) -> None:
    """A machine that lacks what the build runs gets the line to type."""
    progress = Progress(quiet=True)
    with pytest.raises(TestbedError, match=r"apt-get install .* docker\.io"):
        ensure.ensure_node_image(places, progress)
    fake_docker(places)
    wanted = r"apt-get install .* mmdebstrap" if os.geteuid() == 0 else "needs root"
    with pytest.raises(TestbedError, match=wanted):
        ensure.ensure_node_image(places, progress)


def test_packages_are_told_without_an_environment() -> None:
    """Whoever installs the packages has no third-party module yet."""
    finished = subprocess.run(
        [sys.executable, "-S", "-m", "e2e.testbed.nodeimage", "--packages"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.split() == list(HOST_PACKAGES.values()) == ["docker.io", "mmdebstrap"]


def test_what_a_killed_go_build_left_is_removed(places: Places) -> None:
    """The cache of a component holds programs, and nothing of a build that was cut off."""
    component = component_of("pause")
    folder = places.cache / component.cache_key()
    (folder / f"{BUILDING_PROGRAMS}killed").mkdir(parents=True)
    (folder / "pause").touch()
    build(component, ["pause"], places=places, progress=Progress(quiet=True))
    assert [path.name for path in folder.iterdir()] == ["pause"]


def test_only_our_own_programs_get_into_the_node(places: Places) -> None:
    """A kubelet on the search path is not used for it, whatever it says of itself."""
    binaries = Binaries(places, Progress(quiet=True))
    make_program(places, "kubelet", "echo Kubernetes v1.34.4")
    assert binaries.search("kubelet", component_of("kubelet")) is None


@pytest.mark.parametrize(
    ("version", "fits"), [("0.33.0", True), ("0.28.0", True), ("1.2.0", True), ("0.27.0", False)]
)
def test_a_users_kind_is_used(places: Places, version: str, fits: bool) -> None:
    """A kind on the search path is used, unless it is too old."""
    on_path = make_program(places, "kind", f"echo kind version {version}")
    found = Binaries(places, Progress(quiet=True)).search("kind", component_of("kind"))
    assert (found is not None and found.path == on_path) is fits


# Commands.


@pytest.fixture
def real_places(tmp_path: Path) -> Places:
    return Places(
        environment={**os.environ, "FEDERATE_TESTBED_CACHE": str(tmp_path / "cache")},
    )


def test_a_failed_command_is_quoted(tmp_path: Path, real_places: Places) -> None:
    """The error has the last words of the command and its exit code."""
    with Commands(tmp_path, real_places) as commands:
        assert commands.run("fine", ["echo", "good"]) == "good\n"
        with pytest.raises(TestbedError, match=r"bad ended with 3:\nno such mirror"):
            commands.run("bad", ["sh", "-c", "echo no such mirror >&2; exit 3"])
        with pytest.raises(TestbedError, match="needs no-such-program"):
            commands.run("absent", ["no-such-program"])


def end_in_the_middle(folder: Path, places: Places) -> None:
    """Start a command as a build would, and be killed while it runs."""
    with Commands(folder, places) as commands:
        commands.run("long", ["sh", "-c", f"echo $$ > {folder}/pid; exec sleep 600"])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_command_outlives_a_killed_build(tmp_path: Path, real_places: Places) -> None:
    """With the build gone, nobody writes into what the next one removes."""
    builder = multiprocessing.get_context("spawn").Process(
        target=end_in_the_middle, args=(tmp_path, real_places)
    )
    builder.start()
    wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text() != "")
    pid = int((tmp_path / "pid").read_text())
    builder.kill()
    builder.join()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def build_in_the_middle(places: Places) -> None:
    """Be killed while Go runs."""
    build(component_of("pause"), ["pause"], places=places, progress=Progress(quiet=True))


def test_no_go_outlives_a_killed_build(tmp_path: Path, places: Places) -> None:
    """A build that is started again has the machine to itself."""
    make_program(places, "go", f"echo $$ > {tmp_path}/pid; exec /bin/sleep 600")
    builder = multiprocessing.get_context("spawn").Process(
        target=build_in_the_middle, args=(places,)
    )
    builder.start()
    wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text() != "")
    pid = int((tmp_path / "pid").read_text())
    builder.kill()
    builder.join()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def orphan_in_the_middle(folder: Path, places: Places, seconds: str) -> None:
    """Start a command that leaves a process behind which knows neither parent nor session."""
    with Commands(folder, places) as commands:
        commands.run_alone("long", ["sh", "-c", f"setsid sleep {seconds} & exec sleep 600"])


def is_running(argument: str) -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"sleep\0{argument}\0".encode() == process.read_bytes():
                return True
    return False


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of its own need root")
def test_no_process_of_a_command_outlives_a_killed_build(
    tmp_path: Path, real_places: Places
) -> None:
    """An installer's many processes end with it, however far apart they are."""
    seconds = f"{600 + os.getpid()}"
    builder = multiprocessing.get_context("spawn").Process(
        target=orphan_in_the_middle, args=(tmp_path, real_places, seconds)
    )
    builder.start()
    wait_for(lambda: is_running(seconds))
    builder.kill()
    builder.join()
    wait_for(lambda: not is_running(seconds))


def test_no_command_outlives_a_build_that_fails(tmp_path: Path, real_places: Places) -> None:
    """A failure elsewhere does not wait until Debian's packages are there."""
    script = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    with ThreadPoolExecutor(max_workers=1) as beside, Commands(tmp_path, real_places) as commands:
        waiting = beside.submit(commands.run, "long", ["sh", "-c", script])
        wait_for((tmp_path / "pid").is_file)
    with pytest.raises(TestbedError, match="long ended with -9"):
        waiting.result()
    with pytest.raises(TestbedError, match="was not started"):
        commands.run("late", ["true"])

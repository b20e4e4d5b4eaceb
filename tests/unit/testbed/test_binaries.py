"""Where programs are looked for, and in which order."""

from pathlib import Path

import pytest

from e2e.testbed.binaries import Binaries
from e2e.testbed.components import COMPONENTS, component_of
from e2e.testbed.errors import TestbedError
from e2e.testbed.places import MODULES, Places
from e2e.testbed.progress import Progress


def make_program(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Kubernetes {version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A made-up machine: a named folder, a search path and a cache, all empty."""
    return Places(
        environment={
            "FEDERATE_TESTBED_BINARIES": str(tmp_path / "named"),
            "FEDERATE_TESTBED_CACHE": str(tmp_path / "cache"),
            # The fake programs are shell scripts whose shell has an absolute path.
            "PATH": str(tmp_path / "path"),
            "HOME": str(tmp_path / "home"),
        }
    )


def cached(places: Places, program: str, minor: str) -> Path:
    return places.cache / component_of(program, minor).cache_key() / program


def find(places: Places, program: str = "kube-apiserver", minor: str = "1.34") -> Path:
    return Binaries(places, Progress(quiet=True)).find(program, minor)


def test_the_named_folder_wins_then_the_search_path_then_the_cache(
    places: Places, tmp_path: Path
) -> None:
    """What the user names beats what happens to be installed, which beats a build."""
    versioned = make_program(tmp_path / "named" / "1.34" / "kube-apiserver", "v1.34.1")
    flat = make_program(tmp_path / "named" / "kube-apiserver", "v1.34.2")
    on_path = make_program(tmp_path / "path" / "kube-apiserver", "v1.34.3")
    in_cache = make_program(cached(places, "kube-apiserver", "1.34"), "v1.34.4")
    for expected in (versioned, flat, on_path, in_cache):
        assert find(places) == expected
        expected.unlink()


def test_a_program_of_another_minor_is_passed_over(places: Places, tmp_path: Path) -> None:
    """A cluster never runs on programs of a minor nobody asked for."""
    make_program(tmp_path / "named" / "kube-apiserver", "v1.34.4")
    make_program(tmp_path / "path" / "kube-apiserver", "v1.35.0")
    in_cache = make_program(cached(places, "kube-apiserver", "1.36"), "v1.36.3")
    assert find(places, minor="1.36") == in_cache


def test_a_broken_program_is_passed_over(places: Places, tmp_path: Path) -> None:
    """A program that cannot even print its version is not used."""
    broken = make_program(tmp_path / "named" / "kube-apiserver", "v1.34.4")
    broken.write_text("#!/bin/sh\necho v1.34.4\nexit 1\n")
    on_path = make_program(tmp_path / "path" / "kube-apiserver", "v1.34.3")
    assert find(places) == on_path


def test_nothing_found_and_no_go_says_what_to_install(places: Places) -> None:
    """Without programs and without Go, one sentence says what to install or to name."""
    with pytest.raises(TestbedError, match=r"install Go .* or name a folder .*_BINARIES"):
        find(places)


def test_kine_without_a_c_compiler_says_what_to_install(places: Places, tmp_path: Path) -> None:
    """kine's SQLite needs a C compiler, and the message says so before a build starts."""
    make_program(tmp_path / "path" / "go", "go1.26.0")
    with pytest.raises(TestbedError, match="needs a C compiler"):
        find(places, "kine")


def test_a_failed_build_quotes_go_and_leaves_nothing(places: Places, tmp_path: Path) -> None:
    """A build that fails shows Go's last words and puts nothing into the cache."""
    go = make_program(tmp_path / "path" / "go", "go1.26.0")
    go.write_text("#!/bin/sh\necho 'no such host' >&2\nexit 1\n")
    with pytest.raises(TestbedError, match="no such host"):
        find(places, "etcd")
    assert not cached(places, "etcd", "1.34").exists()
    assert list(cached(places, "etcd", "1.34").parent.iterdir()) == []


def test_a_build_is_used_again(places: Places, tmp_path: Path) -> None:
    """A program is built once; the next search finds it in the cache."""
    go = make_program(tmp_path / "path" / "go", "go1.26.0")
    # Finds the value of -o, which is where Go would write the program.
    go.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        'printf \'#!/bin/sh\\n\' > "$2"\n/bin/chmod +x "$2"\n'
    )
    built = find(places, "etcd")
    assert built == cached(places, "etcd", "1.34")
    go.unlink()
    assert find(places, "etcd") == built


@pytest.mark.parametrize(
    ("program", "verb"),
    [("e2e.test", "test -c "), ("virtual-kubelet.test", "test -c "), ("ginkgo", "build ")],
)
def test_tests_are_built_as_tests(places: Places, tmp_path: Path, program: str, verb: str) -> None:
    """A package's tests are a program of their own, which `go build` does not make."""
    go = make_program(tmp_path / "path" / "go", "go1.26.0")
    go.write_text('#!/bin/sh\necho asked for: "$@" >&2\nexit 1\n')
    with pytest.raises(TestbedError, match=f"asked for: {verb}"):
        find(places, program)


def test_an_unknown_minor_lists_the_known_ones(places: Places) -> None:
    """Asking for a Kubernetes minor without a Go module names those that have one."""
    with pytest.raises(TestbedError, match=r"1\.34, 1\.36"):
        find(places, minor="1.12")


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.cache_key())
def test_every_component_is_pinned(component: object) -> None:
    """Every row of the table has a Go module that pins the version the row states."""
    found = [row for row in COMPONENTS if row is component]
    text = (MODULES / found[0].module / "go.mod").read_text()
    assert f" {found[0].version}" in text

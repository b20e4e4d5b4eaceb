"""Build programs from Go modules into the cache, once per machine and user.

A program appears in the cache whole or not at all: it is built in a temporary folder beside its
place and moved there. Whoever builds holds the component's lock; others wait for it and then
find the result. What a killed build left is removed by the next, under the same lock.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .components import Component
from .errors import TestbedError
from .locks import held
from .places import BINARIES_VARIABLE, MODULES, Places
from .processes import LAUNCHER
from .progress import Progress

GO_WANTED = "Go 1.26"
BUILDING = ".building-"


def build(
    component: Component, programs: Iterable[str], *, places: Places, progress: Progress
) -> Path:
    """Make sure that the programs lie in the component's cache folder, and return the folder.

    Raises:
        TestbedError: there is no Go, or the build failed; the message says what to do.
    """
    folder = places.cache / component.cache_key()
    title = f"{component.name} {component.version}"
    with held(
        places.cache / f"{folder.name}.lock",
        on_wait=lambda: progress.say(
            f"Another process is building {title}; waiting for it.", always=True
        ),
    ):
        for leftover in folder.glob(f"{BUILDING}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        missing = [program for program in programs if not (folder / program).is_file()]
        if missing:
            go = find_go(component, missing, places)
            folder.mkdir(parents=True, exist_ok=True)
            with (
                tempfile.TemporaryDirectory(prefix=BUILDING, dir=folder) as temporary,
                progress.long_step(f"Building {', '.join(missing)} ({title}) from Go modules"),
            ):
                run_go(go, component, missing, output=Path(temporary), places=places)
                for program in missing:
                    (Path(temporary) / program).replace(folder / program)
    return folder


def find_go(component: Component, programs: Iterable[str], places: Places) -> Path:
    """Find the Go toolchain, and a C compiler where the component needs one."""
    go = shutil.which("go", path=places.search_path)
    wanted = f"{', '.join(programs)} ({component.name} {component.version})"
    ready_made = f"or name a folder with ready-made programs in {BINARIES_VARIABLE}"
    if go is None:
        raise TestbedError(
            f"{wanted} is neither on the search path nor in the cache, and there is no Go to "
            f"build it with: install {GO_WANTED} or newer, {ready_made}."
        )
    compilers = ("cc", "gcc", "clang")
    if component.cgo and not any(shutil.which(cc, path=places.search_path) for cc in compilers):
        raise TestbedError(
            f"Building {wanted} needs a C compiler: install gcc or clang, {ready_made}."
        )
    return Path(go)


def run_go(
    go: Path, component: Component, programs: Iterable[str], *, output: Path, places: Places
) -> None:
    # The user's own Go flags and workspace are about other modules and break these builds.
    settings = {"CGO_ENABLED": "1" if component.cgo else "0", "GOFLAGS": "", "GOWORK": "off"}
    for program in programs:
        # A package path that ends in a version (server/v3) would name the program after it,
        # therefore every program is built under its own name.
        verb = ("test", "-c", "-vet=off") if program in component.tests else ("build",)
        arguments = [*verb, *component.build_arguments, "-o", str(output / program)]
        finished = run_tied(
            [go, *arguments, component.packages[program]],
            record=output / "go.json",
            folder=MODULES / component.module,
            environment={**places.environment, **settings},
        )
        if finished.returncode != 0:
            last = os.linesep.join(finished.stderr.strip().splitlines()[-8:])
            raise TestbedError(
                f"Building {program} ({component.name} {component.version}) failed. It needs "
                f"{GO_WANTED} or newer and, the first time, a reachable Go module proxy. "
                f"Go said:\n{last}"
            )


def run_tied(
    command: Sequence[str | Path], *, record: Path, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a build's command in a folder to its end, which comes with ours at the latest.

    Otherwise a build whose test run was killed goes on for minutes, beside the next one.
    """
    tied = [sys.executable, "-I", "-S", str(LAUNCHER), str(record), str(os.getpid())]
    return subprocess.run(
        [*tied, *command],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

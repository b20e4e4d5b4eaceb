"""The runtime for machines whose root may not do everything."""

import json
import os
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from e2e.testbed.nodeimage.recipe import FOLDER

SCRIPT = FOLDER / "lesser_runc"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module; it has no suffix, and leaves no compiled file beside itself."""

    class Loader(SourceFileLoader):
        def set_data(self, path: str, data: Any, **_: Any) -> None:
            """Write nothing."""

    loader = Loader("lesser_runc", str(SCRIPT))
    spec = spec_from_loader("lesser_runc", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def asked_for() -> dict[str, Any]:
    """What Docker asks of a runtime for a privileged container."""
    return {
        "args": ["/sbin/init"],
        "capabilities": {"bounding": ["CAP_SYS_RESOURCE", "CAP_CHOWN"], "ambient": None},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1, "soft": 1}],
        "oomScoreAdj": -999,
    }


def test_what_needs_the_capability_is_taken_out(script: ModuleType) -> None:
    """The capability, limits, and a lower score are gone; the rest stays."""
    process = asked_for()
    script.lessen(process)
    assert process == {
        "args": ["/sbin/init"],
        "capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []},
    }


def test_a_higher_score_stays(script: ModuleType) -> None:
    """Everybody may offer to be killed first."""
    process = {"oomScoreAdj": 500}
    script.lessen(process)
    assert process == {"oomScoreAdj": 500}


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--root", "/r", "create", "--bundle", "/b", "name"], ["/b/config.json"]),
        (["run", "-b", "/b", "name"], ["/b/config.json"]),
        (["create", "--bundle=/b", "name"], ["/b/config.json"]),
        (["exec", "--process", "/p.json", "name"], ["/p.json"]),
        (["exec", "-p", "/p.json", "name"], ["/p.json"]),
        (["exec", "--process=/p.json", "name"], ["/p.json"]),
        (["state", "name"], []),
    ],
)
def test_specifications_are_found_in_the_arguments(
    script: ModuleType, arguments: list[str], files: list[str]
) -> None:
    """All ways in which runc is told of a specification are known."""
    assert list(script.specification_files(arguments)) == files


@pytest.mark.parametrize("may", [True, False])
def test_runc_gets_the_arguments_and_a_fitting_specification(tmp_path: Path, may: bool) -> None:
    """runc runs in place of the wrapper; only without the capability the file is another one."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "process.json").write_text(json.dumps(asked_for()))
    config = tmp_path / "bundle" / "config.json"
    config.write_text(json.dumps({"process": asked_for(), "hostname": "node"}))
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    runc.chmod(0o755)
    arguments = ["create", "--bundle", str(tmp_path / "bundle"), "--process"]
    arguments += [str(tmp_path / "process.json"), "name"]
    program = tmp_path / "lesser_runc"
    if may:
        # The bit of the capability every process "has": that of doing nothing at all.
        program.write_text(SCRIPT.read_text().replace("& 1)", "& 0 == 0)"))
    else:
        program.write_text(SCRIPT.read_text().replace("& 1)", "& 0)"))
    program.chmod(0o755)
    finished = subprocess.run(
        [program, *arguments],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (7, f"{' '.join(arguments)}\n")
    specification = json.loads(config.read_text())
    assert specification["hostname"] == "node"
    for process in (specification["process"], json.loads((tmp_path / "process.json").read_text())):
        assert (process == asked_for()) is may
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["config.json"]


def test_without_runc_the_message_says_so(tmp_path: Path) -> None:
    """A machine without runc is told what is missing, in Docker's error."""
    python = subprocess.check_output(
        ["python3", "-c", "import sys; print(sys.executable)"], text=True
    ).strip()
    finished = subprocess.run(
        [python, "-I", "-S", SCRIPT, "state", "name"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    assert "no runc on the search path" in finished.stderr

"""The node's root file system, from Debian's packages; kept in the cache apart from the image.

It takes longest of all and depends on none of our code, so it is made once per Debian release.
"""

import subprocess
from pathlib import Path

from ..archives import architecture
from ..errors import TestbedError
from ..places import Places
from .commands import Commands
from .recipe import NODE_PACKAGES, NOT_UNPACKED, Debian, parse_debian

OS_RELEASE = Path("/etc/os-release")
APT = Path("/etc/apt")


def this_debian(places: Places) -> Debian:
    """Look at the machine.

    Raises:
        TestbedError: the node's packages cannot be taken from here.
    """
    candidates = (APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.[ls]*")))
    files = [path for path in candidates if path.suffix in (".list", ".sources")]
    try:
        dump = subprocess.run(
            ["apt-config", "dump"],
            env=dict(places.environment),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return parse_debian(
            os_release=OS_RELEASE.read_text(),
            architecture=architecture(),
            sources={path: path.read_text() for path in files if path.is_file()},
            apt_config=dump,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise TestbedError(
            f"The node image is built from Debian's packages, but apt cannot be asked: {error}"
        ) from error


def make_root_file_system(commands: Commands, debian: Debian, *, folder: Path, place: Path) -> None:
    """Make the tar `place` of the root file system; `folder` is for what lies there meanwhile."""
    scratch, result = folder / "mmdebstrap", folder / "rootfs.tar"
    scratch.mkdir()
    # apt downloads as a user of its own, who has to get here.
    scratch.chmod(0o755)
    excluded = (f"--dpkgopt=path-exclude={pattern}" for pattern in NOT_UNPACKED)
    commands.run_alone(
        "mmdebstrap",
        [
            *("env", f"TMPDIR={scratch}", "mmdebstrap", "--mode=root", "--variant=minbase"),
            f"--include={','.join(NODE_PACKAGES)}",
            *excluded,
            # Nothing of a build that was cut off is used, so nothing has to reach the disk at once.
            "--dpkgopt=force-unsafe-io",
            *(f"--aptopt={option}" for option in debian.options),
            debian.codename,
            result,
            *debian.sources,
        ],
    )
    result.replace(place)

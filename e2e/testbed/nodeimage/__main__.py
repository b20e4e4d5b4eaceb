"""Command line: `python -m e2e.testbed.nodeimage` prints the image's reference when Docker has it.

With `--packages` it only prints the Debian packages that this takes, one a line, and needs nothing
but the standard library: whoever installs them has no environment yet.
"""

import argparse
import sys

from ..errors import TestbedError
from .recipe import HOST_PACKAGES


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.testbed.nodeimage",
        description="Make sure that Docker has the image of a kind node; print its reference.",
    )
    parser.add_argument(
        "--packages", action="store_true", help="only print the Debian packages this takes"
    )
    if parser.parse_args().packages:
        print("\n".join(HOST_PACKAGES.values()))
        return
    from ..places import Places
    from ..progress import Progress
    from .ensure import ensure_node_image

    try:
        print(ensure_node_image(Places(), Progress()))
    except TestbedError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

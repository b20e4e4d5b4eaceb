"""`python -m federate`: the command line without its console script."""

from __future__ import annotations

import sys

from federate.cli import main

if __name__ == "__main__":
    sys.exit(main())

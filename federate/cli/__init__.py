"""The command line: one small module per command family, heavy imports inside the commands.

`main` is the one place where errors become lines and exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from federate.cli.app import app
from federate.cli.failures import explain
from federate.errors import FederateError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        app(args=arguments, prog_name="federate")
    except FederateError as error:
        failure = explain(error)
        for line in failure.lines:
            print(f"federate: {line}", file=sys.stderr)
        return failure.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0

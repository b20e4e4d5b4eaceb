"""The commands under one name. Nothing here decides: each command stands in its own module."""

from __future__ import annotations

import typer

from federate.cli.accept import EXAMPLE as ACCEPT_EXAMPLE
from federate.cli.accept import accept
from federate.cli.check import EXAMPLE as CHECK_EXAMPLE
from federate.cli.check import check
from federate.cli.explain import EXAMPLE as EXPLAIN_EXAMPLE
from federate.cli.explain import explain
from federate.cli.leave import EXAMPLE as LEAVE_EXAMPLE
from federate.cli.leave import leave
from federate.cli.rbac import EXAMPLE as RBAC_EXAMPLE
from federate.cli.rbac import rbac
from federate.cli.run import EXAMPLE as RUN_EXAMPLE
from federate.cli.run import run
from federate.cli.status import EXAMPLE as STATUS_EXAMPLE
from federate.cli.status import status
from federate.cli.storageclass import EXAMPLE as STORAGE_CLASS_EXAMPLE
from federate.cli.storageclass import storage_class
from federate.cli.sweep import EXAMPLE as SWEEP_EXAMPLE
from federate.cli.sweep import sweep
from federate.cli.version import EXAMPLE as VERSION_EXAMPLE
from federate.cli.version import version

app = typer.Typer(
    name="federate",
    help="Run a virtual node in a hub cluster for each target cluster.",
    epilog="Start: federate run --hub hub.yaml --target edge=target.yaml",
    # Tracebacks with local variables would show credentials.
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Run a virtual node in a hub cluster for each target cluster."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("accept", epilog=ACCEPT_EXAMPLE)(accept)
app.command("check", epilog=CHECK_EXAMPLE)(check)
app.command("explain", epilog=EXPLAIN_EXAMPLE)(explain)
app.command("leave", epilog=LEAVE_EXAMPLE)(leave)
app.command("rbac", epilog=RBAC_EXAMPLE)(rbac)
app.command("run", epilog=RUN_EXAMPLE)(run)
app.command("status", epilog=STATUS_EXAMPLE)(status)
app.command("storage-class", epilog=STORAGE_CLASS_EXAMPLE)(storage_class)
app.command("sweep", epilog=SWEEP_EXAMPLE)(sweep)
app.command("version", epilog=VERSION_EXAMPLE)(version)

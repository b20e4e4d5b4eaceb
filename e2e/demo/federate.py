"""The federate process of the demo: the command of the README, started, killed, started again."""

import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from e2e.testbed.ports import free_ports
from e2e.testbed.processes import Launcher, Record, Server, end_recorded

NAME = "federate"
STOP_SECONDS = 5.0


class Federate:
    """One `federate run`, recorded like a server of the bed it lives in.

    What ends the bed's servers ends it too, and no other process: the next start after a kill -9 of
    the demo, or `clusters-down` when it was kept.
    """

    def __init__(
        self,
        *,
        node: str,
        hub: Path,
        target: Path,
        folder: Path,
        launcher: Launcher,
        more: Sequence[str] = (),
    ) -> None:
        """`more` are further arguments of `federate run`."""
        self.node = node
        self._arguments = ["run", "--hub", str(hub), "--target", f"{node}={target}", *more]
        self.command_line = " ".join(
            ("federate run --hub hub.yaml --target", f"{node}=target.yaml", *more)
        )
        """What a user would type, in a folder with both kubeconfigs."""
        self._folder = folder
        self._launcher = launcher
        self._server: Server | None = None
        self.port = 0

    @property
    def log(self) -> Path:
        """Where all its runs write to."""
        return self._folder / "logs" / f"{NAME}.log"

    @property
    def is_running(self) -> bool:
        """Tell whether it lives."""
        return self._server is not None and self._server.is_running

    def start(self) -> None:
        """Start it on a free port; returns at once."""
        (self.port,) = free_ports(1)
        listen = ["--listen", f"127.0.0.1:{self.port}"]
        command = [sys.executable, "-m", "federate", *self._arguments, *listen]
        self._server = Server(NAME, command, folder=self._folder, launcher=self._launcher)
        self._server.start()

    def is_ready(self) -> bool:
        """Tell whether it leads and serves its virtual node."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2.0):
                return True
        except OSError as error:
            if hasattr(error, "close"):
                error.close()  # an answer with an error status holds a socket
            return False

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._server is not None:
            self._server.kill()

    def stop(self) -> None:
        """End it in good order; twice does no harm."""
        if self._server is not None:
            self._server.stop(grace_seconds=STOP_SECONDS)

    def end_predecessor(self) -> bool:
        """End the one that an earlier demo kept in this folder; False when there is none."""
        record = Record.read(self._folder / "processes" / f"{NAME}.json")
        return record is not None and end_recorded([record], grace_seconds=STOP_SECONDS) > 0

    def log_tail(self, lines: int = 12) -> str:
        """Return the end of the log."""
        return self._server.log_tail(lines) if self._server is not None else ""

"""Tell a person what the test bed is doing: a spinner on a terminal, plain lines elsewhere.

Safe to use from several threads. Everything goes to standard error, so that standard output stays
free for results.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

LINE_EVERY_SECONDS = 5.0
"""How often a long step says it is still at it. Shorter floods CI logs, longer looks hung."""


class Progress:
    """Report steps to a person; `quiet` keeps plain facts back and still reports long steps."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.quiet = quiet

    def say(self, text: str, *, always: bool = False) -> None:
        if always or not self.quiet:
            self.console.print(text, markup=False)

    @contextmanager
    def long_step(self, text: str) -> Iterator[None]:
        """Show that `text` is going on until the block ends, with the elapsed seconds."""
        started = time.monotonic()
        ended = threading.Event()

        def elapsed() -> str:
            return f"{text}: {time.monotonic() - started:.0f} s"

        terminal = self.console.is_terminal
        status = self.console.status(text) if terminal else None

        def keep_telling() -> None:
            while not ended.wait(1.0 if terminal else LINE_EVERY_SECONDS):
                if status is not None:
                    status.update(elapsed())
                else:
                    self.console.print(elapsed(), markup=False)

        self.console.print(f"{text} ...", markup=False)
        teller = threading.Thread(target=keep_telling, name="testbed-progress", daemon=True)
        with status or nullcontext():
            teller.start()
            try:
                yield
            finally:
                ended.set()
                teller.join()
        self.console.print(f"{elapsed()}, over", markup=False)

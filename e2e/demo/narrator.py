"""Tell the story to a person: headings, tables, and what is being waited for.

On a terminal a wait is a spinner; elsewhere it is a line every few seconds. Everything goes to one
stream, in order.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

T = TypeVar("T")

POLL_SECONDS = 0.1

LINE_EVERY_SECONDS = 5.0
"""How often a wait tells of itself where no spinner turns."""

PATIENCE_SECONDS = 60.0
"""Each wait of the story takes a second or two; a machine that compiles can need far longer."""

PLAIN_WIDTH = 120
"""Columns where there is no terminal to ask: a row of a pod table fits."""


class StoryError(Exception):
    """What the story tells did not come true."""


def make_console() -> Console:
    """Open the one stream of the story."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    return console


class Narrator:
    """Say what happens and show it."""

    def __init__(
        self,
        console: Console,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.console = console
        self._clock = clock
        self._sleep = sleep
        self._began_at = clock()
        self._steps = 0

    @property
    def elapsed_seconds(self) -> float:
        """Tell how long the story has been going on."""
        return self._clock() - self._began_at

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self.console.print()
        self.console.print(Text(f"{self._steps}. {title}", style="bold"))

    def say(self, text: str) -> None:
        """Say something, indented below the step."""
        for line in text.splitlines():
            self.console.print(Text(f"   {line}"), soft_wrap=True)

    def command(self, text: str) -> None:
        """Show a command that is run, or that does the same."""
        self.console.print(Text(f"   $ {text}", style="cyan"), soft_wrap=True)

    def table(self, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Show objects as they are in a cluster right now."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for head in heads:
            table.add_column(head, overflow="fold")
        shown = [[Text(cell) for cell in row] for row in rows]
        for row in shown:
            table.add_row(*row)
        self.console.print(Text(f"   {title}", style="bold blue"))
        self.console.print(Padding(table if shown else Text("(none)"), (0, 0, 0, 5), expand=False))

    def wait(
        self,
        what: str,
        probe: Callable[[], T | None],
        *,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> T:
        """Wait until the probe returns something true, say that it did, and return it.

        Raises:
            StoryError: it did not in time.
        """
        began_at = told_at = self._clock()
        terminal = self.console.is_terminal
        status = self.console.status(f"   {what} ...") if terminal else None
        with status or nullcontext():
            while not (found := probe()):
                now = self._clock()
                if now - began_at > timeout_seconds:
                    raise StoryError(f"Not within {timeout_seconds:.0f} s: {what}.")
                if status is not None:
                    status.update(f"   {what} ... {now - began_at:.0f} s")
                elif now - told_at >= LINE_EVERY_SECONDS:
                    told_at = now
                    self.say(f".. {what}: {now - began_at:.0f} s")
                self._sleep(POLL_SECONDS)
        self._fact(f"{what} ({self._clock() - began_at:.1f} s)")
        return found

    def check(self, what: str, is_true: bool) -> None:
        """Say something that is true.

        Raises:
            StoryError: it is not.
        """
        if not is_true:
            raise StoryError(f"Not true: {what}.")
        self._fact(what)

    def tell(self, text: str) -> None:
        """Say something about the story as a whole."""
        self.console.print(text, markup=False, soft_wrap=True)

    def _fact(self, text: str) -> None:
        self.console.print(Text.assemble("   ", ("ok", "green"), f"  {text}"), soft_wrap=True)

"""What a command that takes its time says meanwhile: the port that its steps speak to."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where the steps of a leaving say what they are at."""

    def begin(self, step: str) -> None:
        """Say what is done from now on, as in "draining edge"."""

    def now(self, state: str) -> None:
        """Say how far that is; often the same as before."""

    def done(self) -> None:
        """Say that the step is done."""

    def note(self, text: str) -> None:
        """Say what stays true beyond the step."""

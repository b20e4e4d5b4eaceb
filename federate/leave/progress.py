"""What a command that takes its time says meanwhile: the port that its steps speak to."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where the steps of a leaving say what they are at."""

    def begin(self, step: str) -> None:
        """Say what is done from now on, as in "draining edge"."""

    def now(self, state: str, *, left_seconds: int = 0) -> None:
        """Say how far that is; often the same as before. `left_seconds`: a wait of known length."""

    def done(self) -> None:
        """Say that the step is done."""

    def close(self) -> None:
        """Leave a step without a word; twice does no harm."""

    def note(self, text: str) -> None:
        """Say what stays true beyond the step."""

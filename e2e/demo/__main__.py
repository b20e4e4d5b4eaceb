"""Command line: `python -m e2e.demo [--keep]`, which `make demo [KEEP=1]` runs."""

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from e2e.testbed.errors import TestbedError

from .narrator import Narrator, StoryError, make_console
from .stage import Stage, fresh_stage, kept_stage
from .story import Story, how_to_look_around

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

INTERRUPTED = 130


@app.command()
def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the clusters and federate running.")
    ] = False,
) -> None:
    """See a Deployment in a hub run in a target, through a virtual node, step by step.

    Two clusters are started for the story and deleted after it; what `make clusters-up` started is
    not touched. With --keep the story is played on the clusters of `make clusters-up`, which are
    started unless they run, and they and federate go on running until `make clusters-down`.
    """
    narrator = Narrator(make_console())
    narrator.step("Two clusters: the hub, where users submit, and the target, where pods run")
    try:
        with kept_stage(narrator) if keep else fresh_stage(narrator) as stage:
            told_seconds = play(Story(stage, narrator), stage, narrator, keep=keep)
    except KeyboardInterrupt:
        narrator.tell("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    narrator.tell(f"\nThat was the whole story, in {told_seconds:.0f} s.")
    if keep:
        narrator.tell("\n" + how_to_look_around(stage))
    else:
        narrator.tell("To look around yourself: make demo KEEP=1. With your clusters: README.md.")


def play(story: Story, stage: Stage, narrator: Narrator, *, keep: bool) -> float:
    """Play the story and return how long it took; one that fails says why and where logs are."""
    try:
        story.play()
        told_seconds = narrator.elapsed_seconds
        if keep:
            story.leave_something()
    # A cluster that answers with an error fails the story like anything else.
    except Exception as error:
        what = str(error) if isinstance(error, StoryError) else f"{type(error).__name__}: {error}"
        narrator.tell(f"\nThe demo failed. {what}\n{story.sketch()}")
        narrator.tell(f"All logs: {stage.save_logs()}")
        if keep:
            narrator.tell("Everything goes on running; `make clusters-down` ends it.")
        raise StoryError(what) from error
    return told_seconds


def _terminate(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="python -m e2e.demo")
    except TestbedError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except StoryError:
        sys.exit(1)


if __name__ == "__main__":
    main()

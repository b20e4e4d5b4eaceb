"""Draw the results: seconds and ratios by number of pods, up and down, with the machine's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {"federate": "#1f5fa8", "target": "#9aa0a6", "both": "#444444"}
MARKS = {"plain": "o", "lifelike": "s"}
LINES = {"plain": "-", "lifelike": "--"}
AIM_TO_BOTH = 1.10


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Draw what `results.Result.document` returned; nothing where no pair was run."""
    summary = document["summary"]
    if not summary:
        return
    # Letters stay text: smaller, and differences between two versions can be read.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "federate", "font.size": 9}):
        figure = Figure(figsize=(10, 7), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True)
        sizes = [row["pods"] for row in summary]
        # Before anything is drawn: a single size would have no width.
        axes[0][0].set_xscale("log")
        axes[0][0].set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
        axes[0][0].set_xticks(sizes, labels=[f"{size:,}" for size in sizes])
        axes[0][0].minorticks_off()
        for column, phase in enumerate(("up", "down")):
            draw_seconds(axes[0][column], summary, phase)
            draw_ratios(axes[1][column], summary, phase)
            axes[1][column].set_xlabel("pods of the Deployment")
        figure.suptitle(caption(document), fontsize=9)
        temporary = path.with_name(f".{path.name}.new.svg")
        figure.savefig(temporary, metadata={"Date": None})
    temporary.replace(path)


def draw_seconds(axes: Axes, summary: Sequence[Mapping[str, Any]], phase: str) -> None:
    """Draw the medians of all arms, with quartiles."""
    title = {"up": "to all Ready, seen on the hub", "down": "to all gone, on both sides"}[phase]
    axes.set_title(title)
    axes.set_ylabel("seconds")
    axes.set_yscale("log")
    for play in plays_of(summary):
        rows = [row for row in summary if row["play"] == play]
        for arm, colour in COLOURS.items():
            points = [
                (r["pods"], r[phase]["seconds"][arm]) for r in rows if arm in r[phase]["seconds"]
            ]
            plot(axes, points, play=play, label=f"{arm}, {play} nodes", colour=colour)
    axes.grid(visible=True, axis="y", which="both", alpha=0.2)
    axes.legend(fontsize=7)


def draw_ratios(axes: Axes, summary: Sequence[Mapping[str, Any]], phase: str) -> None:
    """Draw federate's seconds in proportion to those of the other arms."""
    axes.set_ylabel("federate's time : theirs")
    axes.axhline(1.0, color="#bbbbbb", linewidth=1)
    axes.axhline(AIM_TO_BOTH, color="#2a8f3c", linewidth=1, linestyle=":", label="aim, to both")
    for play in plays_of(summary):
        rows = [row for row in summary if row["play"] == play]
        for arm in ("target", "both"):
            name = f"to_{arm}"
            ratios = [(r["pods"], r[phase].get("ratio", {}).get(name)) for r in rows]
            points = [(pods, ratio) for pods, ratio in ratios if ratio]
            plot(axes, points, play=play, label=f"to {arm}, {play} nodes", colour=COLOURS[arm])
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.2)
    axes.legend(fontsize=7)


def plot(
    axes: Axes,
    points: Sequence[tuple[int, Mapping[str, float]]],
    *,
    play: str,
    label: str,
    colour: str,
) -> None:
    """Draw medians with their quartiles as bars."""
    if not points:
        return
    medians = [spread["median"] for _, spread in points]
    below = [spread["median"] - spread["low"] for _, spread in points]
    above = [spread["high"] - spread["median"] for _, spread in points]
    axes.errorbar(
        [pods for pods, _ in points],
        medians,
        yerr=[below, above],
        label=label,
        color=colour,
        marker=MARKS[play],
        linestyle=LINES[play],
        capsize=3,
        markersize=4,
    )


def plays_of(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of nodes in the order in which they were measured."""
    return list(dict.fromkeys(row["play"] for row in summary))


def caption(document: Mapping[str, Any]) -> str:
    """Name the machine and the versions."""
    machine, software = document["machine"], document["software"]
    pairs = {row["pairs"] for row in document["summary"]}
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"Kubernetes {software['kubernetes']}, federate {software['federate']}, "
        f"Python {software['python']}\n"
        f"medians and quartiles of {' or '.join(map(str, sorted(pairs)))} pairs"
    )

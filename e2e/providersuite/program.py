"""Run the suite against one node of a cluster, and read what it says."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.conformance.results import Outcome, Result, shortened
from e2e.testbed.builds import run_tied
from e2e.testbed.errors import TestbedError
from e2e.testbed.places import Places

PROGRAM = "virtual-kubelet.test"
TEST = "TestProvider"
"""What ours is called, below which theirs are; see suite_test.go."""

PATIENCE_SECONDS = 60
"""How long a spec waits for one thing."""
MOST_SECONDS = 1800
"""All of them; then Go ends the program and says where it stood."""

LOG_CHARACTERS = 2000

OUTCOMES: Mapping[str, Outcome] = {
    "PASS": Outcome.PASSED,
    "FAIL": Outcome.FAILED,
    "SKIP": Outcome.SKIPPED,
}

BEGUN = re.compile(rf"=== RUN +{TEST}/(\w+)")
OVER = re.compile(rf" +--- (PASS|FAIL|SKIP): {TEST}/(\w+) \(([\d.]+)s\)")
ENTRY = re.compile(r" +\S+\.go:\d+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is run, and where."""

    kubeconfig: Path
    namespace: str
    node: str
    image: str
    """What pods run: nobody has the images that the suite names."""
    only: Collection[str] = ()
    """Names of specs; empty: all."""
    without: Collection[str] = ()
    """Regular expressions: specs that are left out."""

    def command(self, program: Path) -> list[str]:
        """Render the command line."""
        only = [f"-test.run=^{TEST}$/^({'|'.join(sorted(self.only))})$"] if self.only else []
        without = [f"-test.skip=^{TEST}$/({'|'.join(self.without)})"] if self.without else []
        return [
            *(str(program), "-test.v", f"-test.timeout={MOST_SECONDS}s", *only, *without),
            *(f"-kubeconfig={self.kubeconfig}", f"-namespace={self.namespace}"),
            *(f"-node={self.node}", f"-image={self.image}", f"-patience={PATIENCE_SECONDS}s"),
        ]


def run_specs(program: Path, wish: Wish, *, folder: Path, places: Places) -> dict[str, Result]:
    """Run specs to their end; what the suite says is kept in `folder`, which has to be there.

    Raises:
        TestbedError: it ran none; the message quotes it.
    """
    finished = run_tied(
        wish.command(program),
        record=folder / "suite.json",
        folder=folder,
        environment=places.environment,
    )
    said = finished.stdout + finished.stderr
    (folder / "suite.log").write_text(said)
    results = read_output(said)
    if not results:
        raise TestbedError(f"The suite ran no spec. It said:\n{said[-LOG_CHARACTERS:]}")
    return results


def read_output(text: str) -> dict[str, Result]:
    """Read what a program of Go's tests prints: how each spec ended, and its last words.

    One that began and has no end was cut off with the program.
    """
    words: dict[str, list[str]] = {}
    results: dict[str, Result] = {}
    current: list[str] = []
    for line in text.splitlines():
        if begun := BEGUN.fullmatch(line):
            current = words.setdefault(begun[1], [])
        elif over := OVER.fullmatch(line):
            outcome = OUTCOMES[over[1]]
            message = "" if outcome is Outcome.PASSED else last_words(words.get(over[2], ()))
            results[over[2]] = Result(outcome=outcome, seconds=float(over[3]), message=message)
        elif line.startswith("---"):
            current = []
        else:
            current.append(line)
    cut_off = {
        name: Result(outcome=Outcome.FAILED, message=last_words(said))
        for name, said in words.items()
        if name not in results
    }
    return results | cut_off


def last_words(lines: Collection[str]) -> str:
    """Keep the last thing that a spec logged; before it stands what went well."""
    said = list(lines)
    begins = [number for number, line in enumerate(said) if ENTRY.match(line)]
    return shortened("\n".join(said[begins[-1] if begins else 0 :]))

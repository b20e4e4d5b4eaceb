"""What a failed command says and which code it ends with: the one table of both.

Input: an error of the tree; output: lines and an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass

from federate.errors import (
    ConfigError,
    FederateError,
    Forbidden,
    Unauthorized,
    Unreachable,
)

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What to print, and what to end with."""

    lines: tuple[str, ...]
    exit_code: int


def explain(error: FederateError) -> Failure:
    """Say what failed and the next step, where one is known."""
    lines = [line for line in str(error).splitlines() if line] or [type(error).__name__]
    step = next_step(error)
    return Failure(lines=(*lines, step) if step else tuple(lines), exit_code=_exit_code(error))


def next_step(error: FederateError) -> str:
    """Return what a person does next, "" where the message says it already."""
    cluster = getattr(error, "cluster", "") or "the cluster"
    match error:
        case Unreachable():
            return (
                f"{cluster} gave no answer: check the server address in its kubeconfig, "
                f"and that this host reaches it (kubectl --kubeconfig FILE get --raw /readyz)"
            )
        case Unauthorized():
            return f"{cluster} does not accept the credentials of its kubeconfig: renew them"
        case Forbidden(verb=verb, subject=subject) if verb:
            kind = subject.partition(" ")[0] or "the object"
            return (
                f"the user of {cluster}'s kubeconfig lacks the right to {verb} {kind}: "
                f"grant it there with a ClusterRole and its binding"
            )
        case _:
            return ""


def _exit_code(error: FederateError) -> int:
    return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED

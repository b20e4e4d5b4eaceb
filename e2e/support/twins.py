"""The same pod twice: on a real node of the hub, and through the virtual node.

Both stand in one hub namespace and name the same objects. What their containers print of what they
were given is compared line by line, once the facts in which any two pods differ are put in words:
whoever is told of a mirror's name or uid instead of the hub pod's is found out by that.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from .desk import Desk
from .manifests import pod, pod_spec
from .pods import name_of, uid_of
from .witness import Json
from .world import PATIENCE_SECONDS, Space

T = TypeVar("T")

AWAKE_SECONDS = 3.0

LAST_LINE = "that is all"
"""Of what `app show` prints."""


class Both(NamedTuple):
    """Something of both twins."""

    here: list[str]
    """On the real node."""
    there: list[str]
    """Through the virtual node."""

    def without(self, patterns: Iterable[str]) -> "Both":
        """Leave out lines, by expressions that fit their beginnings."""
        left_out = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")
        return Both(*([line for line in lines if not left_out.match(line)] for lines in self))

    def only_on_one_side(self) -> list[str]:
        """List the lines that the other side does not have."""
        here, there = map(set, self)
        return sorted(here ^ there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """Makes pods twice in a space, called `<name>-here` and `<name>-there`."""

    desk: Desk
    nodes: tuple[str, str]
    """The real one and the virtual one."""

    @property
    def space(self) -> Space:
        """Where the twins are."""
        return self.desk.space

    def names(self, name: str) -> tuple[str, str]:
        """Name both: first the one on the real node."""
        return f"{name}-here", f"{name}-there"

    def create(
        self,
        name: str,
        *,
        labels: Json | None = None,
        annotations: Json | None = None,
        **fields: object,
    ) -> None:
        """Create a pod on each kind of node; `fields` are of its spec."""
        for twin, node in zip(self.names(name), self.nodes, strict=True):
            spec = pod_spec(node, **fields)
            self.space.create(pod(twin, spec, labels=labels, annotations=annotations))

    def pods(self, name: str) -> tuple[Json, Json]:
        """Read both."""
        here, there = (self.read(twin) for twin in self.names(name))
        return here, there

    def read(self, name: str) -> Json:
        """Read a hub pod that has to be there."""
        found = self.space.pod(name)
        assert found is not None, f"There is no pod {name}.\n{self.space.explain()}"
        return found

    def wait(
        self,
        name: str,
        what: str,
        probe: Callable[[Json], T | None],
        *,
        timeout_seconds: float = PATIENCE_SECONDS,
        awake: bool = False,
    ) -> tuple[T, T]:
        """Wait until both are as is wanted; returns what the probe found of each.

        `awake` lets kubelets look at both again and again. At a changed pod, and at its volumes,
        one looks at once, else each minute or so; a single look may come before it has heard of
        what the pod refers to.
        """
        touched_at = 0.0

        def both() -> tuple[T, T] | None:
            nonlocal touched_at
            if awake and time.monotonic() - touched_at > AWAKE_SECONDS:
                self._touch(name)
                touched_at = time.monotonic()
            here, there = map(probe, self.pods(name))
            return (here, there) if here is not None and there is not None else None

        return self.space.wait(f"both {name} {what}", both, timeout_seconds=timeout_seconds)

    def wait_running(self, *names: str) -> None:
        """Wait until both of each name run."""
        for name in names:
            for twin in self.names(name):
                self.space.wait_running(twin)

    def shown(self, name: str, container: str = "main") -> Both:
        """Return what a container of each printed by `app show`, its facts put in words."""

        def read(hub_pod: Json) -> list[str] | None:
            said = self.desk.hub.run("logs", name_of(hub_pod), f"--container={container}")
            lines = said.stdout.decode().splitlines()
            # A container may be done before its kubelet tells of the pod's address.
            is_told = lines[-1:] == [LAST_LINE] and self._address_of(hub_pod)
            return self.in_words(hub_pod, lines) if is_told else None

        return Both(*self.wait(name, f"print all in {container}", read))

    def run(self, name: str, *command: str, container: str = "main") -> Both:
        """Return what a command prints in each, its facts put in words."""

        def read(hub_pod: Json) -> list[str]:
            where = ("exec", name_of(hub_pod), f"--container={container}")
            said = self.desk.hub.read(*where, "--", *command)
            return self.in_words(hub_pod, said.decode().splitlines())

        here, there = map(read, self.pods(name))
        return Both(here, there)

    def _touch(self, name: str) -> None:
        for twin in self.names(name):
            body = {"metadata": {"annotations": {"example.com/touched": str(time.monotonic())}}}
            self.space.hub.patch("Pod", self.space.namespace, twin, body)

    def in_words(self, hub_pod: Json, lines: Sequence[str]) -> list[str]:
        """Put words for what no two pods have in common, by what the hub says of a pod."""
        facts: Mapping[str, str] = {
            name_of(hub_pod): "<name>",
            uid_of(hub_pod): "<uid>",
            hub_pod["spec"]["nodeName"]: "<node>",
            self._address_of(hub_pod): "<address>",
        }
        # Whole words only, in quoted texts too: one address may begin like another.
        known = "|".join(re.escape(fact) for fact in sorted(facts, key=len, reverse=True) if fact)
        pattern = re.compile(rf"(?:(?<![\w.])|(?<=\\[tn]))(?:{known})(?!\w|\.\w)")
        return [pattern.sub(lambda found: facts[found[0]], line) for line in lines]

    def _address_of(self, hub_pod: Json) -> str:
        """Return a pod's address, "" while it has none, as the cluster tells where it runs.

        Where both clusters use the same range of addresses, the hub is not told of a mirror's.
        """
        runs = self.space.mirror(name_of(hub_pod)) or hub_pod
        address: str = runs["status"].get("podIP", "")
        return address

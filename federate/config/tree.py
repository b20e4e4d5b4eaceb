"""YAML with places: plain data, and for each key and item the line it stands in.

Only the composer of PyYAML is used, so nothing is constructed that a file could name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from federate.config.values import shown

Loc: TypeAlias = tuple[str | int, ...]
"""Where a value is: keys and positions from the top."""

VALUES_LIMIT = 20_000
"""Far above any real file, and reached at once by aliases of aliases of aliases."""

BYTES_LIMIT = 1024 * 1024

SAID_LIMIT = 120
"""The parser's words may repeat what stands in the file, as names of aliases."""

_TAG = "tag:yaml.org,2002:"
_WHOLE = re.compile(r"[-+]?[0-9]{1,4000}")
"""Python refuses to make a number of more digits than 4300; then it stays a text."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TEXT_TAGS = ("str", "timestamp", "merge", "value")
_TRUE = ("true", "yes", "on")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong with a file."""

    line: int
    path: str
    """The key in words, "" for the file as a whole."""
    said: str

    def at(self, where: str) -> str:
        """Render the line that is shown, for a file called `where`."""
        key = f" {self.path}:" if self.path else ""
        return f"{where}:{self.line}:{key} {self.said}"


class Unreadable(ValueError):
    """The text is no YAML that could be looked into."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.said)
        self.problem = problem


@dataclass(slots=True)
class Tree:
    """What a file says."""

    data: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    source: dict[Loc, str] = field(default_factory=dict)
    """Scalars as they were written: 007 is not 7."""
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, loc: Loc) -> int:
        """Return the line of a place, or of what is nearest above it."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)


def path_of(loc: Sequence[str | int]) -> str:
    """Render a place as `virtualNodes[1].labels["example.com/zone"]`."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part) and shown(part) == f'"{part}"':
            path += f".{part}" if path else part
        else:
            path += f"[{shown(part)}]"
    return path


def read_tree(content: bytes) -> Tree:
    """Read one YAML document.

    Raises:
        Unreadable: it is no YAML, too large, or more than one document.
    """
    if len(content) > BYTES_LIMIT:
        raise Unreadable(Problem(line=1, path="", said="expected a file below 1 MiB"))
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(content)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part[:SAID_LIMIT] for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else 1
        raise Unreadable(Problem(line=line, path="", said=f"no YAML: {said}")) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        said = "no YAML: expected UTF-8 text without control characters"
        raise Unreadable(Problem(line=1, path="", said=said)) from None
    except RecursionError:
        raise Unreadable(Problem(line=1, path="", said="nested too deeply")) from None
    finally:
        if loader is not None:
            loader.dispose()
    reader = _Reader()
    if root is not None:
        try:
            reader.tree.data = reader.read(root, ())
        except RecursionError:  # aliases nest deeper than what was written
            raise Unreadable(Problem(line=1, path="", said="nested too deeply")) from None
    return reader.tree


class _Reader:
    def __init__(self) -> None:
        self.tree = Tree()
        self._inside: set[int] = set()
        self._count = 0

    def read(self, node: yaml.Node, loc: Loc) -> Any:
        line = node.start_mark.line + 1
        self.tree.lines.setdefault(loc, line)
        self._count += 1
        if self._count > VALUES_LIMIT:
            said = f"more than {VALUES_LIMIT} values"
            raise Unreadable(Problem(line=line, path=path_of(loc), said=said))
        if id(node) in self._inside:
            raise Unreadable(Problem(line=line, path=path_of(loc), said="contains itself"))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, loc)
        self._inside.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*loc, i)) for i, item in enumerate(node.value)]
            return dict(self._entries(node, loc))
        finally:
            self._inside.discard(id(node))

    def _entries(self, node: yaml.Node, loc: Loc) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._wrong(line, loc, "expected a text as key")
                continue
            key = str(key_node.value)
            there = (*loc, key)
            if key in seen:
                self._wrong(line, there, f"stands in line {seen[key]} already; expected it once")
                continue
            seen[key] = line
            self.tree.lines[there] = line
            yield key, self.read(value_node, there)

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        text = str(node.value)
        self.tree.source[loc] = text
        kind = node.tag.removeprefix(_TAG)
        match kind:
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int":
                return int(text) if _WHOLE.fullmatch(text) else text
            case "float":
                try:
                    return float(text)
                except ValueError:
                    return text
            case _:
                if kind not in _TEXT_TAGS:
                    self._wrong(
                        node.start_mark.line + 1, loc, f"unknown YAML tag {node.tag[:SAID_LIMIT]}"
                    )
                return text

    def _wrong(self, line: int, loc: Loc, said: str) -> None:
        self.tree.problems.append(Problem(line=line, path=path_of(loc), said=said))

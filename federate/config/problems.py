"""What pydantic finds wrong, in plain words and with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from federate.config.tree import Loc, Problem, Tree, path_of
from federate.config.values import SHOWN_LIMIT, shown

KEY_MARK = "[key]"
"""How pydantic says that it is the key of a mapping that is wrong."""

_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "list_type": "a list",
}


def explain(error: ValidationError, tree: Tree, shape: type[BaseModel]) -> Iterator[Problem]:
    """Yield each problem; of a value that is wrong in several ways each of them."""
    for found in error.errors():
        loc: Loc = found["loc"]
        if loc and loc[-1] == KEY_MARK:
            loc = loc[:-1]
            said = f"found the key {shown(str(loc[-1]))}; {_expected(found)}"
        elif found["type"] == "extra_forbidden":
            said = f"unknown key; {_instead(str(loc[-1]), _keys_at(shape, loc[:-1]))}"
        elif found["type"] == "missing":
            said = "missing; it is needed"
        else:
            said = f"found {show(found['input'], tree.source.get(loc, ''))}; {_expected(found)}"
        yield Problem(line=tree.line_of(loc), path=path_of(loc), said=said)


def show(found: Any, source: str) -> str:
    """Say what was found; `source` is how a scalar was written. Never much of it."""
    if isinstance(found, str):
        return shown(found)
    match found:
        case None:
            return "nothing"
        case bool():
            return f"{source}, which YAML takes for {'true' if found else 'false'}"
        case int() | float():
            few = source if len(source) <= SHOWN_LIMIT else f"{source[: SHOWN_LIMIT - 1]}…"
            return f"{few} (a number)"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _expected(found: Any) -> str:
    kind = found["type"]
    if kind == "value_error":
        return str(found["ctx"]["error"])
    if kind == "literal_error":
        return f"expected {found['ctx']['expected'].replace(chr(39), '')}"
    words = _EXPECTED.get(kind, "")
    if kind == "string_type" and isinstance(found["input"], bool | int | float):
        words += ": write it in quotes"
    return f"expected {words}" if words else str(found["msg"])


def _instead(key: str, known: Sequence[str]) -> str:
    folded = {name.lower(): name for name in known}
    close = get_close_matches(key.lower(), list(folded), n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]}?"
    return f"expected one of {', '.join(known)}"


def _keys_at(shape: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys of the mapping at a place of the file."""
    for part in loc:
        if isinstance(part, int):
            continue
        field = next(f for f in shape.model_fields.values() if f.alias == part)
        shape = part_of(field.annotation) or shape
    return [str(field.alias) for field in shape.model_fields.values()]


def part_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model`, `Model | None` or `list[Model]`; None for other types."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for a in get_args(annotation) if (found := part_of(a)) is not None), None)

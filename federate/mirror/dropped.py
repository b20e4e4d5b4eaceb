"""What of a rendered spec the target did not keep: an API server drops fields it does not know.

Creates are not strict, since an older target would then refuse every pod once a newer hub defaults
a field it does not know. So the object that came of it is compared with what was sent (C4). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from federate.model.objects import JsonObject

_WEAKENING = frozenset({"securityContext", "hostUsers", "restartPolicy", "restartPolicyRules"})
"""Without these a pod runs with more rights than asked, or to another end."""
_NEEDED_LISTS = frozenset({"containers", "initContainers"})
"""Without one of these it runs without a part of itself."""
_DEFAULTS: Mapping[str, Any] = {"hostUsers": True, "procMount": "Default"}
"""What a server that does not know the field does anyway."""
_KEYS = ("name", "mountPath", "devicePath", "containerPort", "key")
"""What tells elements of a list apart, the first that does so in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A field that was sent and is not there, by a path like `containers[app].restartPolicy`."""

    path: str
    weakens: bool


def dropped_fields(sent: JsonObject, kept: JsonObject) -> tuple[Dropped, ...]:
    """List what `sent` has and `kept` does not.

    A changed value is admission's right and no loss; an empty map or list is the same as none.
    Elements of lists are found by what tells them apart, or by position where the lengths agree.
    """
    return tuple(_missing(sent, kept, "", ()))


def _missing(sent: Any, kept: Any, path: str, fields: tuple[str, ...]) -> Iterator[Dropped]:
    if isinstance(sent, Mapping) and isinstance(kept, Mapping):
        for name, value in sent.items():
            if kept.get(name) == value:
                continue  # most fields by far, told by one comparison
            inner = f"{path}.{name}" if path else str(name)
            if name in kept:
                yield from _missing(value, kept[name], inner, (*fields, name))
            elif _says_something(name, value):
                yield _dropped(inner, (*fields, name))
    elif _is_list(sent) and _is_list(kept):
        yield from _missing_elements(sent, kept, path, fields)


def _missing_elements(
    sent: Sequence[Any], kept: Sequence[Any], path: str, fields: tuple[str, ...]
) -> Iterator[Dropped]:
    key = next((k for k in _KEYS if _tells_apart(k, sent) and _tells_apart(k, kept)), None)
    if key is not None:
        there = {item[key]: item for item in kept}
        for item in sent:
            inner = f"{path}[{item[key]}]"
            if item[key] in there:
                yield from _missing(item, there[item[key]], inner, fields)
            else:
                yield _dropped(inner, fields)
    elif len(sent) == len(kept):
        for number, (item, other) in enumerate(zip(sent, kept, strict=True)):
            yield from _missing(item, other, f"{path}[{number}]", fields)


def _dropped(path: str, fields: tuple[str, ...]) -> Dropped:
    """Judge by the fields on the way: what elements are called is the user's choice."""
    return Dropped(
        path=path,
        weakens=any(f in _WEAKENING for f in fields)
        or (len(fields) == 1 and fields[0] in _NEEDED_LISTS),
    )


def _tells_apart(key: str, items: Sequence[Any]) -> bool:
    if not all(isinstance(item, Mapping) and key in item for item in items):
        return False
    values = [str(item[key]) for item in items]
    return len(set(values)) == len(values)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _says_something(name: str, value: Any) -> bool:
    """Tell whether a value would be missed: `false` and 0 would, since no API server writes those
    out where they are the same as nothing."""
    if isinstance(value, Mapping):
        return any(_says_something(inner, item) for inner, item in value.items())
    if name in _DEFAULTS and value == _DEFAULTS[name]:
        return False
    return value is not None and value != []

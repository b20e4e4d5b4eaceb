"""What all parts of the configuration file have in common."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, model_validator
from pydantic.alias_generators import to_camel

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Says:
    """What kind of value it is, in the reference and in messages."""

    words: str


def one_of(kind: type[E]) -> Any:
    """Return what reads one of the words of an enumeration."""
    words = [str(word) for word in kind]

    def read(found: Any) -> E:
        if not isinstance(found, str) or found not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return kind(found)

    return PlainValidator(read)


class Part(BaseModel):
    """A mapping of the file: known keys in camel case, and no others."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        """Take a key without a value for one that is not there, as Kubernetes does."""
        if not isinstance(data, dict):
            return data
        known = {f.alias for f in cls.model_fields.values()}
        return {key: v for key, v in data.items() if v is not None or key not in known}

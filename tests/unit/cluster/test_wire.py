"""Requests and replies as values."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.cluster.wire import LineSplitter, dump


def test_read_only_objects_can_be_sent() -> None:
    """What came from a store can be sent as it is."""
    body = MappingProxyType({"a": MappingProxyType({"b": (1, "x")})})
    assert dump(body) == b'{"a":{"b":[1,"x"]}}'


def test_what_is_no_json_is_a_mistake() -> None:
    """A value that JSON does not know is not sent as something else."""
    with pytest.raises(TypeError):
        dump({"a": object()})


@given(st.lists(st.binary(max_size=9)), st.randoms(use_true_random=False))
def test_lines_survive_any_split(lines: list[bytes], random: Random) -> None:
    """However a stream is cut into chunks, the same lines come out."""
    whole = [line.replace(b"\n", b"x") for line in lines]
    text = b"".join(line + b"\n" for line in whole)
    cuts = sorted({0, len(text), *(random.randint(0, len(text)) for _ in range(5))})
    splitter = LineSplitter()
    found = [x for a, b in pairwise(cuts) for x in splitter.feed(text[a:b])]
    assert found == [line for line in whole if line.strip()]

"""Requests and replies as values."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.cluster.failures import Attempt
from federate.cluster.wire import LineSplitter, Parse, dump, parse_bare_list, parse_list
from federate.errors import ServerFault

ATTEMPT = Attempt(cluster="hub", verb="list", subject="Pod")


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


def test_a_bare_list_has_what_objects_are_known_by() -> None:
    """All else is passed over, whatever it is."""
    known = {"namespace": "shop", "name": "web", "uid": "u1", "resourceVersion": "7"}
    fat = {**known, "labels": {"uid": "x"}, "managedFields": [{"metadata": {"uid": "y"}}]}
    body = dump(
        {
            "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "9", "continue": "token"},
            "items": [{"metadata": fat, "spec": {"metadata": {"uid": "z"}}}],
        }
    )
    page = parse_bare_list(body, ATTEMPT)
    assert page["items"] == [{"metadata": known}]
    assert page["metadata"] == {"resourceVersion": "9", "continue": "token"}


def test_managed_fields_do_not_come_with_a_list() -> None:
    """They are a large part of it, and nobody here reads them."""
    item = {"metadata": {"name": "web"}}
    fat = {"metadata": {"name": "web", "managedFields": [{}]}}
    page = parse_list(dump({"kind": "PodList", "items": [fat, item]}), ATTEMPT)
    assert page["kind"] == "PodList"
    assert list(page["items"]) == [item, item]


NO_LISTS = {
    "no JSON": b"<html>",
    "half a list": b'{"items":[{"metadata":{"name":"web"',
    "no text": b'{"items":[{"metadata":{"name":"\xff"}}]}',
    "no object": b"[]",
    "items that are none": b'{"items":"web"}',
    "an item that is none": b'{"items":["web"]}',
}


@pytest.mark.parametrize("parse", [parse_list, parse_bare_list])
@pytest.mark.parametrize("body", NO_LISTS.values(), ids=NO_LISTS.keys())
def test_what_is_no_list_is_the_servers_fault(parse: Parse, body: bytes) -> None:
    """Whoever answers may be a proxy, or hostile."""
    with pytest.raises(ServerFault):
        list(parse(body, ATTEMPT)["items"])


def test_what_is_nested_without_end_is_the_servers_fault() -> None:
    """Also where it is passed over."""
    deep = (
        b'{"items":[{"metadata":{"name":"web","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}"
    )
    for parse in (parse_list, parse_bare_list):
        with pytest.raises(ServerFault):
            list(parse(deep, ATTEMPT)["items"])

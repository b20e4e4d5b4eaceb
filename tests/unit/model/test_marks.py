"""Marks and records: read back as written, and never believed in part."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from federate.model.marks import (
    HUB_POD_NAME_ANNOTATION,
    HUB_POD_NAMESPACE_ANNOTATION,
    LONGEST_KEPT,
    RECORD_ANNOTATION,
    MirrorRecord,
    Origin,
    Scope,
    carries_marks,
    origin_of,
    parsed_once,
    record_of,
)
from federate.model.objects import JsonObject, ObjectKey
from federate.model.resources import PODS
from tests.support.builders import pod
from tests.support.selectors import select
from tests.support.views import OTHER_SCOPE, SCOPE, mirror

ORIGIN = Origin(scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web")
RECORD = MirrorRecord(pod_uid="uid-web", mirror=ObjectKey("hub-x", "web"))


ODD_NAMES = (
    "",
    ".",
    "..",
    "web/proxy",
    "web/log",
    "web/../db",
    "web%2fproxy",
    "web?x=y",
    "a\nb",
    "Web",
    "x" * 254,
)
"""What would lead a request elsewhere than to a pod."""


def selected(selector: str, obj: JsonObject) -> bool:
    return select(PODS, namespace="", label_selector=selector, field_selector="").matches(obj)


def test_c3_scopes_differ_by_hub_and_by_node() -> None:
    """The hash in the label stands for both, and cannot be got by moving a letter over."""
    hashes = {
        SCOPE.virtual_node_hash,
        OTHER_SCOPE.virtual_node_hash,
        Scope(hub_id="ab", node_name="c").virtual_node_hash,
        Scope(hub_id="a", node_name="bc").virtual_node_hash,
    }
    assert len(hashes) == 4
    assert all(len(text) == 16 for text in hashes)


def test_c3_selectors_and_owns_agree() -> None:
    """What the selector finds is what the scope owns; the other selector finds the rest."""
    ours, others, stranger = mirror().build(), mirror(scope=OTHER_SCOPE).build(), pod("x").build()
    for obj, is_ours in ((ours, True), (others, False), (stranger, False)):
        assert SCOPE.owns(obj) is is_ours
        assert selected(SCOPE.selector, obj) is is_ours
        assert selected(SCOPE.others_selector, obj) is not is_ours


def test_an_origin_is_read_as_it_is_written() -> None:
    """Labels and annotations together name the hub pod."""
    assert (
        origin_of({"metadata": {"labels": ORIGIN.labels(), "annotations": ORIGIN.annotations()}})
        == ORIGIN
    )


@pytest.mark.parametrize("mark", [*ORIGIN.labels(), *ORIGIN.annotations()])
def test_c3_an_origin_is_not_believed_in_part(mark: str) -> None:
    """One mark missing, or saying something else, makes it nobody's mirror."""
    whole = mirror().build()
    kind = "labels" if mark in ORIGIN.labels() else "annotations"
    missing = copy.deepcopy(whole)
    del missing["metadata"][kind][mark]
    assert origin_of(missing) is None
    changed = copy.deepcopy(whole)
    changed["metadata"][kind][mark] = "something-else"
    assert origin_of(changed) != ORIGIN


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_an_origin_names_a_pod_or_nothing(odd: str) -> None:
    """Who may write pods in the target must not have the hub asked for whatever he likes."""
    for annotation in (HUB_POD_NAMESPACE_ANNOTATION, HUB_POD_NAME_ANNOTATION):
        changed = copy.deepcopy(mirror().build())
        changed["metadata"]["annotations"][annotation] = odd
        assert origin_of(changed) is None


def test_c3_any_mark_tells_a_mirror() -> None:
    """Whatever hub or node it names."""
    assert carries_marks(mirror(scope=OTHER_SCOPE).build())
    assert carries_marks({"metadata": {"labels": {"federate.dev/hub-pod-uid": ""}}})
    assert not carries_marks(pod("web").with_labels({"app": "web"}).build())


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, intended_at="2026-01-01T00:00:00Z"),
        replace(RECORD, mirror_uid="mirror-web"),
    ],
)
def test_a_record_is_read_as_it_is_written(record: MirrorRecord) -> None:
    """Intent or uid, nothing is lost on the way."""
    hub = pod("web").with_annotations({RECORD_ANNOTATION: record.format()}).build()
    assert record_of(hub) == record


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "3",
        "null",
        "{}",
        '{"podUID":"uid-web","namespace":"n"}',
        RECORD.format().replace("uid-web", "uid-of-another"),
        RECORD.format().replace("hub-x", "\\ud800"),
        *(replace(RECORD, mirror=ObjectKey("hub-x", odd)).format() for odd in ODD_NAMES),
        *(replace(RECORD, mirror=ObjectKey(odd, "web")).format() for odd in ODD_NAMES),
    ],
)
def test_a_record_that_is_spoilt_or_anothers_is_none(text: str) -> None:
    """People copy manifests with their annotations."""
    assert record_of(pod("web").with_annotations({RECORD_ANNOTATION: text}).build()) is None


def test_a_text_is_parsed_once_but_a_long_one_is_not_kept() -> None:
    """Long ones are a stranger's, and would fill the memory when their pods are long gone."""
    parsed: list[str] = []

    def parse(text: str) -> int:
        parsed.append(text)
        return len(text)

    look, long = parsed_once(parse), "x" * (LONGEST_KEPT + 1)
    texts: tuple[object, ...] = ("a", "a", long, long, None, {})
    assert [look(text) for text in texts] == [1, 1, len(long), len(long), 0, 0]
    assert parsed[:3] == ["a", long, long]


def test_a_pod_without_a_record_has_none() -> None:
    """A fresh pod remembers nothing."""
    assert record_of(pod("web").build()) is None

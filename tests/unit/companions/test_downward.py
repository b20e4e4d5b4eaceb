"""The downward API tells of the hub pod: in the environment and in files (C32)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from federate.companions.downward import (
    annotations_bytes,
    escaped,
    fact_annotations,
    facts_read,
    format_map,
    hub_fact,
    quoted,
    split_subscript,
    with_hub_facts,
)
from federate.model.marks import HUB_ANNOTATIONS_ANNOTATION, HUB_LABELS_ANNOTATION, PREFIX
from federate.model.objects import JsonDict
from tests.support.views import hub_pod

DENIED = "kubectl.kubernetes.io/last-applied-configuration"


def flows(key: str) -> bool:
    return not key.startswith(PREFIX) and key != DENIED


def web() -> JsonDict:
    builder = hub_pod().with_labels({"app": "web", "federate.dev/x": "ours"})
    builder = builder.with_annotations({DENIED: "{}", "cost": "$5 $(HOME)", "federate.dev/m": "{}"})
    return builder.with_spec(serviceAccountName="robot").build()


def variable(path: str) -> JsonDict:
    return {"name": "V", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def item(path: str, **fields: Any) -> JsonDict:
    return {"path": "f", "fieldRef": {"apiVersion": "v1", "fieldPath": path}, **fields}


# -- the environment -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "uid-web"),
        ("spec.nodeName", "edge"),
        ("spec.host", "edge"),
        ("spec.serviceAccountName", "robot"),
        ("metadata.labels['federate.dev/x']", ""),
        ("metadata.annotations['federate.dev/m']", ""),
        (f"metadata.annotations['{DENIED}']", "{}"),
    ],
)
def test_facts_of_the_hub_are_literals(kind: str, path: str, value: str) -> None:
    """In each kind of container; what the mirror lacks is told too, but never our own marks."""
    given = {kind: [{"name": "c", "env": [variable(path)]}]}
    before = copy.deepcopy(given)
    told = with_hub_facts(given, web(), flows)
    assert told == {kind: [{"name": "c", "env": [{"name": "V", "value": value}]}]}
    assert given == before


@pytest.mark.parametrize(
    "path",
    [
        "metadata.labels['app']",
        "metadata.annotations['cost']",
        "metadata.labels['absent']",
        "status.podIP",
        "status.podIPs",
        "status.hostIP",
        "status.hostIPs",
        "something.new",
    ],
)
def test_the_mirror_tells_what_it_has_itself(path: str) -> None:
    """Labels and annotations that flow, and addresses."""
    given = {"containers": [{"name": "c", "env": [variable(path)]}]}
    assert with_hub_facts(given, web(), flows) == given


def test_other_sources_of_variables_stay() -> None:
    """Literals, keys and resources are none of this."""
    env = [
        {"name": "A", "value": "$(B)"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "D"},
    ]
    given = {"containers": [{"name": "c", "env": env}, {"name": "bare"}]}
    assert with_hub_facts(given, web(), flows) == given


@pytest.mark.parametrize(
    ("text", "written"),
    [("plain", "plain"), ("$5", "$$5"), ("$(HOME)", "$$(HOME)"), ("$$", "$$$$"), ("", "")],
)
def test_a_literal_is_escaped_against_expansion(text: str, written: str) -> None:
    """A kubelet expands values, and not facts."""
    assert escaped(text) == written


def test_an_annotation_that_stays_behind_is_escaped_too() -> None:
    """A literal is a literal, whatever a user wrote into it."""
    pod = hub_pod().with_annotations({DENIED: "$(PATH)"}).build()
    given = {"containers": [{"env": [variable(f"metadata.annotations['{DENIED}']")]}]}
    told = with_hub_facts(given, pod, flows)
    assert told["containers"][0]["env"][0]["value"] == "$$(PATH)"


# -- files -----------------------------------------------------------------------------------------


def volumes(*items: JsonDict) -> JsonDict:
    """The same files in a downward API volume and in a projected one."""
    return {
        "volumes": [
            {"name": "a", "downwardAPI": {"items": list(items), "defaultMode": 420}},
            {"name": "b", "projected": {"sources": [{"downwardAPI": {"items": list(items)}}]}},
            {"name": "c", "projected": {"sources": [{"secret": {"name": "s"}}]}},
            {"name": "d", "emptyDir": {}},
        ]
    }


def read(path: str, pod: JsonDict) -> str:
    """What a kubelet of the target writes into the files, from the mirror's annotations."""
    given = volumes(item(path, mode=256))
    told = with_hub_facts(given, pod, flows)
    asked: str = told["volumes"][0]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"]
    assert told == volumes(item(asked, mode=256))
    where, key = split_subscript(asked)
    assert where == "metadata.annotations"
    assert key is not None
    assert len(key.partition("/")[2]) <= 63
    return fact_annotations({**pod, "spec": given}, flows)[key]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "uid-web"),
        ("metadata.labels", 'app="web"'),
        ("metadata.annotations", f'cost="$5 $(HOME)"\n{DENIED}="{{}}"'),
        (f"metadata.annotations['{DENIED}']", "{}"),
        ("metadata.labels['federate.dev/x']", ""),
    ],
)
def test_files_are_read_from_annotations_of_the_mirror(path: str, content: str) -> None:
    """Unescaped: a kubelet does not expand files."""
    assert read(path, web()) == content


@pytest.mark.parametrize("path", ["metadata.labels['app']", "metadata.annotations['cost']"])
def test_a_file_of_a_label_that_flows_is_the_mirrors(path: str) -> None:
    """It follows with the label itself, and costs no annotation."""
    given = volumes(item(path))
    assert with_hub_facts(given, web(), flows) == given
    pod = {**web(), "spec": given}
    assert fact_annotations(pod, flows) == {}


def test_files_of_resources_and_of_unknown_fields_stay() -> None:
    """What the mirror has is the same, or nobody knows better."""
    resource = {"path": "f", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}
    given = volumes(resource, item("something.new"), {"path": "x", "fieldRef": {}})
    assert with_hub_facts(given, web(), flows) == given
    assert fact_annotations({"spec": given}, flows) == {}


def test_only_what_is_asked_for_is_annotated() -> None:
    """A pod without such files costs nothing; whole maps stand under names that people can read."""
    assert fact_annotations(web(), flows) == {}
    pod = hub_pod().with_spec(**volumes(item("metadata.labels"), item("metadata.annotations")))
    assert fact_annotations(pod.build(), flows).keys() == {
        HUB_LABELS_ANNOTATION,
        HUB_ANNOTATIONS_ANNOTATION,
    }


def test_annotations_are_counted_in_bytes() -> None:
    """As an API server counts them."""
    assert annotations_bytes({"ä": "ö", "k": ""}) == 5


# -- as a kubelet writes it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ('say "hi"', r'"say \"hi\""'),
        ("a\\b", r'"a\\b"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1b\x7f", r'"\x00\x1b\x7f"'),
        ("größe 猫 😀", '"größe 猫 😀"'),
        ("\u00a0\u200b\ufeff", r'"\u00a0\u200b\ufeff"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("'", '"\'"'),
    ],
)
def test_values_are_quoted_as_in_go(text: str, written: str) -> None:
    """Line by line the same file as on a node of the hub."""
    assert quoted(text) == written


def test_maps_are_sorted_by_their_bytes() -> None:
    """Lines without one at the end; an empty map is an empty file."""
    assert format_map({"b": "2", "a.x": "1", "a-x": "0", "B": "3"}) == (
        'B="3"\na-x="0"\na.x="1"\nb="2"'
    )
    assert format_map({}) == ""


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("metadata.labels", ("metadata.labels", None)),
        ("metadata.labels['a']", ("metadata.labels", "a")),
        ("metadata.annotations['a['b']']", ("metadata.annotations", "a['b']")),
        ("metadata.labels['']", ("metadata.labels", "")),
        ("metadata.name['a']", ("metadata.name['a']", None)),
    ],
)
def test_subscripts_are_read_as_a_kubelet_reads_them(
    path: str, split: tuple[str, str | None]
) -> None:
    """From the first opening to the very end."""
    assert split_subscript(path) == split


def test_a_pod_without_a_service_account_tells_none() -> None:
    """Nothing is invented."""
    pod = hub_pod().build()
    pod["spec"].pop("serviceAccountName", None)
    assert hub_fact(pod, "spec.serviceAccountName") == ""


def test_only_facts_that_are_read_are_written() -> None:
    """A mirror's volumes are what they were made as; other annotations of ours are none of it."""
    pod = {**web(), "spec": volumes(item("metadata.labels"), item("metadata.uid"))}
    made = with_hub_facts(pod["spec"], pod, flows)
    assert facts_read(made, pod, flows) == fact_annotations(pod, flows)
    assert len(fact_annotations(pod, flows)) == 2
    assert facts_read(volumes(item("metadata.labels")), pod, flows) == {}
    some = with_hub_facts(volumes(item("metadata.labels")), pod, flows)
    assert list(facts_read(some, pod, flows)) == [HUB_LABELS_ANNOTATION]
    foreign = volumes(item(f"metadata.annotations['{PREFIX}node-name']"))
    assert facts_read(foreign, pod, flows) == {}
    assert facts_read({}, pod, flows) == {}

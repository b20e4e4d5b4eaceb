"""Which pods live where."""

from __future__ import annotations

from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import JsonDict, ObjectKey
from federate.services.population import Place, Population
from tests.support.builders import pod

THERE = Place("default", "there")
ELSEWHERE = Place("default", "elsewhere")


def living(
    name: str,
    *,
    at: str = "there",
    phase: str = "Pending",
    address: str = "",
    **labels: str,
) -> JsonDict:
    record = MirrorRecord(pod_uid=f"uid-{name}", mirror=ObjectKey(at, name))
    body = (
        pod(name)
        .with_uid(f"uid-{name}")
        .with_labels(labels)
        .with_annotations({RECORD_ANNOTATION: record.format()})
        .build()
    )
    body["status"]["phase"] = phase
    if address:
        body["status"]["podIP"] = address
    return body


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def test_the_first_pod_begins_a_place_and_the_last_one_ends_it() -> None:
    population = Population()
    assert population.pod_is(key("a"), living("a")).begun == THERE
    assert population.pod_is(key("b"), living("b")).begun is None
    assert population.pod_is(key("a"), None).ended is None
    assert population.lives_at(THERE)
    assert population.pod_is(key("b"), living("b", phase="Succeeded")).ended == THERE
    assert not population.lives_at(THERE)
    assert list(population.places()) == []
    assert list(population.label_sets("default")) == []


def test_a_pod_without_a_record_lives_nowhere() -> None:
    """One that is refused gets none, and so nothing is made for it."""
    population = Population()
    move = population.pod_is(key("a"), pod("a").with_labels({"app": "web"}).build())
    assert (move.begun, move.has_news) == (None, False)
    assert list(population.places()) == []


def test_a_record_of_another_uid_is_none() -> None:
    copied = living("a")
    copied["metadata"]["uid"] = "uid-of-a-copy"
    assert Population().pod_is(key("a"), copied).begun is None


def test_a_pod_that_moves_ends_one_place_and_begins_another() -> None:
    population = Population()
    population.pod_is(key("a"), living("a"))
    move = population.pod_is(key("a"), living("a", at="elsewhere"))
    assert (move.begun, move.ended) == (ELSEWHERE, THERE)
    assert list(population.places_of("default")) == [ELSEWHERE]
    assert list(population.places_of("other")) == []


def test_only_what_was_not_there_before_is_news() -> None:
    population = Population()
    assert population.pod_is(key("a"), living("a", app="web")).has_news
    assert not population.pod_is(key("b"), living("b", app="web")).has_news
    assert not population.pod_is(key("a"), living("a", app="web")).has_news
    assert population.pod_is(key("c"), living("c", app="db")).has_news
    assert sorted(map(str, population.label_sets("default"))) == [
        "{'app': 'db'}",
        "{'app': 'web'}",
    ]


def test_a_pod_that_runs_without_an_address_is_hidden() -> None:
    population = Population()
    population.pod_is(key("a"), living("a", app="web"))
    assert list(population.hidden_label_sets("default")) == []
    assert population.pod_is(key("a"), living("a", app="web", phase="Running")).has_news
    assert list(population.hidden_label_sets("default")) == [{"app": "web"}]
    population.pod_is(key("a"), living("a", app="web", phase="Running", address="10.42.0.7"))
    assert list(population.hidden_label_sets("default")) == []
    assert list(population.label_sets("default")) == [{"app": "web"}]


def test_relabelled_pods_are_found_by_their_present_labels() -> None:
    population = Population()
    population.pod_is(key("a"), living("a", app="web"))
    population.pod_is(key("a"), living("a", app="db"))
    assert list(population.label_sets("default")) == [{"app": "db"}]
    assert population.lives_at(THERE)

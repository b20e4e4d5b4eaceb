"""What the target's own people share: asked for by name, believed by its label."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from federate.companions.consents import (
    GOOD_FOR_SECONDS,
    MOST_KEPT,
    MOST_NAMES,
    Answer,
    Consents,
    Place,
)
from federate.companions.keys import Kind
from federate.errors import ClusterError, Forbidden, ServerFault
from federate.model.marks import SHARED_LABEL
from federate.model.objects import ObjectKey
from federate.model.resources import CONFIGMAPS, SECRETS
from tests.support.clock import virtual_loop, virtual_time
from tests.support.companions import companion, hub_object, key_for
from tests.support.fakeclient import Call, Delay, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.views import OTHER_SCOPE, SCOPE

HERE, ELSEWHERE = "hub-x", "payments"
PULL, SETTINGS = (Kind.SECRET, "pull"), (Kind.CONFIGMAP, "settings")


class Stage:
    def __init__(self) -> None:
        self.target = FakeCluster("target", virtual_loop().time)
        self.reads = 0
        self.consents = Consents(self.target.client(), count_read=self.count, clock=self.clock)

    def clock(self) -> float:
        return virtual_loop().time()

    def count(self, _cluster: str) -> None:
        self.reads += 1

    def put(
        self, kind: Kind, name: str, *, namespace: str = HERE, labels: dict[str, str] | None = None
    ) -> None:
        metadata = {"namespace": namespace, "name": name, "labels": labels or {}}
        self.target.add(kind.resource, {"metadata": metadata, "data": {}})

    def calls(self) -> list[Call]:
        return [call for call in self.target.calls if call.resource in (SECRETS, CONFIGMAPS)]

    def refuse(self, error: ClusterError) -> Callable[[Call], Fault | None]:
        return lambda call: Refuse(error) if call.verb == "get" else None


@virtual_time
async def test_c30_the_label_is_the_consent() -> None:
    """Of that kind, that name, and that namespace; nothing else is asked for."""
    stage = Stage()
    stage.put(*PULL, labels={SHARED_LABEL: "true"})
    stage.put(*SETTINGS)
    stage.put(Kind.CONFIGMAP, "pull")
    stage.put(*SETTINGS, namespace=ELSEWHERE, labels={SHARED_LABEL: "true"})
    names = {PULL, SETTINGS, (Kind.CONFIGMAP, "pull"), (Kind.SECRET, "missing")}
    assert await stage.consents.of(HERE, names) == {PULL}
    assert {(call.verb, call.key.namespace) for call in stage.calls()} == {("get", HERE)}
    assert stage.reads == len(stage.calls()) == 4
    assert await stage.consents.of(ELSEWHERE, {SETTINGS}) == {SETTINGS}
    assert await stage.consents.of(HERE, ()) == frozenset()


@pytest.mark.parametrize("said", ["True", "yes", "1", "false", ""])
@virtual_time
async def test_another_value_is_no_consent(said: str) -> None:
    stage = Stage()
    stage.put(*PULL, labels={SHARED_LABEL: said})
    assert await stage.consents.of(HERE, {PULL}) == frozenset()


@virtual_time
async def test_c30_what_federate_made_is_never_shared() -> None:
    """It holds what another hub namespace has, of whichever hub and virtual node."""
    stage = Stage()
    for name, scope in (("a", SCOPE), ("b", OTHER_SCOPE)):
        made = companion(key_for(), hub_object(key_for()), scope=scope)
        made["metadata"] |= {"namespace": HERE, "name": name}
        made["metadata"]["labels"] |= {SHARED_LABEL: "true"}
        stage.target.add(SECRETS, made)
    stage.put(Kind.CONFIGMAP, "anchor", labels={**SCOPE.labels(), SHARED_LABEL: "true"})
    named = {(Kind.SECRET, "a"), (Kind.SECRET, "b"), (Kind.CONFIGMAP, "anchor")}
    assert await stage.consents.of(HERE, named) == frozenset()


@pytest.mark.parametrize("odd", ["", "..", "a/b", "../payments/secrets/pull", "pull?x=y", "A", "ä"])
@virtual_time
async def test_what_is_no_name_is_never_asked_for(odd: str) -> None:
    """API servers take any text for the name of a volume's Secret."""
    stage = Stage()
    assert await stage.consents.of(HERE, {(Kind.SECRET, odd)}) == frozenset()
    assert not stage.calls()


@virtual_time
async def test_a_label_that_is_taken_off_counts_within_seconds() -> None:
    """And one that is put on; a crowd of pods is one request."""
    stage = Stage()
    stage.put(*PULL, labels={SHARED_LABEL: "true"})
    stage.target.latency_seconds = 0.1
    answers = await asyncio.gather(*(stage.consents.of(HERE, {PULL}) for _ in range(500)))
    assert set(answers) == {frozenset({PULL})}
    assert len(stage.calls()) <= 2
    await stage.consents.of(HERE, {PULL})
    assert len(stage.calls()) <= 2
    key = ObjectKey(HERE, "pull")
    stage.target.edit(SECRETS, key, lambda obj: obj["metadata"].update(labels={}))
    await asyncio.sleep(GOOD_FOR_SECONDS + 0.1)
    assert await stage.consents.of(HERE, {PULL}) == frozenset()


@virtual_time
async def test_without_an_answer_nothing_is_decided() -> None:
    """A pod is not made without what it may use; what is closed to us is not shared."""
    stage = Stage()
    stage.put(*PULL, labels={SHARED_LABEL: "true"})
    stage.target.faults = stage.refuse(ServerFault("etcd", status=500))
    with pytest.raises(ServerFault):
        await stage.consents.of(HERE, {PULL, SETTINGS})
    stage.target.faults = stage.refuse(Forbidden("no", status=403))
    assert await stage.consents.of(HERE, {PULL}) == frozenset()


@virtual_time
async def test_a_pod_that_names_very_many_keeps_the_target_from_nothing() -> None:
    """It is let use none; and what was asked for long ago is forgotten."""
    stage = Stage()
    names = {(Kind.SECRET, f"s{number}") for number in range(MOST_NAMES + 1)}
    assert await stage.consents.of(HERE, names) == frozenset()
    assert not stage.calls()
    answers = stage.consents._answers
    for number in range(MOST_KEPT + 1):
        key = ObjectKey(HERE, f"old{number}")
        answers[Place(Kind.SECRET, key)] = Answer(stage.clock() - GOOD_FOR_SECONDS, False)
    await stage.consents.of(HERE, {PULL})
    assert len(stage.consents._answers) == 1


@virtual_time
async def test_few_are_asked_for_at_once() -> None:
    stage = Stage()
    under_way: list[int] = []

    def look(_call: Call) -> Fault | None:
        under_way.append(stage.target.under_way)
        return Delay(0.2)

    stage.target.faults = look
    await stage.consents.of(HERE, {(Kind.SECRET, f"s{number}") for number in range(64)})
    assert len(under_way) == 64
    assert max(under_way) <= 9

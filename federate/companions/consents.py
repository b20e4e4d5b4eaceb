"""What of the target its own people let hub pods use: objects with a label, by their own names.

A mirror never names an object of the target that is not federate's, unless somebody there put
`federate.dev/shared: "true"` on it (C30). That is asked for by name, metadata only, just before the
name is put into a mirror, and only in the namespace where that mirror stands. A hub user can put
the label on nothing: no metadata of the hub travels to ConfigMaps and Secrets of the target, and
what federate made there is never shared, whatever label it carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple, TypeAlias

from federate.cluster.identity import SharedCheck
from federate.cluster.port import ClusterPort
from federate.companions.keys import Kind, is_object_name
from federate.errors import Forbidden, NotFound
from federate.model.marks import HUB_LABEL, SHARED_LABEL, VIRTUAL_NODE_LABEL
from federate.model.objects import JsonObject, ObjectKey, labels_of

GOOD_FOR_SECONDS = 5.0
"""How long an answer speaks for the pods of a crowd. Longer, and who takes a label off finds that
pods are made which still name the object; shorter, and a roll-out asks for each of its pods."""
MOST_NAMES = 256
"""A pod that names more objects is let use companions only: it shall not keep the target busy."""
MOST_AT_ONCE = 8
MOST_KEPT = 4096
"""Answers that are kept before the old ones are thrown away."""

Shared: TypeAlias = frozenset[tuple[Kind, str]]
"""Objects of one target namespace."""


class Place(NamedTuple):
    """An object of the target."""

    kind: Kind
    key: ObjectKey


class Answer(NamedTuple):
    """What was said of it, and when that was asked."""

    at: float
    is_shared: bool


class Consents:
    """Asks one target."""

    def __init__(
        self,
        target: ClusterPort,
        *,
        count_read: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._target = target
        self._count_read = count_read
        self._clock = clock
        self._answers: dict[Place, Answer] = {}
        self._checks: dict[Place, SharedCheck] = {}
        self._bound = asyncio.Semaphore(MOST_AT_ONCE)

    async def of(self, target_namespace: str, names: Collection[tuple[Kind, str]]) -> Shared:
        """Return which of those names pods may use as they are, in that namespace.

        Raises:
            ClusterError: the target does not say.
        """
        if len(names) > MOST_NAMES:
            return frozenset()
        asked = sorted({(kind, name) for kind, name in names if is_object_name(name)})
        self._forget_old()
        places = [Place(kind, ObjectKey(target_namespace, name)) for kind, name in asked]
        answers = await asyncio.gather(*map(self._is_shared, places), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return frozenset(one for one, is_shared in zip(asked, answers, strict=True) if is_shared)

    async def _is_shared(self, place: Place) -> bool:
        if not self._is_known(place):
            await self._checks.setdefault(place, SharedCheck(partial(self._ask, place)))()
        answer = self._answers.get(place)
        return answer is not None and answer.is_shared

    def _is_known(self, place: Place) -> bool:
        answer = self._answers.get(place)
        return answer is not None and self._clock() - answer.at < GOOD_FOR_SECONDS

    def _forget_old(self) -> None:
        if len(self._answers) > MOST_KEPT:
            self._answers = {p: answer for p, answer in self._answers.items() if self._is_known(p)}
            self._checks = {}

    async def _ask(self, place: Place) -> None:
        async with self._bound:
            asked_at = self._clock()
            self._count_read(self._target.name)
            try:
                found = await self._target.get(place.kind.resource, place.key, metadata_only=True)
                is_shared = is_for_all(found)
            except (NotFound, Forbidden):
                is_shared = False
        self._answers[place] = Answer(asked_at, is_shared)


def is_for_all(obj: JsonObject) -> bool:
    """Tell whether hub pods may use an object of the target: it is labelled so, and not ours."""
    labels = labels_of(obj)
    is_ours = HUB_LABEL in labels or VIRTUAL_NODE_LABEL in labels
    return labels.get(SHARED_LABEL) == "true" and not is_ours

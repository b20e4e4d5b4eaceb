"""Judge the storage classes of both clusters, by which pods have storage in targets. Pure.

A class that does not fit is told of nowhere else: the hub's scheduler waits, or chooses a node
where nobody makes the storage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from federate.check.findings import Finding, FindingId
from federate.claims.protocol import HOSTNAME_LABEL, PROVISIONER, WAITS_FOR_CONSUMER
from federate.model.objects import JsonObject


def judge_hub_classes(
    classes: Mapping[str, JsonObject | None], serving: Mapping[str, Collection[str]]
) -> tuple[Finding, ...]:
    """Judge the hub's classes; `serving` has the virtual nodes that serve each."""
    return tuple(
        finding
        for name, nodes in serving.items()
        for finding in _judge_hub_class(name, classes.get(name), nodes)
    )


def _judge_hub_class(
    name: str, found: JsonObject | None, nodes: Collection[str]
) -> Iterator[Finding]:
    print_it = " ".join(
        ("federate storage-class", name, *(f"--node {node}" for node in sorted(nodes)))
    )
    if found is None:
        yield _unfit(f"the hub has no storage class {name}, so no claim asks for it", print_it)
        return
    if found.get("provisioner") != PROVISIONER:
        yield _unfit(f"storage class {name} of the hub is not {PROVISIONER}'s", print_it)
        return
    if found.get("volumeBindingMode") != WAITS_FOR_CONSUMER:
        yield _unfit(
            f"storage class {name} of the hub binds at once: nobody chooses a node, and its "
            "claims wait for ever",
            f"make it anew with volumeBindingMode {WAITS_FOR_CONSUMER}: {print_it}",
        )
    yield from _judge_topologies(name, found, nodes, print_it)


def _judge_topologies(
    name: str, found: JsonObject, nodes: Collection[str], print_it: str
) -> Iterator[Finding]:
    named = _nodes_named(found)
    if named is None:
        yield _unfit(
            f"storage class {name} of the hub names no nodes (allowedTopologies): the scheduler "
            "may choose one where nobody makes the storage, and the pod waits there",
            print_it,
        )
        return
    for words, wrong in (
        ("does not name (allowedTopologies), so the scheduler never chooses", set(nodes) - named),
        ("names, though by this configuration nobody makes it storage on", named - set(nodes)),
    ):
        if wrong:
            yield _unfit(
                f"storage class {name} of the hub {words}: {', '.join(sorted(wrong))}",
                f"make it anew: {print_it}",
            )


def _nodes_named(found: JsonObject) -> set[str] | None:
    """Return the nodes that a class is for; None where that is every one."""
    terms: Iterable[JsonObject] = found.get("allowedTopologies") or ()
    expressions = [each for term in terms for each in term.get("matchLabelExpressions") or ()]
    if not any(each.get("key") == HOSTNAME_LABEL for each in expressions):
        return None
    return {
        str(value)
        for each in expressions
        if each.get("key") == HOSTNAME_LABEL
        for value in each.get("values") or ()
    }


def judge_target_classes(
    classes: Mapping[str, JsonObject | None], *, target_name: str
) -> tuple[Finding, ...]:
    """Judge that the classes are there which stand for the hub's."""
    return tuple(
        _unfit(
            f"{target_name} has no storage class {name} (volumes.storageClasses): claims of it are "
            "refused",
            "make it there, or name another; see: kubectl get storageclasses",
        )
        for name, found in classes.items()
        if found is None
    )


def _unfit(what: str, fix: str) -> Finding:
    return Finding(id=FindingId.STORAGE_CLASS_UNFIT, what=what, fix=fix)

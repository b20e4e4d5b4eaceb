"""Where in the target a mirror may run: node selectors, affinity, tolerations. Pure.

The hub's scheduler has answered what a pod asks of its node when it chose the virtual one. What
means the same in the target is asked there again; the rest stays behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from federate.model.objects import JsonDict, JsonObject, copied
from federate.policy.names import is_listed_key
from federate.policy.rules import PolicyRules
from federate.policy.spots import Spot, drop_in, set_or_drop

OF_EVERY_POD = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""What API servers let each pod tolerate for a while."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD_AFFINITIES = ("podAffinity", "podAntiAffinity")


# -- tolerations -----------------------------------------------------------------------------------


def find_tolerations(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find tolerations of taints that only the target has, and that are not on the list.

    One without a key tolerates virtual nodes too, and never travels: it is not asked for either.
    """
    for toleration in spec.get("tolerations") or ():
        key = toleration.get("key") or ""
        if key and key not in rules.own_taint_keys and not _travels(key, rules):
            yield Spot(f"spec.tolerations[{key}]", f"a toleration of {key}")


def strip_tolerations(spec: JsonDict, rules: PolicyRules) -> None:
    """Keep those on the list."""
    tolerations = spec.get("tolerations") or ()
    kept = [t for t in tolerations if not t.get("key") or _travels(t["key"], rules)]
    if len(kept) < len(tolerations):
        spec["tolerations"] = kept


def _travels(key: str, rules: PolicyRules) -> bool:
    return key in OF_EVERY_POD or is_listed_key(key, rules.toleration_keys)


# -- node labels -----------------------------------------------------------------------------------


def travelling_selector(
    selector: Mapping[str, str], node_keys: Mapping[str, str]
) -> dict[str, str]:
    """Return what of a node selector is asked in the target, by the target's keys."""
    return {node_keys[key]: value for key, value in selector.items() if key in node_keys}


def travelling_term(term: JsonObject, node_keys: Mapping[str, str]) -> JsonDict:
    """Return what of a node selector term is asked in the target; fields name nodes of the hub."""
    kept = [
        {**copied(expression), "key": node_keys[expression["key"]]}
        for expression in term.get("matchExpressions") or ()
        if expression.get("key") in node_keys
    ]
    return {"matchExpressions": kept} if kept else {}


def left_node_keys(spec: JsonObject, node_keys: Mapping[str, str]) -> tuple[str, ...]:
    """List the node label keys that a spec asks for and that mean nothing in the target."""
    asked = [*(spec.get("nodeSelector") or {})]
    for term in _terms(spec):
        asked += [str(one.get("key", "")) for one in term.get("matchExpressions") or ()]
    return tuple(key for key in dict.fromkeys(asked) if key not in node_keys)


def _terms(spec: JsonObject) -> Iterator[JsonObject]:
    affinity: JsonObject = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms: Sequence[JsonObject] = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    yield from terms
    for preference in affinity.get(PREFERRED) or ():
        yield preference.get("preference") or {}


# -- pods of other namespaces ----------------------------------------------------------------------


def find_other_namespaces(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find pod (anti-)affinity to pods of namespaces that are named, or chosen by their labels.

    They are the hub's, and stand for others in the target: whoever may ask for them there learns
    what runs where, and with anti-affinity, which counts both ways, keeps strangers' pods out.
    """
    for kind in POD_AFFINITIES:
        if any(map(_names_others, _pod_terms(spec, kind))):
            yield Spot(f"spec.affinity.{kind}", "pods of other namespaces")


def strip_other_namespaces(spec: JsonDict, _rules: PolicyRules) -> None:
    """Keep away from pods of the own namespace; do not look for pods that are somewhere else.

    Narrowed to its own namespace, affinity would wait for pods that were never meant.
    """
    _rewrite_terms(spec, "podAntiAffinity", _of_own_namespace)
    _rewrite_terms(spec, "podAffinity", lambda term: None if _names_others(term) else term)


def with_own_namespace(spec: JsonObject, namespace: str) -> JsonObject:
    """Return a spec whose affinity says "my own namespace" without its name: it is another there.

    What is the same is shared with the given one.
    """
    if not any(
        _names_only(term, namespace) for k in POD_AFFINITIES for term in _pod_terms(spec, k)
    ):
        return spec
    ours: JsonDict = {**spec, "affinity": copied(spec["affinity"])}
    for kind in POD_AFFINITIES:
        _rewrite_terms(
            ours, kind, lambda t: _of_own_namespace(t) if _names_only(t, namespace) else t
        )
    return ours


def _names_others(term: JsonObject) -> bool:
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


def _names_only(term: JsonObject, namespace: str) -> bool:
    # An empty selector chooses all namespaces, and is something else than none.
    has_selector = term.get("namespaceSelector") is not None
    return set(term.get("namespaces") or ()) == {namespace} and not has_selector


def _of_own_namespace(term: JsonObject) -> JsonDict:
    return {k: v for k, v in term.items() if k not in ("namespaces", "namespaceSelector")}


def _pod_terms(spec: JsonObject, kind: str) -> Iterator[JsonObject]:
    affinity: JsonObject = (spec.get("affinity") or {}).get(kind) or {}
    yield from affinity.get(REQUIRED) or ()
    for preference in affinity.get(PREFERRED) or ():
        yield preference.get("podAffinityTerm") or {}


def _rewrite_terms(
    spec: JsonDict, kind: str, rewrite: Callable[[JsonObject], JsonObject | None]
) -> None:
    """Put in what becomes of each term, and leave out those of which nothing does; in place."""
    affinity: JsonDict = (spec.get("affinity") or {}).get(kind) or {}
    if not any(True for _ in _pod_terms(spec, kind)):
        return
    required = [new for old in affinity.get(REQUIRED) or () if (new := rewrite(old)) is not None]
    preferred = [
        {**preference, "podAffinityTerm": new}
        for preference in affinity.get(PREFERRED) or ()
        if (new := rewrite(preference.get("podAffinityTerm") or {})) is not None
    ]
    for rule, terms in ((REQUIRED, required), (PREFERRED, preferred)):
        if rule in affinity:
            set_or_drop(affinity, rule, terms)
    if not affinity:
        drop_in(spec, "affinity", kind)

"""docs/reference/rights.md, made of the table. Pure.

Written anew by `python -m federate.check`; a test fails where the page says something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from federate.check.rights import FEATURES, TABLE, Feature, Names, Needed, Row, Side

INTRODUCTION = """# Rights

<!-- Made of federate/check/rights.py by `python -m federate.check`: change it there. -->

Every right federate uses, on either side, and nothing else. `federate rbac --side hub|target`
prints them as manifests, `federate check` says which are missing. What every authenticated user may
do in any cluster (discovery, `/version`, asking for one's own rights) is left out.

*Confined* is a target of which only given namespaces may be used (`federate rbac --side target
--namespace NS`): no ClusterRole is needed there, and capacity is `static` or `quota`.
"""


def render_reference() -> str:
    """Render the page."""
    parts = [INTRODUCTION]
    for side in Side:
        parts.append("\n".join([f"## In the {side}", "", *_table(side)]) + "\n")
    parts.append("\n".join(["## Features", "", *_features()]) + "\n")
    return "\n".join(parts)


def _table(side: Side) -> Iterator[str]:
    yield "| right | where | when | why | without it |"
    yield "|---|---|---|---|---|"
    for row in TABLE:
        if row.side is side:
            cells = (_right(row), _where(row), _when(row), row.why, row.without)
            yield "| " + " | ".join(cells) + " |"


def _right(row: Row) -> str:
    group = f".{row.group}" if row.group else ""
    return f"{', '.join(row.verbs)} `{row.resource}{group}`"


def _where(row: Row) -> str:
    only = "" if row.names is Names.ANY else f"; only {row.names}"
    return f"{row.place}{only}"


def _when(row: Row) -> str:
    needed = "" if row.needed is Needed.ALWAYS else str(row.needed)
    if row.feature is not None:
        needed = ", ".join(part for part in (f"feature `{row.feature}`", needed) if part)
    kind = "required" if row.is_required else "optional"
    return f"{kind}: {needed}" if needed else kind


def _features() -> Iterator[str]:
    yield "`federate rbac --with FEATURE` adds one, `--without FEATURE` leaves one out."
    yield ""
    yield "| feature | what | printed |"
    yield "|---|---|---|"
    for feature, what in FEATURES.items():
        yield f"| `{feature}` | {what} | {_printed(feature)} |"


def _printed(feature: Feature) -> str:
    match feature:
        case (
            Feature.EVENTS
            | Feature.KUBELET
            | Feature.COMPANIONS
            | Feature.ADDRESSES
            | Feature.NETWORK_POLICIES
        ):
            return "yes"
        case Feature.GIVE_BACK:
            return "yes, unless confined"
        case Feature.IDENTITY:
            return "only confined: with `--with`; else always"
        case (
            Feature.CHECK
            | Feature.LEAVE
            | Feature.APPROVE
            | Feature.NODE_PROXY
            | Feature.POD_IDENTITY
            | Feature.CLAIMS
            | Feature.SERVICES
        ):
            return "with `--with`"

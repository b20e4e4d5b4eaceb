"""`federate rbac`: print what federate must be allowed to do, as manifests for kubectl."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from federate.check.manifests import Account, account_namespace, render_manifests
from federate.check.rights import (
    FEATURES,
    SYSTEM_NAMESPACE,
    Circumstances,
    Feature,
    Side,
    usual_features,
)
from federate.cli.options import Complaints, shown
from federate.errors import ConfigError
from federate.model.naming import NamespaceStrategy
from federate.node.capacity import CapacityMode

EXAMPLE = "Example: federate rbac --side target --namespace team-a | kubectl apply -f -"

GIVEN_STRATEGIES = frozenset({"map", "single"})
"""Strategies that use the target namespaces they are given; the others make their own."""


def rbac(  # noqa: PLR0913 - one parameter for each option
    side: Annotated[Side, typer.Option(help="In which cluster the rights are needed.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NS",
            help="Target: use only this namespace, with Roles alone. Repeatable.",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Hub: limit the rights to this virtual node. Repeatable."
        ),
    ] = None,
    namespaces: Annotated[
        str, typer.Option(metavar="STRATEGY", help="How federate run finds target namespaces.")
    ] = "",
    capacity: Annotated[
        str,
        typer.Option(
            metavar="static|aggregate|quota",
            help="Where the capacity comes from (quota: of the first --namespace). Without it: "
            "aggregate; static with --namespace.",
        ),
    ] = "",
    leader_lease_namespace: Annotated[
        str, typer.Option(metavar="NS", help="Hub: where federate run keeps its leader leases.")
    ] = SYSTEM_NAMESPACE,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Of account, roles, bindings. Without it: federate-SIDE."
        ),
    ] = "",
    account_in: Annotated[
        str,
        typer.Option(
            "--account-namespace",
            metavar="NS",
            help="Where the service account is. Without it: kube-system, or the first --namespace.",
        ),
    ] = "",
    user: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Grant to this user, instead of to a service account of its own."
        ),
    ] = "",
    with_: Annotated[
        list[Feature] | None, typer.Option("--with", help="Add a feature's rights. Repeatable.")
    ] = None,
    without: Annotated[
        list[Feature] | None,
        typer.Option("--without", help="Leave a feature's rights out. Repeatable."),
    ] = None,
) -> None:
    """Print least-privilege manifests for one side, with the reason of each rule.

    The rights are those of federate run with the same settings; docs/reference/rights.md has all.
    """
    around = read_circumstances(
        side,
        confined_to=namespace or [],
        nodes=node or [],
        strategy=namespaces,
        capacity=capacity,
        added=with_ or [],
        left_out=without or [],
    )
    around = replace(around, leader_lease_namespace=leader_lease_namespace)
    account = Account(
        name=name or f"federate-{side}",
        namespace=account_in or account_namespace(around),
        user=user,
    )
    typer.echo(render_manifests(around, account, title=_title(around, account)), nl=False)


def read_circumstances(
    side: Side,
    *,
    confined_to: list[str],
    nodes: list[str],
    strategy: str,
    capacity: str,
    added: list[Feature],
    left_out: list[Feature],
) -> Circumstances:
    """Make circumstances of option texts.

    Raises:
        ConfigError: they contradict each other.
    """
    complaints = Complaints()
    mode = CapacityMode.STATIC if confined_to else CapacityMode.AGGREGATE
    modes = {str(known): known for known in CapacityMode}
    with complaints.about("--namespace"):
        if confined_to and side is Side.HUB:
            raise ConfigError("expected it with --side target: hub pods may be in any namespace")
    with complaints.about("--namespaces"):
        _check_strategy(strategy, is_confined=bool(confined_to))
    with complaints.about("--node"):
        if nodes and side is Side.TARGET:
            raise ConfigError("expected it with --side hub: only there are virtual nodes")
    with complaints.about("--capacity"):
        if capacity and capacity not in modes:
            raise ConfigError(f"{shown(capacity)}: expected {', '.join(modes)}")
        mode = modes.get(capacity, mode)
        if confined_to and mode is CapacityMode.AGGREGATE:
            raise ConfigError(
                "aggregate reads the target's nodes, which no Role of a namespace allows; "
                "expected static or quota"
            )
    complaints.raise_any()
    features = usual_features(is_confined=bool(confined_to)) | set(added)
    return Circumstances(
        side=side,
        node_names=tuple(dict.fromkeys(nodes)),
        confined_to=tuple(dict.fromkeys(confined_to)),
        capacity=mode,
        quota_namespace=confined_to[0] if confined_to and mode is CapacityMode.QUOTA else "",
        features=frozenset(features - set(left_out)),
    )


def _check_strategy(strategy: str, *, is_confined: bool) -> None:
    known = [str(one) for one in NamespaceStrategy]
    if strategy and strategy not in known:
        raise ConfigError(f"{shown(strategy)}: expected {', '.join(known)}")
    if is_confined and strategy and strategy not in GIVEN_STRATEGIES:
        raise ConfigError(
            f"{strategy} makes namespaces of its own; expected single or map with --namespace"
        )
    if strategy in GIVEN_STRATEGIES and not is_confined:
        raise ConfigError(f"{strategy} uses given namespaces; expected --namespace for each")


def _title(around: Circumstances, account: Account) -> str:
    where = (
        f"namespaces {', '.join(around.confined_to)} of a target"
        if around.is_confined
        else f"a {around.side}"
    )
    lines = [
        f"What federate may do in {where}: exactly what it uses, by docs/reference/rights.md.",
        f"Features: {', '.join(sorted(around.features)) or 'none'} "
        f"(of {', '.join(FEATURES)}; see --with, --without).",
    ]
    if not account.user:
        lines.append(
            f"A token of this account: kubectl -n {account.namespace} create token {account.name} "
            "--duration 24h"
        )
    if around.side is Side.HUB and not around.node_names:
        lines.append("Limited to no virtual node: --node NAME does so where Kubernetes can.")
    return "\n".join(lines)

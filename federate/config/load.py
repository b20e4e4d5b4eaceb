"""From the bytes of a configuration file to settings, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from federate.companions.environment import Advertised
from federate.companions.rules import CompanionRules
from federate.config.network import dns_rules
from federate.config.policy import policy_rules
from federate.config.problems import explain, show
from federate.config.schema import (
    API_VERSION,
    KIND,
    CapacityPart,
    Federation,
    KubeletPart,
    NamespacesPart,
    VirtualNodePart,
    findings,
)
from federate.config.tree import Loc, Problem, Tree, Unreadable, path_of, read_tree
from federate.config.values import (
    SHOWN_LIMIT,
    expanded,
    is_file,
    reached_host_and_port,
    shown_path,
)
from federate.config.volumes import claim_rules
from federate.errors import ConfigError
from federate.kubelet.rules import ServingRules
from federate.model.naming import NamespaceRules
from federate.model.objects import ObjectKey
from federate.model.taints import Taint
from federate.node.capacity import CapacityRules
from federate.runtime.settings import KubeletSettings, TargetSettings
from federate.services.rules import NetworkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A file that is right in itself."""

    path: Path
    federation: Federation
    tree: Tree

    @property
    def hub_kubeconfig(self) -> Path | None:
        """The hub's kubeconfig, where the file names one."""
        text = self.federation.hub.kubeconfig
        return None if text is None else self._beside(text)

    def targets(self) -> tuple[TargetSettings, ...]:
        """Return the virtual nodes in the order of the file."""
        return tuple(_target(node, self._beside) for node in self.federation.virtual_nodes)

    def missing_files(
        self, *, but_hub: bool = False, but_nodes: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """Name each kubeconfig that is no file, but for those that others stand in for."""
        named: list[tuple[Loc, str]] = []
        if self.federation.hub.kubeconfig is not None and not but_hub:
            named.append((("hub", "kubeconfig"), self.federation.hub.kubeconfig))
        named += [
            (("virtualNodes", number, "target", "kubeconfig"), node.target.kubeconfig)
            for number, node in enumerate(self.federation.virtual_nodes)
            if node.node_name not in but_nodes
        ]
        problems: list[Problem] = []
        for loc, text in named:
            if said := _missing(text, self._beside(text)):
                line = self.tree.line_of(loc)
                problems.append(Problem(line=line, path=path_of(loc), said=said))
        return _lines(problems, self.path)

    def _beside(self, text: str) -> Path:
        """Resolve a path that may begin at the folder the file was named in.

        Not where a link leads: kubelets link ConfigMap files into a folder that they replace.
        """
        return self.path.parent / expanded(text)


def _missing(text: str, file: Path) -> str:
    """Say that there is no such file; "" where there is."""
    is_told = Path(text).is_absolute() or len(text) > SHOWN_LIMIT
    found = shown_path(text) if is_told else f"{shown_path(text)} ({file})"
    try:
        return (
            "" if is_file(file) else f"found {found}, which is no file; expected a kubeconfig file"
        )
    except ValueError as error:
        return f"found {found}, which {error}; expected a kubeconfig file"


def load(path: Path, content: bytes) -> Configuration:
    """Read and check a configuration file.

    Raises:
        ConfigError: a line `FILE:LINE: key: what was found; what was expected` for each problem.
    """
    try:
        tree = read_tree(content)
    except Unreadable as error:
        raise ConfigError(error.problem.at(str(path))) from None
    problems = list(tree.problems)
    if other := _another_kind(tree):
        # Of a file of another kind or version each key would be wrong.
        raise ConfigError("\n".join(_lines(other, path)))
    for loc, said in findings(tree.data):
        problems.append(Problem(line=tree.line_of(loc), path=path_of(loc), said=said))
    try:
        federation = Federation.model_validate(tree.data)
    except ValidationError as error:
        problems += explain(error, tree, Federation)
        raise ConfigError("\n".join(_lines(problems, path))) from None
    if problems:
        raise ConfigError("\n".join(_lines(problems, path)))
    return Configuration(path=path, federation=federation, tree=tree)


def _another_kind(tree: Tree) -> list[Problem]:
    data = tree.data
    expected = f"expected apiVersion: {API_VERSION} and kind: {KIND}"
    if data is None:
        return [Problem(line=1, path="", said=f"nothing is in it; {expected}")]
    if not isinstance(data, dict):
        return [Problem(line=1, path="", said=f"found {show(data, str(data))}; {expected}")]
    problems = []
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found: Any = data.get(key)
        if found is not None and found != wanted:
            said = f"found {show(found, tree.source.get((key,), ''))}; expected {wanted}"
            problems.append(Problem(line=tree.line_of((key,)), path=key, said=said))
    return problems


def _lines(problems: list[Problem], path: Path) -> tuple[str, ...]:
    return tuple(problem.at(str(path)) for problem in sorted(set(problems)))


def _target(node: VirtualNodePart, beside: Callable[[str], Path]) -> TargetSettings:
    return TargetSettings(
        name=node.node_name,
        kubeconfig=beside(node.target.kubeconfig),
        context=node.target.context,
        capacity=_capacity(node.capacity),
        namespaces=_namespaces(node.namespaces),
        labels=node.labels,
        taint_value=node.taint_value,
        taint_effect=node.taint_effect.effect,
        taints=tuple(Taint(key=t.key, value=t.value, effect=t.effect) for t in node.taints),
        provider_id=node.provider_id,
        node_address=node.node_address,
        kubelet=_kubelet(node.kubelet, beside),
        companions=_companions(node),
        policy=policy_rules(node.policy),
        claims=claim_rules(node.volumes),
        network=NetworkRules(
            addresses=node.addresses,
            follow=node.services,
            network_policies=node.network_policies,
            dns=dns_rules(node.dns),
        ),
    )


def _kubelet(part: KubeletPart, beside: Callable[[str], Path]) -> KubeletSettings:
    def file(text: str | None) -> Path | None:
        return None if text is None else beside(text)

    return KubeletSettings(
        is_served=part.serve,
        address=part.address,
        port=part.port,
        serving=ServingRules(
            mode=part.certificate,
            approves=part.approve,
            certificate_file=file(part.certificate_file),
            key_file=file(part.key_file),
            client_ca_file=file(part.client_ca_file),
            folder=file(part.certificate_folder),
        ),
    )


def _companions(node: VirtualNodePart) -> CompanionRules:
    advertised: Advertised | None = None
    if node.hub_address is not None:
        host, port = reached_host_and_port(node.hub_address)
        advertised = Advertised(host=host, port=port)
    return CompanionRules(
        are_made=node.companions,
        shared=frozenset((one.kind, one.name) for one in node.shared),
        identity=node.identity,
        advertised=advertised,
        renew_share=float(node.token_renewal),
        target_account=node.target_service_account or "",
    )


def _capacity(part: CapacityPart) -> CapacityRules:
    quota = part.quota
    return CapacityRules(
        mode=part.mode,
        static=part.static,
        node_selector=",".join(f"{k}={v}" for k, v in sorted(part.node_selector.items())),
        share=part.share,
        cap=part.cap,
        at_least=part.at_least,
        quota=None if quota is None else ObjectKey(quota.namespace, quota.name or ""),
    )


def _namespaces(part: NamespacesPart) -> NamespaceRules:
    return NamespaceRules(strategy=part.strategy, mapping=part.map or {}, single=part.single or "")

"""Where settings of `federate run` come from: flags over the environment over the file.

Flags and environment are read once, at the start; the file may say something else later, and the
same flags then go over that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from federate.cli.options import (
    KUBELET_WORDS,
    SWITCH_WORDS,
    Complaints,
    TargetOption,
    checked,
    default_hub,
    named_hub,
    one_of,
    parse_capacities,
    parse_hub_address,
    parse_labels,
    parse_listen,
    parse_namespaces,
    parse_node_address,
    parse_targets,
    shown,
    with_companion_words,
    with_kubelet_word,
)
from federate.companions.environment import Advertised
from federate.config import values
from federate.errors import ConfigError
from federate.model.naming import NamespaceRules
from federate.node.capacity import CapacityRules
from federate.runtime.identity import own_identity
from federate.runtime.settings import Settings, TargetSettings
from federate.services.rules import follow_problem

if TYPE_CHECKING:
    from federate.config.load import Configuration

T = TypeVar("T")

CONFIG_VARIABLE = "FEDERATE_CONFIG"

VARIABLES = {
    "--config": CONFIG_VARIABLE,
    "--hub-context": "FEDERATE_HUB_CONTEXT",
    "--hub-identity": "FEDERATE_HUB_IDENTITY",
    "--listen": "FEDERATE_LISTEN",
    "--log-level": "FEDERATE_LOG_LEVEL",
    "--log-format": "FEDERATE_LOG_FORMAT",
    "--identity": "FEDERATE_IDENTITY",
    "--leader-lease-namespace": "FEDERATE_LEADER_LEASE_NAMESPACE",
    "--node-address": "FEDERATE_NODE_ADDRESS",
    "--kubelet": "FEDERATE_KUBELET",
    "--companions": "FEDERATE_COMPANIONS",
    "--hub-address": "FEDERATE_HUB_ADDRESS",
}
"""What the environment calls an option; `--hub` is read by `options.named_hub`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The texts of the command line and of the environment; None where an option is absent."""

    environ: Mapping[str, str]
    home: Path
    config: str | None = None
    hub: str | None = None
    hub_context: str | None = None
    hub_identity: str | None = None
    targets: Sequence[str] = ()
    capacity: Sequence[str] = ()
    namespaces: str | None = None
    labels: Sequence[str] = ()
    node_address: str | None = None
    kubelet: str | None = None
    companions: str | None = None
    hub_address: str | None = None
    listen: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    identity: str | None = None
    leader_lease_namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What flags and environment say; None where they leave it to the file."""

    hub_file: Path | None
    hub_default: Path | None
    """The kubeconfig that kubectl would take; where nobody names one."""
    hub_context: str | None
    hub_identity: str | None
    targets: tuple[TargetOption, ...]
    capacity: Sequence[str]
    namespaces: NamespaceRules | None
    labels: Mapping[str, str]
    node_address: str | None
    kubelet: str | None
    companions: str | None
    hub_address: Advertised | None
    listen: tuple[str, int] | None
    log_level: str | None
    log_format: str | None
    identity: str | None
    leader_lease_namespace: str | None


class _Reader:
    """Reads one option after the other, leaving what is wrong with `complaints`."""

    def __init__(self, typed: Typed, complaints: Complaints) -> None:
        self._environ = typed.environ
        self._complaints = complaints

    def option(self, flag: str, typed: str | None, parse: Callable[[str], T]) -> T | None:
        """Parse the flag's text, else the variable's; an empty variable is none."""
        variable = VARIABLES[flag]
        about, text = (flag, typed) if typed is not None else (f"${variable}", None)
        text = text if typed is not None else self._environ.get(variable) or None
        return None if text is None else self.flag(about, text, parse, None)

    def flag(
        self, about: str, text: str, parse: Callable[[str], T], otherwise: T | None
    ) -> T | None:
        """Parse a text; `otherwise` where it is wrong."""
        with self._complaints.about(about):
            return parse(text)
        return otherwise


def read_overrides(complaints: Complaints, typed: Typed) -> Overrides:
    """Read flags and environment; what is wrong is left with `complaints`, who must be asked."""
    read = _Reader(typed, complaints)
    hub_file: Path | None = None
    hub_default: Path | None = None
    targets: tuple[TargetOption, ...] = ()
    labels: Mapping[str, str] = {}
    with complaints.about("--hub"):
        hub_file = named_hub(typed.hub, environ=typed.environ)
        if hub_file is None:
            hub_default = default_hub(environ=typed.environ, home=typed.home)
    with complaints.about("--target"):
        targets = parse_targets(typed.targets)
    with complaints.about("--capacity"):
        parse_capacities(typed.capacity, [])
    with complaints.about("--label"):
        labels = parse_labels(typed.labels)
    namespaces: NamespaceRules | None = None
    if typed.namespaces is not None:
        namespaces = read.flag("--namespaces", typed.namespaces, parse_namespaces, None)
    return Overrides(
        hub_file=hub_file,
        hub_default=hub_default,
        hub_context=read.option(
            "--hub-context", typed.hub_context, lambda t: checked(t, values.context_name)
        ),
        hub_identity=read.option(
            "--hub-identity", typed.hub_identity, lambda t: checked(t, values.hub_identity)
        ),
        targets=targets,
        capacity=tuple(typed.capacity),
        namespaces=namespaces,
        labels=labels,
        node_address=read.option("--node-address", typed.node_address, parse_node_address),
        kubelet=read.option("--kubelet", typed.kubelet, one_of(KUBELET_WORDS)),
        companions=read.option("--companions", typed.companions, one_of(SWITCH_WORDS)),
        hub_address=read.option("--hub-address", typed.hub_address, parse_hub_address),
        listen=read.option("--listen", typed.listen, parse_listen),
        log_level=read.option("--log-level", typed.log_level, one_of(values.LOG_LEVELS)),
        log_format=read.option("--log-format", typed.log_format, one_of(values.LOG_FORMATS)),
        identity=read.option("--identity", typed.identity, lambda t: checked(t, values.holder)),
        leader_lease_namespace=read.option(
            "--leader-lease-namespace",
            typed.leader_lease_namespace,
            lambda t: checked(t, values.namespace_name),
        ),
    )


def find_config(typed: Typed) -> Path | None:
    """Return the configuration file, where one is named.

    Raises:
        ConfigError: it is no file.
    """
    text = typed.config or typed.environ.get(CONFIG_VARIABLE) or None
    if text is None:
        return None
    said = f"{values.shown_path(text)} is no file"
    try:
        path = values.expanded(text)
        if values.is_file(path):
            return path
    except ValueError as error:
        said = f"{values.shown_path(text)} {error}"
    about = "--config" if typed.config else f"${CONFIG_VARIABLE}"
    raise ConfigError(f"{about}: {said}; expected a YAML file of kind Federation")


def read_bytes(path: Path) -> bytes:
    """Read a configuration file's content.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_config(path: Path, content: bytes) -> Configuration:
    """Read a configuration file.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    # pydantic takes a while to load, and most commands need no file.
    from federate.config.load import load

    return load(path, content)


def combine(over: Overrides, file: Configuration | None) -> Settings:
    """Put flags and environment over the file.

    Raises:
        ConfigError: they do not go together.
    """
    targets = _targets(over, file)
    host, port = over.listen or _listen_of(file)
    hub_file, hub_context = _hub(over, file)
    said = file.federation if file is not None else None
    leader_lease_namespace = said.leader_lease_namespace if said is not None else "kube-system"
    return Settings(
        hub_kubeconfig=hub_file,
        hub_context=hub_context,
        hub_identity=over.hub_identity or (said.hub.identity if said is not None else None),
        targets=targets,
        identity=over.identity or own_identity(),
        listen_host=host,
        listen_port=port,
        leader_lease_namespace=over.leader_lease_namespace or leader_lease_namespace,
        log_level=over.log_level or (said.log_level if said is not None else "info"),
        log_format=over.log_format or (said.log_format if said is not None else "auto"),
    )


def _listen_of(file: Configuration | None) -> tuple[str, int]:
    text = file.federation.listen if file is not None else values.DEFAULT_LISTEN
    return values.host_and_port(text)


def _hub(over: Overrides, file: Configuration | None) -> tuple[Path | None, str | None]:
    """Choose the hub; a kubeconfig of a flag does not take the context of the file's one."""
    if over.hub_file is not None:
        return over.hub_file, over.hub_context
    context = over.hub_context or (file.federation.hub.context if file is not None else None)
    hub_file = (file.hub_kubeconfig if file is not None else None) or over.hub_default
    if hub_file is None and context:
        raise ConfigError(
            f"--hub: no kubeconfig is found in which the context {shown(context)} could be; "
            "give --hub"
        )
    return hub_file, context


def _targets(over: Overrides, file: Configuration | None) -> tuple[TargetSettings, ...]:
    """Return the file's virtual nodes and those of `--target`, with all flags over them."""
    found = {target.name: target for target in (file.targets() if file is not None else ())}
    for option in over.targets:
        present = found.get(option.name)
        found[option.name] = (
            TargetSettings(name=option.name, kubeconfig=option.kubeconfig, context=option.context)
            if present is None
            else replace(present, kubeconfig=option.kubeconfig, context=option.context)
        )
    try:
        sizes = parse_capacities(over.capacity, list(found))
    except ConfigError as error:
        raise ConfigError(
            "\n".join(f"--capacity: {line}" for line in str(error).splitlines())
        ) from error
    return tuple(_with_flags(target, over, sizes.get(target.name)) for target in found.values())


def _with_flags(
    target: TargetSettings, over: Overrides, size: Mapping[str, str] | None
) -> TargetSettings:
    namespaces = over.namespaces or target.namespaces
    if problem := follow_problem(target.network.follow, namespaces):
        raise ConfigError(f"--namespaces: virtual node {target.name} has `services` set; {problem}")
    return replace(
        target,
        capacity=target.capacity if size is None else CapacityRules.fixed(size),
        namespaces=namespaces,
        labels={**target.labels, **over.labels},
        node_address=over.node_address or target.node_address,
        kubelet=(
            target.kubelet
            if over.kubelet is None
            else with_kubelet_word(target.kubelet, over.kubelet)
        ),
        companions=with_companion_words(
            target.companions, companions=over.companions, hub_address=over.hub_address
        ),
    )

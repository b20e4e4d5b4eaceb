"""What the user typed, read and checked before anything happens.

Input: option texts; output: the values of `runtime.settings`. Every wrong value becomes one line
that names the option, the value and what was expected; all of them are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from federate.companions.environment import Advertised
from federate.companions.rules import CompanionRules, IdentityMode
from federate.config import values
from federate.config.values import quoted
from federate.config.values import shown as shown
from federate.errors import ConfigError
from federate.kubelet.rules import CertificateMode
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.quantities import PODS
from federate.runtime.settings import KubeletSettings

T = TypeVar("T")

HUB_VARIABLE = "FEDERATE_HUB_KUBECONFIG"


class OutputFormat(StrEnum):
    """Who reads the answer: a person or a program."""

    TEXT = "text"
    JSON = "json"


class _About:
    def __init__(self, option: str, lines: list[str]) -> None:
        self._option = option
        self._lines = lines

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, ConfigError):
            return False
        self._lines += [f"{self._option}: {line}" for line in str(error).splitlines()]
        return True


class Complaints:
    """Collects what is wrong with several options, to tell it all at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def about(self, option: str) -> _About:
        """Make a block whose ConfigError is noted as one about `option`, and ends only it."""
        return _About(option, self._lines)

    def note(self, error: ConfigError) -> None:
        """Note what says itself where it stands."""
        self._lines += str(error).splitlines()

    def raise_any(self) -> None:
        """Raise all of them as one.

        Raises:
            ConfigError: something was noted.
        """
        if self._lines:
            raise ConfigError("\n".join(self._lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOption:
    """`--target NAME=PATH[@CONTEXT]`."""

    name: str
    kubeconfig: Path
    context: str | None


def parse_target(text: str) -> TargetOption:
    """Read one `--target`; paths and contexts may hold `@`, the first existing file wins.

    Raises:
        ConfigError: the form, the name or the file is wrong.
    """
    name, equals, place = text.partition("=")
    if not equals or not place:
        raise ConfigError(f"{shown(text)}: expected NAME=PATH or NAME=PATH@CONTEXT")
    try:
        values.node_name(name)
    except ValueError as error:
        raise ConfigError(f"{shown(text)}: {shown(name)} is no node name; {error}") from error
    splits = [i for i, letter in enumerate(place) if letter == "@"]
    for path, context in [(place, "")] + [(place[:i], place[i + 1 :]) for i in splits]:
        if (file := _file_at(path)) is None:
            continue
        if path != place and not context:
            raise ConfigError(f"{shown(text)}: expected the name of a context after @")
        return TargetOption(name=name, kubeconfig=file, context=context or None)
    path = place[: splits[0]] if splits else place
    raise ConfigError(f"{shown(text)}: {_plain(path)} is no file; expected a kubeconfig file")


def _file_at(text: str) -> Path | None:
    """Return the file of that path, None where there is none.

    Raises:
        ConfigError: it cannot be told.
    """
    try:
        file = values.expanded(text)
        return file if text and values.is_file(file) else None
    except ValueError as error:
        raise ConfigError(f"{values.shown_path(text)} {error}") from None


def _plain(path: str) -> str:
    """Say a path that is no file without quotes, where it may be said."""
    said = values.shown_path(path)
    return path if said == quoted(path) else said


def parse_targets(texts: Sequence[str]) -> tuple[TargetOption, ...]:
    """Read all `--target`; the names must differ.

    Raises:
        ConfigError: one line for each that is wrong.
    """
    problems: list[str] = []
    targets: dict[str, TargetOption] = {}
    for text in texts:
        try:
            target = parse_target(text)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if target.name in targets:
            problems.append(f"{shown(text)}: the name {target.name} is given twice")
        targets[target.name] = target
    if problems:
        raise ConfigError("\n".join(problems))
    return tuple(targets.values())


def parse_capacity(text: str) -> tuple[str, Mapping[str, str]]:
    """Read `[NAME:]cpu=100,memory=200Gi,pods=50`; the name is "" for all targets.

    Raises:
        ConfigError: a quantity is wrong, a resource is named twice, or `pods` is missing.
    """
    head, colon, rest = text.partition(":")
    name, listed = (head, rest) if colon and "=" not in head else ("", text)
    quantities: dict[str, str] = {}
    for part in listed.split(","):
        resource, equals, quantity = (piece.strip() for piece in part.partition("="))
        if not equals or not values.is_qualified_name(resource):
            raise ConfigError(f"{shown(text)}: expected RESOURCE=QUANTITY, as in cpu=100")
        if resource in quantities:
            raise ConfigError(f"{shown(text)}: {resource} is given twice")
        try:
            values.resource_name(resource)
        except ValueError as error:
            raise ConfigError(f"{shown(text)}: {resource} is no resource; {error}") from error
        try:
            quantities[resource] = values.quantity(quantity)
        except ValueError as error:
            raise ConfigError(f"{shown(text)}: {resource} is {shown(quantity)}; {error}") from error
    if PODS not in quantities:
        raise ConfigError(
            f"{shown(text)}: expected pods=NUMBER too; a node without it takes no pods"
        )
    return name, checked(text, lambda _text: values.whole_pods(quantities))


def parse_capacities(texts: Sequence[str], names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Read all `--capacity`: what a target has by name; absent ones follow their target.

    Raises:
        ConfigError: one line for each that is wrong, names no target, or repeats one.
    """
    problems: list[str] = []
    given: dict[str, Mapping[str, str]] = {}
    for text in texts:
        try:
            name, quantities = parse_capacity(text)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if name and names and name not in names:
            problems.append(
                f"{shown(text)}: no target is named {name}; expected one of {', '.join(names)}"
            )
        elif name in given:
            whose = name or "all targets"
            problems.append(f"{shown(text)}: the capacity of {whose} is given twice")
        given[name] = quantities
    if problems:
        raise ConfigError("\n".join(problems))
    common = given.get("")
    found = {name: given.get(name, common) for name in names}
    return {name: quantities for name, quantities in found.items() if quantities is not None}


def parse_labels(texts: Sequence[str]) -> Mapping[str, str]:
    """Read all `--label KEY=VALUE`.

    Raises:
        ConfigError: one line for each that is no label, is federate's own, or repeats a key.
    """
    problems: list[str] = []
    labels: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not values.is_qualified_name(key):
            problems.append(f"{shown(text)}: expected KEY=VALUE, as in zone=north")
            continue
        try:
            values.label_value(value)
        except ValueError as error:
            problems.append(f"{shown(text)}: {shown(value)} is no label value; {error}")
        try:
            values.own_label_key(key)
        except ValueError as error:
            problems.append(f"{shown(text)}: {error}")
        if key in labels:
            problems.append(f"{shown(text)}: the key {key} is given twice")
        labels[key] = value
    if problems:
        raise ConfigError("\n".join(problems))
    return labels


def parse_namespaces(text: str) -> NamespaceRules:
    """Read `prefixed`, `suffixed`, `same` or `single=NAME`; a map needs a file.

    Raises:
        ConfigError: it is none of them, or no name of a namespace.
    """
    word, equals, name = text.partition("=")
    simple = [s for s in NamespaceStrategy if s not in ("map", "single")]
    if word == "single" and equals:
        return NamespaceRules(
            strategy=NamespaceStrategy.SINGLE,
            single=checked(text, lambda _text: values.namespace_name(name)),
        )
    if text in simple:
        return NamespaceRules(strategy=NamespaceStrategy(text))
    expected = ", ".join([*simple, "single=NAME"])
    raise ConfigError(f"{shown(text)}: expected {expected}; a map stands in a --config file")


def parse_listen(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`, `[IPv6]:PORT` or `:PORT` (every address).

    Raises:
        ConfigError: the form or the port is wrong.
    """
    return checked(text, values.host_and_port)


def one_of(words: Sequence[str]) -> Callable[[str], str]:
    """Make a reader of one of some words; it raises ConfigError for any other."""

    def read(text: str) -> str:
        if text not in words:
            raise ConfigError(f"{shown(text)}: expected {', '.join(words)}")
        return text

    return read


def parse_node_address(text: str) -> str:
    """Read `--node-address`.

    Raises:
        ConfigError: it is no address that other hosts could reach.
    """
    return checked(text, values.node_address)


KUBELET_WORDS = ("csr", "approve", "self-signed", "off")
"""What `--kubelet` may say."""


def with_kubelet_word(kubelet: KubeletSettings, word: str) -> KubeletSettings:
    """Put a word of `--kubelet` over what the file says; address, port and client CA stay."""
    if word == "off":
        return replace(kubelet, is_served=False)
    by_us = word == CertificateMode.SELF_SIGNED
    serving = replace(
        kubelet.serving,
        mode=CertificateMode.SELF_SIGNED if by_us else CertificateMode.CSR,
        approves=word == "approve",
        certificate_file=None,
        key_file=None,
    )
    return replace(kubelet, is_served=True, serving=serving)


SWITCH_WORDS = ("on", "off")


def parse_hub_address(text: str) -> Advertised:
    """Read `--hub-address`.

    Raises:
        ConfigError: it is no address with a port at which others reach the hub.
    """
    host, port = checked(text, values.reached_host_and_port)
    return Advertised(host=host, port=port)


def with_companion_words(
    rules: CompanionRules, *, companions: str | None, hub_address: Advertised | None
) -> CompanionRules:
    """Put `--companions` and `--hub-address` over what the file says.

    Raises:
        ConfigError: identity `hub` without companions.
    """
    if companions is not None:
        rules = replace(rules, are_made=companions == "on")
    if hub_address is not None:
        rules = replace(rules, identity=IdentityMode.HUB, advertised=hub_address, target_account="")
    if rules.identity is IdentityMode.HUB and not rules.are_made:
        raise ConfigError("--companions: identity hub needs them, for tokens are Secrets")
    return rules


def checked(text: str, check: Callable[[str], T]) -> T:
    """Return what `check` makes of a text.

    Raises:
        ConfigError: the text, and what the check's ValueError says.
    """
    try:
        return check(text)
    except ValueError as error:
        raise ConfigError(f"{shown(text)}: {error}") from error


def named_hub(given: str | None, *, environ: Mapping[str, str]) -> Path | None:
    """Return the hub's kubeconfig that a flag names, or federate's variable.

    Raises:
        ConfigError: it does not exist.
    """
    for origin, text in (("", given), (f"${HUB_VARIABLE}: ", environ.get(HUB_VARIABLE))):
        if not text:
            continue
        try:
            file = _file_at(text)
        except ConfigError as error:
            raise ConfigError(f"{origin}{error}") from None
        if file is None:
            raise ConfigError(
                f"{origin}{values.shown_path(text)} is no file; expected a kubeconfig file"
            )
        return file
    return None


def default_hub(*, environ: Mapping[str, str], home: Path) -> Path | None:
    """Return the kubeconfig that kubectl would take, where it is there.

    Raises:
        ConfigError: whether a file of $KUBECONFIG is there cannot be told: another could be another
            hub.
    """
    listed = [part for part in environ.get("KUBECONFIG", "").split(":") if part]
    if listed:
        return next((file for part in listed if (file := _file_at(part)) is not None), None)
    file = home / ".kube" / "config"
    try:
        return file if values.is_file(file) else None
    except ValueError:  # a home that is not ours, as in a pod that has an account of its own
        return None

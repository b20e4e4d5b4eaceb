"""What the user typed, read and checked before anything happens.

Input: option texts; output: the values of `runtime.settings`. Every wrong value becomes one line
that names the option, the value and what was expected; all of them are told at once.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from federate.errors import ConfigError
from federate.model.marks import PREFIX
from federate.model.pods import NODE_TYPE_LABEL
from federate.model.quantities import PODS, parse_quantity

HUB_VARIABLE = "FEDERATE_HUB_KUBECONFIG"

NODE_NAME_LIMIT = 63
"""A node's name is the value of its `kubernetes.io/hostname` label, which pods select by."""

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE_NAME = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_QUALIFIED = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"({_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_QUALIFIED}")
_LABEL_VALUE = re.compile(rf"({_QUALIFIED})?")
_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")

OWN_LABELS = frozenset(
    {
        NODE_TYPE_LABEL,
        "kubernetes.io/hostname",
        "kubernetes.io/role",
        "node.kubernetes.io/exclude-disruption",
        "node.kubernetes.io/exclude-from-external-load-balancers",
    }
)
"""Labels of the Node that selectors and taints rely on: the user cannot give them other values."""


class OutputFormat(StrEnum):
    """Who reads the answer: a person or a program."""

    TEXT = "text"
    JSON = "json"


def quoted(text: str) -> str:
    """Quote a value for a message, on one line whatever it holds."""
    return json.dumps(text, ensure_ascii=False)


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
        raise ConfigError(f"{quoted(text)}: expected NAME=PATH or NAME=PATH@CONTEXT")
    _check_node_name(name, text)
    splits = [i for i, letter in enumerate(place) if letter == "@"]
    for path, context in [(place, "")] + [(place[:i], place[i + 1 :]) for i in splits]:
        file = Path(path).expanduser()
        if not path or not file.is_file():
            continue
        if path != place and not context:
            raise ConfigError(f"{quoted(text)}: expected the name of a context after @")
        return TargetOption(name=name, kubeconfig=file, context=context or None)
    path = place[: splits[0]] if splits else place
    raise ConfigError(f"{quoted(text)}: {path} is no file; expected a kubeconfig file")


def _check_node_name(name: str, text: str) -> None:
    if len(name) > NODE_NAME_LIMIT or not _NODE_NAME.fullmatch(name):
        raise ConfigError(
            f"{quoted(text)}: {quoted(name)} is no node name; expected at most {NODE_NAME_LIMIT} "
            f"lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        )
    if name == "hub":
        raise ConfigError(f'{quoted(text)}: expected another name, "hub" is what the hub is called')


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
            problems.append(f"{quoted(text)}: the name {target.name} is given twice")
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
        if not equals or not _LABEL_KEY.fullmatch(resource):
            raise ConfigError(f"{quoted(text)}: expected RESOURCE=QUANTITY, as in cpu=100")
        if resource in quantities:
            raise ConfigError(f"{quoted(text)}: {resource} is given twice")
        _check_quantity(resource, quantity, text)
        quantities[resource] = quantity
    if PODS not in quantities:
        raise ConfigError(
            f"{quoted(text)}: expected pods=NUMBER too; a node without it takes no pods"
        )
    return name, quantities


def _check_quantity(resource: str, quantity: str, text: str) -> None:
    try:
        amount = parse_quantity(quantity)
    except ValueError as error:
        raise ConfigError(
            f"{quoted(text)}: {quoted(quantity)} is no quantity; "
            f"expected one as in 4, 500m or 200Gi"
        ) from error
    if amount < 0:
        raise ConfigError(f"{quoted(text)}: {resource} is negative; expected 0 or more")
    if resource == PODS and amount != amount.to_integral_value():
        raise ConfigError(f"{quoted(text)}: expected a whole number of pods")


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
                f"{quoted(text)}: no target is named {name}; expected one of {', '.join(names)}"
            )
        elif name in given:
            whose = name or "all targets"
            problems.append(f"{quoted(text)}: the capacity of {whose} is given twice")
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
        prefix, slash, _name = key.rpartition("/")
        if not equals or not _LABEL_KEY.fullmatch(key) or (slash and len(prefix) > 253):
            problems.append(f"{quoted(text)}: expected KEY=VALUE, as in zone=north")
        elif not _LABEL_VALUE.fullmatch(value):
            problems.append(
                f"{quoted(text)}: {quoted(value)} is no label value; expected at most 63 letters, "
                f"digits, '-', '_' and '.', beginning and ending with a letter or digit"
            )
        elif key in OWN_LABELS or key.startswith(PREFIX):
            problems.append(f"{quoted(text)}: {key} is set by federate; expected another key")
        elif key in labels:
            problems.append(f"{quoted(text)}: the key {key} is given twice")
        labels[key] = value
    if problems:
        raise ConfigError("\n".join(problems))
    return labels


def parse_listen(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`, `[IPv6]:PORT` or `:PORT` (every address).

    Raises:
        ConfigError: the form or the port is wrong.
    """
    host, colon, digits = text.rpartition(":")
    port = int(digits) if re.fullmatch(r"[0-9]{1,5}", digits) else -1
    if not colon or not 0 <= port <= 65535:
        raise ConfigError(
            f"{quoted(text)}: expected HOST:PORT with a port from 0 (any free one) to 65535"
        )
    if host.startswith("[") and host.endswith("]"):
        return _address(host[1:-1], text), port
    if not host:
        return "0.0.0.0", port  # noqa: S104 - the user asked for every address
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{quoted(text)}: {quoted(host)} is no host; write IPv6 as [::1]:8080")
    return host, port


def parse_node_address(text: str) -> str:
    """Read `--node-address`.

    Raises:
        ConfigError: it is no address that other hosts could reach.
    """
    address = _address(text, text)
    if ipaddress.ip_address(address).is_unspecified:
        raise ConfigError(f"{quoted(text)}: expected an address of this host, as in 10.0.0.5")
    return address


def _address(host: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError as error:
        raise ConfigError(
            f"{quoted(text)}: {quoted(host)} is no IP address; expected one as in 10.0.0.5"
        ) from error


def find_hub(given: str | None, *, environ: Mapping[str, str], home: Path) -> Path | None:
    """Find the hub's kubeconfig; None where there is none, so that only a pod's account is left.

    In this order: `--hub`, $FEDERATE_HUB_KUBECONFIG, the first file of $KUBECONFIG,
    ~/.kube/config. The first two must exist where they are given.

    Raises:
        ConfigError: a file that was named does not exist.
    """
    for origin, text in (("", given), (f"${HUB_VARIABLE}: ", environ.get(HUB_VARIABLE))):
        if text:
            file = Path(text).expanduser()
            if not file.is_file():
                raise ConfigError(f"{origin}{quoted(text)} is no file; expected a kubeconfig file")
            return file
    listed = [part for part in environ.get("KUBECONFIG", "").split(":") if part]
    candidates = [Path(part).expanduser() for part in listed] or [home / ".kube" / "config"]
    return next((file for file in candidates if file.is_file()), None)

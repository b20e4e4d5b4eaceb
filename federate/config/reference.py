"""Write the reference page of the configuration file out of its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from federate.config.parts import Says
from federate.config.problems import part_of
from federate.config.schema import Federation

OVERRIDES: Mapping[str, str] = {
    "hub.kubeconfig": "`--hub`, `$FEDERATE_HUB_KUBECONFIG`",
    "hub.context": "`--hub-context`, `$FEDERATE_HUB_CONTEXT`",
    "hub.identity": "`--hub-identity`, `$FEDERATE_HUB_IDENTITY`",
    "listen": "`--listen`, `$FEDERATE_LISTEN`",
    "logLevel": "`--log-level`, `$FEDERATE_LOG_LEVEL`",
    "logFormat": "`--log-format`, `$FEDERATE_LOG_FORMAT`",
    "leaderLeaseNamespace": "`--leader-lease-namespace`, `$FEDERATE_LEADER_LEASE_NAMESPACE`",
    "virtualNodes[].target": "`--target NAME=PATH[@CONTEXT]`",
    "virtualNodes[].capacity": "`--capacity [NAME:]SIZE`",
    "virtualNodes[].namespaces": "`--namespaces WORD`",
    "virtualNodes[].labels": "`--label KEY=VALUE` (by key)",
    "virtualNodes[].nodeAddress": "`--node-address`, `$FEDERATE_NODE_ADDRESS`",
    "virtualNodes[].kubelet": "`--kubelet`, `$FEDERATE_KUBELET`",
    "virtualNodes[].companions": "`--companions`, `$FEDERATE_COMPANIONS`",
    "virtualNodes[].hubAddress": "`--hub-address`, `$FEDERATE_HUB_ADDRESS`",
}
"""What goes over a key. Flags go over the environment, which goes over the file."""

_HEAD = """\
# The configuration file

<!-- Written by `python -m federate.config`; a test compares. Change federate/config instead. -->

`federate run --config FILE`, or `$FEDERATE_CONFIG`. One YAML document; an example is
[federation.yaml](../examples/federation.yaml). An unknown or repeated key and a wrong value are
told as `FILE:LINE: key: what was found; what was expected`, all of them at once, and federate ends
with exit code 2. A key without a value counts as absent.

## Every key
"""

_TAIL = """\
## Flags and environment

Flags go over the environment, the environment over the file; an empty variable counts as absent.
They go over each later state of the file too. Flags about virtual nodes go over all of them, those
of the file included:

- `--target NAME=PATH[@CONTEXT]` adds a virtual node; where the file has one of that name, path and
  context of its target are replaced (both), and its other keys stay.
- `--capacity SIZE` and `--capacity NAME:SIZE` give a fixed size, `--namespaces` another strategy;
  `--label` adds a label, or replaces the one of that key.
- `--kubelet off` sets `serve: false`; `csr`, `approve` (`csr` with `approve: true`) and
  `self-signed` set `serve: true` and the certificate. Address, port and client CA stay.
- `--hub-address HOST:PORT` sets `identity: hub` and the address.
- `--hub` and `$FEDERATE_HUB_KUBECONFIG` put aside `hub.context` too: it belongs to the other file.

`--identity` and `$FEDERATE_IDENTITY` (this process in leader leases) have no key: replicas may
share a file, and two processes of one name would both take themselves for the leader.

Without a file, flags and environment say it all.

## While federate runs

The file is looked at every 2 s and on SIGHUP (which tells again what is wrong); files that are
written over, replaced, or swapped by links as in a mounted ConfigMap are noticed. Nothing is taken
over before two looks, 0.5 s apart, found the same.

- A virtual node that is **added** starts. One that is **changed** starts anew, its pods go on
  running. One that is **removed** stops: *nothing is deleted*, its Node and mirrors stay, and
  federate prints how to leave. The hub takes the Node for lost soon, as any node that fell silent,
  and evicts its pods after their `tolerationSeconds` (300 s unless they say otherwise): leave, or
  put it back. The others are not touched.
- **A file that is wrong** changes nothing. The log says once what is wrong, `federate_config_valid`
  is 0, and all goes on as before.
- A kubeconfig that is not there ends federate at its start; later it is the trouble of its virtual
  node, which tries again until the file is there. So it is with all that only shows when a virtual
  node starts (a context that does not exist, namespaces `same` in the hub itself): in the first
  30 s it ends federate with exit code 2, later it is in the log and `/readyz`.
- `listen`, `logLevel` and `logFormat` take effect when federate is started again; the log says so,
  and the virtual nodes follow the file all the same.
- With another `hub.kubeconfig`, `hub.context`, `hub.identity` or `leaderLeaseNamespace` *nothing*
  of the file is taken over before federate is started again: virtual nodes meant for one hub are
  never started at another. Until then `federate_config_valid` is 0.
- What a kubeconfig says is followed by itself, with or without a configuration file.
"""


def reference() -> str:
    """Return docs/reference/config.md."""
    return f"{_HEAD}\n{_table(Federation)}\n{_TAIL}"


def keys(shape: type[BaseModel] = Federation, before: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key of the file with its field, a mapping before what is in it."""
    for field in shape.model_fields.values():
        path = f"{before}{field.alias}"
        inner = part_of(field.annotation)
        is_list = _is_list(field.annotation)
        yield path, field
        if inner is not None:
            yield from keys(inner, f"{path}[]." if is_list else f"{path}.")


def _table(shape: type[BaseModel]) -> str:
    rows = [
        "| key | value | default | what it says | overridden by |",
        "|---|---|---|---|---|",
    ]
    for path, field in keys(shape):
        cells = (
            f"`{path}`",
            _kind(field),
            _default(field),
            field.description or "",
            OVERRIDES.get(path, ""),
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list


def _kind(field: FieldInfo) -> str:
    annotation = field.annotation
    if said := _said(field.metadata) or _said_within(annotation):
        return said
    if part_of(annotation) is not None:
        return "list of mappings" if _is_list(annotation) else "mapping"
    if get_origin(annotation) is Literal:
        return _words(get_args(annotation))
    if annotation is bool:
        return _words(("true", "false"))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _words(annotation)
    raise TypeError(f"{field.alias}: no words for {annotation}")


def _said(metadata: Any) -> str:
    return next((mark.words for mark in metadata if isinstance(mark, Says)), "")


def _said_within(annotation: Any) -> str:
    """Look into `Annotated[…] | None`."""
    if said := _said(getattr(annotation, "__metadata__", ())):
        return said
    if get_origin(annotation) in (list, dict):
        return ""
    return next((said for arg in get_args(annotation) if (said := _said_within(arg))), "")


def _words(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    match default:
        case None | {} | [] | "":
            return ""
        case BaseModel():
            return ""
        case bool():
            return f"`{str(default).lower()}`"
        case StrEnum() | str() | Decimal() | int():
            return f"`{default}`"
    raise TypeError(f"{field.alias}: no words for the default {default!r}")

"""Where a command finds hub and targets: flags over the environment over the file of a run.

For commands beside a running federate: what the file says of other virtual nodes does not matter to
them, were their kubeconfigs missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from federate.cli.options import HUB_VARIABLE, Complaints, TargetOption
from federate.cli.sources import (
    VARIABLES,
    Typed,
    combine,
    find_config,
    read_bytes,
    read_config,
    read_overrides,
)
from federate.errors import ConfigError

if TYPE_CHECKING:
    from federate.companions.rules import CompanionRules
    from federate.config.load import Configuration
    from federate.runtime.settings import Settings

CONFIG_HELP = "The file of federate run, for what is not given. Without it: $FEDERATE_CONFIG."

_OPTIONS = ("--config", "--hub-context", "--hub-identity", "--leader-lease-namespace")
_READ = frozenset({HUB_VARIABLE, "KUBECONFIG", *(VARIABLES[option] for option in _OPTIONS)})
"""Of the environment; a wrong address to listen on does not concern who does not listen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What flags, environment and file say of hub and targets."""

    settings: Settings
    """Its targets are those of the file."""
    file: Configuration | None = None

    def target(self, node: str) -> TargetOption:
        """Return where the file says that the target of a virtual node is.

        Raises:
            ConfigError: the file has no such virtual node, or its kubeconfig is no file.
        """
        self.require(node)
        if self.file is not None:
            others = frozenset(target.name for target in self.settings.targets) - {node}
            if missing := self.file.missing_files(but_hub=True, but_nodes=others):
                raise ConfigError("\n".join(missing))
        found = next(target for target in self.settings.targets if target.name == node)
        return TargetOption(name=node, kubeconfig=found.kubeconfig, context=found.context)

    def has(self, node: str) -> bool:
        """Tell whether the file has that virtual node."""
        return any(target.name == node for target in self.settings.targets)

    def companions(self, node: str) -> CompanionRules | None:
        """Return what the file says of a virtual node's companions; None where it has none."""
        named = (target for target in self.settings.targets if target.name == node)
        return next((target.companions for target in named), None)

    def require(self, node: str) -> None:
        """Refuse a virtual node that the file does not have.

        Raises:
            ConfigError: it names those that are there.
        """
        if self.file is not None and not self.has(node):
            names = ", ".join(target.name for target in self.settings.targets)
            raise ConfigError(
                f"{self.file.path} has no virtual node {node}; "
                + (f"expected one of {names}" if names else "it has none")
            )

    def only_node(self) -> str:
        """Return the virtual node of a file that has one.

        Raises:
            ConfigError: it has another number.
        """
        names = [target.name for target in self.settings.targets]
        if len(names) != 1 and self.file is not None:
            raise ConfigError(f"{self.file.path} has {', '.join(names) or 'none'}; expected NODE")
        return names[0] if names else ""


def read_places(complaints: Complaints, typed: Typed) -> Places:
    """Read flags, environment and file; what is wrong with flags is left with `complaints`.

    Raises:
        ConfigError: all that is wrong, where the file is.
    """
    typed = replace(
        typed, environ={name: text for name, text in typed.environ.items() if name in _READ}
    )
    over = read_overrides(complaints, typed)
    try:
        file = _read_file(find_config(typed), is_hub_given=over.hub_file is not None)
        return Places(settings=combine(over, file), file=file)
    except ConfigError as error:
        complaints.note(error)
        complaints.raise_any()
        raise


def _read_file(path: Path | None, *, is_hub_given: bool) -> Configuration | None:
    if path is None:
        return None
    file = read_config(path, read_bytes(path))
    everybody = frozenset(target.name for target in file.targets())
    if missing := file.missing_files(but_hub=is_hub_given, but_nodes=everybody):
        raise ConfigError("\n".join(missing))
    return file

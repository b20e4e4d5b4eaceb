"""Where the test bed keeps things and which environment variables steer it.

The only module of the test bed that reads the environment. Builds are shared by all checkouts
of a user; running clusters belong to one checkout.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BINARIES_VARIABLE = "FEDERATE_TESTBED_BINARIES"
CACHE_VARIABLE = "FEDERATE_TESTBED_CACHE"
PROVIDER_VARIABLE = "FEDERATE_TESTBED_PROVIDER"
HUB_KUBECONFIG_VARIABLE = "FEDERATE_HUB_KUBECONFIG"
TARGET_KUBECONFIG_VARIABLE = "FEDERATE_TARGET_KUBECONFIG"
NODE_IMAGE_VARIABLE = "FEDERATE_TESTBED_NODE_IMAGE"

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).resolve().parent / "modules"
STAGES = Path(__file__).resolve().parent / "stages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Folders and choices of one test run, worked out from an environment.

    `environment` is what child processes get too, so a test can run in a made-up one.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    checkout: Path = CHECKOUT

    @property
    def binaries(self) -> Path | None:
        """The folder the user named for ready-made binaries."""
        named = self.environment.get(BINARIES_VARIABLE)
        return absolute(named) if named else None

    @property
    def search_path(self) -> str:
        return self.environment.get("PATH", os.defpath)

    @property
    def cache(self) -> Path:
        """Builds, shared between checkouts; safe to delete while nothing is building."""
        if named := self.environment.get(CACHE_VARIABLE):
            return absolute(named)
        return self._base("XDG_CACHE_HOME", ".cache") / "federate" / "testbed"

    @property
    def state(self) -> Path:
        """Running clusters of this checkout."""
        digest = hashlib.sha256(str(self.checkout).encode()).hexdigest()[:12]
        return self._base("XDG_STATE_HOME", ".local/state") / "federate" / "testbed" / digest

    @property
    def kubeconfigs(self) -> Path:
        """Where `up` leaves the kubeconfigs a person uses."""
        return self.checkout / "kubeconfigs"

    @property
    def named_provider(self) -> str:
        """The provider the user named; empty where the test bed chooses."""
        return self.environment.get(PROVIDER_VARIABLE, "")

    @property
    def node_image(self) -> str | None:
        """The node image for kind clusters; None leaves it to kind, which pulls its own."""
        return self.environment.get(NODE_IMAGE_VARIABLE) or None

    def existing_kubeconfig(self, variable: str) -> Path | None:
        named = self.environment.get(variable)
        return absolute(named) if named else None

    def _base(self, variable: str, fallback: str) -> Path:
        named = self.environment.get(variable)
        # The XDG specification tells to ignore relative paths.
        if named and Path(named).is_absolute():
            return Path(named)
        home = self.environment.get("HOME")
        return (Path(home) if home else Path.home()) / fallback


def absolute(named: str) -> Path:
    # Programs are built and run in other folders than the one a relative path was meant for.
    return Path(named).expanduser().absolute()

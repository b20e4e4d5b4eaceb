"""The programs a local cluster consists of: one table, and how each is built from Go modules.

Adding a Kubernetes minor means one row here and one folder in `modules/`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import TestbedError
from .places import MODULES

DEFAULT_MINOR = "1.34"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Programs that come from one Go module at one version."""

    name: str
    version: str
    module: str
    """Folder below `modules/` with the go.mod and go.sum that pin everything."""
    packages: Mapping[str, str]
    """Program name to the Go package it is built from."""
    accepts: str
    """Regular expression: what a program found elsewhere must print about its version."""
    minor: str | None = None
    cgo: bool = False
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Go variables set by the linker; Kubernetes learns its own version only this way."""

    @property
    def build_arguments(self) -> tuple[str, ...]:
        symbols = "".join(f" -X {name}={value}" for name, value in self.symbols.items())
        return ("-trimpath", "-ldflags", f"-s -w{symbols}")

    def cache_key(self, modules: Path = MODULES) -> str:
        """Name the cache folder; anything that changes the build changes the name."""
        digest = hashlib.sha256()
        for file in ("go.mod", "go.sum"):
            digest.update((modules / self.module / file).read_bytes())
        digest.update(repr((self.build_arguments, self.cgo, sorted(self.packages))).encode())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:10]}"


KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def kubernetes(version: str) -> Component:
    major, minor = version.removeprefix("v").split(".")[:2]
    variable = "k8s.io/component-base/version."
    return Component(
        name="kubernetes",
        version=version,
        minor=f"{major}.{minor}",
        module=f"kubernetes-{major}.{minor}",
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS},
        accepts=rf"v{major}\.{minor}\.",
        symbols={
            f"{variable}gitVersion": version,
            f"{variable}gitMajor": major,
            f"{variable}gitMinor": minor,
            f"{variable}gitTreeState": "clean",
        },
    )


COMPONENTS = (
    kubernetes("v1.34.4"),
    kubernetes("v1.36.3"),
    Component(
        name="etcd",
        version="v3.6.16",
        module="etcd",
        packages={"etcd": "go.etcd.io/etcd/server/v3"},
        # Kubernetes asks etcd for progress of watches, which older releases get wrong.
        accepts=r"etcd Version: 3\.(5\.(1[3-9]|[2-9]\d)|[6-9]\.)",
    ),
    Component(
        name="kwok",
        version="v0.7.0",
        module="kwok",
        packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        accepts=r"v?0\.([7-9]|\d\d)\.",
    ),
    Component(
        name="kine",
        version="v0.17.5",
        module="kine",
        packages={"kine": "github.com/k3s-io/kine"},
        accepts=r"",
        cgo=True,  # SQLite is C.
    ),
)

MINORS = tuple(component.minor for component in COMPONENTS if component.minor)


def component_of(program: str, minor: str = DEFAULT_MINOR) -> Component:
    """Find the row that provides `program`; `minor` matters for Kubernetes' own programs."""
    for component in COMPONENTS:
        if program in component.packages and component.minor in (None, minor):
            return component
    known = ", ".join(MINORS)
    raise TestbedError(
        f"The test bed has no {program} for Kubernetes {minor}; it knows the minors {known}."
    )

"""The programs clusters consist of: one table, and how each is built from Go modules.

Adding a Kubernetes minor means one row here and one folder in `modules/`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    """Folder below `modules/` with the go.mod and go.sum that pin everything, and perhaps a
    program of our own."""
    packages: Mapping[str, str]
    """Program name to the Go package it is built from."""
    accepts: str | None
    """Regular expression: what a program found elsewhere must print about its version.
    None: a program of that name found elsewhere is not even asked."""
    minor: str | None = None
    cgo: bool = False
    tests: frozenset[str] = frozenset()
    """Those of the programs that are a package's tests, built by `go test -c`."""
    symbols: Mapping[str, str] = field(default_factory=dict)
    """Go variables set by the linker; Kubernetes learns its own version only this way."""

    @property
    def build_arguments(self) -> tuple[str, ...]:
        symbols = "".join(f" -X {name}={value}" for name, value in self.symbols.items())
        return ("-trimpath", "-ldflags", f"-s -w{symbols}")

    def cache_key(self, modules: Path = MODULES) -> str:
        """Name the cache folder; anything that changes the build changes the name."""
        digest = hashlib.sha256()
        folder = modules / self.module
        for file in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
            digest.update(file.read_bytes() if file.exists() else b"")
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


NODE_PROGRAMS = ("kubelet", "kubeadm", "kube-proxy")


def kubernetes_node(version: str) -> Component:
    """What only a real node needs: of its own, so that nobody builds it for a local cluster."""
    whole = kubernetes(version)
    return replace(
        whole,
        name="kubernetes-node",
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in NODE_PROGRAMS},
        accepts=None,
    )


def kubernetes_suite(version: str) -> Component:
    """Build Kubernetes' own tests, and what they need: nobody builds it for a cluster."""
    whole = kubernetes(version)
    return replace(
        whole,
        name="kubernetes-suite",
        module=f"conformance-{whole.minor}",
        packages={
            "ginkgo": "github.com/onsi/ginkgo/v2/ginkgo",
            "agnhost": "k8s.io/kubernetes/test/images/agnhost",
            "e2e.test": "k8s.io/kubernetes/test/e2e",
        },
        accepts=None,
        tests=frozenset({"e2e.test"}),
    )


COMPONENTS = (
    kubernetes("v1.34.4"),
    kubernetes_node("v1.34.4"),
    kubernetes_suite("v1.34.4"),
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
    Component(
        name="kind",
        version="v0.33.0",
        module="kind",
        packages={"kind": "sigs.k8s.io/kind"},
        # The oldest whose own node image has all we use: pods are resized from Kubernetes 1.33 on.
        accepts=r"kind version (0\.(2[89]|[3-9]\d)|[1-9]\d*)\.",
    ),
    Component(
        name="coredns",
        version="v1.12.1",
        module="coredns",
        packages={"coredns": "."},
        accepts=None,
    ),
    Component(
        name="pause", version="v1.0.0", module="pause", packages={"pause": "."}, accepts=None
    ),
    Component(
        name="virtual-kubelet",
        version="v1.14.1",
        module="virtual-kubelet",
        # Their suite for providers, as they say that it is run: from a test of one's own.
        packages={"virtual-kubelet.test": "."},
        accepts=None,
        tests=frozenset({"virtual-kubelet.test"}),
    ),
    Component(
        name="metrics-server",
        version="v0.8.0",
        module="metrics-server",
        packages={"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"},
        # It runs in a container of its own, without any library.
        accepts=None,
    ),
)

MINORS = tuple(dict.fromkeys(row.minor for row in COMPONENTS if row.minor))


def component_of(program: str, minor: str = DEFAULT_MINOR) -> Component:
    """Find the row that provides `program`; `minor` matters for Kubernetes' own programs."""
    for component in COMPONENTS:
        if program in component.packages and component.minor in (None, minor):
            return component
    known = ", ".join(MINORS)
    raise TestbedError(
        f"The test bed has no {program} for Kubernetes {minor}; it knows the minors {known}."
    )

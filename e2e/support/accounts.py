"""Credentials with exactly the rights that `federate rbac` prints: an account and its token."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from e2e.testbed.kubeconfigs import read_kubeconfig, write_kubeconfig
from e2e.testbed.provider import TestCluster

from .process import run_cli

TOKEN_LIFE = "2h"


@contextmanager
def account_of(
    cluster: TestCluster, *arguments: str, folder: Path, namespace: str = "kube-system"
) -> Iterator[Path]:
    """Apply what `federate rbac` prints for these arguments; yields the account's kubeconfig.

    `namespace` is where the account stands. All of it is removed at the end.
    """
    name = f"federate-e2e-{uuid4().hex[:8]}"
    account = ("--name", name, "--account-namespace", namespace)
    printed = run_cli("rbac", *account, *arguments)
    assert printed.returncode == 0, printed.stderr
    cluster.kubectl("apply", "-f", "-", stdin=printed.stdout)
    try:
        token = cluster.kubectl("-n", namespace, "create", "token", name, "--duration", TOKEN_LIFE)
        yield kubeconfig_with_token(cluster, token.strip(), folder / f"{name}.yaml")
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=printed.stdout)


def kubeconfig_with_token(cluster: TestCluster, token: str, file: Path) -> Path:
    """Write the cluster's kubeconfig with a token in place of the administrator."""
    content = read_kubeconfig(cluster.kubeconfig)
    for user in content["users"]:
        user["user"] = {"token": token}
    return write_kubeconfig(file, content)

"""Write and read kubeconfig files: one cluster, one user, everything embedded."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import TestbedError
from .pki import KeyPair

MARK = "# Written by `python -m e2e.testbed up`; `python -m e2e.testbed down` removes it.\n"
"""First line of the kubeconfigs that a person uses: files without it are never touched."""


def render_kubeconfig(*, name: str, server: str, authority: Path, user: KeyPair) -> dict[str, Any]:
    """Render a kubeconfig that works from anywhere: certificates are embedded, not referred to."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": embed(authority)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": embed(user.certificate),
                    "client-key-data": embed(user.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def embed(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def write_kubeconfig(path: Path, content: Mapping[str, Any], *, mark: str = "") -> Path:
    """Write a kubeconfig, readable by its owner only, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.touch(mode=0o600)
    temporary.write_text(mark + yaml.safe_dump(dict(content), sort_keys=False))
    return temporary.replace(path)


def read_kubeconfig(path: Path) -> dict[str, Any]:
    """Read a kubeconfig into a form that works from any folder.

    Raises:
        TestbedError: the file cannot be read or is no kubeconfig.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise TestbedError(f"Cannot read the kubeconfig {path}: {error}") from error
    if not isinstance(content, dict) or not content.get("clusters"):
        raise TestbedError(f"{path} is not a kubeconfig: it names no clusters.")
    for entry in content["clusters"] + content.get("users", []):
        settings = entry.get("cluster") or entry.get("user") or {}
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if key in settings:
                settings[key] = str(path.parent.resolve() / settings[key])
    return content


def chosen_by_context(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the current context's cluster and user, all in one.

    Raises:
        TestbedError: there is no such context, or it names a cluster that is not there.
    """
    context = content.get("current-context")
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts", [])}
    clusters = {entry["name"]: entry["cluster"] for entry in content["clusters"]}
    users = {entry["name"]: entry.get("user", {}) for entry in content.get("users", [])}
    try:
        chosen = contexts[context]
        return {**clusters[chosen["cluster"]], **users.get(chosen.get("user"), {})}
    except KeyError as error:
        raise TestbedError(
            f"The kubeconfig's current context {context!r} is incomplete."
        ) from error


def server_of(content: Mapping[str, Any]) -> str:
    """Return the API server's address under the current context."""
    server = chosen_by_context(content).get("server")
    if not server:
        raise TestbedError("The kubeconfig's current context has no server.")
    return str(server)


def is_marked(path: Path) -> bool:
    try:
        return path.read_text().startswith(MARK)
    except FileNotFoundError:
        return False

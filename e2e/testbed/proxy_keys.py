"""What a proxy before a cluster needs: whom it trusts, as whom it asks, and who it is itself."""

import base64
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from .errors import TestbedError
from .kubeconfigs import chosen_by_context, read_kubeconfig
from .local import LocalCluster
from .pki import Authority, KeyPair
from .provider import TestCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyKeys:
    """Certificates and keys, as files."""

    upstream_authority: Path
    """Who vouches for the API servers."""
    user: KeyPair
    """As whom the proxy asks them; an admin."""
    authority: Path
    """Who vouches for the proxy, to its clients."""
    server: KeyPair
    """The proxy's own."""
    folder: Path
    is_folder_own: bool = False
    """Whether the folder is only this proxy's, and goes with it."""

    def remove(self) -> None:
        """Remove what was made for one proxy only."""
        if self.is_folder_own:
            shutil.rmtree(self.folder, ignore_errors=True)


def keys_before(cluster: TestCluster) -> ProxyKeys:
    """Return the keys for a proxy before a cluster.

    Raises:
        TestbedError: the cluster's kubeconfig has no client certificate that could be used.
    """
    if isinstance(cluster, LocalCluster):
        authority = cluster.pki.authority.certificate
        return ProxyKeys(
            upstream_authority=authority,
            user=cluster.pki.admin,
            authority=authority,
            server=cluster.pki.server,
            folder=cluster.layout.folder,
        )
    return keys_from_kubeconfig(cluster.kubeconfig)


def keys_from_kubeconfig(kubeconfig: Path) -> ProxyKeys:
    """Ask as whoever the kubeconfig is for, and be vouched for by an authority made up here."""
    settings = chosen_by_context(read_kubeconfig(kubeconfig))
    # Read first: what is incomplete leaves no folder behind.
    contents = {
        name: material(settings, key, kubeconfig)
        for name, key in (
            ("cluster-ca.crt", "certificate-authority"),
            ("user.crt", "client-certificate"),
            ("user.key", "client-key"),
        )
    }
    folder = Path(mkdtemp(prefix="federate-proxy-"))
    for name, content in contents.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)
    own = Authority(folder, "proxy-ca")
    return ProxyKeys(
        upstream_authority=folder / "cluster-ca.crt",
        user=KeyPair(certificate=folder / "user.crt", key=folder / "user.key"),
        authority=own.files.certificate,
        server=own.issue_server("proxy", addresses=("127.0.0.1", "::1"), names=("localhost",)),
        folder=folder,
        is_folder_own=True,
    )


def material(settings: Mapping[str, Any], key: str, kubeconfig: Path) -> bytes:
    """Return a certificate or key that a kubeconfig embeds or names."""
    if data := settings.get(f"{key}-data"):
        return base64.b64decode(data)
    if file := settings.get(key):
        return Path(file).read_bytes()
    raise TestbedError(f"A proxy before a cluster needs the {key} of {kubeconfig}; it has none.")

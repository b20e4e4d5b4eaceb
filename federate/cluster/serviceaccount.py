"""Address, token and authority of the cluster that this process runs in, as a pod.

Below `connect`, which asks again and again. The one module that knows kubernetes_asyncio, whose
loader says where a pod finds these; kubeconfig files are read by `kubeconfig` (decision 0013).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from federate.cluster.expiry import expiry_of_token
from federate.cluster.kubeconfig import TlsMaterial
from federate.cluster.sessions import Access, authorization, to_conceal
from federate.errors import ConfigError


class ServiceAccountSource:
    """Satisfies `connect.Source`."""

    where = "service account of this pod"

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = dict(environ)

    async def load(self, *, force: bool) -> tuple[Access, TlsMaterial]:
        """Read the projected token and the cluster's authority."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> tuple[Access, TlsMaterial]:
        configuration, certificate = Configuration(), self._folder / "ca.crt"
        loader = InClusterConfigLoader(
            token_filename=str(self._folder / "token"),
            cert_filename=str(certificate),
            try_refresh_token=False,
            environ=self._environ,
        )
        try:
            loader.load_and_set(configuration)
            authority = certificate.read_bytes()
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            what = "a file holds no text" if isinstance(error, UnicodeDecodeError) else error
            raise ConfigError(
                f"no kubeconfig is given and this is no pod with a service account ({what}); "
                f"name a kubeconfig file, or run in a pod with automountServiceAccountToken"
            ) from None
        value = str(configuration.api_key.get("BearerToken") or "").strip()
        headers = authorization(value, where=self.where)
        token = value.partition(" ")[2]
        access = Access(
            server=str(configuration.host),
            headers=headers,
            expiry=expiry_of_token(token, what="service account token", is_renewed=True),
            concealed=to_conceal(headers, None),
        )
        return access, TlsMaterial(authority=authority)

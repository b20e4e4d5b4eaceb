"""How a kubelet API is to prove who it is, as the user wants it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class CertificateMode(StrEnum):
    """Where the serving certificate comes from."""

    CSR = "csr"
    """Asked for at the hub, signer kubernetes.io/kubelet-serving; self-signed until it is there."""
    FILES = "files"
    SELF_SIGNED = "self-signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRules:
    """What is told of certificates in the configuration."""

    mode: CertificateMode = CertificateMode.CSR
    approves: bool = False
    """Whether our own requests are approved by ourselves; that needs rights of its own."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    """Both for mode `files`."""
    client_ca_file: Path | None = None
    """Who may ask with a certificate; None: those whom the hub's API servers take."""
    folder: Path | None = None
    """Where key and certificate are kept across restarts, for mode `csr`; None: in memory alone."""

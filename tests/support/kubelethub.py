"""A hub that answers what a kubelet API asks: whose token, may they, sign this.

It is a FakeCluster with those who answer: reviews are answered and not kept, requests for
certificates wait until the test, as an approver, says something.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from federate.errors import ClusterError
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.model.resources import (
    CERTIFICATE_REQUESTS,
    CONFIGMAPS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
)
from tests.support.credentials import Authority, Issued
from tests.support.fakecluster import FakeCluster

Answer = Callable[[JsonObject], JsonDict]


class KubeletHub:
    """A client of a hub in memory; `asked` counts the reviews by kind."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.client: Any = cluster.client()
        self.name = "hub"
        self.reviews: list[JsonObject] = []
        self.whose: Answer = lambda spec: {"authenticated": False}
        self.allows: Answer = lambda spec: {"allowed": False}
        self.refuses: dict[str, ClusterError] = {}
        self.fails_once: list[ClusterError] = []
        self.hold: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def count(self, resource: Resource) -> int:
        return len([one for one in self.reviews if one["kind"] == resource.kind])

    async def create(self, resource: Resource, body: JsonObject, **more: Any) -> JsonDict:
        if resource.plural in self.refuses:
            raise self.refuses[resource.plural]
        if resource not in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS):
            made: JsonDict = await self.client.create(resource, body, **more)
            return made
        self.reviews.append(body)
        if self.hold is not None:
            await self.hold()
        if self.fails_once:
            raise self.fails_once.pop()
        answer = self.whose if resource == TOKEN_REVIEWS else self.allows
        return {**body, "status": answer(body["spec"])}

    async def replace(
        self, resource: Resource, key: ObjectKey, body: JsonObject, *, subresource: str = ""
    ) -> JsonDict:
        """The approval of a request: what is replaced has to be what was read."""
        refusal = self.refuses.get(f"{resource.plural}/{subresource}")
        if refusal is not None:
            raise refusal
        replaced: JsonDict = await self.client.replace(resource, key, body)
        return replaced

    # --- approver and signer -------------------------------------------------------------------

    def requests(self) -> list[JsonDict]:
        """All requests for certificates, oldest first."""
        everything = self.cluster.store.all()
        return [obj for resource, obj in everything if resource == CERTIFICATE_REQUESTS]

    def say(
        self, request: JsonObject, kind: str, *, certificate: bytes = b"", message: str = ""
    ) -> None:
        """Write a condition, and a certificate."""

        def change(obj: JsonDict) -> None:
            status = obj.setdefault("status", {})
            conditions = status.setdefault("conditions", [])
            conditions.append({"type": kind, "status": "True", "message": message})
            if certificate:
                status["certificate"] = base64.b64encode(certificate).decode()

        self.cluster.edit(CERTIFICATE_REQUESTS, key_of(request), change)

    def publish(self, pem: bytes | None, **more: str) -> None:
        """Play the API server that publishes its client CA."""
        data = {**more, **({"client-ca-file": pem.decode()} if pem is not None else {})}
        meta = {"namespace": "kube-system", "name": "extension-apiserver-authentication"}
        self.cluster.add(CONFIGMAPS, {"metadata": meta, "data": data})


def signed(
    request: JsonObject,
    authority: Authority,
    *,
    begins: datetime.datetime,
    life: datetime.timedelta = datetime.timedelta(days=1),
    by: Issued | None = None,
    names: x509.SubjectAlternativeName | None = None,
) -> bytes:
    """Sign what a CertificateSigningRequest asks for."""
    pem = base64.b64decode(request["spec"]["request"])
    asked = x509.load_pem_x509_csr(pem)
    wanted = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ca = authority.ca
    key = by.key.public_key() if by is not None else asked.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(asked.subject)
        .issuer_name(ca.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + life)
        .add_extension(names or wanted, critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)

"""Questions to the hub about a caller, as objects to create, and how its answers read. Pure.

Both questions are those of a kubelet: a TokenReview without audiences, a SubjectAccessReview about
a subresource of the Node.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from federate.kubelet.ports import Caller, NodeAccess, PeerCertificate
from federate.model.objects import JsonDict, JsonObject, status_of
from federate.model.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""What API servers since 1.32 tell of a client certificate, too."""


def token_review(token: str) -> JsonDict:
    """Ask whose token that is."""
    return {
        "apiVersion": TOKEN_REVIEWS.group_version,
        "kind": TOKEN_REVIEWS.kind,
        "spec": {"token": token},
    }


def caller_of_review(reply: JsonObject) -> Caller | None:
    """Read the answer; None: nobody's."""
    status = status_of(reply)
    user = status.get("user")
    if status.get("authenticated") is not True or not isinstance(user, Mapping):
        return None
    extra = user.get("extra") or {}
    return _known(
        Caller(
            user=str(user.get("username") or ""),
            uid=str(user.get("uid") or ""),
            groups=tuple(str(group) for group in user.get("groups") or ()),
            extra={str(key): tuple(map(str, values or ())) for key, values in extra.items()},
        )
    )


def caller_of_certificate(certificate: PeerCertificate) -> Caller | None:
    """Read a verified certificate as API servers do: the name is the user, organizations groups."""
    identity = certificate.fingerprint
    return _known(
        Caller(
            user=certificate.common_name,
            uid=certificate.uid,
            groups=certificate.organizations,
            extra={CREDENTIAL_ID: (f"X509SHA256={identity}",)} if identity else {},
        )
    )


def _known(caller: Caller) -> Caller | None:
    """Add the group of everybody who is known; None for who says to be nobody."""
    if caller.user in ("", ANONYMOUS) or UNAUTHENTICATED in caller.groups:
        return None
    if AUTHENTICATED in caller.groups:
        return caller
    return Caller(
        user=caller.user,
        uid=caller.uid,
        groups=(*caller.groups, AUTHENTICATED),
        extra=caller.extra,
    )


def access_review(caller: Caller, access: NodeAccess, *, node_name: str) -> JsonDict:
    """Ask whether the caller may do that to the node."""
    who = {
        "user": caller.user,
        "uid": caller.uid,
        "groups": list(caller.groups),
        "extra": {key: list(values) for key, values in caller.extra.items()},
    }
    attributes = {
        "verb": access.verb,
        "version": "v1",
        "resource": "nodes",
        "subresource": access.subresource,
        "name": node_name,
    }
    return {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.group_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {**{k: v for k, v in who.items() if v}, "resourceAttributes": attributes},
    }


def is_allowed(reply: JsonObject) -> bool:
    """Read the answer; whatever is not a plain yes is a no."""
    status = status_of(reply)
    return status.get("allowed") is True and status.get("denied") is not True


def digest_of(review: JsonObject) -> bytes:
    """Return a short key that equal questions share: what a caller sends is kept by no cache."""
    text = json.dumps(review, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

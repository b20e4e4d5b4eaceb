"""As whom a pod in the target speaks to an API server, and how its mirror is dressed for it. Pure.

    none     as nobody: the volume that the hub's admission made is dropped, other tokens refused
    hub      to the hub's, as its own service account: each token that a volume asks for comes from
             a Secret that federate keeps fresh (C31), and the containers are told the hub's address
             and Services
    target   to the target's, as one account that the operator named: the target issues the tokens

With `hub` every file is at its path, beside its neighbours, as a kubelet of the hub would put it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from federate.companions.environment import Advertised, with_environment
from federate.companions.issued import IssuedKey, place_of, services_key, token_key
from federate.companions.rules import IdentityMode
from federate.model.marks import Scope
from federate.model.objects import JsonDict, JsonObject, copied, metadata_of, spec_of, uid_of
from federate.model.pods import admission_token_volumes, is_terminal

STRETCHED_SECONDS = 3607
"""What admission asks for; API servers issue a token of a year then, for old programs."""
USUAL_SECONDS = 3600

ONLY_OWNER = 0o600
READABLE = 0o044


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRules:
    """What of the configuration decides about identity."""

    scope: Scope
    mode: IdentityMode = IdentityMode.NONE
    advertised: Advertised | None = None
    """Where pods in the target reach the hub's API server; mode `hub`."""
    target_account: str = ""
    """Mode `target`."""

    @property
    def brings_tokens(self) -> bool:
        """Whether the volume that the hub's admission made travels."""
        return self.mode is IdentityMode.HUB

    @property
    def travelling_tokens(self) -> bool:
        """Whether the user's own volumes may ask for tokens."""
        return self.mode is not IdentityMode.NONE

    def dress(self, spec: JsonObject, hub_pod: JsonObject) -> JsonDict:
        """Return a copy of a mirror's spec, or of a part, as `with_identity` does."""
        return with_identity(spec, hub_pod, self)


class TokenAsk(NamedTuple):
    """A token as volumes ask for it; those that ask alike are given the same, as by a kubelet."""

    audience: str
    """"" stands for the API server itself."""
    expiration_seconds: int

    @property
    def value_key(self) -> str:
        """Under which key of the pod's Secret it stands."""
        said = f"{self.expiration_seconds}\n{self.audience}"
        return f"token-{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def token_asks(spec: JsonObject) -> tuple[TokenAsk, ...]:
    """List the tokens that a pod's volumes ask for, each once."""
    return tuple(sorted({_ask(source["serviceAccountToken"]) for source in _token_sources(spec)}))


def _ask(wish: JsonObject) -> TokenAsk:
    seconds = int(wish.get("expirationSeconds") or USUAL_SECONDS)
    if seconds == STRETCHED_SECONDS:
        seconds = USUAL_SECONDS
    return TokenAsk(str(wish.get("audience") or ""), seconds)


def _token_sources(spec: JsonObject) -> Iterator[JsonObject]:
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken"):
                yield source


def token_request(ask: TokenAsk, hub_pod: JsonObject) -> JsonDict:
    """Ask for a token that dies with the hub pod."""
    spec: JsonDict = {
        "expirationSeconds": ask.expiration_seconds,
        "boundObjectRef": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata_of(hub_pod).get("name"),
            "uid": uid_of(hub_pod),
        },
    }
    if ask.audience:
        spec["audiences"] = [ask.audience]
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def account_of(hub_pod: JsonObject) -> str:
    """Return the service account a hub pod runs as."""
    return str(spec_of(hub_pod).get("serviceAccountName") or "default")


def has_links(hub_pod: JsonObject) -> bool:
    """Tell whether a pod is told of all Services of its namespace."""
    return bool(spec_of(hub_pod).get("enableServiceLinks", True))


def issues_for(
    rules: IdentityRules, hub_pod: JsonObject, target_namespace: str
) -> tuple[IssuedKey, ...]:
    """Name what a hub pod needs to be issued; nothing once it is over."""
    if not rules.brings_tokens or is_terminal(hub_pod):
        return ()
    namespace: str = metadata_of(hub_pod).get("namespace") or ""
    services = services_key(target_namespace, namespace, has_links=has_links(hub_pod))
    if not token_asks(spec_of(hub_pod)):
        return (services,)
    return (token_key(hub_pod, target_namespace), services)


# -- the mirror ------------------------------------------------------------------------------------


def with_identity(spec: JsonObject, hub_pod: JsonObject, rules: IdentityRules) -> JsonDict:
    """Return a copy of a mirror's spec, or of a part, dressed for the identity that is set.

    Last of all changes: the names it puts in are generated, and may not be renamed again. The
    volumes that admission made are still in the spec with `hub`, and out of it otherwise.
    """
    dressed: JsonDict = copied(spec)
    if rules.mode is IdentityMode.TARGET and "containers" in dressed:
        dressed["serviceAccountName"] = rules.target_account
        dressed["automountServiceAccountToken"] = bool(admission_token_volumes(spec_of(hub_pod)))
    if rules.mode is not IdentityMode.HUB:
        return dressed
    secret = place_of(rules.scope, token_key(hub_pod, "")).name
    for volume in dressed.get("volumes") or ():
        _take_from_secret(volume, dressed, secret)
    namespace: str = metadata_of(hub_pod).get("namespace") or ""
    services = services_key("", namespace, has_links=has_links(hub_pod))
    return with_environment(dressed, place_of(rules.scope, services).name)


def _take_from_secret(volume: JsonDict, spec: JsonObject, secret: str) -> None:
    projected = volume.get("projected") or {}
    for source in projected.get("sources") or ():
        wish = source.pop("serviceAccountToken", None)
        if wish is not None:
            item = {"key": _ask(wish).value_key, "path": wish["path"]}
            mode = token_mode(spec, projected.get("defaultMode", 0o644))
            source["secret"] = {
                "name": secret,
                "items": [item if mode is None else {**item, "mode": mode}],
            }


def token_mode(spec: JsonObject, default_mode: int) -> int | None:
    """Return the mode of a token's file, so that who could read it on the hub can; None: the usual.

    A kubelet gives it to the one user that all containers run as, 0600. A Secret's files are
    root's: for another user they must be readable to all, unless the pod has a group for its files,
    which makes 0640 of 0600 on both sides.
    https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1205-bound-service-account-tokens#file-permission
    """
    user = _one_user(spec)
    if (spec.get("securityContext") or {}).get("fsGroup") is not None or user == 0:
        return ONLY_OWNER
    if user is None:
        return None
    readable = default_mode | READABLE
    return None if readable == default_mode else readable


def _one_user(spec: JsonObject) -> int | None:
    """Return the user that all containers are set to run as; None where there is not the one."""
    of_pod = (spec.get("securityContext") or {}).get("runAsUser")
    users = {
        (container.get("securityContext") or {}).get("runAsUser", of_pod)
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    }
    return users.pop() if len(users) == 1 else None

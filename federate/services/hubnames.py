"""The names of the hub's API server inside a pod, and where they lead. Pure.

With identity `hub` a pod is told in its environment where the hub's API server is. Many programs
dial a name of the Service `kubernetes` instead, which the target's DNS answers with the *target's*
API server: to that they would show the hub's token. /etc/hosts is asked before any DNS, so a mirror
gets these names there (`hostAliases`), for the hub's API server.

A name has no port, and programs dial 443. An address that serves there is put beside the names as
it is; to any other, and to one that has a name itself, leads a Service of the target (`door`).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from federate.companions.environment import API_SERVICE, Advertised
from federate.model.objects import JsonDict, JsonObject, copied

PORT = 443
"""What is dialled where a URL of https names no port."""

USUAL_DOMAIN = "cluster.local"
"""The cluster domain of nearly every cluster; certificates of API servers have names in it."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ISSUER = re.compile(
    rf"https://{API_SERVICE.name}\.{API_SERVICE.namespace}\.svc\."
    rf"(?P<domain>{_LABEL}(\.{_LABEL})*)(:\d+)?/?"
)
_OS_LABEL = "kubernetes.io/os"
_WINDOWS = "windows"


# -- the way ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Straight:
    """The names lead to the address itself."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughDoor:
    """The names lead to a Service of the target, and that to `host`, an address or a name."""

    host: str
    port: int


Way: TypeAlias = Straight | ThroughDoor


def way_to(advertised: Advertised) -> Way | None:
    """Decide how the names lead to an advertised API server.

    None where one of them is what is advertised: then the target's own API server is meant, and its
    DNS leads there.
    """
    if advertised.host.lower().rstrip(".") in api_names(API_SERVICE.namespace, USUAL_DOMAIN):
        return None
    if advertised.port == PORT and is_address(advertised.host):
        return Straight(address=advertised.host)
    return ThroughDoor(host=advertised.host, port=advertised.port)


def is_address(host: str) -> bool:
    """Tell an IP address from a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# -- the mirror ------------------------------------------------------------------------------------


class HubApi(NamedTuple):
    """Where in one target namespace the names of the hub's API server lead."""

    address: str
    """Empty where they are left to the target's DNS."""
    domain: str = USUAL_DOMAIN
    """The hub's cluster domain, as far as it is known."""


UNLED = HubApi("")


def api_names(hub_namespace: str, domain: str) -> tuple[str, ...]:
    """Return the names by which a pod of that hub namespace finds the hub's API server there.

    The usual domain always: programs have it written into them, and nearly every DNS answers it.
    """
    in_any = f"{API_SERVICE.name}.{API_SERVICE.namespace}"
    names = [in_any, f"{in_any}.svc", f"{in_any}.svc.{USUAL_DOMAIN}", f"{in_any}.svc.{domain}"]
    if hub_namespace == API_SERVICE.namespace:
        names.insert(0, API_SERVICE.name)
    return tuple(dict.fromkeys(names))


def domain_by(issuer: str) -> str:
    """Tell a hub's cluster domain by the issuer of its tokens; the usual one where that says none.

    kubeadm and K3s name the issuer as programs in the cluster reach it.
    """
    told = _ISSUER.fullmatch(issuer)
    return told["domain"] if told is not None else USUAL_DOMAIN


def with_hub_names(spec: JsonObject, hub_namespace: str, api: HubApi) -> JsonDict:
    """Return a copy of a mirror's spec whose names of the API server lead to the hub's.

    A name that the user leads somewhere stays his. Kubelets write the file for pods in their node's
    network, too, but not for Windows.
    """
    led: JsonDict = copied(spec)
    if not api.address or _is_windows(spec):
        return led
    aliases: list[JsonDict] = list(led.get("hostAliases") or ())
    taken = {name for alias in aliases for name in alias.get("hostnames") or ()}
    names = [name for name in api_names(hub_namespace, api.domain) if name not in taken]
    if not names:
        return led
    # One entry for an address: API servers take the list for a map by address.
    same = next((alias for alias in aliases if alias.get("ip") == api.address), None)
    if same is None:
        aliases.append({"ip": api.address, "hostnames": names})
    else:
        same["hostnames"] = [*(same.get("hostnames") or ()), *names]
    return {**led, "hostAliases": aliases}


def _is_windows(spec: JsonObject) -> bool:
    told = (spec.get("os") or {}).get("name") or (spec.get("nodeSelector") or {}).get(_OS_LABEL)
    return bool(told == _WINDOWS)

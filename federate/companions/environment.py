"""The environment variables that tell of Services, and their place in the order. Pure.

A kubelet fills in variables of Services last: what `envFrom` and `env` say goes first, and `$(VAR)`
sees all of them. A ConfigMap as the first `envFrom` has the same place, and is read anew with each
start of a container, as Services are.
https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from federate.model.objects import JsonDict, JsonObject, ObjectKey, copied, key_of, spec_of
from federate.model.pods import CONTAINER_FIELDS

API_SERVICE = ObjectKey("default", "kubernetes")
"""The one Service that every container is told of, whatever its namespace and service links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """Where the hub's API server is reached from the target: host (name or address) and port."""

    host: str
    port: int


def service_environment(
    services: Iterable[JsonObject],
    *,
    namespace: str,
    has_links: bool,
    advertised: Advertised,
) -> dict[str, str]:
    """Return the variables that a container in that namespace of the hub is told.

    `has_links` is the pod's enableServiceLinks. Of Services of one variable name the later in
    alphabetical order wins: kubelets have no order there.
    """
    told: dict[str, JsonObject] = {API_SERVICE.name: _advertised_service(advertised)}
    if has_links:
        for service in services:
            key = key_of(service)
            if key.namespace == namespace and key != API_SERVICE and _has_address(service):
                told[key.name] = service
    variables: dict[str, str] = {}
    for name in sorted(told):
        variables.update(_variables(name, told[name]))
    return variables


def _has_address(service: JsonObject) -> bool:
    return spec_of(service).get("clusterIP") not in (None, "", "None")


def _advertised_service(advertised: Advertised) -> JsonDict:
    """Describe the API server's Service as it would be, were its address the advertised one."""
    port = {"name": "https", "port": advertised.port, "protocol": "TCP"}
    return {"spec": {"clusterIP": advertised.host, "ports": [port]}}


def _variables(name: str, service: JsonObject) -> Iterator[tuple[str, str]]:
    prefix = _variable_name(name)
    address: str = spec_of(service)["clusterIP"]
    ports: Sequence[JsonObject] = spec_of(service).get("ports") or ()
    yield f"{prefix}_SERVICE_HOST", address
    for number, port in enumerate(ports):
        if number == 0:
            yield f"{prefix}_SERVICE_PORT", str(port["port"])
        if port.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}", str(port["port"])
    yield from _link_variables(prefix, address, ports)


def _link_variables(
    prefix: str, address: str, ports: Sequence[JsonObject]
) -> Iterator[tuple[str, str]]:
    """Say it once more in the way of Docker links, which old programs read."""
    host = f"[{address}]" if ":" in address else address
    for number, port in enumerate(ports):
        protocol = str(port.get("protocol") or "TCP")
        url = f"{protocol.lower()}://{host}:{port['port']}"
        if number == 0:
            yield f"{prefix}_PORT", url
        of_port = f"{prefix}_PORT_{port['port']}_{protocol.upper()}"
        yield of_port, url
        yield f"{of_port}_PROTO", protocol.lower()
        yield f"{of_port}_PORT", str(port["port"])
        yield f"{of_port}_ADDR", address


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()


def with_environment(spec: JsonObject, configmap: str) -> JsonDict:
    """Return a copy of a spec, or of a part, whose containers are told of the hub's Services.

    The ConfigMap is required: a container that started without it would miss them all its life.
    """
    told: JsonDict = copied(spec)
    for kind in CONTAINER_FIELDS:
        for container in told.get(kind) or ():
            source = {"configMapRef": {"name": configmap}}
            container["envFrom"] = [source, *(container.get("envFrom") or ())]
    return told

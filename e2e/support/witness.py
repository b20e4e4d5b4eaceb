"""Look at a cluster, and act in it as a user would, without any of federate's own code.

The synchronous `kubernetes` package does the talking, so that a fault of federate's client cannot
hide on both sides. Objects are plain dicts: what a server sends is what a test sees.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from kubernetes import client, config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from urllib3.exceptions import HTTPError

Json: TypeAlias = dict[str, Any]

# The package has types in places only, which ones depends on its release.
new_client: Any = config.new_client_from_config
new_dynamic_client: Any = DynamicClient

REQUEST_TIMEOUT_SECONDS = 15.0

WATCH_SILENCE_SECONDS = 1.0
"""After this long without an event a watch is opened anew, which lets its thread look around."""

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

# Kind -> API prefix, plural, and whether it lives in a namespace.
KINDS: Mapping[str, tuple[str, str, bool]] = {
    "ConfigMap": ("/api/v1", "configmaps", True),
    "CronJob": ("/apis/batch/v1", "cronjobs", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices", True),
    "Event": ("/api/v1", "events", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "LimitRange": ("/api/v1", "limitranges", True),
    "Namespace": ("/api/v1", "namespaces", False),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies", True),
    "Node": ("/api/v1", "nodes", False),
    "PersistentVolume": ("/api/v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "Pod": ("/api/v1", "pods", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "ReplicaSet": ("/apis/apps/v1", "replicasets", True),
    "ResourceQuota": ("/api/v1", "resourcequotas", True),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "RuntimeClass": ("/apis/node.k8s.io/v1", "runtimeclasses", False),
    "Secret": ("/api/v1", "secrets", True),
    "Service": ("/api/v1", "services", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses", False),
    "ValidatingAdmissionPolicy": (_ADMISSION, "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (_ADMISSION, "validatingadmissionpolicybindings", False),
    "ValidatingWebhookConfiguration": (_ADMISSION, "validatingwebhookconfigurations", False),
}


def path_of(kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of an object, or of a kind's collection; "" is every namespace."""
    prefix, plural, namespaced = KINDS[kind]
    parts = [prefix]
    if namespaced and namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part]
    return "/".join(parts)


class Expired(Exception):
    """A watch could not go on where it ended: events may have been missed."""


class NoDiscovery:
    """Stand in for the dynamic client's discovery: paths are written out here."""

    def __init__(self, client: object, cache_file: object) -> None:
        pass


class Witness:
    """One cluster, seen with an administrator's eyes."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        configuration = client.Configuration()
        # What is sent is sent once, and a failure is the test's to see.
        configuration.retries = False
        self._api = new_client(config_file=str(kubeconfig), client_configuration=configuration)
        self._client = new_dynamic_client(self._api, discoverer=NoDiscovery)

    def close(self) -> None:
        """Let the connections go."""
        self._api.rest_client.pool_manager.clear()
        self._api.close()

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Read an object from the quorum; None when it is not there."""
        try:
            return self._request("GET", path_of(kind, namespace, name))
        except NotFoundError:
            return None

    def list(
        self, kind: str, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[Json]:
        """Read all objects, or those that the selectors let through."""
        items: list[Json] = self.listing(kind, namespace, labels=labels, fields=fields)["items"]
        return items

    def listing(
        self, kind: str, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Json:
        """Read a list together with its resource version."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        return self._request("GET", path_of(kind, namespace), query=query)

    def create(self, body: Json, namespace: str = "") -> Json:
        """Create an object of a known kind."""
        return self._request("POST", path_of(body["kind"], namespace), body=body)

    def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: Json,
        *,
        subresource: str = "",
        media_type: str = MERGE_PATCH,
    ) -> Json:
        """Patch an object; keyed lists are merged only with `STRATEGIC_PATCH`."""
        path = path_of(kind, namespace, name, subresource)
        return self._request("PATCH", path, body=body, media_type=media_type)

    def delete(
        self, kind: str, namespace: str, name: str, *, grace_seconds: int | None = None
    ) -> bool:
        """Delete an object as kubectl does; False when it was not there."""
        options: Json = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._request("DELETE", path_of(kind, namespace, name), body=options)
        except NotFoundError:
            return False
        return True

    def delete_all(self, kind: str, namespace: str, *, labels: str = "") -> None:
        """Delete a whole collection with one request."""
        options: Json = {"propagationPolicy": "Background"}
        query = {"labelSelector": labels}
        self._request("DELETE", path_of(kind, namespace), query=query, body=options)

    def evict(self, namespace: str, name: str) -> None:
        """Ask for an eviction, as `kubectl drain` does."""
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        self._request("POST", path_of("Pod", namespace, name, "eviction"), body=body)

    def call_pod(
        self, namespace: str, name: str, path: str, *, port: int, method: str = "GET"
    ) -> str:
        """Send an HTTP request to a pod's port, through the API server; returns the answer's body.

        `path` may have a query.
        """
        path, _, query = path.partition("?")
        response = self._client.request(
            method,
            f"{path_of('Pod', namespace, f'{name}:{port}', 'proxy')}{path}",
            query_params=parse_qsl(query),
            serialize=False,
            _request_timeout=REQUEST_TIMEOUT_SECONDS,
        )
        body: bytes = response.data
        return body.decode()

    def create_if_absent(self, body: Json, namespace: str = "") -> None:
        """Create an object unless one of the name is there."""
        with suppress(ConflictError):
            self.create(body, namespace)

    def watch(self, kind: str, *, resource_version: str) -> Iterator[Json]:
        """Yield watch events after a version; ends when nothing has happened for a while.

        Raises:
            Expired: the version is too old to go on from.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
        }
        response = self._client.request(
            "GET",
            path_of(kind),
            query_params=list(query.items()),
            serialize=False,
            _request_timeout=(REQUEST_TIMEOUT_SECONDS, WATCH_SILENCE_SECONDS),
        )
        rest = b""
        try:
            for chunk in response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event: Json = json.loads(line)
                    if event["type"] == "ERROR":
                        raise Expired(f"{self.name} ended the watch: {event['object']}")
                    yield event
        except HTTPError:
            # Silence or a broken connection: the caller goes on from the last event.
            return
        finally:
            # A half-read answer may not return to the pool.
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        media_type: str = "application/json",
    ) -> Json:
        response = self._client.request(
            method,
            path,
            body=body,
            query_params=[(key, value) for key, value in (query or {}).items() if value],
            content_type=media_type,
            serialize=False,
            _request_timeout=REQUEST_TIMEOUT_SECONDS,
        )
        answer: Json = json.loads(response.data)
        return answer

"""The Kubernetes resources federate reads or writes: where each lives in the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource of the API: `group_version` is `v1` or `group/version`."""

    group_version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def group(self) -> str:
        """The API group; "" is the core one."""
        return self.group_version.rpartition("/")[0]

    @property
    def root(self) -> str:
        """The path in front of `namespaces/` or the plural, without a trailing slash."""
        core = "/" not in self.group_version
        return f"/api/{self.group_version}" if core else f"/apis/{self.group_version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (no name), an object, or its subresource.

        Raises:
            ValueError: what ought to be a name would lead elsewhere; see `objects.is_object_name`.
        """
        if "/" in namespace or "/" in name:
            raise ValueError(f"no {self.kind} can be called {namespace}/{name}")
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


PODS = Resource(group_version="v1", plural="pods", kind="Pod", namespaced=True)
NODES = Resource(group_version="v1", plural="nodes", kind="Node", namespaced=False)
NAMESPACES = Resource(group_version="v1", plural="namespaces", kind="Namespace", namespaced=False)
CONFIGMAPS = Resource(group_version="v1", plural="configmaps", kind="ConfigMap", namespaced=True)
SECRETS = Resource(group_version="v1", plural="secrets", kind="Secret", namespaced=True)
SERVICEACCOUNTS = Resource(
    group_version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True
)
SERVICES = Resource(group_version="v1", plural="services", kind="Service", namespaced=True)
ENDPOINT_SLICES = Resource(
    group_version="discovery.k8s.io/v1",
    plural="endpointslices",
    kind="EndpointSlice",
    namespaced=True,
)
CLAIMS = Resource(
    group_version="v1",
    plural="persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    namespaced=True,
)
VOLUMES = Resource(
    group_version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False
)
STORAGE_CLASSES = Resource(
    group_version="storage.k8s.io/v1",
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
)
NETWORK_POLICIES = Resource(
    group_version="networking.k8s.io/v1",
    plural="networkpolicies",
    kind="NetworkPolicy",
    namespaced=True,
)
RESOURCEQUOTAS = Resource(
    group_version="v1", plural="resourcequotas", kind="ResourceQuota", namespaced=True
)
EVENTS = Resource(group_version="events.k8s.io/v1", plural="events", kind="Event", namespaced=True)
CORE_EVENTS = Resource(group_version="v1", plural="events", kind="Event", namespaced=True)
"""The same objects in their older form: with a count, and times that may lie in the past."""
LEASES = Resource(
    group_version="coordination.k8s.io/v1", plural="leases", kind="Lease", namespaced=True
)

TOKEN_REVIEWS = Resource(
    group_version="authentication.k8s.io/v1",
    plural="tokenreviews",
    kind="TokenReview",
    namespaced=False,
)
SUBJECT_ACCESS_REVIEWS = Resource(
    group_version="authorization.k8s.io/v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    namespaced=False,
)
CERTIFICATE_REQUESTS = Resource(
    group_version="certificates.k8s.io/v1",
    plural="certificatesigningrequests",
    kind="CertificateSigningRequest",
    namespaced=False,
)
POD_METRICS = Resource(
    group_version="metrics.k8s.io/v1beta1", plural="pods", kind="PodMetrics", namespaced=True
)
"""What containers use, as far as a cluster has somebody who measures."""
DAEMONSETS = Resource(
    group_version="apps/v1", plural="daemonsets", kind="DaemonSet", namespaced=True
)
BUDGETS = Resource(
    group_version="policy/v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    namespaced=True,
)
SERVICE_RANGES = Resource(
    group_version="networking.k8s.io/v1",
    plural="servicecidrs",
    kind="ServiceCIDR",
    namespaced=False,
)

"""Every request federate makes of an API server, as rights: the one table. Pure.

`federate rbac` prints manifests of it, `federate check` asks for each line of it, docs/reference/
rights.md is made of it. A request that is not in the table fails a test: of the source, and of what
real runs asked for.

What every authenticated user may do in any cluster (discovery, `/version`, questions about one's
own rights) is not in it: the ClusterRoles `system:discovery` and `system:basic-user` grant that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from federate.model.leases import NODE_LEASE_NAMESPACE
from federate.model.naming import NamespaceRules, confined_to, leader_lease_name
from federate.model.resources import (
    CERTIFICATE_REQUESTS,
    CONFIGMAPS,
    CORE_EVENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICEACCOUNTS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
)
from federate.node.capacity import CapacityMode, CapacityRules

SYSTEM_NAMESPACE = "kube-system"


class Side(StrEnum):
    """Which of the two clusters."""

    HUB = "hub"
    TARGET = "target"


class Feature(StrEnum):
    """A part of federate that everything else does without."""

    EVENTS = "events"
    GIVE_BACK = "give-back"
    COMPANIONS = "companions"
    POD_IDENTITY = "pod-identity"
    IDENTITY = "identity"
    KUBELET = "kubelet"
    APPROVE = "approve"
    NODE_PROXY = "node-proxy"
    CHECK = "check"
    LEAVE = "leave"


FEATURES: dict[Feature, str] = {
    Feature.EVENTS: "what the target says about mirrors is told as Events of the hub pods",
    Feature.GIVE_BACK: "target namespaces that federate made are removed when nothing is left",
    Feature.COMPANIONS: "the ConfigMaps and Secrets that pods name come along; without, set "
    "`companions: false` in the configuration",
    Feature.POD_IDENTITY: "pods speak to the hub's API server as their own service accounts "
    "(`identity: hub` in the configuration)",
    Feature.IDENTITY: "a confined target is known by the uid of its kube-system namespace",
    Feature.KUBELET: "`kubectl logs`, `exec`, `attach`, `port-forward`, `cp` and `top` on the hub",
    Feature.APPROVE: "federate approves the requests for its own serving certificates",
    Feature.NODE_PROXY: "`kubectl top` where the target has no metrics-server: its kubelets are "
    "asked through its API server",
    Feature.CHECK: "`federate check` looks beyond what `federate run` needs",
    Feature.LEAVE: "`federate leave` is run with these credentials",
}


class Place(StrEnum):
    """Where a right is needed."""

    CLUSTER = "cluster-wide"
    MIRRORS = "where mirrors are"
    """Cluster-wide, or in each target namespace that was given."""
    SYSTEM = "kube-system"
    LEADER_LEASES = "the namespace of leader leases"
    NODE_LEASES = NODE_LEASE_NAMESPACE
    QUOTA = "the namespace of the quota"


class Names(StrEnum):
    """To which objects a right can be limited."""

    ANY = ""
    VIRTUAL_NODES = "the virtual nodes"
    LEADER_LEASES = "the virtual nodes' leader leases"
    SYSTEM_NAMESPACE = SYSTEM_NAMESPACE
    DEFAULT = "default"
    OWN_NAMESPACE = "the namespace itself"
    QUOTA = "the quota"
    KUBEADM = "kubeadm-config"
    CLIENT_CA = "extension-apiserver-authentication"
    SIGNER = "kubernetes.io/kubelet-serving"


class Needed(StrEnum):
    """In which circumstances a right is needed."""

    ALWAYS = "always"
    UNCONFINED = "unless confined to given namespaces"
    CONFINED = "when confined to given namespaces"
    AGGREGATE = "capacity aggregate"
    QUOTA = "capacity quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a right, for any cluster."""

    side: Side
    group: str
    resource: str
    """Plural, with the subresource behind a slash."""
    verbs: tuple[str, ...]
    place: Place
    names: Names = Names.ANY
    needed: Needed = Needed.ALWAYS
    feature: Feature | None = None
    """None: nothing works without it, or not what `without` says."""
    is_required: bool = True
    why: str
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One right in one cluster. `namespace` "" is cluster-wide, `names` () is every object."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""
    names: tuple[str, ...] = ()
    is_required: bool
    why: str
    without: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        which = f" {', '.join(self.names)}" if self.names else ""
        group = f".{self.group}" if self.group else ""
        return f"{', '.join(self.verbs)} {self.resource}{group}{which}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the rights of one side depend on."""

    side: Side
    node_names: tuple[str, ...] = ()
    """The virtual nodes; () where they are not known: rights are not limited to names then."""
    confined_to: tuple[str, ...] = ()
    """The target namespaces that were given; () is cluster-wide."""
    capacity: CapacityMode = CapacityMode.AGGREGATE
    quota_namespace: str = ""
    quota_name: str = ""
    leader_lease_namespace: str = SYSTEM_NAMESPACE
    features: frozenset[Feature] = field(default_factory=frozenset)

    @property
    def is_confined(self) -> bool:
        """Tell whether only given namespaces may be used."""
        return bool(self.confined_to)


def usual_features(*, is_confined: bool) -> frozenset[Feature]:
    """Return the features that `federate run` uses by itself.

    A confined target is not asked for more than its own namespaces.
    """
    usual = {Feature.EVENTS, Feature.GIVE_BACK, Feature.KUBELET, Feature.COMPANIONS}
    return frozenset(usual - {Feature.GIVE_BACK} if is_confined else usual)


def circumstances_of(
    side: Side,
    *,
    node_names: Iterable[str],
    namespaces: NamespaceRules,
    capacity: CapacityRules,
    leader_lease_namespace: str = SYSTEM_NAMESPACE,
    features: frozenset[Feature] | None = None,
) -> Circumstances:
    """Return what a target's settings mean for the rights of one side."""
    given = confined_to(namespaces) or () if side is Side.TARGET else ()
    quota = capacity.quota
    return Circumstances(
        side=side,
        node_names=tuple(node_names),
        confined_to=given,
        capacity=capacity.mode,
        quota_namespace=quota.namespace if quota else "",
        quota_name=quota.name if quota else "",
        leader_lease_namespace=leader_lease_namespace,
        features=usual_features(is_confined=bool(given)) if features is None else features,
    )


HUB_ROWS = (
    Row(
        side=Side.HUB,
        group="",
        resource=NAMESPACES.plural,
        verbs=("get",),
        place=Place.CLUSTER,
        names=Names.SYSTEM_NAMESPACE,
        why="its uid tells this hub from others, and is asked again before absence is believed",
        without="federate does not start",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=NODES.plural,
        verbs=("create",),
        place=Place.CLUSTER,
        why="registers the virtual nodes, again after somebody deleted one; creates cannot be "
        "limited to names",
        without="there is no virtual node",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=NODES.plural,
        verbs=("get", "list", "watch", "patch"),
        place=Place.CLUSTER,
        names=Names.VIRTUAL_NODES,
        why="keeps labels, taint and records of the virtual nodes, and sees cordons and operators' "
        "words",
        without="there is no virtual node",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=f"{NODES.plural}/status",
        verbs=("patch",),
        place=Place.CLUSTER,
        names=Names.VIRTUAL_NODES,
        why="capacity and conditions of the virtual nodes",
        without="the virtual nodes are never Ready",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("create",),
        place=Place.NODE_LEASES,
        why="the heartbeat of a new virtual node; creates cannot be limited to names",
        without="the hub takes the virtual nodes for dead",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("get", "update"),
        place=Place.NODE_LEASES,
        names=Names.VIRTUAL_NODES,
        why="the heartbeat of the virtual nodes",
        without="the hub takes the virtual nodes for dead",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("create",),
        place=Place.LEADER_LEASES,
        why="the first election of a leader; creates cannot be limited to names",
        without="no process leads, so nothing is mirrored",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("get", "update"),
        place=Place.LEADER_LEASES,
        names=Names.LEADER_LEASES,
        why="who of several federate processes leads",
        without="no process leads, so nothing is mirrored",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=PODS.plural,
        verbs=("get", "list", "watch"),
        place=Place.CLUSTER,
        why="the pods bound to the virtual nodes; a field selector cannot be granted",
        without="no pod is mirrored",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=PODS.plural,
        verbs=("delete",),
        place=Place.CLUSTER,
        why="lets a deleted pod go once its mirror is gone, as a kubelet does, and deletes one "
        "whose mirror was evicted in the target",
        without="deleted pods stay Terminating",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=f"{PODS.plural}/status",
        verbs=("patch",),
        place=Place.CLUSTER,
        why="status of the pods, and the record where their mirrors are",
        without="no pod is mirrored: its record comes before its mirror",
    ),
    Row(
        side=Side.HUB,
        group=EVENTS.group_version.partition("/")[0],
        resource=EVENTS.plural,
        verbs=("create", "patch"),
        place=Place.CLUSTER,
        is_required=False,
        why="tells about pods: why one waits, what the target refused",
        without="there are no Events of federate; status and conditions still tell",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=CORE_EVENTS.plural,
        verbs=("create", "patch"),
        place=Place.CLUSTER,
        feature=Feature.EVENTS,
        is_required=False,
        why="tells the target's Events about mirrors as Events about the hub pods",
        without="the target's Events do not appear on the hub",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=NAMESPACES.plural,
        verbs=("get",),
        place=Place.CLUSTER,
        feature=Feature.GIVE_BACK,
        is_required=False,
        why="whether a hub namespace is gone, before its target namespace is given back",
        without="target namespaces that federate made stay when their hub namespace is gone",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=SECRETS.plural,
        verbs=("get",),
        place=Place.CLUSTER,
        feature=Feature.COMPANIONS,
        is_required=False,
        why="reads by name the Secrets that pods of the virtual nodes name, and no others; a Role "
        "in some namespaces does for pods there",
        without="pods that name one wait: CompanionUnreadable",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("get",),
        place=Place.CLUSTER,
        feature=Feature.COMPANIONS,
        is_required=False,
        why="reads by name the ConfigMaps that pods of the virtual nodes name, and no others",
        without="pods that name one wait: CompanionUnreadable",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=SECRETS.plural,
        verbs=("watch",),
        place=Place.CLUSTER,
        feature=Feature.COMPANIONS,
        is_required=False,
        why="sees within seconds that one of those Secrets changed; only metadata is asked for, "
        "but whoever has this right may read every Secret with it",
        without="each is asked for by name instead, and a change comes within a minute or two",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("watch",),
        place=Place.CLUSTER,
        feature=Feature.COMPANIONS,
        is_required=False,
        why="sees within seconds that one of those ConfigMaps changed; only metadata is asked for",
        without="each is asked for by name instead, and a change comes within a minute or two",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=f"{SERVICEACCOUNTS.plural}/token",
        verbs=("create",),
        place=Place.CLUSTER,
        feature=Feature.POD_IDENTITY,
        is_required=False,
        why="tokens of the pods' service accounts, each bound to its pod. A strong right: whoever "
        "has it may become any service account of the hub",
        without="pods that ask for one wait: TokenRefused",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource="services",
        verbs=("list", "watch"),
        place=Place.CLUSTER,
        feature=Feature.POD_IDENTITY,
        is_required=False,
        why="the environment variables that tell pods of the Services in their namespace",
        without="pods wait for them: no identity hub without it",
    ),
    Row(
        side=Side.HUB,
        group=TOKEN_REVIEWS.group_version.partition("/")[0],
        resource=TOKEN_REVIEWS.plural,
        verbs=("create",),
        place=Place.CLUSTER,
        feature=Feature.KUBELET,
        is_required=False,
        why="whose token it is that somebody comes to the kubelet API with: metrics-server, say",
        without="the kubelet API answers nobody who comes with a token, so `kubectl top` and HPAs "
        "fail",
    ),
    Row(
        side=Side.HUB,
        group=SUBJECT_ACCESS_REVIEWS.group_version.partition("/")[0],
        resource=SUBJECT_ACCESS_REVIEWS.plural,
        verbs=("create",),
        place=Place.CLUSTER,
        feature=Feature.KUBELET,
        is_required=False,
        why="whether who comes to the kubelet API may do so; the hub's authorizers decide",
        without="the kubelet API answers nobody: `kubectl logs` and `exec` fail",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("get", "list", "watch"),
        place=Place.SYSTEM,
        names=Names.CLIENT_CA,
        feature=Feature.KUBELET,
        is_required=False,
        why="which client certificates the kubelet API believes: the hub's client CA stands there",
        without="`kubectl logs` and `exec` fail, unless a file with that CA is configured",
    ),
    Row(
        side=Side.HUB,
        group=CERTIFICATE_REQUESTS.group_version.partition("/")[0],
        resource=CERTIFICATE_REQUESTS.plural,
        verbs=("get", "create"),
        place=Place.CLUSTER,
        feature=Feature.KUBELET,
        is_required=False,
        why="asks the hub for the kubelet API's serving certificate; somebody else approves it",
        without="it serves with a self-signed certificate, which API servers take unless told to "
        "verify kubelets",
    ),
    Row(
        side=Side.HUB,
        group=CERTIFICATE_REQUESTS.group_version.partition("/")[0],
        resource=f"{CERTIFICATE_REQUESTS.plural}/approval",
        verbs=("update",),
        place=Place.CLUSTER,
        feature=Feature.APPROVE,
        is_required=False,
        why="approves its own requests; requests cannot be told apart by a right, so whoever has "
        "these credentials may approve those of every kubelet",
        without="somebody approves them: kubectl certificate approve NAME",
    ),
    Row(
        side=Side.HUB,
        group=CERTIFICATE_REQUESTS.group_version.partition("/")[0],
        resource="signers",
        verbs=("approve",),
        place=Place.CLUSTER,
        names=Names.SIGNER,
        feature=Feature.APPROVE,
        is_required=False,
        why="approves requests to that one signer, and to no other",
        without="somebody approves them: kubectl certificate approve NAME",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=f"{NODES.plural}/proxy",
        verbs=("get",),
        place=Place.CLUSTER,
        names=Names.VIRTUAL_NODES,
        feature=Feature.CHECK,
        is_required=False,
        why="whether the hub's API server reaches the kubelet API of the virtual nodes. It lets "
        "read logs there and run commands, too",
        without="`federate check` cannot tell why `kubectl logs` fails",
    ),
    Row(
        side=Side.HUB,
        group="apps",
        resource="daemonsets",
        verbs=("list",),
        place=Place.CLUSTER,
        feature=Feature.CHECK,
        is_required=False,
        why="finds DaemonSets that would put a pod on the virtual nodes",
        without="`federate check` cannot tell of them",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=NODES.plural,
        verbs=("list",),
        place=Place.CLUSTER,
        feature=Feature.CHECK,
        is_required=False,
        why="addresses and pod ranges of the nodes, to compare with the target's",
        without="`federate check` does not know this side's pod and node ranges",
    ),
    Row(
        side=Side.HUB,
        group="networking.k8s.io",
        resource="servicecidrs",
        verbs=("list",),
        place=Place.CLUSTER,
        feature=Feature.CHECK,
        is_required=False,
        why="service ranges, to compare with the target's (1.33 and later)",
        without="`federate check` does not know this side's service range",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("get",),
        place=Place.SYSTEM,
        names=Names.KUBEADM,
        feature=Feature.CHECK,
        is_required=False,
        why="pod and service ranges, to compare with the target's (clusters made by kubeadm)",
        without="`federate check` knows this side's ranges only if the API tells them",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=f"{PODS.plural}/eviction",
        verbs=("create",),
        place=Place.CLUSTER,
        feature=Feature.LEAVE,
        is_required=False,
        why="drains a virtual node as kubectl drain does, heeding PodDisruptionBudgets",
        without="`federate leave` cannot drain",
    ),
    Row(
        side=Side.HUB,
        group="",
        resource=NODES.plural,
        verbs=("delete",),
        place=Place.CLUSTER,
        names=Names.VIRTUAL_NODES,
        feature=Feature.LEAVE,
        is_required=False,
        why="removes the Node last",
        without="`federate leave` leaves the Node behind",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("delete",),
        place=Place.NODE_LEASES,
        names=Names.VIRTUAL_NODES,
        feature=Feature.LEAVE,
        is_required=False,
        why="removes the heartbeat's lease",
        without="the hub's garbage collector removes it after its Node",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("patch", "delete"),
        place=Place.LEADER_LEASES,
        names=Names.LEADER_LEASES,
        feature=Feature.LEAVE,
        is_required=False,
        why="tells running federates that the virtual node is left, and removes the lease",
        without="`federate leave` cannot take over",
    ),
    Row(
        side=Side.HUB,
        group=LEASES.group_version.partition("/")[0],
        resource=LEASES.plural,
        verbs=("list",),
        place=Place.LEADER_LEASES,
        feature=Feature.LEAVE,
        is_required=False,
        why="`federate status` shows leader leases that a killed `federate leave` left behind",
        without="it shows those of virtual nodes that are there",
    ),
)

TARGET_ROWS = (
    Row(
        side=Side.TARGET,
        group="",
        resource=PODS.plural,
        verbs=("get", "list", "watch", "create", "patch", "delete"),
        place=Place.MIRRORS,
        why="the mirrors; the others are read too, because they take of the capacity, and because "
        "a label selector cannot be granted",
        without="nothing runs in the target",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{PODS.plural}/ephemeralcontainers",
        verbs=("patch",),
        place=Place.MIRRORS,
        is_required=False,
        why="debug containers of running pods",
        without="`kubectl debug` says UpdateRejected",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{PODS.plural}/resize",
        verbs=("patch",),
        place=Place.MIRRORS,
        is_required=False,
        why="resources of running pods",
        without="a resize in place says UpdateRejected",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("get", "list", "watch", "create"),
        place=Place.MIRRORS,
        why="one anchor in each namespace, which owns the mirrors there",
        without="nothing runs in the target: mirrors need their anchor",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=SERVICEACCOUNTS.plural,
        verbs=("get",),
        place=Place.MIRRORS,
        names=Names.DEFAULT,
        why="pods are refused in a new namespace until it has this account; confined, its uid "
        "tells this target from others",
        without="nothing runs in the target: its namespaces never count as ready",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NAMESPACES.plural,
        verbs=("get", "create", "patch"),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        why="makes target namespaces on demand and notes their use; the uid of kube-system tells "
        "this target from others",
        without="nothing runs in the target: its namespaces cannot be made",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NAMESPACES.plural,
        verbs=("get",),
        place=Place.SYSTEM,
        names=Names.SYSTEM_NAMESPACE,
        needed=Needed.CONFINED,
        feature=Feature.IDENTITY,
        is_required=False,
        why="its uid tells this target from others",
        without="the uid of a default service account in a given namespace does",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NODES.plural,
        verbs=("list", "watch"),
        place=Place.CLUSTER,
        needed=Needed.AGGREGATE,
        why="the capacity of the virtual node is what the target's nodes have left",
        without="no virtual node of capacity aggregate; static and quota do without",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=RESOURCEQUOTAS.plural,
        verbs=("list", "watch"),
        place=Place.QUOTA,
        names=Names.QUOTA,
        needed=Needed.QUOTA,
        why="the capacity of the virtual node is what the quota leaves",
        without="no virtual node of capacity quota",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=CORE_EVENTS.plural,
        verbs=("watch",),
        place=Place.MIRRORS,
        feature=Feature.EVENTS,
        is_required=False,
        why="what kubelets and the scheduler say about mirrors",
        without="the target's Events do not appear on the hub",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=SECRETS.plural,
        verbs=("get", "create", "patch", "delete"),
        place=Place.MIRRORS,
        feature=Feature.COMPANIONS,
        is_required=False,
        why="what stands for the hub's Secrets, by names of federate's own; they are never listed",
        without="pods that name a Secret wait: CompanionRefused",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("patch", "delete"),
        place=Place.MIRRORS,
        feature=Feature.COMPANIONS,
        is_required=False,
        why="what stands for the hub's ConfigMaps, and in the anchors the list of Secrets",
        without="pods that name a Secret wait, and ConfigMaps stay as they first were",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NAMESPACES.plural,
        verbs=("list", "delete"),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        feature=Feature.GIVE_BACK,
        is_required=False,
        why="removes target namespaces that federate made and that are empty",
        without="they stay, to be removed by hand",
    ),
    Row(
        side=Side.TARGET,
        group="*",
        resource="*",
        verbs=("list",),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        feature=Feature.GIVE_BACK,
        is_required=False,
        why="whether such a namespace is empty: any kind of object may be in it. This reads "
        "everything, Secrets too; leave it out with --without give-back",
        without="they stay, to be removed by hand",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{PODS.plural}/log",
        verbs=("get",),
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        is_required=False,
        why="`kubectl logs` of pods that run there",
        without="it says Forbidden",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{PODS.plural}/exec",
        verbs=("get", "create"),
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        is_required=False,
        why="`kubectl exec` and `cp`; get for WebSocket, create for SPDY. Whoever has it may run "
        "commands in every pod there",
        without="they say Forbidden",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{PODS.plural}/attach",
        verbs=("get", "create"),
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        is_required=False,
        why="`kubectl attach`, `run -i` and `debug -i`",
        without="they say Forbidden",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{PODS.plural}/portforward",
        verbs=("get", "create"),
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        is_required=False,
        why="`kubectl port-forward`",
        without="it says Forbidden",
    ),
    Row(
        side=Side.TARGET,
        group="metrics.k8s.io",
        resource=PODS.plural,
        verbs=("list",),
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        is_required=False,
        why="what pods use, as the target's metrics-server knows it",
        without="`kubectl top` and HPAs on the hub know nothing of pods there, unless its kubelets "
        "may be asked (feature node-proxy)",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=f"{NODES.plural}/proxy",
        verbs=("get",),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        feature=Feature.NODE_PROXY,
        is_required=False,
        why="what pods use, as the target's kubelets know it, where there is no metrics-server. A "
        "strong right: it lets read every log and run commands in every pod of the target",
        without="metrics.k8s.io alone tells what pods use",
    ),
    Row(
        side=Side.TARGET,
        group="policy",
        resource="poddisruptionbudgets",
        verbs=("list",),
        place=Place.MIRRORS,
        feature=Feature.CHECK,
        is_required=False,
        why="finds budgets that select mirrors",
        without="`federate check` cannot tell of them",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource="services",
        verbs=("list",),
        place=Place.MIRRORS,
        feature=Feature.CHECK,
        is_required=False,
        why="finds Services that select mirrors",
        without="`federate check` cannot tell of them",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NAMESPACES.plural,
        verbs=("get",),
        place=Place.MIRRORS,
        names=Names.OWN_NAMESPACE,
        needed=Needed.CONFINED,
        feature=Feature.CHECK,
        is_required=False,
        why="whether the namespace is there, or being deleted, and its PodSecurity level",
        without="`federate check` cannot tell",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NAMESPACES.plural,
        verbs=("list",),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        is_required=False,
        why="PodSecurity levels of target namespaces",
        without="`federate check` cannot tell of them",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=NODES.plural,
        verbs=("list",),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        is_required=False,
        why="addresses and pod ranges of the nodes, to compare with the hub's",
        without="`federate check` does not know this side's pod and node ranges",
    ),
    Row(
        side=Side.TARGET,
        group="networking.k8s.io",
        resource="servicecidrs",
        verbs=("list",),
        place=Place.CLUSTER,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        is_required=False,
        why="service ranges, to compare with the hub's (1.33 and later)",
        without="`federate check` does not know this side's service range",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("get",),
        place=Place.SYSTEM,
        names=Names.KUBEADM,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        is_required=False,
        why="pod and service ranges, to compare with the hub's (clusters made by kubeadm)",
        without="`federate check` knows this side's ranges only if the API tells them",
    ),
    Row(
        side=Side.TARGET,
        group="",
        resource=CONFIGMAPS.plural,
        verbs=("delete",),
        place=Place.MIRRORS,
        feature=Feature.LEAVE,
        is_required=False,
        why="removes the anchors, and with them whatever they still own",
        without="`federate leave` leaves anchors behind",
    ),
)

TABLE = (*HUB_ROWS, *TARGET_ROWS)


def rights(around: Circumstances) -> tuple[Right, ...]:
    """Return the rights that are needed in these circumstances, the required ones first."""
    found = [
        right
        for row in TABLE
        if row.side is around.side and _is_needed(row, around)
        for right in _resolve(row, around)
    ]
    return tuple(sorted(found, key=lambda right: not right.is_required))


def _is_needed(row: Row, around: Circumstances) -> bool:
    if row.feature is not None and row.feature not in around.features:
        return False
    match row.needed:
        case Needed.ALWAYS:
            return True
        case Needed.CONFINED:
            return around.is_confined
        case Needed.UNCONFINED:
            return not around.is_confined
        case Needed.AGGREGATE:
            return around.capacity is CapacityMode.AGGREGATE
        case Needed.QUOTA:
            return around.capacity is CapacityMode.QUOTA


def _resolve(row: Row, around: Circumstances) -> Iterator[Right]:
    plain = Right(
        group=row.group,
        resource=row.resource,
        verbs=row.verbs,
        is_required=row.is_required,
        why=row.why,
        without=row.without,
    )
    for namespace in _namespaces(row.place, around):
        yield replace(plain, namespace=namespace, names=_names(row.names, namespace, around))


def _namespaces(place: Place, around: Circumstances) -> tuple[str, ...]:
    match place:
        case Place.CLUSTER:
            return ("",)
        case Place.MIRRORS:
            return around.confined_to or ("",)
        case Place.SYSTEM:
            return (SYSTEM_NAMESPACE,)
        case Place.LEADER_LEASES:
            return (around.leader_lease_namespace,)
        case Place.NODE_LEASES:
            return (NODE_LEASE_NAMESPACE,)
        case Place.QUOTA:
            return (around.quota_namespace,) if around.quota_namespace else ("",)


def _names(names: Names, namespace: str, around: Circumstances) -> tuple[str, ...]:
    match names:
        case Names.ANY:
            return ()
        case Names.VIRTUAL_NODES:
            return around.node_names
        case Names.LEADER_LEASES:
            return tuple(leader_lease_name(name) for name in around.node_names)
        case Names.OWN_NAMESPACE:
            return (namespace,)
        case Names.QUOTA:
            return (around.quota_name,) if around.quota_name else ()
        case (
            Names.SYSTEM_NAMESPACE | Names.DEFAULT | Names.KUBEADM | Names.CLIENT_CA | Names.SIGNER
        ):
            return (str(names),)


def covers(right: Right, *, resource: str, verb: str) -> bool:
    """Tell whether a right lets a verb be done to a resource, in some namespace."""
    return right.resource in (resource, "*") and verb in right.verbs

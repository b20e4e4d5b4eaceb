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
from functools import partial

from federate.model.leases import NODE_LEASE_NAMESPACE
from federate.model.naming import NamespaceRules, confined_to, leader_lease_name
from federate.model.resources import (
    BUDGETS,
    CERTIFICATE_REQUESTS,
    CLAIMS,
    CONFIGMAPS,
    CORE_EVENTS,
    DAEMONSETS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    POD_METRICS,
    PODS,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICE_RANGES,
    SERVICEACCOUNTS,
    SERVICES,
    STORAGE_CLASSES,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    VOLUMES,
    Resource,
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
    CLAIMS = "claims"
    ADDRESSES = "addresses"
    SERVICES = "services"
    NETWORK_POLICIES = "network-policies"
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
    Feature.CLAIMS: "the claims of pods have storage in the target (`volumes.claims: target` in "
    "the configuration)",
    Feature.ADDRESSES: "hub pods show the addresses of their mirrors where that is safe "
    "(`addresses: auto`), and Services are told where it is not",
    Feature.SERVICES: "Services of the hub follow into the target (`services` in the "
    "configuration)",
    Feature.NETWORK_POLICIES: "NetworkPolicies of the hub that select mirrored pods are told, or "
    "keep pods from being mirrored (`networkPolicies` in the configuration)",
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
    TARGET_ACCOUNT = "the account that mirrors run as"


class Needed(StrEnum):
    """In which circumstances a right is needed."""

    ALWAYS = "always"
    UNCONFINED = "unless confined to given namespaces"
    CONFINED = "when confined to given namespaces"
    AGGREGATE = "capacity aggregate"
    QUOTA = "capacity quota"
    TARGET_ACCOUNT = "identity target"
    HUB_DOOR = "unless hubAddress is an IP address with port 443"


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
    target_account: str | None = None
    """The account that mirrors run as with identity `target`; "": another identity, None: not
    known."""
    has_door: bool = True
    """Whether a Service of the target leads to the hub's API server, with identity `hub`."""
    features: frozenset[Feature] = field(default_factory=frozenset)

    @property
    def is_confined(self) -> bool:
        """Tell whether only given namespaces may be used."""
        return bool(self.confined_to)


def usual_features(*, is_confined: bool) -> frozenset[Feature]:
    """Return the features that `federate run` uses by itself.

    A confined target is not asked for more than its own namespaces.
    """
    usual = {
        Feature.EVENTS,
        Feature.GIVE_BACK,
        Feature.KUBELET,
        Feature.COMPANIONS,
        Feature.ADDRESSES,
        Feature.NETWORK_POLICIES,
    }
    return frozenset(usual - {Feature.GIVE_BACK} if is_confined else usual)


def circumstances_of(
    side: Side,
    *,
    node_names: Iterable[str],
    namespaces: NamespaceRules,
    capacity: CapacityRules,
    leader_lease_namespace: str = SYSTEM_NAMESPACE,
    target_account: str | None = None,
    has_door: bool = True,
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
        target_account=target_account,
        has_door=has_door,
        features=usual_features(is_confined=bool(given)) if features is None else features,
    )


def _row(  # noqa: PLR0913 - one parameter for each column
    side: Side,
    verbs: str,
    resource: Resource,
    *,
    subresource: str = "",
    place: Place = Place.CLUSTER,
    names: Names = Names.ANY,
    needed: Needed = Needed.ALWAYS,
    feature: Feature | None = None,
    is_required: bool | None = None,
    why: str,
    without: str,
) -> Row:
    """Make a row of the table; what only a feature needs is not required, unless it says so."""
    return Row(
        side=side,
        group=resource.group,
        resource=f"{resource.plural}/{subresource}" if subresource else resource.plural,
        verbs=tuple(verbs.split()),
        place=place,
        names=names,
        needed=needed,
        feature=feature,
        is_required=feature is None if is_required is None else is_required,
        why=why,
        without=without,
    )


_hub = partial(_row, Side.HUB)
_target = partial(_row, Side.TARGET)


HUB_ROWS = (
    _hub(
        "get",
        NAMESPACES,
        names=Names.SYSTEM_NAMESPACE,
        why="its uid tells this hub from others, and is asked again before absence is believed",
        without="federate does not start",
    ),
    _hub(
        "create",
        NODES,
        why="registers the virtual nodes, again after somebody deleted one; creates cannot be "
        "limited to names",
        without="there is no virtual node",
    ),
    _hub(
        "get list watch patch",
        NODES,
        names=Names.VIRTUAL_NODES,
        why="keeps labels, taint and records of the virtual nodes, and sees cordons and operators' "
        "words",
        without="there is no virtual node",
    ),
    _hub(
        "patch",
        NODES,
        subresource="status",
        names=Names.VIRTUAL_NODES,
        why="capacity and conditions of the virtual nodes",
        without="the virtual nodes are never Ready",
    ),
    _hub(
        "create",
        LEASES,
        place=Place.NODE_LEASES,
        why="the heartbeat of a new virtual node; creates cannot be limited to names",
        without="the hub takes the virtual nodes for dead",
    ),
    _hub(
        "get update",
        LEASES,
        place=Place.NODE_LEASES,
        names=Names.VIRTUAL_NODES,
        why="the heartbeat of the virtual nodes",
        without="the hub takes the virtual nodes for dead",
    ),
    _hub(
        "create",
        LEASES,
        place=Place.LEADER_LEASES,
        why="the first election of a leader; creates cannot be limited to names",
        without="no process leads, so nothing is mirrored",
    ),
    _hub(
        "get update",
        LEASES,
        place=Place.LEADER_LEASES,
        names=Names.LEADER_LEASES,
        why="who of several federate processes leads",
        without="no process leads, so nothing is mirrored",
    ),
    _hub(
        "get list watch",
        PODS,
        why="the pods bound to the virtual nodes; a field selector cannot be granted",
        without="no pod is mirrored",
    ),
    _hub(
        "delete",
        PODS,
        why="lets a deleted pod go once its mirror is gone, as a kubelet does, and deletes one "
        "whose mirror was evicted in the target",
        without="deleted pods stay Terminating",
    ),
    _hub(
        "patch",
        PODS,
        subresource="status",
        why="status of the pods, and the record where their mirrors are",
        without="no pod is mirrored: its record comes before its mirror",
    ),
    _hub(
        "create patch",
        EVENTS,
        is_required=False,
        why="tells about pods: why one waits, what the target refused",
        without="there are no Events of federate; status and conditions still tell",
    ),
    _hub(
        "create patch",
        CORE_EVENTS,
        feature=Feature.EVENTS,
        why="tells the target's Events about mirrors as Events about the hub pods",
        without="the target's Events do not appear on the hub",
    ),
    _hub(
        "get",
        NAMESPACES,
        feature=Feature.GIVE_BACK,
        why="whether a hub namespace is gone, before its target namespace is given back",
        without="target namespaces that federate made stay when their hub namespace is gone",
    ),
    _hub(
        "get",
        SECRETS,
        feature=Feature.COMPANIONS,
        why="reads by name the Secrets that pods of the virtual nodes name, and no others; a Role "
        "in some namespaces does for pods there",
        without="pods that name one wait: CompanionUnreadable",
    ),
    _hub(
        "get",
        CONFIGMAPS,
        feature=Feature.COMPANIONS,
        why="reads by name the ConfigMaps that pods of the virtual nodes name, and no others",
        without="pods that name one wait: CompanionUnreadable",
    ),
    _hub(
        "watch",
        SECRETS,
        feature=Feature.COMPANIONS,
        why="sees within seconds that one of those Secrets changed; only metadata is asked for, "
        "but whoever has this right may read every Secret with it",
        without="each is asked for by name instead, and a change comes within a minute or two",
    ),
    _hub(
        "watch",
        CONFIGMAPS,
        feature=Feature.COMPANIONS,
        why="sees within seconds that one of those ConfigMaps changed; only metadata is asked for",
        without="each is asked for by name instead, and a change comes within a minute or two",
    ),
    _hub(
        "get list watch patch",
        CLAIMS,
        feature=Feature.CLAIMS,
        why="the claims that pods name, and those that the scheduler placed on a virtual node; "
        "what a target does not serve is handed back to the scheduler",
        without="pods with claims wait: ClaimPending",
    ),
    _hub(
        "patch",
        CLAIMS,
        subresource="status",
        feature=Feature.CLAIMS,
        why="tells claims of the size that they have in the target",
        without="a claim that grew in the target says its old size",
    ),
    _hub(
        "get list watch create patch delete",
        VOLUMES,
        feature=Feature.CLAIMS,
        why="a volume for each claim leads to the target's; deleted again where its class says so",
        without="no claim is bound: the scheduler does not place its pods",
    ),
    _hub(
        "get",
        STORAGE_CLASSES,
        feature=Feature.CLAIMS,
        why="whether a claim's class is federate.dev/target's, and what it says of the data's end",
        without="no claim is bound",
    ),
    _hub(
        "list",
        NODES,
        feature=Feature.ADDRESSES,
        why="pod ranges and addresses of the nodes, to compare with the target's; and what other "
        "virtual nodes show",
        without="addresses of pods are hidden, unless `addresses: reflect`",
    ),
    _hub(
        "list",
        SERVICE_RANGES,
        feature=Feature.ADDRESSES,
        why="service ranges, to compare with the target's (1.33 and later)",
        without="addresses of pods are hidden, unless kubeadm tells the range",
    ),
    _hub(
        "get",
        CONFIGMAPS,
        place=Place.SYSTEM,
        names=Names.KUBEADM,
        feature=Feature.ADDRESSES,
        why="pod and service ranges, to compare with the target's (clusters made by kubeadm)",
        without="pod ranges are taken for larger than they are",
    ),
    _hub(
        "list watch",
        SERVICES,
        feature=Feature.ADDRESSES,
        why="which Services select pods whose addresses are hidden",
        without="they are not told",
    ),
    _hub(
        "get list watch",
        SERVICES,
        feature=Feature.SERVICES,
        why="which Services follow into the target, and how they look",
        without="none follows",
    ),
    _hub(
        "list watch",
        NETWORK_POLICIES,
        feature=Feature.NETWORK_POLICIES,
        why="which policies select pods of the virtual nodes",
        without="they are not told; with `networkPolicies: refuse` every pod waits: "
        "NetworkPoliciesUnknown",
    ),
    _hub(
        "create",
        SERVICEACCOUNTS,
        subresource="token",
        feature=Feature.POD_IDENTITY,
        why="tokens of the pods' service accounts, each bound to its pod. A strong right: whoever "
        "has it may become any service account of the hub",
        without="pods that ask for one wait: TokenRefused",
    ),
    _hub(
        "list watch",
        SERVICES,
        feature=Feature.POD_IDENTITY,
        why="the environment variables that tell pods of the Services in their namespace",
        without="pods wait for them: no identity hub without it",
    ),
    _hub(
        "create",
        TOKEN_REVIEWS,
        feature=Feature.KUBELET,
        why="whose token it is that somebody comes to the kubelet API with: metrics-server, say",
        without="the kubelet API answers nobody who comes with a token, so `kubectl top` and HPAs "
        "fail",
    ),
    _hub(
        "create",
        SUBJECT_ACCESS_REVIEWS,
        feature=Feature.KUBELET,
        why="whether who comes to the kubelet API may do so; the hub's authorizers decide",
        without="the kubelet API answers nobody: `kubectl logs` and `exec` fail",
    ),
    _hub(
        "get list watch",
        CONFIGMAPS,
        place=Place.SYSTEM,
        names=Names.CLIENT_CA,
        feature=Feature.KUBELET,
        why="which client certificates the kubelet API believes: the hub's client CA stands there",
        without="`kubectl logs` and `exec` fail, unless a file with that CA is configured",
    ),
    _hub(
        "get create",
        CERTIFICATE_REQUESTS,
        feature=Feature.KUBELET,
        why="asks the hub for the kubelet API's serving certificate; somebody else approves it",
        without="it serves with a self-signed certificate, which API servers take unless told to "
        "verify kubelets",
    ),
    _hub(
        "update",
        CERTIFICATE_REQUESTS,
        subresource="approval",
        feature=Feature.APPROVE,
        why="approves its own requests; requests cannot be told apart by a right, so whoever has "
        "these credentials may approve those of every kubelet",
        without="somebody approves them: kubectl certificate approve NAME",
    ),
    Row(
        side=Side.HUB,
        group=CERTIFICATE_REQUESTS.group,
        resource="signers",
        verbs=("approve",),
        place=Place.CLUSTER,
        names=Names.SIGNER,
        feature=Feature.APPROVE,
        is_required=False,
        why="approves requests to that one signer, and to no other",
        without="somebody approves them: kubectl certificate approve NAME",
    ),
    _hub(
        "get",
        NODES,
        subresource="proxy",
        names=Names.VIRTUAL_NODES,
        feature=Feature.CHECK,
        why="whether the hub's API server reaches the kubelet API of the virtual nodes. It lets "
        "read logs there and run commands, too",
        without="`federate check` cannot tell why `kubectl logs` fails",
    ),
    _hub(
        "list",
        DAEMONSETS,
        is_required=False,
        why="finds DaemonSets that put a pod on the virtual nodes: their condition "
        "`federate.dev/DaemonSetsKeptOff`, and `federate check`, tell of them",
        without="nobody tells of them",
    ),
    _hub(
        "list",
        NODES,
        feature=Feature.CHECK,
        why="addresses and pod ranges of the nodes, to compare with the target's",
        without="`federate check` does not know this side's pod and node ranges",
    ),
    _hub(
        "list",
        SERVICE_RANGES,
        feature=Feature.CHECK,
        why="service ranges, to compare with the target's (1.33 and later)",
        without="`federate check` does not know this side's service range",
    ),
    _hub(
        "get",
        CONFIGMAPS,
        place=Place.SYSTEM,
        names=Names.KUBEADM,
        feature=Feature.CHECK,
        why="pod and service ranges, to compare with the target's (clusters made by kubeadm)",
        without="`federate check` knows this side's ranges only if the API tells them",
    ),
    _hub(
        "create",
        PODS,
        subresource="eviction",
        feature=Feature.LEAVE,
        why="drains a virtual node as kubectl drain does, heeding PodDisruptionBudgets",
        without="`federate leave` cannot drain",
    ),
    _hub(
        "delete",
        NODES,
        names=Names.VIRTUAL_NODES,
        feature=Feature.LEAVE,
        why="removes the Node last",
        without="`federate leave` leaves the Node behind",
    ),
    _hub(
        "delete",
        LEASES,
        place=Place.NODE_LEASES,
        names=Names.VIRTUAL_NODES,
        feature=Feature.LEAVE,
        why="removes the heartbeat's lease",
        without="the hub's garbage collector removes it after its Node",
    ),
    _hub(
        "patch delete",
        LEASES,
        place=Place.LEADER_LEASES,
        names=Names.LEADER_LEASES,
        feature=Feature.LEAVE,
        why="tells running federates that the virtual node is left, and removes the lease",
        without="`federate leave` cannot take over",
    ),
    _hub(
        "list",
        LEASES,
        place=Place.LEADER_LEASES,
        feature=Feature.LEAVE,
        why="`federate status` shows leader leases that a killed `federate leave` left behind",
        without="it shows those of virtual nodes that are there",
    ),
)

_UNLED = (
    "pods start all the same, and kubernetes.default.svc is the target's API server in them: "
    "HubNamesMissing"
)

TARGET_ROWS = (
    _target(
        "get list watch create patch delete",
        PODS,
        place=Place.MIRRORS,
        why="the mirrors; the others are read too, because they take of the capacity, and because "
        "a label selector cannot be granted",
        without="nothing runs in the target",
    ),
    _target(
        "patch",
        PODS,
        subresource="ephemeralcontainers",
        place=Place.MIRRORS,
        is_required=False,
        why="debug containers of running pods",
        without="`kubectl debug` says UpdateRejected",
    ),
    _target(
        "patch",
        PODS,
        subresource="resize",
        place=Place.MIRRORS,
        is_required=False,
        why="resources of running pods",
        without="a resize in place says UpdateRejected",
    ),
    _target(
        "get list watch create",
        CONFIGMAPS,
        place=Place.MIRRORS,
        why="one anchor in each namespace, which owns the mirrors there",
        without="nothing runs in the target: mirrors need their anchor",
    ),
    _target(
        "get",
        SERVICEACCOUNTS,
        place=Place.MIRRORS,
        names=Names.DEFAULT,
        why="pods are refused in a new namespace until it has this account; confined, its uid "
        "tells this target from others",
        without="nothing runs in the target: its namespaces never count as ready",
    ),
    _target(
        "get create patch",
        NAMESPACES,
        needed=Needed.UNCONFINED,
        why="makes target namespaces on demand and notes their use; the uid of kube-system tells "
        "this target from others",
        without="nothing runs in the target: its namespaces cannot be made",
    ),
    _target(
        "get",
        NAMESPACES,
        place=Place.SYSTEM,
        names=Names.SYSTEM_NAMESPACE,
        needed=Needed.CONFINED,
        feature=Feature.IDENTITY,
        why="its uid tells this target from others",
        without="the uid of a default service account in a given namespace does",
    ),
    _target(
        "list watch",
        NODES,
        needed=Needed.AGGREGATE,
        why="the capacity of the virtual node is what the target's nodes have left",
        without="no virtual node of capacity aggregate; static and quota do without",
    ),
    _target(
        "list watch",
        RESOURCEQUOTAS,
        place=Place.QUOTA,
        names=Names.QUOTA,
        needed=Needed.QUOTA,
        why="the capacity of the virtual node is what the quota leaves",
        without="no virtual node of capacity quota",
    ),
    _target(
        "watch",
        CORE_EVENTS,
        place=Place.MIRRORS,
        feature=Feature.EVENTS,
        why="what kubelets and the scheduler say about mirrors",
        without="the target's Events do not appear on the hub",
    ),
    _target(
        "get create patch delete",
        SECRETS,
        place=Place.MIRRORS,
        feature=Feature.COMPANIONS,
        why="what stands for the hub's Secrets, by names of federate's own, and whether one that a "
        "pod names is labelled as shared; they are never listed",
        without="pods that name a Secret wait: CompanionRefused",
    ),
    _target(
        "patch delete",
        CONFIGMAPS,
        place=Place.MIRRORS,
        feature=Feature.COMPANIONS,
        why="what stands for the hub's ConfigMaps, and the record of Secrets",
        without="pods that name a Secret wait, and ConfigMaps stay as they first were",
    ),
    _target(
        "get list watch create patch delete",
        CLAIMS,
        place=Place.MIRRORS,
        feature=Feature.CLAIMS,
        why="storage for the hub's claims, by names of federate's own; deleted only where the "
        "hub's class says so, or while it is empty",
        without="claims are refused: ClaimRefused",
    ),
    _target(
        "list",
        CORE_EVENTS,
        place=Place.MIRRORS,
        feature=Feature.CLAIMS,
        why="what the target says of a claim that has no storage yet",
        without="its words do not reach the hub",
    ),
    _target(
        "get",
        STORAGE_CLASSES,
        needed=Needed.UNCONFINED,
        feature=Feature.CLAIMS,
        why="whether a class is there, and waits for a pod before it makes storage",
        without="each is taken for one that waits, so that pods come before their storage is there",
    ),
    _target(
        "list",
        NODES,
        needed=Needed.UNCONFINED,
        feature=Feature.ADDRESSES,
        why="pod ranges and addresses of the nodes, to compare with the hub's",
        without="addresses of pods are hidden, unless `addresses: reflect`",
    ),
    _target(
        "list",
        SERVICE_RANGES,
        needed=Needed.UNCONFINED,
        feature=Feature.ADDRESSES,
        why="service ranges, to compare with the hub's (1.33 and later)",
        without="addresses of pods are hidden, unless kubeadm tells the range",
    ),
    _target(
        "get",
        CONFIGMAPS,
        place=Place.SYSTEM,
        names=Names.KUBEADM,
        needed=Needed.UNCONFINED,
        feature=Feature.ADDRESSES,
        why="pod and service ranges, to compare with the hub's (clusters made by kubeadm)",
        without="pod ranges are taken for larger than they are",
    ),
    _target(
        "get list watch create patch delete",
        SERVICES,
        place=Place.MIRRORS,
        feature=Feature.SERVICES,
        why="the Services that follow the hub's, by their names and federate's marks",
        without="none follows: ServiceNotFollowed",
    ),
    _target(
        "get list create patch delete",
        SERVICES,
        place=Place.MIRRORS,
        needed=Needed.HUB_DOOR,
        feature=Feature.POD_IDENTITY,
        why="one Service in each namespace, so that kubernetes.default.svc is the hub's API server "
        "in pods from there",
        without=_UNLED,
    ),
    _target(
        "get create patch delete",
        ENDPOINT_SLICES,
        place=Place.MIRRORS,
        needed=Needed.HUB_DOOR,
        feature=Feature.POD_IDENTITY,
        why="where that Service leads: to `hubAddress`",
        without=_UNLED,
    ),
    _target(
        "list delete",
        NAMESPACES,
        needed=Needed.UNCONFINED,
        feature=Feature.GIVE_BACK,
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
    _target(
        "get",
        PODS,
        subresource="log",
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        why="`kubectl logs` of pods that run there",
        without="it says Forbidden",
    ),
    _target(
        "get create",
        PODS,
        subresource="exec",
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        why="`kubectl exec` and `cp`; get for WebSocket, create for SPDY. Whoever has it may run "
        "commands in every pod there",
        without="they say Forbidden",
    ),
    _target(
        "get create",
        PODS,
        subresource="attach",
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        why="`kubectl attach`, `run -i` and `debug -i`",
        without="they say Forbidden",
    ),
    _target(
        "get create",
        PODS,
        subresource="portforward",
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        why="`kubectl port-forward`",
        without="it says Forbidden",
    ),
    _target(
        "list",
        POD_METRICS,
        place=Place.MIRRORS,
        feature=Feature.KUBELET,
        why="what pods use, as the target's metrics-server knows it",
        without="`kubectl top` and HPAs on the hub know nothing of pods there, unless its kubelets "
        "may be asked (feature node-proxy)",
    ),
    _target(
        "get",
        NODES,
        subresource="proxy",
        needed=Needed.UNCONFINED,
        feature=Feature.NODE_PROXY,
        why="what pods use, as the target's kubelets know it, where there is no metrics-server. A "
        "strong right: it lets read every log and run commands in every pod of the target",
        without="metrics.k8s.io alone tells what pods use",
    ),
    _target(
        "list",
        BUDGETS,
        place=Place.MIRRORS,
        feature=Feature.CHECK,
        why="finds budgets that select mirrors",
        without="`federate check` cannot tell of them",
    ),
    _target(
        "list",
        SERVICES,
        place=Place.MIRRORS,
        feature=Feature.CHECK,
        why="finds Services that select mirrors",
        without="`federate check` cannot tell of them",
    ),
    _target(
        "get",
        SERVICEACCOUNTS,
        place=Place.MIRRORS,
        names=Names.TARGET_ACCOUNT,
        needed=Needed.TARGET_ACCOUNT,
        feature=Feature.CHECK,
        why="whether `targetServiceAccount` is there, and lets mirrors be what they should",
        without="`federate check` cannot tell",
    ),
    _target(
        "get",
        NAMESPACES,
        place=Place.MIRRORS,
        names=Names.OWN_NAMESPACE,
        needed=Needed.CONFINED,
        feature=Feature.CHECK,
        why="whether the namespace is there, or being deleted, and its PodSecurity level",
        without="`federate check` cannot tell",
    ),
    _target(
        "list",
        NAMESPACES,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        why="PodSecurity levels of target namespaces",
        without="`federate check` cannot tell of them",
    ),
    _target(
        "list",
        NODES,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        why="addresses and pod ranges of the nodes, to compare with the hub's",
        without="`federate check` does not know this side's pod and node ranges",
    ),
    _target(
        "list",
        SERVICE_RANGES,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        why="service ranges, to compare with the hub's (1.33 and later)",
        without="`federate check` does not know this side's service range",
    ),
    _target(
        "get",
        CONFIGMAPS,
        place=Place.SYSTEM,
        names=Names.KUBEADM,
        needed=Needed.UNCONFINED,
        feature=Feature.CHECK,
        why="pod and service ranges, to compare with the hub's (clusters made by kubeadm)",
        without="`federate check` knows this side's ranges only if the API tells them",
    ),
    _target(
        "delete",
        CONFIGMAPS,
        place=Place.MIRRORS,
        feature=Feature.LEAVE,
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
    is_so = {
        Needed.ALWAYS: True,
        Needed.CONFINED: around.is_confined,
        Needed.UNCONFINED: not around.is_confined,
        Needed.AGGREGATE: around.capacity is CapacityMode.AGGREGATE,
        Needed.QUOTA: around.capacity is CapacityMode.QUOTA,
        Needed.TARGET_ACCOUNT: around.target_account != "",
        Needed.HUB_DOOR: around.has_door,
    }
    is_used = row.feature is None or row.feature in around.features
    return is_used and is_so[row.needed]


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
    """Return the names that the circumstances tell; what they do not know is not limited."""
    told = {
        Names.ANY: (),
        Names.VIRTUAL_NODES: around.node_names,
        Names.LEADER_LEASES: tuple(leader_lease_name(name) for name in around.node_names),
        Names.OWN_NAMESPACE: (namespace,),
        Names.QUOTA: (around.quota_name,) if around.quota_name else (),
        Names.TARGET_ACCOUNT: (around.target_account,) if around.target_account else (),
    }
    return told.get(names, (str(names),))


def covers(right: Right, *, resource: str, verb: str) -> bool:
    """Tell whether a right lets a verb be done to a resource, in some namespace."""
    return right.resource in (resource, "*") and verb in right.verbs

"""The shape of the configuration file, and what of it must fit together.

A virtual node's part has the shape of a `VirtualNode`'s spec. Field names are those of the file in
Python's spelling; defaults and descriptions are what docs/reference/config.md says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
)

from federate.companions.keys import Kind
from federate.companions.rules import IdentityMode
from federate.config import values
from federate.config.network import DnsPart, dns_findings, services_findings
from federate.config.parts import Part, Says, one_of
from federate.config.policy import PolicyPart
from federate.config.tree import Loc, path_of
from federate.config.volumes import VolumesPart, volumes_findings
from federate.kubelet.rules import CertificateMode
from federate.model.naming import NamespaceStrategy
from federate.model.quantities import PODS
from federate.model.taints import TaintEffect, VirtualNodeTaintEffect
from federate.node.capacity import CapacityMode
from federate.policy.contradictions import contradictions_of
from federate.services.rules import AddressMode, FollowMode, NetworkPolicyMode

API_VERSION = "federate.dev/v1alpha1"
KIND = "Federation"


def _number_as_text(found: Any) -> Any:
    """Take numbers where Kubernetes takes them: `cpu: 4`."""
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return str(found) if is_number else found


def _as_share(found: Any) -> Decimal:
    text = _number_as_text(found)
    if not isinstance(text, str):
        raise ValueError("expected a number above 0 and at most 1, as in 0.5")  # noqa: TRY004
    return values.share(text)


def _as_renewal(found: Any) -> Decimal:
    text = _number_as_text(found)
    if not isinstance(text, str):
        raise ValueError(values.RENEWAL_EXPECTED)  # noqa: TRY004
    return values.renewal(text)


KubeconfigPath = Annotated[
    str,
    AfterValidator(values.kubeconfig_path),
    Says("path; a relative one begins at this file's folder"),
]
ContextName = Annotated[str, AfterValidator(values.context_name), Says("name of a context")]
NodeName = Annotated[str, AfterValidator(values.node_name), Says("node name")]
NamespaceName = Annotated[str, AfterValidator(values.namespace_name), Says("namespace")]
ObjectName = Annotated[str, AfterValidator(values.object_name), Says("name of an object")]
LabelKey = Annotated[str, AfterValidator(values.qualified_name)]
OwnLabelKey = Annotated[str, AfterValidator(values.own_label_key)]
LabelValue = Annotated[str, AfterValidator(values.label_value), Says("label value")]
Quantity = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(values.quantity)]
ResourceName = Annotated[str, AfterValidator(values.resource_name)]
Quantities = Annotated[
    dict[ResourceName, Quantity],
    Says("quantities by resource, as in `{cpu: 4, nvidia.com/gpu: 1}`"),
]
Labels = Annotated[dict[OwnLabelKey, LabelValue], Says("label values by key")]
Selector = Annotated[dict[LabelKey, LabelValue], Says("label values by key")]

FilePath = Annotated[
    str,
    AfterValidator(values.file_path),
    Says("path; a relative one begins at this file's folder"),
]
IpAddress = Annotated[str, AfterValidator(values.address), Says("IP address")]

Listen = Annotated[
    str, BeforeValidator(_number_as_text), AfterValidator(values.listen), Says("`HOST:PORT`")
]

HubAddress = Annotated[
    str,
    BeforeValidator(_number_as_text),
    AfterValidator(values.hub_address),
    Says("`HOST:PORT`"),
]


class TargetPart(Part):
    """Where the virtual node's pods run."""

    kubeconfig: KubeconfigPath = Field(
        description="The target's kubeconfig. The file is read again while federate runs."
    )
    context: ContextName | None = Field(
        default=None, description="A context other than the file's current one."
    )


class QuotaPart(Part):
    """A ResourceQuota of the target."""

    namespace: NamespaceName = Field(description="The ResourceQuota's namespace in the target.")
    name: ObjectName | None = Field(
        default=None, description="Its name. Without it the only ResourceQuota of the namespace."
    )


class CapacityPart(Part):
    """How large the virtual node is."""

    mode: Annotated[CapacityMode, one_of(CapacityMode)] = Field(
        default=CapacityMode.AGGREGATE,
        description="`aggregate`: what the target's ready, schedulable nodes have left. `static`: "
        "a fixed size. `quota`: what a ResourceQuota of the target has left, where federate may "
        "not see nodes.",
    )
    static: Annotated[Quantities, AfterValidator(values.whole_pods)] = Field(
        default_factory=dict,
        description="Mode `static`, which needs it: the fixed size, with `pods`. Mode `quota`: "
        "of what the quota does not limit.",
    )
    node_selector: Selector = Field(
        default_factory=dict, description="Only target nodes with these labels count. `aggregate`."
    )
    share: Annotated[Decimal, PlainValidator(_as_share), Says("number above 0, at most 1")] = Field(
        default=Decimal(1), description="What part of the rest is offered. Not in mode `static`."
    )
    cap: Annotated[Quantities, AfterValidator(values.whole_pods)] = Field(
        default_factory=dict, description="The most that is ever offered. Not in mode `static`."
    )
    at_least: Annotated[Quantities, AfterValidator(values.whole_pods)] = Field(
        default_factory=dict,
        description="What the target's nodes grow to when pods ask for it, however few they are: a "
        "pool that is scaled to zero. `aggregate`.",
    )
    quota: QuotaPart | None = Field(
        default=None, description="The ResourceQuota to follow. Mode `quota`, which needs it."
    )


class NamespacesPart(Part):
    """How hub namespaces find their namespaces in the target."""

    strategy: Annotated[NamespaceStrategy, one_of(NamespaceStrategy)] = Field(
        default=NamespaceStrategy.PREFIXED,
        description="`prefixed`, `suffixed`: the hub's name with a short hub id before or behind "
        "it. `same`: the hub's name; for one trusted hub. `map`: as listed. `single`: all in one, "
        "under names of their own.",
    )
    map: (
        Annotated[dict[NamespaceName, NamespaceName], Says("target namespaces by hub namespace")]
        | None
    ) = Field(
        default=None,
        description="Pods of namespaces that are not listed get no mirror. Strategy `map`, which "
        "needs it.",
    )
    single: NamespaceName | None = Field(
        default=None, description="The one namespace. Strategy `single`, which needs it."
    )


class TaintPart(Part):
    """A taint of the Node."""

    key: Annotated[str, AfterValidator(values.taint_key), Says("taint key")] = Field(
        description="The taint's key."
    )
    value: LabelValue = Field(default="", description="Its value.")
    effect: Annotated[TaintEffect, one_of(TaintEffect)] = Field(
        default=TaintEffect.NO_SCHEDULE, description="What it does to pods without a toleration."
    )


class KubeletPart(Part):
    """How the virtual node answers `kubectl logs`, `exec` and the like, as a kubelet does."""

    serve: bool = Field(
        default=True, description="Whether it answers. Without it the Node names no port."
    )
    address: IpAddress | None = Field(
        default=None,
        description="Where it listens. Without it the node's address; every address, where that is "
        "none of this host's.",
    )
    port: Annotated[int, AfterValidator(values.port), Says("number")] = Field(
        default=0, description="The port; each virtual node needs its own. 0: a free one."
    )
    certificate: Annotated[CertificateMode, one_of(CertificateMode)] = Field(
        default=CertificateMode.CSR,
        description="`csr`: the hub's signer `kubernetes.io/kubelet-serving`, self-signed until "
        "somebody approves. `files`: as given. `self-signed`: nobody is asked.",
    )
    approve: bool = Field(
        default=False,
        description="Approve one's own requests; needs rights that `federate rbac` prints. `csr`.",
    )
    certificate_file: FilePath | None = Field(
        default=None, description="PEM, with the chain; read again when it changes. `files`."
    )
    key_file: FilePath | None = Field(default=None, description="Its key, PEM. `files`.")
    certificate_folder: FilePath | None = Field(
        default=None,
        description="Where key and certificate are kept across restarts. Without it in memory "
        "alone: each start asks anew. `csr`.",
    )
    client_ca_file: FilePath | None = Field(
        default=None,
        alias="clientCAFile",
        description="Who signs the API server's client certificate. Without it what the hub says: "
        "ConfigMap `kube-system/extension-apiserver-authentication`.",
    )


class SharedPart(Part):
    """An object of the target that pods may name as it is."""

    kind: Annotated[Kind, one_of(Kind)] = Field(description="`ConfigMap` or `Secret`.")
    name: ObjectName = Field(
        description="Its name, in each target namespace where pods name it. Whoever may create "
        "pods on the hub reads it there."
    )


class VirtualNodePart(Part):
    """One virtual node and its target."""

    node_name: NodeName = Field(description="The name of the Node on the hub.")
    target: TargetPart = Field(description="Where its pods run.")
    capacity: CapacityPart = Field(default=CapacityPart(), description="How large it is.")
    namespaces: NamespacesPart = Field(
        default=NamespacesPart(), description="Where pods of a hub namespace are in the target."
    )
    labels: Labels = Field(
        default_factory=dict, description="Labels of the Node, beside federate's and the target's."
    )
    taint_value: LabelValue = Field(
        default="federate",
        description="Value of the taint `virtual-kubelet.io/provider`, which pods must tolerate.",
    )
    taint_effect: Annotated[VirtualNodeTaintEffect, one_of(VirtualNodeTaintEffect)] = Field(
        default=VirtualNodeTaintEffect.NO_SCHEDULE,
        description="Its effect. `none`: the Node has no such taint, and any pod of the hub may be "
        "placed there.",
    )
    taints: list[TaintPart] = Field(
        default_factory=list, description="More taints of the Node, beside that one."
    )
    provider_id: Annotated[str, AfterValidator(values.provider_id), Says("text")] | None = Field(
        default=None,
        alias="providerID",
        description="The Node's `spec.providerID`; it cannot change while the Node exists. Without "
        "it `federate://` and the node's name.",
    )
    node_address: Annotated[str, AfterValidator(values.node_address), Says("IP address")] | None = (
        Field(
            default=None,
            description="The Node's InternalIP. Without it this host's address towards the hub.",
        )
    )
    kubelet: KubeletPart = Field(
        default=KubeletPart(), description="How it answers `kubectl logs`, `exec` and the like."
    )
    companions: bool = Field(
        default=True,
        description="Whether the ConfigMaps and Secrets that pods name come along to the target. "
        "Without it such pods wait, and say so.",
    )
    shared: list[SharedPart] = Field(
        default_factory=list,
        description="Objects of the target that pods may name as they are, instead of the hub's of "
        "that name.",
    )
    identity: Annotated[IdentityMode, one_of(IdentityMode)] = Field(
        default=IdentityMode.NONE,
        description="As whom pods speak to an API server. `none`: as nobody. `hub`: to the hub's, "
        "as their own service accounts there. `target`: to the target's, as one service account "
        "there.",
    )
    hub_address: HubAddress | None = Field(
        default=None,
        description="Where pods in the target reach the hub's API server, by a name or address "
        "that its certificate has. Identity `hub`, which needs it.",
    )
    token_renewal: Annotated[
        Decimal, PlainValidator(_as_renewal), Says("number above 0, at most 0.8")
    ] = Field(
        default=Decimal("0.8"),
        description="The part of its life after which a pod's token is renewed. Identity `hub`.",
    )
    target_service_account: ObjectName | None = Field(
        default=None,
        description="The service account that pods run as, in each target namespace where they "
        "are. Identity `target`, which needs it.",
    )
    policy: PolicyPart = Field(
        default=PolicyPart(),
        description="What of hub pods the target runs, and in which shape: see "
        "[policy](../policy.md).",
    )
    addresses: Annotated[AddressMode, one_of(AddressMode)] = Field(
        default=AddressMode.AUTO,
        description="Whether hub pods show the addresses of their mirrors, so that Services of the "
        "hub select them. `auto`: where the address ranges of both clusters are known, and apart. "
        "See [networking](../networking.md).",
    )
    services: Annotated[FollowMode, one_of(FollowMode)] = Field(
        default=FollowMode.IGNORE,
        description="Which Services of the hub are made in the target, beside the pods of their "
        "namespace. `labelled`: those with the label `federate.dev/follow: true`.",
    )
    network_policies: Annotated[NetworkPolicyMode, one_of(NetworkPolicyMode)] = Field(
        default=NetworkPolicyMode.WARN,
        description="What becomes of pods that a NetworkPolicy of the hub selects: none is "
        "enforced in a target. `warn`: the policy is told by an Event. `refuse`: they wait, and "
        "say so.",
    )
    dns: DnsPart = Field(
        default=DnsPart(), description="Which DNS pods ask, beside the target's or instead of it."
    )
    volumes: VolumesPart = Field(
        default=VolumesPart(),
        description="Which volumes pods may have: see [volumes](../volumes.md).",
    )


class HubPart(Part):
    """Where users submit pods."""

    kubeconfig: KubeconfigPath | None = Field(
        default=None,
        description="The hub's kubeconfig. Without it: the first file of $KUBECONFIG, "
        "~/.kube/config, or the service account of this pod.",
    )
    context: ContextName | None = Field(
        default=None, description="A context other than the file's current one."
    )
    identity: Annotated[str, AfterValidator(values.hub_identity), Says("label value")] | None = (
        Field(
            default=None,
            description="What the hub is called in the marks of mirrors. Without it the uid of its "
            "`kube-system` namespace; needed only where two hubs have one uid, as copies have. "
            "Another value makes all present Nodes and mirrors strangers' ones: leave first.",
        )
    )


LogLevelName: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormatName: TypeAlias = Literal["auto", "console", "json"]


class Federation(Part):
    """The whole file."""

    api_version: Literal["federate.dev/v1alpha1"] = Field(description="The version of this shape.")
    kind: Literal["Federation"] = Field(description="What the file is.")
    hub: HubPart = Field(default=HubPart(), description="The cluster where users submit pods.")
    listen: Listen = Field(
        default=values.DEFAULT_LISTEN, description="Where /healthz, /readyz and /metrics are."
    )
    log_level: LogLevelName = Field(
        default="info", description="The least severe line that is logged."
    )
    log_format: LogFormatName = Field(
        default="auto", description="`auto`: for people on a terminal, logfmt elsewhere."
    )
    leader_lease_namespace: NamespaceName = Field(
        default="kube-system", description="Where on the hub the leader leases are."
    )
    virtual_nodes: list[VirtualNodePart] = Field(
        default_factory=list, description="The virtual nodes, one target each."
    )


# -- what must fit together ------------------------------------------------------------------------

Finding: TypeAlias = tuple[Loc, str]


def findings(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Say what is wrong between keys, in data that may be wrong in other ways too."""
    nodes = data.get("virtualNodes")
    named: dict[str, int] = {}
    for number, node in enumerate(nodes if isinstance(nodes, list) else ()):
        if not isinstance(node, dict):
            continue
        loc: Loc = ("virtualNodes", number)
        name = node.get("nodeName")
        if isinstance(name, str):
            if name in named:
                first = f"virtualNodes[{named[name]}]"
                said = f"found {values.shown(name)}, which {first} has; expected another"
                yield (*loc, "nodeName"), said
            named.setdefault(name, number)
        for inner, said in virtual_node_findings(node):
            yield (*loc, *inner), said
    yield from _provider_id_findings(nodes if isinstance(nodes, list) else ())
    yield from _port_findings(nodes if isinstance(nodes, list) else ())


def _port_findings(nodes: Sequence[Any]) -> Iterator[Finding]:
    """Refuse two virtual nodes on one port, but on two addresses."""
    owners: dict[int, dict[str, int]] = {}
    for number, node in enumerate(nodes):
        kubelet = node.get("kubelet") if isinstance(node, dict) else None
        if not isinstance(kubelet, dict) or kubelet.get("serve") is False:
            continue
        port, listens = kubelet.get("port"), kubelet.get("address") or node.get("nodeAddress")
        if isinstance(port, bool) or not isinstance(port, int) or port == 0:
            continue
        place = listens if isinstance(listens, str) else ""
        first = owners.setdefault(port, {}).setdefault(place, number)
        if first != number:
            said = f"found {port}, which virtualNodes[{first}] has; expected another for each"
            yield ("virtualNodes", number, "kubelet", "port"), said


def _provider_id_findings(nodes: Sequence[Any]) -> Iterator[Finding]:
    """Refuse two virtual nodes of one provider id: to cloud controllers they were one machine."""
    owners: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if not isinstance(node, dict):
            continue
        given, name = node.get("providerID"), node.get("nodeName")
        implied = f"federate://{name}" if isinstance(name, str) else None
        found = given if given is not None else implied
        if not isinstance(found, str):
            continue
        first = owners.setdefault(found, number)
        # Two of one name are told as that.
        if first != number and name != nodes[first].get("nodeName"):
            key = "providerID" if given is not None else "nodeName"
            said = f"the provider id {values.shown(found)}, which virtualNodes[{first}] has"
            yield ("virtualNodes", number, key), f"found {said}; expected another for each"


def virtual_node_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Say what is wrong between the keys of one virtual node."""
    for key, check in (
        ("capacity", _capacity_findings),
        ("namespaces", _namespaces_findings),
        ("kubelet", _kubelet_findings),
        ("policy", contradictions_of),
        ("volumes", volumes_findings),
        ("dns", dns_findings),
    ):
        part = spec.get(key)
        if isinstance(part, dict):
            for loc, said in check(part):
                yield (key, *loc), said
    if spec.get("taintEffect") == VirtualNodeTaintEffect.NONE and spec.get("taintValue"):
        yield ("taintValue",), "does nothing with taintEffect none; expected another taintEffect"
    yield from _identity_findings(spec)
    yield from _shared_findings(spec)
    yield from services_findings(spec)


_IDENTITY_NEEDS = {"hub": "hubAddress", "target": "targetServiceAccount"}
_IDENTITY_MODES = {
    "hubAddress": ("hub",),
    "tokenRenewal": ("hub",),
    "targetServiceAccount": ("target",),
}


def _identity_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _choice_findings(spec, "identity", "none", _IDENTITY_MODES, ())
    for mode, key in _IDENTITY_NEEDS.items():
        if spec.get("identity") == mode and not spec.get(key):
            yield (key,), f"missing; identity {mode} needs it"
    if spec.get("identity") == IdentityMode.HUB and spec.get("companions") is False:
        yield ("identity",), "found hub; expected companions: true with it, for tokens are Secrets"


def _shared_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    shared = spec.get("shared")
    if shared and spec.get("companions") is False:
        yield ("shared",), "does nothing with companions false; expected companions true"
    seen: dict[tuple[str, str], int] = {}
    for number, one in enumerate(shared if isinstance(shared, list) else ()):
        if not isinstance(one, dict):
            continue
        found = (one.get("kind"), one.get("name"))
        if not all(isinstance(word, str) for word in found):
            continue
        first = seen.setdefault(cast("tuple[str, str]", found), number)
        if first != number:
            yield ("shared", number), f"stands at shared[{first}] already; expected it once"


_CAPACITY_MODES = {
    "static": ("static", "quota"),
    "atLeast": ("aggregate",),
    "nodeSelector": ("aggregate",),
    "share": ("aggregate", "quota"),
    "cap": ("aggregate", "quota"),
    "quota": ("quota",),
}
"""Which keys belong to which modes."""


def _capacity_findings(part: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _choice_findings(part, "mode", "aggregate", _CAPACITY_MODES, ("static", "quota"))
    size = part.get("static")
    if part.get("mode") == "static" and isinstance(size, dict) and size and PODS not in size:
        yield ("static",), "found no pods in it; expected them too: else the node takes no pods"


_NAMESPACE_STRATEGIES = {"map": ("map",), "single": ("single",)}


def _namespaces_findings(part: Mapping[str, Any]) -> Iterator[Finding]:
    needed = tuple(_NAMESPACE_STRATEGIES)
    yield from _choice_findings(part, "strategy", "prefixed", _NAMESPACE_STRATEGIES, needed)
    mapping = part.get("map")
    owners: dict[str, str] = {}
    for hub, target in mapping.items() if isinstance(mapping, dict) else ():
        if not isinstance(target, str):
            continue
        if target in owners:
            # Pods keep their names: those of one name would meet there.
            yield (
                ("map", hub),
                f"found {values.shown(target)}, which {path_of((owners[target],))} has; "
                "expected another for each",
            )
        owners.setdefault(target, hub)


_CERTIFICATE_MODES = {
    "approve": ("csr",),
    "certificateFolder": ("csr",),
    "certificateFile": ("files",),
    "keyFile": ("files",),
}


def _kubelet_findings(part: Mapping[str, Any]) -> Iterator[Finding]:
    belonging = {k: v for k, v in part.items() if v is not False}
    yield from _choice_findings(belonging, "certificate", "csr", _CERTIFICATE_MODES, ())
    if part.get("certificate") == CertificateMode.FILES:
        for key in ("certificateFile", "keyFile"):
            if not part.get(key):
                yield (key,), "missing; certificate files needs it"


def _choice_findings(
    part: Mapping[str, Any],
    chooser: str,
    default: str,
    belongs: Mapping[str, tuple[str, ...]],
    needed: tuple[str, ...],
) -> Iterator[Finding]:
    """Say which keys the chosen mode does not look at, and which it needs (they have its name)."""
    chosen = part.get(chooser) or default
    for key, modes in belongs.items():
        if part.get(key) is not None and chosen not in modes:
            yield (key,), f"does nothing with {chooser} {chosen}; expected {chooser} {_or(modes)}"
    if chosen in needed and not part.get(chosen):
        yield (chosen,), f"missing; {chooser} {chosen} needs it"


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words)

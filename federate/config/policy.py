"""The part of the configuration file that says what a target runs (docs/policy.md)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field

from federate.config import values
from federate.config.parts import Part, Says, one_of
from federate.policy.rules import (
    BASELINE_CAPABILITIES,
    BASELINE_SYSCTLS,
    COMMON_NODE_KEYS,
    DaemonSetMode,
    ImageRewrite,
    OnRefusal,
    Outcome,
    PolicyRules,
)
from federate.policy.topics import TOPIC_OF

OutcomeWord: TypeAlias = Annotated[Outcome, one_of(Outcome)]
ClassName = Annotated[str, AfterValidator(values.object_name), Says("name of an object")]
NodeKey = Annotated[str, AfterValidator(values.qualified_name)]
ListedKey = Annotated[str, AfterValidator(values.listed_key)]
NamePattern = Annotated[str, AfterValidator(values.name_pattern)]
ImagePrefix = Annotated[str, AfterValidator(values.image_prefix), Says("`HOST[:PORT][/PATH]`")]
Names: TypeAlias = Annotated[dict[ClassName, ClassName], Says("names in the target by the hub's")]


def _topic(key: str) -> Any:
    topic = TOPIC_OF[key]
    return Field(
        default=topic.default, alias=key, description=f"What becomes of pods with {topic.what}."
    )


class ImagePart(Part):
    """Images that are pulled from elsewhere."""

    before: ImagePrefix = Field(
        alias="from",
        description="A registry, with or without a path: `docker.io/library` covers `nginx`.",
    )
    after: ImagePrefix = Field(alias="to", description="From where they are pulled instead.")


class PolicyPart(Part):
    """What a target runs, and in which shape."""

    host_network: OutcomeWord = _topic("hostNetwork")
    host_pid: OutcomeWord = _topic("hostPID")
    host_ipc: OutcomeWord = _topic("hostIPC")
    host_path: OutcomeWord = _topic("hostPath")
    storage_volumes: OutcomeWord = _topic("storageVolumes")
    host_ports: OutcomeWord = _topic("hostPorts")
    host_probes: OutcomeWord = _topic("hostProbes")
    host_process: OutcomeWord = _topic("hostProcess")
    privileged: OutcomeWord = _topic("privileged")
    capabilities: OutcomeWord = _topic("capabilities")
    sysctls: OutcomeWord = _topic("sysctls")
    proc_mount: OutcomeWord = _topic("procMount")
    se_linux: OutcomeWord = _topic("seLinux")
    app_armor: OutcomeWord = _topic("appArmor")
    seccomp: OutcomeWord = _topic("seccomp")
    devices: OutcomeWord = _topic("devices")
    device_classes: OutcomeWord = _topic("deviceClasses")
    other_namespaces: OutcomeWord = _topic("otherNamespaces")
    tolerations: OutcomeWord = _topic("tolerations")
    runtime_class: OutcomeWord = _topic("runtimeClass")
    priority_class: OutcomeWord = _topic("priorityClass")
    scheduler: OutcomeWord = _topic("scheduler")

    allowed_capabilities: (
        Annotated[list[Annotated[str, AfterValidator(values.word)]], Says("list of capabilities")]
        | None
    ) = Field(
        default=None,
        description="Capabilities that containers may add, whatever `capabilities` says. Without "
        "it those that PodSecurity `baseline` allows.",
    )
    allowed_sysctls: (
        Annotated[list[Annotated[str, AfterValidator(values.word)]], Says("list of settings")]
        | None
    ) = Field(
        default=None,
        description="Kernel settings that pods may set, whatever `sysctls` says. Without it those "
        "that PodSecurity `baseline` allows.",
    )
    allowed_devices: Annotated[list[NodeKey], Says("list of extended resources")] = Field(
        default_factory=list,
        description="Extended resources that pods may ask for, whatever `devices` and "
        "`deviceClasses` say.",
    )
    allowed_tolerations: Annotated[
        list[ListedKey], Says("list of keys and of prefixes with a `/`")
    ] = Field(
        default_factory=list,
        description="Taint keys that pods may tolerate, whatever `tolerations` says.",
    )
    runtime_classes: Names = Field(
        default_factory=dict, description="Runtime classes that the target calls otherwise."
    )
    priority_classes: Names = Field(
        default_factory=dict, description="Priority classes that the target calls otherwise."
    )
    schedulers: Names = Field(
        default_factory=dict,
        description="Schedulers that the target calls otherwise; `default-scheduler` stands for "
        "pods that ask for none.",
    )
    node_keys: Annotated[
        dict[NodeKey, NodeKey], Says("node label keys in the target by the hub's")
    ] = Field(
        default_factory=dict,
        description="Node label keys that pods may select by, beside `kubernetes.io/os` and "
        "`kubernetes.io/arch`. What is asked by others is not asked in the target.",
    )
    images: list[ImagePart] = Field(
        default_factory=list, description="Images that are pulled from elsewhere; the first counts."
    )
    denied_labels: Annotated[list[ListedKey], Says("list of keys and of prefixes with a `/`")] = (
        Field(default_factory=list, description="Labels of pods that do not travel.")
    )
    denied_annotations: Annotated[
        list[ListedKey], Says("list of keys and of prefixes with a `/`")
    ] = Field(default_factory=list, description="Annotations of pods that do not travel.")
    allowed_metadata: Annotated[
        list[ListedKey], Says("list of keys and of prefixes with a `/`")
    ] = Field(
        default_factory=list,
        description="Labels and annotations that travel though federate's own list keeps them "
        "back (docs/policy.md has it).",
    )
    namespaces: Annotated[list[NamePattern], Says("list of namespaces, with `*` and `?`")] = Field(
        default_factory=list,
        description="Hub namespaces whose pods may run there. Without it all.",
    )
    on_refusal: Annotated[OnRefusal, one_of(OnRefusal)] = Field(
        default=OnRefusal.PENDING,
        description="What becomes of a pod that is refused. `fail`: it fails, one of an owner's in "
        "each back-off (10 s to 5 min), so that the owner tries elsewhere.",
    )
    daemon_sets: Annotated[DaemonSetMode, one_of(DaemonSetMode)] = Field(
        default=DaemonSetMode.PENDING,
        description="What becomes of DaemonSets' pods. `pretend`: they say Ready and run nowhere, "
        "so that roll-outs go on. `mirror`: they are mirrored like others.",
    )


def policy_rules(part: PolicyPart) -> PolicyRules:
    """Turn the part into rules."""
    fields = {field.alias: name for name, field in PolicyPart.model_fields.items()}
    outcomes = {key: getattr(part, fields[key]) for key in TOPIC_OF}
    return PolicyRules(
        outcomes={k: word for k, word in outcomes.items() if word is not TOPIC_OF[k].default},
        capabilities=_given(part.allowed_capabilities, BASELINE_CAPABILITIES),
        sysctls=_given(part.allowed_sysctls, BASELINE_SYSCTLS),
        devices=frozenset(part.allowed_devices),
        toleration_keys=tuple(part.allowed_tolerations),
        runtime_classes=part.runtime_classes,
        priority_classes=part.priority_classes,
        schedulers=part.schedulers,
        node_keys={**COMMON_NODE_KEYS, **part.node_keys},
        images=tuple(ImageRewrite(before=i.before, after=i.after) for i in part.images),
        denied_labels=tuple(part.denied_labels),
        denied_annotations=tuple(part.denied_annotations),
        allowed_metadata=tuple(part.allowed_metadata),
        namespaces=tuple(part.namespaces),
        on_refusal=part.on_refusal,
        daemon_sets=part.daemon_sets,
    )


def _given(names: list[str] | None, otherwise: frozenset[str]) -> frozenset[str]:
    return otherwise if names is None else frozenset(names)

"""The table of what a pod may ask for, with its default outcome and how it is found. Pure.

One table for judging, stripping, the configuration's keys, the reference page and the PodSecurity
level, so that none of them can forget a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from federate.model.objects import JsonDict, JsonObject
from federate.policy import confinement, hostside, naming, placing
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.spots import Spot

Find: TypeAlias = Callable[[JsonObject, PolicyRules], Iterator[Spot]]
Strip: TypeAlias = Callable[[JsonDict, PolicyRules], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Something a pod may ask for.

    `strip` takes out of a copy, in place, all that `find` finds, and what needs it.
    """

    key: str
    """Its name in the configuration, below `policy`."""
    what: str
    """What it covers, for the reference page."""
    stripped: str
    """What a mirror is without it, for the reference page."""
    find: Find
    strip: Strip
    default: Outcome = Outcome.REFUSE
    is_baseline: bool = True
    """PodSecurity `baseline` refuses it too."""

    def outcome(self, rules: PolicyRules) -> Outcome:
        """Say what becomes of it in a target."""
        return rules.outcomes.get(self.key, self.default)


APPARMOR = "appArmor"
SECCOMP = "seccomp"
TOLERATIONS = "tolerations"
DEVICES = "devices"
STORAGE_VOLUMES = "storageVolumes"

TOPICS: tuple[Topic, ...] = (
    Topic(
        key="hostNetwork",
        what="`hostNetwork`",
        stripped="it has a network of its own, and no host ports",
        find=hostside.find_host_network,
        strip=hostside.strip_host_network,
    ),
    Topic(
        key="hostPID",
        what="`hostPID`",
        stripped="it sees its own processes",
        find=hostside.find_host_pid,
        strip=hostside.strip_host_pid,
    ),
    Topic(
        key="hostIPC",
        what="`hostIPC`",
        stripped="it has shared memory of its own",
        find=hostside.find_host_ipc,
        strip=hostside.strip_host_ipc,
    ),
    Topic(
        key="hostPath",
        what="volumes of kind `hostPath`",
        stripped="an empty folder (`emptyDir`) is in its place",
        find=hostside.find_host_paths,
        strip=hostside.strip_host_paths,
    ),
    Topic(
        key=STORAGE_VOLUMES,
        what="volumes of kinds that a node mounts from elsewhere (`nfs`, `iscsi`, `rbd`, "
        "`awsElasticBlockStore`, `azureFile`, `gitRepo`, …)",
        stripped="an empty folder (`emptyDir`) is in its place",
        find=hostside.find_storage_volumes,
        strip=hostside.strip_storage_volumes,
        is_baseline=False,
    ),
    Topic(
        key="hostPorts",
        what="`hostPort` of a container's ports (with `hostNetwork` they are part of that)",
        stripped="the port is the container's alone",
        find=hostside.find_host_ports,
        strip=hostside.strip_host_ports,
    ),
    Topic(
        key="hostProbes",
        what="`host` in probes and lifecycle hooks (`httpGet`, `tcpSocket`)",
        stripped="the kubelet calls the pod itself",
        find=hostside.find_host_probes,
        strip=hostside.strip_host_probes,
    ),
    Topic(
        key="hostProcess",
        what="`windowsOptions.hostProcess`",
        stripped="it runs in a container",
        find=hostside.find_host_process,
        strip=hostside.strip_host_process,
    ),
    Topic(
        key="privileged",
        what="`privileged` containers",
        stripped="it runs as others; mounts are not passed on to the node",
        find=confinement.find_privileged,
        strip=confinement.strip_privileged,
    ),
    Topic(
        key="capabilities",
        what="`capabilities.add`, but for those in `policy.allowedCapabilities`",
        stripped="it has those of the list alone",
        find=confinement.find_capabilities,
        strip=confinement.strip_capabilities,
    ),
    Topic(
        key="sysctls",
        what="`sysctls`, but for those in `policy.allowedSysctls`",
        stripped="those of the list alone are set",
        find=confinement.find_sysctls,
        strip=confinement.strip_sysctls,
    ),
    Topic(
        key="procMount",
        what="`procMount` other than `Default`, but with `hostUsers: false`",
        stripped="`/proc` is masked as for others",
        find=confinement.find_proc_mounts,
        strip=confinement.strip_proc_mounts,
    ),
    Topic(
        key="seLinux",
        what="`seLinuxOptions`: `user`, `role`, and a `type` that is no container's",
        stripped="the node decides; `level` stays",
        find=confinement.find_selinux,
        strip=confinement.strip_selinux,
    ),
    Topic(
        key=APPARMOR,
        what="`appArmorProfile` other than `RuntimeDefault` and `Localhost`, and annotations",
        stripped="the container runtime decides",
        find=confinement.find_apparmor,
        strip=confinement.strip_apparmor,
    ),
    Topic(
        key=SECCOMP,
        what="`seccompProfile` other than `RuntimeDefault` and `Localhost`",
        stripped="the kubelet decides",
        find=confinement.find_seccomp,
        strip=confinement.strip_seccomp,
    ),
    Topic(
        key=DEVICES,
        what="extended resources (`nvidia.com/gpu`), but for those in `policy.allowedDevices`",
        stripped="it asks for the rest",
        find=hostside.find_devices,
        strip=hostside.strip_devices,
        default=Outcome.ALLOW,
        is_baseline=False,
    ),
    Topic(
        key="deviceClasses",
        what="devices by the name of a class (`deviceclass.resource.kubernetes.io/gpu`), but for "
        "those in `policy.allowedDevices`",
        stripped="it asks for the rest",
        find=hostside.find_device_classes,
        strip=hostside.strip_device_classes,
        is_baseline=False,
    ),
    Topic(
        key="otherNamespaces",
        what="`namespaces` and `namespaceSelector` in pod affinity and anti-affinity, but for the "
        "pod's own",
        stripped="it keeps away from pods of its own namespace alone; affinity to others is not "
        "asked for",
        find=placing.find_other_namespaces,
        strip=placing.strip_other_namespaces,
        default=Outcome.STRIP,
        is_baseline=False,
    ),
    Topic(
        key=TOLERATIONS,
        what="`tolerations`, but for those in `policy.allowedTolerations`",
        stripped="it runs on nodes without such taints",
        find=placing.find_tolerations,
        strip=placing.strip_tolerations,
        default=Outcome.ALLOW,
        is_baseline=False,
    ),
    Topic(
        key="runtimeClass",
        what="`runtimeClassName`, but for those in `policy.runtimeClasses`",
        stripped="the target's default",
        find=naming.find_runtime_class,
        strip=naming.strip_runtime_class,
        default=Outcome.STRIP,
        is_baseline=False,
    ),
    Topic(
        key="priorityClass",
        what="`priorityClassName`, but for those in `policy.priorityClasses`",
        stripped="the target's default",
        find=naming.find_priority_class,
        strip=naming.strip_priority_class,
        default=Outcome.STRIP,
        is_baseline=False,
    ),
    Topic(
        key="scheduler",
        what="`schedulerName`, but for those in `policy.schedulers`",
        stripped="the target's default",
        find=naming.find_scheduler,
        strip=naming.strip_scheduler,
        default=Outcome.STRIP,
        is_baseline=False,
    ),
)

TOPIC_OF = {topic.key: topic for topic in TOPICS}

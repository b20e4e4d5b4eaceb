"""What a pod asks for to be less confined than others: the securityContexts. Pure.

Each pair finds something and takes it out again, as in `hostside`. Values that are not known to be
harmless are found, so that those of a newer Kubernetes are.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from federate.model.objects import JsonDict, JsonObject
from federate.policy.rules import PolicyRules
from federate.policy.spots import (
    Spot,
    container_contexts_in,
    context_path,
    contexts_in,
    drop_in,
    own_containers,
    own_holders,
)

CONTAINER_SELINUX_TYPES = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
"""What a container has anyway, or less; the last is known from 1.31."""
CONFINING_PROFILES = frozenset({"RuntimeDefault", "Localhost"})
APPARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_PREFIXES = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
"""API servers before 1.27 read them; later ones read nothing but the fields."""
APPARMOR_WORDS = frozenset({"", "runtime/default"})
SECCOMP_WORDS = frozenset({"docker/default", "runtime/default"})
LOCAL_PREFIX = "localhost/"


# -- rights ----------------------------------------------------------------------------------------


def find_privileged(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find containers that have all rights on their node."""
    for listed, context in container_contexts_in(spec):
        if context.get("privileged"):
            yield Spot(context_path(listed, "privileged"), "a privileged container")


def strip_privileged(spec: JsonDict, _rules: PolicyRules) -> None:
    """Run it as others; mounts that only a privileged container may pass on to its node are not."""
    for container in own_containers(spec):
        if (container.get("securityContext") or {}).get("privileged"):
            drop_in(container, "securityContext", "privileged")
            for mount in container.get("volumeMounts") or ():
                if mount.get("mountPropagation") == "Bidirectional":
                    del mount["mountPropagation"]


def find_capabilities(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find capabilities beyond those on the list, by their very spelling."""
    for listed, context in container_contexts_in(spec):
        for name in (context.get("capabilities") or {}).get("add") or ():
            if name not in rules.capabilities:
                path = context_path(listed, "capabilities.add")
                yield Spot(path, f"the capability {name}")


def strip_capabilities(spec: JsonDict, rules: PolicyRules) -> None:
    """Add those on the list alone; what is dropped stays dropped."""
    for container in own_containers(spec):
        capabilities = (container.get("securityContext") or {}).get("capabilities") or {}
        added = capabilities.get("add") or ()
        kept = [name for name in added if name in rules.capabilities]
        if len(kept) == len(added):
            continue
        capabilities["add"] = kept
        if not kept:
            drop_in(container, "securityContext", "capabilities", "add")


def find_sysctls(spec: JsonObject, rules: PolicyRules) -> Iterator[Spot]:
    """Find kernel settings beyond those on the list, by their very spelling."""
    for sysctl in (spec.get("securityContext") or {}).get("sysctls") or ():
        name = sysctl.get("name", "")
        if name not in rules.sysctls:
            yield Spot("spec.securityContext.sysctls", f"the kernel setting {name}")


def strip_sysctls(spec: JsonDict, rules: PolicyRules) -> None:
    """Set those on the list alone."""
    context = spec.get("securityContext") or {}
    kept = [s for s in context.get("sysctls") or () if s.get("name", "") in rules.sysctls]
    if kept:
        context["sysctls"] = kept
    else:
        drop_in(spec, "securityContext", "sysctls")


def find_proc_mounts(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find containers that see all of `/proc`; harmless where root there is nobody on the node."""
    if spec.get("hostUsers") is False:
        return
    for listed, context in container_contexts_in(spec):
        kind = context.get("procMount")
        if kind is not None and kind != "Default":
            yield Spot(context_path(listed, "procMount"), f"the /proc mount {kind}")


def strip_proc_mounts(spec: JsonDict, _rules: PolicyRules) -> None:
    """Mask what others have masked."""
    for container in own_containers(spec):
        if (container.get("securityContext") or {}).get("procMount") not in (None, "Default"):
            drop_in(container, "securityContext", "procMount")


# -- profiles --------------------------------------------------------------------------------------


def find_selinux(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find SELinux users, roles and types that no container has by itself."""
    for listed, context in contexts_in(spec):
        options: Mapping[str, str] = context.get("seLinuxOptions") or {}
        for field in _foreign_selinux(options):
            path = context_path(listed, f"seLinuxOptions.{field}")
            yield Spot(path, f"the SELinux {field} {options[field]}")


def strip_selinux(spec: JsonDict, _rules: PolicyRules) -> None:
    """Leave user, role and type to the node; a level stays."""
    for holder in own_holders(spec):
        options = (holder.get("securityContext") or {}).get("seLinuxOptions") or {}
        for field in _foreign_selinux(options):
            drop_in(holder, "securityContext", "seLinuxOptions", field)


def _foreign_selinux(options: Mapping[str, str]) -> tuple[str, ...]:
    found = [field for field in ("user", "role") if options.get(field)]
    if (options.get("type") or "") not in CONTAINER_SELINUX_TYPES:
        found.append("type")
    return tuple(found)


def find_apparmor(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find AppArmor profiles that confine nothing; annotations are another matter."""
    yield from _find_profiles(spec, "appArmorProfile", "AppArmor")


def find_apparmor_annotations(annotations: Mapping[str, str]) -> Iterator[Spot]:
    """Find the same in annotations, which API servers still read."""
    for key, value in annotations.items():
        if is_apparmor_loose(key, value):
            yield Spot(f"metadata.annotations[{key}]", f"the AppArmor profile {value}")


def strip_apparmor(spec: JsonDict, _rules: PolicyRules) -> None:
    """Leave the profile to the container runtime."""
    _strip_profiles(spec, "appArmorProfile")


def find_seccomp(spec: JsonObject, _rules: PolicyRules) -> Iterator[Spot]:
    """Find seccomp profiles that confine nothing."""
    yield from _find_profiles(spec, "seccompProfile", "seccomp")


def strip_seccomp(spec: JsonDict, _rules: PolicyRules) -> None:
    """Leave the profile to the kubelet."""
    _strip_profiles(spec, "seccompProfile")


def is_apparmor_loose(key: str, value: str) -> bool:
    """Tell whether an annotation asks for an AppArmor profile that confines nothing."""
    return key.startswith(APPARMOR_PREFIX) and not _confines(value, APPARMOR_WORDS)


def is_seccomp_loose(key: str, value: str) -> bool:
    """Tell whether an annotation asks for a seccomp profile that confines nothing."""
    return key.startswith(SECCOMP_PREFIXES) and not _confines(value, SECCOMP_WORDS)


def _confines(value: str, words: Container[str]) -> bool:
    return value in words or value.startswith(LOCAL_PREFIX)


def _find_profiles(spec: JsonObject, field: str, name: str) -> Iterator[Spot]:
    for listed, context in contexts_in(spec):
        profile = context.get(field)
        if profile is not None and profile.get("type") not in CONFINING_PROFILES:
            path = context_path(listed, f"{field}.type")
            yield Spot(path, f"the {name} profile {profile.get('type', '')}")


def _strip_profiles(spec: JsonDict, field: str) -> None:
    for holder in own_holders(spec):
        profile = (holder.get("securityContext") or {}).get(field)
        if profile is not None and profile.get("type") not in CONFINING_PROFILES:
            drop_in(holder, "securityContext", field)

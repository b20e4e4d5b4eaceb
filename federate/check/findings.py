"""What `federate check` may find, as values: one id each, with its weight. Pure.

docs/operations.md has a row for every id (a test compares).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding matters; only `fail` makes the command fail."""

    NOTE = "note"
    """Good to know, or not to be known."""
    WARN = "warn"
    """federate works, something beside it may not."""
    FAIL = "fail"
    """federate does not work."""


class FindingId(StrEnum):
    """Every finding there is."""

    KUBECONFIG_UNUSABLE = "KubeconfigUnusable"
    NAME_NOT_RESOLVED = "NameNotResolved"
    CONNECTION_FAILED = "ConnectionFailed"
    LOOPBACK_ADDRESS = "LoopbackAddress"
    TLS_FAILED = "TlsFailed"
    NO_HTTP_ANSWER = "NoHttpAnswer"
    TLS_NOT_VERIFIED = "TlsNotVerified"
    SERVER_CERTIFICATE_EXPIRES = "ServerCertificateExpires"
    CREDENTIALS_EXPIRE = "CredentialsExpire"
    CREDENTIALS_EXPIRED = "CredentialsExpired"
    CLOCK_SKEW = "ClockSkew"
    CLOCK_UNKNOWN = "ClockUnknown"
    NOT_AUTHENTICATED = "NotAuthenticated"
    VERSION_UNKNOWN = "VersionUnknown"
    TARGET_TOO_OLD = "TargetTooOld"
    VERSION_SKEW = "VersionSkew"
    HUB_IDENTITY_UNREADABLE = "HubIdentityUnreadable"
    TARGET_IDENTITY_UNKNOWN = "TargetIdentityUnknown"
    TARGET_IS_HUB = "TargetIsHub"
    TARGET_CHANGED = "TargetChanged"
    RIGHT_MISSING = "RightMissing"
    OPTIONAL_RIGHT_MISSING = "OptionalRightMissing"
    RIGHTS_UNKNOWN = "RightsUnknown"
    STRANGERS_NODE = "StrangersNode"
    NO_LEADER = "NoLeader"
    RANGES_OVERLAP = "RangesOverlap"
    RANGES_UNKNOWN = "RangesUnknown"
    DAEMONSET_TOLERATES_NODE = "DaemonSetToleratesNode"
    DAEMONSET_PRETENDED = "DaemonSetPretended"
    DAEMONSET_MIRRORED = "DaemonSetMirrored"
    NODE_NOT_TAINTED = "NodeNotTainted"
    BUDGET_COUNTS_MIRRORS = "BudgetCountsMirrors"
    SERVICE_SELECTS_MIRRORS = "ServiceSelectsMirrors"
    STORAGE_CLASS_UNFIT = "StorageClassUnfit"
    POD_SECURITY_STRICT = "PodSecurityStrict"
    NAMESPACE_NOT_USABLE = "NamespaceNotUsable"
    KUBELET_UNREACHABLE = "KubeletUnreachable"
    KUBELET_TUNNELLED = "KubeletTunnelled"
    KUBELET_MAY_BE_TUNNELLED = "KubeletMayBeTunnelled"
    KUBELET_NOT_BELIEVED = "KubeletNotBelieved"
    KUBELET_REFUSES = "KubeletRefuses"
    KUBELET_DEGRADED = "KubeletDegraded"
    KUBELET_CERTIFICATE_PENDING = "KubeletCertificatePending"
    HUB_ADDRESS_UNREACHABLE = "HubAddressUnreachable"
    HUB_ADDRESS_NOT_BELIEVED = "HubAddressNotBelieved"
    HUB_NAMES_NOT_BELIEVED = "HubNamesNotBelieved"
    TARGET_ACCOUNT_MISSING = "TargetAccountMissing"
    TARGET_ACCOUNT_RESTRICTED = "TargetAccountRestricted"
    TARGET_ACCOUNT_MOUNTED = "TargetAccountMounted"
    NOT_READABLE = "NotReadable"
    STEP_TIMED_OUT = "StepTimedOut"
    STEP_FAILED = "StepFailed"


NOTES = frozenset(
    {
        FindingId.CLOCK_UNKNOWN,
        FindingId.TARGET_IDENTITY_UNKNOWN,
        FindingId.OPTIONAL_RIGHT_MISSING,
        FindingId.NO_LEADER,
        FindingId.RANGES_UNKNOWN,
        FindingId.DAEMONSET_PRETENDED,
        FindingId.DAEMONSET_MIRRORED,
        FindingId.NODE_NOT_TAINTED,
        FindingId.KUBELET_MAY_BE_TUNNELLED,
        FindingId.KUBELET_CERTIFICATE_PENDING,
        FindingId.TARGET_ACCOUNT_MOUNTED,
        FindingId.NOT_READABLE,
    }
)

WARNINGS = frozenset(
    {
        FindingId.LOOPBACK_ADDRESS,
        FindingId.TLS_NOT_VERIFIED,
        FindingId.SERVER_CERTIFICATE_EXPIRES,
        FindingId.CREDENTIALS_EXPIRE,
        FindingId.CLOCK_SKEW,
        FindingId.VERSION_UNKNOWN,
        FindingId.VERSION_SKEW,
        FindingId.RIGHTS_UNKNOWN,
        FindingId.RANGES_OVERLAP,
        FindingId.DAEMONSET_TOLERATES_NODE,
        FindingId.BUDGET_COUNTS_MIRRORS,
        FindingId.SERVICE_SELECTS_MIRRORS,
        FindingId.STORAGE_CLASS_UNFIT,
        FindingId.POD_SECURITY_STRICT,
        FindingId.KUBELET_UNREACHABLE,
        FindingId.KUBELET_TUNNELLED,
        FindingId.KUBELET_NOT_BELIEVED,
        FindingId.KUBELET_REFUSES,
        FindingId.KUBELET_DEGRADED,
        FindingId.HUB_ADDRESS_UNREACHABLE,
        FindingId.HUB_ADDRESS_NOT_BELIEVED,
        FindingId.HUB_NAMES_NOT_BELIEVED,
        FindingId.TARGET_ACCOUNT_MISSING,
        FindingId.TARGET_ACCOUNT_RESTRICTED,
    }
)


def severity_of(found: FindingId) -> Severity:
    """Return how much a finding matters; what is neither note nor warning stops work."""
    if found in NOTES:
        return Severity.NOTE
    return Severity.WARN if found in WARNINGS else Severity.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be: what it is, and what to do about it."""

    id: FindingId
    what: str
    fix: str

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return severity_of(self.id)

    def as_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        return {"severity": str(self.severity), **asdict(self)}


class Status(StrEnum):
    """How a step ended."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One step at one end: what was learnt in a few words, and what is wrong."""

    end: str
    """`hub`, or the target's name."""
    step: str
    said: str = ""
    findings: tuple[Finding, ...] = ()
    is_skipped: bool = False

    @property
    def status(self) -> Status:
        """The worst of its findings."""
        if self.is_skipped:
            return Status.SKIP
        weights = {finding.severity for finding in self.findings}
        for severity in (Severity.FAIL, Severity.WARN, Severity.NOTE):
            if severity in weights:
                return Status(severity)
        return Status.OK

    def as_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        return {
            "end": self.end,
            "step": self.step,
            "status": str(self.status),
            "said": self.said,
            "findings": [finding.as_json() for finding in self.findings],
        }

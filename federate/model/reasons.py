"""Every reason an operator acts on, registered once: in pod statuses, conditions and Events.

They are public surface: a renamed reason breaks somebody's alert. docs/operations.md says of each
what it means and what to do; a test keeps the two together.
"""

from __future__ import annotations

from enum import StrEnum


class PodReason(StrEnum):
    """Why a hub pod waits, or how it ended."""

    # no mirror is made
    MIRROR_OF_MIRROR = "MirrorOfMirror"
    DAEMONSET_NOT_MIRRORED = "DaemonSetNotMirrored"
    SYSTEM_NAMESPACE_REFUSED = "SystemNamespaceRefused"
    NAMESPACE_NOT_MAPPED = "NamespaceNotMapped"
    POLICY_REFUSED = "PolicyRefused"
    NOT_RUN_HERE = "NotRunHere"
    COMPANION_MISSING = "CompanionMissing"
    COMPANION_UNREADABLE = "CompanionUnreadable"
    COMPANION_TOO_LARGE = "CompanionTooLarge"
    NETWORK_POLICY_NOT_ENFORCED = "NetworkPolicyNotEnforced"
    NETWORK_POLICIES_UNKNOWN = "NetworkPoliciesUnknown"
    CLAIM_REFUSED = "ClaimRefused"
    VOLUME_REFUSED = "VolumeRefused"
    CLAIM_LOST = "ClaimLost"
    UNINSTALLED = "Uninstalled"
    NODE_LEAVING = "NodeLeaving"
    NAME_TAKEN = "NameTaken"
    NODE_PORTS = "NodePorts"
    MARKS_REMOVED = "MarksRemoved"
    MIRROR_OUT_OF_SIGHT = "MirrorOutOfSight"
    # not yet
    PREDECESSOR_TERMINATING = "PredecessorTerminating"
    COMPANION_COMING = "CompanionComing"
    COMPANION_ENDING = "CompanionEnding"
    CLAIM_PENDING = "ClaimPending"
    TARGET_UNREACHABLE = "TargetUnreachable"
    TARGET_BUSY = "TargetBusy"
    TARGET_ERROR = "TargetError"
    NAMESPACE_MISSING = "NamespaceMissing"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    SERVICE_ACCOUNT_MISSING = "ServiceAccountMissing"
    # the target refuses
    COMPANION_REFUSED = "CompanionRefused"
    TOKEN_REFUSED = "TokenRefused"  # noqa: S105 (a reason)
    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_SECURITY_REFUSED = "PodSecurityRefused"
    LIMIT_RANGE_REFUSED = "LimitRangeRefused"
    ADMISSION_DENIED = "AdmissionDenied"
    ADMISSION_FAILED = "AdmissionFailed"
    CLASS_MISSING = "ClassMissing"
    FORBIDDEN = "Forbidden"
    MIRROR_INVALID = "MirrorInvalid"
    MIRROR_WEAKENED = "MirrorWeakened"
    # mirrored
    FIELDS_DROPPED = "FieldsDropped"
    UPDATE_REJECTED = "UpdateRejected"
    UPDATE_NOT_SUPPORTED = "UpdateNotSupported"
    TOKEN_OVERDUE = "TokenOverdue"  # noqa: S105 (a reason)
    HUB_NAMES_MISSING = "HubNamesMissing"
    MIRROR_UNSCHEDULABLE = "MirrorUnschedulable"
    TARGET_HAS_NO_NODES = "TargetHasNoNodes"
    TARGET_LACKS_ROOM = "TargetLacksRoom"
    TARGET_NODES_DO_NOT_MATCH = "TargetNodesDoNotMatch"
    TARGET_NODES_TAINTED = "TargetNodesTainted"
    DELETED_IN_TARGET = "DeletedInTarget"
    MIRROR_LOST = "MirrorLost"


class NodeReason(StrEnum):
    """Why a condition of the virtual node has its status."""

    READY = "FederateReady"
    UNINSTALLED = "Uninstalled"
    CAPACITY_UNKNOWN = "CapacityUnknown"
    COMPANIONS_LEFT = "CompanionsLeft"
    TARGET_ANSWERS = "TargetAnswers"
    TARGET_UNREACHABLE = "TargetUnreachable"
    TARGET_REFUSES = "TargetRefuses"
    TARGET_CHANGED = "TargetChanged"
    CREDENTIALS_VALID = "CredentialsValid"
    CREDENTIALS_EXPIRE_SOON = "CredentialsExpireSoon"
    CREDENTIALS_EXPIRED = "CredentialsExpired"
    DAEMONSETS_KEPT_OFF = "DaemonSetsKeptOff"
    DAEMONSETS_WAIT = "DaemonSetsWait"
    DAEMONSETS_PRETENDED = "DaemonSetsPretended"
    DAEMONSETS_MIRRORED = "DaemonSetsMirrored"
    ADDRESSES_CONFIGURED = "AddressesConfigured"
    RANGES_APART = "RangesApart"
    RANGES_OVERLAP = "RangesOverlap"
    RANGES_UNKNOWN = "RangesUnknown"
    RANGES_BEING_READ = "RangesBeingRead"
    KUBELET_SERVING = "KubeletServing"
    KUBELET_STARTING = "KubeletStarting"
    KUBELET_PORT_TAKEN = "KubeletPortTaken"
    KUBELET_FAILED = "KubeletFailed"
    KUBELET_CERTIFICATE_PENDING = "KubeletCertificatePending"
    KUBELET_CERTIFICATE_SELF_SIGNED = "KubeletCertificateSelfSigned"
    KUBELET_CERTIFICATE_DENIED = "KubeletCertificateDenied"
    KUBELET_CERTIFICATE_REFUSED = "KubeletCertificateRefused"
    KUBELET_CERTIFICATE_UNUSABLE = "KubeletCertificateUnusable"
    KUBELET_CLIENT_AUTHORITY_UNKNOWN = "KubeletClientAuthorityUnknown"

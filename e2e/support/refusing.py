"""Pods of which a target refuses each for a cause of its own, and those causes."""

from kubernetes.dynamic.exceptions import DynamicApiError

from .manifests import container, pod, pod_spec, quota
from .pods import name_of
from .witness import Json
from .world import Space

QUOTA = "no-pods"
"""What the quota is called."""

STRICT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What PodSecurity `restricted` asks for."""


def strict(node: str, *, more: Json | None = None, **fields: object) -> Json:
    """Render the spec of a pod that `restricted` takes; `fields` are its container's."""
    return pod_spec(node, containers=[container(securityContext=STRICT, **fields)], **(more or {}))


def asking(node: str) -> dict[str, tuple[Json, str, str]]:
    """Render pods of which each meets one refusal of the target; its reason and its words."""
    large = {"requests": {"cpu": "10m"}, "limits": {"cpu": "2"}}
    return {
        "counted": (
            pod("counted", strict(node, more={"activeDeadlineSeconds": 3600})),
            "QuotaExceeded",
            QUOTA,
        ),
        "large": (
            pod("large", strict(node, resources=large)),
            "LimitRangeRefused",
            "maximum cpu usage per Container is 1",
        ),
        "denied": (
            pod("denied", strict(node), labels={"app": "denied"}),
            "AdmissionDenied",
            "have no place here",
        ),
        "hooked": (
            pod("hooked", strict(node), labels={"app": "hooked"}),
            "AdmissionFailed",
            "failed calling webhook",
        ),
        "plain": (pod("plain", pod_spec(node)), "PodSecurityRefused", "runAsNonRoot"),
    }


def matching(namespace: str, app: str) -> Json:
    """Select new pods of an app in a namespace, for admission."""
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchLabels": {"app": app}},
    }


CREATED_PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
ADMISSION = "admissionregistration.k8s.io/v1"


def causes(namespace: str) -> list[Json]:
    """Render what makes the target refuse those pods: some stand beside its namespace."""
    deadline = quota(QUOTA, pods="0")
    deadline["spec"]["scopes"] = ["Terminating"]
    default = {"cpu": "10m"}
    limit = {"type": "Container", "max": {"cpu": "1"}, "default": default}
    return [
        deadline,
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small"},
            "spec": {"limits": [{**limit, "defaultRequest": default}]},
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": namespace},
            "spec": {
                "matchConstraints": {
                    **matching(namespace, "denied"),
                    "resourceRules": [CREATED_PODS],
                },
                "validations": [
                    {"expression": "false", "message": "pods of this app have no place here"}
                ],
            },
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": namespace},
            "spec": {"policyName": namespace, "validationActions": ["Deny"]},
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [
                {
                    "name": "away.example.com",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "timeoutSeconds": 1,
                    "clientConfig": {"url": "https://127.0.0.1:9/"},
                    "rules": [CREATED_PODS],
                    **matching(namespace, "hooked"),
                }
            ],
        },
    ]


def namespace_of(cause: Json, namespace: str) -> str:
    return "" if cause["apiVersion"] == ADMISSION else namespace


def wait_refused(space: Space, body: Json) -> None:
    """Wait until the target's admission does not take such a pod."""

    def refuses() -> bool:
        try:
            space.target.create(body, space.target_namespace)
        except DynamicApiError:
            return True
        space.target.delete("Pod", space.target_namespace, name_of(body), grace_seconds=0)
        return False

    space.wait(f"the target refuses {name_of(body)}", refuses)

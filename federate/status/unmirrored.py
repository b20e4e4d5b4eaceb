"""Status of hub pods that by policy have no mirror, and are not to wait for one. Pure.

They are the exceptions to "nothing is invented", each asked for by the target's operator.
"""

from __future__ import annotations

from federate.model.objects import JsonDict, JsonObject
from federate.status.project import keep_transition_time, waiting_status


def failed_status(hub_pod: JsonObject, *, reason: str, message: str, now: str) -> JsonDict:
    """Status of a refused pod that fails instead of waiting, so that its owner tries elsewhere.

    No container has a status: none ran, as when a kubelet does not admit a pod.
    """
    waiting = waiting_status(hub_pod, reason=reason, message=message, now=now)
    return {**waiting, "phase": "Failed"}


def pretended_status(hub_pod: JsonObject, *, reason: str, message: str, now: str) -> JsonDict:
    """Status of a DaemonSet's pod that runs nowhere, and does not hold up its DaemonSet (C26).

    The DaemonSet controller looks at the Ready condition and since when it stands; `kubectl get
    pods` shows `reason`. The phase is one that no alert takes for a pod that hangs.
    """
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    return {
        "phase": "Running",
        "reason": reason,
        "message": message,
        "conditions": [keep_transition_time(ready, hub_pod)],
    }

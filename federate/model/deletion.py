"""Read a delete's reply: is the object gone, or merely asked to go? Pure."""

from __future__ import annotations

from federate.model.objects import JsonObject, metadata_of


def is_really_gone(reply: JsonObject) -> bool:
    """Tell whether the reply to a delete shows the object's last state.

    A pod with a grace left, or any object with a finalizer, is still there. An API server answers a
    real removal with the object (pods) or a `Status` (`k8s.io/apiserver` registry/rest/delete.go).
    """
    if reply.get("kind") == "Status":
        return reply.get("status") == "Success"
    meta = metadata_of(reply)
    if meta.get("finalizers"):
        return False
    return not (meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds"))

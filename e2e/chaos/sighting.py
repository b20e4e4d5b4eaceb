"""One version of one pod as the witness saw it, and what the judge reads from it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.support.pods import condition_of, hub_pod_uid_of, is_ready, labels_of
from e2e.support.witness import Json

from .plan import Side

GATE = "federate.dev/recorded"
"""A mirror with it is not on record yet: no node may have it, so it has not run."""

TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One watch event about a pod; `at` is on the monotonic clock, when it was read."""

    at: float
    side: Side
    event: str
    """ADDED, MODIFIED or DELETED."""
    namespace: str
    name: str
    uid: str
    version: str
    phase: str
    reason: str = ""
    node: str = ""
    is_gated: bool = False
    is_terminating: bool = False
    grace_seconds: int | None = None
    is_ready: bool = False
    is_collected: bool = False
    """The cluster's own pod collector fails and removes it, because its node was gone too long."""
    runs_once: bool = True
    origin: str = ""
    """Uid of the hub pod a mirror stands for, by its label."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Tell whether the object was removed."""
        return self.event == "DELETED"

    @property
    def is_over(self) -> bool:
        """Tell whether nothing of the pod runs any more, or ever will."""
        return self.is_gone or self.phase in TERMINAL

    def words(self) -> str:
        """Say it in one line of a history."""
        parts = [f"{self.side:6} {self.event:8} v{self.version} {self.phase or '-'}"]
        parts += [f"on {self.node}"] if self.node else []
        parts += ["ready"] if self.is_ready else []
        parts += ["gated"] if self.is_gated else []
        parts += ["collected"] if self.is_collected else []
        parts += [f"reason={self.reason}"] if self.reason else []
        parts += [f"terminating grace={self.grace_seconds}"] if self.is_terminating else []
        parts += [f"uid={self.uid}"]
        return " ".join(parts)


def read_sighting(side: Side, event: str, pod: Json, at: float) -> Sighting:
    """Read a watch event's object."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    return Sighting(
        at=at,
        side=side,
        event=event,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        node=spec.get("nodeName", ""),
        is_gated=any(gate["name"] == GATE for gate in spec.get("schedulingGates") or ()),
        is_terminating="deletionTimestamp" in metadata,
        grace_seconds=metadata.get("deletionGracePeriodSeconds"),
        is_ready=is_ready(pod),
        is_collected=condition_of(pod, "DisruptionTarget").get("reason") == "DeletionByPodGC",
        runs_once=spec.get("restartPolicy", "Always") != "Always",
        origin=hub_pod_uid_of(pod) if side is Side.TARGET else "",
        labels=labels_of(pod),
    )

"""Who owns which kind cluster: a labelled Docker volume for each, made before the cluster.

kind lets nobody label its containers. A volume is there before the first container and goes after
the last, so a run that is killed at any moment leaves a claim by which the next start finds
everything.
"""

import time
from collections import defaultdict
from dataclasses import dataclass

from .docker import CLUSTER_LABEL, OWNER_LABEL, Docker, Owner

VOLUME_PREFIX = "federate-claim."
KIND_LABEL = "io.x-k8s.kind.cluster"
CLAIMED_AT_LABEL = "federate.dev/claimed-at"

SETTLED_SECONDS = 3600.0
"""How long after a claim a container of a dead owner may still come.

Claims are made before kind pulls its image, which can take most of an hour, and a daemon finishes
what a dead client asked for. Until then a dead owner's claim costs an empty volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One owner's word that a cluster is his."""

    volume: str
    cluster: str
    owner: Owner | None
    claimed_at: float
    """Seconds since the epoch."""

    @property
    def is_settled(self) -> bool:
        """Tell whether a container that its owner asked for would be there by now."""
        return time.time() - self.claimed_at > SETTLED_SECONDS


class Claims:
    """All claims that one Docker daemon knows of."""

    def __init__(self, docker: Docker) -> None:
        self._docker = docker

    def make(self, cluster: str, owner: Owner) -> None:
        """Claim a cluster, before it is created; again does no harm."""
        self._docker.run(
            *("volume", "create"),
            *("--label", f"{CLUSTER_LABEL}={cluster}"),
            *("--label", f"{OWNER_LABEL}={owner.format()}"),
            *("--label", f"{CLAIMED_AT_LABEL}={time.time():.0f}"),
            f"{VOLUME_PREFIX}{cluster}.{'process' if owner.process else 'kept'}",
        )

    def hand_over(self, cluster: str, owner: Owner) -> None:
        """Let a cluster belong to that owner, and no longer to any other."""
        self.make(cluster, owner)
        for claim in self.all():
            if claim.cluster == cluster and claim.owner != owner:
                self._remove_volume(claim.volume)

    def drop(self, cluster: str) -> None:
        """Forget a cluster that is gone."""
        for claim in self.all():
            if claim.cluster == cluster:
                self._remove_volume(claim.volume)

    def drop_settled(self, cluster: str) -> None:
        """Forget a leftover that was deleted, unless a container of it may still be on its way."""
        for claim in self.all():
            if claim.cluster == cluster and claim.is_settled:
                self._remove_volume(claim.volume)

    def all(self) -> list[Claim]:
        """List all claims."""
        wanted = (CLUSTER_LABEL, OWNER_LABEL, CLAIMED_AT_LABEL)
        labels = (f'{{{{.Label "{label}"}}}}' for label in wanted)
        template = "\t".join(("{{.Name}}", *labels))
        rows = self._docker.lines(
            "volume", "ls", "--filter", f"label={OWNER_LABEL}", "--format", template
        )
        parts = [row.split("\t") for row in rows]
        return [
            Claim(
                volume=volume,
                cluster=cluster,
                owner=Owner.parse(owner),
                claimed_at=float(claimed_at or 0),
            )
            for volume, cluster, owner, claimed_at in parts
        ]

    def owned_by(self, owner: Owner) -> list[str]:
        """Name the clusters of an owner."""
        return sorted({claim.cluster for claim in self.all() if claim.owner == owner})

    def leftovers(self) -> list[str]:
        """Name the clusters that all of their owners left for good."""
        owners: dict[str, list[Owner | None]] = defaultdict(list)
        for claim in self.all():
            owners[claim.cluster].append(claim.owner)
        return [
            cluster
            for cluster, claimants in owners.items()
            if all(owner is not None and owner.is_surely_dead for owner in claimants)
        ]

    def _remove_volume(self, volume: str) -> None:
        self._docker.run("volume", "rm", "--force", volume)

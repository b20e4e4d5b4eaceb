"""Which claims a pod's volumes need, and which volumes a target does not lend. Pure.

A pod's generic ephemeral volume is a claim too: the hub's own controller makes it, with the pod as
its owner, and the scheduler waits for its volume as for any other. So the mirror names the claim
that stands for it; were the template to travel, a second one would be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from federate.claims.rules import ClaimRules
from federate.companions.steps import Blocked
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    controller_of,
    copied,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.reasons import PodReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimUse:
    """A volume of a pod that is a claim of the hub."""

    volume: str
    claim: ObjectKey
    owner_uid: str = ""
    """Of an ephemeral volume: the pod that must be the claim's owner."""

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {self.claim}"

    def fits(self, claim: JsonObject) -> bool:
        """Tell whether the claim that has the name is the one that is meant.

        A claim that somebody else made under the name of an ephemeral one is not the pod's.
        """
        owner = controller_of(claim) or {}
        return not self.owner_uid or owner.get("uid") == self.owner_uid


def claims_used(hub_pod: JsonObject) -> tuple[ClaimUse, ...]:
    """List the volumes of a hub pod that are claims, in the pod's order."""
    return tuple(_uses(hub_pod))


def _uses(hub_pod: JsonObject) -> Iterator[ClaimUse]:
    pod = key_of(hub_pod)
    for volume in spec_of(hub_pod).get("volumes") or ():
        name = str(volume.get("name", ""))
        source = volume.get("persistentVolumeClaim")
        if source is not None:
            claim = ObjectKey(pod.namespace, str(source.get("claimName", "")))
            yield ClaimUse(volume=name, claim=claim)
        elif volume.get("ephemeral") is not None:
            # The name that the controller gives it (pkg/controller/volume/ephemeral).
            claim = ObjectKey(pod.namespace, f"{pod.name}-{name}")
            yield ClaimUse(volume=name, claim=claim, owner_uid=uid_of(hub_pod))


def with_claims(spec: JsonObject, names: Mapping[str, str]) -> JsonDict:
    """Return a copy of a pod's spec whose volumes name the target's claims.

    `names` has one for each volume that is a claim, by the volume's name; another volume of that
    kind is a mistake of the caller: it would lead to what is not ours.
    """
    told: JsonDict = copied(spec)
    for volume in told.get("volumes") or ():
        source = volume.pop("ephemeral", None)
        claim = volume.get("persistentVolumeClaim")
        if claim is None and source is None:
            continue
        # Of an ephemeral volume nothing else is left to say: a claim of its own is read-write.
        name = names[str(volume.get("name", ""))]
        volume["persistentVolumeClaim"] = {**(claim or {}), "claimName": name}
    return told


def names_in_mirror(hub_pod: JsonObject, mirror: JsonObject) -> dict[str, str]:
    """Read how a mirror calls the claims of its hub pod; "" where it has none for a volume."""
    found = {
        str(volume.get("name", "")): str(volume["persistentVolumeClaim"].get("claimName", ""))
        for volume in spec_of(mirror).get("volumes") or ()
        if volume.get("persistentVolumeClaim") is not None
    }
    return {use.volume: found.get(use.volume, "") for use in claims_used(hub_pod)}


def volume_refusals(hub_pod: JsonObject, rules: ClaimRules, *, target_name: str) -> list[Blocked]:
    """Say what the target's rules refuse of a pod's volumes, whatever the clusters answer."""
    spec = spec_of(hub_pod)
    return [
        blocked
        for number, volume in enumerate(spec.get("volumes") or ())
        if (blocked := _refusal(f"spec.volumes[{number}]", volume, rules, target_name)) is not None
    ]


def _refusal(path: str, volume: JsonObject, rules: ClaimRules, target_name: str) -> Blocked | None:
    for field in ("persistentVolumeClaim", "ephemeral"):
        if volume.get(field) is not None and not rules.are_made:
            return Blocked(
                reason=PodReason.CLAIM_REFUSED,
                message=f"{path}.{field}: storage by claims is refused in {target_name} "
                "(volumes.claims: refuse); leave it out, or ask its operator for "
                "`volumes.claims: target`",
            )
    driver = str((volume.get("csi") or {}).get("driver", ""))
    if driver and driver not in rules.csi_drivers:
        return Blocked(
            reason=PodReason.VOLUME_REFUSED,
            message=f"{path}.csi: volumes of the driver {driver} are refused in {target_name} "
            "(volumes.csiDrivers); leave it out, or ask its operator",
        )
    return None

"""What a plan for a claim looks at, said in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from federate.claims.keys import claim_key, target_claim_name, volume_name
from federate.claims.protocol import class_of
from federate.claims.render import render_claim, render_storage_class, render_volume
from federate.claims.steps import ClaimView, Look, Seen, Sought, Users
from federate.companions.steps import Ground
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from tests.support.claimstage import RULES, hub_claim
from tests.support.scene import SCOPE, TARGET_NAMESPACE

KEY = claim_key(hub_claim())
PLACE = ObjectKey(TARGET_NAMESPACE, target_claim_name(SCOPE, KEY))
HUB_CLAIM = Look(Sought.HUB_CLAIM, KEY.hub_key)
VOLUME = Look(Sought.VOLUME, ObjectKey("", volume_name(KEY)))
HUB_CLASS = Look(Sought.HUB_CLASS, ObjectKey("", "fed"))
CLAIM = Look(Sought.CLAIM, PLACE)
TARGET_CLASS = Look(Sought.TARGET_CLASS, ObjectKey("", "fast"))
NOTHING = Seen()


def target_class(mode: str = "Immediate") -> Seen:
    return Seen(obj={"metadata": {"name": "fast"}, "volumeBindingMode": mode})


def hub_class(reclaim: str = "Retain") -> Seen:
    return Seen(obj=render_storage_class("fed", reclaim=reclaim))


def claim_there(
    *, phase: str = "Bound", size: str = "1Gi", of: JsonObject | None = None
) -> JsonDict:
    """The claim in the target, as its API server has it."""
    of = of or hub_claim()
    made = render_claim(
        KEY, of, scope=SCOPE, namespace=TARGET_NAMESPACE, target_class=RULES.storage_classes["fed"]
    )
    made["metadata"] |= {"uid": "uid-there", "resourceVersion": "3"}
    made["status"] = {"phase": phase}
    if phase == "Bound":
        made["spec"]["volumeName"] = "disk-1"
        made["status"]["capacity"] = {"storage": size}
    return made


def volume_of(
    claim: JsonObject | None = None, *, phase: str = "Bound", reclaim: str = "Retain"
) -> JsonDict:
    """The hub's volume for it."""
    made = render_volume(
        KEY,
        hub_claim(),
        claim or claim_there(),
        scope=SCOPE,
        target_name="berlin",
        reclaim=reclaim,
    )
    made["metadata"] |= {"uid": "uid-volume", "resourceVersion": "5"}
    made["status"] = {"phase": phase}
    return made


def bound_hub_claim(*, size: str = "1Gi", has: str = "1Gi") -> JsonDict:
    """The hub's claim, bound to that volume."""
    claim = hub_claim(volumeName=volume_name(KEY), resources={"requests": {"storage": size}})
    claim["status"] = {"phase": "Bound", "capacity": {"storage": has}}
    return claim


def view(seen: Mapping[Look, Seen], **fields: Any) -> ClaimView:
    """What is seen, with the ground there and a welcome pod that waits."""
    base = ClaimView(
        key=KEY,
        scope=SCOPE,
        rules=RULES,
        target_name="berlin",
        target_namespace=TARGET_NAMESPACE,
        volume_name=volume_name(KEY),
        ground=Ground.READY,
        seen=seen,
        users=Users.WELCOME,
    )
    return replace(base, **fields)


def asked(claim: JsonObject | None = None, **looks: Seen) -> dict[Look, Seen]:
    """All looks at a claim that is to be provisioned; `volume`, `there`... put another finding."""
    claim = claim or hub_claim()
    found = {
        HUB_CLAIM: Seen(obj=claim),
        VOLUME: NOTHING,
        Look(Sought.HUB_CLASS, ObjectKey("", class_of(claim))): hub_class(),
        TARGET_CLASS: target_class(),
        CLAIM: NOTHING,
    }
    names = {
        "volume": VOLUME,
        "hub_class": HUB_CLASS,
        "target_class": TARGET_CLASS,
        "there": CLAIM,
    }
    return found | {names[name]: seen for name, seen in looks.items()}


def led(
    claim: JsonObject | None = None,
    *,
    volume: JsonObject | None = None,
    there: JsonObject | None = None,
) -> dict[Look, Seen]:
    """All looks at a claim that is bound to a volume of ours."""
    return {
        HUB_CLAIM: Seen(obj=claim or bound_hub_claim()),
        VOLUME: Seen(obj=volume or volume_of()),
        CLAIM: Seen(obj=there or claim_there()),
    }

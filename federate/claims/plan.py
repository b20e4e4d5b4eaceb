"""Decide the next step for one claim. Pure.

Input: the hub's claim and its volume, what stands in the target, and who asks; output: one step
with its reason. A round carries it out, looks again, and asks for the next: it may be killed
between any two, and deciding twice on the same input gives the same step.

    not bound, chosen for us    `provision`: a claim in the target, then a volume on the hub
    bound to a volume of ours   `bound`: what it leads to, as large as it is asked for
    gone                        `ending`: nothing, or what the class asked for
"""

from __future__ import annotations

from federate.claims.bound import plan_bound
from federate.claims.ending import plan_end
from federate.claims.protocol import volume_name_of
from federate.claims.provision import plan_unbound
from federate.claims.steps import ClaimView, Look, LookUp, Sought, Step
from federate.claims.verdicts import unreadable
from federate.model.objects import uid_of


def plan_claim(view: ClaimView) -> Step:
    """Decide the next step."""
    look = Look(Sought.HUB_CLAIM, view.key.hub_key)
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="what does the hub say?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side="the hub")
    if seen.obj is None or uid_of(seen.obj) != view.key.uid:
        return plan_end(view)
    if volume_name_of(seen.obj):
        return plan_bound(view, seen.obj)
    return plan_unbound(view, seen.obj)

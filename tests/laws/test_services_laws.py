"""Whatever both sides look like, a followed Service comes to rest as it ought to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.companions.steps import Ground
from federate.model.marks import FOLLOW_LABEL, HUB_LABEL, Scope
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, copied, uid_of
from federate.services.following import (
    ServiceKey,
    is_followed,
    is_owned,
    others_owners,
    owner_of,
    owners_of,
    render_service,
    service_of,
    service_patch,
)
from federate.services.plan import plan_service
from federate.services.rules import FollowMode
from federate.services.steps import (
    ConfirmUnwanted,
    CreateService,
    DeleteService,
    LookUpCompanion,
    LookUpHubService,
    PatchService,
    Rest,
    ServiceView,
    Standing,
)
from tests.support.scene import SCOPE
from tests.support.strategic import apply_merge_patch

KEY = ServiceKey("there", "default", "web")
OTHER = Scope(hub_id=SCOPE.hub_id, node_name="edge-2")
ANCHOR: JsonDict = {"metadata": {"name": anchor_name(SCOPE), "uid": "anchor-uid"}}
OTHERS_ANCHOR: JsonDict = {"metadata": {"name": anchor_name(OTHER), "uid": "others-uid"}}
MOST_STEPS = 8
LAW = settings(max_examples=300, deadline=None)

specs = st.fixed_dictionaries(
    {
        "selector": st.sampled_from([None, {}, {"app": "web"}, {"app": "db", "tier": "x"}]),
        "ports": st.sampled_from(
            [
                [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
                [{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}],
            ]
        ),
        "clusterIP": st.sampled_from(["10.96.0.7", "None"]),
        "type": st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
        "sessionAffinity": st.sampled_from(["None", "ClientIP"]),
        "sessionAffinityConfig": st.sampled_from([None, {"clientIP": {"timeoutSeconds": 9}}]),
        "publishNotReadyAddresses": st.booleans(),
        "internalTrafficPolicy": st.sampled_from([None, "Cluster", "Local"]),
        "externalIPs": st.sampled_from([None, ["203.0.113.9"]]),
    }
)
labels = st.sampled_from([{}, {FOLLOW_LABEL: "true"}, {FOLLOW_LABEL: "false"}])


def hub_service(spec: dict[str, Any], of: dict[str, str]) -> JsonDict:
    metadata = {"namespace": "default", "name": "web", "uid": "hub", "labels": of}
    return {"metadata": metadata, "spec": spec}


@st.composite
def companions(draw: st.DrawFn) -> JsonDict | None:
    """Nothing, a stranger's, or ours in any state, owned by any of us."""
    kind = draw(st.sampled_from(["none", "stranger", "other namespace", "ours"]))
    if kind == "none":
        return None
    body = render_service(KEY, hub_service(draw(specs), {}), scope=SCOPE, anchor=ANCHOR)
    body["metadata"] |= {"uid": "there", "resourceVersion": "1"}
    owners = [owner_of(ANCHOR), owner_of(OTHERS_ANCHOR), {**owner_of(ANCHOR), "uid": "former"}]
    body["metadata"]["ownerReferences"] = draw(st.lists(st.sampled_from(owners), unique_by=str))
    if kind == "stranger":
        del body["metadata"]["labels"]
    if kind == "other namespace":
        told = '{"kind":"Service","namespace":"another","name":"web"}'
        body["metadata"]["annotations"]["federate.dev/companion-of"] = told
    return body


class Served:
    """The target's API server, as far as one Service is concerned; counts the writes."""

    def __init__(self, present: JsonDict | None) -> None:
        self.present = present
        self.writes = 0

    def carry_out(self, step: CreateService | PatchService | DeleteService) -> None:
        self.writes += 1
        if isinstance(step, CreateService):
            assert self.present is None
            body = copied(step.body)
            body["metadata"] |= {"uid": f"made-{self.writes}", "resourceVersion": "1"}
            self.present = body
            return
        assert self.present is not None
        if isinstance(step, DeleteService):
            assert step.uid == uid_of(self.present)
            self.present = None
            return
        assert step.patch.body["metadata"]["uid"] == uid_of(self.present)
        patched = apply_merge_patch(self.present, step.patch.body)
        patched["metadata"]["resourceVersion"] = str(self.writes + 1)
        self.present = patched


def at_rest(view: ServiceView, served: Served) -> Rest:
    """Carry out the plan until it rests."""
    for _ in range(MOST_STEPS):
        step = plan_service(view)
        assert plan_service(view) == step, "deciding twice gives the same step"
        match step:
            case Rest():
                return step
            case LookUpHubService():
                view = replace(view, hub_fresh=True)
            case LookUpCompanion():
                view = replace(view, companion=copied(served.present), companion_fresh=True)
            case ConfirmUnwanted():
                view = replace(view, unwanted_fresh=True)
            case CreateService() | PatchService():
                served.carry_out(step)
                view = replace(view, companion=copied(served.present))
            case DeleteService():
                served.carry_out(step)
                view = replace(view, companion=None, companion_fresh=False)
    raise AssertionError("it does not come to rest")


@LAW
@given(
    spec=specs,
    of=labels,
    is_there=st.booleans(),
    companion=companions(),
    is_wanted=st.booleans(),
    mode=st.sampled_from(list(FollowMode)),
    ground=st.sampled_from(list(Ground)),
)
def test_c33_every_service_comes_to_rest_and_no_strangers_is_touched(
    spec: dict[str, Any],
    of: dict[str, str],
    is_there: bool,
    companion: JsonDict | None,
    is_wanted: bool,
    mode: FollowMode,
    ground: Ground,
) -> None:
    """In a few steps; what it then looks like follows from what both sides want."""
    original = hub_service(spec, of) if is_there else None
    view = ServiceView(
        key=KEY,
        scope=SCOPE,
        mode=mode,
        target_name="edge-1",
        is_wanted=is_wanted,
        hub_service=original,
        ground=ground,
        anchor=ANCHOR if ground is Ground.READY else None,
    )
    served = Served(copied(companion))
    rest = at_rest(view, served)
    present = served.present
    if companion is not None and service_of(SCOPE, companion) != KEY:
        assert (present, served.writes) == (companion, 0), "a stranger's was touched"
        return
    again = Served(copied(present))
    assert at_rest(view, again).standing is rest.standing
    assert again.writes == 0, "what rests is written again"
    shall_be = original is not None and is_followed(original, mode)
    if is_wanted and shall_be and ground is Ground.READY:
        assert original is not None
        assert present is not None
        assert rest.standing is Standing.FOLLOWED
        wanted = render_service(KEY, original, scope=SCOPE, anchor=ANCHOR)
        assert service_patch(wanted, present) is None
        assert present["spec"]["selector"][HUB_LABEL] == SCOPE.hub_id
        assert "externalIPs" not in present["spec"]
    elif not is_wanted:
        assert present is None or not is_owned(SCOPE, present)
        if companion is not None and others_owners(SCOPE, companion):
            assert present is not None, "taken from others who want it"
    if companion is not None and present is not None and uid_of(present) == uid_of(companion):
        assert _uids(others_owners(SCOPE, companion)) <= _uids(owners_of(present))


def _uids(owners: Any) -> set[str]:
    return {owner["uid"] for owner in owners}

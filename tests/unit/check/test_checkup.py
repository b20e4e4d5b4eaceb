"""The steps of a check: each end by itself, each failure in its place, nothing written (C74)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federate.check.access import ACCESS_REVIEWS, RULES_REVIEWS, SUBJECT_REVIEWS
from federate.check.checkup import Checked, EndPoint, check_all
from federate.check.findings import FindingId, Status, StepResult
from federate.claims.render import render_storage_class
from federate.claims.rules import ClaimMode, ClaimRules
from federate.cluster.sessions import Access
from federate.cluster.upstream import Reply, UpstreamCall
from federate.companions.environment import Advertised
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import ClusterError, ConfigError, Forbidden, ServerFault, Unauthorized
from federate.model.marks import (
    HUB_LABEL,
    NODE_HUB_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
)
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from federate.model.resources import (
    BUDGETS,
    CONFIGMAPS,
    DAEMONSETS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from federate.node.capacity import CapacityRules
from federate.runtime.settings import Settings, TargetSettings
from tests.support.clock import ManualClock
from tests.support.credentials import Authority
from tests.support.fakeclient import Call, Refuse
from tests.support.fakecluster import FakeCluster

EDGE = TargetSettings(name="edge", kubeconfig=Path("edge.yaml"))
HEAD = b"HTTP/1.1 403 Forbidden\r\n\r\n"

Allowed = Callable[[JsonObject], bool]


class Asked:
    """A client that also answers questions about rights, and is reached at a loopback port."""

    def __init__(self, cluster: FakeCluster, server: str) -> None:
        self._client: Any = cluster.client()
        self.server = server
        self.allowed: Allowed = lambda attributes: True
        self.user = "jane"
        self.refuses: dict[str, ClusterError] = {}
        self.questions: list[JsonObject] = []
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        self.rules: JsonDict = {"resourceRules": [everything], "incomplete": False}
        self.raw_get: Any = self._client.raw_get
        self.kubelet: tuple[int, bytes] | ClusterError = (200, b"ok")
        self.streamed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def access(self) -> Access:
        return Access(server=self.server)

    @asynccontextmanager
    async def stream(self, call: UpstreamCall) -> AsyncIterator[Reply]:
        self.streamed.append(f"{call.method} {call.path}")
        if isinstance(self.kubelet, ClusterError):
            raise self.kubelet
        status, said = self.kubelet

        async def body() -> AsyncIterator[bytes]:
            while True:
                yield said
                if status == 200:
                    return

        yield Reply(status=status, headers=(), body=body())

    async def create(self, resource: Resource, body: JsonObject, **more: Any) -> JsonDict:
        if resource.plural in self.refuses:
            raise self.refuses[resource.plural]
        if resource == SUBJECT_REVIEWS:
            return {"status": {"userInfo": {"username": self.user}}}
        if resource == RULES_REVIEWS:
            return {"status": self.rules}
        assert resource == ACCESS_REVIEWS, "a check writes nothing"
        attributes = body["spec"].get("resourceAttributes") or {}
        self.questions.append(attributes)
        return {"status": {"allowed": self.allowed(attributes)}}


class Bed:
    """A hub and a target in memory, each behind a door that answers HTTP."""

    def __init__(self, server: str) -> None:
        self.hub = FakeCluster("hub", ManualClock())
        self.target = FakeCluster("edge", ManualClock())
        for cluster in (self.hub, self.target):
            cluster.documents["/version"] = {"gitVersion": "v1.34.4"}
        self.at_hub, self.at_target = Asked(self.hub, server), Asked(self.target, server)
        self.settings = Settings(hub_kubeconfig=Path("hub.yaml"), targets=(EDGE,), identity="me")

    async def check(
        self, *, broken: frozenset[str] = frozenset(), step_seconds: float = 30.0
    ) -> list[StepResult]:
        def end(name: str, client: Asked) -> EndPoint:
            @asynccontextmanager
            async def opened() -> AsyncIterator[Checked]:
                if name in broken:
                    raise ConfigError(f"kubeconfig {name}.yaml: not YAML")
                yield client

            return EndPoint(name=name, where=f"kubeconfig {name}.yaml", open=opened)

        found = check_all(
            self.settings,
            hub=end("hub", self.at_hub),
            targets={"edge": end("edge", self.at_target)},
            step_seconds=step_seconds,
        )
        results = [result async for result in found]
        for cluster in (self.hub, self.target):
            assert not cluster.writes()
        return results

    def rules(self, rules: NamespaceRules, capacity: CapacityRules) -> None:
        target = replace(EDGE, namespaces=rules, capacity=capacity)
        self.settings = replace(self.settings, targets=(target,))


@asynccontextmanager
async def bed() -> AsyncIterator[Bed]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield Bed(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


def status_of_steps(results: list[StepResult], end: str) -> dict[str, str]:
    return {r.step: str(r.status) for r in results if r.end == end}


def findings(results: list[StepResult], end: str = "") -> set[FindingId]:
    return {f.id for r in results for f in r.findings if end in ("", r.end)}


EXPECTED = {FindingId.TLS_NOT_VERIFIED, FindingId.CLOCK_UNKNOWN, FindingId.RANGES_UNKNOWN}
"""What the plain door and empty clusters bring with them, and that nobody runs federate."""


async def test_a_good_pair_passes_every_step() -> None:
    """Steps come end by end, and what concerns both at last."""
    async with bed() as pair:
        results = await pair.check()
    assert not [r for r in results if r.status in (Status.FAIL, Status.SKIP)]
    assert findings(results) == EXPECTED | {FindingId.NO_LEADER}
    ends = [r.end for r in results]
    assert ends == sorted(ends, key=("hub", "edge").index)
    assert [r.step for r in results if r.end == "edge"] == [
        *("kubeconfig", "connection", "clock", "login", "version"),
        *("identity", "rights", "namespaces", "account", "selectors", "addresses"),
        *("hub and target", "versions", "ranges"),
    ]


async def test_one_end_that_is_broken_does_not_hide_the_other() -> None:
    """A kubeconfig that cannot be read, on either side."""
    for broken, whole in (("hub", "edge"), ("edge", "hub")):
        async with bed() as pair:
            results = await pair.check(broken=frozenset({broken}))
        steps = status_of_steps(results, broken)
        assert steps.pop("kubeconfig") == "fail"
        assert FindingId.KUBECONFIG_UNUSABLE in findings(results, broken)
        assert set(steps.values()) == {"skip"}
        assert status_of_steps(results, whole)["rights"] == "ok"


async def test_what_needs_a_login_is_skipped_without_one() -> None:
    """401, or a user who is nobody: clocks are compared all the same."""
    async with bed() as pair:
        refusal = Unauthorized("no", status=401)
        pair.at_target.refuses = {SUBJECT_REVIEWS.plural: refusal}
        steps = status_of_steps(results := await pair.check(), "edge")
        assert (steps["clock"], steps["login"], steps["rights"]) == ("note", "fail", "skip")
        assert FindingId.NOT_AUTHENTICATED in findings(results, "edge")
    async with bed() as pair:
        pair.at_target.user = "system:anonymous"
        assert status_of_steps(await pair.check(), "edge")["login"] == "fail"


async def test_a_server_too_old_to_say_who_we_are_is_asked_something_else() -> None:
    async with bed() as pair:
        pair.at_target.refuses = {SUBJECT_REVIEWS.plural: ServerFault("404", status=404)}
        results = await pair.check()
    [login] = [r for r in results if r.end == "edge" and r.step == "login"]
    assert (login.status, login.said) == (Status.OK, "accepted")


async def test_a_missing_right_is_found_on_its_side() -> None:
    async with bed() as pair:
        pair.at_hub.allowed = lambda asked: (asked["resource"], asked["verb"]) != ("pods", "delete")
        results = await pair.check()
    [finding] = [f for r in results if r.end == "hub" for f in r.findings if "Right" in f.id]
    assert finding.id is FindingId.RIGHT_MISSING
    assert "jane may not delete pods cluster-wide" in finding.what
    assert status_of_steps(results, "edge")["rights"] == "ok"


async def test_rights_are_asked_for_the_virtual_nodes_by_name() -> None:
    async with bed() as pair:
        await pair.check()
        asked = [q for q in pair.at_hub.questions if q["resource"] == "nodes"]
    assert {(q["verb"], q.get("name", "")) for q in asked} == {
        ("create", ""),
        ("list", ""),  # for address ranges
        *((verb, "edge") for verb in ("get", "list", "watch", "patch")),
    }


async def test_the_list_of_all_rules_stands_in_for_single_questions() -> None:
    async with bed() as pair:
        pair.at_hub.refuses = {ACCESS_REVIEWS.plural: Forbidden("no", status=403)}
        assert status_of_steps(await pair.check(), "hub")["rights"] == "ok"


def add_node(pair: Bed, *, hub: str, identity: str = "") -> None:
    annotations = {NODE_HUB_ANNOTATION: hub}
    if identity:
        annotations[TARGET_IDENTITY_ANNOTATION] = identity
    pair.hub.add(NODES, {"metadata": {"name": "edge", "annotations": annotations}})


def identity_of(cluster: FakeCluster) -> str:
    return uid_of(cluster.read(NAMESPACES, ObjectKey("", "kube-system")))


async def test_a_strangers_node_is_told() -> None:
    async with bed() as pair:
        add_node(pair, hub="another")
        results = await pair.check()
    assert status_of_steps(results, "hub")["node edge"] == "fail"


async def test_another_cluster_than_on_record_is_told() -> None:
    async with bed() as pair:
        add_node(pair, hub=identity_of(pair.hub), identity="another")
        assert FindingId.TARGET_CHANGED in findings(await pair.check(), "edge")
    async with bed() as pair:
        add_node(pair, hub=identity_of(pair.hub), identity=identity_of(pair.target))
        results = await pair.check()
        assert status_of_steps(results, "edge")["hub and target"] == "ok"


async def test_a_leader_is_named() -> None:
    async with bed() as pair:
        spec = {"holderIdentity": "host_b_4_77_88", "leaseDurationSeconds": 10**10}
        spec["renewTime"] = "2026-01-01T00:00:00.000000Z"
        key = {"namespace": "kube-system", "name": "federate-edge"}
        pair.hub.add(LEASES, {"metadata": key, "spec": spec})
        [leader] = [r for r in await pair.check() if r.step == "leader edge"]
    assert (leader.status, leader.said) == (Status.OK, "host (pid 77)")


async def test_daemonsets_budgets_and_services_are_looked_at() -> None:
    async with bed() as pair:
        everything = {"tolerations": [{"operator": "Exists"}]}
        pair.hub.add(
            DAEMONSETS,
            {
                "metadata": {"namespace": "kube-system", "name": "cni"},
                "spec": {"template": {"spec": everything}},
            },
        )
        meta = {"namespace": "default", "name": "m", "labels": {HUB_LABEL: "h", "app": "web"}}
        pair.target.add(PODS, {"metadata": meta, "spec": {"containers": [{"name": "c"}]}})
        selector = {"matchLabels": {"app": "web"}}
        one = {"namespace": "default", "name": "one"}
        pair.target.add(
            BUDGETS,
            {"metadata": one, "spec": {"selector": selector, "maxUnavailable": 1}},
        )
        pair.target.add(SERVICES, {"metadata": one, "spec": {"selector": {"app": "web"}}})
        results = await pair.check()
    assert FindingId.DAEMONSET_TOLERATES_NODE in findings(results, "hub")
    assert {FindingId.BUDGET_COUNTS_MIRRORS, FindingId.SERVICE_SELECTS_MIRRORS} <= findings(
        results, "edge"
    )
    assert not [r for r in results if r.status is Status.FAIL]


async def test_a_virtual_node_without_a_taint_is_told_with_what_may_come() -> None:
    """Whether it is registered already or not."""
    async with bed() as pair:
        pair.settings = replace(
            pair.settings, targets=(replace(pair.settings.targets[0], taint_effect=None),)
        )
        wants_all: JsonDict = {"spec": {"template": {"spec": {}}}}
        pair.hub.add(
            DAEMONSETS, {"metadata": {"namespace": "kube-system", "name": "proxy"}, **wants_all}
        )
        before = await pair.check()
        add_node(pair, hub=identity_of(pair.hub))
        after = await pair.check()
    for results in (before, after):
        assert FindingId.NODE_NOT_TAINTED in findings(results, "hub")
        assert FindingId.DAEMONSET_TOLERATES_NODE in findings(results, "hub")
        assert status_of_steps(results, "hub")["node edge"] == "note"


async def test_a_confined_target_is_looked_at_where_it_may_be() -> None:
    """Nothing is listed cluster-wide, a namespace that is missing stops work."""
    async with bed() as pair:
        single = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="team-a")
        pair.rules(single, CapacityRules.fixed({"pods": "5"}))
        results = await pair.check()
        assert FindingId.NAMESPACE_NOT_USABLE in findings(results, "edge")
        pair.target.add_namespace("team-a")
        pair.target.calls.clear()
        results = await pair.check()
        listed = {
            (call.resource.plural, call.key.namespace)
            for call in pair.target.calls
            if call.verb == "list" and call.resource.namespaced
        }
    assert FindingId.NAMESPACE_NOT_USABLE not in findings(results)
    assert {namespace for _, namespace in listed} == {"team-a"}
    assert {q.get("namespace") for q in pair.at_target.questions} == {"team-a"}


async def test_what_may_not_be_read_is_a_note_with_its_remedy() -> None:
    def refuse(call: Call) -> Refuse | None:
        forbidden = call.resource.plural in ("daemonsets", "nodes", "servicecidrs", "configmaps")
        return Refuse(Forbidden("no", status=403)) if forbidden and call.verb == "list" else None

    async with bed() as pair:
        pair.hub.faults = refuse
        results = await pair.check()
    [step] = [r for r in results if r.step == "daemonsets"]
    assert step.status is Status.NOTE
    assert "--with check" in step.findings[0].fix
    assert not [r for r in results if r.status is Status.FAIL]


async def test_an_end_that_nobody_answers_at_is_asked_nothing_more() -> None:
    async with bed() as pair:
        pair.at_target.server = "http://127.0.0.1:1"
        steps = status_of_steps(await pair.check(), "edge")
        assert not pair.target.calls
    assert steps.pop("kubeconfig") == "ok"
    assert steps.pop("connection") == "fail"
    assert set(steps.values()) == {"skip"}


async def test_a_server_that_tells_no_rights_is_a_warning() -> None:
    """Another authorizer's list of rules may be incomplete."""
    async with bed() as pair:
        pair.at_hub.refuses = {ACCESS_REVIEWS.plural: Forbidden("no", status=403)}
        pair.at_hub.rules = {"resourceRules": [], "incomplete": True}
        results = await pair.check()
    assert FindingId.RIGHTS_UNKNOWN in findings(results, "hub")
    assert not [r for r in results if r.status is Status.FAIL]


async def test_an_error_of_the_server_is_told_in_its_words() -> None:
    def refuse(call: Call) -> Refuse | None:
        is_read = call.resource == LEASES
        return Refuse(ServerFault("etcd is gone", status=500)) if is_read else None

    async with bed() as pair:
        pair.hub.faults = refuse
        results = await pair.check()
    [step] = [r for r in results if r.step == "leader edge"]
    assert step.status is Status.FAIL
    assert "etcd is gone" in step.findings[0].what


async def test_a_step_that_hangs_is_cut_off_and_told() -> None:
    async with bed() as pair:

        async def hang(*_: Any, **__: Any) -> JsonDict:
            await asyncio.sleep(3600)
            return {}

        pair.at_target.raw_get = hang
        results = await pair.check(step_seconds=2.0)  # the other steps may be slow, too
    assert status_of_steps(results, "edge")["version"] == "fail"
    assert FindingId.STEP_TIMED_OUT in findings(results, "edge")
    assert status_of_steps(results, "edge")["rights"] == "ok"


def served_node(*conditions: JsonDict, port: int = 10250) -> JsonDict:
    return {
        "metadata": {"name": "edge", "annotations": {NODE_HUB_ANNOTATION: "h"}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": list(conditions),
        },
    }


async def test_the_way_to_the_kubelet_api_is_gone() -> None:
    """As `kubectl logs` goes it: through the hub's API server; what never ends is cut."""
    async with bed() as pair:
        pair.hub.add(NODES, served_node())
        [step] = [r for r in await pair.check() if r.step == "kubelet edge"]
        assert (step.status, step.said) == (Status.OK, "the hub reaches it at 10.0.0.9:10250")
        assert pair.at_hub.streamed == ["GET /api/v1/nodes/edge/proxy/healthz"]
        pair.at_hub.kubelet = (503, b"dial tcp 10.0.0.9:10250: connect: connection refused ")
        results = await pair.check()
        assert FindingId.KUBELET_UNREACHABLE in findings(results, "hub")
        pair.at_hub.kubelet = Unauthorized("Unauthorized", status=401)
        assert FindingId.KUBELET_REFUSES in findings(await pair.check(), "hub")
        assert not [r for r in results if r.status is Status.FAIL and r.step == "kubelet edge"]


async def test_a_kubelet_api_that_is_not_there_is_not_asked() -> None:
    """No Node yet, no port, or switched off."""
    async with bed() as pair:
        pair.hub.documents["/version"] = {"gitVersion": "v1.34.4+k3s1"}
        assert FindingId.KUBELET_MAY_BE_TUNNELLED in findings(await pair.check(), "hub")
        pair.hub.add(NODES, served_node(port=0))
        [step] = [r for r in await pair.check() if r.step == "kubelet edge"]
        assert step.said == "the Node tells no port"
        kubelet = replace(EDGE.kubelet, is_served=False)
        pair.settings = replace(pair.settings, targets=(replace(EDGE, kubelet=kubelet),))
        pair.at_hub.questions.clear()
        await pair.check()
        asked = {q["resource"] for q in pair.at_hub.questions}
        assert not pair.at_hub.streamed
    assert "tokenreviews" not in asked


async def test_the_right_to_approve_is_asked_for_where_it_is_used() -> None:
    async with bed() as pair:
        pair.at_hub.allowed = lambda asked: asked["resource"] != "signers"
        assert FindingId.OPTIONAL_RIGHT_MISSING not in findings(await pair.check(), "hub")
        kubelet = replace(EDGE.kubelet, serving=replace(EDGE.kubelet.serving, approves=True))
        pair.settings = replace(pair.settings, targets=(replace(EDGE, kubelet=kubelet),))
        results = await pair.check()
    [finding] = [f for r in results if r.end == "hub" for f in r.findings if "Optional" in f.id]
    assert "--with approve" in finding.fix


# -- what comes along ------------------------------------------------------------------------------


def with_companions(pair: Bed, rules: CompanionRules) -> None:
    pair.settings = replace(pair.settings, targets=(replace(EDGE, companions=rules),))


async def asked_of(pair: Bed) -> tuple[set[str], set[str]]:
    """Of each end which resources rights were asked for, with their subresources."""
    for end in (pair.at_hub, pair.at_target):
        end.questions.clear()
    await pair.check()
    hub, target = (
        {"/".join(filter(None, (q["resource"], q.get("subresource")))) for q in end.questions}
        for end in (pair.at_hub, pair.at_target)
    )
    return hub, target


async def test_rights_are_those_of_what_comes_along() -> None:
    """Nobody is asked for Secrets where none come along, nor for tokens without identity hub."""
    async with bed() as pair:
        for rules, is_read, is_issued in (
            (CompanionRules(), True, False),
            (CompanionRules(are_made=False), False, False),
            (IDENTITY, True, True),
        ):
            with_companions(pair, rules)
            hub, target = await asked_of(pair)
            assert ("secrets" in hub, "secrets" in target) == (is_read, is_read)
            assert ("serviceaccounts/token" in hub) == is_issued
            assert "serviceaccounts/token" not in target


async def test_a_right_that_is_missing_says_which_pods_wait() -> None:
    async with bed() as pair:
        pair.at_target.allowed = lambda attributes: attributes["resource"] != "secrets"
        [finding] = [
            found
            for result in await pair.check()
            for found in result.findings
            if found.id is FindingId.OPTIONAL_RIGHT_MISSING
        ]
    assert "may not get, create, patch, delete secrets cluster-wide" in finding.what
    assert "CompanionRefused" in finding.what
    assert finding.fix.startswith("federate rbac --side target")


IDENTITY = CompanionRules(
    identity=IdentityMode.HUB, advertised=Advertised(host="127.0.0.1", port=1)
)


async def test_the_address_of_the_hub_is_asked_as_a_pod_would(tmp_path: Path) -> None:
    """Only with identity hub; whoever answers, pods believe what kube-root-ca.crt says."""
    step = "hub address edge"
    async with bed() as pair:
        assert step not in status_of_steps(await pair.check(), "hub")
        with_companions(pair, IDENTITY)
        assert findings(await pair.check(), "hub") >= {FindingId.HUB_ADDRESS_NOT_BELIEVED}
        authority = Authority()
        metadata = {"namespace": "kube-system", "name": "kube-root-ca.crt"}
        data = {"ca.crt": authority.ca.pem.decode()}
        pair.hub.add(CONFIGMAPS, {"metadata": metadata, "data": data})
        assert findings(await pair.check(), "hub") >= {FindingId.HUB_ADDRESS_UNREACHABLE}
        pair.at_hub.get = refusing()  # type: ignore[attr-defined]
        assert FindingId.NOT_READABLE in findings(await pair.check(), "hub")


def refusing() -> Callable[..., Any]:
    async def get(asked: Resource, key: ObjectKey, **more: Any) -> JsonDict:
        raise Forbidden(f"{asked.plural} {key}", reason="Forbidden", status=403)

    return get


@pytest.mark.parametrize(
    ("advertised", "is_needed"),
    [
        (Advertised(host="192.0.2.1", port=6443), True),
        (Advertised(host="hub.example.org", port=443), True),
        (Advertised(host="192.0.2.1", port=443), False),
    ],
)
async def test_who_may_not_make_the_way_to_the_hubs_api_server_is_told(
    advertised: Advertised, is_needed: bool
) -> None:
    """Pods start all the same; what names lead to then, and the command that mends it, is said."""
    async with bed() as pair:
        with_companions(pair, replace(IDENTITY, advertised=advertised))
        pair.at_target.allowed = lambda asked: asked["resource"] != "endpointslices"
        told = [
            finding
            for result in await pair.check()
            for finding in result.findings
            if "endpointslices" in finding.what
        ]
        assert [finding.id for finding in told] == (
            [FindingId.OPTIONAL_RIGHT_MISSING] if is_needed else []
        )
        for finding in told:
            assert "HubNamesMissing" in finding.what
            assert "--with pod-identity" in finding.fix


TARGET = CompanionRules(identity=IdentityMode.TARGET, target_account="runner")


def account_step(results: list[StepResult]) -> StepResult:
    return next(result for result in results if (result.end, result.step) == ("edge", "account"))


async def test_c31_the_account_that_mirrors_run_as_is_looked_at() -> None:
    """In the namespaces that this hub uses; those of other hubs are no matter of ours."""
    async with bed() as pair:
        hub = uid_of(pair.hub.read(NAMESPACES, ObjectKey("", "kube-system")))
        for name, label in (("ours", hub), ("other", "another hub")):
            metadata = {"name": name, "labels": {HUB_LABEL: label}}
            pair.target.add(NAMESPACES, {"metadata": metadata})
        with_companions(pair, TARGET)
        step = account_step(await pair.check())
        assert [finding.id for finding in step.findings] == [FindingId.TARGET_ACCOUNT_MISSING]
        assert "no service account runner in ours: pods" in step.findings[0].what
        metadata = {"namespace": "ours", "name": "runner"}
        pair.target.add(SERVICEACCOUNTS, {"metadata": metadata})
        assert account_step(await pair.check()).said == "runner in 1 namespace"


async def test_c31_a_confined_target_is_asked_in_the_given_namespaces() -> None:
    """Those that are not there are told of once; a right is asked for by the account's name."""
    rules = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"a": "team-a", "b": "team-b"})
    async with bed() as pair:
        pair.rules(rules, CapacityRules.fixed({"pods": "1"}))
        (edge,) = pair.settings.targets
        pair.settings = replace(pair.settings, targets=(replace(edge, companions=TARGET),))
        pair.target.add(NAMESPACES, {"metadata": {"name": "team-a"}})
        step = account_step(await pair.check())
        assert [finding.what for finding in step.findings] == [
            "the target has no service account runner in team-a: pods there wait with "
            "ServiceAccountMissing"
        ]


async def test_without_a_hub_the_account_is_looked_at_nowhere() -> None:
    """The other end is checked all the same, and no step waits for ever."""
    async with bed() as pair:
        step = account_step(await pair.check(broken=frozenset({"hub"})))
        assert step.said == "default: no namespace is in use yet"


async def test_the_storage_classes_of_both_sides_are_judged() -> None:
    """Only where claims have storage in the target; a class of the hub serves several nodes."""
    names = {"fast": "ssd", "any": ""}
    claims = ClaimRules(mode=ClaimMode.TARGET, storage_classes=names)
    async with bed() as pair:
        pair.settings = replace(pair.settings, targets=(replace(EDGE, claims=claims),))
        missing = await pair.check()
        for name in names:
            pair.hub.add(STORAGE_CLASSES, render_storage_class(name, node_names=["edge"]))
        pair.target.add(STORAGE_CLASSES, {"metadata": {"name": "ssd"}})
        good = await pair.check()
    said = [(r.end, f.what) for r in missing for f in r.findings if r.step == "storage"]
    assert [(end, "no storage class" in what) for end, what in said] == [
        ("hub", True),
        ("hub", True),
        ("edge", True),
    ]
    assert {(r.end, r.said, r.status) for r in good if r.step == "storage"} == {
        ("hub", "any, fast", Status.OK),
        ("edge", "ssd", Status.OK),
    }

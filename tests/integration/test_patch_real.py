"""The three-way merge against a real API server: its OpenAPI and its dry-run are the witnesses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import light_hub, testbed_factory  # noqa: F401 - fixtures
from e2e.testbed.local import LocalCluster
from federate.model.objects import JsonDict
from federate.patch.document import PatchBody, merge_patch, strategic_patch
from federate.patch.listkeys import OPEN_MAPS, ListKind, ListRules, rules_for
from federate.patch.threeway import apply_edits, merge
from tests.support.strategic import apply_strategic_patch

pytestmark = pytest.mark.integration

SCHEMAS = "io.k8s.api.core.v1."
IGNORED = ("managedFields", "resourceVersion", "generation")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "vn"},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "vn", "labels": {"theirs": "1"}, "finalizers": ["example.com/theirs"]},
    "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
}


# --- the table of lists -------------------------------------------------------------------------


def lists_of(schemas: JsonDict, name: str) -> Iterator[tuple[tuple[str, ...], JsonDict]]:
    """Every list of a schema that no atomic list contains, with its path."""
    todo: list[tuple[tuple[str, ...], str]] = [((), name)]
    while todo:
        path, current = todo.pop()
        for field, schema in (schemas[current].get("properties") or {}).items():
            at = (*path, field)
            if schema.get("type") == "array":
                yield at, schema
                if "x-kubernetes-patch-merge-key" not in schema:
                    continue  # an atomic list is opaque to both sides
            inner = schema.get("$ref") or schema.get("items", {}).get("$ref")
            if inner:
                todo.append((at, inner.removeprefix("#/definitions/")))


@pytest.mark.parametrize("kind", ["Pod", "Node", "Namespace"])
def test_the_table_of_lists_is_the_servers(kind: str, light_hub: LocalCluster) -> None:  # noqa: F811
    """Each list is keyed, a set or atomic for us as it is for the server; none is forgotten."""
    schemas = light_hub.api.get("/openapi/v2")["definitions"]
    rules, seen = rules_for(kind), set()
    for path, schema in lists_of(schemas, SCHEMAS + kind):
        rule = rules.rule(path)
        strategies = (schema.get("x-kubernetes-patch-strategy") or "").split(",")
        merges = "merge" in strategies
        key = schema.get("x-kubernetes-patch-merge-key") or ""
        seen.add(path)
        assert rule.server_key == (key if merges else ""), path
        assert (rule.kind is ListKind.SET) == (merges and not key), path
        properties = schemas.get(
            schema["items"].get("$ref", "").removeprefix("#/definitions/"), {}
        ).get("properties", {})
        assert set(rule.keys) <= set(properties), path
    assert set(rules.by_path) <= seen


@pytest.mark.parametrize("kind", ["Pod", "Node"])
def test_maps_with_free_keys_are_the_servers(kind: str, light_hub: LocalCluster) -> None:  # noqa: F811
    """Every map with free keys outside atomic lists is known as such."""
    schemas = light_hub.api.get("/openapi/v2")["definitions"]
    todo, found = [SCHEMAS + kind], set()
    while todo:
        for field, schema in (schemas[todo.pop()].get("properties") or {}).items():
            keyed = "x-kubernetes-patch-merge-key" in schema
            inner = schema.get("$ref") or (keyed and schema.get("items", {}).get("$ref"))
            if "additionalProperties" in schema:
                found.add(field)
            elif inner:
                todo.append(inner.removeprefix("#/definitions/"))
    assert found <= OPEN_MAPS


# --- dry runs -----------------------------------------------------------------------------------


class Subject:
    """One object on the server, and dry runs against it."""

    def __init__(self, cluster: LocalCluster, body: Mapping[str, Any], status: JsonDict) -> None:
        self.cluster = cluster
        self.kind = body["kind"]
        self.target = f"{self.kind.lower()}/{body['metadata']['name']}"
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        self.theirs = self._patch("merge", {"status": status}, "--subresource=status")

    def _patch(self, kind: str, body: Mapping[str, Any], *more: str) -> JsonDict:
        text = json.dumps(body)
        arguments = ("patch", self.target, f"--type={kind}", "-p", text, "-o", "json", *more)
        found: JsonDict = json.loads(self.cluster.kubectl(*arguments))
        return found

    def dry_run(self, patch: PatchBody, *, subresource: str = "") -> JsonDict:
        kind = "strategic" if "strategic" in patch.media_type else "merge"
        where = (f"--subresource={subresource}",) if subresource else ()
        return self._patch(kind, patch.body, "--dry-run=server", *where)

    def check(self, base: JsonDict, ours: JsonDict, *, subresource: str = "") -> JsonDict:
        """The server makes of our patch what we make of our edits; returns the server's reply."""
        rules = rules_for(self.kind)
        edits = merge(base, ours, self.theirs, lists=rules)
        meta = self.theirs["metadata"]
        version = meta["resourceVersion"] if edits.needs_resource_version else ""
        patch = strategic_patch(edits, uid=meta["uid"], resource_version=version)
        assert patch is not None
        reply = self.dry_run(patch, subresource=subresource)
        assert plain(reply, rules) == plain(apply_edits(self.theirs, edits), rules)
        twin = apply_strategic_patch(self.theirs, patch.body, kind=self.kind)
        assert plain(twin, rules) == plain(reply, rules)
        assert not merge(base, ours, reply, lists=rules)
        return reply


def plain(value: Any, rules: ListRules, path: tuple[str, ...] = ()) -> Any:
    """The value up to what makes no difference."""
    if isinstance(value, Mapping):
        fields = {k: plain(v, rules, (*path, k)) for k, v in value.items() if k not in IGNORED}
        return {
            k: v
            for k, v in fields.items()
            if v is not None and v != [] and not (v == {} and k in OPEN_MAPS)
        }
    if isinstance(value, list):
        items = [plain(v, rules, path) for v in value]
        if rules.rule(path).kind is ListKind.ATOMIC:
            return items
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return value


@pytest.fixture(scope="module")
def pod(light_hub: LocalCluster) -> Subject:  # noqa: F811
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "default"},
    }
    light_hub.kubectl("apply", "-f", "-", stdin=json.dumps(account))
    return Subject(light_hub, POD, pod_status("10.0.0.1", "fd00::1", theirs=True))


@pytest.fixture(scope="module")
def node(light_hub: LocalCluster) -> Subject:  # noqa: F811
    return Subject(light_hub, NODE, node_status("10.1.0.1", cpu="1", theirs=True))


def condition(kind: str, status: str, **more: str) -> JsonDict:
    return {"type": kind, "status": status, **more}


def pod_status(*ips: str, ready: str = "True", theirs: bool = False) -> JsonDict:
    container = {
        "name": "c",
        "image": "i",
        "imageID": "",
        "ready": ready == "True",
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}},
    }
    foreign = [condition("example.com/theirs", "True")] if theirs else []
    return {
        "phase": "Running",
        "conditions": [*foreign, condition("Ready", ready, reason="R"), condition("Old", "True")],
        "podIP": ips[0],
        "podIPs": [{"ip": ip} for ip in ips],
        "hostIP": "10.1.0.1",
        "hostIPs": [{"ip": "10.1.0.1"}],
        "containerStatuses": [container],
        "startTime": "2025-01-01T00:00:00Z",
    }


def node_status(address: str, *, cpu: str, theirs: bool = False) -> JsonDict:
    foreign = [condition("example.com/theirs", "True")] if theirs else []
    return {
        "capacity": {"cpu": cpu, "pods": "10"},
        "allocatable": {"cpu": cpu, "pods": "10"},
        "conditions": [*foreign, condition("Ready", "True"), condition("Old", "True")],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "InternalIP", "address": "fd00::9"},
        ],
    }


def test_a_pods_status(pod: Subject) -> None:
    """Conditions of others survive, ours change and go, the pod's IPs keep their order."""
    base = {"status": pod_status("10.0.0.1", "fd00::1")}
    ours = {"status": pod_status("10.0.0.2", "fd00::1", ready="False")}
    ours["status"]["conditions"] = [condition("Ready", "False"), condition("New", "True")]
    status = pod.check(base, ours, subresource="status")["status"]
    assert [ip["ip"] for ip in status["podIPs"]] == ["10.0.0.2", "fd00::1"]
    assert {c["type"] for c in status["conditions"]} == {"example.com/theirs", "Ready", "New"}


def test_a_pods_status_is_taken_back(pod: Subject) -> None:
    """Dropped fields, lists and maps go away on the server as they do here."""
    base = {"status": pod_status("10.0.0.1", "fd00::1")}
    ours = {"status": {"phase": "Pending", "hostIP": "10.1.0.1", "hostIPs": [{"ip": "10.1.0.1"}]}}
    status = pod.check(base, ours, subresource="status")["status"]
    assert "podIPs" not in status
    assert [c["type"] for c in status["conditions"]] == ["example.com/theirs"]


def test_a_pods_metadata(pod: Subject) -> None:
    """Labels, annotations, finalizers and owners are merged one by one."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "vn", "uid": "u"}
    ours = {
        "metadata": {
            "labels": {"ours": "1"},
            "annotations": {"ours": "1"},
            "finalizers": ["example.com/ours"],
            "ownerReferences": [owner],
        }
    }
    assert pod.check({"metadata": {"labels": {"app": "web"}}}, ours)["metadata"]["labels"] == {
        "ours": "1"
    }


def test_a_nodes_status(node: Subject) -> None:
    """Two addresses of one type stay apart; capacity changes by resource."""
    base = {"status": node_status("10.1.0.1", cpu="1")}
    ours = {"status": node_status("10.1.0.2", cpu="2")}
    del ours["status"]["capacity"]["pods"]
    status = node.check(base, ours, subresource="status")["status"]
    assert {a["address"] for a in status["addresses"]} == {"10.1.0.2", "fd00::9"}
    assert status["capacity"] == {"cpu": "2"}


def test_a_nodes_labels_taints_and_finalizers(node: Subject) -> None:
    """Our taint joins theirs in one list; sets gain and lose values."""
    base = {"metadata": {"finalizers": ["example.com/theirs"], "labels": {"theirs": "1"}}}
    ours = {
        "metadata": {"finalizers": ["example.com/ours"], "labels": {"ours": "1"}},
        "spec": {"taints": [{"key": "ours", "value": "x", "effect": "NoExecute"}]},
    }
    found = node.check(base, ours)
    assert {t["key"] for t in found["spec"]["taints"]} >= {"theirs", "ours"}
    assert found["metadata"]["finalizers"] == ["example.com/ours"]
    gone = node.check({"spec": NODE["spec"]}, {"spec": {}})
    assert "theirs" not in {t["key"] for t in gone["spec"].get("taints", ())}


def test_labels_as_a_merge_patch(node: Subject) -> None:
    """A merge patch of labels does the same."""
    edits = merge(
        {"metadata": {"labels": {"theirs": "1"}}},
        {"metadata": {"labels": {"ours": "1"}}},
        node.theirs,
        lists=rules_for("Node"),
    )
    patch = merge_patch(edits, uid=node.theirs["metadata"]["uid"])
    assert patch is not None
    assert node.dry_run(patch)["metadata"]["labels"] == {"ours": "1"}


@pytest.mark.parametrize("wrong", [{"uid": "another"}, {"resource_version": "1"}])
def test_preconditions_are_held(node: Subject, wrong: dict[str, str]) -> None:
    """A patch for another uid or version is refused, also on the status subresource."""
    edits = merge(
        {}, {"metadata": {"annotations": {"a": "1"}}}, node.theirs, lists=rules_for("Node")
    )
    for patch in (strategic_patch(edits, **wrong), merge_patch(edits, **wrong)):
        assert patch is not None
        for subresource in ("", "status"):
            with pytest.raises(TestbedError):
                node.dry_run(patch, subresource=subresource)

"""What federate wrote, counted from an audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import yaml

from e2e.bench.audit import POLICY, AuditLog, count_writes, pod_writes
from e2e.bench.bed import NAMESPACE, USER


def event(verb: str, resource: str, subresource: str = "") -> dict[str, Any]:
    about = {"resource": resource} | ({"subresource": subresource} if subresource else {})
    return {"verb": verb, "objectRef": about, "responseStatus": {"code": 200}}


def test_writes_are_counted_by_verb_and_resource() -> None:
    """A status is another kind of write than the pod itself."""
    events = [event("patch", "pods", "status"), event("patch", "pods"), event("patch", "pods")]
    assert count_writes(events) == {"patch pods": 2, "patch pods/status": 1}


def test_a_request_without_an_object_is_counted_by_its_address() -> None:
    """Nothing that was written is left out."""
    assert count_writes([{"verb": "create", "requestURI": "/odd"}]) == {"create /odd": 1}


def test_writes_to_pods_are_told_from_the_rest() -> None:
    """Leases, Events and the Node's status are not what one pod costs."""
    writes = {"create pods": 1, "patch pods/status": 3, "create events": 9, "replace leases": 2}
    assert pod_writes(writes) == 4


def test_only_what_follows_a_mark_counts(tmp_path: Path) -> None:
    """A phase is told what it wrote itself; a log that is not there yet is an empty one."""
    log = AuditLog(tmp_path / "audit.log")
    assert log.writes_since(log.mark()) == {}
    (tmp_path / "audit.log").write_bytes(orjson.dumps(event("create", "pods")) + b"\n")
    mark = log.mark()
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(orjson.dumps(event("delete", "pods")) + b"\n")
    assert log.writes_since(mark) == {"delete pods": 1}


def test_the_policy_is_about_federates_own_user() -> None:
    """The user that the bench makes is the one whose writes are written down."""
    rules = yaml.safe_load(POLICY.read_text())["rules"]
    assert rules[0]["users"] == [f"system:serviceaccount:{NAMESPACE}:{USER}"]
    assert rules[-1] == {"level": "None"}

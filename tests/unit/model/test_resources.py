"""Where resources live in the API."""

from __future__ import annotations

import pytest

from federate.model.resources import CORE_EVENTS, EVENTS, LEASES, NODES, PODS, Resource


@pytest.mark.parametrize(
    ("resource", "args", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, ("ns", "web"), "/api/v1/namespaces/ns/pods/web"),
        (PODS, ("ns", "web", "status"), "/api/v1/namespaces/ns/pods/web/status"),
        (NODES, (), "/api/v1/nodes"),
        (NODES, ("ignored", "edge", "status"), "/api/v1/nodes/edge/status"),
        (LEASES, ("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (EVENTS, ("ns",), "/apis/events.k8s.io/v1/namespaces/ns/events"),
        (CORE_EVENTS, ("ns",), "/api/v1/namespaces/ns/events"),
    ],
)
def test_paths(resource: Resource, args: tuple[str, ...], path: str) -> None:
    """Core and named groups, namespaced or not, with names and subresources."""
    assert resource.path(*args) == path


@pytest.mark.parametrize("args", [("ns/secrets",), ("ns", "web/proxy"), ("a/b", "web", "status")])
def test_what_is_no_name_leads_nowhere(args: tuple[str, ...]) -> None:
    """Whatever somebody wrote into an annotation or a list that is read."""
    with pytest.raises(ValueError, match="no Pod can be called"):
        PODS.path(*args)

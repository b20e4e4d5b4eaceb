"""What a target did not keep of a spec, and which losses make a pod run weaker (C4)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.mirror.dropped import Dropped, dropped_fields
from federate.mirror.render import RenderRules, render_spec
from tests.support.builders import pod

SENT: dict[str, Any] = {
    "hostUsers": False,
    "hostname": "web",
    "securityContext": {"runAsNonRoot": True, "supplementalGroupsPolicy": "Strict"},
    "containers": [
        {"name": "app", "image": "busybox", "ports": [{"containerPort": 80}], "env": []},
        {"name": "log", "image": "busybox", "securityContext": {"privileged": False}},
    ],
    "initContainers": [{"name": "side", "image": "busybox", "restartPolicy": "Always"}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


def without(*path: str | int) -> dict[str, Any]:
    kept = deepcopy(SENT)
    place: Any = kept
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return kept


@pytest.mark.parametrize(
    ("path", "told", "weaker"),
    [
        (("hostname",), "hostname", False),
        (("securityContext",), "securityContext", True),
        (
            ("securityContext", "supplementalGroupsPolicy"),
            "securityContext.supplementalGroupsPolicy",
            True,
        ),
        (("initContainers", 0, "restartPolicy"), "initContainers[side].restartPolicy", True),
        (("initContainers", 0), "initContainers[side]", True),
        (("initContainers",), "initContainers", True),
        (("containers", 1), "containers[log]", True),
        (("containers", 0, "ports"), "containers[app].ports", False),
        (("tolerations",), "tolerations", False),
        (("tolerations", 0, "operator"), "tolerations[gpu].operator", False),
    ],
)
def test_a_field_that_is_missing_is_named(
    path: tuple[str | int, ...], told: str, weaker: bool
) -> None:
    """The path is the one a reader of the manifest would say."""
    assert dropped_fields(SENT, without(*path)) == (Dropped(path=told, weakens=weaker),)


def test_what_says_nothing_is_not_missed() -> None:
    """An empty list is the same as none, in Go's JSON too."""
    assert dropped_fields(SENT, without("containers", 0, "env")) == ()


@pytest.mark.parametrize(
    "path", [("hostUsers",), ("containers", 1, "securityContext", "privileged")]
)
def test_a_false_that_was_asked_for_is_missed(path: tuple[str | int, ...]) -> None:
    """`hostUsers: false` asks for a user namespace: the default is true."""
    (found,) = dropped_fields(SENT, without(*path))
    assert found.weakens


def test_what_admission_changes_or_adds_is_no_loss() -> None:
    """A webhook may rewrite an image, inject a container, and default whatever it likes."""
    kept = deepcopy(SENT)
    kept["containers"][0]["image"] = "mirror.example/busybox"
    kept["containers"].insert(0, {"name": "proxy", "image": "proxy"})
    kept["tolerations"].append({"key": "more"})
    kept["dnsPolicy"] = "ClusterFirst"
    assert dropped_fields(SENT, kept) == ()


def test_a_rendered_spec_loses_nothing_to_itself() -> None:
    """What comes back as it was sent is complete."""
    spec = render_spec(pod("web").with_restart_policy("Never").build(), RenderRules())
    assert dropped_fields(spec, spec) == ()


def test_what_elements_are_called_is_no_field() -> None:
    """A webhook removes a variable that has the name of a security field: the pod runs."""
    sent = {"containers": [{"name": "app", "env": [{"name": "restartPolicy", "value": "x"}]}]}
    kept = {"containers": [{"name": "app", "env": [{"name": "OTHER", "value": "x"}]}]}
    assert [field.weakens for field in dropped_fields(sent, kept)] == [False]


@pytest.mark.parametrize(
    "container",
    [
        {
            "volumeMounts": [
                {"name": "data", "mountPath": "/a", "subPath": "a", "readOnly": True},
                {"name": "data", "mountPath": "/b"},
            ]
        },
        {"env": [{"name": "A", "value": "1"}, {"name": "A", "valueFrom": {"fieldRef": {}}}]},
        {"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
    ],
)
def test_a_list_whose_names_repeat_loses_nothing_to_itself(container: dict[str, Any]) -> None:
    """One volume is mounted twice, a variable is given twice, a port has two protocols."""
    spec = {"containers": [{"name": "app", **container}]}
    assert dropped_fields(spec, spec) == ()


def test_what_a_server_does_anyway_is_no_loss() -> None:
    """An older server without user namespaces does what `hostUsers: true` asks for."""
    assert dropped_fields({"hostUsers": True}, {}) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), JSON), st.dictionaries(st.text(max_size=3), JSON))
def test_any_two_objects_can_be_compared(sent: dict[str, Any], kept: dict[str, Any]) -> None:
    """Whatever a server answers, the comparison ends, and with itself nothing is missing."""
    assert isinstance(dropped_fields(sent, kept), tuple)
    assert dropped_fields(sent, sent) == ()

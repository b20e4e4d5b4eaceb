"""`federate run`: from options to settings, and what is printed before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from federate.cli.run import how_to_leave, how_to_use, read_settings
from federate.cli.sources import Typed
from federate.errors import ConfigError
from federate.model.naming import NamespaceStrategy
from federate.model.taints import TaintEffect
from federate.node.capacity import CapacityRules
from federate.runtime.identity import own_identity
from federate.runtime.settings import Settings

Read = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    for name in ("hub.yaml", "edge.yaml", "other.yaml"):
        (tmp_path / name).write_text("{}")

    def call(**given: Any) -> Settings:
        options: dict[str, Any] = {
            "environ": {},
            "home": tmp_path,
            "targets": [f"edge={tmp_path}/edge.yaml"],
            "hub": f"{tmp_path}/hub.yaml",
        }
        settings, _following = read_settings(Typed(**{**options, **given}))
        return settings

    return call


def test_defaults_follow_the_target(read: Read, tmp_path: Path) -> None:
    """Without options a node is as large as its target and namespaces are the hub's own."""
    settings = read()
    (target,) = settings.targets
    assert settings.hub_kubeconfig == tmp_path / "hub.yaml"
    assert (target.name, target.capacity) == ("edge", CapacityRules())
    assert target.namespaces.strategy is NamespaceStrategy.PREFIXED
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 8080)
    assert target.node_address is None


def test_options_reach_every_target(read: Read, tmp_path: Path) -> None:
    """Labels, namespaces and capacity go to all targets; a named capacity to its own."""
    settings = read(
        targets=[f"a={tmp_path}/edge.yaml@x", f"b={tmp_path}/edge.yaml"],
        capacity=["pods=5", "b:pods=7"],
        namespaces="same",
        labels=["zone=north"],
        identity="me",
        node_address="10.0.0.5",
        hub_context="h",
    )
    assert [(t.name, t.context, t.capacity) for t in settings.targets] == [
        ("a", "x", CapacityRules.fixed({"pods": "5"})),
        ("b", None, CapacityRules.fixed({"pods": "7"})),
    ]
    assert all(t.namespaces.strategy is NamespaceStrategy.SAME for t in settings.targets)
    assert all(t.labels == {"zone": "north"} for t in settings.targets)
    assert all(t.node_address == "10.0.0.5" for t in settings.targets)
    assert (settings.identity, settings.hub_context) == ("me", "h")


def test_the_identity_names_this_very_process(read: Read) -> None:
    """A restart on the same host can see that its predecessor is gone, and need not wait."""
    assert read().identity == own_identity()


def test_a_context_needs_a_file(read: Read) -> None:
    """--hub-context without any kubeconfig is told instead of ignored."""
    with pytest.raises(ConfigError, match="--hub: no kubeconfig is found"):
        read(hub=None, hub_context="x")
    assert read(hub=None).hub_kubeconfig is None


def test_what_is_printed_is_a_pod_spec(read: Read, tmp_path: Path) -> None:
    """The lines to copy are YAML that selects the node and tolerates its taint."""
    text = how_to_use(read())
    spec = yaml.safe_load(text.partition("\n")[2])
    assert spec == {
        "nodeSelector": {"kubernetes.io/hostname": "edge"},
        "tolerations": [
            {
                "key": "virtual-kubelet.io/provider",
                "operator": "Equal",
                "value": "federate",
                "effect": "NoSchedule",
            }
        ],
    }
    several = how_to_use(read(targets=[f"{n}={tmp_path}/edge.yaml" for n in "abc"]))
    assert "kubernetes.io/hostname: a    # or: b, c" in several


def test_after_the_stop_the_way_out_is_told(read: Read, tmp_path: Path) -> None:
    """What stays is named, and the one command to leave, with the hub it is about."""
    text = how_to_leave(read(hub_context="h"))
    assert "Nothing is deleted: Node edge" in text
    assert text.splitlines()[-1] == (
        f"  federate leave edge --target edge={tmp_path}/edge.yaml "
        f"--hub {tmp_path}/hub.yaml --hub-context h"
    )


def test_a_process_without_virtual_nodes_has_little_to_say(read: Read) -> None:
    """Its file may be empty: no name is printed where there is none."""
    settings = replace(read(), targets=())
    assert "no virtual node" in how_to_use(settings)
    assert how_to_leave(settings) == "Stopped. Nothing is deleted."


@pytest.mark.parametrize("effect", [None, TaintEffect.PREFER_NO_SCHEDULE])
def test_where_no_taint_keeps_pods_off_none_is_to_be_tolerated(
    read: Read, effect: TaintEffect | None
) -> None:
    settings = read()
    bare = replace(settings, targets=(replace(settings.targets[0], taint_effect=effect),))
    spec = yaml.safe_load(how_to_use(bare).partition("\n")[2])
    assert spec == {"nodeSelector": {"kubernetes.io/hostname": "edge"}}


def test_the_taint_to_tolerate_is_the_configured_one(read: Read) -> None:
    """What is printed can be copied, whatever the value is."""
    settings = read()
    other = replace(settings, targets=(replace(settings.targets[0], taint_value="ours"),))
    assert "    value: ours" in how_to_use(other)

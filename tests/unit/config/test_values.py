"""What a single value may be."""

from __future__ import annotations

from decimal import Decimal

import pytest

from federate.config import values


def test_names() -> None:
    """Node names may have dots, namespaces may not."""
    assert values.node_name("edge.example") == "edge.example"
    assert values.namespace_name("a-1") == "a-1"
    assert values.object_name("a.b") == "a.b"
    for text in ("a.b", "", "-a", "A", "a" * 64):
        with pytest.raises(ValueError, match="expected the name of a namespace"):
            values.namespace_name(text)
    for text in ("", "a" * 254, "a_b"):
        with pytest.raises(ValueError, match="expected the name of an object"):
            values.object_name(text)
    with pytest.raises(ValueError, match='"hub" is what the hub is called'):
        values.node_name("hub")


def test_keys() -> None:
    """A prefix is a DNS name of at most 253 characters, a name has at most 63."""
    for text in ("zone", "example.com/zone", "A_b.c", f"{'a.' * 126}a/b"):
        assert values.is_qualified_name(text), text
    for text in ("", "/a", "a/", "a b", "a/b/c", "x" * 64, f"{'a.' * 127}a/b", "A.com/x"):
        assert not values.is_qualified_name(text), text


def test_taints_of_others_are_refused() -> None:
    """Kubernetes' own taints come and go with conditions; ours has a key of its own."""
    assert values.taint_key("example.com/gpu") == "example.com/gpu"
    with pytest.raises(ValueError, match="come from Kubernetes itself"):
        values.taint_key("node.kubernetes.io/not-ready")
    with pytest.raises(ValueError, match="by taintValue and taintEffect"):
        values.taint_key("virtual-kubelet.io/provider")


@pytest.mark.parametrize("text", ["0", "-0.1", "1.01", "NaN", "Infinity", "half", ""])
def test_a_share_is_a_part(text: str) -> None:
    """Above nothing, at most the whole."""
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        values.share(text)
    assert values.share("0.50") == Decimal("0.5")


@pytest.mark.parametrize("text", ["", "-a", "a b", "x" * 64])
def test_a_hub_identity_is_a_label_value(text: str) -> None:
    """It stands in labels; nothing is none."""
    with pytest.raises(ValueError, match="expected 1 to 63"):
        values.hub_identity(text)
    assert values.hub_identity("first.hub_1") == "first.hub_1"


def test_a_provider_id_has_a_provider() -> None:
    """Cloud controllers split it at the slashes."""
    assert values.provider_id("aws:///zone/i-1") == "aws:///zone/i-1"
    for text in ("edge", "://x", "a://", "a:// b"):
        with pytest.raises(ValueError, match="expected PROVIDER://ID"):
            values.provider_id(text)


@pytest.mark.parametrize("name", ["cpu", "pods", "hugepages-2Mi", "nvidia.com/gpu"])
def test_a_resource_has_a_standard_name_or_a_domain(name: str) -> None:
    """Kubernetes knows no others."""
    assert values.resource_name(name) == name


@pytest.mark.parametrize("name", ["cpus", "gpu", "x y", "Cpu"])
def test_a_resource_that_no_pod_could_ask_for(name: str) -> None:
    """A misspelt name would be a cap that caps nothing."""
    with pytest.raises(ValueError, match="expected"):
        values.resource_name(name)

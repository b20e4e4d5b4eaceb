"""Which specs are run, and in which slice."""

import re
from collections import Counter

import pytest

from e2e.conformance.keeping import Keeping
from e2e.conformance.slices import (
    ALL,
    BY_DEFAULT,
    FURTHER,
    PARALLEL,
    PLAIN_VOLUMES,
    SLICES,
    by_setting,
    slices_named,
)

IN_TREE = "[sig-storage] In-tree Volumes"


def test_the_figure_is_of_parallel_conformance_specs_of_five_groups() -> None:
    """What the figure is of does not change with what is run besides."""
    counting = {name: one.label_filter for name, one in SLICES.items() if one.counts}
    assert counting == {
        "node": f"{PARALLEL} && sig-node",
        "storage": f"{PARALLEL} && sig-storage",
        "apps": f"{PARALLEL} && sig-apps",
        "auth-cli": f"{PARALLEL} && (sig-auth || sig-cli)",
    }
    assert not any(one.is_further for one in SLICES.values() if one.counts)


def test_a_slice_is_of_conformance_specs_or_leaves_them_out() -> None:
    """So no spec is in two; what may disturb others is run in a slice of its own."""
    for name, one in SLICES.items():
        if one.is_further and FURTHER in one.label_filter:
            continue
        alone = "(Serial || Disruptive)" in one.label_filter
        assert one.label_filter.startswith("Conformance && " if alone else PARALLEL), name


def test_no_spec_of_the_results_is_in_two_slices() -> None:
    """It would be counted twice."""
    keeping = Keeping()
    counted = Counter(spec for name in SLICES for spec in keeping.read(name))
    assert [spec for spec, number in counted.items() if number > 1] == []


@pytest.mark.parametrize(
    ("name", "is_plain"),
    [
        ("[sig-storage] EmptyDir volumes pod should support memory backed volumes", True),
        ("[sig-storage] PVC Protection Verify that PVC in active use", True),
        ("[sig-storage] PV Protection Verify that PV bound", True),
        (f"{IN_TREE} [Driver: emptydir] [Testpattern: Inline-volume (default fs)] a", True),
        (f"{IN_TREE} [Driver: emptydir] [Testpattern: Dynamic PV (default fs)] a", False),
        (f"{IN_TREE} [Driver: hostPathSymlink] [Testpattern: Inline-volume (default fs)] a", False),
        ("[sig-storage] CSI Mock volume fsgroup", False),
        ("[sig-storage] PersistentVolumes NFS with Single PV", False),
    ],
)
def test_of_volumes_those_are_run_that_a_kubelet_makes_itself(name: str, is_plain: bool) -> None:
    """Drivers have hundreds of specs more, most of which skip themselves."""
    assert bool(re.search(PLAIN_VOLUMES, name)) is is_plain


def test_without_a_name_the_conformance_specs_are_run() -> None:
    """The order is always that of the list, and nothing is run twice."""
    assert slices_named([]) == list(BY_DEFAULT)
    assert slices_named(["storage", "node", "node"]) == ["node", "storage"]
    assert slices_named(["apps", ALL]) == list(SLICES)


def test_a_slice_that_there_is_not_is_named() -> None:
    """Whoever mistyped sees what."""
    with pytest.raises(KeyError, match="nod, stor"):
        slices_named(["stor", "apps", "nod"])


def test_slices_of_one_setting_are_run_with_one_federate() -> None:
    """Names in DNS have a namespace in them: those of the network have the hub's."""
    assert by_setting(SLICES)[True] == ["network"]
    assert by_setting(["node", "network", "apps"]) == {False: ["node", "apps"], True: ["network"]}

"""The pair of clusters that `up` and `down` manage, as far as it needs no cluster."""

import json
from pathlib import Path

import pytest

from e2e.testbed.beds import Beds
from e2e.testbed.errors import TestbedError
from e2e.testbed.kept import BED_NAME, STATE_FILE, KeptPair, Wish
from e2e.testbed.kubeconfigs import MARK
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A made-up checkout on a made-up machine without any program."""
    return Places(
        environment={"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")},
        checkout=tmp_path / "checkout",
    )


@pytest.fixture
def pair(places: Places) -> KeptPair:
    return KeptPair(places, Progress(quiet=True))


def wish_for(provider: str, *, nodes: int = 3) -> Wish:
    return Wish(
        provider=provider,
        hub=ClusterSpec(name="hub"),
        target=ClusterSpec(name="target", nodes=nodes),
    )


def pretend_up(places: Places, pair: KeptPair, wish: Wish) -> None:
    """Leave what an `up` with provider existing leaves, without its clusters."""
    bed = Beds(places).create(BED_NAME)
    entries = [
        {"name": n, "version": "v1.34.4", "api_url": "https://x:1"} for n in ("hub", "target")
    ]
    state = {"wish": wish.as_json(), "clusters": entries}
    (bed.folder / STATE_FILE).write_text(json.dumps(state))
    for name in ("hub", "target"):
        (bed.folder / f"{name}.kubeconfig.yaml").write_text("clusters: [{name: a, cluster: {}}]\n")
    bed.keep()


def test_kind_without_docker_says_what_to_do(pair: KeptPair, places: Places) -> None:
    """Choosing kind where Docker does not answer says what to do instead, and leaves nothing."""
    with pytest.raises(TestbedError, match="start Docker, or set FEDERATE_TESTBED_PROVIDER=local"):
        pair.up(wish_for("kind"))
    assert Beds(places).named(BED_NAME) is None


def test_up_without_programs_leaves_nothing(pair: KeptPair, places: Places) -> None:
    """An `up` that cannot find its programs starts nothing and writes nothing."""
    with pytest.raises(TestbedError, match="install Go"):
        pair.up(wish_for("local"))
    assert pair.states() == []
    assert Beds(places).named(BED_NAME) is None
    assert not pair.kubeconfig("hub").exists()


def test_up_when_already_up_restores_deleted_kubeconfigs(pair: KeptPair, places: Places) -> None:
    """A second `up` changes nothing but brings back the files a person has deleted."""
    pretend_up(places, pair, wish_for("existing"))
    states = pair.up(wish_for("existing"))
    assert [state.name for state in states] == ["hub", "target"]
    assert pair.kubeconfig("hub").read_text().startswith(MARK)


def test_up_for_something_else_is_refused(pair: KeptPair, places: Places) -> None:
    """Clusters that run are never replaced by an `up` that wants others."""
    pretend_up(places, pair, wish_for("existing"))
    with pytest.raises(TestbedError, match="run `down` first"):
        pair.up(wish_for("existing", nodes=4))


def test_down_removes_its_own_files_only_and_twice_does_no_harm(
    pair: KeptPair, places: Places
) -> None:
    """`down` deletes what `up` wrote and leaves a kubeconfig somebody put there."""
    pretend_up(places, pair, wish_for("existing"))
    pair.up(wish_for("existing"))
    foreign = pair.kubeconfig("target")
    foreign.write_text("mine\n")
    assert pair.down() == 0
    assert pair.down() == 0
    assert not pair.kubeconfig("hub").exists()
    assert foreign.read_text() == "mine\n"
    assert pair.states() == []


def test_a_foreign_kubeconfig_is_never_overwritten(pair: KeptPair) -> None:
    """`up` refuses to write over a file it did not write."""
    foreign = pair.kubeconfig("hub")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine\n")
    with pytest.raises(TestbedError, match="not written by the test bed"):
        pair.up(wish_for("local"))
    assert foreign.read_text() == "mine\n"

"""Whose kind clusters are whose, and which provider is chosen: as far as it needs no Docker."""

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from e2e.testbed.beds import Beds
from e2e.testbed.binaries import RECENT_KUBECTL, Binaries
from e2e.testbed.choose import in_words, provider_name
from e2e.testbed.docker import Docker, Owner
from e2e.testbed.errors import TestbedError
from e2e.testbed.identity import Identity, machine_id
from e2e.testbed.kept import BED_NAME, STATE_FILE, KeptPair
from e2e.testbed.kind import (
    KindProvider,
    RealCluster,
    inotify_hint,
    remove_leftovers,
    render_configuration,
)
from e2e.testbed.kind_claims import VOLUME_PREFIX, Claims
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec

ANSWERING = """#!/bin/sh
echo "$*" >> "${0%/*}/asked"
case "$1 $2" in
"info "*) echo 28.0 ;;
"volume ls") /bin/cat "${0%/*}/volumes" ;;
esac
"""

KIND = """#!/bin/sh
echo "$*" >> "${0%/*}/asked-of-kind"
case "$*" in
*version*) echo 'kind version 0.33.0' ;;
*stuck*) echo 'removal is already in progress' >&2; exit 1 ;;
esac
"""

KUBECTL = """#!/bin/sh
case "$1" in
version) echo 'Client Version: v1.37.2' ;;
*) echo refused >&2; exit 1 ;;
esac
"""

MUTE = """#!/bin/sh
echo 'Cannot connect to the Docker daemon' >&2
exit 0
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A made-up machine without any program."""
    return Places(
        environment={"HOME": str(tmp_path / "home"), "PATH": str(tmp_path)},
        checkout=tmp_path / "checkout",
    )


def put_program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def put_docker(folder: Path, script: str, *, volumes: str = "") -> None:
    put_program(folder, "docker", script)
    (folder / "volumes").write_text(volumes)


def claim_of(cluster: str, owner: str) -> str:
    """Render what Docker lists of a claim."""
    return f"{VOLUME_PREFIX}{cluster}.process\t{cluster}\t{owner}\t1700000000\n"


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def dead_owner() -> Owner:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as ended:
        identity = Identity.of(ended.pid)
    assert identity is not None
    return replace(Owner.own(), process=identity)


# -- choosing --


def test_kind_is_chosen_where_docker_answers(places: Places, tmp_path: Path) -> None:
    """Without a word of the user, Docker decides."""
    assert provider_name(places) == "local"
    put_docker(tmp_path, ANSWERING)
    assert provider_name(places) == "kind"


def test_a_client_without_a_daemon_is_no_docker(places: Places, tmp_path: Path) -> None:
    """A docker command that ends with 0 but has no daemon does not count."""
    put_docker(tmp_path, MUTE)
    assert provider_name(places) == "local"


def test_the_users_word_outranks_docker(places: Places, tmp_path: Path) -> None:
    """What the variable or an option names is taken, and an unknown name is refused."""
    put_docker(tmp_path, ANSWERING)
    named = replace(
        places, environment={**places.environment, "FEDERATE_TESTBED_PROVIDER": "local"}
    )
    assert provider_name(named) == "local"
    assert provider_name(named, "kind") == "kind"
    with pytest.raises(TestbedError, match="no provider 'minikube'; there are local, kind"):
        provider_name(named, "minikube")


def test_local_says_why_and_that_kwok_only_plays(places: Places) -> None:
    """The words tell why it is local, unless the user named it."""
    why = "because Docker does not answer"
    assert f"{why} (there is no docker on the search path)" in in_words("local", places)
    assert "Docker" not in in_words("local", places, named="local")
    named = replace(
        places, environment={**places.environment, "FEDERATE_TESTBED_PROVIDER": "local"}
    )
    assert "Docker" not in in_words("local", named)
    assert "kwok only plays" in in_words("local", named)


def test_what_docker_says_is_quoted(places: Places, tmp_path: Path) -> None:
    """A person learns why Docker does not answer: it may well run."""
    put_docker(tmp_path, "#!/bin/sh\necho errors: >&2\necho permission denied >&2\nexit 1\n")
    assert "does not answer (permission denied)" in in_words("local", places)
    with pytest.raises(TestbedError, match=r"\(permission denied\): start Docker"):
        KindProvider(Binaries(places, Progress(quiet=True)))


# -- owners --


@pytest.mark.parametrize("owner", [Owner.own(), Owner.kept(Path("/state/0123abc"))])
def test_an_owner_survives_its_label(owner: Owner) -> None:
    """What is written as a label is read back."""
    assert Owner.parse(owner.format()) == owner


@pytest.mark.parametrize("text", ["", "kept/m/", "process/1/2", "process/m/x/2/b/n", "somebody"])
def test_an_unreadable_owner_is_nobody(text: str) -> None:
    """A label of another kind cannot be judged."""
    assert Owner.parse(text) is None


def test_only_the_surely_dead_are_dead() -> None:
    """A living process, another pid namespace and a keeper are left alone."""
    own, dead = Owner.own(), dead_owner()
    assert not own.is_surely_dead
    assert dead.is_surely_dead
    assert not replace(dead, pid_namespace="1").is_surely_dead
    assert not Owner.kept(Path("/state/x")).is_surely_dead


def test_an_earlier_boot_is_dead_and_another_machine_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Docker starts kind's nodes again after a boot: what runs says nothing of its owner."""
    monkeypatch.setattr("e2e.testbed.docker.machine_id", lambda: "this")
    own = Owner.own()
    assert own.process is not None
    earlier = replace(own, process=replace(own.process, boot="another-boot"))
    assert earlier.is_surely_dead
    assert not replace(earlier, machine="that").is_surely_dead
    monkeypatch.setattr("e2e.testbed.docker.machine_id", lambda: "")
    assert not replace(earlier, machine="").is_surely_dead


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_a_machine_without_an_id_is_no_certain_machine(tmp_path: Path, content: str | None) -> None:
    """Containers often have no id, and two of them are not the same machine."""
    if content is not None:
        (tmp_path / "id").write_text(content)
    assert machine_id(tmp_path / "id") == ""
    (tmp_path / "id").write_text("0123456789abcdef" * 2 + "\n")
    assert len(machine_id(tmp_path / "id")) == 12


def test_a_cluster_is_left_when_all_its_owners_are(places: Places, tmp_path: Path) -> None:
    """Claims of the dead make leftovers; one other owner saves a cluster."""
    dead = dead_owner().format()
    claims = [
        ("left", dead),
        ("mine", Owner.own().format()),
        ("handed-over", dead),
        ("handed-over", Owner.kept(Path("/state/x")).format()),
        ("strange", "somebody"),
    ]
    put_docker(tmp_path, ANSWERING, volumes="".join(claim_of(*claim) for claim in claims))
    found = Claims(Docker(places=places, program=str(tmp_path / "docker")))
    assert found.leftovers() == ["left"]
    assert found.owned_by(Owner.kept(Path("/elsewhere/x"))) == ["handed-over"]


class Told(Progress):
    """Remember what a person is told."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: str, *, always: bool = False) -> None:
        if always:
            self.said.append(text)


def test_a_leftover_that_stays_stops_nobody(places: Places, tmp_path: Path) -> None:
    """It keeps its claim, the others go, and the person is told once."""
    names = ("left", "stuck", "stuck-too")
    volumes = "".join(claim_of(name, dead_owner().format()) for name in names)
    put_docker(tmp_path, ANSWERING, volumes=volumes)
    put_program(tmp_path, "kind", KIND)
    told = Told()
    assert remove_leftovers(Binaries(places, told), Docker(places=places)) == 1
    removed = [line for line in lines_of(tmp_path / "asked") if line.startswith("volume rm")]
    assert removed == [f"volume rm --force {VOLUME_PREFIX}left.process"]
    (said,) = told.said
    assert said.count("removal is already in progress") == 2


def test_down_deletes_what_an_up_that_was_killed_kept(places: Places, tmp_path: Path) -> None:
    """Claims tell what is kept, although no state was written; twice does no harm."""
    mine, other = Owner.kept(places.state).format(), Owner.kept(Path("/state/x")).format()
    put_docker(tmp_path, ANSWERING, volumes=claim_of("mine", mine) + claim_of("other", other))
    put_program(tmp_path, "kind", KIND)
    assert KeptPair(places, Progress(quiet=True)).down() == 1
    deleted = [line for line in lines_of(tmp_path / "asked-of-kind") if "delete" in line]
    assert deleted == ["delete cluster --name=mine --kubeconfig=/dev/null"]
    (tmp_path / "volumes").write_text("")
    assert KeptPair(places, Progress(quiet=True)).down() == 0


def test_down_of_kind_clusters_needs_docker(places: Places) -> None:
    """Without Docker the record of a kept kind pair stays, and the person is told."""
    bed = Beds(places).create(BED_NAME)
    (bed.folder / STATE_FILE).write_text(json.dumps({"wish": {"provider": "kind"}}))
    bed.keep()
    with pytest.raises(TestbedError, match="start Docker"):
        KeptPair(places, Progress(quiet=True)).down()
    assert bed.folder.exists()


# -- starting and ending --


SPEC = ClusterSpec(name="target")


@pytest.fixture
def provider(places: Places, tmp_path: Path) -> KindProvider:
    """A provider with a docker that has nothing and a kind that does nothing."""
    put_docker(tmp_path, ANSWERING)
    put_program(tmp_path, "kind", KIND)
    put_program(tmp_path, "kubectl", KUBECTL)
    return KindProvider(Binaries(places, Progress(quiet=True)))


def test_images_that_cannot_be_built_cost_no_cluster(
    provider: KindProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails before a cluster is there fails before one is claimed."""

    def broken() -> list[Path]:
        raise TestbedError("no Go")

    monkeypatch.setattr(provider, "_images", broken)
    with pytest.raises(TestbedError, match="no Go"):
        provider.start(SPEC)
    assert not [line for line in lines_of(tmp_path / "asked") if line.startswith("volume create")]


def test_an_unusable_cluster_is_told_though_kubectl_fails(
    provider: KindProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason kubectl has nothing to show comes after what matters."""
    cluster = provider._assemble(SPEC)
    monkeypatch.setattr(cluster.kind, "create", lambda _: None)
    monkeypatch.setattr("e2e.testbed.kind.read_kubeconfig", lambda _: {})
    monkeypatch.setattr("e2e.testbed.kind.server_of", lambda _: "https://127.0.0.1:1")
    monkeypatch.setattr("e2e.testbed.kind.parse_version", lambda _: "v1.34.4")
    monkeypatch.setattr("e2e.testbed.kind.wait_until", lambda *_: False)
    answers = iter(["{}"])

    def kubectl(*_: str, **__: float) -> str:
        for answer in answers:
            return answer
        raise TestbedError("kubectl: refused")

    monkeypatch.setattr(cluster, "kubectl", kubectl)
    with pytest.raises(TestbedError, match=r"was not usable after (.|\n)*kubectl: refused"):
        cluster.start(Path("kind.yaml"))


def test_a_cluster_that_does_not_stop_saves_no_other(
    provider: KindProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes out, after all the rest is stopped and the bed is gone."""
    stopped: list[str] = []
    for name in ("first", "second", "third"):
        cluster = provider._assemble(replace(SPEC, name=name))
        provider._clusters.append(cluster)

    def stop(cluster: RealCluster) -> None:
        stopped.append(cluster.name)
        if cluster.name == "second":
            raise TestbedError("does not stop")

    monkeypatch.setattr(RealCluster, "stop", stop)
    with pytest.raises(TestbedError, match="does not stop"):
        provider.close()
    assert sorted(stopped) == ["first", "second", "third"]
    assert not provider.bed.folder.exists()


def test_clusters_are_described_side_by_side(
    provider: KindProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest-kind's folders where the tests run get in nobody's way, and are gone."""
    monkeypatch.chdir(tmp_path)
    specs = [replace(SPEC, name=f"cluster-{number}") for number in range(32)]
    with ThreadPoolExecutor(max_workers=16) as pool:
        clusters = list(pool.map(provider._assemble, specs))
    assert len({cluster.cluster_name for cluster in clusters}) == len(specs)
    assert not (tmp_path / ".pytest-kind").exists()


def test_the_users_kubectl_is_taken_first(provider: KindProvider, tmp_path: Path) -> None:
    """A kubectl on the search path was chosen by the user, unless it is too old for the tests."""
    assert provider._assemble(SPEC).kubectl_path == tmp_path / "kubectl"
    assert re.search(RECENT_KUBECTL, "Client Version: v1.33.0")
    assert not re.search(RECENT_KUBECTL, "Client Version: v1.32.4-dispatcher")


def test_a_low_limit_of_the_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that fails says what nodes run short of first, unless there is enough of it."""
    limit = tmp_path / "limit"
    monkeypatch.setattr("e2e.testbed.kind.INOTIFY_LIMIT", limit)
    assert inotify_hint() == ""
    limit.write_text("128\n")
    assert "gives a user 128 inotify instances" in inotify_hint()
    limit.write_text("1024\n")
    assert inotify_hint() == ""


# -- configuration --


def test_the_service_range_is_the_specs_and_patches_fit_both_kubeadms() -> None:
    """The configuration has one patch for each shape of kubeadm's arguments."""
    rendered = render_configuration(ClusterSpec(name="target", service_range="10.97.0.0/16"))
    assert rendered["networking"]["serviceSubnet"] == "10.97.0.0/16"
    old, new = rendered["kubeadmConfigPatches"]
    assert "v1beta3" in old and "leader-elect: 'false'" in old
    assert "v1beta4" in new and "name: leader-elect" in new


def test_arguments_of_the_api_server_are_in_both_patches() -> None:
    """A wish of the spec reaches kubeadm in either shape; without one kind's own stay alone."""
    wish = ("--runtime-config=a/v1=true", "--feature-gates=A=true")
    spec = ClusterSpec(name="hub", pod_range="10.245.0.0/16", apiserver_arguments=wish)
    rendered = render_configuration(spec)
    assert rendered["networking"]["podSubnet"] == "10.245.0.0/16"
    old, new = (yaml.safe_load(one)["apiServer"] for one in rendered["kubeadmConfigPatches"])
    assert old["extraArgs"] == {"runtime-config": "a/v1=true", "feature-gates": "A=true"}
    assert new["extraArgs"][0] == {"name": "runtime-config", "value": "a/v1=true"}
    plain = render_configuration(ClusterSpec(name="target"))["kubeadmConfigPatches"]
    assert not any("apiServer" in one for one in plain)


def test_settings_of_kubelets_are_one_more_patch() -> None:
    """Nobody else gets one: kubeadm would refuse it where a field is unknown."""
    spec = ClusterSpec(name="target", kubelet_settings=(("containerLogMaxSize", "4Gi"),))
    patch = render_configuration(spec)["kubeadmConfigPatches"][-1]
    assert "kind: KubeletConfiguration" in patch and "containerLogMaxSize: 4Gi" in patch

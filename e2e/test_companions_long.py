"""What takes kubelets their time: changes and tokens that nobody hurries, beside a real node.

A kubelet looks at a pod's volumes each 60 to 90 s, and when the pod is changed. In the short twins,
in `test_companions` and `test_identity`, pods are touched so that it looks at once, and tokens are
renewed much earlier than anybody needs. Here nothing is touched and nothing is set.
"""

import re
import time
from collections.abc import Iterator
from statistics import median

import pytest
import yaml

from e2e.support.desk import Desk
from e2e.support.identity import federation, token_source, tokens_noticed
from e2e.support.manifests import APP, container
from e2e.support.matrix import configmap, from_configmap, from_secret, mounted, quiet, secret
from e2e.support.measuring import Measurements
from e2e.support.pods import name_of, uid_of
from e2e.support.twins import Twins
from e2e.support.witness import Json
from e2e.support.world import Space, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = [pytest.mark.e2e, pytest.mark.long]

NODE = "patience"

WATCHERS = 20
"""Pods on each kind of node: each has a turn of its own, so that they show what turns there are."""
BEARERS = 3
"""Pods on each kind of node with a token, which each renew at a time of their own."""

KUBELET_SECONDS = 100.0
"""A kubelet's turn, and what it does in it."""
LATER_SECONDS = 45.0
"""How much later half of them may see a change than on the real node. Chance alone makes ten
seconds: turns are as they fall."""

LIFE_SECONDS = 600
"""As short as API servers let a token's life be."""
RENEWED_AT = 0.8
"""The part of its life after which a kubelet renews a token."""
RENEWAL_SECONDS = RENEWED_AT * LIFE_SECONDS + 2 * KUBELET_SECONDS

POLL_SECONDS = 5.0
"""Between two looks at what all containers say."""

LINE = re.compile(r"\[pod/(\S+)/(\S+)\] (\S+ \S+)")
FILES = ("map", "secret")


@pytest.fixture(scope="module")
def twins(
    worlds: Worlds,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Twins]:
    """Twins that wait for changes, and some with tokens; all begin with the first test."""
    hub, target = real_hub_and_target
    file = tmp_path_factory.mktemp("patience") / "federation.yaml"
    places = testbed_factory.places
    file.write_text(yaml.safe_dump(federation(NODE, hub=hub, target=target, places=places)))
    with worlds.world(node=NODE, hub=hub, target=target, config=file) as world:
        space = Space(world, "patience")
        space.open()
        found = Twins(desk=Desk.of(space, hub=hub, target=target), nodes=(hub.node_name, NODE))
        change(space, "one", is_new=True)
        names = {f"bearer-{number}": bearer() for number in range(BEARERS)}
        names |= {f"watcher-{number}": watcher() for number in range(WATCHERS)}
        for name, spec in names.items():
            found.create(name, labels={"role": name.split("-")[0]}, **spec)
        found.desk.wait_served()
        for name in names:
            found.wait_running(name)
        yield found
        space.close()


def watcher() -> Json:
    """Render a pod that notices when its files change."""
    volumes, mounts = mounted({"map": from_configmap("moving"), "secret": from_secret("moving")})
    noticing = [
        container(name=name, command=[APP, "notice", f"/given/{name}/word"], volumeMounts=mounts)
        for name in FILES
    ]
    return quiet(volumes=volumes, containers=noticing)


def bearer() -> Json:
    """Render a pod that notices each of its tokens."""
    source = token_source("vault", "vault", seconds=LIFE_SECONDS)
    volumes, mounts = mounted({"tokens": {"projected": {"sources": [source]}}})
    notices = container(command=[APP, "notice", "/given/tokens/vault"], volumeMounts=mounts)
    return quiet(volumes=volumes, containers=[notices])


def change(space: Space, word: str, *, is_new: bool = False) -> None:
    """Write what the watchers see."""
    for body in (configmap("moving", {"word": word}), secret("moving", {"word": word})):
        if is_new:
            space.create(body)
        else:
            space.hub.patch(body["kind"], space.namespace, "moving", {"data": body["data"]})


def said(twins: Twins, role: str) -> dict[tuple[str, str], list[str]]:
    """Return what the containers of all pods of a role said, by pod and container."""
    options = ("--all-containers", "--prefix", "--tail=-1", "--max-log-requests=100")
    text = twins.desk.hub.read("logs", f"--selector=role={role}", *options).decode()
    found: dict[tuple[str, str], list[str]] = {}
    for pod, name, line in LINE.findall(text):
        found.setdefault((pod, name), []).append(line)
    return found


def test_changes_come_no_later_than_on_a_real_node(twins: Twins, measured: Measurements) -> None:
    """Of many pods left alone, on both kinds of nodes, each sees it at its kubelet's turn."""
    began = time.time()
    change(twins.space, "two")

    def all_seen() -> dict[tuple[str, str], float] | None:
        time.sleep(POLL_SECONDS)
        lines = {
            key: [line.split() for line in each] for key, each in said(twins, "watcher").items()
        }
        seen = {
            key: float(at) - began
            for key, each in lines.items()
            for at, word in each
            if word == '"two"'
        }
        return seen if len(seen) == 2 * WATCHERS * len(FILES) else None

    seen = wait_for("all see it", all_seen, timeout_seconds=2 * KUBELET_SECONDS)
    for file in FILES:
        here, there = (
            sorted(at for (pod, name), at in seen.items() if pod.endswith(side) and name == file)
            for side in ("-here", "-there")
        )
        for where, each in (("on the real node", here), ("through the virtual one", there)):
            values = f"{each[0]:.1f}, {median(each):.1f}, {each[-1]:.1f} s"
            measured.note(f"{file} {where}: first, half, last", values)
        assert there[-1] <= KUBELET_SECONDS
        assert median(there) <= median(here) + LATER_SECONDS


def test_tokens_are_renewed_in_time(twins: Twins, measured: Measurements) -> None:
    """Of the shortest life that there is: in the running container, before the old one ends."""
    pods = [pod for n in range(BEARERS) for pod in twins.pods(f"bearer-{n}")]

    def all_renewed() -> dict[str, list[tuple[float, Json]]] | None:
        time.sleep(POLL_SECONDS)
        found = {pod: tokens_noticed(lines) for (pod, _), lines in said(twins, "bearer").items()}
        is_each = len(found) == len(pods) and all(len(tokens) > 1 for tokens in found.values())
        return found if is_each else None

    found = wait_for("each has another", all_renewed, timeout_seconds=RENEWAL_SECONDS)
    for hub_pod in pods:
        name = name_of(hub_pod)
        (_, first), (seen, second) = found[name][:2]
        age = second["iat"] - first["iat"]
        measured.note(
            f"{name} renewed, seen", f"{age} s, {first['exp'] - seen:.0f} s before the end"
        )
        assert seen < first["exp"]
        for token in (first, second):
            assert token["exp"] - token["iat"] == LIFE_SECONDS
            assert token["kubernetes.io"]["pod"]["uid"] == uid_of(hub_pod)
        if name.endswith("-there"):
            assert LIFE_SECONDS / 2 <= age <= RENEWED_AT * LIFE_SECONDS
        (status,) = twins.read(name)["status"]["containerStatuses"]
        assert status["restartCount"] == 0

"""A crash at each request of what comes along with a pod, and requests that arrive long after it.

A first life is lived undisturbed, and tells which requests there are; then one life is lived for
each of them, in which federate is killed when it sends that request. It never arrives, or at once,
or when all is over. In the end nothing is left of any life: no copy, no token, no entry on a
list, no Service.

The short twins: nine crashes in `test_companion_requests`, and each request in memory in
tests/unit/companions/test_crashes and test_issuing, and in tests/unit/services/test_reconciler.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from e2e.support.companions import COMPANION_LABEL, companions, value_of
from e2e.support.manifests import container, pod, pod_spec
from e2e.support.matrix import configmap, encoded, from_configmap, from_secret, mounted, secret
from e2e.support.measuring import Measurements
from e2e.support.pods import is_ready, labels_of, name_of
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy, Passed
from e2e.testbed.faults import Hold
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = [pytest.mark.e2e, pytest.mark.long]

WORLDS = 4
"""Lives beside each other, each of a federate of its own: most of one is waiting."""

RENEWED_AT = 0.02
"""The part of its life after which a token is renewed: 12 s of the shortest, ten minutes."""
LIFE_SECONDS = 600
STAGE_SECONDS = 120.0
LEFT_SECONDS = 400.0
"""What nobody names lingers for a minute, and once more after a crash; what arrives late is found
when somebody looks again."""

NOTED_SECONDS = 2.0

OWN_WISH, ADMISSIONS = "vault", "3600"
"""Found in requests for the token that the pod wishes, and for the one that admission adds."""

CANARY = "canary-of-the-hub"

WRITES = ("POST", "PUT", "PATCH", "DELETE")
UNIQUE = re.compile(r"(?<=-)[a-z2-7]{16}(?=$|/)|(?<=/federate-anchor-)[^/]+")
"""The part of generated names, and of the anchor's, that is another one in each life."""

Side = Literal["hub", "target"]
Arrival = Literal["never", "at once", "when all is over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A request at which federate is killed."""

    stage: str
    side: Side
    line: str
    """With NAMESPACE for that of the life, and UNIQUE for what is another in each."""
    body: str = ""
    """Found in the body: what goes by the same line is told apart by it."""

    @property
    def is_write(self) -> bool:
        """Tell whether it changes something when it arrives."""
        return self.line.startswith(WRITES)

    def __str__(self) -> str:
        what = f" {self.body}" if self.body else ""
        return f"{self.stage}: {self.side} {self.line}{what}"


@dataclass(slots=True, kw_only=True)
class Life:
    """A pod with all that comes along: what is made for it, changes, and goes."""

    world: World
    hub: FaultProxy
    target: FaultProxy
    space: Space
    tokens: Mapping[str, str] = field(default_factory=dict)
    """As they were before they were renewed."""
    late: list[Hold] = field(default_factory=list)

    def proxy(self, side: Side) -> FaultProxy:
        """Return federate's way to one of the clusters."""
        return self.hub if side == "hub" else self.target

    def namespace(self, side: Side) -> str:
        """Return where the pod is on that side."""
        return self.space.namespace if side == "hub" else self.space.target_namespace

    def token_secrets(self) -> list[Json]:
        """List the Secrets with tokens."""
        label = f"{COMPANION_LABEL}=tokens"
        return self.space.target.list("Secret", self.space.target_namespace, labels=label)

    def token_values(self) -> dict[str, str]:
        """Return the tokens that stand in the target."""
        return {key: value for each in self.token_secrets() for key, value in each["data"].items()}


# -- the stages of a life --------------------------------------------------------------------------


DOOR = "hub-api"
"""What leads to the hub's API server says of itself."""


def service(name: str, port: int) -> Json:
    """Render one that follows."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": port}]},
    }


def begin(life: Life) -> None:
    """The objects and Services, and a pod that needs them and two tokens."""
    for name in ("front", "back"):
        life.space.create(service(name, 80))
    for name in ("settings", "more"):
        life.space.create(configmap(name, {"word": "one"}))
    for name in ("login", "key"):
        life.space.create(secret(name, {"word": CANARY}))
    folders = {
        "settings": from_configmap("settings"),
        "more": from_configmap("more"),
        "login": from_secret("login"),
        "key": from_secret("key"),
    }
    volumes, mounts = mounted(folders)
    wish = {"path": "token", "audience": OWN_WISH, "expirationSeconds": LIFE_SECONDS}
    token = {"name": "token", "projected": {"sources": [{"serviceAccountToken": wish}]}}
    spec = pod_spec(
        life.world.node,
        volumes=[*volumes, token],
        containers=[container(volumeMounts=[*mounts, {"name": "token", "mountPath": "/token"}])],
    )
    life.space.create(pod("web", spec))


def has_begun(life: Life) -> bool:
    """It runs, and all of it is there."""
    found = life.space.pod("web")
    if found is None or not is_ready(found) or len(life.token_values()) != 2:
        return False
    shown = [value(life, "ConfigMap", name) for name in ("settings", "more")]
    shown += [value(life, "Secret", name) for name in ("login", "key")]
    is_told = "KUBERNETES_SERVICE_HOST" in told(life)
    is_there = shown == ["one", "one", CANARY, CANARY] and ports(life) == [80, 80]
    return is_there and is_told and is_led(life)


def is_led(life: Life) -> bool:
    """The names of the hub's API server lead there: one Service, as the mirror says."""
    space, found = life.space, []
    for kind in ("Service", "EndpointSlice"):
        found += space.target.list(kind, space.target_namespace, labels=f"{COMPANION_LABEL}={DOOR}")
    if len(found) != 2:
        return False
    addresses = {alias["ip"] for each in space.mirrors() for alias in each["spec"]["hostAliases"]}
    return addresses == {found[0]["spec"]["clusterIP"]}


def change(life: Life) -> None:
    """The hub's objects change, and its Services."""
    space = life.space
    space.hub.patch("ConfigMap", space.namespace, "settings", {"data": {"word": "two"}})
    space.hub.patch("Secret", space.namespace, "login", {"stringData": {"word": "two"}})
    space.hub.patch("Service", space.namespace, "front", {"spec": {"ports": [{"port": 81}]}})
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}}
    space.create({**body, "spec": {"ports": [{"port": 5432}]}})


def has_changed(life: Life) -> bool:
    """The target has it."""
    shown = [value(life, "ConfigMap", "settings"), value(life, "Secret", "login")]
    return shown == ["two", "two"] and "DB_SERVICE_HOST" in told(life) and ports(life) == [80, 81]


def remember(life: Life) -> None:
    """A token grows old by itself."""
    life.tokens = life.token_values()


def is_renewed(life: Life) -> bool:
    """The one with the shorter life is another one now."""
    return life.token_values() not in ({}, life.tokens)


def revoke(life: Life) -> None:
    """What the pod still names is deleted on the hub, and a Service that leads to it."""
    for kind, name in (("ConfigMap", "settings"), ("Secret", "login"), ("Service", "front")):
        assert life.space.hub.delete(kind, life.space.namespace, name)


def is_revoked(life: Life) -> bool:
    """Nothing of them is in the target."""
    return not left(life, "settings", "login", "front")


def end(life: Life) -> None:
    """The pod is deleted."""
    life.space.delete_pod("web")


def has_ended(life: Life) -> bool:
    """With its tokens."""
    return not (life.space.pod("web") or life.space.mirrors() or left(life, "web"))


def leave_alone(_life: Life) -> None:
    """What is left is named by nobody any more, and goes a minute later."""


def is_over(life: Life) -> bool:
    """Nothing is left."""
    return not left(life)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of a life."""

    name: str
    begin: Callable[[Life], None]
    is_settled: Callable[[Life], bool]
    concerns: Mapping[Side, str]
    """The paths, below the namespaces and elsewhere, that belong to it."""
    seconds: float = STAGE_SECONDS
    is_slow: bool = False
    """Only a life that is about it goes through it by itself."""


LISTING = "/api/v1/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/[^/]+/endpointslices"
STAGES = (
    Stage(
        name="begins",
        begin=begin,
        is_settled=has_begun,
        concerns={
            "hub": "(configmaps|secrets|serviceaccounts|services)/.*",
            "target": f"(configmaps|secrets|services)(/.*)?|{SLICES}(/.*)?",
        },
    ),
    Stage(
        name="changes",
        begin=change,
        is_settled=has_changed,
        concerns={
            "hub": "configmaps/settings|secrets/login|services/front",
            "target": "(configmaps|secrets)/(settings|services|login)-.*|services/front",
        },
    ),
    Stage(
        name="is renewed",
        begin=remember,
        is_settled=is_renewed,
        concerns={"hub": "serviceaccounts/.*", "target": "(configmaps|secrets)/web-.*"},
        is_slow=True,
    ),
    Stage(
        name="is revoked",
        begin=revoke,
        is_settled=is_revoked,
        concerns={
            "hub": "configmaps/settings|secrets/login|services/front",
            "target": "(configmaps|secrets)/(settings|login|federate-anchor)-.*|services/front",
        },
    ),
    Stage(
        name="ends",
        begin=end,
        is_settled=has_ended,
        concerns={
            "hub": "pods/web",
            "target": "(configmaps|secrets)/(web|federate-anchor)-.*",
        },
    ),
    Stage(
        name="is over",
        begin=leave_alone,
        is_settled=is_over,
        concerns={
            "hub": f"{LISTING}|pods|configmaps/more|secrets/key|services/back",
            "target": f"{LISTING}|(configmaps|secrets)/(more|key|services|federate-anchor)-.*"
            "|services/back",
        },
        seconds=LEFT_SECONDS,
        is_slow=True,
    ),
)


def value(life: Life, kind: str, name: str) -> str | None:
    """Return what the target has for an object of the hub."""
    return next((value_of(each, "word") for each in companions(life.space, kind, name)), None)


def ports(life: Life) -> list[int]:
    """List on which ports the Services answer that followed."""
    found = [each for each in marked(life) if each["kind"] == "Service"]
    return sorted(each["spec"]["ports"][0]["port"] for each in found)


def told(life: Life) -> Json:
    """Return what pods are told of Services."""
    label = f"{COMPANION_LABEL}=services"
    found = life.space.target.list("ConfigMap", life.space.target_namespace, labels=label)
    return {name: value for each in found for name, value in each["data"].items()}


def marked(life: Life) -> list[Json]:
    """List what stands in the target with the marks of something that comes along.

    Not what leads to the hub's API server: it stays there, as the anchor does.
    """
    found = [
        {**each, "kind": kind}  # in lists objects do not tell it
        for kind in ("ConfigMap", "Secret", "Service")
        for each in life.space.target.list(kind, life.space.target_namespace)
    ]
    return [each for each in found if labels_of(each).get(COMPANION_LABEL, DOOR) != DOOR]


def left(life: Life, *names: str) -> list[str]:
    """Name what is left of some of the hub's objects, or of all: copies, tokens, entries.

    A Service has the name that it has on the hub.
    """
    is_meant = re.compile(rf"({'|'.join(names)})(-|$)" if names else "")
    return [
        f"{each['kind']} {name_of(each)}" for each in marked(life) if is_meant.match(name_of(each))
    ]


# -- which requests there are ----------------------------------------------------------------------


def moments_of(life: Life) -> list[Moment]:
    """Live a life undisturbed, and return the requests of each stage, each once."""
    found: list[Moment] = []
    for stage in STAGES:
        before = {side: len(life.proxy(side).passed()) for side in stage.concerns}
        stage.begin(life)
        settle(life, stage)
        # A proxy notes a request when it was answered: a moment after its effect can be seen.
        time.sleep(NOTED_SECONDS)
        for side in stage.concerns:
            passed = life.proxy(side).passed()[before[side] :]
            found += _moments(life, stage, side, passed)
    return found


def _moments(life: Life, stage: Stage, side: Side, passed: Iterable[Passed]) -> Iterator[Moment]:
    below = f"/api/v1/namespaces/{life.namespace(side)}/"
    concerns = re.compile(stage.concerns[side])
    paths = ((each.method, each.path) for each in passed)
    lines = {
        f"{method} {UNIQUE.sub('UNIQUE', path).replace(life.namespace(side), 'NAMESPACE')}"
        for method, path in paths
        if concerns.fullmatch(path.removeprefix(below))
    }
    for line in sorted(lines):
        for body in _bodies(life, stage, line):
            yield Moment(stage=stage.name, side=side, line=line, body=body)


def _bodies(life: Life, stage: Stage, line: str) -> list[str]:
    """Tell apart what goes by the same line: what is made, and which token is asked for."""
    if line.endswith("/token"):
        is_first = stage is STAGES[0]
        return [OWN_WISH, ADMISSIONS] if is_first else [OWN_WISH]
    kind = {"POST configmaps": "ConfigMap", "POST secrets": "Secret", "POST services": "Service"}
    made = kind.get(f"{line.split()[0]} {line.rpartition('/')[2]}")
    if made is None:
        return [""]
    names = [name_of(each) for each in marked(life) if each["kind"] == made]
    if made == "Service":
        doors = [f"{DOOR}-[a-z2-7]{{16}}"] if stage is STAGES[0] else []
        return [f'"name": ?"{name}"' for name in (*names, *doors)]
    return [f'"name": ?"{UNIQUE.sub("", name)}[a-z2-7]{{16}}"' for name in names]


def settle(life: Life, stage: Stage) -> None:
    """Wait until a stage is as it ought to be."""

    def is_settled() -> bool:
        assert life.world.federate.is_running, life.space.explain()
        return stage.is_settled(life)

    def explain() -> str:
        return f"Left: {left(life)}\n{life.space.explain()}"

    what = f"the life in {life.space.namespace} {stage.name}"
    wait_for(what, is_settled, timeout_seconds=stage.seconds, explain=explain)


# -- lives with a crash ----------------------------------------------------------------------------


def live(life: Life, moment: Moment, arrival: Arrival) -> bool:
    """Live until the pod has ended, and be killed once; tells whether that request was sent."""
    was_sent = True
    for stage in STAGES:
        # The others wait for a token to grow old, and for what lingers, without need.
        if stage.is_slow and stage.name != moment.stage:
            continue
        if stage.name == moment.stage:
            was_sent = be_killed(life, stage, moment, arrival)
        else:
            stage.begin(life)
        settle(life, stage)
    return was_sent


def be_killed(life: Life, stage: Stage, moment: Moment, arrival: Arrival) -> bool:
    """Kill federate at the request and start another; False where it did without the request."""
    proxy = life.proxy(moment.side)
    line = re.escape(moment.line).replace("NAMESPACE", re.escape(life.namespace(moment.side)))
    hold = proxy.hold(line.replace("UNIQUE", "[^/]+"), body=moment.body)
    stage.begin(life)
    deadline = time.monotonic() + stage.seconds
    while not hold.caught.wait(0.2):
        assert time.monotonic() < deadline, f"{moment}\n{life.space.explain()}"
        if stage.is_settled(life):
            hold.lift()
            return False
    hold.lift()
    life.world.federate.kill()
    if arrival == "at once":
        hold.release()
    elif arrival == "when all is over":
        life.late.append(hold)
    life.world.start_federate()
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one life."""

    moment: Moment
    was_sent: bool
    is_arrived: int | None
    """How a late request was answered."""


class Lives:
    """One federate, and the lives that it is killed in, one after the other."""

    def __init__(
        self,
        stack: ExitStack,
        *,
        node: str,
        hub: LocalCluster,
        target: LocalCluster,
        folder: Path,
    ) -> None:
        self._stack = stack
        self._hub = stack.enter_context(FaultProxy.before(hub))
        self._target = stack.enter_context(FaultProxy.before(target))
        file = folder / f"{node}.yaml"
        file.write_text(yaml.safe_dump(configuration(node, self._hub, self._target)))
        # Of its own: threads do not share connections.
        worlds = Worlds(folder)
        stack.callback(worlds.close)
        self.world = stack.enter_context(
            worlds.world(node=node, hub=hub, target=target, config=file)
        )

    def new(self, name: str) -> Life:
        """Open a namespace for a life."""
        space = Space(self.world, name)
        space.open()
        self._stack.callback(self.world.hub.delete, "Namespace", "", space.namespace)
        return Life(world=self.world, hub=self._hub, target=self._target, space=space)

    def live_all(self, moments: Iterable[Moment], arrival: Arrival) -> list[Outcome]:
        """Live a life for each, and see that nothing is left of any."""
        lives: list[tuple[Life, Moment, bool]] = []
        for number, moment in enumerate(moments):
            life = self.new(f"life-{number}")
            lives.append((life, moment, live(life, moment, arrival)))
        for life, _, _ in lives:
            settle(life, STAGES[-1])
        outcomes = [
            Outcome(moment=moment, was_sent=was_sent, is_arrived=arrive(life))
            for life, moment, was_sent in lives
        ]
        for life, _, _ in lives:
            settle(life, STAGES[-1])
        self._see_that_nothing_was_read()
        return outcomes

    def _see_that_nothing_was_read(self) -> None:
        """No Secret was listed, none asked for that is not ours, and no content told."""
        for proxy in (self._hub, self._target):
            assert not proxy.passed("GET (/api/v1|.*/namespaces/[^/]+)/secrets")
        asked = [f"{p.method} {p.path}" for p in self._target.passed(".* .*/secrets/.*")]
        # Whether a Secret that a pod names is shared: its labels are read, by that name.
        foreign = {line for line in asked if not UNIQUE.search(line)}
        assert all(re.fullmatch(r"GET .*/(login|key)", line) for line in foreign), foreign
        federate = self.world.federate
        for text in (federate.log.read_text(), federate.fetch("/metrics")):
            assert CANARY not in text and encoded(CANARY) not in text
            assert not re.search(r"eyJ[\w-]{20,}\.", text), "a token"


def arrive(life: Life) -> int | None:
    """Let what was held back arrive now, long after who sent it."""
    return next((hold.release() for hold in life.late), None)


def configuration(node: str, hub: FaultProxy, target: FaultProxy) -> Json:
    """Render the configuration: tokens of the hub, which grow old soon, and Services."""
    virtual_node = {
        "nodeName": node,
        "target": {"kubeconfig": str(target.kubeconfig)},
        "identity": "hub",
        "hubAddress": "192.0.2.1:6443",
        "tokenRenewal": RENEWED_AT,
        "services": "all",
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [virtual_node],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Several federates, and the requests of an undisturbed life of one."""

    worlds: list[Lives]
    moments: list[Moment]

    def moments_for(self, arrival: Arrival) -> list[Moment]:
        """List at which requests to be killed, those first that take long.

        To a server it is all the same when, and whether, a dead client's read arrives.
        """
        found = [each for each in self.moments if each.is_write or arrival == "never"]
        return sorted(found, key=lambda moment: moment.stage != STAGES[-1].name)


@pytest.fixture(scope="module")
def fleet(
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Federates with virtual nodes of their own, between the same clusters."""
    folder = tmp_path_factory.mktemp("lives")
    with ExitStack() as stack:
        worlds = [
            Lives(stack, node=node, hub=local_hub, target=local_target, folder=folder)
            for node in (f"lives-{number}" for number in range(WORLDS))
        ]
        moments = moments_of(worlds[0].new("undisturbed"))
        print("Requests:", *moments, sep="\n")
        yield Fleet(worlds=worlds, moments=moments)


@pytest.mark.parametrize("arrival", ["never", "at once", "when all is over"])
def test_a_crash_at_any_request_leaves_nothing(
    fleet: Fleet, measured: Measurements, arrival: Arrival
) -> None:
    """Whatever request a federate died at, and whenever it arrives: the next one ends it well."""
    moments, began = fleet.moments_for(arrival), time.monotonic()
    shares = [moments[number::WORLDS] for number in range(WORLDS)]
    with ThreadPoolExecutor(WORLDS) as threads:
        ended = list(threads.map(Lives.live_all, fleet.worlds, shares, [arrival] * WORLDS))
    outcomes = [outcome for each in ended for outcome in each]
    measured.note(f"{len(moments)} lives with a crash", f"{time.monotonic() - began:.0f} s")
    unsent = [each.moment for each in outcomes if not each.was_sent]
    measured.note("reads that were not made again", list(map(str, unsent)))
    answers = Counter(each.is_arrived for each in outcomes if each.is_arrived)
    measured.note("late requests by answer", dict(answers))
    assert not [moment for moment in unsent if moment.is_write]

"""The configuration file: what it means, and what is said of one that is wrong."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import get_args

import pytest

from federate.companions.environment import Advertised
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.config import values
from federate.config.load import Configuration, load
from federate.config.schema import LogFormatName, LogLevelName
from federate.errors import ConfigError
from federate.kubelet.rules import CertificateMode, ServingRules
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.objects import ObjectKey
from federate.model.taints import Taint, TaintEffect
from federate.node.capacity import CapacityMode, CapacityRules
from federate.policy.rules import Outcome, PolicyRules
from federate.runtime.settings import KubeletSettings, TargetSettings
from federate.runtime.telemetry import LogFormat, LogLevel

FILE = Path("/etc/federate/federation.yaml")
HEAD = "apiVersion: federate.dev/v1alpha1\nkind: Federation\n"
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "federation.yaml"


def read(text: str, *, head: str = HEAD) -> Configuration:
    return load(FILE, f"{head}{dedent(text)}".encode())


def problems_of(text: str, *, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigError) as failed:
        read(text, head=head)
    lines = str(failed.value).splitlines()
    assert all(line.startswith(f"{FILE}:") for line in lines)
    return [line.removeprefix(f"{FILE}:") for line in lines]


def node(text: str) -> str:
    """Write a file with one virtual node; `text` begins in line 6."""
    return "virtualNodes:\n- nodeName: edge\n  target: {kubeconfig: edge.yaml}\n" + "".join(
        f"  {line}\n" for line in dedent(text).strip().splitlines()
    )


# -- what a right file means -----------------------------------------------------------------------


def test_the_smallest_file_has_all_defaults() -> None:
    """It is a process without virtual nodes, that listens where one without a file does."""
    found = read("")
    assert found.targets() == ()
    assert found.hub_kubeconfig is None
    assert found.federation.listen == "127.0.0.1:8080"
    assert found.federation.leader_lease_namespace == "kube-system"
    assert (found.federation.log_level, found.federation.log_format) == ("info", "auto")


def test_a_virtual_node_without_more_is_the_one_of_a_bare_target_option() -> None:
    """A file and `--target` mean the same where they say the same."""
    (target,) = read(node("")).targets()
    assert target == TargetSettings(name="edge", kubeconfig=Path("/etc/federate/edge.yaml"))


def test_every_key_reaches_the_settings() -> None:
    """Nothing in a file does nothing."""
    text = """
    hub: {kubeconfig: ~/hub.yaml, context: h, identity: first}
    listen: ":9"
    logLevel: debug
    logFormat: json
    leaderLeaseNamespace: leases
    virtualNodes:
    - nodeName: edge
      target: {kubeconfig: /k/edge.yaml, context: c}
      capacity:
        nodeSelector: {pool: gpu, a: b}
        share: 0.25
        cap: {cpu: 4, memory: 1.5Gi}
        atLeast: {cpu: 0.5}
      namespaces: {strategy: map, map: {shop: theirs, web: other}}
      labels: {zone: north, empty: ""}
      taintValue: ours
      taintEffect: NoExecute
      taints:
      - {key: gpu, value: "yes", effect: NoExecute}
      - {key: other}
      providerID: aws:///x/y
      nodeAddress: 10.0.0.5
      kubelet:
        address: 10.0.0.6
        port: 10250
        certificate: files
        certificateFile: tls.crt
        keyFile: /k/tls.key
        clientCAFile: ca.crt
      shared: [{kind: Secret, name: pull}, {kind: ConfigMap, name: site.conf}]
      identity: hub
      hubAddress: "[fd00::5]:6443"
      tokenRenewal: 0.25
    - nodeName: guest
      target: {kubeconfig: ../guest.yaml}
      kubelet: {serve: false}
      companions: false
      capacity: {mode: quota, quota: {namespace: n, name: q}, static: {memory: 1Gi}}
      namespaces: {strategy: single, single: n}
    - nodeName: fixed
      target: {kubeconfig: edge.yaml}
      kubelet: {certificate: csr, approve: true, certificateFolder: keys}
      capacity: {mode: static, static: {cpu: 4, pods: 10}}
      identity: target
      targetServiceAccount: guests
      policy: {hostPorts: allow}
      taintEffect: none
    """
    found = read(text)
    edge, guest, fixed = found.targets()
    assert edge == TargetSettings(
        name="edge",
        kubeconfig=Path("/k/edge.yaml"),
        context="c",
        capacity=CapacityRules(
            node_selector="a=b,pool=gpu",
            share=Decimal("0.25"),
            cap={"cpu": "4", "memory": "1.5Gi"},
            at_least={"cpu": "0.5"},
        ),
        namespaces=NamespaceRules(
            strategy=NamespaceStrategy.MAP, mapping={"shop": "theirs", "web": "other"}
        ),
        labels={"zone": "north", "empty": ""},
        taint_value="ours",
        taint_effect=TaintEffect.NO_EXECUTE,
        taints=(
            Taint(key="gpu", value="yes", effect=TaintEffect.NO_EXECUTE),
            Taint(key="other"),
        ),
        provider_id="aws:///x/y",
        node_address="10.0.0.5",
        kubelet=KubeletSettings(
            address="10.0.0.6",
            port=10250,
            serving=ServingRules(
                mode=CertificateMode.FILES,
                certificate_file=Path("/etc/federate/tls.crt"),
                key_file=Path("/k/tls.key"),
                client_ca_file=Path("/etc/federate/ca.crt"),
            ),
        ),
        companions=CompanionRules(
            shared=frozenset({(Kind.SECRET, "pull"), (Kind.CONFIGMAP, "site.conf")}),
            identity=IdentityMode.HUB,
            advertised=Advertised(host="fd00::5", port=6443),
            renew_share=0.25,
        ),
    )
    assert guest.companions == CompanionRules(are_made=False)
    assert fixed.companions == CompanionRules(identity=IdentityMode.TARGET, target_account="guests")
    assert (guest.taint_effect, fixed.taint_effect) == (TaintEffect.NO_SCHEDULE, None)
    assert fixed.policy == PolicyRules(outcomes={"hostPorts": Outcome.ALLOW})
    assert guest.kubelet == KubeletSettings(is_served=False)
    assert fixed.kubelet.serving == ServingRules(approves=True, folder=Path("/etc/federate/keys"))
    assert guest.capacity == CapacityRules(
        mode=CapacityMode.QUOTA, quota=ObjectKey("n", "q"), static={"memory": "1Gi"}
    )
    assert guest.namespaces == NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="n")
    assert guest.kubeconfig == Path("/etc/federate/../guest.yaml")
    assert fixed.capacity == CapacityRules.fixed({"cpu": "4", "pods": "10"})
    assert found.hub_kubeconfig == Path.home() / "hub.yaml"
    said = found.federation
    assert (said.hub.context, said.hub.identity, said.listen) == ("h", "first", ":9")
    assert (said.log_level, said.log_format) == ("debug", "json")
    assert said.leader_lease_namespace == "leases"


def test_a_key_without_a_value_is_absent() -> None:
    """As in Kubernetes: `labels:` with nothing behind it is no labels."""
    (target,) = read(node("labels:\ncapacity:\n  mode:\ntaints:")).targets()
    assert target == TargetSettings(name="edge", kubeconfig=Path("/etc/federate/edge.yaml"))


def test_the_example_is_right() -> None:
    """The file that the papers show can be used."""
    found = load(EXAMPLE, EXAMPLE.read_bytes())
    edge, gpus, guest = found.targets()
    assert edge.kubeconfig == EXAMPLE.parent / "edge.yaml"
    assert gpus.capacity.node_selector == "example.com/pool=gpu"
    assert guest.namespaces.single == "from-outside"


def test_log_words_are_those_of_telemetry() -> None:
    """The file, the flags and the logging know the same words."""
    assert tuple(map(str, LogLevel)) == values.LOG_LEVELS == get_args(LogLevelName)
    assert tuple(map(str, LogFormat)) == values.LOG_FORMATS == get_args(LogFormatName)


# -- what is said of a wrong one -------------------------------------------------------------------


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """In the order of the lines, each with its key, what was found and what was expected."""
    text = """
    hub: {kubeconfig: [a]}
    listen: 8080
    logLevel: loud
    virtualnodes: []
    virtualNodes:
    - nodename: edge
      target: {kubeconfig: k}
    - nodeName: Edge
      target:
        kubeconfig: k
        kubeconfig: z
      labels:
        zone: no
        federate.dev/x: y
        n: 007
    """
    assert problems_of(text) == [
        "4: hub.kubeconfig: found a list; expected text",
        "5: listen: found 8080 (a number); expected HOST:PORT with a port from 0 (any free one) to "
        "65535",
        '6: logLevel: found "loud"; expected debug, info, warning or error',
        "7: virtualnodes: unknown key; did you mean virtualNodes?",
        "9: virtualNodes[0].nodeName: missing; it is needed",
        "9: virtualNodes[0].nodename: unknown key; did you mean nodeName?",
        '11: virtualNodes[1].nodeName: found "Edge"; expected at most 63 lower-case letters, '
        "digits, '-' and '.', beginning and ending with a letter or digit",
        "14: virtualNodes[1].target.kubeconfig: stands in line 13 already; expected it once",
        "16: virtualNodes[1].labels.zone: found no, which YAML takes for false; "
        "expected text: write it in quotes",
        '17: virtualNodes[1].labels["federate.dev/x"]: found the key "federate.dev/x"; '
        "federate.dev/x is set by federate; expected another key",
        "18: virtualNodes[1].labels.n: found 007 (a number); expected text: write it in quotes",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("capacity: 5", "capacity: found 5 (a number); expected a mapping of keys to values"),
        (
            "capacity: {mode: big}",
            'capacity.mode: found "big"; expected one of aggregate, static, quota',
        ),
        ("capacity: {mode: static}", "capacity.static: missing; mode static needs it"),
        (
            "capacity: {mode: static, static: {cpu: 4}}",
            "capacity.static: found no pods in it; expected them too: else the node takes no pods",
        ),
        (
            "capacity: {static: {pods: 4}}",
            "capacity.static: does nothing with mode aggregate; expected mode static or quota",
        ),
        ("capacity: {mode: quota}", "capacity.quota: missing; mode quota needs it"),
        (
            "capacity: {mode: quota, quota: {name: q}}",
            "capacity.quota.namespace: missing; it is needed",
        ),
        (
            "capacity: {share: 0}",
            "capacity.share: found 0 (a number); expected a number above 0 and at most 1, "
            "as in 0.5",
        ),
        (
            "capacity: {share: true}",
            "capacity.share: found true, which YAML takes for true; expected a number above 0 "
            "and at most 1, as in 0.5",
        ),
        (
            "capacity: {cap: {cpu: 4 cores}}",
            'capacity.cap.cpu: found "4 cores"; expected a quantity, as in 4, 500m or 200Gi',
        ),
        (
            "capacity: {cap: {cpu: -1}}",
            'capacity.cap.cpu: found -1 (a number); expected 0 or more',
        ),
        (
            "capacity: {cap: {pods: 1.5}}",
            "capacity.cap: found a mapping; expected a whole number of pods",
        ),
        (
            "namespaces: {strategy: map}",
            "namespaces.map: missing; strategy map needs it",
        ),
        (
            "namespaces: {strategy: map, map: {a: x, b: x}}",
            'namespaces.map.b: found "x", which a has; expected another for each',
        ),
        (
            "namespaces: {strategy: single, single: A}",
            'namespaces.single: found "A"; expected the name of a namespace: at most 63 '
            "lower-case letters, digits and '-', beginning and ending with a letter or digit",
        ),
        (
            "namespaces: {single: a}",
            "namespaces.single: does nothing with strategy prefixed; expected strategy single",
        ),
        (
            "taints: [{key: virtual-kubelet.io/provider}]",
            'taints[0].key: found "virtual-kubelet.io/provider"; virtual-kubelet.io/provider is '
            "set by federate: by taintValue and taintEffect",
        ),
        (
            "taints: [{key: a, effect: Never}]",
            'taints[0].effect: found "Never"; expected one of NoSchedule, PreferNoSchedule, '
            "NoExecute",
        ),
        ("taints: {key: a}", "taints: found a mapping; expected a list"),
        (
            "taintEffect: NoRun",
            'taintEffect: found "NoRun"; expected one of NoSchedule, PreferNoSchedule, NoExecute, '
            "none",
        ),
        (
            "taintValue: ours\ntaintEffect: none",
            "taintValue: does nothing with taintEffect none; expected another taintEffect",
        ),
        (
            "labels: {type: mine}",
            'labels.type: found the key "type"; type is set by federate; expected another key',
        ),
        ("labels: {a: }", "labels.a: found nothing; expected text"),
        ("providerID: edge", 'providerID: found "edge"; expected PROVIDER://ID, as in '
         "federate://edge"),
        (
            "nodeAddress: host",
            'nodeAddress: found "host"; "host" is no IP address; expected one as in 10.0.0.5',
        ),
        ("kubelet: {port: 70000}", "kubelet.port: found 70000 (a number); expected a port from 0 "
         "(any free one) to 65535"),
        (
            "kubelet: {certificate: files, keyFile: k}",
            "kubelet.certificateFile: missing; certificate files needs it",
        ),
        (
            "kubelet: {approve: true, certificate: self-signed}",
            "kubelet.approve: does nothing with certificate self-signed; expected certificate csr",
        ),
        ("tainted: x", "tainted: unknown key; did you mean taints?"),
        (
            "zzz: x",
            "zzz: unknown key; expected one of nodeName, target, capacity, namespaces, labels, "
            "taintValue, taintEffect, taints, providerID, nodeAddress, kubelet, companions, "
            "shared, identity, hubAddress, tokenRenewal, targetServiceAccount, policy, addresses, "
            "services, networkPolicies, dns, volumes",
        ),
        ("companions: some", 'companions: found "some"; expected true or false'),
        ("identity: me", 'identity: found "me"; expected one of none, hub, target'),
        (
            "hubAddress: hub.example.com:6443",
            "hubAddress: does nothing with identity none; expected identity hub",
        ),
        (
            "targetServiceAccount: me\nidentity: hub\nhubAddress: h:1",
            "targetServiceAccount: does nothing with identity hub; expected identity target",
        ),
        (
            "identity: hub\nhubAddress: h:1\ncompanions: false",
            "identity: found hub; expected companions: true with it, for tokens are Secrets",
        ),
        *[
            (
                f"hubAddress: {found}\nidentity: hub",
                f"hubAddress: found {said}; expected HOST:PORT as others reach it, as in "
                "10.0.0.5:6443",
            )
            for found, said in (
                ("hub.example.com", '"hub.example.com"'),
                ("'hub:0'", '"hub:0"'),
                ("'0.0.0.0:6443'", '"0.0.0.0:6443"'),
                ("'[::]:6443'", '"[::]:6443"'),
                ("6443", "6443 (a number)"),
                ("'https://hub:6443'", '"https://hub:6443"'),
            )
        ],
        *[
            (
                f"tokenRenewal: {found}\nidentity: hub\nhubAddress: h:1",
                f"tokenRenewal: found {said}; expected a number above 0 and at most 0.8, as in 0.5",
            )
            for found, said in (
                ("0.81", "0.81 (a number)"),
                ("0", "0 (a number)"),
                ("soon", '"soon"'),
                ("[1]", "a list"),
            )
        ],
        (
            "shared: [{kind: Pod, name: a}]",
            'shared[0].kind: found "Pod"; expected one of ConfigMap, Secret',
        ),
        (
            "shared: [{kind: Secret, name: ../a}]",
            'shared[0].name: found "../a"; expected the name of an object: at most 253 lower-case '
            "letters, digits, '-' and '.', beginning and ending with a letter or digit",
        ),
        (
            "shared: [{kind: Secret, name: a}, {kind: ConfigMap, name: a}, "
            "{kind: Secret, name: a}]",
            "shared[2]: stands at shared[0] already; expected it once",
        ),
        (
            "shared: [{kind: Secret, name: a}]\ncompanions: false",
            "shared: does nothing with companions false; expected companions true",
        ),
    ],
)  # fmt: skip
def test_a_wrong_virtual_node(text: str, said: str) -> None:
    """Each wrong key is told alone, in its line."""
    assert problems_of(node(text)) == [f"6: virtualNodes[0].{said}"]


@pytest.mark.parametrize(
    ("mode", "key"), [("hub", "hubAddress"), ("target", "targetServiceAccount")]
)
def test_an_identity_has_what_it_needs(mode: str, key: str) -> None:
    (said,) = problems_of(node(f"identity: {mode}"))
    assert said.endswith(f": virtualNodes[0].{key}: missing; identity {mode} needs it")


def test_a_name_is_given_once() -> None:
    """Two virtual nodes of one name would be one Node."""
    item = "- nodeName: edge\n  target: {kubeconfig: k}\n"
    assert problems_of(f"virtualNodes:\n{item}{item}") == [
        '6: virtualNodes[1].nodeName: found "edge", which virtualNodes[0] has; expected another'
    ]


def test_a_virtual_node_is_not_called_as_the_hub() -> None:
    """As with the flag: logs and metrics tell clusters apart by name."""
    assert problems_of("virtualNodes:\n- nodeName: hub\n  target: {kubeconfig: k}\n") == [
        '4: virtualNodes[0].nodeName: found "hub"; expected another name, "hub" is what the hub is '
        "called"
    ]


def test_two_virtual_nodes_do_not_share_a_port() -> None:
    """But on two addresses they may, and a node that does not serve has none."""
    text = """
    virtualNodes:
    - {nodeName: a, target: {kubeconfig: k}, kubelet: {port: 10250}}
    - {nodeName: b, target: {kubeconfig: k}, kubelet: {port: 10250}}
    - {nodeName: c, target: {kubeconfig: k}, kubelet: {port: 10250, address: 10.0.0.3}}
    - {nodeName: d, target: {kubeconfig: k}, kubelet: {port: 10250, serve: false}}
    - {nodeName: e, target: {kubeconfig: k}, kubelet: {port: 0}}
    - {nodeName: f, target: {kubeconfig: k}, kubelet: {port: 0}}
    """
    assert problems_of(text) == [
        "6: virtualNodes[1].kubelet.port: found 10250, which virtualNodes[0] has; expected another "
        "for each"
    ]


def test_a_provider_id_is_given_once() -> None:
    """One that is not written counts too: it is made of the name."""
    text = """
    virtualNodes:
    - {nodeName: a, target: {kubeconfig: k}, providerID: "x://1"}
    - {nodeName: b, target: {kubeconfig: k}, providerID: "x://1"}
    - {nodeName: c, target: {kubeconfig: k}, providerID: "federate://d"}
    - {nodeName: d, target: {kubeconfig: k}}
    - {nodeName: e, target: {kubeconfig: k}, providerID: "federate://e"}
    """
    assert problems_of(text) == [
        '6: virtualNodes[1].providerID: found the provider id "x://1", which virtualNodes[0] has; '
        "expected another for each",
        '8: virtualNodes[3].nodeName: found the provider id "federate://d", which virtualNodes[2] '
        "has; expected another for each",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: nothing is in it; expected apiVersion: federate.dev/v1alpha1 and kind: "
         "Federation"),
        ("- a\n", "1: found a list; expected apiVersion: federate.dev/v1alpha1 and kind: "
         "Federation"),
        (
            "apiVersion: v1\nkind: Config\nusers: [{token: canary}]\n",
            '1: apiVersion: found "v1"; expected federate.dev/v1alpha1\n'
            '2: kind: found "Config"; expected Federation',
        ),
        ("kind: Federation\n", "1: apiVersion: missing; it is needed"),
        ("a: [\n", "2: no YAML: while parsing a flow node expected the node content, but found "
         "'<stream end>'"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind(text: str, said: str) -> None:
    """What it is not is told, and no word of what else is in it: it may be a kubeconfig."""
    assert problems_of(text, head="") == said.splitlines()


def test_texts_that_may_be_secret_are_not_repeated() -> None:
    """Of a kubeconfig pasted into a value, or under an unknown key, nothing is shown."""
    pasted = "virtualNodes:\n- nodeName: edge\n  target:\n    kubeconfig: |\n      users:\n"
    said = problems_of(f"{pasted}      - token: canary\n    user: {{token: canary}}\n")
    assert said == [
        "6: virtualNodes[0].target.kubeconfig: found a text of 2 lines; expected the path of a "
        "kubeconfig file, not its content",
        "9: virtualNodes[0].target.user: unknown key; expected one of kubeconfig, context",
    ]
    long = problems_of(f"logLevel: {'x' * 300}\n")[0]
    assert len(long) < 150


JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImNhbmFyeSJ9.eyJzdWIiOiJjYW5hcnkifQ.canary-signature"
PASTED = {
    "base64": base64.b64encode(b"users: [{name: a, user: {token: canary}}]\n" * 40).decode(),
    "base64 in lines": base64.encodebytes(b"users: [{token: canary}]\n" * 40).decode(),
    "yaml": "apiVersion: v1",
    "json": '{"users": [{"token": "canary"}]}',
    "a token": JWT,
    "an old token": "c4n4ryC4N4RYc4n4ryC4N4RYc4n4ryC4N4RYc4n4ry",
    "a key": "-----BEGIN RSA PRIVATE KEY-----",
    "a long name": "canary" * 50,
    "bytes beyond a name": "ä" * 200,
    "a control character": "a\0canary",
}


@pytest.mark.parametrize("what", PASTED)
def test_content_in_the_place_of_a_path_is_refused(what: str) -> None:
    """At once and in few words: it would be tried again and again, and repeated each time."""
    text = json.dumps(PASTED[what])
    hub = problems_of(f"hub: {{kubeconfig: {text}}}\n")
    target = problems_of(f"virtualNodes:\n- nodeName: a\n  target: {{kubeconfig: {text}}}\n")
    for (said,), key in ((hub, "hub"), (target, "virtualNodes[0].target")):
        assert f"{key}.kubeconfig: found " in said
        assert said.endswith("; expected the path of a kubeconfig file, not its content")
        assert PASTED[what] not in said
        assert len(said) < 250


@pytest.mark.parametrize(
    "text",
    [
        "k.yaml",
        "/etc/federate/kubeconfigs/My-Cluster-Production-2026-EU-west-1-kubeconfig.yaml",
        f"/nix/store/{'0a1b' * 16}-k/k.yaml",
        "~/k",
        "a b/ü",
        "/" + "a" * 255,
    ],
)
def test_paths_are_paths(text: str) -> None:
    """Long words, digests and spaces are no secrets."""
    found = read(f"hub: {{kubeconfig: {json.dumps(text)}}}\n")
    assert found.hub_kubeconfig is not None


def test_a_home_that_is_not_there_is_told() -> None:
    """It is no crash: the file may be read while virtual nodes run."""
    assert problems_of("hub: {kubeconfig: ~nobody-of-that-name/x}\n") == [
        '3: hub.kubeconfig: found "~nobody-of-that-name/x"; has a ~ that is no home folder here; '
        "expected a whole path"
    ]


SECRET = PASTED["base64"]


@pytest.mark.parametrize(
    "text",
    [
        f"listen: {SECRET}",
        f"logLevel: {SECRET}",
        f"leaderLeaseNamespace: {SECRET}",
        f"hub: {{identity: {SECRET}}}",
        f"hub: {{context: {SECRET}}}",
        f"{SECRET[:1000]}: x",
        f"listen: {'9' * 5000}",
        f"listen: '{SECRET}:80'",
        node(f"providerID: a://{SECRET}"),
        node(f"nodeAddress: {SECRET}"),
        node(f"labels: {{a: {SECRET}}}"),
        node(f"labels: {{{SECRET[:1000]}: a}}"),
        node(f"taints: [{{key: {SECRET}}}]"),
        node(f"capacity: {{cap: {{cpu: {SECRET}}}}}"),
        node(f"capacity: {{share: {SECRET}}}"),
        node(f"capacity: {{mode: {SECRET}}}"),
        node(f"namespaces: {{strategy: map, map: {{a: {SECRET}, b: {SECRET}}}}}"),
        node(f"namespaces: {{strategy: map, map: {{{SECRET[:999]}: x, {SECRET[:1000]}: x}}}}"),
        f"virtualNodes:\n- nodeName: {SECRET}\n- nodeName: {SECRET}",
        f"a: !<{SECRET}> x",
        f"a: *{SECRET[:1000]}",
    ],
)
def test_no_key_repeats_what_was_pasted(text: str) -> None:
    """Whatever the place, at most a line's worth of it is told."""
    for said in problems_of(f"{text}\n"):
        assert SECRET[:200] not in said
        assert len(said) < 500


@pytest.mark.parametrize("host", ["a" * 64, "a..b", f"{'a.' * 130}a"])
def test_a_host_that_has_no_name_is_refused(host: str) -> None:
    """The resolver would raise something else than an error of the network."""
    (said,) = problems_of(f'listen: "{host}:80"\n')
    assert "is no host" in said


def test_aliases_that_nest_deeper_than_what_is_written() -> None:
    """They are told, and no crash."""
    text = "a0: &a0 [x]\n"
    for number in range(1, 60):
        text += f"a{number}: &a{number} {'[' * 40}*a{number - 1}{']' * 40}\n"
    assert problems_of(text) == ["1: nested too deeply"]


def test_kubeconfigs_that_are_not_there(tmp_path: Path) -> None:
    """They are named with their line, unless a flag stands in for them."""
    (tmp_path / "there.yaml").write_text("{}")
    text = f"{HEAD}hub: {{kubeconfig: hub.yaml}}\n" + dedent(
        """
        virtualNodes:
        - nodeName: a
          target: {kubeconfig: there.yaml}
        - nodeName: b
          target: {kubeconfig: away.yaml}
        """
    )
    file = tmp_path / "f.yaml"
    found = load(file, text.encode())
    hub, target = found.missing_files()
    assert hub == (
        f'{file}:3: hub.kubeconfig: found "hub.yaml" ({tmp_path}/hub.yaml), which is no file; '
        "expected a kubeconfig file"
    )
    assert target.startswith(f"{file}:9: virtualNodes[1].target.kubeconfig: ")
    assert found.missing_files(but_hub=True, but_nodes=frozenset({"b"})) == ()

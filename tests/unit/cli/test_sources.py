"""Flags over the environment over the file, and all that is wrong anywhere at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from federate.cli.run import read_settings
from federate.cli.sources import VARIABLES, Typed
from federate.companions.environment import Advertised
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import ConfigError
from federate.kubelet.rules import CertificateMode, ServingRules
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.node.capacity import CapacityRules
from federate.runtime.identity import own_identity
from federate.runtime.settings import KubeletSettings, Settings

FILE = """
apiVersion: federate.dev/v1alpha1
kind: Federation
hub: {kubeconfig: filehub.yaml, context: filecontext, identity: filehub}
listen: 127.0.0.1:1
logLevel: error
logFormat: console
leaderLeaseNamespace: filelease
virtualNodes:
- nodeName: edge
  target: {kubeconfig: edge.yaml, context: c}
  capacity: {mode: static, static: {pods: 1}}
  namespaces: {strategy: single, single: theirs}
  labels: {zone: file, kept: file}
  nodeAddress: 10.0.0.1
  kubelet: {port: 7, certificate: files, certificateFile: a, keyFile: b, clientCAFile: c}
  identity: hub
  hubAddress: filehost:1
- nodeName: other
  target: {kubeconfig: other.yaml}
"""

ENVIRONMENT = {
    "FEDERATE_HUB_CONTEXT": "envcontext",
    "FEDERATE_HUB_IDENTITY": "envhub",
    "FEDERATE_LISTEN": "127.0.0.1:2",
    "FEDERATE_LOG_LEVEL": "warning",
    "FEDERATE_LOG_FORMAT": "json",
    "FEDERATE_IDENTITY": "envidentity",
    "FEDERATE_LEADER_LEASE_NAMESPACE": "envlease",
    "FEDERATE_NODE_ADDRESS": "10.0.0.2",
    "FEDERATE_KUBELET": "approve",
    "FEDERATE_COMPANIONS": "on",
    "FEDERATE_HUB_ADDRESS": "envhub:2",
}

FLAGS = {
    "hub_context": "flagcontext",
    "hub_identity": "flaghub",
    "listen": "127.0.0.1:3",
    "log_level": "debug",
    "log_format": "auto",
    "identity": "flagidentity",
    "leader_lease_namespace": "flaglease",
    "node_address": "10.0.0.3",
    "kubelet": "off",
    "companions": "on",
    "hub_address": "[::1]:3",
}

Make = Callable[..., Typed]


@pytest.fixture
def typed(tmp_path: Path) -> Make:
    """Make what was typed, with `--config` and a folder of kubeconfigs."""
    for name in ("filehub", "envhub", "flaghub", "edge", "other", "moved"):
        (tmp_path / f"{name}.yaml").write_text("{}")
    file = tmp_path / "federation.yaml"
    file.write_text(FILE)

    def make(**given: Any) -> Typed:
        return Typed(**{"environ": {}, "home": tmp_path, "config": str(file), **given})

    return make


def said(settings: Settings) -> list[Any]:
    return [
        settings.hub_context,
        settings.hub_identity,
        f"{settings.listen_host}:{settings.listen_port}",
        settings.log_level,
        settings.log_format,
        settings.identity,
        settings.leader_lease_namespace,
        settings.targets[0].node_address,
        kubelet_word(settings.targets[0].kubelet),
        "on" if settings.targets[0].companions.are_made else "off",
        address_of(settings.targets[0].companions),
    ]


def kubelet_word(kubelet: KubeletSettings) -> str:
    if not kubelet.is_served:
        return "off"
    return "approve" if kubelet.serving.approves else str(kubelet.serving.mode)


def address_of(companions: CompanionRules) -> str:
    found = companions.advertised
    if companions.identity is not IdentityMode.HUB or found is None:
        return ""
    host = f"[{found.host}]" if ":" in found.host else found.host
    return f"{host}:{found.port}"


def problems_of(typed: Typed) -> list[str]:
    with pytest.raises(ConfigError) as failed:
        read_settings(typed)
    return str(failed.value).splitlines()


def test_the_file_alone(typed: Make, tmp_path: Path) -> None:
    """What neither flag nor environment says, the file does; its paths begin at its folder."""
    settings, following = read_settings(typed())
    assert said(settings) == [
        "filecontext",
        "filehub",
        "127.0.0.1:1",
        "error",
        "console",
        own_identity(),
        "filelease",
        "10.0.0.1",
        "files",
        "on",
        "filehost:1",
    ]
    assert settings.hub_kubeconfig == tmp_path / "filehub.yaml"
    assert [target.name for target in settings.targets] == ["edge", "other"]
    assert settings.targets[1].node_address is None
    assert following is not None


def test_the_environment_goes_over_the_file(typed: Make) -> None:
    """Each variable over its key; an empty one is none."""
    settings, _ = read_settings(typed(environ=ENVIRONMENT))
    assert said(settings) == list(ENVIRONMENT.values())
    empty = dict.fromkeys(ENVIRONMENT, "")
    assert said(read_settings(typed(environ=empty))[0]) == said(read_settings(typed())[0])
    assert {*ENVIRONMENT, "FEDERATE_CONFIG"} == set(VARIABLES.values())


def test_flags_go_over_the_environment(typed: Make) -> None:
    """A flag's word is the last."""
    settings, _ = read_settings(typed(environ=ENVIRONMENT, **FLAGS))
    assert said(settings) == list(FLAGS.values())


def test_the_file_may_be_named_by_the_environment(typed: Make, tmp_path: Path) -> None:
    """As for a container that has the file mounted; --config goes over it."""
    file = str(tmp_path / "federation.yaml")
    settings, _ = read_settings(typed(config=None, environ={"FEDERATE_CONFIG": file}))
    assert settings.listen_port == 1
    assert problems_of(typed(config=None, environ={"FEDERATE_CONFIG": "/no/such"})) == [
        '$FEDERATE_CONFIG: "/no/such" is no file; expected a YAML file of kind Federation'
    ]
    assert problems_of(typed(config="/no/such", environ={"FEDERATE_CONFIG": file})) == [
        '--config: "/no/such" is no file; expected a YAML file of kind Federation'
    ]


def test_another_hub_puts_aside_the_context_of_the_file(typed: Make, tmp_path: Path) -> None:
    """A context is one of a kubeconfig: the file's does not fit another."""
    hub = str(tmp_path / "flaghub.yaml")
    settings, _ = read_settings(typed(hub=hub))
    assert (settings.hub_kubeconfig, settings.hub_context) == (Path(hub), None)
    environ = {"FEDERATE_HUB_KUBECONFIG": str(tmp_path / "envhub.yaml")}
    settings, _ = read_settings(typed(environ=environ, hub_context="x"))
    assert (settings.hub_kubeconfig, settings.hub_context) == (tmp_path / "envhub.yaml", "x")


def test_flags_go_over_all_virtual_nodes(typed: Make, tmp_path: Path) -> None:
    """--target adds one, or leads one of the file elsewhere and leaves its other keys."""
    moved = str(tmp_path / "moved.yaml")
    settings, _ = read_settings(
        typed(
            targets=[f"edge={moved}@m", f"new={moved}"],
            capacity=["pods=7", "other:pods=8"],
            labels=["zone=flag"],
            node_address="10.0.0.3",
        )
    )
    edge, other, new = settings.targets
    assert [edge.name, other.name, new.name] == ["edge", "other", "new"]
    assert (edge.kubeconfig, edge.context) == (Path(moved), "m")
    assert edge.labels == {"zone": "flag", "kept": "file"}
    assert edge.namespaces == NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="theirs")
    assert [target.capacity for target in settings.targets] == [
        CapacityRules.fixed({"pods": count}) for count in "787"
    ]
    assert (new.kubeconfig, new.context) == (Path(moved), None)
    assert all(target.node_address == "10.0.0.3" for target in settings.targets)
    settings, _ = read_settings(typed(namespaces="suffixed"))
    assert all(
        target.namespaces == NamespaceRules(strategy=NamespaceStrategy.SUFFIXED)
        for target in settings.targets
    )


def test_the_kubelet_word_leaves_the_rest(typed: Make, tmp_path: Path) -> None:
    """Port and client CA stay as the file has them; files of another mode are put aside."""
    for word, approves in (("csr", False), ("approve", True), ("self-signed", False)):
        settings, _ = read_settings(typed(kubelet=word))
        kubelet = settings.targets[0].kubelet
        assert (kubelet.is_served, kubelet.port) == (True, 7)
        assert kubelet.serving == ServingRules(
            mode=CertificateMode.SELF_SIGNED if word == "self-signed" else CertificateMode.CSR,
            approves=approves,
            client_ca_file=tmp_path / "c",
        )
    assert problems_of(typed(kubelet="yes")) == [
        '--kubelet: "yes": expected csr, approve, self-signed, off'
    ]


def test_words_about_companions_leave_the_rest(typed: Make, tmp_path: Path) -> None:
    """What is shared stays; an address of the hub is an identity too, and needs companions."""
    file = tmp_path / "federation.yaml"
    shared = "  shared: [{kind: Secret, name: pull}]\n"
    file.write_text(FILE.replace("- nodeName: other\n", f"{shared}- nodeName: other\n"))
    settings, _ = read_settings(typed(hub_address="hub:6443"))
    edge, other = (target.companions for target in settings.targets)
    assert edge.shared == frozenset({(Kind.SECRET, "pull")})
    assert {one.advertised for one in (edge, other)} == {Advertised(host="hub", port=6443)}
    assert {one.identity for one in (edge, other)} == {IdentityMode.HUB}
    assert problems_of(typed(companions="off")) == [
        "--companions: identity hub needs them, for tokens are Secrets"
    ]
    assert problems_of(typed(companions="no", hub_address="hub")) == [
        '--companions: "no": expected on, off',
        '--hub-address: "hub": expected HOST:PORT as others reach it, as in 10.0.0.5:6443',
    ]
    file.write_text(FILE.replace("  identity: hub\n  hubAddress: filehost:1\n", ""))
    settings, _ = read_settings(typed(companions="off"))
    assert not any(target.companions.are_made for target in settings.targets)


def test_all_that_is_wrong_is_told_at_once(typed: Make, tmp_path: Path) -> None:
    """Flags, environment and file, each with the name of its place."""
    file = tmp_path / "federation.yaml"
    file.write_text(FILE.replace("logLevel", "logLevle"))
    environ = {"FEDERATE_LOG_FORMAT": "xml", "FEDERATE_NODE_ADDRESS": "here"}
    assert problems_of(typed(environ=environ, listen="8080", labels=["a"])) == [
        '--label: "a": expected KEY=VALUE, as in zone=north',
        '$FEDERATE_NODE_ADDRESS: "here": "here" is no IP address; expected one as in 10.0.0.5',
        '--listen: "8080": expected HOST:PORT with a port from 0 (any free one) to 65535',
        '$FEDERATE_LOG_FORMAT: "xml": expected auto, console, json',
        f"{file}:6: logLevle: unknown key; did you mean logLevel?",
    ]


def test_a_kubeconfig_that_is_not_there_ends_the_start(typed: Make, tmp_path: Path) -> None:
    """Unless a flag stands in for it; later it is the trouble of its virtual node."""
    _, following = read_settings(typed())
    (tmp_path / "edge.yaml").unlink()
    (problem,) = problems_of(typed())
    assert problem.startswith(f"{tmp_path}/federation.yaml:11: virtualNodes[0].target.kubeconfig: ")
    settings, _ = read_settings(typed(targets=[f"edge={tmp_path}/moved.yaml"]))
    assert settings.targets[0].kubeconfig == tmp_path / "moved.yaml"
    assert following is not None
    later = following._read(FILE.encode())
    assert later.targets[0].kubeconfig == tmp_path / "edge.yaml"


def test_flags_go_over_a_later_file_too(typed: Make, tmp_path: Path) -> None:
    """And what kubectl would take for the hub is settled at the start."""
    (tmp_path / "federation.yaml").write_text(
        "apiVersion: federate.dev/v1alpha1\nkind: Federation\n"
    )
    given = typed(listen="127.0.0.1:3", targets=[f"flag={tmp_path}/edge.yaml"], labels=["a=b"])
    settings, following = read_settings(given)
    assert following is not None
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("{}")
    later = following._read(FILE.replace("hub:", "# hub:").encode())
    assert later.hub_kubeconfig is settings.hub_kubeconfig is None
    assert later.listen_port == 3
    assert [target.name for target in later.targets] == ["edge", "other", "flag"]
    assert all(target.labels["a"] == "b" for target in later.targets)
    with pytest.raises(ConfigError, match=r"federation\.yaml:2: zzz: unknown key"):
        following._read(b"kind: Federation\nzzz: 1\n")


def test_a_capacity_names_a_virtual_node_of_flag_or_file(typed: Make) -> None:
    """One that fits none is told with those there are."""
    assert problems_of(typed(capacity=["x:pods=1"])) == [
        '--capacity: "x:pods=1": no target is named x; expected one of edge, other'
    ]


def test_without_anything_to_run(typed: Make, tmp_path: Path) -> None:
    """Neither target nor file is a mistake; an empty file is not: nodes may be added to it."""
    assert problems_of(typed(config=None)) == [
        "--target: nothing to run; expected --target NAME=PATH, or --config FILE"
    ]
    (tmp_path / "federation.yaml").write_text(
        dedent(
            """
            apiVersion: federate.dev/v1alpha1
            kind: Federation
            """
        )
    )
    settings, _ = read_settings(typed())
    assert settings.targets == ()
    assert settings.identity == own_identity()

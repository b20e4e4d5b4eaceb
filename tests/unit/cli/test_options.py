"""What the user typed: every wrong value is one line that says what was expected."""

from __future__ import annotations

import base64
import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from federate.cli.options import (
    HUB_VARIABLE,
    Complaints,
    TargetOption,
    default_hub,
    named_hub,
    parse_capacities,
    parse_capacity,
    parse_labels,
    parse_listen,
    parse_namespaces,
    parse_node_address,
    parse_target,
    parse_targets,
)
from federate.errors import ConfigError
from federate.model.naming import NamespaceRules, NamespaceStrategy


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "target.yaml"
    file.write_text("{}")
    return file


def test_a_target_is_a_name_and_a_file(kubeconfig: Path) -> None:
    """A target without a context uses the current one."""
    expected = TargetOption(name="edge", kubeconfig=kubeconfig, context=None)
    assert parse_target(f"edge={kubeconfig}") == expected


def test_a_context_may_hold_an_at_sign(kubeconfig: Path) -> None:
    """Contexts named user@cluster, as kubeadm names them, can be given."""
    target = parse_target(f"edge={kubeconfig}@admin@kubernetes")
    assert (target.kubeconfig, target.context) == (kubeconfig, "admin@kubernetes")


def test_a_path_may_hold_an_at_sign(tmp_path: Path) -> None:
    """A file whose path holds an at sign is found, with and without a context."""
    file = tmp_path / "a@b.yaml"
    file.write_text("{}")
    assert parse_target(f"edge={file}").context is None
    assert parse_target(f"edge={file}@c") == TargetOption(name="edge", kubeconfig=file, context="c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("edge", "expected NAME=PATH"),
        ("edge=", "expected NAME=PATH"),
        ("Edge=/x", '"Edge" is no node name'),
        ("-e=/x", '"-e" is no node name'),
        (f"{'e' * 64}=/x", "at most 63"),
        ("a..b=/x", "is no node name"),
        ("=/x", '"" is no node name'),
        ("hub=/x", "expected another name"),
        ("edge=/no/such@ctx", "/no/such is no file"),
        ("edge=/no/such", "/no/such is no file"),
        ("edge=@ctx", "is no file"),
    ],
)
def test_a_wrong_target_is_refused(text: str, said: str) -> None:
    """A wrong --target is quoted with what was expected, on one line."""
    with pytest.raises(ConfigError) as failed:
        parse_target(text)
    message = str(failed.value)
    assert said in message
    assert f'"{text}"' in message
    assert "\n" not in message


def test_an_empty_context_is_refused(kubeconfig: Path) -> None:
    """An at sign with nothing after it is a mistake, not the current context."""
    with pytest.raises(ConfigError, match="name of a context after @"):
        parse_target(f"edge={kubeconfig}@")


def test_all_wrong_targets_are_told(kubeconfig: Path) -> None:
    """Duplicates and other mistakes are told together, a line each."""
    with pytest.raises(ConfigError) as failed:
        parse_targets([f"edge={kubeconfig}", f"edge={kubeconfig}", "x"])
    twice, form = str(failed.value).splitlines()
    assert "the name edge is given twice" in twice
    assert "expected NAME=PATH" in form


def test_capacity_is_read_as_written() -> None:
    """Quantities travel as they were typed, extended resources included."""
    assert parse_capacity("cpu=100,memory=200Gi,pods=50,nvidia.com/gpu=4") == (
        "",
        {"cpu": "100", "memory": "200Gi", "pods": "50", "nvidia.com/gpu": "4"},
    )
    assert parse_capacity("edge:pods=1")[0] == "edge"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu=x", '"cpu=x": cpu is "x"; expected a quantity, as in 4, 500m or 200Gi'),
        ("cpu", "expected RESOURCE=QUANTITY"),
        ("", "expected RESOURCE=QUANTITY"),
        ("cpu=1,", "expected RESOURCE=QUANTITY"),
        ("cpu=", "expected a quantity"),
        ("cpus=1,pods=5", "cpus is no resource; expected cpu, memory"),
        ("cpu=1,cpu=2", "cpu is given twice"),
        ("cpu=-1", 'cpu is "-1"; expected 0 or more'),
        ("pods=1.5", "whole number of pods"),
        ("cpu=1,memory=1Gi", "expected pods=NUMBER too"),
    ],
)
def test_a_wrong_capacity_is_refused(text: str, said: str) -> None:
    """A wrong --capacity is quoted with what was expected."""
    with pytest.raises(ConfigError) as failed:
        parse_capacity(text)
    assert said in str(failed.value)


def test_a_capacity_for_one_target_comes_before_the_one_for_all() -> None:
    """A named capacity replaces the common one; without either a node follows its target."""
    given = ["pods=5", "b:pods=7"]
    assert parse_capacities(given, ["a", "b"]) == {"a": {"pods": "5"}, "b": {"pods": "7"}}
    assert parse_capacities(["b:pods=7"], ["a", "b"]) == {"b": {"pods": "7"}}
    assert parse_capacities([], ["a"]) == {}


def test_capacities_name_a_target_once() -> None:
    """A capacity for an unknown target, or a second one for the same, is told."""
    with pytest.raises(ConfigError) as failed:
        parse_capacities(["x:pods=1", "pods=1", "pods=2", "a:pods=1", "a:pods=2"], ["a", "b"])
    unknown, common, named = str(failed.value).splitlines()
    assert "no target is named x; expected one of a, b" in unknown
    assert "of all targets is given twice" in common
    assert "of a is given twice" in named


def test_labels_are_read() -> None:
    """Label values may be empty, keys may have a prefix."""
    assert parse_labels(["a=", "example.com/zone=north"]) == {"a": "", "example.com/zone": "north"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "expected KEY=VALUE"),
        ("=b", "expected KEY=VALUE"),
        ("a=b=c", '"b=c" is no label value'),
        (f"a={'x' * 64}", "is no label value"),
        ("type=mine", "type is set by federate"),
        ("federate.dev/hub=x", "is set by federate"),
    ],
)
def test_a_wrong_label_is_refused(text: str, said: str) -> None:
    """Labels that the API server would refuse, or that are federate's own, are refused at once."""
    with pytest.raises(ConfigError, match=said.replace('"', '\\"')):
        parse_labels([text])


def test_a_label_key_is_given_once() -> None:
    """Two values for one key are a mistake."""
    with pytest.raises(ConfigError, match="the key a is given twice"):
        parse_labels(["a=1", "a=2"])


def test_namespaces_are_a_word_or_one_name() -> None:
    """What needs a list stands in a file."""
    assert parse_namespaces("suffixed") == NamespaceRules(strategy=NamespaceStrategy.SUFFIXED)
    assert parse_namespaces("single=theirs") == NamespaceRules(
        strategy=NamespaceStrategy.SINGLE, single="theirs"
    )
    for text in ("single", "map", "map=a", "", "none", "same=x"):
        with pytest.raises(ConfigError) as failed:
            parse_namespaces(text)
        assert str(failed.value) == (
            f'"{text}": expected prefixed, suffixed, same, single=NAME; '
            "a map stands in a --config file"
        )
    with pytest.raises(ConfigError, match='"single=A": expected the name of a namespace'):
        parse_namespaces("single=A")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9", ("::1", 9)),
        (":65535", ("0.0.0.0", 65535)),
    ],
)
def test_listen_is_read(text: str, expected: tuple[str, int]) -> None:
    """Hosts, IPv6 in brackets and every address can be listened on."""
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["8080", "x:", "x:65536", "x:-1", "::1:80", "[x]:1", "a b:1"])
def test_a_wrong_listen_is_refused(text: str) -> None:
    """What is no host and port is refused before anything starts."""
    with pytest.raises(ConfigError, match=r"expected|write IPv6 as"):
        parse_listen(text)


def test_the_node_address_is_an_ip() -> None:
    """Only addresses that others may reach are taken."""
    assert parse_node_address("10.0.0.5") == "10.0.0.5"
    assert parse_node_address("fd00::1") == "fd00::1"
    for text in ("edge.example", "", "0.0.0.0"):
        with pytest.raises(ConfigError, match=r"as in 10\.0\.0\.5"):
            parse_node_address(text)


def find_hub(given: str | None, *, environ: Mapping[str, str], home: Path) -> Path | None:
    """Find the hub's kubeconfig as the commands do: what is named goes first."""
    return named_hub(given, environ=environ) or default_hub(environ=environ, home=home)


def test_the_hub_is_found_in_order(tmp_path: Path) -> None:
    """--hub comes first, then federate's variable, then kubectl's, then kubectl's file."""
    files = {name: tmp_path / name for name in ("flag", "own", "first", "second")}
    for file in files.values():
        file.write_text("{}")
    home_file = tmp_path / ".kube" / "config"
    home_file.parent.mkdir()
    home_file.write_text("{}")
    environ = {
        HUB_VARIABLE: str(files["own"]),
        "KUBECONFIG": f"{files['first']}:{files['second']}",
    }
    assert find_hub(str(files["flag"]), environ=environ, home=tmp_path) == files["flag"]
    assert find_hub(None, environ=environ, home=tmp_path) == files["own"]
    del environ[HUB_VARIABLE]
    assert find_hub(None, environ=environ, home=tmp_path) == files["first"]
    assert find_hub(None, environ={}, home=tmp_path) == home_file
    home_file.unlink()
    assert find_hub(None, environ={}, home=tmp_path) is None


def test_a_hub_that_was_named_must_exist(tmp_path: Path) -> None:
    """A missing file that was named is an error, not a reason to take another cluster."""
    with pytest.raises(ConfigError, match=r'^"/no/such" is no file'):
        find_hub("/no/such", environ={}, home=tmp_path)
    with pytest.raises(ConfigError, match=rf'^\${HUB_VARIABLE}: "/no/such" is no file'):
        find_hub(None, environ={HUB_VARIABLE: "/no/such"}, home=tmp_path)


def test_complaints_are_told_together() -> None:
    """Nothing is raised where nothing was wrong; else each line names its option."""
    complaints = Complaints()
    complaints.raise_any()
    with complaints.about("--a"):
        raise ConfigError("one\ntwo")
    with complaints.about("--b"):
        raise ConfigError("three")
    with pytest.raises(ConfigError, match=r"^--a: one\n--a: two\n--b: three$"):
        complaints.raise_any()


def test_complaints_let_other_errors_pass() -> None:
    """A bug inside a block is not taken for a mistake of the user."""
    with pytest.raises(KeyError), Complaints().about("--a"):
        raise KeyError("bug")


PASTED = [
    base64.b64encode(b"users: [{name: a, user: {token: canary}}]\n" * 40).decode(),
    base64.b64encode(b"users: [{token: canary}]\n" * 5).decode(),
    "apiVersion: v1\nusers:\n- token: canary\n",
    '{"users": [{"token": "canary"}]}',
    "eyJhbGciOiJSUzI1NiIs.eyJzdWIiOiJjYW5hcnkifQ.canary",
]


@pytest.mark.parametrize("pasted", PASTED)
def test_pasted_content_is_not_repeated(pasted: str, tmp_path: Path) -> None:
    """Where a path belongs; it is no crash either, however long it is."""
    for fails in (
        lambda: parse_target(f"edge={pasted}"),
        lambda: parse_target(pasted),
        lambda: named_hub(pasted, environ={}),
        lambda: named_hub(None, environ={HUB_VARIABLE: pasted}),
        lambda: parse_capacity(pasted),
        lambda: parse_labels([pasted]),
        lambda: parse_namespaces(pasted),
        lambda: parse_listen(pasted),
        lambda: parse_node_address(pasted),
    ):
        with pytest.raises(ConfigError) as failed:
            fails()
        said = str(failed.value)
        assert "canary" not in said
        assert pasted[:30] not in said
        assert len(said) < 300
        assert "\n" not in said
    assert default_hub(environ={"KUBECONFIG": pasted.replace(":", "")}, home=tmp_path) is None


def test_a_home_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A `~` for nobody is a mistake, and no crash."""
    text = "~nobody-of-that-name/x"
    for fails in (
        lambda: parse_target(f"edge={text}"),
        lambda: named_hub(text, environ={}),
        lambda: default_hub(environ={"KUBECONFIG": text}, home=tmp_path),
    ):
        with pytest.raises(ConfigError, match="has a ~ that is no home folder here"):
            fails()


def test_a_folder_that_may_not_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named file there is told, not passed over for another hub; a strange home is none."""

    def refuse(_path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    for fails in (
        lambda: named_hub("/root/k", environ={}),
        lambda: default_hub(environ={"KUBECONFIG": "/root/k:/k"}, home=tmp_path),
        lambda: parse_target("edge=/root/k"),
    ):
        with pytest.raises(ConfigError, match="cannot be looked at: Permission denied"):
            fails()
    assert default_hub(environ={}, home=tmp_path) is None


def test_a_long_path_that_is_not_there_is_told_to_its_end(tmp_path: Path) -> None:
    """The end of a path tells most; only what looks like a file's content is not repeated."""
    file = tmp_path / ("folder" * 20) / "absent.yaml"
    with pytest.raises(ConfigError, match=r"absent\.yaml is no file"):
        parse_target(f"edge={file}")

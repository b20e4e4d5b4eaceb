"""YAML with places: what is read, in which line it stood, and what is refused."""

from __future__ import annotations

import pytest

from federate.config.tree import BYTES_LIMIT, Problem, Unreadable, path_of, read_tree


def test_every_key_and_item_has_its_line() -> None:
    """A key's line is where the key stands, an item's where the item begins."""
    tree = read_tree(b"a:\n  b: 1\n\nc:\n- x\n- d:\n    e: y\n")
    assert tree.data == {"a": {"b": 1}, "c": ["x", {"d": {"e": "y"}}]}
    lines = {
        ("a",): 1,
        ("a", "b"): 2,
        ("c",): 4,
        ("c", 0): 5,
        ("c", 1): 6,
        ("c", 1, "d"): 6,
        ("c", 1, "d", "e"): 7,
    }
    assert {loc: tree.line_of(loc) for loc in lines} == lines
    assert tree.line_of(("c", 1, "d", "absent", "below")) == 6
    assert tree.line_of(("absent",)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("007", 7),
        ("-7", -7),
        ("1_000", "1_000"),
        ("10:30", "10:30"),
        ("0x1f", "0x1f"),
        ("0.5", 0.5),
        (".inf", ".inf"),
        ("true", True),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("2026-11-30", "2026-11-30"),
        ("'7'", "7"),
        ("200Gi", "200Gi"),
        ("=", "="),
    ],
)
def test_scalars_are_what_kubernetes_takes_them_for(text: str, value: object) -> None:
    """Numbers, true and false (and YAML's other words for them) and nothing; all else is text."""
    tree = read_tree(f"a: {text}\n".encode())
    assert tree.data == {"a": value}
    assert type(tree.data["a"]) is type(value)
    assert tree.source[("a",)] == text.strip("'")


def test_a_key_that_stands_twice_is_told() -> None:
    """The first one stays, so that what else is wrong is told too."""
    tree = read_tree(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert tree.data == {"a": 1, "b": {"c": 1}}
    assert sorted(tree.problems) == [
        Problem(line=4, path="b.c", said="stands in line 3 already; expected it once"),
        Problem(line=5, path="a", said="stands in line 1 already; expected it once"),
    ]


def test_nothing_is_constructed_that_a_file_names() -> None:
    """A tag of another language's object is told, and stays a text."""
    tree = read_tree(b"a: !!python/name:os.system x\nb: !secret y\n")
    assert tree.data == {"a": "x", "b": "y"}
    assert [problem.said for problem in tree.problems] == [
        "unknown YAML tag tag:yaml.org,2002:python/name:os.system",
        "unknown YAML tag !secret",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1\nb: 2\n", "f:2: no YAML: while parsing a flow sequence expected ',' or ']'"),
        (b"a: 1\n\tb: 2\n", "f:2: no YAML: while scanning for the next token found character"),
        (b"a: *x\n", "f:1: no YAML: found undefined alias 'x'"),
        (b"a: 1\n---\na: 2\n", "f:2: no YAML: expected a single document in the stream"),
        (b"a: \xff\n", "f:1: no YAML: expected UTF-8 text"),
        (b"a: \x00\n", "f:1: no YAML: expected UTF-8 text"),
        (b"a: &x\n  b: *x\n", "f:1: a.b: contains itself"),
        (b"[" * 5000, "f:1: nested too deeply"),
        (b"#" * (BYTES_LIMIT + 1), "f:1: expected a file below 1 MiB"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(content: bytes, said: str) -> None:
    """One problem, and never a part of the file's text in it."""
    with pytest.raises(Unreadable) as failed:
        read_tree(content)
    assert failed.value.problem.at("f").startswith(said)


def test_aliases_of_aliases_end() -> None:
    """A small file that means millions of values is refused at once."""
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    with pytest.raises(Unreadable, match="more than 20000 values"):
        read_tree(f"l0: &l0 [x]\n{levels}\n".encode())


def test_a_path_is_one_that_people_write() -> None:
    """Positions and keys with dots stand in brackets."""
    assert path_of(("virtualNodes", 1, "labels", "example.com/zone")) == (
        'virtualNodes[1].labels["example.com/zone"]'
    )
    assert path_of(()) == ""

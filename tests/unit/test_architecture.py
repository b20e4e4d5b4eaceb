"""The shape of the code: layers, purity, one door to the network, words in docstrings."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "federate"

PURE = (
    "federate.check.access",
    "federate.check.accounts",
    "federate.check.connection",
    "federate.check.findings",
    "federate.check.hubaddress",
    "federate.check.identity",
    "federate.check.kubeletapi",
    "federate.check.manifests",
    "federate.check.ranges",
    "federate.check.reference",
    "federate.check.rights",
    "federate.check.storage",
    "federate.check.workloads",
    "federate.claims.bound",
    "federate.claims.ending",
    "federate.claims.holding",
    "federate.claims.keys",
    "federate.claims.leading",
    "federate.claims.places",
    "federate.claims.plan",
    "federate.claims.protocol",
    "federate.claims.provision",
    "federate.claims.reasons",
    "federate.claims.render",
    "federate.claims.rules",
    "federate.claims.steps",
    "federate.claims.verdicts",
    "federate.claims.words",
    "federate.cluster.upstream",
    "federate.companions.demand",
    "federate.companions.downward",
    "federate.companions.entries",
    "federate.companions.environment",
    "federate.companions.holding",
    "federate.companions.identity",
    "federate.companions.issuance",
    "federate.companions.issued",
    "federate.companions.keys",
    "federate.companions.lifetimes",
    "federate.companions.memory",
    "federate.companions.places",
    "federate.companions.plan",
    "federate.companions.record",
    "federate.companions.references",
    "federate.companions.refused",
    "federate.companions.render",
    "federate.companions.rewrite",
    "federate.companions.rules",
    "federate.companions.steps",
    "federate.companions.wanted",
    "federate.companions.watches",
    "federate.companions.words",
    "federate.errors",
    "federate.events.render",
    "federate.explain.advice",
    "federate.explain.bound",
    "federate.explain.facts",
    "federate.explain.mirrored",
    "federate.explain.needed",
    "federate.explain.noderoad",
    "federate.explain.road",
    "federate.explain.ruled",
    "federate.explain.running",
    "federate.explain.stations",
    "federate.flow.refusals",
    "federate.kubelet.counters",
    "federate.kubelet.exposition",
    "federate.kubelet.listing",
    "federate.kubelet.paths",
    "federate.kubelet.ports",
    "federate.kubelet.reviews",
    "federate.kubelet.reviews",
    "federate.kubelet.summary",
    "federate.kubelet.usage",
    "federate.model",
    "federate.patch",
    "federate.policy",
    "federate.services.addresses",
    "federate.services.dns",
    "federate.services.facts",
    "federate.services.door",
    "federate.services.following",
    "federate.services.hubnames",
    "federate.services.plan",
    "federate.services.policies",
    "federate.services.population",
    "federate.services.ranges",
    "federate.services.refusals",
    "federate.services.rules",
    "federate.services.selecting",
    "federate.services.steps",
    "federate.status",
    "federate.mirror.admission",
    "federate.mirror.applied",
    "federate.mirror.dropped",
    "federate.mirror.plan",
    "federate.mirror.refusal",
    "federate.mirror.render",
    "federate.mirror.steps",
    "federate.mirror.updates",
    "federate.mirror.upkeep",
    "federate.garbage.brought",
    "federate.garbage.plan",
    "federate.leave.plan",
    "federate.node.capacity",
    "federate.node.quota",
    "federate.node.credentials",
    "federate.node.daemonsets",
    "federate.node.reachability",
    "federate.node.render",
    "federate.cli.view",
)
"""Modules, and packages with all they hold, that decide and do nothing else."""

STANDARD_FOR_PURE = frozenset(
    {
        "__future__",
        "base64",
        "binascii",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "functools",
        "hashlib",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "orjson",
        "re",
        "textwrap",
        "types",
        "typing",
    }
)
"""No clock, no chance, no network, no log, no event loop."""

NETWORK = frozenset({"aiohttp", "kubernetes_asyncio", "urllib3", "requests", "httpx", "http"})
MAY_USE_NETWORK = re.compile(r"federate\.cluster(\..+)?|federate\.runtime\.telemetry")

BANNED_WORDS = ("currently", "for now", "in the future", "workaround")


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module of the product by its dotted name."""
    found = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return found


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield module
            yield from (
                name for alias in node.names if (name := f"{module}.{alias.name}") in modules()
            )


def is_pure(name: str) -> bool:
    return any(name == pure or name.startswith(f"{pure}.") for pure in PURE)


def docstrings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings, and the strings that stand under constants and fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_layers_follow_the_flow_of_the_data() -> None:
    """No module imports from a layer above its own, nor a sibling of its layer."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache", "--config", "pyproject.toml"],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [name for name in modules() if is_pure(name)])
def test_pure_modules_only_decide(name: str) -> None:
    """They import pure modules and a few of the standard library, and nothing that acts."""
    for imported in imports_of(modules()[name]):
        if imported.split(".")[0] == "federate":
            parents = {".".join(pure.split(".")[:-1]) for pure in PURE}
            assert is_pure(imported) or imported in parents, f"{name} imports {imported}"
        else:
            assert imported.split(".")[0] in STANDARD_FOR_PURE, f"{name} imports {imported}"


@pytest.mark.parametrize("name", [name for name in modules() if is_pure(name)])
def test_pure_modules_read_no_clock(name: str) -> None:
    """`datetime` is for instants that are handed in: nobody asks it what time it is."""
    asked = {"now", "utcnow", "today", "open", "print", "input"}
    for node in ast.walk(modules()[name]):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            assert called not in asked, f"{name}:{node.lineno} calls {called}"


def test_the_list_of_pure_modules_is_true() -> None:
    """A module that was renamed does not slip out of the rules; one that says so is in them.

    What is pure in `cluster` may use the codecs of the wire.
    """
    for pure in PURE:
        assert pure in modules(), pure
    for name, tree in modules().items():
        claims = re.search(r"\bPure\b|; pure\b", ast.get_docstring(tree) or "")
        if claims and not name.startswith("federate.cluster."):
            assert is_pure(name), f"{name} says it is pure"


@pytest.mark.parametrize("name", list(modules()))
def test_the_network_has_one_door(name: str) -> None:
    """HTTP libraries are known to `cluster`, and to the page with the metrics."""
    if not MAY_USE_NETWORK.fullmatch(name):
        used = {imported.split(".")[0] for imported in imports_of(modules()[name])}
        assert not used & NETWORK, f"{name} imports {used & NETWORK}"


@pytest.mark.parametrize("name", list(modules()))
def test_every_module_says_what_it_is(name: str) -> None:
    """A docstring first, that ends as a sentence does."""
    docstring = ast.get_docstring(modules()[name])
    assert docstring, name
    assert docstring.rstrip()[-1] in ".:)`!?─" or "\n" in docstring, name


@pytest.mark.parametrize("name", list(modules()))
def test_docstrings_speak_of_what_is(name: str) -> None:
    """History belongs in the changelog, wishes in issues."""
    for line, text in docstrings_of(modules()[name]):
        for word in BANNED_WORDS:
            assert word not in text.lower(), f"{name}:{line} says {word!r}"
        assert "TODO" not in text or re.search(r"TODO\(?#\d+", text), f"{name}:{line}"


def test_nobody_tests_the_product_by_patching_it() -> None:
    """Ports instead: no test reaches into our code to replace a part of it."""
    for path in (ROOT / "tests").rglob("*.py"):
        if path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"monkeypatch\.setattr\(\s*[\"']?federate|mock\.patch", text), path

"""Run the credential plugin that a kubeconfig names (`user.exec`), as kubectl does.

Below `connect`, which says when. A plugin is bounded in time and killed with its children when that
is over; what it prints is never repeated, since it may print what it has: it goes nowhere but into
the credential.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from federate.cluster.kubeconfig import Entry, read_authority

PLUGIN_TIMEOUT_SECONDS = 60.0
"""A plugin may talk to an identity provider; one that hangs must not hang us."""

CLUSTER_CONFIG = "client.authentication.k8s.io/exec"
"""The extension of a cluster whose content a plugin is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCredential:
    """What a plugin said."""

    token: str = field(default="", repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """How to start it."""

    api_version: str
    command: str
    arguments: Sequence[str] = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)
    wants_cluster: bool

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return Path(self.command).name


def read_plugin(entry: Entry) -> Plugin:
    """Read `user.exec`.

    Raises:
        ConfigError: it is incomplete, or wants a terminal.
    """
    said = entry.user["exec"]
    needed = [said.get(key) for key in ("command", "apiVersion")] if isinstance(said, dict) else []
    if not isinstance(said, dict) or not all(text and isinstance(text, str) for text in needed):
        raise entry.wrong("user.exec", "expected command and apiVersion")
    arguments, variables = said.get("args") or [], said.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(a, str) for a in arguments):
        raise entry.wrong("user.exec.args", "expected a list of texts")
    if not isinstance(variables, list) or not all(_is_variable(v) for v in variables):
        raise entry.wrong("user.exec.env", "expected a list of name and value")
    if said.get("interactiveMode") == "Always":
        raise entry.wrong(
            "user.exec.interactiveMode", "a plugin that must ask a person cannot be used here"
        )
    command = str(said["command"])
    return Plugin(
        api_version=str(said["apiVersion"]),
        # One with a slash is found beside the kubeconfig, any other along $PATH.
        command=str(entry.path.parent / command) if os.sep in command else command,
        arguments=tuple(arguments),
        variables={str(v["name"]): str(v["value"]) for v in variables},
        wants_cluster=bool(said.get("provideClusterInfo")),
    )


def _is_variable(value: object) -> bool:
    return isinstance(value, dict) and bool(value.get("name")) and "value" in value


async def ask_plugin(entry: Entry, environ: Mapping[str, str]) -> PluginCredential:
    """Run the plugin once.

    Raises:
        ConfigError: it failed, or gave nothing usable.
    """
    plugin = read_plugin(entry)
    info = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False}
        | ({"cluster": _cluster(entry)} if plugin.wants_cluster else {}),
    }
    variables = {**environ, **plugin.variables, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
    try:
        code, printed = await _run(plugin, variables)
    except FileNotFoundError:
        raise entry.wrong("user.exec", f"the plugin {plugin.name} is not installed here") from None
    except TimeoutError:
        raise entry.wrong(
            "user.exec",
            f"the plugin {plugin.name} did not end within {PLUGIN_TIMEOUT_SECONDS:g} s",
        ) from None
    except (OSError, ValueError):
        raise entry.wrong("user.exec", f"the plugin {plugin.name} cannot be started") from None
    if code != 0:
        raise entry.wrong(
            "user.exec",
            f"the plugin {plugin.name} failed with exit code {code}; run it by hand to see why",
        )
    return _credential(entry, plugin, printed)


async def _run(plugin: Plugin, variables: Mapping[str, str]) -> tuple[int, bytes]:
    process = await asyncio.create_subprocess_exec(
        plugin.command,
        *plugin.arguments,
        env=variables,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            # Its children too: one of them may be what hangs, and holds the pipe.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode or 0, printed


def _cluster(entry: Entry) -> Mapping[str, Any]:
    """Say which cluster the credential is for, where the plugin asks for that."""
    authority = read_authority(entry)
    listed = entry.cluster.get("extensions") or ()
    extensions = {e.get("name"): e.get("extension") for e in listed if isinstance(e, dict)}
    said = {
        "server": entry.cluster["server"],
        "tls-server-name": entry.cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": entry.cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else None,
        "proxy-url": entry.cluster.get("proxy-url"),
        "config": extensions.get(CLUSTER_CONFIG),
    }
    return {key: value for key, value in said.items() if value}


def _credential(entry: Entry, plugin: Plugin, printed: bytes) -> PluginCredential:
    try:
        said = orjson.loads(printed)
    except orjson.JSONDecodeError:
        said = None
    status = said.get("status") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(status, dict):
        raise entry.wrong("user.exec", f"the plugin {plugin.name} printed no ExecCredential")
    if said.get("apiVersion") != plugin.api_version:
        raise entry.wrong(
            "user.exec",
            f"the plugin {plugin.name} answered in another version than apiVersion says",
        )
    token, certificate = status.get("token"), status.get("clientCertificateData")
    key = status.get("clientKeyData")
    if not token and not certificate:
        raise entry.wrong("user.exec", f"the plugin {plugin.name} gave no token and no certificate")
    if bool(certificate) != bool(key):
        raise entry.wrong(
            "user.exec",
            f"the plugin {plugin.name} gave a certificate without its key, or a key only",
        )
    return PluginCredential(
        token=str(token or ""),
        certificate=str(certificate).encode() if certificate else None,
        key=str(key).encode() if key else None,
        expires_at=_instant(entry, status.get("expirationTimestamp")),
    )


def _instant(entry: Entry, stamp: object) -> float | None:
    if not stamp:
        return None
    try:
        instant = datetime.fromisoformat(str(stamp))
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise entry.wrong("user.exec", "the plugin's expirationTimestamp is no time")
    return instant.timestamp()

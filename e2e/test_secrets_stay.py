"""No secret shows where others read: a run at debug level in which all credentials go wrong (C73).

Each secret is a canary that is searched for afterwards, as it is, escaped and in base64: in the
log, the metrics, what the commands print, and all Events, Nodes and pods of both clusters. For
every single failure tests/unit/cluster/test_secrets_stay.py does the same.
"""

import asyncio
import base64
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from e2e.support.manifests import container, pod, pod_spec
from e2e.support.pods import condition_of
from e2e.support.process import FederateProcess, run_cli
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.kubeconfigs import chosen_by_context, read_kubeconfig
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster
from tests.support.canaries import Canaries
from tests.support.relays import USER, Relay, http_relay

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "secrets"

FAILURE_SECONDS = 60.0
"""Files are read again every 5 s, and after a failure every 10 s."""


@contextmanager
def relay_of(password: str) -> Iterator[Relay]:
    """Run a proxy in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serving = http_relay(password=password)
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(10)
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The kubeconfigs of the run, and the canaries in them."""

    folder: Path
    canaries: Canaries

    @property
    def hub(self) -> Path:
        return self.folder / "hub.yaml"

    @property
    def target(self) -> Path:
        return self.folder / "target.yaml"

    def write(self, path: Path, cluster: TestCluster, user: dict[str, Any], **more: str) -> None:
        """Write a kubeconfig to a cluster for a user, whole."""
        content = read_kubeconfig(cluster.kubeconfig)
        settings = chosen_by_context(content)
        kept = {k: v for k, v in settings.items() if k.startswith(("server", "certificate-a"))}
        written = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {**kept, **more}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        new = path.with_suffix(".new")
        new.write_text(yaml.safe_dump(written))
        new.rename(path)

    def plugin(self, token: str, *, code: int = 0) -> dict[str, Any]:
        """A plugin that is given secrets, gives one, and tells all of them on stderr."""
        version = "client.authentication.k8s.io/v1"
        given = [self.canaries.word(f"argument {code}"), self.canaries.word(f"variable {code}")]
        said = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
        script = self.folder / f"plugin-{code}.py"
        noise = self.canaries.word(f"stderr {code}")
        script.write_text(
            f"import os, sys\nprint(sys.argv, os.environ['GIVEN'], {noise!r}, file=sys.stderr)\n"
            f"print({json.dumps(said)!r})\nraise SystemExit({code})\n"
        )
        return {
            "exec": {
                "apiVersion": version,
                "command": sys.executable,
                "args": [str(script), given[0]],
                "env": [{"name": "GIVEN", "value": given[1]}],
                "interactiveMode": "Never",
            }
        }


def admins_token(cluster: TestCluster, namespace: str) -> str:
    """Make a service account that may do everything, and return a token of it."""
    cluster.kubectl("create", "serviceaccount", NODE, f"--namespace={namespace}")
    account = f"--serviceaccount={namespace}:{NODE}"
    binding = f"{NODE}-{namespace}"
    cluster.kubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", account)
    token = cluster.kubectl("create", "token", NODE, f"--namespace={namespace}", "--duration=1h")
    return token.strip()


def admins_pair(cluster: TestCluster, canaries: Canaries) -> dict[str, Any]:
    """Return the administrator's certificate; each line of the key is a canary."""
    settings = chosen_by_context(read_kubeconfig(cluster.kubeconfig))
    key = base64.b64decode(settings["client-key-data"]).decode()
    for number, line in enumerate(key.splitlines()[1:-2]):
        canaries.keep(f"client key, line {number}", line)
    return {k: settings[k] for k in ("client-certificate-data", "client-key-data")}


@contextmanager
def running(
    worlds: Worlds, files: Files, *, hub: TestCluster, target: TestCluster
) -> Iterator[World]:
    """Run federate at debug level with these files."""
    with worlds.world(node=NODE, hub=hub, target=target, started=False) as plain:
        options = replace(
            plain.federate.options,
            hub=files.hub,
            target=files.target,
            arguments=("--log-level", "debug"),
        )
        federate = FederateProcess(options, folder=files.folder)
        world = replace(plain, federate=federate)
        try:
            world.start_federate()
            yield world
        finally:
            federate.close()


def wait_logged(world: World, text: str, *, times: int = 1) -> None:
    """Wait until the log has that, so many times."""
    wait_for(
        f"the log says {text!r}",
        lambda: world.federate.log.read_text(errors="replace").count(text) >= times,
        timeout_seconds=FAILURE_SECONDS,
        explain=world.federate.log_tail,
    )


def go_wrong(
    world: World, files: Files, relay: Relay, hub: TestCluster, target: TestCluster
) -> str:
    """Let every kind of credential fail, at both clusters at once; returns what a command said."""
    canaries = files.canaries
    proxy = f"http://{USER}:{canaries.word('wrong password')}@127.0.0.1:{relay.port}"
    files.write(files.target, target, admins_pair(target, canaries), **{"proxy-url": proxy})
    files.write(files.hub, hub, files.plugin(canaries.word("given token"), code=3))
    wait_logged(world, "no answer: 407")
    wait_logged(world, "failed with exit code 3")
    user = {"token": canaries.word("wrong token")}
    files.write(files.target, target, user, **{"proxy-url": proxy_url(relay)})
    files.hub.write_text(f"users: [{canaries.word('in a broken file')}")
    wait_logged(world, "Unauthorized")
    wait_logged(world, "not YAML")
    return run_cli("status", "--hub", str(files.hub)).stderr


def proxy_url(relay: Relay) -> str:
    return f"http://{USER}:{relay.password}@127.0.0.1:{relay.port}"


def seen_by_others(world: World, files: Files) -> dict[str, str]:
    """Collect what anybody may read."""
    printed = [
        run_cli("status", "--hub", str(files.hub), "-o", "json"),
        run_cli("status", "--hub", str(files.hub)),
        run_cli("run", "--help"),
    ]
    found = {
        "log": world.federate.log.read_text(errors="replace"),
        "metrics": world.federate.fetch("/metrics"),
        "readiness": world.federate.fetch("/healthz"),
        "commands": "\n".join(one.stdout + one.stderr for one in printed),
    }
    for side in (world.hub, world.target):
        for kind in ("Event", "Node", "Pod", "Lease", "Namespace", "ConfigMap"):
            found[f"{kind}s of {side.name}"] = json.dumps(side.list(kind))
    return found


def check_expiry_is_told(world: World) -> None:
    """When the credentials end is a metric for both clusters, and a condition for the target."""
    page = world.federate.fetch("/metrics")
    for cluster in ("hub", NODE):
        name = f'federate_credential_expiry_timestamp_seconds{{cluster="{cluster}"}}'
        ends_at = re.search(rf"^{re.escape(name)} (\S+)$", page, re.M)
        assert ends_at is not None, page
        assert float(ends_at[1]) > time.time()
    told = condition_of(world.read_node(), "federate.dev/CredentialsValid")
    assert told["status"] == "True"


def test_c73_no_secret_is_told(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, tmp_path: Path
) -> None:
    """Whatever goes wrong with credentials, log, Events, conditions and metrics hold none."""
    hub, target = local_hub, local_target
    canaries = Canaries()
    files = Files(folder=tmp_path, canaries=canaries)
    with relay_of(canaries.word("password of the proxy")) as relay:
        token = canaries.keep("token of the hub", admins_token(hub, "default"))

        def write_good() -> None:
            user = admins_pair(target, canaries)
            files.write(files.hub, hub, files.plugin(token))
            files.write(files.target, target, user, **{"proxy-url": proxy_url(relay)})

        write_good()
        with running(worlds, files, hub=hub, target=target) as world:
            space = Space(world, "secrets-stay")
            space.open()
            secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "keys"}}
            data = {"key": canaries.word("content of a Secret")}
            for cluster, where in ((hub, space.namespace), (target, "default")):
                body = json.dumps({**secret, "stringData": data})
                cluster.kubectl("apply", "-f", "-", f"--namespace={where}", stdin=body)
            space.run_pod(pod("runs", pod_spec(space.node)))
            reading = container(envFrom=[{"secretRef": {"name": "keys"}}])
            space.run_pod(pod("reads", pod_spec(space.node, containers=[reading])))
            check_expiry_is_told(world)
            try:
                complaint = go_wrong(world, files, relay, hub, target)
            finally:
                write_good()
            world.wait_node_ready()
            seen = {"complaint": complaint, **seen_by_others(world, files)}
            space.close()
            seen["log"] = world.federate.log.read_text(errors="replace")
    target.kubectl("delete", "secret", "keys", "--namespace=default")
    hub.kubectl("delete", "clusterrolebinding", f"{NODE}-default")
    hub.kubectl("delete", "serviceaccount", NODE, "--namespace=default")
    assert {
        where: found for where, text in seen.items() if (found := canaries.found_in(text))
    } == {}
    assert len(canaries.planted) > 10
    assert "not YAML" in complaint
    assert "level=debug" in seen["log"]

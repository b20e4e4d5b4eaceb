"""What is planned for companions, and what a mirror is made of, against real API servers.

They are the witnesses: what they refuse, whether a type, an immutable value or a name, no plan may
ask for.
"""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from e2e.testbed.local import LocalCluster
from federate.companions.keys import CompanionKey, Kind, companion_name, name_of
from federate.companions.plan import plan_companion
from federate.companions.render import size_bytes
from federate.companions.steps import (
    CompanionView,
    CreateCompanion,
    DeleteCompanion,
    Ground,
    LookUpCompanion,
    LookUpHubObject,
    PatchCompanion,
    Rest,
    Standing,
    Strike,
)
from federate.errors import NotFound, Rejected
from federate.mirror.render import RenderRules, metadata_changes, render_mirror
from federate.mirror.updates import pending_updates, update_patch
from federate.model.marks import HUB_LABELS_ANNOTATION, Origin
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    key_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, PODS
from federate.patch.document import MERGE, PatchBody
from tests.integration.test_reconciler_real import world_of
from tests.support.realworld import RealWorld

pytestmark = pytest.mark.integration

MOST_STEPS = 12


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def made_anchor(world: RealWorld) -> JsonDict:
    body = {"metadata": {"name": "anchor", "labels": world.scope.labels()}}
    return await world.target.create(CONFIGMAPS, body, namespace=world.target_namespace)


async def read(world: RealWorld, key: CompanionKey, *, at_hub: bool) -> JsonDict | None:
    client = world.hub if at_hub else world.target
    place = key.hub_key if at_hub else name_of(world.scope, key)
    try:
        return await client.get(key.kind.resource, place)
    except NotFound:
        return None


async def come_to_rest(world: RealWorld, key: CompanionKey, anchor: JsonObject) -> Rest:
    """Plan and carry out, as a round does."""
    seen = CompanionView(
        key=key,
        scope=world.scope,
        is_wanted=True,
        has_hub_pod=True,
        ground=Ground.READY,
        anchor=anchor,
        entry=anchor if key.kind is Kind.SECRET else None,
        entry_fresh=True,
        is_held=True,
        target_name="target",
    )
    place = name_of(world.scope, key)
    for _ in range(MOST_STEPS):
        match plan_companion(seen):
            case Rest() as rest:
                return rest
            case LookUpHubObject():
                found = await read(world, key, at_hub=True)
                seen = replace(seen, hub_object=found, hub_fresh=True)
                continue
            case LookUpCompanion():
                pass
            case CreateCompanion(body=body):
                await world.target.create(key.kind.resource, body, namespace=place.namespace)
            case PatchCompanion(patch=patch):
                await world.target.patch(key.kind.resource, place, patch)
            case DeleteCompanion(uid=uid, resource_version=version):
                await world.target.delete(
                    key.kind.resource, place, uid=uid, resource_version=version
                )
            case Strike():
                seen = replace(seen, entry=None)
                continue
            case other:
                raise AssertionError(other)
        found = await read(world, key, at_hub=False)
        seen = replace(seen, companion=found, companion_fresh=True)
    raise AssertionError("it does not come to rest")


STATES: dict[Kind, list[JsonDict | None]] = {
    Kind.SECRET: [
        {"data": {"a": encoded("1"), "b": encoded("2")}},
        {"data": {"a": encoded("1"), "c": encoded("3")}},
        {"data": {"tls.crt": "", "tls.key": ""}, "type": "kubernetes.io/tls"},
        {"data": {"x": encoded("y")}, "immutable": True},
        {"data": {"x": encoded("z")}, "immutable": True},
        {"data": {"x": encoded("z")}},
        None,
        {},
        {"data": {"token-id": encoded("abcdef")}, "type": "bootstrap.kubernetes.io/token"},
    ],
    Kind.CONFIGMAP: [
        {"data": {"a": "1", "b": "ä"}},
        {"data": {"a": "1"}, "binaryData": {"b": encoded("\x00")}},
        {"binaryData": {"a": encoded("1")}},
        {"data": {"a": "2"}, "immutable": True},
        None,
        {"data": {"a": "3"}},
        {},
    ],
}
"""Contents of a hub object, one after the other; each is made anew, as a user would."""


@pytest.mark.parametrize("kind", Kind)
async def test_a_companion_follows_whatever_a_user_does(
    kind: Kind, light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """The target's API server takes each step, and has in the end what the hub's has."""
    async with world_of(light_hub, light_target) as world:
        anchor = await made_anchor(world)
        key = CompanionKey(world.target_namespace, kind, world.namespace, "db")
        for state in STATES[kind]:
            before = await read(world, key, at_hub=True)
            if before is not None:
                uid = before["metadata"]["uid"]
                await world.hub.delete(kind.resource, key.hub_key, uid=uid)
            if state is not None:
                body = {"metadata": {"name": "db", "labels": {"app": "x"}}, **state}
                await world.hub.create(kind.resource, body, namespace=world.namespace)
            end = await come_to_rest(world, key, anchor)
            found = await read(world, key, at_hub=False)
            if state is None:
                assert (end.standing, found) == (Standing.ABSENT, None)
                continue
            assert end.standing is Standing.SETTLED
            assert found is not None
            for field in ("data", "binaryData", "immutable"):
                assert found.get(field) == state.get(field), state
            assert "app" not in found["metadata"]["labels"]


async def test_sizes_are_counted_as_the_server_counts_them(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """One byte more than the limit is refused there, and the limit itself is taken."""
    async with world_of(light_hub, light_target) as world:
        for extra in (0, 1):
            text, packed = "x" * (512 * 1024 + extra), encoded("y" * 512 * 1024)
            body = {"metadata": {"name": f"big-{extra}"}, "data": {"a": text}}
            body["binaryData"] = {"b": packed}
            assert size_bytes(Kind.CONFIGMAP, body) == 1024 * 1024 + extra
            if extra:
                with pytest.raises(Rejected):
                    await world.hub.create(CONFIGMAPS, body, namespace=world.namespace)
            else:
                await world.hub.create(CONFIGMAPS, body, namespace=world.namespace)


def field(path: str) -> JsonDict:
    return {"fieldRef": {"fieldPath": path}}


VOLUMES: list[JsonDict] = [
    {"name": "a", "configMap": {"name": "kube-root-ca.crt", "optional": True}},
    {"name": "b", "secret": {"secretName": "db", "items": [{"key": "k", "path": "p"}]}},
    {
        "name": "c",
        "projected": {
            "sources": [
                {"secret": {"name": "../../x"}},
                {"configMap": {"name": "UPPER"}},
                {"downwardAPI": {"items": [{"path": "l", **field("metadata.labels")}]}},
            ]
        },
    },
    {
        "name": "d",
        "downwardAPI": {
            "items": [
                {"path": name, **field(path)}
                for name, path in {
                    "annotations": "metadata.annotations",
                    "name": "metadata.name",
                    "uid": "metadata.uid",
                    "ours": "metadata.labels['federate.dev/x']",
                    "theirs": "metadata.labels['app']",
                }.items()
            ]
        },
    },
    {"name": "e", "iscsi": {"targetPortal": "x", "iqn": "iqn.2001-04.com.example:a", "lun": 0,
                            "secretRef": {"name": "chap"}}},
]  # fmt: skip
ENVIRONMENT: list[JsonDict] = [
    {"name": "A", "valueFrom": field("spec.nodeName")},
    {"name": "B", "valueFrom": field("metadata.annotations['federate.dev/x']")},
    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "a.b", "key": "k"}}},
]


async def test_the_target_takes_what_a_mirror_is_made_of(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Generated names and annotations are valid, whatever names the hub took."""
    async with world_of(light_hub, light_target) as world:
        main = {
            "name": "main",
            "image": "busybox",
            "env": ENVIRONMENT,
            "envFrom": [{"configMapRef": {"name": "x" * 253}}],
            "volumeMounts": [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in VOLUMES],
        }
        spec = {
            "containers": [main],
            "volumes": VOLUMES,
            "imagePullSecrets": [{"name": "pull.me"}, {"name": "pull-me"}, {"name": "../x"}],
            "automountServiceAccountToken": False,
        }
        body = {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec}
        hub_pod = await world.hub.create(PODS, body, namespace=world.namespace, dry_run=True)
        rules = RenderRules(scope=world.scope)
        mirror = render_mirror(
            hub_pod,
            origin=Origin(scope=world.scope, pod=key_of(hub_pod), pod_uid=uid_of(hub_pod)),
            mirror=ObjectKey(world.target_namespace, "web"),
            anchor=await made_anchor(world),
            rules=rules,
        )
        made = await world.target.create(PODS, mirror, namespace=world.target_namespace)
        assert made["spec"]["volumes"] == mirror["spec"]["volumes"]
        assert made["spec"]["imagePullSecrets"] == mirror["spec"]["imagePullSecrets"]
        assert metadata_changes(hub_pod, made, rules) is None
        await _follow(world, hub_pod, made, rules)


async def _follow(world: RealWorld, hub_pod: JsonDict, made: JsonDict, rules: RenderRules) -> None:
    """New labels and a debug container, as the target's API server takes them."""
    hub_pod["metadata"]["labels"] = {"app": "api"}
    changes = metadata_changes(hub_pod, made, rules)
    patch = PatchBody(media_type=MERGE, body={"metadata": changes})
    made = await world.target.patch(PODS, key_of(made), patch)
    assert annotations_of(made)[HUB_LABELS_ANNOTATION] == 'app="api"'
    assert metadata_changes(hub_pod, made, rules) is None
    debug = {"name": "debug", "image": "busybox", "env": ENVIRONMENT}
    hub_pod["spec"]["ephemeralContainers"] = [debug]
    hub_pod["metadata"]["generation"] = 2
    [update] = pending_updates(hub_pod, made, rules)
    made = await world.target.patch(
        PODS, key_of(made), update_patch(update, made), subresource=update.subresource
    )
    [added] = made["spec"]["ephemeralContainers"]
    assert added["env"][:2] == [{"name": "A"}, {"name": "B"}]
    generated = companion_name(world.scope, Kind.SECRET, ObjectKey(world.namespace, "a.b"))
    assert added["env"][2]["valueFrom"]["secretKeyRef"] == {"name": generated, "key": "k"}


async def test_no_server_takes_a_path_for_a_name(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """The names that are never asked for are those that no object can have."""
    async with world_of(light_hub, light_target) as world:
        for name in ("a/b", "..", "A", "a" * 254, "a_b"):
            key = CompanionKey("x", Kind.CONFIGMAP, world.namespace, name)
            assert not key.can_exist
            with pytest.raises(Rejected):
                await world.hub.create(
                    CONFIGMAPS, {"metadata": {"name": name}}, namespace=world.namespace
                )
        for name in ("a.b", "a" * 253, "0"):
            assert CompanionKey("x", Kind.CONFIGMAP, "y", name).can_exist
            await world.hub.create(
                CONFIGMAPS, {"metadata": {"name": name}}, namespace=world.namespace
            )

"""An API server in memory that behaves: what a test's clusters are made of.

`FakeCluster` is the server with the rules of kube-apiserver (versions, preconditions, subresources,
grace, finalizers, selectors, watches); `client(name)` gives a `ClusterPort` to it. Methods of the
cluster itself play everybody else: users, the scheduler, kubelets and controllers. They act at once
and are not in `calls`. tests/contract compares it with a real API server.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    Throttled,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.resources import (
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
    Resource,
)
from federate.patch.document import STRATEGIC, PatchBody
from tests.support import fakepods
from tests.support.fakeclient import Call, FakeClient, Faults, Ice
from tests.support.fakestore import Backup, Change, FakeStore, Signal
from tests.support.faketokens import token_for
from tests.support.selectors import Selection
from tests.support.strategic import BadPatch, apply_merge_patch, apply_strategic_patch

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""What the clock's zero is on the wall."""

POD_IP = "10.1.0.7"

_WITH_STATUS = frozenset({"Pod", "Node", "Namespace"})
_UNCONDITIONAL_REPLACE = frozenset({"Pod", "Node", "Namespace", "ConfigMap", "ServiceAccount"})
_ANSWERS_DELETE_WITH_OBJECT = frozenset({"Pod", "ServiceAccount", "Namespace"})
_SERVER_METADATA = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)
_OMITTED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")


def _refuse(kind: type[ClusterError], status: int, reason: str, detail: str) -> ClusterError:
    return kind(detail, reason=reason, status=status)


class FakeCluster:
    """One cluster. `clock` in seconds gives the timestamps; see the module for who acts how.

    Knobs: `faults` meets every call, which takes `latency_seconds` to arrive; `is_down` makes all
    of them unreachable; `cache_lag` is how many changes reads with resourceVersion "0" are behind;
    `swallows` and `doubles` are how many of the next watch events are lost, or told twice;
    `provisions_namespaces` plays the controllers that fill a new namespace; `documents` answers
    `raw_get`; `gone_owners` are uids of owners of kinds unknown here that garbage collection shall
    take for deleted; `budgeted` are the pods that no eviction may take. `serves` is the call that
    is carried out at the moment, `under_way` counts those that have no answer yet.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.store = FakeStore()
        self.calls: list[Call] = []
        self.faults: Faults | None = None
        self.latency_seconds = 0.0
        self.is_down = False
        self.cache_lag = 0
        self.swallows = 0
        self.doubles = 0
        self.serves: Call | None = None
        self.under_way = 0
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._stalled_at = 0
        self.provisions_namespaces = True
        self.gone_owners: set[str] = set()
        self.budgeted: set[ObjectKey] = set()
        self.documents: dict[str, JsonDict] = {"/version": {"major": "1", "minor": "34"}}
        self._clock = clock
        self._serial = itertools.count(1)
        self._dry = False
        for namespace in ("default", "kube-system"):
            self.add_namespace(namespace)

    def client(self, name: str = "", *, ice: Ice | None = None) -> FakeClient:
        """Return a new identity's client; the cluster's name by default."""
        return FakeClient(self, name or self.name, ice)

    def writes(self) -> list[Call]:
        """Return the calls that may have changed something."""
        return [call for call in self.calls if call.is_write]

    def now(self) -> str:
        """Return the wall clock's time as the API writes it."""
        return self._at(0)

    # --- what the server does on request -------------------------------------------------------

    def read(self, resource: Resource, key: ObjectKey) -> JsonDict:
        """Return a copy of the object."""
        return copy.deepcopy(self._existing(resource, key))

    def find(self, resource: Resource, key: ObjectKey) -> JsonDict | None:
        """Return a copy of the object, None where there is none."""
        return copy.deepcopy(self.store.get(resource, key))

    def read_all(self, selection: Selection, *, cached: bool) -> tuple[list[JsonDict], str]:
        """Return copies of what is selected, and the version they are from."""
        lag = max(self.cache_lag, self._behind()) if cached else 0
        items = copy.deepcopy(self.store.select(selection, lag=lag))
        version = self.store.version_before(lag) if lag else self.store.version
        return items, str(version)

    def create(
        self, resource: Resource, body: JsonObject, key: ObjectKey | None = None
    ) -> JsonDict:
        """Create as a POST does."""
        key = key or key_of(body)
        obj = copy.deepcopy(dict(body))
        meta = obj.setdefault("metadata", {})
        if (meta.get("namespace") or key.namespace) != key.namespace:
            raise _refuse(Rejected, 400, "BadRequest", "the namespace of the object does not match")
        if not key.name and meta.get("generateName"):
            key = ObjectKey(key.namespace, f"{meta['generateName']}{next(self._serial):05x}")
        if not key.name:
            raise fakepods.invalid("name or generateName is required")
        self._admit_to_namespace(resource, key)
        if self.store.get(resource, key) is not None:
            detail = f'{resource.plural} "{key.name}" already exists'
            raise _refuse(AlreadyExists, 409, "AlreadyExists", detail)
        for name in _SERVER_METADATA:
            meta.pop(name, None)
        meta.update(name=key.name, uid=self._new_uid(), creationTimestamp=self.now())
        if resource.namespaced:
            meta["namespace"] = key.namespace
        obj.update(apiVersion=resource.group_version, kind=resource.kind)
        self._default(resource, obj)
        created = self._write(resource, key, obj)
        if resource == NAMESPACES and self.provisions_namespaces and not self._dry:
            self._provision(key.name)
        return created

    def patch(
        self, resource: Resource, key: ObjectKey, patch: PatchBody, *, subresource: str = ""
    ) -> JsonDict:
        """Patch as a PATCH does; an empty change is no write."""
        old = self._existing(resource, key)
        try:
            if patch.media_type == STRATEGIC:
                new = apply_strategic_patch(old, patch.body, kind=resource.kind)
            else:
                new = apply_merge_patch(old, patch.body)
        except BadPatch as error:
            raise _refuse(Rejected, 400, "BadRequest", str(error)) from error
        return self._update(resource, key, new, subresource=subresource)

    def replace(
        self, resource: Resource, key: ObjectKey, body: JsonObject, *, subresource: str = ""
    ) -> JsonDict:
        """Replace as a PUT does."""
        old = self._existing(resource, key)
        new = copy.deepcopy(dict(body))
        uid = uid_of(new)
        if uid and uid != uid_of(old):
            detail = f"Precondition failed: UID in precondition: {uid}, not that of the object"
            raise _refuse(Conflict, 409, "Conflict", detail)
        new["metadata"]["uid"] = uid_of(old)
        if resource.namespaced:
            new["metadata"].setdefault("namespace", key.namespace)
        version = metadata_of(new).get("resourceVersion")
        if not version and resource.kind not in _UNCONDITIONAL_REPLACE:
            raise fakepods.invalid("metadata.resourceVersion: must be specified for an update")
        if not version:
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self._update(resource, key, new, subresource=subresource)

    def delete(self, resource: Resource, key: ObjectKey, options: JsonObject) -> JsonDict:
        """Delete as a DELETE with these DeleteOptions does."""
        obj = self.read(resource, key)
        meta = obj["metadata"]
        preconditions = options.get("preconditions") or {}
        for name, wanted in preconditions.items():
            if wanted is not None and wanted != meta[name]:
                detail = f"Precondition failed: {name} is {meta[name]}, not {wanted}"
                raise _refuse(Conflict, 409, "Conflict", detail)
        asked: int | None = options.get("gracePeriodSeconds")
        if meta.get("deletionTimestamp"):
            return self._shorten(resource, key, obj, asked)
        grace = fakepods.grace_of(obj, asked) if resource == PODS else 0
        lingers = grace > 0 or meta.get("finalizers") or resource == NAMESPACES
        graceful = resource == PODS and obj["spec"].get("nodeName")
        if lingers or graceful:
            obj = self._mark_deleted(resource, key, obj, grace)
        if not lingers:
            self._remove(resource, key)
            if resource.kind not in _ANSWERS_DELETE_WITH_OBJECT:
                return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        return copy.deepcopy(obj)

    def evict(self, key: ObjectKey, body: JsonObject) -> JsonDict:
        """Delete a pod as an eviction does: not one that a budget protects."""
        self._existing(PODS, key)
        if key in self.budgeted:
            detail = "Cannot evict pod as it would violate the pod's disruption budget."
            raise _refuse(Throttled, 429, "TooManyRequests", detail)
        return self.delete(PODS, key, body.get("deleteOptions") or {})

    def issue_token(self, account: ObjectKey, body: JsonObject) -> JsonDict:
        """Issue a token as a TokenRequest asks for one; nobody could have signed it."""
        self._existing(SERVICEACCOUNTS, account)
        spec = body["spec"]
        bound = spec["boundObjectRef"]
        pod = self._existing(PODS, ObjectKey(account.namespace, bound["name"]))
        if uid_of(pod) != bound["uid"]:
            detail = f"the UID in the bound object reference ({bound['uid']}) does not match"
            raise _refuse(Conflict, 409, "Conflict", detail)
        if spec["expirationSeconds"] < 600:
            raise fakepods.invalid("spec.expirationSeconds: may not be less than 10 minutes")
        token = token_for(
            issued_at=EPOCH.timestamp() + self._clock(),
            seconds=spec["expirationSeconds"],
            audiences=spec.get("audiences") or (),
            pod_uid=bound["uid"],
            serial=next(self._serial),
        )
        return {**body, "status": {"token": token}}

    @contextmanager
    def serving(self, call: Call) -> Iterator[None]:
        """Carry out what happens inside for that call; a dry run leaves nothing."""
        self._dry, self.serves = call.dry_run, call
        try:
            yield
        finally:
            self._dry, self.serves = False, None

    def carry_out(self, call: Call) -> JsonDict:
        """Do what a write call asks for, whoever sent it whenever."""
        body = call.body or {}
        with self.serving(call):
            match call.verb:
                case "create" if call.subresource == "eviction":
                    return self.evict(call.key, body)
                case "create" if call.subresource == "token":
                    return self.issue_token(call.key, body)
                case "create":
                    return self.create(call.resource, body, call.key)
                case "patch":
                    patch = PatchBody(media_type=call.media_type, body=body)
                    return self.patch(call.resource, call.key, patch, subresource=call.subresource)
                case "replace":
                    return self.replace(call.resource, call.key, body, subresource=call.subresource)
                case "delete":
                    return self.delete(call.resource, call.key, body)
        raise AssertionError(f"{call} is no write")

    async def shown(self, version: int) -> None:
        """Wait until this API server has seen that version."""
        if version > self._stalled_at:
            await self._caught_up.wait()

    def copies(self, change: Change) -> int:
        """How many times a watch is told of a change."""
        if change.resource != PODS:
            return 1
        if self.swallows:
            self.swallows -= 1
            return 0
        if self.doubles:
            self.doubles -= 1
            return 2
        return 1

    def _behind(self) -> int:
        return 0 if self._caught_up.is_set() else self.store.changes_after(self._stalled_at)

    # --- what everybody else does --------------------------------------------------------------

    def add(self, resource: Resource, obj: JsonObject) -> JsonDict:
        """Put an object there as it is, status, deletion and all; only what is missing is filled.

        Its namespace appears with it.
        """
        new = copy.deepcopy(dict(obj))
        key = key_of(new)
        if resource.namespaced and self.store.get(NAMESPACES, ObjectKey("", key.namespace)) is None:
            self.add_namespace(key.namespace)
        new.setdefault("apiVersion", resource.group_version)
        new.setdefault("kind", resource.kind)
        new["metadata"].setdefault("uid", self._new_uid())
        new["metadata"].setdefault("creationTimestamp", self.now())
        if resource == PODS:
            new["metadata"].setdefault("generation", 1)
        return copy.deepcopy(self.store.write(resource, key, new))

    def add_namespace(self, name: str) -> JsonDict:
        """Create a namespace with the default service account and the CA's ConfigMap."""
        namespace = self.create(NAMESPACES, {"metadata": {"name": name}})
        if not self.provisions_namespaces:
            self._provision(name)
        return namespace

    def edit(
        self, resource: Resource, key: ObjectKey, change: Callable[[JsonDict], None]
    ) -> JsonDict:
        """Let somebody change an object in any way, status and metadata too."""
        obj = self.read(resource, key)
        change(obj)
        return copy.deepcopy(self.store.write(resource, key, obj))

    def delete_by_user(
        self, resource: Resource, key: ObjectKey, *, grace_seconds: int | None = None
    ) -> None:
        """Let somebody delete an object."""
        self.delete(resource, key, {"gracePeriodSeconds": grace_seconds})

    def schedule(self, key: ObjectKey, node: str) -> JsonDict:
        """Bind a pod as the scheduler does; refused where it is gated, or bound."""
        pod = self._existing(PODS, key)
        if fakepods.is_gated(pod):
            detail = f"pod {key.name} has non-empty .spec.schedulingGates"
            raise _refuse(Conflict, 409, "Conflict", detail)
        if spec_of(pod).get("nodeName"):
            detail = f"pod {key.name} is already assigned to a node"
            raise _refuse(Conflict, 409, "Conflict", detail)

        def bind(pod: JsonDict) -> None:
            pod["spec"]["nodeName"] = node
            self._set_condition(pod, "PodScheduled", True)

        return self.edit(PODS, key, bind)

    def set_pod_status(
        self,
        key: ObjectKey,
        *,
        phase: str,
        ready: bool | None = None,
        restarts: int = 0,
        exit_code: int = 0,
    ) -> JsonDict:
        """Report a status as a kubelet does; ready by default where the phase is Running.

        No kubelet ever sees a gated pod: to play one for it is a mistake of the test.
        """
        assert not fakepods.is_gated(self._existing(PODS, key)), f"{key} is gated: it cannot run"
        is_ready = phase == "Running" if ready is None else ready

        def report(pod: JsonDict) -> None:
            state = self._container_state(phase, exit_code)
            pod["status"].update(
                phase=phase,
                podIP=POD_IP,
                podIPs=[{"ip": POD_IP}],
                startTime=pod["status"].get("startTime") or self.now(),
                containerStatuses=[
                    {
                        "name": container["name"],
                        "image": container.get("image", ""),
                        "imageID": "",
                        "ready": is_ready,
                        "started": phase == "Running",
                        "restartCount": restarts,
                        "state": state,
                    }
                    for container in pod["spec"]["containers"]
                ],
            )
            for name in ("Ready", "ContainersReady"):
                self._set_condition(pod, name, is_ready)

        return self.edit(PODS, key, report)

    def finish_termination(self, key: ObjectKey) -> None:
        """Confirm as the kubelet does that a terminating pod's containers have ended."""
        self.delete(PODS, key, {"gracePeriodSeconds": 0})

    def finish_namespace(self, name: str) -> None:
        """Empty a terminating namespace and remove it, as the namespace controller does."""
        for resource, obj in self.store.all():
            if key_of(obj).namespace == name:
                self.store.remove(resource, key_of(obj))
        self.store.remove(NAMESPACES, ObjectKey("", name))

    def collect_garbage(self) -> int:
        """Delete what has owners none of which exists; return how many objects that were."""
        alive = {uid_of(obj) for _, obj in self.store.all()}
        known = {resource.kind for resource, _ in self.store.all()}

        def is_gone(reference: JsonObject) -> bool:
            uid = reference["uid"]
            return uid in self.gone_owners or (reference["kind"] in known and uid not in alive)

        orphans = [
            (resource, key_of(obj))
            for resource, obj in self.store.all()
            if (references := metadata_of(obj).get("ownerReferences"))
            and all(is_gone(reference) for reference in references)
            and not metadata_of(obj).get("deletionTimestamp")
        ]
        for resource, key in orphans:
            self.delete(resource, key, {})
        return len(orphans)

    def go_down(self) -> None:
        """Stop answering; open watches break."""
        self.is_down = True
        self.store.signal(Signal.BREAK)

    def come_up(self) -> None:
        """Answer again."""
        self.is_down = False

    def stall(self) -> None:
        """The API server falls behind: watches and reads of version 0 stay at this moment."""
        if self._caught_up.is_set():
            self._stalled_at = self.store.version
            self._caught_up.clear()

    def catch_up(self) -> None:
        """Be up to date again."""
        self._caught_up.set()

    def backup(self) -> Backup:
        """Keep everything as it is."""
        return self.store.backup()

    def restore(self, backup: Backup) -> None:
        """Be as at that time again, old uids and versions and all; watches break.

        New versions go on from where they were, as with `etcdutl --bump-revision`.
        """
        self.store.restore(backup)
        self.break_watches()

    def bookmark(self) -> None:
        """Send every open watch a bookmark."""
        self.store.signal(Signal.BOOKMARK)

    def close_watches(self) -> None:
        """End every open watch as a server does that shuts down in order."""
        self.store.signal(Signal.CLOSE)

    def break_watches(self) -> None:
        """Cut the connection of every open watch."""
        self.store.signal(Signal.BREAK)

    def compact(self) -> None:
        """Forget all versions but the latest."""
        self.store.compact()

    # --- how ------------------------------------------------------------------------------------

    def _existing(self, resource: Resource, key: ObjectKey) -> JsonDict:
        obj = self.store.get(resource, key)
        if obj is None:
            raise _refuse(NotFound, 404, "NotFound", f'{resource.plural} "{key.name}" not found')
        return obj

    def _admit_to_namespace(self, resource: Resource, key: ObjectKey) -> None:
        if not resource.namespaced:
            return
        namespace = self._existing(NAMESPACES, ObjectKey("", key.namespace))
        if metadata_of(namespace).get("deletionTimestamp"):
            detail = (
                f'{resource.plural} "{key.name}" is forbidden: unable to create new content in '
                f"namespace {key.namespace} because it is being terminated"
            )
            raise _refuse(Forbidden, 403, "Forbidden", detail)

    def _default(self, resource: Resource, obj: JsonDict) -> None:
        name = obj["metadata"]["name"]
        if resource == PODS:
            fakepods.default_pod(obj)
            obj["metadata"]["generation"] = 1
            account = obj["spec"]["serviceAccountName"]
            key = ObjectKey(obj["metadata"]["namespace"], account)
            if self.store.get(SERVICEACCOUNTS, key) is None:
                detail = (
                    f'pods "{name}" is forbidden: error looking up service account {key}: '
                    f'serviceaccount "{account}" not found'
                )
                raise _refuse(Forbidden, 403, "Forbidden", detail)
        elif resource == NAMESPACES:
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
            obj.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
        elif resource == NODES:
            obj.setdefault("spec", {})
        elif resource == SERVICES:
            self._give_address(obj.setdefault("spec", {}))

    def _give_address(self, spec: JsonDict) -> None:
        """Give a Service the address that it asks for, or one that no other has."""
        services = [obj for resource, obj in self.store.all() if resource == SERVICES]
        taken = {spec_of(service).get("clusterIP") for service in services}
        asked = spec.get("clusterIP")
        if asked and asked != "None" and asked in taken:
            detail = f'spec.clusterIPs: Invalid value: ["{asked}"]: failed to allocate IP {asked}: '
            raise fakepods.invalid(detail + "provided IP is already allocated")
        if not asked and spec.get("type") != "ExternalName":
            net = "fd97::" if spec.get("ipFamilies") == ["IPv6"] else "10.97.0."
            numbers = (f"{net}{number}" for number in itertools.count(1))
            spec["clusterIP"] = next(one for one in numbers if one not in taken)
        if spec.get("clusterIP", "None") != "None":
            spec["clusterIPs"] = [spec["clusterIP"]]

    def _update(
        self, resource: Resource, key: ObjectKey, new: JsonDict, *, subresource: str
    ) -> JsonDict:
        old = self._existing(resource, key)
        if new["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            detail = f'Operation cannot be fulfilled on {resource.plural} "{key.name}": the object '
            raise _refuse(Conflict, 409, "Conflict", detail + "has been modified")
        self._keep_identity(old, new)
        new = self._through_subresource(resource, old, new, subresource)
        for name in _OMITTED_WHEN_EMPTY:
            if not new["metadata"].get(name, True):
                del new["metadata"][name]
        if new == old:
            return copy.deepcopy(old)
        if resource == PODS and new["spec"] != old["spec"]:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        written = self._write(resource, key, new)
        meta = new["metadata"]
        waits_for_nobody = not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp") and waits_for_nobody and resource != NAMESPACES:
            self._remove(resource, key)
        return written

    def _keep_identity(self, old: JsonDict, new: JsonDict) -> None:
        was, meta = old["metadata"], new["metadata"]
        if meta.get("uid") != was["uid"]:
            raise fakepods.invalid("metadata.uid: Invalid value: field is immutable")
        if key_of(new) != key_of(old):
            raise _refuse(Rejected, 400, "BadRequest", "the name of the object does not match")
        added = set(meta.get("finalizers") or ()) - set(was.get("finalizers") or ())
        if was.get("deletionTimestamp") and added:
            raise fakepods.invalid("metadata.finalizers: Forbidden: no new finalizers")
        for name in _SERVER_METADATA:
            meta.pop(name, None)
            if name in was:
                meta[name] = was[name]
        new.update(apiVersion=old["apiVersion"], kind=old["kind"])

    def _through_subresource(
        self, resource: Resource, old: JsonDict, new: JsonDict, subresource: str
    ) -> JsonDict:
        """Return `new` with everything put back that this endpoint does not change."""
        if subresource == "status":
            _put_back(old, new, "spec")
            if resource == PODS:
                _put_back(old["metadata"], new["metadata"], "ownerReferences")
                new.setdefault("status", {}).setdefault("qosClass", old["status"].get("qosClass"))
                fakepods.check_status_update(old, new)
            return new
        if resource.kind in _WITH_STATUS:
            _put_back(old, new, "status")
        if subresource == "ephemeralcontainers":
            return fakepods.with_ephemeral_containers(old, new)
        if subresource == "resize":
            return fakepods.with_resources(old, new)
        if subresource:
            detail = "the server could not find the requested resource"
            raise _refuse(NotFound, 404, "NotFound", detail)
        if resource == PODS:
            fakepods.tolerate_node_loss(new["spec"])
            fakepods.drop_empty_gates(new["spec"])
            fakepods.check_spec_update(old, new)
        if resource in (CONFIGMAPS, SECRETS) and old.get("immutable") and _data(old) != _data(new):
            raise fakepods.invalid("data: Forbidden: field is immutable when `immutable` is set")
        return new

    def _mark_deleted(
        self, resource: Resource, key: ObjectKey, obj: JsonDict, grace: int
    ) -> JsonDict:
        meta = obj["metadata"]
        meta.update(deletionTimestamp=self._at(grace), deletionGracePeriodSeconds=grace)
        if meta.get("generation"):
            meta["generation"] += 1
        if resource == NAMESPACES:
            del meta["deletionGracePeriodSeconds"]
            obj["status"]["phase"] = "Terminating"
        return self._write(resource, key, obj)

    def _shorten(
        self, resource: Resource, key: ObjectKey, obj: JsonDict, asked: int | None
    ) -> JsonDict:
        """Delete what is being deleted: the grace can only become shorter."""
        meta = obj["metadata"]
        grace: int = meta.get("deletionGracePeriodSeconds") or 0
        if asked is not None and asked < grace:
            began = datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(seconds=grace)
            ends = began + timedelta(seconds=asked)
            meta.update(deletionTimestamp=_format(ends), deletionGracePeriodSeconds=asked)
            obj = self._write(resource, key, obj)
            if not asked and not meta.get("finalizers"):
                self._remove(resource, key)
        return copy.deepcopy(obj)

    def _write(self, resource: Resource, key: ObjectKey, obj: JsonDict) -> JsonDict:
        return copy.deepcopy(obj if self._dry else self.store.write(resource, key, obj))

    def _remove(self, resource: Resource, key: ObjectKey) -> None:
        if not self._dry:
            self.store.remove(resource, key)

    def _provision(self, namespace: str) -> None:
        account = ObjectKey(namespace, "default")
        self.create(SERVICEACCOUNTS, {"metadata": {"name": "default"}}, account)
        ca = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": f"CA of {self.name}"}}
        self.create(CONFIGMAPS, ca, ObjectKey(namespace, "kube-root-ca.crt"))

    def _container_state(self, phase: str, exit_code: int) -> JsonDict:
        if phase == "Running":
            return {"running": {"startedAt": self.now()}}
        if phase == "Pending":
            return {"waiting": {"reason": "ContainerCreating"}}
        reason = "Completed" if phase == "Succeeded" else "Error"
        code = exit_code or (0 if phase == "Succeeded" else 1)
        times = {"startedAt": self.now(), "finishedAt": self.now()}
        return {"terminated": {"exitCode": code, "reason": reason, **times}}

    def _set_condition(self, pod: JsonDict, name: str, holds: bool) -> None:
        conditions = [c for c in pod["status"].get("conditions", []) if c["type"] != name]
        status = "True" if holds else "False"
        conditions.append({"type": name, "status": status, "lastTransitionTime": self.now()})
        pod["status"]["conditions"] = conditions

    def _new_uid(self) -> str:
        return f"{self.name}-uid-{next(self._serial)}"

    def _at(self, seconds: float) -> str:
        return _format(EPOCH + timedelta(seconds=self._clock() + seconds))


def _format(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _put_back(old: JsonDict, new: JsonDict, name: str) -> None:
    new.pop(name, None)
    if name in old:
        new[name] = copy.deepcopy(old[name])


def _data(configmap: JsonObject) -> JsonDict:
    return {name: configmap.get(name) for name in ("data", "binaryData", "immutable")}

"""The store: what readers see after listings, watch events and our own writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federate.cluster.port import WatchEvent
from federate.cluster.store import Change, Store, WriteTicket, drop_managed_fields
from federate.model.objects import JsonDict, JsonObject, ObjectKey, resource_version_of, uid_of

KEY = ObjectKey("shop", "web")


def obj(version: str, *, uid: str = "u1", name: str = "web", node: str = "") -> JsonDict:
    metadata = {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": version}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}}


def event(kind: str, body: JsonDict) -> WatchEvent:
    return WatchEvent(type=kind, object=body)


def by_node(body: JsonObject) -> Iterable[str]:
    return [body["spec"]["nodeName"]] if "nodeName" in body["spec"] else []


def store_with(*bodies: JsonDict) -> Store:
    store = Store(indexers={"node": by_node})
    store.replace(bodies)
    return store


def shown(store: Store) -> str | None:
    found = store.get(KEY)
    return resource_version_of(found) if found else None


# --- listings and events ------------------------------------------------------------------------


def test_a_listing_reports_additions_changes_and_deletions() -> None:
    """A fresh listing reports what is new, what differs and what is gone, and nothing else."""
    store = store_with(obj("1", name="a"), obj("2", name="b", uid="u2"), obj("3", name="c"))
    fresh = [obj("1", name="a"), obj("9", name="b", uid="u2"), obj("4", name="d", uid="u4")]
    changes = {c.key.name: (c.old, c.new) for c in store.replace(fresh)}
    assert changes == {
        "b": (obj("2", name="b", uid="u2"), fresh[1]),
        "d": (None, fresh[2]),
        "c": (obj("3", name="c"), None),
    }
    assert {k.name for k in store.keys()} == {"a", "b", "d"}  # noqa: SIM118 - not a dict
    assert len(store) == len(store.values()) == 3
    assert ObjectKey("shop", "c") not in store


def test_a_failing_transform_leaves_a_listing_untaken() -> None:
    """A listing that cannot be kept changes nothing."""

    def refuse_b(body: JsonDict) -> JsonObject:
        if body["metadata"]["name"] == "b":
            raise ValueError("b")
        return body

    store = Store(transform=refuse_b)
    with pytest.raises(ValueError, match="b"):
        store.replace([obj("1", name="a"), obj("2", name="b")])
    assert len(store) == 0


def test_events_are_applied_in_order() -> None:
    """Added, modified and deleted objects follow the watch."""
    store = store_with()
    assert store.apply(event("ADDED", obj("1"))) == Change(key=KEY, old=None, new=obj("1"))
    assert store.apply(event("MODIFIED", obj("2"))) == Change(key=KEY, old=obj("1"), new=obj("2"))
    assert store.apply(event("MODIFIED", obj("2"))) is None
    assert store.apply(event("BOOKMARK", obj("3"))) is None
    assert store.apply(event("DELETED", obj("4"))) == Change(key=KEY, old=obj("2"), new=None)
    assert store.apply(event("DELETED", obj("4"))) is None
    assert store.get(KEY) is None


def test_an_unknown_event_is_refused() -> None:
    """An event type that Kubernetes does not have is an error, not a change."""
    with pytest.raises(ValueError, match="ERROR"):
        store_with().apply(event("ERROR", {}))


def test_managed_fields_are_dropped() -> None:
    """The default transform drops managedFields and nothing else, without touching its input."""
    body = obj("1")
    fat = {**body, "metadata": {**body["metadata"], "managedFields": [{}]}}
    assert drop_managed_fields(fat) == body
    assert "managedFields" in fat["metadata"]
    assert drop_managed_fields(body) is body


def test_indexes_follow_changes() -> None:
    """An object is found under what its newest version says, and no longer once deleted."""
    a, b = obj("1", name="a", node="n1"), obj("2", name="b", uid="u2", node="n1")
    store = store_with(a, b)
    assert store.by_index("node", "n1") == [a, b]
    moved = obj("3", name="a", node="n2")
    store.apply(event("MODIFIED", moved))
    assert store.by_index("node", "n1") == [b]
    assert store.by_index("node", "n2") == [moved]
    store.apply(event("DELETED", obj("4", name="b", uid="u2")))
    assert store.by_index("node", "n1") == []
    with pytest.raises(KeyError):
        store.by_index("zone", "z")


def test_an_indexer_may_name_a_value_twice() -> None:
    """A value that an indexer repeats counts once, and leaves nothing behind."""
    store = Store(indexers={"twice": lambda _: ["x", "x"]})
    store.apply(event("ADDED", obj("1")))
    assert store.by_index("twice", "x") == [obj("1")]
    store.apply(event("DELETED", obj("2")))
    assert store.by_index("twice", "x") == []


# --- what is remembered of the deleted ----------------------------------------------------------


def test_the_final_object_of_a_deletion_is_kept() -> None:
    """A deletion leaves its final object by uid."""
    store = store_with(obj("1"))
    store.apply(event("DELETED", obj("2")))
    assert store.last_deleted("u1") == obj("2")
    assert store.deleted_is_final("u1")


def test_what_vanished_between_listings_is_the_last_known() -> None:
    """An object that a listing lacks, or replaced by name, is remembered as last known."""
    store = store_with(obj("1", name="a", uid="ua"), obj("2", name="b", uid="ub"))
    store.replace([obj("5", name="b", uid="uc")])
    assert store.last_deleted("ua") == obj("1", name="a", uid="ua")
    assert store.last_deleted("ub") == obj("2", name="b", uid="ub")
    assert not store.deleted_is_final("ua")


def test_the_deleted_are_bounded() -> None:
    """The oldest deletion is forgotten first."""
    store = Store(deleted_limit=2)
    for number in "123":
        store.apply(event("DELETED", obj(number, uid=f"u{number}")))
    assert [store.last_deleted(f"u{n}") is not None for n in "123"] == [False, True, True]


def test_what_is_listed_again_is_not_deleted() -> None:
    """A uid that comes back into the selection is remembered as deleted no more."""
    store = store_with()
    store.apply(event("DELETED", obj("1")))
    store.apply(event("ADDED", obj("2")))
    assert store.last_deleted("u1") is None
    store.apply(event("DELETED", obj("3")))
    store.replace([obj("4")])
    assert store.last_deleted("u1") is None


# --- read your own writes -----------------------------------------------------------------------


def test_a_reply_before_its_event_is_shown_at_once() -> None:
    """A reply is shown at once; older events of the key do not bring the past back."""
    store = store_with(obj("1"))
    ticket = store.writing(KEY)
    assert ticket.commit(obj("3")) == Change(key=KEY, old=obj("1"), new=obj("3"))
    assert store.apply(event("MODIFIED", obj("2"))) is None
    assert shown(store) == "3"
    assert store.apply(event("MODIFIED", obj("3"))) is None
    assert store.apply(event("MODIFIED", obj("4"))) is not None


def test_a_reply_after_its_event_changes_nothing() -> None:
    """A reply slower than the watch, or of a request that changed nothing, is dropped."""
    store = store_with(obj("1"))
    with store.writing(KEY) as ticket:
        store.apply(event("MODIFIED", obj("2")))
        store.apply(event("MODIFIED", obj("3")))
        assert ticket.commit(obj("2")) is None
    with store.writing(KEY) as ticket:
        assert ticket.commit(obj("3")) is None
    assert shown(store) == "3"


def test_an_older_uid_does_not_hide_our_creation() -> None:
    """Late events of an earlier object of the name are ignored after our create is shown."""
    store = store_with(obj("1", uid="old"))
    change = store.writing(KEY).commit(obj("4", uid="new"))
    assert change == Change(key=KEY, old=obj("1", uid="old"), new=obj("4", uid="new"))
    assert store.last_deleted("old") == obj("1", uid="old")
    assert store.apply(event("MODIFIED", obj("2", uid="old"))) is None
    assert store.apply(event("DELETED", obj("3", uid="old"))) is None
    assert store.last_deleted("old") == obj("3", uid="old")
    assert store.deleted_is_final("old")
    assert shown(store) == "4"


def test_a_deletion_ends_the_pending_of_its_uid() -> None:
    """Our object deleted by another, and a newer one of the name, are seen as they come."""
    store = store_with()
    store.writing(KEY).commit(obj("2", uid="ours"))
    assert store.apply(event("DELETED", obj("3", uid="ours"))) is not None
    assert store.apply(event("ADDED", obj("4", uid="theirs"))) is not None
    assert shown(store) == "4"


def test_a_reply_that_a_read_showed_too_early_counts() -> None:
    """Behind a lagging watch a comparison's read brings our second write before its reply does.

    It is ignored, since our first write pends: so the reply is still news.
    """
    store = store_with(obj("1"))
    store.writing(KEY).commit(obj("2"))
    ticket = store.writing(KEY)
    assert store.apply(event("MODIFIED", obj("3"))) is None
    assert ticket.commit(obj("3")) is not None
    assert shown(store) == "3"
    assert store.apply(event("MODIFIED", obj("2"))) is None
    assert store.apply(event("MODIFIED", obj("3"))) is None
    assert store.apply(event("MODIFIED", obj("4"))) is not None


def test_a_reply_for_a_uid_seen_deleted_is_dropped() -> None:
    """A reply that comes after the deletion of its object does not raise the dead."""
    store = store_with(obj("1"))
    ticket = store.writing(KEY)
    store.apply(event("DELETED", obj("3")))
    assert ticket.commit(obj("2")) is None
    assert store.writing(KEY).commit(obj("2")) is None
    assert shown(store) is None


def test_our_removal_is_shown_at_once() -> None:
    """An object we removed is gone at once and stays gone until its DELETED came."""
    store = store_with(obj("1"))
    assert store.writing(KEY).commit_deleted("u1") == Change(key=KEY, old=obj("1"), new=None)
    assert store.apply(event("MODIFIED", obj("2"))) is None
    assert shown(store) is None
    assert store.last_deleted("u1") == obj("1")
    assert store.apply(event("DELETED", obj("3"))) is None
    assert store.last_deleted("u1") == obj("3")
    assert store.apply(event("ADDED", obj("4", uid="u2"))) is not None


def test_a_removal_of_what_was_never_shown_keeps_it_hidden() -> None:
    """An object removed before the watch ever brought it does not appear late."""
    store = store_with()
    assert store.writing(KEY).commit_deleted("u1") is None
    assert store.apply(event("ADDED", obj("1"))) is None
    assert store.apply(event("DELETED", obj("2"))) is None
    assert store.apply(event("ADDED", obj("3", uid="u2"))) is not None


def test_a_removal_seen_already_leaves_no_trace() -> None:
    """A removal whose DELETED was faster hides nothing that comes later."""
    store = store_with(obj("1"))
    ticket = store.writing(KEY)
    store.apply(event("DELETED", obj("2")))
    assert ticket.commit_deleted("u1") is None
    assert store.apply(event("ADDED", obj("3", uid="u2"))) is not None


def test_a_listing_puts_open_tickets_in_doubt() -> None:
    """After a listing an open ticket commits no reply, only removals of what is still listed."""
    store = store_with(obj("1"))
    ticket = store.writing(KEY)
    store.replace([obj("2")])
    assert ticket.commit(obj("3")) is None
    assert shown(store) == "2"
    ticket = store.writing(KEY)
    store.replace([obj("2")])
    assert ticket.commit_deleted("u0") is None
    ticket = store.writing(KEY)
    store.replace([obj("2")])
    assert ticket.commit_deleted("u1") is not None
    assert shown(store) is None


def test_a_listing_ends_pending_writes() -> None:
    """A listing is the truth also where our reply was shown before."""
    store = store_with(obj("1"))
    store.writing(KEY).commit(obj("3"))
    store.replace([obj("2")])
    assert shown(store) == "2"
    assert store.apply(event("MODIFIED", obj("3"))) is not None


# --- several namespaces -------------------------------------------------------------------------


def elsewhere(version: str, *, uid: str = "u9") -> JsonDict:
    body = obj(version, uid=uid)
    body["metadata"]["namespace"] = "attic"
    return body


def test_a_listing_of_a_namespace_says_nothing_of_others() -> None:
    """Objects of other namespaces stay, whatever it lists; its own go as ever."""
    store = store_with(obj("1"), elsewhere("1"))
    assert store.replace([], namespace="shop") == [Change(key=KEY, old=obj("1"), new=None)]
    assert store.keys_in("attic") == store.keys_in("") == [ObjectKey("attic", "web")]
    assert store.last_deleted("u1") == obj("1")
    assert store.last_deleted("u9") is None


def test_a_listing_of_a_namespace_leaves_writes_elsewhere_pending() -> None:
    """What was promised to readers there holds: an old event does not undo it."""
    store = store_with(obj("1"), elsewhere("1"))
    with store.writing(KEY) as ticket:
        ticket.commit(obj("5"))
    store.replace([elsewhere("2")], namespace="attic")
    assert store.apply(event("MODIFIED", obj("3"))) is None
    assert shown(store) == "5"
    store.replace([obj("6")], namespace="shop")
    assert store.apply(event("MODIFIED", obj("7"))) is not None


def test_a_listing_of_a_namespace_puts_its_own_tickets_in_doubt() -> None:
    """And no others."""
    store = store_with(obj("1"))
    with store.writing(KEY) as ticket:
        store.replace([], namespace="attic")
        assert ticket.commit(obj("2")) is not None
    with store.writing(KEY) as ticket:
        store.replace([obj("2")], namespace="shop")
        assert ticket.commit(obj("3")) is None


def test_a_listing_of_a_namespace_lets_what_is_hidden_elsewhere_be() -> None:
    """A removed object that was never shown does not appear by a late event."""
    store = store_with()
    with store.writing(KEY) as ticket:
        ticket.commit_deleted("u1")
    store.replace([], namespace="attic")
    assert store.apply(event("ADDED", obj("1"))) is None
    store.replace([], namespace="shop")
    assert store.apply(event("ADDED", obj("2"))) is not None


def test_a_key_has_one_writer() -> None:
    """A second ticket for a key is refused while the first is open; closing frees the key."""
    store = store_with()
    with store.writing(KEY) as ticket:
        with pytest.raises(RuntimeError, match="shop/web"):
            store.writing(KEY)
        store.writing(ObjectKey("shop", "other")).abort()
        ticket.abort()
    with store.writing(KEY):
        pass
    with pytest.raises(RuntimeError, match="closed"):
        ticket.commit(obj("1"))


def test_a_reply_for_another_key_is_refused() -> None:
    """A reply must be of the ticket's key."""
    with pytest.raises(ValueError, match="shop/db"):
        store_with().writing(KEY).commit(obj("1", name="db"))


# --- the rule against a simulated server --------------------------------------------------------


@dataclass
class Moment:
    """The truth at one point of the server's history: the object, if any, and its event."""

    obj: JsonDict | None
    event: WatchEvent | None = None
    selected: bool = True

    @property
    def visible(self) -> JsonDict | None:
        return self.obj if self.selected else None


@dataclass
class Request:
    """One of our requests: what it asks, whether the server has handled it, and the answer."""

    verb: str
    uid: str
    ticket: WriteTicket
    handled_at: int | None = None
    reply: JsonDict | None = None
    gone_uid: str = ""
    relisted: bool = False


@dataclass
class Server:
    """One key's history; positions order what resourceVersions may not."""

    history: list[Moment] = field(default_factory=lambda: [Moment(None)])
    uids: int = 0

    @property
    def now(self) -> Moment:
        return self.history[-1]

    def create(self) -> None:
        self.uids += 1
        self._add(Moment(self._version(f"u{self.uids}")), "ADDED")

    def update(self) -> None:
        assert self.now.obj is not None
        body = self._version(uid_of(self.now.obj))
        if self.now.selected:
            self._add(Moment(body), "MODIFIED")
        else:
            self.history.append(Moment(body, None, selected=False))

    def remove(self) -> None:
        assert self.now.obj is not None
        last = self._version(uid_of(self.now.obj))
        gone = WatchEvent(type="DELETED", object=last) if self.now.selected else None
        self.history.append(Moment(None, gone))

    def toggle_selected(self) -> None:
        assert self.now.obj is not None
        body = self._version(uid_of(self.now.obj))
        kind = "DELETED" if self.now.selected else "ADDED"
        moment = Moment(body, event(kind, body), selected=not self.now.selected)
        self.history.append(moment)

    def position(self, version: str) -> int:
        return int(version.removeprefix("v"))

    def _version(self, uid: str) -> JsonDict:
        return obj(f"v{len(self.history)}", uid=uid)

    def _add(self, moment: Moment, kind: str) -> None:
        assert moment.obj is not None
        moment.event = event(kind, moment.obj)
        self.history.append(moment)


class OwnWrites(RuleBasedStateMachine):
    """Random histories, replies, deliveries and listings of one key."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.store = Store()
        self.delivered = 0
        self.floor = 0
        self.listing: int | None = None
        self.request: Request | None = None
        self.lost: list[Request] = []
        self.selection_moved = False

    # others
    @precondition(lambda self: self.server.now.obj is None)
    @rule()
    def others_create(self) -> None:
        self.server.create()

    @precondition(lambda self: self.server.now.obj is not None)
    @rule(what=st.sampled_from(["update", "update", "remove"]))
    def others_write(self, what: str) -> None:
        getattr(self.server, what)()

    # the watch
    @precondition(lambda self: self.delivered + 1 < len(self.server.history))
    @rule()
    def deliver(self) -> None:
        self.delivered += 1
        self.floor = max(self.floor, self.delivered)
        if sent := self.server.history[self.delivered].event:
            self.store.apply(sent)

    @rule()
    def start_listing(self) -> None:
        self.listing = len(self.server.history) - 1

    def list_all(self, items: list[JsonDict]) -> None:
        self.store.replace(items)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def finish_listing(self) -> None:
        assert self.listing is not None
        found = self.server.history[self.listing].visible
        self.list_all([found] if found else [])
        self.delivered = self.floor = self.listing
        self.listing = None
        if self.request:
            self.request.relisted = True

    # us
    @precondition(lambda self: self.request is None)
    @rule(
        verb=st.sampled_from(["create", "patch", "noop", "delete", "delete-elsewhere"]),
    )
    def send(self, verb: str) -> None:
        known = self.store.get(KEY)
        uid = uid_of(known) if known else ""
        if verb == "delete-elsewhere":  # known from elsewhere, not from the store
            now = self.server.now.obj
            verb, uid = "delete", uid_of(now) if now else ""
        self.request = Request(verb, uid, self.store.writing(KEY))

    def _handle(self, request: Request) -> None:
        now = self.server.now.obj
        request.handled_at = len(self.server.history) - 1
        if request.verb == "create" and now is None:
            self.server.create()
        elif request.verb == "patch" and now is not None:
            self.server.update()
        elif request.verb == "delete" and request.uid:
            request.gone_uid = request.uid
            if now is not None and uid_of(now) == request.uid:
                self.server.remove()
            else:
                return  # not found: its removal is history already
        elif request.verb != "noop" or now is None:
            return
        request.handled_at = len(self.server.history) - 1
        request.reply = self.server.now.obj

    @precondition(lambda self: self.request is not None and self.request.handled_at is None)
    @rule()
    def server_handles(self) -> None:
        assert self.request is not None
        self._handle(self.request)

    @precondition(lambda self: self.request is not None and self.request.handled_at is not None)
    @rule()
    def reply(self) -> None:
        request, self.request = self.request, None
        assert request is not None
        assert request.handled_at is not None
        with request.ticket as ticket:
            if request.gone_uid:
                before = self.store.get(KEY)
                was_there = before is not None and uid_of(before) == request.gone_uid
                ticket.commit_deleted(request.gone_uid)
                after = self.store.get(KEY)
                assert after is None or uid_of(after) != request.gone_uid
                if was_there:
                    self._raise_floor(self._removal_of(request.gone_uid))
            elif request.reply:
                ticket.commit(request.reply)
                if not request.relisted:
                    self._raise_floor(self.server.position(resource_version_of(request.reply)))

    def _removal_of(self, uid: str) -> int:
        alive = [i for i, m in enumerate(self.server.history) if m.obj and uid_of(m.obj) == uid]
        return max(alive) + 1

    def _raise_floor(self, position: int) -> None:
        self.floor = max(self.floor, position)

    @precondition(lambda self: self.request is not None)
    @rule()
    def reply_is_lost(self) -> None:
        request, self.request = self.request, None
        assert request is not None
        request.ticket.abort()
        if request.handled_at is None:
            self.lost.append(request)

    @precondition(lambda self: self.lost)
    @rule()
    def server_handles_late(self) -> None:
        self._handle(self.lost.pop())

    @invariant()
    def never_older_than_what_was_promised(self) -> None:
        if self.selection_moved:
            return
        found = self.store.get(KEY)
        if found is not None:
            assert self.server.position(resource_version_of(found)) >= self.floor
        else:
            assert any(m.obj is None for m in self.server.history[self.floor :])

    def teardown(self) -> None:
        if self.request:
            self.request.ticket.abort()
        while self.delivered + 1 < len(self.server.history):
            self.deliver()
            self.never_older_than_what_was_promised()
        assert self.store.get(KEY) == self.server.now.visible
        assert not self.store._pending
        assert not self.store._tickets


class MovingSelection(OwnWrites):
    """The same, where others move the object out of the selection and back."""

    @precondition(lambda self: self.server.now.obj is not None)
    @rule()
    def others_move_selection(self) -> None:
        self.selection_moved = True
        self.server.toggle_selected()


class OneNamespaceOfTwo(OwnWrites):
    """The same, in a namespace that is listed by itself, beside another one."""

    def list_all(self, items: list[JsonDict]) -> None:
        self.store.replace(items, namespace=KEY.namespace)

    @rule(is_there=st.booleans())
    def list_the_other(self, is_there: bool) -> None:
        before = self.store.get(KEY)
        self.store.replace([elsewhere("1")] if is_there else [], namespace="attic")
        assert len(self.store.keys_in("attic")) == is_there
        assert self.store.get(KEY) is before


LIMITS: dict[str, Any] = {"deadline": None, "stateful_step_count": 40}
TestOwnWrites = OwnWrites.TestCase
TestOwnWrites.settings = settings(max_examples=30, **LIMITS)
TestMovingSelection = MovingSelection.TestCase
TestMovingSelection.settings = settings(max_examples=30, **LIMITS)
TestOneNamespaceOfTwo = OneNamespaceOfTwo.TestCase
TestOneNamespaceOfTwo.settings = settings(max_examples=30, **LIMITS)

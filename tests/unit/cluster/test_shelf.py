"""The shelf: packed objects are what they were, and at hand while they are used."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from federate.cluster.port import WatchEvent
from federate.cluster.shelf import Shelf
from federate.cluster.store import Change, Store
from federate.model.objects import JsonDict, ObjectKey, labels_of

KEY = ObjectKey("shop", "web")


def obj(version: str = "1", *, name: str = "web", uid: str = "u1", **more: Any) -> JsonDict:
    metadata = {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": version}
    return {"metadata": metadata, **more}


def put(shelf: Shelf, key: ObjectKey, body: JsonDict) -> None:
    """Keep an object as a store does."""
    glance = shelf.pack(body)
    shelf.keep_at_hand(glance, body)
    shelf.put(key, glance)


def packing(unpacked_limit: int = 2) -> Shelf:
    return Shelf(packs=True, unpacked_limit=unpacked_limit)


# --- what is kept -------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_a_packed_object_is_what_it_was(content: Any) -> None:
    """Whatever JSON can say survives, types and the order of keys included."""
    shelf = packing(unpacked_limit=0)
    put(shelf, KEY, obj(spec=content))
    assert repr(shelf[KEY]) == repr(obj(spec=content))


def test_what_cannot_be_packed_is_kept_as_it_is() -> None:
    """Parsers take deeper nesting than writers: such an object costs more, and nothing breaks."""
    deep: Any = {}
    for _ in range(400):
        deep = {"more": deep}
    shelf = packing(unpacked_limit=0)
    put(shelf, KEY, obj(spec=deep))
    assert shelf[KEY] == obj(spec=deep)
    assert not shelf.glance(KEY).is_packed  # type: ignore[union-attr]


def test_a_glance_tells_what_many_are_asked_for() -> None:
    """Uid, version, and whether it is being deleted."""
    shelf = packing()
    body = obj("7")
    put(shelf, KEY, body)
    standing = shelf.glance(KEY)
    body = obj("8")
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    put(shelf, KEY, body)
    going = shelf.glance(KEY)
    assert standing is not None and going is not None
    assert (standing.uid, standing.version, standing.terminating) == ("u1", "7", False)
    assert (going.uid, going.version, going.terminating) == ("u1", "8", True)
    assert shelf.glance(ObjectKey("shop", "db")) is None


def test_a_glance_is_the_same_as_long_as_the_object_is() -> None:
    """So who read something meanwhile can tell whether it was replaced."""
    shelf = packing(unpacked_limit=0)
    put(shelf, KEY, obj())
    before = shelf.glance(KEY)
    assert shelf[KEY] == shelf[KEY] and shelf.glance(KEY) is before
    put(shelf, KEY, obj())
    assert shelf.glance(KEY) is not before


# --- what is at hand ----------------------------------------------------------------------------


def test_what_was_used_last_is_at_hand() -> None:
    """It is the same object again; what was not used for the longest time gives way."""
    shelf = packing(unpacked_limit=2)
    for name in "ab":
        put(shelf, ObjectKey("shop", name), obj(name=name))
    a, b, c = (ObjectKey("shop", name) for name in "abc")
    first, second = shelf[b], shelf[a]
    put(shelf, c, obj(name="c"))
    assert shelf[a] is second
    assert shelf[b] is not first and shelf[b] == first


def test_a_look_at_all_pushes_nothing_away() -> None:
    """Whoever passes by all objects takes none of them in hand."""
    shelf = packing(unpacked_limit=1)
    for name in "abc":
        put(shelf, ObjectKey("shop", name), obj(name=name))
    at_hand = shelf[ObjectKey("shop", "c")]
    assert [found["metadata"]["name"] for found in shelf.values()] == ["a", "b", "c"]
    assert shelf[ObjectKey("shop", "c")] is at_hand


def test_without_packing_objects_are_kept_themselves() -> None:
    """Also what is no JSON."""
    body = obj(spec={"takes": frozenset({1})})
    shelf = Shelf()
    put(shelf, KEY, body)
    assert shelf[KEY] is body


# --- a store on either shelf --------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ADDED", "MODIFIED", "DELETED", "list", "shrunk list"]),
        st.sampled_from("abc"),
        st.sampled_from(["u1", "u2"]),
        st.integers(0, 3),
    ),
    max_size=20,
)


@given(EVENTS)
def test_a_store_is_the_same_on_either_shelf(
    events: list[tuple[str, str, str, int]],
) -> None:
    """Changes, objects, indexes and the memory of the deleted, whatever comes."""
    plain, packed = store_on(Shelf()), store_on(packing(unpacked_limit=1))
    for version, (kind, name, uid, team) in enumerate(events):
        body = obj(str(version), name=name, uid=f"{name}-{uid}")
        body["metadata"]["labels"] = {"team": str(team)}
        assert feed(packed, kind, body) == feed(plain, kind, body)
        assert reading(packed) == reading(plain)


def store_on(shelf: Shelf) -> Store:
    return Store(indexers={"team": lambda body: labels_of(body).values()}, shelf=shelf)


def feed(store: Store, kind: str, body: JsonDict) -> Change | list[Change] | None:
    if kind == "list":
        return store.replace([body])
    if kind == "shrunk list":
        return store.replace([store.listed(body)])
    return store.apply(WatchEvent(type=kind, object=body))


def reading(store: Store) -> list[object]:
    values = sorted(store.index_values("team"))
    uids = [f"{name}-{uid}" for name in "abc" for uid in ("u1", "u2")]
    return [
        [(key, store.get(key)) for key in store.keys()],  # noqa: SIM118 - not a dict
        list(store.values()),
        [(glance.uid, glance.version) for glance in store.glances()],
        [(value, store.by_index("team", value)) for value in values],
        [(value, store.keys_by_index("team", value)) for value in values],
        [[glance.uid for glance in store.glances_by_index("team", value)] for value in values],
        [(store.last_deleted(uid), store.deleted_is_final(uid)) for uid in uids],
    ]

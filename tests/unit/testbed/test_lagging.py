"""What a lagging storage holds back: messages of streams that go on, and nothing else."""

from e2e.testbed.lagging import HeldFrames

DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4
END_STREAM = 1


def frame(kind: int, stream: int, payload: bytes = b"", *, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def message(text: bytes, *, length: int | None = None) -> bytes:
    return b"\0" + (len(text) if length is None else length).to_bytes(4) + text


def test_an_answer_that_ends_is_handed_on_with_its_end() -> None:
    """A read or a write does not lag."""
    held = HeldFrames()
    answer, end = frame(DATA, 1, message(b"found")), frame(HEADERS, 1, flags=END_STREAM)
    assert held.take(answer) == []
    assert held.take(end) == [answer, end]
    assert held.let_go() == []


def test_a_stream_that_goes_on_waits_in_order() -> None:
    """All messages of a watch are handed on when they are let go."""
    held = HeldFrames()
    events = [frame(DATA, 1, message(text)) for text in (b"created", b"one", b"two")]
    for event in events:
        assert held.take(event) == []
    assert held.let_go() == events
    assert held.let_go() == []


def test_what_keeps_the_connection_alive_never_waits() -> None:
    """Settings and headers pass while a watch lags."""
    held = HeldFrames()
    held.take(frame(DATA, 1, message(b"event")))
    for passes in (frame(SETTINGS, 0), frame(HEADERS, 3)):
        assert held.take(passes) == [passes]


def test_a_long_answer_never_waits() -> None:
    """A reader must take the first part before the storage sends the rest."""
    held = HeldFrames()
    parts = [frame(DATA, 1, message(b"begins", length=99)), frame(DATA, 1, b"goes on")]
    for part in parts:
        assert held.take(part) == [part]


def test_a_stream_that_is_reset_leaves_nothing() -> None:
    """What was held is handed on, and a later stream begins anew."""
    held = HeldFrames()
    event, reset = frame(DATA, 1, message(b"event")), frame(RESET, 1)
    held.take(event)
    assert held.take(reset) == [event, reset]
    assert held.let_go() == []

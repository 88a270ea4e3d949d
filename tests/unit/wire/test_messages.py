"""WebSocket frames: what a well-tried library writes is read, in any pieces, and what is wrong closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Ping, Pong, TextMessage

from daemon.wire.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FIN,
    MAX_ODD,
    PING,
    PONG,
    SHORT_MASKED,
    TEXT,
    WHOLE_TEXT,
    Closing,
    MessageBuffer,
    control,
    framed,
    head_of,
    unmasked,
)
from tests.unit.wire.test_frames import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 100_000

TEXTS = st.text(max_size=300) | st.integers(0, 70_000).map(lambda size: "ü" * (size // 2))
PLACES = st.lists(st.integers(0, 2000))


def from_client(payload: bytes, first: int = WHOLE_TEXT) -> bytes:
    return b"".join(framed((payload,), first, masked=True))


def feed(buffer: MessageBuffer, chunks: Iterable[bytes]) -> list[bytes]:
    return [bytes(line) for chunk in chunks for line in buffer.feed(chunk)]


def server(limit: int = LIMIT) -> MessageBuffer:
    return MessageBuffer(limit, is_client=False)


def as_lines(texts: Iterable[str]) -> list[bytes]:
    return [text.replace("\n", " ").replace("\r", " ").encode() for text in texts]


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), max_size=4), PLACES, st.booleans())
def test_what_the_library_sends_is_read_in_whatever_pieces_it_comes(
    messages: list[list[str]], places: list[int], is_client: bool
) -> None:
    """Each message in fragments, with a ping between them."""
    library = Connection(ConnectionType.SERVER if is_client else ConnectionType.CLIENT)
    stream = b""
    for fragments in messages:
        for number, text in enumerate(fragments, 1):
            stream += library.send(TextMessage(data=text, message_finished=number == len(fragments)))
            stream += library.send(Ping(payload=b"p"))
    buffer = MessageBuffer(10 * LIMIT, is_client=is_client)
    assert feed(buffer, cut(stream, places)) == as_lines("".join(each) for each in messages)
    assert (buffer.closing, buffer.held, buffer.missing) == (None, 0, 0)
    assert buffer.ping == (b"p" if messages else None)


def read_by_library(stream: bytes, kind: ConnectionType) -> list[Event]:
    library = Connection(kind)
    library.receive_data(stream)
    return list(library.events())


@given(st.lists(st.sampled_from([0, 1, 125, 126, 65535, 65536, SHORT_MASKED + 1]), max_size=4), st.booleans())
def test_the_library_reads_what_we_send(sizes: list[int], masked: bool) -> None:
    stream = b"".join(b"".join(framed((b"x" * size, b"}"), masked=masked)) for size in sizes)
    stream += b"".join(framed((b"{}",), masked=masked)) + control(PONG, b"p", masked=masked)
    kind = ConnectionType.SERVER if masked else ConnectionType.CLIENT
    *texts, pong = read_by_library(stream, kind)
    assert [text.data for text in texts if isinstance(text, TextMessage)] == [
        *("x" * size + "}" for size in sizes),
        "{}",
    ]
    assert pong == Pong(payload=b"p")


@pytest.mark.parametrize(
    ("closing", "code", "reason"),
    [
        (Closing(1001, "bye"), 1001, "bye"),
        (Closing(1008, "ü" * 200), 1008, "ü" * 61),
        (Closing(1005, ""), 1005, ""),
    ],
)
def test_the_library_reads_why_we_close(closing: Closing, code: int, reason: str) -> None:
    (event,) = read_by_library(closing.frame(masked=False), ConnectionType.CLIENT)
    assert isinstance(event, CloseConnection)
    assert (event.code, event.reason or "") == (code, reason)


@given(st.binary(max_size=3 * SHORT_MASKED), st.binary(min_size=4, max_size=4))
def test_a_mask_is_taken_off_as_it_is_put_on(data: bytes, key: bytes) -> None:
    masked = unmasked(data, key)
    assert masked == bytes(byte ^ key[place % 4] for place, byte in enumerate(data))
    assert unmasked(masked, key) == data


@pytest.mark.parametrize(
    ("stream", "code", "text"),
    [
        (b"".join(framed((b"{}",), masked=False)), 1002, "was not masked"),
        (b"\x81\x00", 1002, "was not masked"),
        (from_client(b"{}", WHOLE_TEXT | 0x40), 1002, "reserved"),
        (from_client(b"{}", FIN | 0x3), 1002, "reserved"),
        (from_client(b"{}", FIN | 0xB), 1002, "reserved"),
        (from_client(b"{}", FIN | CONTINUATION), 1002, "belongs to none"),
        (from_client(b"{", TEXT) + from_client(b"{}"), 1002, "within another"),
        (from_client(b"", PING), 1002, "control frame"),
        (from_client(b"x" * 126, FIN | PING), 1002, "control frame"),
        (from_client(b"{}", FIN | BINARY), 1003, "text"),
        (from_client(b'"\xff"'), 1007, "UTF-8"),
        (from_client(b'"\xc3', TEXT) + from_client(b'"', FIN), 1007, "UTF-8"),
        (from_client(b"x" * (LIMIT + 1)), 1009, "100000 bytes"),
        (head_of(WHOLE_TEXT, 1 << 63, 0x80) + b"key!", 1009, "100000 bytes"),
        (from_client(b"x" * LIMIT, TEXT) + from_client(b"x", FIN), 1009, "100000 bytes"),
        (from_client(b"\x03", FIN | CLOSE), 1002, "valid code"),
        (from_client(b"\x03\xed", FIN | CLOSE), 1002, "valid code"),
        (from_client(b"\x03\xe8\xff", FIN | CLOSE), 1007, "UTF-8"),
        (from_client(b"p", FIN | PING) * (MAX_ODD + 1), 1008, "at once"),
        (
            from_client(b"", TEXT) + from_client(b"", CONTINUATION) * MAX_ODD + from_client(b"", FIN),
            1008,
            "at once",
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 1_000_000])
def test_what_breaks_the_protocol_closes_and_nothing_after_it_is_taken(
    stream: bytes, code: int, text: str, step: int
) -> None:
    buffer = server()
    before = from_client(b"[1]")
    whole = before + stream + from_client(b"[2]")
    lines = feed(buffer, cut(whole, range(0, len(whole), step)))
    if code == 1008 and step == 1:
        # One at a time they are no flood.
        assert buffer.closing is None
        return
    assert lines == [b"[1]"]
    assert buffer.closing is not None
    assert not buffer.is_closed_by_peer
    assert buffer.closing.code == code
    assert text in buffer.closing.reason


def test_a_server_may_send_binary_and_must_not_mask() -> None:
    buffer = MessageBuffer(LIMIT, is_client=True)
    assert feed(buffer, [b"".join(framed((b"{}",), FIN | BINARY, masked=False))]) == [b"{}"]
    assert feed(buffer, [from_client(b"{}")]) == []
    assert buffer.closing is not None
    assert "was masked" in buffer.closing.reason


def test_the_newest_ping_is_kept() -> None:
    buffer = server()
    first, second = (from_client(each, FIN | PING) for each in (b"1", b"2"))
    feed(buffer, [first + second + from_client(b"3", FIN | PONG)])
    assert buffer.ping == b"2"


@pytest.mark.parametrize(
    ("payload", "code", "reason"),
    [(b"", 1005, ""), (b"\x03\xe8", 1000, ""), (b"\x0f\xa0why", 4000, "why"), (b"\x03\xe9\xc3\xbc", 1001, "ü")],
)
def test_a_peer_that_closes_says_why(payload: bytes, code: int, reason: str) -> None:
    buffer = server()
    closing = from_client(payload, FIN | CLOSE)
    assert feed(buffer, [from_client(b"{}") + closing + from_client(b"[]")]) == [b"{}"]
    assert (buffer.closing, buffer.is_closed_by_peer) == (Closing(code, reason), True)
    assert feed(buffer, [from_client(b"[]")]) == []


def test_a_closing_is_named_in_words() -> None:
    assert str(Closing(1001, "bye")) == "code 1001 (GOING_AWAY): bye"
    assert str(Closing(4000, "")) == "code 4000 (not registered)"


def test_an_unfinished_message_is_counted_and_can_be_dropped() -> None:
    buffer = server()
    feed(buffer, [from_client(b"x" * 1000)[:500]])
    assert 0 < buffer.held < 500
    assert buffer.missing > 500
    buffer.drop()
    assert buffer.held == 0


@given(st.lists(st.binary(max_size=300), max_size=10), st.booleans())
def test_no_bytes_whatever_raise(chunks: list[bytes], is_client: bool) -> None:
    buffer = MessageBuffer(1000, is_client=is_client)
    feed(buffer, chunks)
    assert buffer.held <= 1000 + 140


@given(st.binary(min_size=1, max_size=400), st.integers(0, 1000), st.integers(0, 255), PLACES)
def test_a_damaged_stream_gives_no_message_that_was_not_sent_before_the_damage(
    payload: bytes, place: int, damage: int, places: list[int]
) -> None:
    stream = bytearray(from_client(b"[1]") + from_client(payload) + from_client(b"[2]"))
    whole = bytes(stream)
    stream[place % len(stream)] ^= damage
    buffer = server()
    lines = feed(buffer, cut(bytes(stream), places))
    if place % len(stream) >= len(from_client(b"[1]")):
        assert lines[:1] == [b"[1]"]
    assert len(lines) <= len(whole)

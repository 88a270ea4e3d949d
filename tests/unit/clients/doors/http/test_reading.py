"""Reading requests: what h11 makes of a head, and that a head that is known means what it meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.clients.doors.http.head import HEAD_BYTES
from daemon.clients.doors.http.reading import ENDED, MAX_KNOWN, Begun, RequestReader

if TYPE_CHECKING:
    from daemon.clients.doors.http.reading import Ended

FIRST = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"


def post(body: bytes, *lines: bytes) -> bytes:
    length = b"Content-Length: %d" % len(body)
    return FIRST + b"".join(line + b"\r\n" for line in (*lines, length)) + b"\r\n" + body


def events(reader: RequestReader) -> list[Begun | bytes | Ended]:
    """What there is of one request."""
    found: list[Begun | bytes | Ended] = []
    while (event := reader.next()) is not None:
        found.append(event)
    return found


def told(reader: RequestReader, data: bytes) -> list[object]:
    """A whole request as its parts: the head's headers, the length, the joined body; then the next may come."""
    reader.feed(data)
    begun, *pieces, end = events(reader)
    assert isinstance(begun, Begun)
    assert end is ENDED
    assert reader.is_complete
    reader.begin_next()
    return [begun, b"".join(piece for piece in pieces if isinstance(piece, bytes))]


def test_a_request_is_its_head_its_body_and_its_end() -> None:
    reader = RequestReader("192.0.2.1")
    reader.feed(post(b"hello", b"Accept: a", b"accept: b"))
    begun, body, end = events(reader)
    assert isinstance(begun, Begun)
    head = begun.head
    assert (head.method, head.path, head.peer) == ("POST", "/mcp", "192.0.2.1")
    assert head.headers == {"host": "localhost", "accept": "a, b"}
    assert (begun.length, begun.keeps, begun.chunks, begun.waits) == (5, True, True, False)
    assert (body, end) == (b"hello", ENDED)


def test_a_path_is_decoded_and_its_query_left_out() -> None:
    reader = RequestReader("")
    reader.feed(b"GET /mcp/my%20profile?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
    begun, end = events(reader)
    assert isinstance(begun, Begun)
    assert (begun.head.path, begun.length, end) == ("/mcp/my profile", 0, ENDED)


def test_the_end_is_told_once_and_what_follows_waits() -> None:
    reader = RequestReader("")
    reader.feed(post(b"one") + post(b"two"))
    assert events(reader)[1:] == [b"one", ENDED]
    assert reader.held == post(b"two")
    assert reader.next() is None
    reader.begin_next()
    assert events(reader)[1:] == [b"two", ENDED]


def test_a_known_head_is_the_same_object_whatever_length_it_says() -> None:
    reader = RequestReader("")
    (first, _), (second, body), (third, none) = (told(reader, post(text)) for text in (b"a", b"b" * 500, b""))
    assert isinstance(first, Begun)
    assert isinstance(second, Begun)
    assert isinstance(third, Begun)
    assert first.head is second.head is third.head
    assert (second.length, body) == (500, b"b" * 500)
    assert (third.length, none) == (0, b"")


def test_a_head_without_a_length_is_known_too() -> None:
    reader = RequestReader("")
    get = b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"
    (first, _), (second, _) = told(reader, get), told(reader, get)
    assert isinstance(first, Begun)
    assert isinstance(second, Begun)
    assert first.head is second.head


def test_no_more_heads_are_known_than_a_client_needs() -> None:
    reader = RequestReader("")
    (first, _) = told(reader, post(b"", b"Kind: 0"))
    for number in range(1, MAX_KNOWN + 1):
        told(reader, post(b"", b"Kind: %d" % number))
    (again, _) = told(reader, post(b"", b"Kind: 0"))
    assert isinstance(first, Begun)
    assert isinstance(again, Begun)
    assert first.head == again.head
    assert first.head is not again.head


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(post(b"abc", b"Content-Length: 3"), id="two lengths"),
        pytest.param(post(b"abc").replace(b": 3", b": 3, 3"), id="a length said twice in one line"),
        pytest.param(FIRST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", id="chunks"),
        pytest.param(post(b"abc", b"Connection: keep-alive, Close"), id="the last one"),
        pytest.param(post(b"abc").replace(b"1.1", b"1.0"), id="HTTP/1.0"),
        pytest.param(post(b"abc", b"Expect: 100-continue"), id="one that waits"),
        pytest.param(b"POST /mcp HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc", id="line feeds alone"),
    ],
)
def test_what_says_its_length_in_another_way_is_read_anew_each_time(request_: bytes) -> None:
    reader = RequestReader("")
    (first, body), (second, again) = told(reader, request_), told(reader, request_)
    assert isinstance(first, Begun)
    assert isinstance(second, Begun)
    assert body == again == b"abc"
    assert first == second
    assert first.head is not second.head


def test_a_second_length_is_no_way_to_have_a_known_head_read_otherwise() -> None:
    reader = RequestReader("")
    twice = post(b"abc", b"Content-Length: 3")
    told(reader, twice)
    reader.feed(twice.replace(b": 3", b": 9", 1))
    with pytest.raises(h11.RemoteProtocolError, match="conflicting Content-Length"):
        events(reader)


def test_two_requests_of_which_one_ends_in_line_feeds_are_no_head_to_know() -> None:
    smuggled = b"GET /one HTTP/1.1\nHost: x\n\nGET /two HTTP/1.1\r\nHost: x\r\n\r\n"
    reader = RequestReader("")
    for _ in range(2):
        reader.feed(smuggled)
        for path in ("/one", "/two"):
            begun, _ = events(reader)
            assert isinstance(begun, Begun)
            assert begun.head.path == path
            reader.begin_next()


@pytest.mark.parametrize(
    ("line", "keeps", "chunks"),
    [(b"1.1", True, True), (b"1.0", False, False), (b"1.1\r\nConnection: close", False, True)],
)
def test_what_a_client_understands_and_whether_it_stays_is_told(
    line: bytes, *, keeps: bool, chunks: bool
) -> None:
    begun, _ = told(RequestReader(""), post(b"").replace(b"1.1", line))
    assert isinstance(begun, Begun)
    assert (begun.keeps, begun.chunks) == (keeps, chunks)


def test_whoever_waits_for_a_word_before_the_body_is_told_of() -> None:
    reader = RequestReader("")
    whole = post(b"abc", b"Expect: 100-continue")
    reader.feed(whole[:-3])
    (begun,) = events(reader)
    assert isinstance(begun, Begun)
    assert begun.waits
    assert not reader.is_complete
    reader.feed(b"abc")
    assert events(reader) == [b"abc", ENDED]


@pytest.mark.parametrize("known", [True, False])
def test_a_head_that_is_too_long_is_refused_by_its_own_status(*, known: bool) -> None:
    reader = RequestReader("")
    if known:
        told(reader, post(b""))
    whole = post(b"", b"X: " + b"x" * HEAD_BYTES)
    reader.feed(whole if known else whole[:-4])
    with pytest.raises(h11.RemoteProtocolError) as error:
        events(reader)
    assert error.value.error_status_hint == 431


def test_bytes_that_are_no_request_are_refused_after_a_known_head_too() -> None:
    reader = RequestReader("")
    told(reader, post(b""))
    reader.feed(b"\x16\x03\x01 hello\r\n\r\n")
    with pytest.raises(h11.RemoteProtocolError):
        events(reader)


BODIES = st.binary(max_size=40)
KINDS = st.sampled_from([b"Kind: a", b"kind:b", b"Content-Length-Not: 7", b"Connection: keep-alive"])


@given(st.lists(st.tuples(BODIES, KINDS), min_size=1, max_size=8), st.lists(st.integers(1, 60), max_size=40))
def test_however_requests_are_cut_they_are_what_each_is_alone(
    asked: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    whole = [post(body, kind) for body, kind in asked]
    stream, pieces = b"".join(whole), []
    for size in cuts:
        pieces.append(stream[:size])
        stream = stream[size:]
    reader = RequestReader("")
    found: list[list[object]] = []
    for piece in (*pieces, stream):
        if piece:
            reader.feed(piece)
        while (event := reader.next()) is not None:
            if isinstance(event, Begun):
                found.append([event, b""])
            elif isinstance(event, bytes):
                found[-1][1] += event  # type: ignore[operator]
            else:
                reader.begin_next()
    assert found == [told(RequestReader(""), each) for each in whole]

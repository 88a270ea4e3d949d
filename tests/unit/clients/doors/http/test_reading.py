"""Requests from a byte stream: whatever two could read in two ways is refused, however it is cut."""

import pytest

from daemon.clients.doors.http.reading import HEAD_BYTES, Head, Refusal, RequestReader
from tests.unit.cases import cases

HEAD = b"POST /mcp HTTP/1.1\r\nHost: h\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def head_of(raw: bytes) -> Head:
    reader = RequestReader()
    reader.feed(raw)
    head = reader.head("::1")
    assert head is not None
    return head


def read(pieces: list[bytes]) -> tuple[list[tuple[str, bytes]], bytes]:
    """All requests in a stream, as paths and bodies, and what is left."""
    reader, found, body, path = RequestReader(), [], b"", ""
    for piece in pieces:
        reader.feed(piece)
        while True:
            if not reader.is_complete:
                if (part := reader.body()) is None:
                    break
                body += part
            elif (head := reader.head("::1")) is None:
                break
            else:
                path, body = head.path, b""
            if reader.is_complete:
                found.append((path, body))
    return found, reader.held


def status_of(raw: bytes) -> int:
    with pytest.raises(Refusal) as refused:
        read([raw])
    return refused.value.status


STREAM = (
    b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"
    b"POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\na\r\n\r\n"
    + CHUNKED.replace(b"/mcp", b"/3")
    + b"4\r\n\r\n\r\n\r\n3;x=y\r\nabc\r\n0\r\nHost: evil\r\n\r\n"
    + b"GET /4 HTTP/1.1\r\nHost: h\r\n\r\n"
    + CHUNKED.replace(b"/mcp", b"/5")
    + b"0\r\n\r\n"
    + b"GET /6 "
)
WHOLE = [("/1", b""), ("/2", b"a\r\n\r\n"), ("/3", b"\r\n\r\nabc"), ("/4", b""), ("/5", b"")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, len(STREAM)])
def test_requests_are_the_same_however_the_stream_is_cut(size: int) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert read(pieces) == (WHOLE, b"GET /6 ")


def test_a_head_is_read_without_its_query_and_with_both_values_of_a_header() -> None:
    head = head_of(b"GET /%7Eme/%7Eyou?a=%20 HTTP/1.1\r\nhost: h\r\nX: 1\r\nx:\t\xe9 \r\n\r\n")
    assert (head.method, head.path, head.headers["x"], head.peer) == ("GET", "/%7Eme/~you", "1, \xe9", "::1")


@cases("target", "host", "path", raw={"target"})
def test_an_absolute_target_names_the_host(target: bytes, host: str, path: str) -> None:
    head = head_of(b"POST " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (head.headers["host"], head.path) == (host, path)


def test_another_protocol_is_asked_for_in_a_head_like_any_other() -> None:
    assert read([HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}GET "]) == (
        [("/mcp", b"{}")],
        b"GET ",
    )
    upgrade = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert read([upgrade + b"2\r\n{}\r\n0\r\n\r\n"]) == ([("/mcp", b"{}")], b"")


@cases("sent", "status", raw={"sent"})
def test_what_two_could_read_in_two_ways_is_refused(sent: bytes, status: int) -> None:
    assert status_of(sent) == status


def test_heads_and_the_lines_of_chunks_are_bounded() -> None:
    long = b"x" * HEAD_BYTES
    for sent in (HEAD + b"X: " + long, HEAD + b"X: " + long + b"\r\n\r\n", b"GET /" + long):
        assert status_of(sent) == 431
    for trailer in (b"0\r\nX: " + 2 * long, b"0\r\n" + b"X: x\r\n" * HEAD_BYTES, b"1;" + 2 * long):
        assert status_of(CHUNKED + trailer) == 400


def test_a_refusal_repeats_nothing_of_the_request() -> None:
    with pytest.raises(Refusal) as refused:
        head_of(HEAD + b"Authorization : Bearer s3cr3t\r\n\r\n")
    assert "s3cr3t" not in refused.value.text

"""Lines out of chunks: the same however they are cut, in linear work and bounded memory."""

import json
import re
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.wire.envelope import (
    HEAD_BYTES,
    LONG_BYTES,
    MAX_READ_AGAIN,
    MAX_SURROGATES,
    LineBuffer,
    as_line,
    id_answered,
    id_in_head,
    id_of_unreadable,
    mended,
    with_whole_characters,
)
from tests.unit.cases import cases

KIB = 1024
MIB = 1024 * KIB

STREAM = st.lists(st.sampled_from([b"\n", b"a", b"\r\n", b"\xff", b"{}", b"longer than six"]), max_size=30).map(
    b"".join
)


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """The stream in pieces; places beyond its end make empty ones."""
    ends = [*sorted(places), len(stream)]
    return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def feed(buffer: LineBuffer, chunks: Iterable[bytes]) -> list[bytes]:
    return [bytes(line) for chunk in chunks for line in buffer.feed(chunk)]


@given(STREAM, st.lists(st.integers(0, 60)))
def test_any_stream_in_any_pieces_gives_the_lines_of_split(stream: bytes, places: list[int]) -> None:
    buffer = LineBuffer(max_line=1000)
    *lines, rest = stream.split(b"\n")
    assert feed(buffer, cut(stream, places)) == lines
    assert buffer.held == len(rest)
    assert buffer.oversized == []


@given(STREAM, st.lists(st.integers(0, 60)), st.integers(0, 8))
@example(b"aaaaaaa\nb\n", [7], 6)
@example(b"aaaaaa\nb\n", [6], 6)
@example(b"aaaaaaaaa\nb\nc\n", [4, 4, 6], 4)
def test_lines_over_the_limit_are_swallowed_whole(stream: bytes, places: list[int], max_line: int) -> None:
    buffer = LineBuffer(max_line)
    *lines, rest = stream.split(b"\n")
    long = [line for line in lines if len(line) > max_line]
    assert feed(buffer, cut(stream, places)) == [line for line in lines if len(line) <= max_line]
    assert len(buffer.oversized) == len(long) + (len(rest) > max_line)
    for head, line in zip(buffer.oversized, [*long, rest], strict=False):
        assert line.startswith(head)
        assert len(head) > max_line


@pytest.mark.parametrize("step", [1, 7, HEAD_BYTES, 4096])
def test_the_head_of_a_swallowed_line_is_kept_and_no_more(step: int) -> None:
    line = bytes(range(32, 127)) * 100
    buffer = LineBuffer(max_line=1000)
    stream = line + b"\nnext\n"
    assert feed(buffer, cut(stream, range(0, len(stream), step))) == [b"next"]
    assert buffer.oversized == [line[:HEAD_BYTES]]


def test_a_line_of_a_hundred_megabytes_costs_no_memory_beyond_the_limit() -> None:
    buffer = LineBuffer(max_line=MIB)
    chunk = b"x" * (64 * KIB)
    tracemalloc.start()
    try:
        for _ in range(100 * MIB // len(chunk)):
            assert buffer.feed(chunk) == []
            assert buffer.held <= MIB + len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert buffer.feed(b"\nnext\n") == [b"next"]
    assert buffer.oversized == [chunk[:HEAD_BYTES]]
    assert peak <= MIB + MIB // 4  # an array grows by an eighth at a time


@pytest.mark.parametrize("length", [LONG_BYTES, LONG_BYTES + 1, 5 * LONG_BYTES])
def test_a_long_line_comes_whole_between_short_ones_however_it_was_cut(length: int) -> None:
    long = bytes(range(11, 256)) * (length // 245 + 1)
    stream = b"before\n" + long[:length] + b"\nafter\n" + long[:length] + b"\n"
    for step in (64 * KIB, 256 * KIB, 300_001, len(stream)):
        pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
        assert feed(LineBuffer(max_line=length), pieces) == stream.split(b"\n")[:-1]


def test_a_long_line_that_gets_too_long_is_swallowed_to_its_end() -> None:
    buffer = LineBuffer(max_line=2 * LONG_BYTES)
    chunk = b"x" * (LONG_BYTES // 2)
    assert feed(buffer, [*[chunk] * 9, b"end\nnext\n"]) == [b"next"]
    assert buffer.oversized == [chunk[:HEAD_BYTES]]
    assert buffer.held == 0


class CountedBytes(bytes):
    """Bytes that count how often they are searched, and how far."""

    searched = 0

    def __contains__(self, other: object) -> bool:
        CountedBytes.searched += len(self)
        return super().__contains__(other)  # type: ignore[operator]

    def split(self, *args: object, **kwargs: object) -> list[bytes]:
        CountedBytes.searched += len(self)
        return super().split(*args, **kwargs)  # type: ignore[arg-type]


def test_a_dripping_line_is_searched_once() -> None:
    CountedBytes.searched = 0
    buffer = LineBuffer(max_line=MIB)
    for _ in range(10_000):
        buffer.feed(CountedBytes(b"x"))
    assert buffer.feed(CountedBytes(b"\n")) == [b"x" * 10_000]
    assert CountedBytes.searched <= 2 * 10_001


def test_a_message_of_many_lines_means_the_same_in_one() -> None:
    assert as_line(b'{\r\n "a":\t"\\n"\n}') == b'{   "a":\t"\\n" }'
    plain = b'{"a":1}'
    assert as_line(plain) is plain


MEMBERS = b'{ } [ ] : , " "id" "method" "params" "id":1 "id":"a" -1 1.5 true null \\ \\" jsonrpc'.split(b" ")
JSONISH = st.lists(st.sampled_from([*MEMBERS, b" ", b"\n"]) | st.binary(max_size=3), max_size=25).map(b"".join)


# --- halves of characters ---------------------------------------------------------------------------------


@cases("line", "mended", raw={"line", "mended"})
def test_half_a_character_becomes_the_one_that_says_so(line: bytes, mended: bytes) -> None:
    assert with_whole_characters(line) == mended


@pytest.mark.parametrize(
    "line", [b"", b"{}", rb'"\ud83d\ude00"', rb'"\\ud83d"', rb'"\u00e4 \uffff"', b'"\\ud8"']
)
def test_what_is_whole_is_left_alone(line: bytes) -> None:
    assert with_whole_characters(line) is None


def test_only_so_many_are_looked_at() -> None:
    assert with_whole_characters(rb'"%b"' % (rb"\ud83d" * MAX_SURROGATES)) is not None
    assert with_whole_characters(rb'"%b"' % (rb"\ud83d" * (MAX_SURROGATES + 1))) is None


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_any_text_as_python_escapes_it_is_whole_afterwards(text: str) -> None:
    line = json.dumps(text).encode()
    mended = with_whole_characters(line) or line
    assert len(mended) == len(line)
    read = json.loads(mended)
    assert read == re.sub("[\ud800-\udfff]", "\ufffd", json.loads(line))


# --- ids --------------------------------------------------------------------------------------------------


@cases("line", "request_id", raw={"line", "request_id"})
def test_the_id_of_what_is_no_json_is_found_where_that_is_certain(line: bytes, request_id: bytes) -> None:
    assert id_of_unreadable(line) == request_id
    assert id_answered(line) == request_id


def test_of_a_long_line_the_id_is_found_before_the_payload() -> None:
    long = b"x" * MAX_READ_AGAIN
    assert id_of_unreadable(b'{"result":{"x":"%b","y":NaN},"id":7}' % long) == b"null"
    for member in (b"", b'"method":"GET",'):
        line = b'{"id":7,"result":{%b"x":"%b","y":NaN}}' % (member, long)
        assert id_of_unreadable(line) == id_answered(line) == b"7"


@cases("line", raw={"line"})
def test_a_method_within_a_payload_makes_no_request_of_an_answer(line: bytes) -> None:
    assert id_answered(line) == b"7"


@pytest.mark.parametrize("text", [b'\\"', b'"\\', b'"', b"\\\\", b'","', b'\\"NaN'])
def test_a_string_without_an_end_is_looked_through_once(text: bytes) -> None:
    """Begun anew at every quote, the search took 40 s for this line; now it takes some milliseconds."""
    line = b'{"a":{},"b":"' + text * (MAX_READ_AGAIN // len(text) - 20)
    assert id_of_unreadable(line) == id_answered(line) == b"null"


def test_a_request_answers_nothing() -> None:
    assert id_answered(b'{"id":7,"method":"ping","params":NaN}') == b"null"
    assert id_answered(b'{"method":"ping","id":7,"params":NaN}') == b"null"
    assert id_answered(b'{"id":7,"params":{"x":"\x01"},"method":"ping"}') == b"null"


@cases("head", "request_id", raw={"head", "request_id"})
def test_only_an_id_that_stands_before_the_payload_is_believed(head: bytes, request_id: bytes) -> None:
    assert id_in_head(head) == request_id


@cases("head", raw={"head"})
def test_an_id_that_is_cut_or_no_integer_or_within_something_else_is_nobodys(head: bytes) -> None:
    assert id_in_head(head) == b"null"


@given(st.binary(max_size=256) | JSONISH)
def test_any_head_gives_an_id_that_can_be_written(head: bytes) -> None:
    found = id_in_head(head)
    assert found == b"null" or found[:1] in b'-0123456789"'


# --- messages ---------------------------------------------------------------------------------------------


def test_a_message_is_mended_but_not_its_id() -> None:
    assert mended(rb'{"id":"a","params":{"x":"\ud800"}}') == rb'{"id":"a","params":{"x":"\ufffd"}}'
    assert mended(rb'{"id":"\ufffd","params":{"x":"\ud800"}}') is not None
    assert mended(rb'{"id":"\ud800","params":{}}') is None
    assert mended(rb'{"id":"a","params":{"x":"\ud800"') is None
    assert mended(b'{"id":"a"}') is None

"""Lines that are no JSON: what of them is saved."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.wire.frames import (
    MAX_READ_AGAIN,
    MAX_SURROGATES,
    id_answered,
    id_in_head,
    id_of_unreadable,
    mended,
    with_whole_characters,
)
from tests.unit.cases import cases

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

"""A call as nearly all are written is read in one look, just as a closer one would read it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.clients.dispatch import MAX_PLAIN, PlainCall, plain_call
from daemon.wire.envelope import MAX_DEPTH, decode_strictly

ARGUMENTS = b'{"x":[1,{"id":2}]}'
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":[1,{"id":2}]}}}'
CALLS = st.builds(
    lambda line, at, junk, gone: line[:at] + junk + line[at + gone :],
    st.sampled_from(
        [
            CALL,
            b'{"method":"tools/call","params":{"arguments":{},"name":"a"},"jsonrpc":"2.0","id":-1}',
            b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"","arguments":{"\\u0041":"\\\\"}}}',
        ]
    ),
    st.integers(0, 100),
    st.sampled_from(
        [
            b"",
            b" ",
            b"0",
            b"-",
            b".0",
            b"e1",
            b'"',
            b"\\",
            b',"id":8',
            b'"id":8,',
            b"{",
            b"[]",
            b"\xc3\xa9",
            b"NaN",
        ]
    )
    | st.binary(max_size=2),
    st.integers(0, 9),
)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_a_call_as_nearly_all_are_written_is_read_in_one_look(order: tuple[int, ...]) -> None:
    arguments = '{"text":"a \\"quoted\\" word"}'
    members = (
        '"jsonrpc":"2.0"',
        '"id":17',
        '"method":"tools/call"',
        f'"params":{{"name":"echo","arguments":{arguments}}}',
    )
    line = "{" + ",".join(members[each] for each in order) + "}"
    assert plain_call(line.encode()) == PlainCall(b"17", "echo", arguments.encode())


@pytest.mark.parametrize(
    "line",
    [
        CALL.replace(b'"id":7', b'"id":"7"'),
        CALL.replace(b'"id":7', b'"id":7.0'),
        CALL.replace(b'"id":7', b'"id":-0'),
        CALL.replace(b'"id":7', b'"id":7,"id":8'),
        CALL.replace(b'"id":7', b'"\\u0069d":7'),
        CALL.replace(b'"id":7', b'"id":7,"result":{}'),
        CALL.replace(b'"2.0"', b'"2.1"'),
        CALL.replace(b"tools/call", b"tools/list"),
        CALL.replace(b'"echo"', b'"\xc3\xa9cho"'),
        CALL.replace(b'"echo"', b'"\\u0065cho"'),
        CALL.replace(b'"echo",', b'"echo", '),
        CALL.replace(b'"echo",', b'"echo","_meta":{},'),
        CALL.replace(ARGUMENTS, b"[]"),
        CALL.replace(ARGUMENTS, b'{"x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}"),
        CALL.replace(ARGUMENTS, b'{"x":"' + b" " * MAX_PLAIN + b'"}'),
        CALL[:-1],
        CALL + b" ",
        b"",
    ],
)
def test_a_call_that_is_written_otherwise_is_left_to_a_closer_look(line: bytes) -> None:
    assert plain_call(line) is None


def test_a_longer_one_is_read_in_one_look_too_unless_it_may_be_nested_deeply() -> None:
    arguments = b'{"x":"' + b"long" * 1000 + b'"}'
    assert plain_call(CALL.replace(ARGUMENTS, arguments)) == PlainCall(b"7", "echo", arguments)
    brackets = b'{"x":"' + b"[" * MAX_DEPTH + b"}" * MAX_DEPTH + b'"}'
    assert plain_call(CALL.replace(ARGUMENTS, brackets)) is None


def test_the_shortest_one_that_is_nested_too_deeply_is_left_to_a_closer_look() -> None:
    # The message, its params and its arguments are three levels.
    inside = MAX_DEPTH - 3
    deepest = b'{"":' + b"[" * inside + b"]" * inside + b"}"
    assert plain_call(CALL.replace(ARGUMENTS, deepest)) == PlainCall(b"7", "echo", deepest)
    assert plain_call(CALL.replace(ARGUMENTS, deepest.replace(b"[]", b"[[]]"))) is None


@given(CALLS)
@example(CALL)
def test_what_is_read_in_one_look_reads_the_same_in_a_closer_one(line: bytes) -> None:
    found = plain_call(line)
    if found is not None:
        closer = decode_strictly(line)
        assert (bytes(Raw(closer.id or b"")), closer.method) == (found.request_id, "tools/call")
        assert msgspec.json.decode(closer.params or b"") == {
            "name": found.name,
            "arguments": msgspec.json.decode(found.arguments),
        }
        assert found.arguments in line

"""What fuzzing found in the envelope, and what must hold of any bytes: two readers of JSON agree."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.protocol import brackets_of, depth_of
from daemon.wire import envelope
from daemon.wire.envelope import MAX_CONTAINERS, MAX_DEPTH, BadMessage, decode, decode_strictly
from tests.fuzz.mutation import FROM_CLIENTS, FROM_SERVERS, malformed
from tests.fuzz.oracles import UID, an_envelope
from tests.fuzz.promises import depth, read
from tests.unit.cases import cases

INPUTS = 600
PARSE, REQUEST = envelope.PARSE_ERROR, envelope.INVALID_REQUEST


def call(arguments: str, *, method: str = "tools/call", more: str = "") -> bytes:
    return f'{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{"a":{arguments}}}{more}}}'.encode()


def refusal(line: bytes) -> BadMessage:
    with pytest.raises(BadMessage) as caught:
        decode_strictly(line)
    return caught.value


@pytest.mark.parametrize("messages", [FROM_CLIENTS, FROM_SERVERS], ids=["of clients", "of servers"])
def test_what_is_taken_is_what_the_standard_library_reads(messages: tuple[dict[str, object]]) -> None:
    for each in malformed(8, messages, INPUTS):
        for line in each.data.split(b"\n"):
            an_envelope(line.replace(b"987654321", b"%d" % UID))


# --- found by it --------------------------------------------------------------------------------------------


@cases("line", raw={"line"})
def test_what_is_no_json_is_a_parse_error_whatever_stands_before_the_fault(line: bytes) -> None:
    fault = refusal(line)
    assert (fault.code, fault.request_id) == (PARSE, b"null")
    with pytest.raises(BadMessage) as caught:
        decode(line)
    assert caught.value.code == PARSE


@pytest.mark.parametrize("bad", ["[" * 200 + "]" * 200, '{"id":7}', "1.5", "true"])
@pytest.mark.parametrize(
    "rest", [',"method":"n"', ',"params":{"x":' + "[" * 200 + "]" * 200 + "}", ',"result":1']
)
def test_an_id_that_is_none_is_never_repeated_in_the_refusal(bad: str, rest: str) -> None:
    fault = refusal(f'{{"jsonrpc":"2.0","id":{bad},"method":"m"{rest}}}'.encode())
    assert (fault.code, fault.request_id) == (REQUEST, b"null")


# --- nesting, exactly ---------------------------------------------------------------------------------------

_VALUES = st.recursive(
    st.sampled_from(["", "[", '"', "}{", "\\", '\\"', "[[", 0, None]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "[", '"']), inner, max_size=3)
    ),
    max_leaves=40,
)


@given(_VALUES, st.integers(0, 30))
def test_nesting_is_measured_exactly_whatever_stands_in_the_texts(value: object, more: int) -> None:
    for _ in range(more):
        value = [value, "]"]
    line = json.dumps([value]).encode()
    assert depth_of(brackets_of(line)) == depth(read(line.decode()))


@pytest.mark.parametrize(
    ("levels", "times"), [(15, 30_000), (100, 4_000), (MAX_DEPTH - 3, 3_000), (3, 150_000)]
)
def test_many_lists_are_taken_if_none_is_too_deep(levels: int, times: int) -> None:
    one = "[" * levels + "]" * levels
    line = call("[" + f"{one}," * times + "0]")
    assert decode_strictly(line).method == "tools/call"


def test_one_deep_list_is_found_among_very_many() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    fault = refusal(call("[" + "[[],{}]," * 100_000 + f"{deep}]"))
    assert (fault.code, fault.request_id) == (REQUEST, b"7")
    assert "nested deeper than 128" in fault.message


def test_more_lists_than_anybody_sends_are_refused_before_they_are_looked_into() -> None:
    fault = refusal(call("[" + "[]," * MAX_CONTAINERS + "0]"))
    assert (fault.code, fault.request_id) == (REQUEST, b"7")
    assert "more than 500000 objects and lists" in fault.message


def test_brackets_within_texts_are_no_lists() -> None:
    assert decode_strictly(call('"' + "[" * 2 * MAX_CONTAINERS + '"')).method == "tools/call"


# --- members given twice, beside a large payload ------------------------------------------------------------

LARGE = "[" + "1," * 50_000 + '"{}"]'


def test_a_method_with_an_escape_beside_a_large_payload_is_taken() -> None:
    assert decode_strictly(call(LARGE, method="tools\\/call")).method == "tools/call"


@pytest.mark.parametrize("again", ['"id":8', '"method":"n"', '"\\u0069d":8', '"jsonrpc":"2.0"'])
def test_a_second_member_is_found_beside_a_large_payload(again: str) -> None:
    assert "given twice" in refusal(call(LARGE, method="tools\\/call", more=f",{again}")).message


def test_the_same_large_payload_twice_is_refused() -> None:
    line = call(LARGE)
    assert refusal(line[:-1] + line[line.index(b',"params"') :]).code == REQUEST

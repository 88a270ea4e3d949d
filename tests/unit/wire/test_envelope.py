"""The envelope: what is taken, what is refused, with which code, and for whom."""

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from daemon.wire import envelope
from daemon.wire.envelope import MAX_ID_BYTES, BadMessage, Envelope, Line, decode, decode_strictly
from tests.unit.cases import cases

PARSE, REQUEST = -32700, -32600


def message(rest: str = "", *, request_id: str = "7") -> bytes:
    """A sound request but for `rest`."""
    return (f'{{"jsonrpc":"2.0","id":{request_id},"method":"m"{rest}}}').encode()


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    """A message that is nested to `levels` in all: its own object, its params, and what is within."""
    inner = opening * (levels - 2) + closing * (levels - 2)
    return message(f',"params":{{"x":{inner}}}')


def alternating(levels: int) -> bytes:
    """As `nested`, with objects and arrays in turn."""
    pairs = (levels - 2) // 2
    return message(',"params":{{"x":{}{}}}'.format('[{"x":' * (pairs - 1) + "[{}]", "}]" * (pairs - 1)))


def check_refusal(line: bytes, code: int, request_id: bytes, text: str) -> None:
    """A line is refused with this code, id and reason; what is not JSON, from a server, too."""
    with pytest.raises(BadMessage) as caught:
        decode_strictly(line)
    fault = caught.value
    assert (fault.code, fault.request_id) == (code, request_id)
    assert text in fault.message
    assert str(fault) == fault.message
    refused = b"".join(map(bytes, envelope.error_response(fault.request_id, fault.code, fault.message)))
    assert msgspec.json.decode(refused)["error"]["code"] == code
    if code == PARSE and "not UTF-8" not in text:
        with pytest.raises(BadMessage):
            decode(line)


@cases("line", "code", "request_id", "text", raw={"line", "request_id"})
def test_a_bad_message_is_refused_with_its_reason(line: bytes, code: int, request_id: bytes, text: str) -> None:
    check_refusal(line, code, request_id, text)


TOO_DEEP = {
    "by one level": nested(129),
    "objects": nested(200, '{"x":', "}").replace(b":}", b":0}"),
    "by turns": alternating(130),
    "and wide": nested(129).replace(b',"params":{', b',"params":{"w":[[],{}],'),
    "much, by turns": alternating(300),
}


@pytest.mark.parametrize("line", TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_is_nested_too_deeply_is_refused_under_its_id(line: bytes) -> None:
    check_refusal(line, REQUEST, b"7", "nested deeper than 128 levels")


def test_a_bomb_of_brackets_is_no_json() -> None:
    check_refusal(nested(20_000), PARSE, b"null", "nested too deeply")
    check_refusal(b'{"jsonrpc":"2.0","id":7,"params":' + b"[" * 100_000, PARSE, b"null", "Parse error")
    wrong = b'{"method":1,"params":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    check_refusal(wrong, PARSE, b"null", "nested too deeply")


GOOD_IDS = [
    "0",
    "7",
    "-3",
    str(2**63),
    str(2**70),
    '""',
    '"a"',
    r'"\u00e9\"\\"',
    '"é"',
    '"' + "x" * 100_000 + '"',
]


@pytest.mark.parametrize("request_id", GOOD_IDS, ids=lambda text: text[:10])
def test_an_id_is_kept_byte_for_byte(request_id: str) -> None:
    assert raw(decode_strictly(message(request_id=request_id)).id) == request_id.encode()


@cases("line", raw={"line"})
def test_a_message_may_be_written_in_many_ways(line: bytes) -> None:
    read = decode_strictly(line)
    assert (read.method, raw(read.id)) == ("m", b"7")
    assert msgspec.json.decode(raw(read.params)) == {"x": 1}


@cases("params")
def test_params_are_kept_byte_for_byte(params: str) -> None:
    assert raw(decode_strictly(message(f',"params":{params}')).params) == params.encode()


@pytest.mark.parametrize("padding", [0, 5000])
@pytest.mark.parametrize(("levels", "taken"), [(128, True), (129, False)])
def test_a_long_message_may_be_nested_as_a_short_one(padding: int, levels: int, *, taken: bool) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        inner = opening * (levels - 2) + "0" + closing * (levels - 2)
        line = message(f',"params":{{"x":{inner},"y":"{"z" * padding}"}}')
        if taken:
            decode_strictly(line)
        else:
            with pytest.raises(BadMessage, match="deeper"):
                decode_strictly(line)


@cases("line", raw={"line"})
def test_a_message_that_says_something_twice_is_refused_however_long_it_is(line: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_strictly(line)


# --- from servers: only routed ----------------------------------------------------------------------------


@cases("line", raw={"line"})
def test_what_a_server_says_is_only_routed(line: bytes) -> None:
    assert isinstance(decode(line), Envelope)


@pytest.mark.parametrize(
    "line", [b'{"method":1,"\xff":2,"id":7}', b'{"method":"\xff","id":7}', b'{"jsonrpc":7,"id":"\xff"}']
)
def test_invalid_utf8_from_a_server_costs_the_message_only(line: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(line)


FRAGMENTS = (
    b'{ } [ ] : , " \\ \\ud800 "id" "method" "params" "result" "jsonrpc":"2.0" {"id":1}'
    b" 1 - 0.5 null true NaN \xc3\xa9 \0"
)
JSONISH = st.lists(
    st.sampled_from([*FRAGMENTS.split(b" "), b" ", b"\n"]) | st.binary(max_size=3), max_size=25
).map(b"".join)
MUTATED = st.builds(
    lambda line, at, junk: line[:at] + junk + line[at + len(junk) :],
    st.sampled_from([message(), message(',"params":{"x":[1,"é"]}'), b'{"id":1,"result":{}}']),
    st.integers(0, 60),
    st.binary(max_size=3),
)


@given(st.binary() | JSONISH | MUTATED)
@example(b'{"method":1,"\xff":2,"id":7}')
def test_no_bytes_raise_anything_but_a_bad_message(line: bytes) -> None:
    for read in (decode, decode_strictly):
        with contextlib.suppress(BadMessage):
            read(line)


def outcome(read: Callable[[Line], Envelope], line: Line) -> bytes:
    """What becomes of a line."""
    try:
        return msgspec.json.encode(read(line))
    except BadMessage as fault:
        return b"%d %b %b" % (fault.code, fault.message.encode(), fault.request_id)


@given(st.binary() | JSONISH | MUTATED)
def test_a_long_line_which_comes_in_an_array_is_read_just_so(line: bytes) -> None:
    for read in (decode, decode_strictly):
        assert outcome(read, bytearray(line)) == outcome(read, line)


@given(JSONISH | MUTATED)
def test_whatever_is_taken_strictly_is_json_of_the_right_shape(line: bytes) -> None:
    try:
        decode_strictly(line)
    except BadMessage:
        return
    value = msgspec.json.decode(line)
    assert value["jsonrpc"] == "2.0"
    assert isinstance(value.get("id", 0), int | str)
    assert isinstance(value.get("params", {}), dict)


# --- written ----------------------------------------------------------------------------------------------


def written(frame: tuple[envelope.Buffer, ...]) -> bytes:
    return b"".join(map(bytes, frame))


def test_a_request_is_written_with_its_payload_untouched() -> None:
    frame = envelope.request(5, "tools/call", (b'{"name":"t","arguments":', Raw(b'{"x" : 1.0}'), b"}"))
    assert written(frame) == (
        b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t","arguments":{"x" : 1.0}}}'
    )


@pytest.mark.parametrize("request_id", [b"7", b'"\\u00e9"', b"null"])
def test_an_answer_carries_the_id_as_it_came(request_id: bytes) -> None:
    assert written(envelope.response(request_id, b'{"x" : 1}')) == (
        b'{"jsonrpc":"2.0","id":%b,"result":{"x" : 1}}' % request_id
    )


@pytest.mark.parametrize(("data", "shown"), [(None, {}), ({"a": [1]}, {"data": {"a": [1]}}), (0, {"data": 0})])
def test_an_error_has_data_only_if_there_is_some(data: object, shown: dict[str, object]) -> None:
    frame = envelope.error_response(b"7", -32601, 'no "m"\n', data)
    assert msgspec.json.decode(written(frame)) == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": -32601, "message": 'no "m"\n', **shown},
    }


def raw(value: object) -> bytes:
    assert value is not UNSET
    assert isinstance(value, Raw)
    return bytes(value)


@pytest.mark.parametrize(
    "written", ['"%s"' % ("x" * MAX_ID_BYTES), '"%s"' % ("é" * MAX_ID_BYTES), "1" * (MAX_ID_BYTES + 1)]
)
def test_an_id_is_no_longer_than_anybody_needs(written: str) -> None:
    with pytest.raises(BadMessage, match=f"at most {MAX_ID_BYTES} bytes") as caught:
        decode_strictly(message(request_id=written))
    assert caught.value.request_id == b"null"
    longest = '"%s"' % ("x" * (MAX_ID_BYTES - 2))
    assert decode_strictly(message(request_id=longest)).id is not UNSET

"""Ids and methods, wherever they stand, byte for byte; hypothesis looks for lines that are read wrongly."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.bridge.frames import (
    MAX_ID,
    acknowledged,
    answered,
    cancelled,
    only_answers,
    peek,
    peek_ends,
    plain_answer,
    plain_call,
)
from daemon.wire import envelope
from tests.unit.cases import cases
from tests.unit.json_values import json_values

TOOL = b'"tools/call"'


@cases("line", "request_id", "method", raw={"line", "request_id", "method"})
def test_id_and_method_are_as_written(line: bytes, request_id: bytes | None, method: bytes | None) -> None:
    assert peek(line + b"\n") == (request_id, method)
    found = plain_call(line + b"\n")
    assert found is None or (found, TOOL) == (request_id, method)


IDS = st.one_of(st.integers(), st.text(max_size=20))
VALUES = json_values(keys=st.text(max_size=6) | st.just("id"))


@given(
    request_id=IDS,
    method=st.sampled_from(["ping", "tools/call", "a\\b"]),
    params=VALUES,
    order=st.permutations(["jsonrpc", "id", "method", "params"]),
    compact=st.booleans(),
    plain=st.booleans(),
)
def test_any_request_is_read_as_the_json_module_reads_it(
    request_id: object, method: str, params: object, order: list[str], *, compact: bool, plain: bool
) -> None:
    members = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    line = json.dumps(
        {name: members[name] for name in order}, separators=(",", ":") if compact else None, ensure_ascii=plain
    ).encode(errors="surrogatepass")
    assert plain_call(line + b"\n") in {None, peek(line + b"\n")[0]}
    found_id, found_method = peek(line + b"\n")
    assert found_id is not None
    assert found_method is not None
    assert found_id in line
    assert json.loads(found_id.decode(errors="surrogatepass")) == request_id
    assert json.loads(found_method) == method


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd_to_be_looked_at(line: bytes) -> None:
    for text in (line, b'{"id":' + line, b'{"method":"' + line, line + b',"id":1}'):
        peek(text)
        answered(text)
        plain_answer(text)
        if plain_call(text + b"\n") is not None:
            assert peek(text + b"\n") == (plain_call(text + b"\n"), TOOL)
        cancelled(text)
        acknowledged(text)
        peek_ends(text, text)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":"' + b'\\"' * 24_000,
        b'{"a":' + b'"' * 50_000,
        b'{"a":' + b"[" * 50_000,
        b'{"a":' + b'"id":' * 10_000,
        b'{"requestId":"' + b'"requestId":"\\' * 3_000,
        b"{" + b" " * 50_000 + b"x",
        b'{"method":"x","params":"' + b',"id":' * 8_000,
    ],
)
def test_a_hostile_line_is_read_in_linear_time(line: bytes) -> None:
    # With the square of so many bytes, one of these lines would take hours.
    assert peek(line)[0] is None
    assert len(cancelled(line) or b"") < 20


def test_an_id_that_is_a_novel_is_not_kept() -> None:
    for size, kept in ((MAX_ID - 2, True), (MAX_ID - 1, False)):
        text = b'"' + b"x" * size + b'"'
        for line in (b'{"id":%b,"method":"ping"}', b'{"method":"ping","id":%b}'):
            assert peek(line % text) == (text if kept else None, b'"ping"')


def test_of_a_long_line_the_ends_suffice() -> None:
    assert peek_ends(b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"x', b'"}}\n') == (b"3", TOOL)
    assert peek_ends(b'{"method":"tools/call","params":{"x', b'x"},"jsonrpc":"2.0","id":4}\n') == (b"4", TOOL)
    assert peek_ends(b'{"params":{"x', b'x"},"id":5}\n') == (b"5", None)
    assert peek_ends(b"xxxx", b"xxx\n") == (None, None)


@pytest.mark.parametrize("request_id", [b"1", b'"a,\\"result\\":"', b'"\\\\"', b"-7"])
def test_the_daemons_answers_are_recognized(request_id: bytes) -> None:
    assert answered(b"".join(map(bytes, envelope.response(request_id, b"{}")))) == (request_id, True)
    assert answered(b"".join(map(bytes, envelope.error_response(request_id, 1, "x")))) == (request_id, False)
    assert answered(b"".join(map(bytes, envelope.notification("x", b"{}")))) is None


def test_what_a_client_takes_back_is_named() -> None:
    line = b'{"method":"notifications/cancelled","params":{"reason":"\\"requestId\\":1","requestId": "k"}}\n'
    assert cancelled(line) == b'"k"'
    assert cancelled(b'{"method":"notifications/cancelled","params":{}}\n') is None


def test_only_an_acknowledgement_acknowledges() -> None:
    params = b'{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}'
    told = [
        b"".join(map(bytes, envelope.notification(f"notifications/{kind}", params)))
        for kind in ("subscriptions/acknowledged", "tools/list_changed")
    ]
    assert [acknowledged(line) for line in told] == [b'"s"', None]


@cases("line", raw={"line"})
def test_a_call_as_clients_write_it_is_plain(line: bytes) -> None:
    assert plain_call(line) == b"12"
    assert plain_call(line.replace(b":12", b':"12"')) is None
    assert plain_call(line.replace(b"call", b"list")) is None


@pytest.mark.parametrize("request_id", [b"1", b"0", b'"1"', b"null", b"-2", b'"a,b"', b"9" * 40])
def test_a_plain_answer_is_what_it_is_at_a_longer_look(request_id: bytes) -> None:
    body = b'{"a":",\\"result\\":"}'
    for outcome in (b"result", b"error"):
        line = b'{"jsonrpc":"2.0","id":%b,"%b":%b}\n' % (request_id, outcome, body)
        found = plain_answer(line)
        assert found == (request_id if request_id in {b"0", b"1"} else None)
    assert plain_answer(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n') is None


def test_answers_among_something_else_are_not_only_answers() -> None:
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    assert only_answers(answer)
    assert only_answers(answer * 3)
    for other in (b"\n", b"{}\n", b'{"jsonrpc":"2.0","method":"notifications/message"}\n'):
        for lines in (other, other + answer, answer + other, answer + other + answer):
            assert not only_answers(lines)

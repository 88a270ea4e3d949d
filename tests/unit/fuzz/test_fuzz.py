"""The fuzzer's own eyes: it sees what it should, and makes the same again."""

import json

import pytest

from tests.fuzz.listening import expected
from tests.fuzz.mutation import FROM_CLIENTS, UID, Malformed, malformed, one
from tests.fuzz.promises import Due, Said, from_server, to_client
from tests.fuzz.talking import PER_CONNECTION, Results, Talk, batches

PARSE, REQUEST, PARAMS = -32700, -32600, -32602

PING = b'{"jsonrpc":"2.0","id":"ping-0","result":{}}'


def test_an_input_is_made_again_by_its_seed_and_number() -> None:
    some = list(malformed(3, FROM_CLIENTS, 50, first=20))
    assert some == [one(3, FROM_CLIENTS, number) for number in range(20, 70)]
    assert some != list(malformed(4, FROM_CLIENTS, 50, first=20))


@pytest.mark.parametrize(
    ("line", "due", "codes"),
    [
        (b"", Due.NOTHING, set()),
        (b" \r", Due.NOTHING, set()),
        (b"{", Due.ERROR, {PARSE}),
        (b"\xff", Due.ERROR, {PARSE}),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}', Due.ERROR, {PARSE}),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}', Due.ERROR, {PARSE}),
        (b"[]", Due.ERROR, {REQUEST}),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', Due.ERROR, {REQUEST}),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', Due.ERROR, {REQUEST}),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[]}', Due.ERROR, {PARAMS}),
        (b'{"jsonrpc":"2.0","id":1}', Due.ERROR, {REQUEST}),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"}', Due.ANSWER, set()),
        (b'{"jsonrpc":"2.0","method":"m"}', Due.NOTHING, set()),
        (b'{"jsonrpc":"2.0","id":1,"result":1}', Due.NOTHING, set()),
    ],
)
def test_a_clients_line_is_owed_what_the_specification_says(line: bytes, due: Due, codes: set[int]) -> None:
    promise = to_client(line)
    assert (promise.due, set(promise.codes)) == (due, codes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"Listening on stdio", Said.NOISE),
        (b'{"id":5}', Said.NOISE),
        (b'{"id":5,"result":1}', Said.RESULT),
        (b'{"id":"5","error":{}}', Said.ERROR),
        (b'{"id":6,"result":1}', Said.TAKEN),
        (b'{"id":6,"method":"ping"}', Said.ASKS),
        (b'{"id":5,"result":"\xff"}', Said.EITHER),
    ],
)
def test_a_servers_line_is_told_apart(line: bytes, said: Said) -> None:
    assert from_server(line, 5)[0] is said


def test_the_first_line_that_answers_a_call_is_expected_to_end_it() -> None:
    answer = b'{"id":%d,"result":%%d}' % UID
    assert expected(b"noise\n" + answer % 1 + b"\n" + answer % 2)[0].answers == ((Said.RESULT, "1"),)
    assert expected(b"noise")[0].answers == ((Said.TAKEN, None),)


# --- the checker of a conversation --------------------------------------------------------------------------


def heard(line: bytes, *answers: bytes) -> list[str]:
    """What is found wrong with these answers to one line."""
    results = Results("clients", 1)
    talk = Talk([Malformed(0, "test", line)], results)
    talk.expect()
    for answer in answers:
        talk.hears(answer)
    if not talk.is_over:
        talk.hangs()
    return results.faults


def refusal(code: int, request_id: str = "null") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(request_id), "error": {"code": code}}).encode()


CALL = b'{"jsonrpc":"2.0","id":7,"method":"m"}'
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (b"{", (refusal(PARSE), PING)),
        (b"", (PING,)),
        (CALL, (ANSWER, PING)),
        (CALL, (PING, ANSWER)),
        (CALL + b"\n{", (refusal(PARSE), PING, ANSWER)),
        (b"", (b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}', PING)),
    ],
)
def test_promises_that_are_kept_are_no_faults(line: bytes, answers: tuple[bytes, ...]) -> None:
    assert heard(line, *answers) == []


@pytest.mark.parametrize(
    ("line", "answers", "fault"),
    [
        (b"{", (PING,), "not refused"),
        (b"{", (refusal(REQUEST), PING), "nobody asked"),
        (b"{", (refusal(PARSE, "7"), PING), "nobody asked"),
        (b"{", (refusal(PARSE),), "the ping after it is not answered"),
        (b"", (refusal(PARSE), PING), "nobody asked"),
        (CALL, (PING,), "no answer"),
        (CALL, (ANSWER, ANSWER, PING), "nobody asked"),
        (CALL, (ANSWER.replace(b"7", b"8"), PING), "nobody asked"),
        (CALL, (b"\xff", PING), "not JSON-RPC"),
        (CALL, (ANSWER, PING.replace(b"result", b"error")), "the ping after it is refused"),
    ],
)
def test_a_promise_that_is_broken_is_a_fault(line: bytes, answers: tuple[bytes, ...], fault: str) -> None:
    assert any(fault in each for each in heard(line, *answers))


def test_no_connection_gets_more_wrong_than_a_client_may() -> None:
    found = list(batches(malformed(2, FROM_CLIENTS, 150)))
    assert sum(map(len, found)) == 150
    errors = [sum(_errors(each) for each in batch) for batch in found]
    assert all(count <= PER_CONNECTION or len(batch) == 1 for count, batch in zip(errors, found, strict=True))


def _errors(each: Malformed) -> int:
    return sum(to_client(line).due is Due.ERROR for line in each.data.split(b"\n"))

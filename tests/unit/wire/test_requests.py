"""Requests that wait for an answer: each ends once, under its own id and no other."""

import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock

from daemon.wire import envelope
from daemon.wire.envelope import MAX_ERROR_BYTES, RemoteError, error_code, is_error_object, read_error
from daemon.wire.requests import MAX_GIVEN_UP, GivenUp, Requests
from tests.unit.cases import cases
from tests.unit.wire.fakes import RecordingExchange


@cases("line", "result", raw={"line"})
async def test_a_result_as_nearly_all_are_written_is_read_in_one_look(line: bytes, result: str | None) -> None:
    requests, exchanges = Requests(), [RecordingExchange() for _ in range(5)]
    uids = [requests.open(exchange) for exchange in exchanges]
    assert uids == [1, 2, 3, 4, 5]
    assert requests.take_plain(line) is (result is not None)
    assert exchanges[4].endings == ([] if result is None else [("answered", result)])
    assert requests.forwarded == (5 if result is None else 4)
    # A second answer, or any other line, is for a closer look.
    assert not requests.take_plain(line)


async def test_progress_finds_its_owner_by_the_id_of_the_request() -> None:
    requests, one, other = Requests(), RecordingExchange(), RecordingExchange()
    first, second = requests.open(one), requests.open(other)
    requests.progress(Raw(b'{"progressToken":%d,"progress":1,"total":3}' % second))
    requests.progress(Raw('{"progressToken":"%d","progress":2,"message":"é"}'.encode() % first))
    assert other.progress == [{"progressToken": b"%d" % second, "progress": b"1", "total": b"3"}]
    assert [report["progress"] for report in one.progress] == [b"2"]


async def test_progress_after_the_answer_is_dropped() -> None:
    requests, exchange = Requests(), RecordingExchange()
    uid = requests.open(exchange)
    assert requests.take(uid) is exchange
    requests.progress(Raw(b'{"progressToken":%d,"progress":1}' % uid))
    assert exchange.progress == []


@cases("params", raw={"params"})
async def test_progress_that_is_nobodys_or_cannot_be_read_goes_no_further(params: bytes) -> None:
    requests, exchange = Requests(), RecordingExchange()
    assert requests.open(exchange) == 1
    requests.progress(Raw(params))
    assert exchange.progress == []


async def test_only_what_is_forwarded_is_work_and_becomes_overdue(autojump_clock: MockClock) -> None:
    requests = Requests()
    silent, lively = (requests.open(RecordingExchange()) for _ in range(2))
    requests.open(RecordingExchange(), forwarded=False)
    await trio.sleep(9)
    requests.progress(Raw(b'{"progressToken":%d}' % lively))
    assert requests.overdue(idle=10, total=100) == []
    await trio.sleep(1)
    assert requests.overdue(idle=10, total=100) == [silent]
    assert requests.overdue(idle=10, total=10) == [silent, lively]


@cases("error", "code", "message", raw={"error"})
def test_the_most_sloppy_error_is_still_an_error(error: bytes, code: int, message: str) -> None:
    remote = RemoteError.from_wire(error)
    assert (remote.code, remote.message) == (code, message)


ANNA, BEN = object(), object()


def given_up(seconds: float = 60.0) -> GivenUp:
    found = GivenUp()
    found.seconds = seconds
    return found


def test_whose_request_was_given_up_is_known_until_its_late_answer() -> None:
    requests = given_up()
    requests.add(1, ANNA, 0.0)
    requests.add(2, BEN, 0.0)
    assert requests.askers(1.0) == [ANNA, BEN]
    requests.answered(1)
    requests.answered(99)
    assert requests.askers(1.0) == [BEN]


def test_a_request_that_is_never_answered_is_forgotten_in_time() -> None:
    requests = given_up()
    requests.add(1, ANNA, 0.0)
    requests.add(2, BEN, 30.0)
    assert requests.askers(59.9) == [ANNA, BEN]
    assert requests.askers(60.0) == [BEN]
    assert requests.askers(90.0) == []
    assert len(requests) == 0


def test_of_too_many_it_is_known_that_there_are_some() -> None:
    requests = given_up()
    requests.add(0, ANNA, 0.0)
    for uid in range(1, MAX_GIVEN_UP + 1):
        requests.add(uid, BEN, 1.0)
    assert len(requests) == MAX_GIVEN_UP
    for uid in range(MAX_GIVEN_UP + 1):
        requests.answered(uid)
    assert requests.askers(59.9) == [requests]
    assert requests.askers(60.0) == []


def test_of_an_error_the_members_are_read_and_its_data_are_left_as_they_are() -> None:
    error = b'{"data": {"a" : [1.50]},"code":-32601,"x":[[]],"message":"no \\u0041"}'
    assert read_error(error) == (-32601, "no A", b'{"a" : [1.50]}')


def test_of_a_long_error_the_beginning_is_read() -> None:
    long = b"x" * MAX_ERROR_BYTES * 2
    code, message, data = read_error(b'{"code":5,"message":"%b","data":["%b"]}' % (long, long))
    assert code == 5
    assert message == "x" * (MAX_ERROR_BYTES - 1)
    assert data == b'["' + long[: MAX_ERROR_BYTES - 2]


@pytest.mark.parametrize(
    "error", [b'"sorry"', b"[]", b"null", b"{}", b'{"code":1}', b'{"code":"1","message":"m"}', b"{"]
)
def test_what_is_no_error_object_is_told_apart(error: bytes) -> None:
    assert not is_error_object(error)
    read_error(error)


def test_an_error_object_has_a_code_and_a_message() -> None:
    assert is_error_object(b'{"code":-32000,"message":"m","data":{"x":1},"y":2}')


def test_the_code_is_found_in_the_frame_of_an_error_only() -> None:
    assert error_code(envelope.error_response(b"7", -32601, "no")) == -32601
    assert error_code(envelope.response(b"7", b"{}")) is None
    assert error_code(envelope.notification("m", b"{}")) is None

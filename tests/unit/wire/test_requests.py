"""Requests that wait for an answer: each ends once, under its own id and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from msgspec import Raw

from daemon.wire.requests import RemoteError, Requests
from tests.unit.cases import cases
from tests.unit.wire.fakes import RecordingExchange

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{ "a":1.10}}', '{ "a":1.10}'),
        (b'{"result":null,"id":5}', "null"),
        (b'{"id":"5","result":{}}', None),
        (b'{"id":true,"result":{}}', None),
        (b'{"id":5,"error":{}}', None),
        (b'{"id":5,"error":{},"result":{}}', None),
        (b'{"id":5,"method":"ping","result":{}}', None),
        (b'{"id":5,"method":"ping"}', None),
        (b'{"id":5,"result":{}', None),
        (b"[" * 5000, None),
        (b"noise", None),
        (b"\xff\xfe", None),
    ],
)
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
    assert repr(requests) == "<Requests: 3 open, 2 of them forwarded>"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (b'{"code":-32000,"message":"m"}', -32000, "m"),
        (b'{"code":"-1","message":"m"}', 0, "m"),
        (b'{"code":-1}', -1, ""),
        (b'{"code":-1,"message":{"a":1}}', -1, '{"a":1}'),
        (b"{}", 0, ""),
        (b"null", -32603, "an error object that is not one"),
        (b'"text"', -32603, "an error object that is not one"),
        (b'{"message":"\xff"}', 0, '\ufffd"'),
        (b'{"data":' + b"[" * 20_000 + b"]" * 20_000 + b"}", -32603, "an error object that is not one"),
    ],
)
def test_the_most_sloppy_error_is_still_an_error(error: bytes, code: int, message: str) -> None:
    remote = RemoteError.from_wire(error)
    assert (remote.code, remote.message) == (code, message)

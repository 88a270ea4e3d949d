"""S8: what is taken from a client, and what a server may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from daemon.wire import envelope
from daemon.wire.envelope import MAX_DEPTH, MAX_MEMBERS, BadMessage, decode, decode_strictly
from daemon.wire.frames import with_whole_characters

if TYPE_CHECKING:
    from tests.security.conftest import Watched


def request(params: bytes) -> bytes:
    """A request with these params."""
    return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%b}' % params


def members(count: int, member: bytes = b'"":0') -> bytes:
    """An object of so many members."""
    return b"{" + b",".join([member] * count) + b"}"


REFUSED: dict[str, tuple[bytes, int]] = {
    "too deep": (request(b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}"), envelope.INVALID_REQUEST),
    "a bomb": (request(b"[" * 100_000 + b"]" * 100_000), envelope.PARSE_ERROR),
    "too many members": (request(members(MAX_MEMBERS)), envelope.INVALID_REQUEST),
    "too many, spaced": (request(members(MAX_MEMBERS, b'"a" :\t""')), envelope.INVALID_REQUEST),
    "too many, with colons": (request(members(MAX_MEMBERS, b'":":":"')), envelope.INVALID_REQUEST),
    "too many, with quotes": (request(members(MAX_MEMBERS, b'"\\\\\\"":"\\\\"')), envelope.INVALID_REQUEST),
    "NaN": (request(b'{"a":NaN}'), envelope.PARSE_ERROR),
    "Infinity": (request(b'{"a":-Infinity}'), envelope.PARSE_ERROR),
    "a lone high surrogate": (request(b'{"a":"\\ud800"}'), envelope.PARSE_ERROR),
    "a lone low surrogate": (request(b'{"a":"\\udc00x"}'), envelope.PARSE_ERROR),
    "surrogates in the wrong order": (request(b'{"a":"\\udc00\\ud800"}'), envelope.PARSE_ERROR),
    "a byte order mark": (b"\xef\xbb\xbf" + request(b"{}"), envelope.PARSE_ERROR),
    "a batch": (b"[" + request(b"{}") + b"]", envelope.INVALID_REQUEST),
    "two ids": (b'{"id":8,' + request(b"{}")[1:], envelope.INVALID_REQUEST),
    "two ids, one in disguise": (b'{"\\u0069d":8,' + request(b"{}")[1:], envelope.INVALID_REQUEST),
    "two methods": (b'{"method":"ping",' + request(b"{}")[1:], envelope.INVALID_REQUEST),
    "two params": (b'{"params":{},' + request(b"{}")[1:], envelope.INVALID_REQUEST),
    "a control character": (request(b'{"a":"\x01"}'), envelope.PARSE_ERROR),
    "not UTF-8": (request(b'{"a":"\xff"}'), envelope.PARSE_ERROR),
    "a surrogate in UTF-8": (request(b'{"a":"\xed\xa0\x80"}'), envelope.PARSE_ERROR),
}
"""What no client may send, and the code that it is refused with."""


@pytest.mark.parametrize("case", REFUSED)
def test_a_message_beyond_the_limits_is_refused(case: str) -> None:
    line, code = REFUSED[case]
    with pytest.raises(BadMessage) as caught:
        decode_strictly(line)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "params",
    [
        b'{"a":' + b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2) + b"}",
        members(MAX_MEMBERS - 4),
        members(MAX_MEMBERS - 4, b'"a:b":"::\\":"'),
        b'{"a":"' + b":" * (2 * MAX_MEMBERS) + b'"}',
        b'{"n":[' + b"9" * 5000 + b",1e400,-0.0]}",
        b'{"a":"\\ud83d\\ude00 \\\\ud800"}',
    ],
    ids=["deep", "wide", "wide with colons", "colons", "numbers", "surrogates in a pair"],
)
def test_a_payload_within_the_limits_passes_byte_for_byte(params: bytes) -> None:
    assert decode_strictly(request(params)).params == msgspec.Raw(params)


@pytest.mark.parametrize("case", ["NaN", "a lone high surrogate", "a byte order mark", "a batch", "a bomb"])
def test_what_is_no_message_is_no_message_of_a_server_either(case: str) -> None:
    line, code = REFUSED[case]
    with pytest.raises(BadMessage) as caught:
        decode(line)
    assert caught.value.code == code


@pytest.mark.e2e
def test_the_daemon_refuses_each_of_them_and_goes_on(hostile: Watched) -> None:
    with hostile.client() as client:
        for case, (line, code) in REFUSED.items():
            client.send(line)
            # Half a character is mended, and the message is what it says then: a call without a name.
            mended = with_whole_characters(line) is not None
            assert client.receive()["error"]["code"] == (envelope.INVALID_PARAMS if mended else code), case
        client.send(b'{"jsonrpc":"2.0","id":"big","method":"ping","params":{"a":"' + b"x" * 5_000_000 + b'"}}')
        assert "RequestTooLarge" in client.receive()["error"]["message"]
        assert client.ask("ping")["result"] == {}

"""JSON-RPC error objects as others write them."""

from __future__ import annotations

import pytest

from daemon.wire import envelope
from daemon.wire.envelope import MAX_ERROR_BYTES, error_code, is_error_object, read_error


def test_of_an_error_the_members_are_read_and_its_data_are_left_as_they_are() -> None:
    error = b'{"data": {"a" : [1.50]},"code":-32601,"x":[[]],"message":"no \\u0041"}'
    assert read_error(error) == (-32601, "no A", b'{"a" : [1.50]}')


def test_of_a_long_error_the_beginning_is_read() -> None:
    long = b"x" * MAX_ERROR_BYTES * 2
    code, message, data = read_error(b'{"code":5,"message":"%b","data":["%b"]}' % (long, long))
    assert code == 5
    assert message == "x" * (MAX_ERROR_BYTES - 1)
    assert data == b'["' + long[: MAX_ERROR_BYTES - 2]


@pytest.mark.parametrize("code", [b"1" * 30, b"true", b"1.5", b'"1"', b"null"])
def test_a_code_that_is_none_is_0(code: bytes) -> None:
    assert read_error(b'{"code":%b,"message":"m"}' % code)[:2] == (0, "m")


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

"""The head of a request shows no secret, and a refusal carries its response."""

from __future__ import annotations

from http import HTTPStatus

import h11
import pytest

from daemon.clients.doors.http.exchange import HEAD_BYTES, Head, Refusal, head_of


def test_no_header_is_in_the_repr_of_a_head() -> None:
    head = Head(method="POST", path="/mcp", headers={"authorization": "Bearer s3cr3t"}, peer="127.0.0.1")
    assert "s3cr3t" not in repr(head)
    assert head.headers["authorization"] == "Bearer s3cr3t"


def test_a_refusal_is_at_once_and_without_headers_unless_told_otherwise() -> None:
    refusal = Refusal(HTTPStatus.NOT_FOUND, "there is nothing here")
    assert (refusal.status, refusal.text, refusal.headers, refusal.delay) == (404, str(refusal), {}, 0.0)


def test_a_refusal_may_carry_headers_and_be_held_back() -> None:
    headers = {"WWW-Authenticate": "Bearer"}
    refusal = Refusal(HTTPStatus.UNAUTHORIZED, "show a token", headers=headers, delay=0.5)
    assert (refusal.headers, refusal.delay) == (headers, 0.5)


def a_request(target: str = "/mcp", version: str = "1.1", **headers: str) -> h11.Request:
    fields = [("host", "h"), *((name.replace("_", "-"), value) for name, value in headers.items())]
    return h11.Request(method="POST", target=target, headers=fields, http_version=version)


def test_a_head_is_read_without_its_query_and_with_both_values_of_a_header() -> None:
    request = h11.Request(
        method="GET", target="/%7Eme/%7Eyou?a=%20", headers=[(b"host", b"h"), (b"X", b"1"), (b"x", b"\xe9")]
    )
    head = head_of(request, "::1")
    assert (head.method, head.path, head.headers["x"], head.peer) == ("GET", "/%7Eme/~you", "1, \xe9", "::1")


@pytest.mark.parametrize(
    ("target", "host", "path"),
    [
        ("http://other.example:1/mcp?x", "other.example:1", "/mcp"),
        ("HTTPS://other.example", "other.example", ""),
        ("/http://other.example", "h", "/http://other.example"),
    ],
)
def test_an_absolute_target_names_the_host(target: str, host: str, path: str) -> None:
    head = head_of(a_request(target), "::1")
    assert (head.headers["host"], head.path) == (host, path)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (a_request(version="2.0"), 505),
        (a_request(x="x" * HEAD_BYTES), 431),
        (a_request("/" + "x" * HEAD_BYTES), 431),
        (a_request(content_length="5", transfer_encoding="chunked"), 400),
        (a_request(version="1.0", transfer_encoding="chunked"), 400),
    ],
)
def test_a_head_that_two_could_read_in_two_ways_is_refused(request_: h11.Request, status: int) -> None:
    with pytest.raises(h11.RemoteProtocolError) as refused:
        head_of(request_, "::1")
    assert refused.value.error_status_hint == status

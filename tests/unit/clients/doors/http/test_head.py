"""The head of a request shows no secret, and a refusal carries its response."""

from __future__ import annotations

from http import HTTPStatus

from daemon.clients.doors.http.exchange import Refusal
from daemon.clients.doors.http.reading import Head


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

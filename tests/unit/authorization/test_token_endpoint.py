"""Who a client says that it is, when a token is renewed, and which error codes are repeated."""

import base64

from daemon.authorization.guarded_http import TokenGrant, credentials, error_code, times
from tests.unit.cases import cases


def test_a_secret_is_shown_as_was_agreed_and_only_where_there_is_one() -> None:
    assert credentials("id", None, "client_secret_basic") == ({}, {"client_id": "id"})
    assert credentials("id", "s", "none") == ({}, {"client_id": "id"})
    assert credentials("id", "s", "client_secret_post") == ({}, {"client_id": "id", "client_secret": "s"})
    headers, form = credentials("a:b", "ü&+%", "client_secret_basic")
    assert form == {}
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"a%3Ab:%C3%BC%26%2B%25"


def test_a_token_is_renewed_some_time_before_its_end_where_that_is_known() -> None:
    for expires_in, renew_in, ends_in in (
        (3600, 3540, 3600),
        ("3600", 3540, 3600),
        (30, 24, 30),
        (90.5, 72.4, 90.5),
    ):
        assert times(expires_in, 1000.0) == (1000.0 + renew_in, 1000.0 + ends_in)
    for unknown in (None, 0, -1, "soon", "nan", "inf", ""):
        assert times(unknown, 1000.0) == (None, None), unknown


@cases("content", "code", raw={"content"})
def test_only_what_looks_like_an_error_code_is_one(content: bytes, code: str) -> None:
    assert error_code(content) == code


def test_a_grant_does_not_show_its_tokens() -> None:
    assert "canary" not in repr(TokenGrant(access_token="canary", refresh_token="canary"))

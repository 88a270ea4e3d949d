"""Where the daemon is reached: what is read, and what is not repeated."""

from __future__ import annotations

from daemon.config.listen import DEFAULT_HTTP_ADDRESS, AccessToken, HttpListen
from tests.unit.config.reading import config_of


def test_without_http_there_is_none() -> None:
    assert config_of({}).listen.http is None


def test_http_listens_on_loopback_unless_told_otherwise() -> None:
    http = HttpListen()
    assert (http.address, http.tls, http.drain) == (DEFAULT_HTTP_ADDRESS, None, 0)


def test_a_token_is_in_no_repr() -> None:
    token = AccessToken(name="ci", value="s3cr3t")
    assert "s3cr3t" not in repr(HttpListen(tokens=(token,)))
    assert "s3cr3t" not in repr(HttpListen(tokens="s3cr3t"))
    assert "s3cr3t" not in repr(token)

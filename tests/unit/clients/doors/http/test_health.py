"""What balancers and probes are answered, and which of them need no name."""

from http import HTTPStatus

import pytest

from daemon.clients.doors.http.local import HEALTH, PATHS, READY, health, is_probe
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.host.notify import Readiness


def head(path: str, method: str = "GET", **headers: str) -> Head:
    """A request's head."""
    return Head(method=method, path=path, headers=headers, peer="10.1.2.3")


@pytest.mark.parametrize("readiness", Readiness)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_process_is_well_whether_or_not_it_takes_new_clients(readiness: Readiness, method: str) -> None:
    assert health(head(HEALTH, method), readiness) == (HTTPStatus.OK, "ok\n")


@pytest.mark.parametrize(
    ("readiness", "status", "word"),
    [
        (Readiness.STARTING, 503, "starting"),
        (Readiness.SERVING, 200, "ready"),
        (Readiness.DRAINING, 503, "stopping"),
    ],
)
def test_new_clients_are_sent_elsewhere_before_it_serves(readiness: Readiness, status: int, word: str) -> None:
    answer = health(head(READY), readiness)
    assert answer is not None
    assert answer[0] == status
    assert answer[1].startswith(word)
    assert answer[1].endswith("\n")


@pytest.mark.parametrize("path", ["/", "/mcp", "/metrics", "/healthz/", "/HEALTHZ", "/readyz/x", "//healthz"])
def test_anything_else_is_not_its_business(path: str) -> None:
    assert health(head(path), Readiness.SERVING) is None
    assert not is_probe(head(path))


@pytest.mark.parametrize("path", sorted(PATHS))
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_health_can_only_be_read(path: str, method: str) -> None:
    with pytest.raises(Refusal) as refused:
        health(head(path, method), Readiness.SERVING)
    assert refused.value.status is HTTPStatus.METHOD_NOT_ALLOWED
    assert refused.value.headers == {"allow": "GET, HEAD"}
    assert path in refused.value.text


@pytest.mark.parametrize("host", ["10.0.0.7", "10.0.0.7:7337", "127.0.0.1", "[::1]:7337", "[fd00::7]", ""])
def test_a_probe_may_name_an_address_or_nothing(host: str) -> None:
    assert is_probe(head(HEALTH, host=host))
    assert is_probe(head(READY))


@pytest.mark.parametrize(
    "host", ["evil.example", "10.0.0.7.evil.example", "10.0.0.7, evil.example", "a@10.0.0.7", "::1"]
)
def test_a_probe_that_names_a_host_is_checked_like_any_request(host: str) -> None:
    assert not is_probe(head(HEALTH, host=host))

"""What balancers and probes are answered, and which of them need no name."""

import pytest

from daemon.clients.doors.http.local import HEALTH, PATHS, READY, health, is_probe
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.host.notify import Readiness


def head(path: str, method: str = "GET", **headers: str) -> Head:
    """A request's head."""
    return Head(method=method, path=path, headers=headers, peer="10.1.2.3")


@pytest.mark.parametrize(
    ("readiness", "status", "text"),
    [
        (Readiness.STARTING, 503, "starting"),
        (Readiness.SERVING, 200, "ready\n"),
        (Readiness.DRAINING, 503, "stopping"),
    ],
)
def test_new_clients_are_sent_elsewhere_before_it_serves(readiness: Readiness, status: int, text: str) -> None:
    for method in ("GET", "HEAD"):
        assert health(head(HEALTH, method), readiness) == (200, "ok\n")
        answer = health(head(READY, method), readiness)
        assert answer is not None
        assert (answer[0], answer[1].startswith(text)) == (status, True)


@pytest.mark.parametrize("path", ["/", "/mcp", "/metrics", "/healthz/", "/HEALTHZ", "/readyz/x", "//healthz"])
def test_anything_else_is_not_its_business(path: str) -> None:
    assert health(head(path), Readiness.SERVING) is None
    assert not is_probe(head(path))


@pytest.mark.parametrize("path", sorted(PATHS))
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_health_can_only_be_read(path: str, method: str) -> None:
    with pytest.raises(Refusal) as refused:
        health(head(path, method), Readiness.SERVING)
    assert (refused.value.status, refused.value.headers) == (405, {"allow": "GET, HEAD"})


def test_a_probe_may_name_an_address_or_nothing_and_is_else_checked_like_any_request() -> None:
    for host in ("10.0.0.7", "10.0.0.7:7337", "127.0.0.1", "[::1]:7337", "[fd00::7]", ""):
        assert is_probe(head(HEALTH, host=host)), host
    for host in ("evil.example", "10.0.0.7.evil.example", "10.0.0.7, evil.example", "a@10.0.0.7", "::1"):
        assert not is_probe(head(HEALTH, host=host)), host

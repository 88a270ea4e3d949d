"""mcpd-http.socket: for whoever enables it, held over restarts and kills, as open as the rules allow."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.systemd.machine import LISTED, MCPD, PATIENCE, UNIT, Service, run, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

HTTP = "mcpd-http.socket"
PORT = 7337
DROP_INS = Path("/run/systemd/system/mcpd-http.socket.d")


@pytest.fixture
def enabled(service: Service) -> Iterator[Service]:
    """The daemon is active, and somebody has enabled HTTP: nothing is started anew."""
    service.ctl("enable", HTTP)
    yield service
    service.ctl("stop", UNIT)
    service.ctl("disable", "--now", HTTP)
    if DROP_INS.exists():
        shutil.rmtree(DROP_INS)
    service.ctl("daemon-reload")


def get(path: str, token: str = "") -> tuple[int, str]:
    """Status and text of what an HTTP client gets."""
    with closing(http.client.HTTPConnection("127.0.0.1", PORT, timeout=PATIENCE)) as client:
        client.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def test_as_installed_nothing_listens_for_http(service: Service) -> None:
    assert service.show("ActiveState", HTTP) == "inactive"
    with pytest.raises(ConnectionRefusedError):
        get("/healthz")


def test_whoever_enables_it_needs_no_more_than_a_restart(enabled: Service) -> None:
    enabled.ctl("restart", UNIT)
    assert enabled.show("ActiveState", HTTP) == "active"
    assert [get(path) for path in ("/healthz", "/readyz")] == [(200, "ok\n"), (200, "ready\n")]
    assert get("/mcp")[0] == 401


def test_root_shows_and_makes_tokens_of_the_services_user(enabled: Service) -> None:
    enabled.ctl("restart", UNIT)
    shown, made = (run(MCPD, "token", *words).stdout.strip() for words in ((), ("new", "ci")))
    # Past the door: a session is begun with another method.
    assert [get("/mcp", token)[0] for token in (shown, made)] == [400, 400]
    run(MCPD, "token", "revoke", "ci")
    assert [get("/mcp", token)[0] for token in (shown, made)] == [400, 401]


def test_the_first_request_starts_the_service(enabled: Service) -> None:
    enabled.ctl("stop", UNIT)
    enabled.ctl("start", HTTP)
    assert enabled.show("ActiveState") == "inactive"
    assert get("/readyz") == (200, "ready\n")
    assert enabled.show("ActiveState") == "active"


def test_a_stop_leaves_the_socket_and_the_next_request_is_served_by_another_daemon(enabled: Service) -> None:
    enabled.ctl("restart", UNIT)
    pid = enabled.pid
    enabled.ctl("stop", UNIT)
    assert enabled.show("ActiveState", HTTP) == "active"
    assert get("/healthz") == (200, "ok\n")
    assert enabled.pid not in {0, pid}


def test_no_request_is_refused_after_a_kill(enabled: Service) -> None:
    enabled.ctl("restart", UNIT)
    for _ in range(3):
        pid = enabled.pid
        os.kill(pid, signal.SIGKILL)
        assert get("/readyz") == (200, "ready\n")
        assert enabled.pid not in {0, pid}


def test_the_address_of_the_unit_is_judged_like_one_of_the_configuration(enabled: Service) -> None:
    """Other machines reach it, and nobody has configured a token."""
    DROP_INS.mkdir(parents=True)
    (DROP_INS / "test.conf").write_text(f"[Socket]\nListenStream=\nListenStream=0.0.0.0:{PORT}\n")
    enabled.ctl("daemon-reload")
    enabled.ctl("restart", UNIT, check=False)
    assert enabled.show("ExecMainStatus") == "78"
    said = enabled.heard("other machines can reach")
    assert "$.listen.http.tokens" in said
    tokens = [{"name": "ci", "value": "0123456789abcdef0123456789abcdef"}]
    http = {"tokens": tokens, "trustedProxies": ["10.0.0.0/8"]}
    enabled.configure({"one": scripted()}, files={"listen": {"uids": [LISTED], "http": http}})
    enabled.ctl("restart", UNIT)
    assert get("/healthz") == (200, "ok\n")

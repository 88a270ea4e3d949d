"""Urls: real listeners on this machine, and nothing else is ever connected to."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from daemon.checks.entries import endpoint, loopback, unix_path
from daemon.checks.findings import Level
from daemon.config.config_model import Server, TransportType
from tests.unit.cases import cases
from tests.unit.checks.scenes import levels, listening, only

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.checks.findings import Finding


def found(url: str, kind: str = "http", *, connect: bool = True, **more: Any) -> list[Finding]:
    return list(endpoint(Server(name="s", type=TransportType(kind), url=url, **more), connect=connect))


@cases("host", "addresses")
def test_this_machine_is_known_by_its_addresses_and_names(host: str, addresses: list[str]) -> None:
    assert list(loopback(host)) == addresses


@pytest.mark.parametrize("kind", ["http", "sse", "ws"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.process
def test_somebody_who_listens_here_is_found(kind: str, host: str) -> None:
    scheme = "ws" if kind == "ws" else "http"
    with listening(("127.0.0.1", 0)) as listener:
        assert not found(f"{scheme}://{host}:{listener.getsockname()[1]}/mcp", kind)


@pytest.mark.process
def test_nobody_who_listens_here_is_a_warning() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        told = only(found(f"http://127.0.0.1:{port}/mcp"), Level.WARNING)
        assert f"nobody listens on 127.0.0.1:{port} (Connection refused)" in told
        assert not found(f"http://127.0.0.1:{port}/mcp", connect=False)


def test_a_unix_socket_is_tried_likewise(sockets: Path) -> None:
    path = sockets / "a b"
    url = f"unix://{sockets}/a%20b"
    assert "No such file" in only(found(url, "unix"), Level.WARNING)
    assert not found(url, "unix", connect=False)
    with listening(path):
        assert not found(url, "unix")
        assert not found(str(path), "unix")
    assert "Connection refused" in only(found(str(path), "unix"), Level.WARNING)


def test_a_path_that_cannot_be_one_is_a_warning() -> None:
    assert "too long" in only(found("/" + "x" * 200, "unix"), Level.WARNING)


def test_the_path_of_a_unix_url_is_decoded() -> None:
    assert (unix_path("/a%20b"), unix_path("unix:///a%20b")) == ("/a%20b", "/a b")


@pytest.mark.parametrize(("url", "kind"), [("https://h.invalid/mcp", "http"), ("wss://h.invalid/", "ws")])
def test_what_is_elsewhere_is_noted_and_not_tried(url: str, kind: str) -> None:
    said = only(found(url, kind), Level.NOTE)
    assert "needs the network, to h.invalid" in said


def test_what_is_elsewhere_without_encryption_is_a_warning() -> None:
    said = only(found("http://h.invalid/", headers={"Authorization": "hunter2"}), Level.WARNING)
    assert "its headers and all calls" in said
    assert "https://" in said
    assert "hunter2" not in said
    assert "wss://" in only(found("ws://10.0.0.1/", "ws"), Level.WARNING)


def test_only_the_host_of_a_url_is_repeated() -> None:
    said = str(found("https://me:hunter2@h.invalid/mcp?key=hunter3"))
    assert levels(found("https://me:hunter2@h.invalid/mcp?key=hunter3")) == ["note"]
    assert "hunter" not in said

"""What must hold within one server's entry."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.config.model import TransportType
from tests.unit.config.reading import faults_in, server_of, with_server


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"command": "x"}, "stdio"),
        ({"url": "http://h/mcp"}, "http"),
        ({"url": "https://h/mcp"}, "http"),
        ({"url": "ws://h"}, "ws"),
        ({"url": "wss://h"}, "ws"),
        ({"url": "unix:///run/x.sock"}, "unix"),
        ({"url": "/run/x.sock"}, "unix"),
        ({"url": "https://h/sse", "type": "sse"}, "sse"),
        ({"url": "https://h", "type": "streamable-http"}, "http"),
        ({"url": "https://h", "type": "streamableHttp"}, "http"),
        ({"url": "wss://h", "type": "websocket"}, "ws"),
    ],
)
def test_the_transport_is_what_the_entry_says_or_implies(entry: dict[str, str], kind: str) -> None:
    assert server_of(entry).type is TransportType(kind)


def test_the_transport_is_inferred_from_what_a_reference_stands_for() -> None:
    assert server_of({"url": "${U}"}, {"U": "wss://h"}).type is TransportType.WS


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({}, "command", "a stdio server needs a command to start; for a remote server write a url"),
        (
            {"command": ""},
            "command",
            "a stdio server needs a command to start; for a remote server write a url",
        ),
        ({"type": "http"}, "url", "a server of type http needs a url, http:// or https://..."),
        ({"type": "unix"}, "url", "a server of type unix needs a url, unix://..."),
        ({"url": "ftp://h"}, "url", "the url of a server of type http begins with http:// or https://"),
        (
            {"type": "http", "url": "wss://h"},
            "url",
            "the url of a server of type http begins with http:// or https://, or set type to ws",
        ),
        ({"url": "https://"}, "url", "the host is missing: https://HOST/..."),
        ({"url": "https://h:0x1/"}, "url", "this is not a valid url"),
        ({"url": "https://[::1/"}, "url", "this is not a valid url"),
        ({"url": "https://h/a b"}, "url", "this is not a valid url"),
        ({"url": "unix://run/x"}, "url", "write the absolute path of the socket: unix:///run/x.sock"),
        (
            {"command": "x", "url": "https://h"},
            "url",
            "a server of type stdio has no 'url': remove it, or change 'type'",
        ),
        (
            {"type": "http", "url": "https://h", "args": ["x"]},
            "args",
            "a server of type http has no 'args': remove it, or change 'type'",
        ),
        ({"command": "~/bin/x"}, "command", "~ is not expanded here: write ${HOME}"),
        ({"command": "x", "cwd": "~"}, "cwd", "~ is not expanded here: write ${HOME}"),
        (
            {"command": "x", "env": {"A=B": "1"}},
            'env["A=B"]',
            "this cannot be the name of an environment variable",
        ),
        ({"url": "http://h", "headers": {"A B": "1"}}, 'headers["A B"]', "this cannot be the name of a header"),
        ({"url": "http://h", "headers": {"A": "1\nB: 2"}}, "headers.A", "the value of a header is one line"),
        ({"command": "x", "restart": {"cap": 0.5}}, "restart.cap", "must not be less than base (1 s)"),
        ({"command": "x", "timeouts": {"call": 900}}, "timeouts.callMax", "must not be less than call (900 s)"),
        (
            {"command": "x", "limits": {"messageBytes": 10, "outputBytes": 11}},
            "limits.outputBytes",
            "must not be more than messageBytes (10)",
        ),
        (
            {"url": "http://h", "limits": {"memoryBytes": 1 << 30}},
            "limits.memoryBytes",
            "mcpd does not run a server of type http, and cannot see its memory: remove it",
        ),
    ],
)
def test_an_entry_that_cannot_work_is_a_fault(entry: dict[str, Any], path: str, message: str) -> None:
    assert faults_in({"mcpServers": {"s": entry}}) == [(f"$.mcpServers.s.{path}", message)]


@pytest.mark.parametrize(
    "url", ["http://192.168.1.2:8080/mcp", "http://localhost", "https://u:p@h/x?k=v", "http://[::1]:1/"]
)
def test_ordinary_urls_are_accepted(url: str) -> None:
    assert server_of({"url": url}).url == url


def test_a_fault_of_a_url_does_not_repeat_its_password() -> None:
    for url in ("ftp://u:hunter2@h", "https://u:hunter2@h:x/", "https://u:hunter2@[h"):
        faults = faults_in({"mcpServers": {"s": {"url": url}}})
        assert len(faults) == 1
        assert "hunter2" not in str(faults)


@pytest.mark.parametrize(
    ("name", "path", "hint"),
    [
        ("Sequential Thinking", '$.mcpServers["Sequential Thinking"]', ": rename it to 'sequential-thinking'"),
        ("GIT", "$.mcpServers.GIT", ": rename it to 'git-2'"),
        ("..", '$.mcpServers[".."]', ""),
    ],
)
def test_a_server_that_may_not_be_called_that_is_given_a_name(name: str, path: str, hint: str) -> None:
    rule = "a server's name is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit"
    config = with_server()
    config["mcpServers"][name] = {"command": "x"}
    assert faults_in(config) == [(path, rule + hint)]


def test_a_disabled_server_is_not_asked_for_what_it_refers_to() -> None:
    entry = {"url": "${URL}", "headers": {"A": "${TOKEN}"}, "enabled": False}
    server = server_of(entry)
    assert (server.url, server.headers, server.enabled) == ("${URL}", {"A": "${TOKEN}"}, False)

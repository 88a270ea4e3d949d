"""What must hold within one server's entry."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.config.config_model import TransportType
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
    ("name", "path"), [("..", '$.mcpServers[".."]'), ("社内", '$.mcpServers["\\u793e\\u5185"]')]
)
def test_a_server_of_whose_name_nothing_can_be_kept_is_a_fault(name: str, path: str) -> None:
    rule = "a server's name is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit: rename it"
    config = with_server()
    config["mcpServers"][name] = {"command": "x"}
    assert faults_in(config) == [(path, rule)]


def test_a_disabled_server_is_not_asked_for_what_it_refers_to() -> None:
    entry = {"url": "${URL}", "headers": {"A": "${TOKEN}"}, "enabled": False}
    server = server_of(entry)
    assert (server.url, server.headers, server.enabled) == ("${URL}", {"A": "${TOKEN}"}, False)


ELSEWHERE = (
    "${workspace}, the directory that a client works in, can stand in command, args, env and cwd of a server,"
    " and has no default; $${workspace} is the text itself"
)
ANY_PROGRAM = (
    "this lets a client have any program run, by the directory that it names: write a path of your own, or"
    ' "workspacePrograms": true if all who may connect may do that'
)
NOT_SHARED = (
    "${workspace} is another directory for each client, so they cannot share an instance: remove this key, or"
    ' write "workspace" or "session"'
)


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"command": "x", "args": ["${workspace}"], "share": "all"}, "share", NOT_SHARED),
        (
            {"command": "x", "share": "session", "start": "eager"},
            "start",
            "clients do not share this server, so it is started when the first needs it: remove this key",
        ),
        (
            {"command": "x", "limits": {"instances": 3}},
            "limits.instances",
            'all clients share one instance: remove this key, or write "share": "workspace" or "session"',
        ),
        (
            {"command": "x", "share": "session", "limits": {"instances": 0}},
            "limits.instances",
            "must be at least 1",
        ),
        (
            {"command": "x", "cwd": "a/${workspace}"},
            "cwd",
            "${workspace} is the absolute path of a directory: begin with it",
        ),
        (
            {"command": "./${workspace}", "workspacePrograms": True},
            "command",
            "${workspace} is the absolute path of a directory: begin with it",
        ),
        ({"command": "${workspace}/bin/serve"}, "command", ANY_PROGRAM),
        ({"command": "./serve", "cwd": "${workspace}/sub"}, "command", ANY_PROGRAM),
        ({"command": "./serve", "share": "workspace"}, "command", ANY_PROGRAM),
        ({"command": "serve", "env": {"PATH": "${workspace}/bin:/usr/bin"}}, "env", ANY_PROGRAM),
        ({"command": "x", "args": ["${workspace:-/tmp}"]}, "args[0]", ELSEWHERE),
        ({"url": "https://h/${workspace}"}, "url", ELSEWHERE),
        ({"url": "https://h", "headers": {"X": "${workspace}"}}, "headers.X", ELSEWHERE),
        ({"url": "https://h", "headers": {"X": "${workspaceFolder}"}}, "headers.X", ELSEWHERE),
        ({"command": "x", "args": ["${workspaceRoot:-/}"]}, "args[0]", ELSEWHERE),
    ],
)
def test_what_contradicts_who_shares_a_server_is_a_fault(
    entry: dict[str, Any], path: str, message: str
) -> None:
    environ = {"workspace": "/one", "workspaceFolder": "/two"}
    assert faults_in({"mcpServers": {"s": entry}}, environ) == [(f"$.mcpServers.s.{path}", message)]


def test_no_key_of_the_daemon_s_own_knows_a_workspace() -> None:
    assert faults_in({"state": {"url": "sqlite:///${workspace}/x"}}) == [("$.state.url", ELSEWHERE)]
    tokens = {"listen": {"http": {"tokens": "${workspace}-${workspace}"}}}
    assert ("$.listen.http.tokens", ELSEWHERE) in faults_in(tokens)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "idle": "10m", "start": "eager"},
        {"command": "x", "share": "session", "start": "lazy", "idle": "off", "limits": {"instances": 64}},
        {"url": "wss://h", "share": "workspace", "idle": 5},
        {"command": "x", "args": ["${workspace}"], "share": "session"},
    ],
)
def test_what_goes_together_is_accepted(entry: dict[str, Any]) -> None:
    assert faults_in({"mcpServers": {"s": entry}}) == []

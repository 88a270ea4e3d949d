"""What must hold within one server's entry."""

from typing import Any

from daemon.config.config_model import TransportType
from tests.unit.cases import cases
from tests.unit.config.reading import faults_in, server_of


@cases("entry", "kind")
def test_the_transport_is_what_the_entry_says_or_implies(entry: dict[str, str], kind: str) -> None:
    assert server_of(entry).type is TransportType(kind)


def test_the_transport_is_inferred_from_what_a_reference_stands_for() -> None:
    assert server_of({"url": "${U}"}, {"U": "wss://h"}).type is TransportType.WS


@cases("entry", "path", "message")
def test_an_entry_that_cannot_work_is_a_fault(entry: dict[str, Any], path: str, message: str) -> None:
    assert faults_in({"mcpServers": {"s": entry}}) == [(f"$.mcpServers.s.{path}", message)]


def test_a_fault_of_a_url_does_not_repeat_its_password() -> None:
    for url in ("ftp://u:hunter2@h", "https://u:hunter2@h:x/", "https://u:hunter2@[h"):
        faults = faults_in({"mcpServers": {"s": {"url": url}}})
        assert len(faults) == 1
        assert "hunter2" not in str(faults)


def test_a_disabled_server_is_not_asked_for_what_it_refers_to() -> None:
    entry = {"url": "${URL}", "headers": {"A": "${TOKEN}"}, "enabled": False}
    server = server_of(entry)
    assert (server.url, server.headers, server.enabled) == ("${URL}", {"A": "${TOKEN}"}, False)


ELSEWHERE = (
    "${workspace}, the directory that a client works in, can stand in command, args, env, cwd and sandbox of a"
    " server, and has no default; $${workspace} is the text itself"
)


@cases("entry", "path", "message")
def test_what_contradicts_who_shares_a_server_is_a_fault(
    entry: dict[str, Any], path: str, message: str
) -> None:
    environ = {"workspace": "/one", "workspaceFolder": "/two"}
    assert faults_in({"mcpServers": {"s": entry}}, environ) == [(f"$.mcpServers.s.{path}", message)]


def test_no_key_of_the_daemon_s_own_knows_a_workspace() -> None:
    assert faults_in({"state": {"url": "sqlite:///${workspace}/x"}}) == [("$.state.url", ELSEWHERE)]
    tokens = {"listen": {"http": {"tokens": "${workspace}-${workspace}"}}}
    assert ("$.listen.http.tokens", ELSEWHERE) in faults_in(tokens)


@cases("entry")
def test_what_goes_together_is_accepted(entry: dict[str, Any]) -> None:
    assert faults_in({"mcpServers": {"s": entry}}) == []

"""What must hold within one server's entry, and who shares the server."""

import math
from typing import Any

from daemon.config.config_model import WORKSPACE, Share, StartMode, TransportType, as_written
from daemon.upstreams.upstream_access import idle_seconds
from tests.unit.cases import cases
from tests.unit.config.reading import faults_in, server_of, with_server


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


UV: dict[str, Any] = {"command": "uvx"}
FOLDER: dict[str, Any] = {**UV, "args": ["serve", "--root=${workspace}/src"]}


@cases("entry", "share")
def test_clients_share_what_the_entry_says_and_else_what_it_is_started_with(
    entry: dict[str, Any], share: str
) -> None:
    assert server_of(entry).shared_by == share


@cases("entry", "seconds")
def test_an_instance_is_kept_for_as_long_as_the_entry_says(
    entry: dict[str, Any], seconds: float | None
) -> None:
    assert idle_seconds(server_of(entry)) == (math.inf if seconds is None else seconds)


@cases("idle", "problem")
def test_a_time_that_is_none_is_a_fault_with_the_ways_to_write_one(idle: object, problem: str) -> None:
    ((path, message),) = faults_in(with_server(idle=idle))
    assert path == "$.mcpServers.git.idle"
    assert message.startswith(problem)
    assert ("write 30s, 10m, 2h, 1d, off" in message) == problem.startswith("cannot")


def test_instances_of_clients_own_are_never_started_with_the_daemon() -> None:
    assert server_of({**UV, "share": "session"}).start is StartMode.EAGER
    assert server_of({**UV, "share": "session", "start": "lazy"}).start is StartMode.LAZY
    assert server_of({**UV, "share": "all"}).start is StartMode.EAGER


def test_a_workspace_is_a_directory_for_a_process_and_begins_nowhere_else() -> None:
    assert server_of({**UV, "cwd": "${workspace}/sub"}).cwd == f"{WORKSPACE}/sub"
    server = server_of(FOLDER)
    assert server.args == ("serve", f"--root={WORKSPACE}/src")
    assert (server.substituted, server.credentials) == (frozenset(), frozenset())


def test_a_server_that_is_switched_off_keeps_its_text() -> None:
    server = server_of({**FOLDER, "enabled": False})
    assert server.args[1] == "--root=${workspace}/src"
    assert server.shared_by is Share.ALL


def test_what_stands_for_a_workspace_is_shown_as_it_is_written_and_no_file_can_hold_it() -> None:
    assert as_written(f"--root={WORKSPACE}/src:{WORKSPACE}") == "--root=${workspace}/src:${workspace}"
    assert faults_in(with_server(args=[WORKSPACE]))
    server = server_of({**FOLDER, "cwd": "${workspace}", "env": {"A": "${workspace}"}})
    assert "\0" not in repr(server)
    assert "\\x00" not in repr(server)

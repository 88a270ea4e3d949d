"""Who shares a server, for how long an instance lives, and what stands for the directory of its clients."""

import json
import math
from typing import Any

from daemon.config.config_model import WORKSPACE, Share, StartMode, as_written
from daemon.upstreams.upstream_access import idle_seconds
from tests.unit.cases import cases
from tests.unit.config.reading import faults_in, server_of, with_server

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


def test_what_stands_for_a_workspace_is_shown_as_it_is_written() -> None:
    assert as_written(f"--root={WORKSPACE}/src:{WORKSPACE}") == "--root=${workspace}/src:${workspace}"


def test_no_file_can_hold_what_stands_for_a_workspace() -> None:
    assert faults_in(json.loads(json.dumps(with_server(args=[WORKSPACE]))))


def test_a_server_shows_nothing_of_it() -> None:
    server = server_of({**FOLDER, "cwd": "${workspace}", "env": {"A": "${workspace}"}})
    assert "\0" not in repr(server)
    assert "\\x00" not in repr(server)

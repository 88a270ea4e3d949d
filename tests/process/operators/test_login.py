"""`mcpd login`, as the control socket has it, with a scripted login process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, ServerLogins
from daemon.processes.children import Children
from tests.fakes_upstream import Stage
from tests.process.authorization.test_running import PROGRAM, SECONDS
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fakes_upstream import Client

SERVERS: dict[str, Any] = {
    "alpha": {"url": "https://alpha.example/mcp"},
    "beta": {"url": "https://beta.example/mcp", "enabled": False},
    "gamma": {"url": "https://gamma.example/mcp", "oauth": False},
    "delta": {"url": "https://delta.example/mcp", "headers": {"Authorization": "Bearer x"}},
    "stdio": {"command": "x"},
    "unix": {"url": "unix:///run/x.sock"},
}


@asynccontextmanager
async def operating(state: Path) -> AsyncIterator[tuple[Client, OperatorStage, LoginRuns]]:
    """An operator of a daemon whose logins are scripted."""
    stage = OperatorStage(Stage(config_of({"mcpServers": SERVERS})))
    logins = LoginRuns(ServerLogins(FileLogins(state)), state, Children(), PROGRAM)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.supervisor.run)
            nursery.start_soon(logins.run, lambda name: stage.supervisor.children[name].restart())
            await trio.testing.wait_all_tasks_blocked()
            yield await stage.connect(nursery, logins=logins), stage, logins
            nursery.cancel_scope.cancel()


async def test_where_nobody_can_log_in_is_said_before_anything_is_started(tmp_path: Path) -> None:
    said = {
        "alhpa": "no server is named 'alhpa'. Did you mean alpha?",
        "beta": "switched off in the configuration",
        "gamma": '"oauth": false',
        "delta": "gets the header Authorization of its configuration",
        "stdio": "not reached over HTTP (its type is stdio)",
        "unix": "not reached over HTTP (its type is unix)",
    }
    async with operating(tmp_path) as (operator, _, _):
        for server, words in said.items():
            for command in ("login", "logout"):
                answer = await operator.request(command, {"server": server})
                assert words in answer["error"]["message"], answer
    assert not (tmp_path / "told").exists()

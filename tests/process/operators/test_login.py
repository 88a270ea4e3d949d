"""`mcpd login`, as the control socket has it, with a scripted login process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, ServerLogins
from daemon.operators.login_commands import LINK
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


async def test_the_page_is_told_the_answer_taken_and_the_server_started_again(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, stage, _):
        before = stage.runs
        await operator.ask("login", {"server": "alpha"})
        page = await operator.get()
        assert page["method"] == LINK
        assert page["params"] == {
            "url": "https://as.example/authorize?state=s3cret",
            "redirect": "http://127.0.0.1:1/callback",
        }
        await operator.ask(
            "login_answer", {"server": "alpha", "url": "http://127.0.0.1:1/callback?code=c"}, request_id=2
        )
        assert (await operator.get())["result"] == {"server": "alpha"}
        answer = (await operator.get())["result"]
        assert (answer["server"], answer["state"], answer["expiresAt"]) == ("alpha", "ready", 12.5)
        assert stage.runs == before + 1


async def test_a_login_that_does_not_come_about_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, stage, logins):
        before = stage.runs
        answer = await operator.request("login", {"server": "alpha", "scope": "refused"})
        assert answer["error"]["message"] == "not logged in to alpha: the user has refused"
        await operator.ask("login", {"server": "alpha", "scope": "hangs", "seconds": 0.5})
        assert (await operator.get())["method"] == LINK
        assert "nobody has logged in within 0.5 s" in (await operator.get())["error"]["message"]
        run = logins.under_way("alpha")
        if run is not None:
            await run.gone.wait()
        answer = await operator.request("login_answer", {"server": "alpha", "url": "x"})
        assert "no login is under way at alpha" in answer["error"]["message"]
        assert stage.runs == before


async def test_where_nobody_can_log_in_is_said_before_anything_is_started(tmp_path: Path) -> None:
    said = {
        "alhpa": "no server is named 'alhpa'. Did you mean alpha?",
        "beta": "switched off in the configuration",
        "gamma": '"oauth": false',
        "delta": "sent the header Authorization of its configuration",
        "stdio": "not reached over HTTP (its type is stdio)",
        "unix": "not reached over HTTP (its type is unix)",
    }
    async with operating(tmp_path) as (operator, _, _):
        for server, words in said.items():
            for command in ("login", "logout"):
                answer = await operator.request(command, {"server": server})
                assert words in answer["error"]["message"], answer
    assert not (tmp_path / "told").exists()

"""Logins under way, with a scripted login process."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from daemon.authorization.login_runs import MAX_RUNNING, LoginRefused, LoginRuns
from daemon.authorization.logins import Failed, FileLogins, Login, ServerLogins
from daemon.config.config_model import OAuth, Server, TransportType
from daemon.processes.children import Children
from tests.process.authorization import login_process
from tests.unit.cases import cases
from tests.waiting import beside

SECONDS = 30.0
SECRET = "s3cret-of-the-client"
PROGRAM = (sys.executable, login_process.__file__)


def server(name: str = "s") -> Server:
    return Server(name=name, type=TransportType.HTTP, url="https://mcp.example/mcp")


@asynccontextmanager
async def running(
    state: Path, program: tuple[str, ...] = PROGRAM
) -> AsyncIterator[tuple[LoginRuns, list[str]]]:
    """Logins that can be begun, and the servers whose login has changed."""
    changed: list[str] = []
    runs = LoginRuns(ServerLogins(FileLogins(state)), state, Children(), program)
    with trio.fail_after(SECONDS):
        async with beside(runs.run, changed.append):
            await trio.testing.wait_all_tasks_blocked()
            yield runs, changed


async def test_the_process_is_told_on_its_stdin_and_gets_no_secret_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    wanted = Server(
        name="s",
        type=TransportType.WS,
        url="wss://mcp.example/mcp",
        oauth=OAuth(client_id="c", client_secret=SECRET, scopes=("a",), redirect_port=1234, device=True),
    )
    async with running(tmp_path) as (runs, _):
        place = {"url": "https://mcp.example/mcp", "issuer": "i", "token_endpoint": "t", "client_id": "c"}
        runs.logins.kept.write("s", Login(**place, access_token=SECRET, scope="a b"))
        runs.logins.want("s", "c d")
        run = await runs.join(wanted)
        assert SECRET not in repr(run)
        await run.wait_shown()
    told = json.loads((tmp_path / "told").read_text())
    assert told["wish"] == {
        "type": "wish",
        "server": "s",
        "url": "https://mcp.example/mcp",
        "directory": str(tmp_path),
        "secretService": False,
        "scope": "a b c d",
        "oauth": json.loads(msgspec.json.encode(wanted.oauth)),
    }
    assert SECRET not in json.dumps(told["argv"])
    assert "SOME_TOKEN" in os.environ
    assert "SOME_TOKEN" not in told["environ"]


@cases("scope", "words")
async def test_a_login_that_fails_is_a_sentence_and_changes_nothing(
    scope: str, words: str, tmp_path: Path
) -> None:
    async with running(tmp_path) as (runs, changed):
        run = await runs.join(server(), scope=scope)
        outcome = await run.wait_over()
        assert isinstance(outcome, Failed)
        assert words in outcome.message
        assert "s3cret" not in outcome.message
        await run.gone.wait()
        assert changed == []


async def test_so_many_logins_are_under_way_at_a_time_and_all_end_with_the_daemon(tmp_path: Path) -> None:
    async with running(tmp_path) as (runs, _):
        begun = [await runs.join(server(f"s{number}"), scope="hangs") for number in range(MAX_RUNNING)]
        with pytest.raises(LoginRefused, match="under way"):
            await runs.join(server("another"), scope="hangs")
        for run in begun:
            await run.wait_shown()
    assert [run.outcome for run in begun] == [Failed("the daemon is stopping")] * MAX_RUNNING
    with pytest.raises(LoginRefused):
        await runs.join(server())

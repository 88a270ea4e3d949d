"""`mcpd login`, as the control socket has it, with a scripted login process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, Login, ServerLogins
from daemon.processes.children import Children
from tests.fakes_upstream import Client, Stage
from tests.process.authorization.test_running import PROGRAM, SECONDS
from tests.unit.config.reading import config_of
from tests.unit.operators.stage import OperatorStage

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


# --- `mcpd logout`, as the control socket has it -------------------------------------------------------------


async def test_a_login_is_forgotten_and_the_server_started_again_without_it(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, stage, logins):
        before, url = stage.runs, SERVERS["alpha"]["url"]
        kept = logins.logins.kept
        kept.write(
            "alpha", Login(url=url, issuer="i", token_endpoint="t", client_id="c", access_token="access-1")
        )
        answer = (await operator.request("logout", {"server": "alpha"}))["result"]
        assert (answer["existed"], answer["revoked"], answer["state"]) == (True, False, "ready")
        assert "offers no way" in answer["problem"]
        assert kept.read("alpha", url) is None
        assert stage.runs == before + 1
        answer = (await operator.request("logout", {"server": "alpha"}))["result"]
        assert (answer["existed"], answer["problem"]) == (False, "")
        assert stage.runs == before + 1


async def test_a_login_under_way_ends(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, _, _):
        await operator.ask("login", {"server": "alpha", "scope": "hangs"})
        await operator.get()
        await operator.ask("logout", {"server": "alpha"}, request_id=2)
        answers = [await operator.get(), await operator.get()]
        assert [each["error"]["message"] for each in answers if "error" in each] == [
            "not logged in to alpha: somebody has logged out meanwhile"
        ]


async def test_the_login_at_a_server_that_is_not_configured_any_more_is_forgotten(tmp_path: Path) -> None:
    async with operating(tmp_path) as (operator, stage, logins):
        before, kept = stage.runs, logins.logins.kept
        kept.write(
            "gone",
            Login(url="http://gone/", issuer="i", token_endpoint="t", client_id="c", access_token="access-1"),
        )
        answer = (await operator.request("logout", {"server": "gone"}))["result"]
        assert (answer["existed"], answer["state"]) == (True, "")
        assert kept.read("gone", None) is None
        for name in ("gone", "../logins/gone", "x" * 300, "a\0b"):
            refused = await operator.request("logout", {"server": name})
            assert "no server is named" in refused["error"]["message"]
        assert stage.runs == before

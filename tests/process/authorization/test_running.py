"""Logins under way, of users and of mcpd itself, with a scripted login process."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from daemon.authorization import login_runs, logins
from daemon.authorization.login_runs import MAX_RUNNING, LoginRefused, LoginRuns
from daemon.authorization.logins import Failed, FileLogins, Login, NoLogin, NotNow, ServerLogins
from daemon.config.config_model import OAuth, Server, TransportType
from daemon.config.login_keys import Auth, AuthType
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
        place: dict[str, Any] = {
            "url": "https://mcp.example/mcp",
            "issuer": "i",
            "token_endpoint": "t",
            "client_id": "c",
        }
        runs.logins.kept.write("s", Login(**place, access_token=SECRET, scope="a b"))
        runs.logins.want("s", "c d")
        run = await runs.join(wanted)
        assert SECRET not in repr(run)
        await run.wait_shown()
    told = json.loads((tmp_path / "told").read_text())
    assert told["wish"] == {
        "type": "wish",
        "auth": None,
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


@attrs.define
class Place:
    """A daemon's logins, and a server with `auth`."""

    state: Path
    logins: ServerLogins = attrs.field(init=False)
    behaves: str = "good"

    def __attrs_post_init__(self) -> None:
        self.logins = ServerLogins(FileLogins(self.state))
        LoginRuns(self.logins, self.state, Children(), PROGRAM)

    async def obtain(self, rejected: str | None = None, behaves: str | None = None) -> Login:
        auth = Auth(
            type=AuthType.CLIENT_CREDENTIALS,
            issuer="https://as.example",
            client_id=behaves or self.behaves,
            client_secret=SECRET,
            token_file=str(self.state / "told"),
        )
        with trio.fail_after(SECONDS):
            server = Server(name="s", type=TransportType.WS, url="wss://mcp.example/mcp", auth=auth)
            return await self.logins.obtain(server, rejected)

    async def refused(self, rejected: str | None = None, behaves: str | None = None) -> NoLogin:
        with pytest.raises(NoLogin) as caught:
            await self.obtain(rejected, behaves)
        return caught.value

    @property
    def told(self) -> list[dict[str, Any]]:
        return list(map(json.loads, (self.state / "told").read_text().splitlines()))


async def test_all_who_want_a_login_share_one_process_and_its_token_which_nothing_stores(
    tmp_path: Path,
) -> None:
    place, found = Place(tmp_path), list[str]()

    async def want() -> None:
        found.append((await place.obtain()).access_token)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(want)
    assert found == ["s3cret-1"] * 50
    [told] = place.told
    assert (told["wish"]["url"], told["wish"]["auth"]["client_secret"]) == ("https://mcp.example/mcp", SECRET)
    assert SECRET not in json.dumps([told["argv"], told["environ"]])
    assert await trio.to_thread.run_sync(lambda: [*tmp_path.iterdir()]) == [tmp_path / "told"]


async def test_a_token_that_is_refused_or_due_or_of_another_entry_is_not_given_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = await place.obtain()
    assert (await place.obtain(first.access_token)).access_token == "s3cret-2"
    assert (await place.obtain(first.access_token)).access_token == "s3cret-2"
    assert (await place.obtain(behaves="ends")).access_token == "s3cret-3"
    assert (await place.obtain(behaves="ends")).access_token == "s3cret-4"


async def test_a_secret_that_is_refused_is_not_tried_again_by_fifty_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "AGAIN_SECONDS", math.inf)
    place, said = Place(tmp_path, behaves="refused"), list[str]()

    async def want() -> None:
        said.append(str(await place.refused()))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(want)
    assert said == ["no token, attempt 1"] * 50
    # A corrected entry is tried at once.
    assert (await place.obtain(behaves="good")).access_token == "s3cret-2"


async def test_after_a_pause_a_failed_login_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "AGAIN_SECONDS", 0.0)
    place = Place(tmp_path, behaves="refused")
    assert [str(await place.refused()) for _ in range(2)] == ["no token, attempt 1", "no token, attempt 2"]


async def test_a_token_that_cannot_be_renewed_just_now_serves_until_its_end_unless_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "AGAIN_SECONDS", 0.0)
    place = Place(tmp_path)
    first = await place.obtain(behaves="renew")

    async def later(*_: object) -> Login:
        raise NotNow("not now")

    monkeypatch.setattr(LoginRuns, "_obtained", later)
    assert await place.obtain(behaves="renew") is first
    assert isinstance(await place.refused(first.access_token, "renew"), NotNow)

    async def never(*_: object) -> Login:
        raise NoLogin("never")

    monkeypatch.setattr(LoginRuns, "_obtained", never)
    assert str(await place.refused(behaves="renew")) == "never"


@cases("behaves", "words", "later")
async def test_a_login_that_does_not_come_about_is_a_sentence(
    behaves: str, words: str, later: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if behaves == "mute":
        monkeypatch.setattr(login_runs, "OWN_SECONDS", 0.5)
    failure = await Place(tmp_path, behaves=behaves).refused()
    assert words in str(failure)
    assert isinstance(failure, NotNow) is later

"""One login as a process: what it is told and says, and how it ends when nobody answers, or it goes wrong."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from daemon.authorization import login_process, logins
from daemon.authorization.login import LoginFlow
from daemon.authorization.login_process import LOGIN_SECONDS, MAX_LINE, Lines, serve
from daemon.authorization.logins import Answer, Failed, Login, NoLogin, Report, Wish
from daemon.authorization.redirect import Redirect


async def no_listener(nursery: trio.Nursery, port: int | None) -> Redirect:
    return Redirect(1)


async def said(monkeypatch: pytest.MonkeyPatch, told: bytes, run: Any, *, is_open: bool = True) -> list[Report]:
    """What a login says that is told this, where the flow itself is `run`."""
    monkeypatch.setattr(login_process, "listen", no_listener)
    monkeypatch.setattr(LoginFlow, "run", run)
    tell, stdin = trio.testing.memory_stream_one_way_pair()
    heard: list[Report] = []

    async def say(message: Report) -> None:
        heard.append(message)

    await tell.send_all(told)
    if not is_open:
        tell.close()
    await serve(Lines(stdin), say)
    return heard


def wish(tmp_path: Path, **changed: Any) -> bytes:
    wished = Wish(server="notion", url="https://mcp.example/mcp", directory=str(tmp_path), **changed)
    return msgspec.json.encode(wished) + b"\n"


async def forever(flow: LoginFlow) -> Login:
    await trio.sleep_forever()
    raise AssertionError


async def mistaken(flow: LoginFlow) -> Login:
    raise KeyError("canary")


async def test_a_login_that_nobody_finishes_ends_after_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    (told,) = await said(monkeypatch, wish(tmp_path), forever)
    assert isinstance(told, Failed)
    assert "nobody has finished the login within 10 minutes" in told.message
    assert trio.current_time() == pytest.approx(LOGIN_SECONDS, abs=1)


async def test_a_login_whose_stdin_ends_gives_up_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await said(monkeypatch, wish(tmp_path), forever, is_open=False) == []


@pytest.mark.parametrize(
    "told",
    [b"", b"{}\n", b"canary\n", b"\xff\n", msgspec.json.encode(Answer("x")) + b"\n", b"x" * (MAX_LINE + 9)],
)
async def test_what_is_no_wish_is_no_login(monkeypatch: pytest.MonkeyPatch, told: bytes) -> None:
    assert await said(monkeypatch, told, forever, is_open=False) == []


async def test_a_mistake_of_ours_is_owned_up_to_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = await said(monkeypatch, wish(tmp_path), mistaken)
    assert isinstance(told, Failed)
    assert "KeyError" in told.message
    assert "canary" not in told.message


async def test_the_secret_service_without_its_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError

    monkeypatch.setattr(logins, "logins_in", missing)
    (told,) = await said(monkeypatch, wish(tmp_path, secret_service=True), forever)
    assert told == Failed(
        "logins in the Secret Service need the extra: pip install 'mcpd-supervisor[secret-service]'"
    )


async def test_a_reason_is_said_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(flow: LoginFlow) -> Login:
        raise NoLogin("because")

    assert await said(monkeypatch, wish(tmp_path), refused) == [Failed("because")]


async def test_messages_may_come_in_pieces_and_several_at_once() -> None:
    tell, stdin = trio.testing.memory_stream_one_way_pair()
    lines = Lines(stdin)
    encoded = b"".join(msgspec.json.encode(Answer(url)) + b"\n" for url in ("a", "b"))
    async with trio.open_nursery() as nursery:
        for piece in (encoded[:5], encoded[5:]):
            nursery.start_soon(partial(tell.send_all, piece))
            await trio.testing.wait_all_tasks_blocked()
        assert [await lines.next(), await lines.next()] == [Answer("a"), Answer("b")]
    tell.close()
    assert await lines.next() is None

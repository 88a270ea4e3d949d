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


async def test_a_login_that_nobody_finishes_ends_after_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    (told,) = await said(monkeypatch, wish(tmp_path), forever)
    assert told == Failed("nobody has finished the login within 10 minutes: begin again")
    assert trio.current_time() == pytest.approx(LOGIN_SECONDS, abs=1)


ANSWER = msgspec.json.encode(Answer("x")) + b"\n"


@pytest.mark.parametrize(
    "told", [wish(Path("/s")), b"", b"{}\n", b"canary\n", b"\xff\n", ANSWER, b"x" * (MAX_LINE + 9)]
)
async def test_without_a_wish_or_once_stdin_has_ended_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, told: bytes
) -> None:
    assert await said(monkeypatch, told, forever, is_open=False) == []


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


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NoLogin("because"), "because"),
        (KeyError("canary"), "internal error in mcpd (KeyError): please report it"),
    ],
)
async def test_a_reason_is_said_as_it_is_and_a_mistake_of_ours_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    async def failing(flow: LoginFlow) -> Login:
        raise error

    assert await said(monkeypatch, wish(tmp_path), failing) == [Failed(message)]


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

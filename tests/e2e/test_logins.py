"""Logins as users make them: the real daemon, a real authorization server, a server that wants its tokens."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.e2e import browser
from tests.e2e.harness import Daemon, running
from tests.process.authorization.serving import browse, fetch, protected
from tests.terminals import INTERRUPT, Typing
from tests.waiting import eventually

BROWSER = {"BROWSER": f"{sys.executable} -S {browser.__file__} %s"}
NAMES = "Tell the user to run `mcpd login notion`"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that oidc-provider protects."""
    with protected() as url:
        yield url


@contextmanager
def guarded(url: str, environ: dict[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon with one server, which wants a login."""
    with running({"mcpServers": {"notion": {"url": url}}}, environ) as daemon:
        eventually(lambda: state_of(daemon)["state"] == "needs_auth", daemon.said)
        yield daemon


def state_of(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask("status")["servers"]["notion"]
    return found


def call(daemon: Daemon) -> dict[str, Any]:
    answer: dict[str, Any] = daemon.ask("call", server="notion", tool="secret", arguments={})
    return answer


def outcomes(daemon: Daemon) -> list[str]:
    """Of the events of logins, oldest first."""
    return [each["details"]["outcome"] for each in daemon.ask("events", kinds=["login"])["events"]]


def kept_in(daemon: Daemon) -> Path:
    return daemon.state.parent / "logins" / "notion.json"


async def run(daemon: Daemon, *words: str) -> tuple[int, str, str]:
    """`mcpd WORDS`, while the servers of this test go on."""
    done = await trio.to_thread.run_sync(daemon.outcome, *words)
    return done.returncode, done.stdout, done.stderr


async def test_a_user_logs_in_calls_and_logs_out(url: str) -> None:
    with guarded(url, BROWSER) as daemon:
        before = state_of(daemon)
        assert before["cause"] == "login-needed"
        refused = call(daemon)
        assert refused["isError"]
        assert NAMES in json.dumps(refused)
        shown = daemon.run("status", check=None)
        assert "mcpd login notion" in shown

        status, out, err = await run(daemon, "login", "notion")
        assert (status, out) == (0, "logged in to notion; it offers 1 tools: secret\n"), err
        assert re.search(r"Open this page to log in:\n\n  http://127\.0\.0\.1:\d+/auth\?", err)
        assert call(daemon)["content"][0]["text"] == "it was you"
        login = json.loads(kept_in(daemon).read_text())
        assert kept_in(daemon).stat().st_mode & 0o777 == 0o600

        status, out, err = await run(daemon, "logout", "notion")
        assert (status, err) == (0, "")
        assert (
            out == "logged out of notion: the login is forgotten here, and ended at its authorization server\n"
        )
        assert not kept_in(daemon).exists()
        assert state_of(daemon)["cause"] == "login-needed"
        secrets = [login["accessToken"], login["refreshToken"]]
        assert outcomes(daemon) == ["begun", "succeeded", "ended"]
        told = daemon.run("events", "notion")
        assert "notion: login succeeded\n" in told
        assert "notion: restarted: its login changed\n" in told
        everything = daemon.said() + json.dumps(daemon.ask("status")) + before["reason"]
        everything += told + json.dumps(daemon.ask("events"))
        assert not [each for each in secrets if each in everything]


async def test_a_login_goes_on_after_it_has_expired_and_after_a_restart_as_long_as_it_can_be_renewed() -> None:
    with protected(ttl=5) as url, guarded(url, BROWSER) as daemon:
        status, _, err = await run(daemon, "login", "notion")
        assert status == 0, err
        first = json.loads(kept_in(daemon).read_text())

        def renewed() -> bool:
            assert call(daemon)["content"][0]["text"] == "it was you"
            kept = json.loads(kept_in(daemon).read_text())
            return bool(kept["accessToken"] != first["accessToken"])

        eventually(renewed, daemon.said)
        assert state_of(daemon)["state"] == "ready"
        daemon.restart()
        daemon.ready("notion")
        assert call(daemon)["content"][0]["text"] == "it was you"

        # One that cannot be renewed is told with why the server is away.
        before = len(daemon.ask("events", server="notion", kinds=["ended", "state"])["events"]) + 1
        daemon.stop()
        login = json.loads(kept_in(daemon).read_text())
        kept_in(daemon).write_text(json.dumps({**login, "accessToken": "spent", "refreshToken": "spent"}))
        daemon.start()

        def ends() -> list[dict[str, Any]]:
            """After the start of this daemon."""
            events = daemon.ask("events", server="notion")["events"]
            return [each for each in events if each["kind"] in {"ended", "state"}][before:]

        told = eventually(ends, daemon.said)[-1]
        assert (told["cause"], told["isBad"]) == ("login-needed", True), told


async def test_ctrl_c_gives_a_login_up_and_nothing_is_kept(url: str) -> None:
    with guarded(url) as daemon:
        with Typing(daemon, "login", "notion") as person:
            person.until("paste the address that it ends at: ")
            person.press(INTERRUPT)
            status, _ = person.end()
        assert status == 130
        assert not kept_in(daemon).exists()
        eventually(lambda: "a login has ended without success" in daemon.said(), daemon.said)
        assert outcomes(daemon) == ["begun", "failed"]


async def test_who_wants_the_same_login_is_shown_the_same_page_and_both_are_told_of_its_end(url: str) -> None:
    with guarded(url) as daemon, ExitStack() as stack:
        people = [stack.enter_context(Typing(daemon, "login", "notion")) for _ in range(3)]
        links = [re.search(r"http://\S+", each.until("/auth?") + each.until("\n")) for each in people]
        (link,) = {found[0] for found in links if found is not None}
        assert (await fetch(await browse(link)))[0] == 200
        assert [(await trio.to_thread.run_sync(each.end))[0] for each in people] == [0, 0, 0]

"""A login that ends, here and at its authorization server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from daemon.authorization.guarded_http import Ended, end_login
from daemon.authorization.logins import FileLogins, Login
from tests.unit.upstreams.transports.serving import SECONDS, Request, reply, scripted

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://127.0.0.1:1/mcp"


def kept(state: Path, port: int | None) -> FileLogins:
    logins = FileLogins(state)
    endpoint = None if port is None else f"http://127.0.0.1:{port}/revoke"
    logins.write(
        "s",
        Login(
            url=URL,
            issuer="i",
            token_endpoint="t",
            client_id="c",
            access_token="access-1",
            refresh_token="refresh-1",
            revocation_endpoint=endpoint,
        ),
    )
    return logins


@pytest.mark.parametrize(("status", "revoked"), [("200 OK", True), ("503 Service Unavailable", False)])
async def test_it_is_forgotten_whether_or_not_its_authorization_server_can_be_told(
    status: str, revoked: bool, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    async def revoke(logins: list[FileLogins], request: Request) -> bytes:
        assert logins[0].read("s", URL) is None
        asked.append(request.raw)
        return reply({}, status)

    found: list[FileLogins] = []
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            found.append(kept(tmp_path, await scripted(nursery, partial(revoke, found))))
            ended = await end_login(found[0], "s", URL)
            nursery.cancel_scope.cancel()
    assert (ended.existed, ended.revoked, bool(ended.problem)) == (True, revoked, not revoked)
    assert b"refresh-1" in asked[0]
    assert found[0].read("s", URL) is None


async def test_what_cannot_be_ended_there_is_said_and_forgotten_here(tmp_path: Path) -> None:
    ended = await end_login(kept(tmp_path, None), "s", URL)
    assert ended == Ended(existed=True, problem="its authorization server offers no way to end one")


async def test_without_a_login_nothing_happens_and_a_damaged_one_is_forgotten(tmp_path: Path) -> None:
    logins = kept(tmp_path, None)
    (tmp_path / "logins" / "s.json").write_text("{")
    assert await end_login(logins, "s", URL) == Ended(existed=True, problem="it could not be read")
    assert await end_login(logins, "s", URL) == Ended(existed=False)


async def test_for_a_name_of_which_nothing_is_kept_nothing_is_made(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert await end_login(FileLogins(state), "mistyped", None) == Ended(existed=False)
    assert not state.exists()

"""Logins renewed and ended at oidc-provider, which takes who comes with an old refresh token for a thief."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from daemon.authorization import guarded_http
from daemon.authorization.guarded_http import LoginOver, fresh, renew
from daemon.authorization.logins import FileLogins, Login, LoginsTrouble
from tests.e2e.harness import ROOT
from tests.process.authorization.serving import call, logged_in, protected
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

pytestmark = pytest.mark.process

AT_ONCE = 50


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that oidc-provider protects."""
    with protected() as url:
        yield url


def expire(logins: FileLogins, login: Login, *, left: float = -1.0) -> Login:
    """Have a login be renewed: it ends in `left` seconds."""
    old = msgspec.structs.replace(login, renew_at=0.0, expires_at=time.time() + left)
    logins.write("notion", old)
    return old


async def test_fifty_calls_with_an_expired_token_are_one_renewal(tmp_path: Path, url: str) -> None:
    logins = FileLogins(tmp_path)
    old = expire(logins, await logged_in(tmp_path, url))
    found: list[Login | None] = []

    async def one() -> None:
        found.append(await fresh(logins, "notion", url, rejected=None))

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(one)
    (renewed,) = {each.access_token for each in found if each is not None}
    kept = logins.read("notion", url)
    assert len(found) == AT_ONCE
    assert kept is not None
    assert kept.access_token == renewed != old.access_token
    assert kept.refresh_token != old.refresh_token
    assert await call(url, renewed) == "it was you"
    # And again with the one that came in its place.
    expire(logins, kept)
    again = await fresh(logins, "notion", url, rejected=None)
    assert again is not None
    assert await call(url, again.access_token) == "it was you"


async def test_several_daemons_at_once_are_one_renewal(tmp_path: Path, url: str) -> None:
    logins = FileLogins(tmp_path)
    expire(logins, await logged_in(tmp_path, url))
    code = (
        "import sys, trio; from pathlib import Path; from daemon.authorization.logins import FileLogins;"
        "from daemon.authorization.guarded_http import fresh;"
        "got = trio.run(lambda: fresh(FileLogins(Path(sys.argv[1])), 'notion', sys.argv[2], rejected=None));"
        "print(got.access_token)"
    )
    said: list[bytes] = []

    async def daemon() -> None:
        done = await trio.run_process(
            [sys.executable, "-c", code, str(tmp_path), url], cwd=ROOT, capture_stdout=True
        )
        said.append(done.stdout.strip())

    with trio.fail_after(WAIT):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(daemon)
    kept = logins.read("notion", url)
    assert kept is not None
    assert said == [kept.access_token.encode()] * 3


async def test_a_login_that_somebody_else_has_renewed_with_is_over_and_not_tried_again(
    tmp_path: Path, url: str
) -> None:
    logins = FileLogins(tmp_path)
    first = await logged_in(tmp_path, url)
    assert await fresh(logins, "notion", url, rejected=first.access_token) is not None
    # A copy from before, as a backup or a thief has it.
    expire(logins, first)
    for _ in range(2):
        with pytest.raises(LoginOver, match=r"\(invalid_grant\)|gave no refresh token"):
            await fresh(logins, "notion", url, rejected=None)


async def test_what_could_not_be_kept_is_not_renewed(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = FileLogins(tmp_path)
    old = expire(logins, await logged_in(tmp_path, url))

    def full(self: FileLogins, server: str, login: Login) -> None:
        raise LoginsTrouble("no space")

    with monkeypatch.context() as patch:
        patch.setattr(FileLogins, "write", full)
        with pytest.raises(LoginsTrouble):
            await fresh(logins, "notion", url, rejected=None)
    assert logins.read("notion", url) == old
    assert await fresh(logins, "notion", url, rejected=None) is not None


async def test_a_renewal_that_was_given_up_is_kept_all_the_same(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = FileLogins(tmp_path)
    old = expire(logins, await logged_in(tmp_path, url))
    with trio.CancelScope() as scope:

        async def given_up(login: Login, client: httpx2.AsyncClient) -> Login:
            scope.cancel()
            return await renew(login, client)

        monkeypatch.setattr(guarded_http, "renew", given_up)
        await fresh(logins, "notion", url, rejected=None)
    kept = logins.read("notion", url)
    assert scope.cancel_called
    assert kept is not None
    assert kept.access_token != old.access_token

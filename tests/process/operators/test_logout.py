"""`mcpd logout`, as the control socket has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.authorization.logins import Login
from tests.process.operators.test_login import SERVERS, operating

if TYPE_CHECKING:
    from pathlib import Path


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

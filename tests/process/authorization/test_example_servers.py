"""Logins at the SDK's example of authorization, whose two sides are apart, and at the one from before that."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from daemon.authorization.guarded_http import LoginOver, fresh, revoke
from daemon.authorization.logins import FileLogins
from tests.process.authorization.serving import browse, example, fetch, logged_in, login, tools

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


@pytest.mark.nightly
async def test_a_login_at_the_example_serves_its_tool_and_ends_without_a_refresh_token(tmp_path: Path) -> None:
    with (
        example("auth_server") as issuer,
        example("server", f"--auth-server={issuer}", "--oauth-strict") as server,
    ):
        url = f"{server}/mcp"
        kept = await logged_in(tmp_path, url)
        assert urlsplit(kept.issuer).netloc == urlsplit(issuer).netloc
        assert kept.scope == "user"
        assert await tools(url, kept.access_token) == ["get_time"]
        logins = FileLogins(tmp_path)
        logins.write("notion", msgspec.structs.replace(kept, renew_at=0.0, expires_at=0.0))
        with pytest.raises(LoginOver, match="it has expired"):
            await fresh(logins, "notion", url, rejected=None)


@pytest.mark.nightly
async def test_a_server_of_2025_03_26_is_its_own_authorization_server(tmp_path: Path) -> None:
    """It publishes no metadata of a protected resource: where to log in is at its own origin."""
    with example("legacy_as_server") as server:
        url = f"{server}/mcp"
        async with login(tmp_path, url) as running:
            page = await running.page()
            assert urlsplit(page.url).netloc == urlsplit(url).netloc
            assert parse_qs(urlsplit(page.url).query)["resource"] == [url]
            await fetch(await browse(page.url))
            await running.done()
            kept = running.kept
        assert kept is not None
        assert await tools(url, kept.access_token) == ["get_time"]
        assert await revoke(kept) is (kept.revocation_endpoint is not None)

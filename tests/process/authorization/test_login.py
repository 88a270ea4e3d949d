"""Logins at real authorization servers: what is asked, answered, kept, and what each failure says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.authorization.serving import call, logged_in, protected

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


async def test_whoever_logs_in_has_a_token_that_the_server_takes(tmp_path: Path) -> None:
    async with protected() as url:
        kept = await logged_in(tmp_path, url)
        assert await call(url, kept.access_token) == "it was you"
        assert kept.resource == url
        assert kept.refresh_token is not None
        assert kept.scope is not None
        assert "read" in kept.scope.split()
        assert kept.expires_at is not None

"""Clients whose own rules mean nothing any more since their servers went into mcpd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from daemon.checks.configuration import clients as check

if TYPE_CHECKING:
    from tests.unit.checks.scenes import House

ONE_FOR_ALL = {"mcpd": {"command": "/bin/mcpd", "args": ["connect"]}}
ONE_TO_ONE = {"git": {"command": "/bin/mcpd", "args": ["connect", "--server", "git"]}}


def test_rules_that_hold_no_more_are_named(house: House) -> None:
    house.servers(git={"command": "git"})
    own, settings = house.root / ".claude.json", house.root / ".claude" / "settings.json"
    own.write_text(json.dumps({"mcpServers": ONE_FOR_ALL}))
    settings.parent.mkdir()
    assert not list(check(house.look()))
    settings.write_text('{"permissions": {"deny": ["mcp__git__git_reset", "Bash(rm *)"]}}')
    [found] = check(house.look())
    assert (found.cause, found.level) == ("client-rules-void", "warning")
    assert f"mcp__git__git_reset in {settings}" in found.what
    assert "`mcpd install claude-code`" in found.do
    settings.write_text("{")
    assert [each.cause for each in check(house.look())] == ["not-looked-at"]
    own.write_text(json.dumps({"mcpServers": ONE_TO_ONE}))
    assert not list(check(house.look()))

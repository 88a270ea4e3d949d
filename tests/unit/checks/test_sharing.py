"""What a known server keeps for its clients is a warning until its entry says who shares it."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.checks.entries import most_instances
from daemon.checks.entries import sharing as check
from daemon.checks.findings import Level
from tests.unit.config.reading import server_of


@pytest.mark.parametrize(
    ("entry", "causes"),
    [
        ({"command": "playwright-mcp"}, [("server-shared", "share"), ("server-instances-meet", "args")]),
        ({"command": "playwright-mcp", "share": "session", "args": ["--isolated"]}, []),
        ({"command": "mcp-server-filesystem", "args": ["/srv"]}, [("server-bound-to-a-directory", "args")]),
        ({"command": "mcp-server-filesystem", "args": ["${workspace}"]}, []),
        ({"command": "docker", "args": ["run", "mcp/filesystem"]}, [("server-bound-to-a-mount", "args")]),
        ({"command": "mcp-server-memory"}, [("server-limit-too-high", "limits.inFlight")]),
        ({"command": "mcp-server-time"}, []),
        ({"url": "https://h/mcp"}, []),
    ],
)
def test_each_matter_is_a_warning_with_its_place_and_what_to_write(
    entry: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    found = list(check(server_of(entry)))
    assert [(each.cause, each.key) for each in found] == causes
    assert all(each.level is Level.WARNING and each.what.startswith("s ") and each.do for each in found)


@pytest.mark.parametrize(
    ("entry", "most"),
    [
        ({"command": "x"}, 1),
        ({"command": "x", "share": "session"}, 16),
        ({"command": "x", "args": ["${workspace}"], "limits": {"instances": 3}}, 3),
    ],
)
def test_so_many_instances_run_at_most(entry: dict[str, Any], most: int) -> None:
    assert most_instances(server_of(entry)) == most

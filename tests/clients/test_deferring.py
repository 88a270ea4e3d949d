"""Which clients defer tools themselves, by what they call themselves."""

from __future__ import annotations

import pytest

from daemon.clients.deferring import defers_tools


@pytest.mark.parametrize(
    ("name", "version", "defers"),
    [
        ("claude-code", "2.1.197", False),
        ("claude-code", "2.1.328", False),
        ("claude-code", "2.1.329", True),
        ("claude-code", "2.1.329-beta.2", True),
        ("claude-code", "2.1.1000", True),
        ("claude-code", "2.2", True),
        ("claude-code", "10.0.0", True),
        ("claude-code", "1.9.999", False),
        ("claude-code", "", True),
        ("claude-code", "next", True),
        ("claude-code", f"2.{'9' * 5000}", True),
        ("codex-mcp-client", "0.169.0", True),
        ("codex-mcp-client", "", True),
        ("codex", "0.1", True),
        ("codexology", "1", False),
        ("my-codex", "1", False),
        ("opencode", "1.18.33", False),
        ("gemini-cli-mcp-client", "0.61.0", False),
        ("", "", False),
    ],
)
def test_a_client_is_known_by_its_name_and_version(name: str, version: str, *, defers: bool) -> None:
    assert defers_tools(name, version) is defers

"""Why a client has its surface, in words."""

from __future__ import annotations

import pytest

from daemon.operators.session_commands import why
from daemon.surfaces.table import ClientInfo, Grounds, SurfaceChoice, fitting


@pytest.mark.parametrize(
    ("name", "version", "tools", "said"),
    [
        (
            "claude-code",
            "2.1.329",
            84,
            "claude-code 2.1.329 searches tools itself, 84 tools are within its 500",
        ),
        (
            "codex-mcp-client",
            "0.169.0",
            1001,
            "codex-mcp-client 0.169.0 searches tools itself, but 1,001 tools are more than its 1,000",
        ),
        (
            "claude-code",
            "2.1.197",
            84,
            "claude-code 2.1.197 is older than 2.1.329, the first that searches tools itself",
        ),
        ("codex", "?", 84, "codex ? may be older than 0.142.2, the first that searches tools itself"),
        ("{client.__class__}", "{", 84, "nothing is known of this client ({client.__class__} {)"),
        ("", "", 84, "the client has not said what it is"),
    ],
)
def test_what_fits_a_client_says_why(name: str, version: str, tools: int, said: str) -> None:
    assert why(fitting(ClientInfo(name, version), lambda: tools)) == said


@pytest.mark.parametrize("grounds", Grounds)
def test_there_are_words_for_all_grounds(grounds: Grounds) -> None:
    assert why(SurfaceChoice(surface="full", grounds=grounds))

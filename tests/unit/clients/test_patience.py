"""How long clients may be kept waiting: less than after what they give up."""

from __future__ import annotations

import pytest

from daemon.clients.requests.tools import OTHERS, PATIENCE, patience_of
from daemon.surfaces.table import ClientInfo


@pytest.mark.parametrize(
    ("name", "gives_up"),
    [("codex-mcp-client", 10), ("codex", 10), ("opencode", 5), ("claude-code", 30)],
)
def test_each_client_is_answered_before_it_gives_up(name: str, gives_up: float) -> None:
    assert gives_up / 2 < patience_of(ClientInfo(name)) < gives_up


def test_who_is_not_known_is_taken_for_patient() -> None:
    assert patience_of(ClientInfo("codexes")) == patience_of(ClientInfo("")) == OTHERS
    assert max(PATIENCE.values()) < OTHERS

"""Facts: frozen, comparable, and short when printed."""

from __future__ import annotations

import attrs
import pytest

from daemon.facts import ServerStatus, ToolsListed
from daemon.states import ServerState
from tests.catalog.samples import tool


def test_a_status_cannot_be_changed() -> None:
    status = ServerStatus(state=ServerState.READY)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        status.reason = "x"  # type: ignore[misc]


def test_statuses_of_the_same_content_are_equal() -> None:
    assert ServerStatus(state=ServerState.READY) == ServerStatus(state=ServerState.READY)
    assert ServerStatus(state=ServerState.READY) != ServerStatus(state=ServerState.READY, incarnation=1)


def test_a_new_status_claims_nothing() -> None:
    status = ServerStatus(state=ServerState.STOPPED)
    assert (status.attempt, status.restarts, status.incarnation) == (0, 0, 0)
    assert status.next_retry_at is None


def test_printing_a_listing_leaves_its_tools_out() -> None:
    fact = ToolsListed(server="git", incarnation=1, tools=(tool("git", "git_log"),), quarantined={})
    assert "git_log" not in repr(fact)

"""One server's entry: what it says of itself."""

from __future__ import annotations

import pytest

from daemon.catalog.snapshot import fold
from daemon.model import Kind
from daemon.states import SERVING, ServerState
from tests.unit.catalog.one_server import BEGUN, UP, git
from tests.unit.catalog.samples import after, prompts, status, switched

UNSETTLED = {ServerState.STOPPED, ServerState.QUEUED, ServerState.STARTING}
"""States that a start follows unasked."""


@pytest.mark.parametrize("state", ServerState)
def test_how_a_server_is_does_not_say_whether_it_is_switched_on(state: ServerState) -> None:
    assert not git(fold(UP, status("git", state))).disabled
    assert git(after(UP, [switched("git"), status("git", state)])).disabled


@pytest.mark.parametrize("state", ServerState)
def test_nobody_awaits_the_list_of_a_server_that_is_off(state: ServerState) -> None:
    assert git(fold(BEGUN, status("git", state))).awaits(Kind.TOOL) is (state in UNSETTLED)
    assert not git(after(BEGUN, [switched("git"), status("git", state)])).awaits(Kind.TOOL)


def test_the_list_of_a_server_that_is_being_restarted_is_awaited() -> None:
    restarting = status("git", ServerState.BACKOFF, next_retry_at=None)
    assert git(fold(BEGUN, restarting)).awaits(Kind.TOOL) is True
    assert git(fold(UP, restarting)).awaits(Kind.PROMPT)
    assert git(fold(BEGUN, status("git", ServerState.BACKOFF))).awaits(Kind.TOOL) is False


def test_a_fingerprint_is_not_shown() -> None:
    assert git(UP).fingerprint
    assert git(UP).fingerprint not in repr(git(UP))


@pytest.mark.parametrize("state", ServerState)
def test_other_lists_are_awaited_until_they_are_known_even_of_a_server_that_is_up(state: ServerState) -> None:
    catalog = fold(UP, status("git", state))
    assert git(catalog).awaits(Kind.PROMPT) is (state in UNSETTLED | SERVING)
    assert not git(catalog).awaits(Kind.TOOL)
    known = fold(catalog, prompts("git", problem="timed out"))
    assert not git(known).awaits(Kind.PROMPT), "it was tried"
    assert not git(fold(catalog, switched("git"))).awaits(Kind.PROMPT)


def test_a_server_that_begins_with_its_first_use_is_of_use_before_it_has_ever_listed() -> None:
    dormant = fold(BEGUN, status("git", ServerState.DORMANT))
    assert git(dormant).of_use
    assert not git(fold(dormant, switched("git"))).of_use
    assert not git(fold(BEGUN, status("git", ServerState.BACKOFF))).of_use

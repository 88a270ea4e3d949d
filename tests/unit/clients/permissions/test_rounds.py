"""Calls that a server wants again: once, for who has called, with what was agreed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.clients.grants import MAX_AGREED, AgreedCalls
from daemon.clients.input_required import TTL

if TYPE_CHECKING:
    from trio.testing import MockClock

TOOL = ("fs", "write", "hash")


async def test_a_call_may_be_repeated_once_by_who_has_made_it(mock_clock: MockClock) -> None:
    agreed = AgreedCalls()
    agreed.note(b"anna", TOOL)
    assert not agreed.take(b"ben", TOOL)
    assert agreed.take(b"anna", TOOL)
    assert not agreed.take(b"anna", TOOL)


async def test_a_tool_that_has_changed_is_not_what_was_agreed_to(mock_clock: MockClock) -> None:
    agreed = AgreedCalls()
    agreed.note(b"anna", TOOL)
    assert not agreed.take(b"anna", ("fs", "write", "other"))
    assert not agreed.take(b"anna", TOOL)


async def test_it_is_repeated_in_time_or_not_at_all(autojump_clock: MockClock) -> None:
    agreed = AgreedCalls()
    agreed.note(b"anna", TOOL)
    await trio.sleep(TTL)
    assert not agreed.take(b"anna", TOOL)


async def test_so_many_are_remembered(mock_clock: MockClock) -> None:
    agreed = AgreedCalls()
    for number in range(MAX_AGREED + 1):
        agreed.note(b"%d" % number, TOOL)
    assert len(agreed) == MAX_AGREED
    assert not agreed.take(b"0", TOOL)

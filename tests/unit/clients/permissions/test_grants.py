"""What a session may call: one definition of one tool, for so long, and not long after it has left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from hypothesis import given
from hypothesis import strategies as st

from daemon.clients.grants import MAX_AGREED, MAX_GRANTS, MAX_LEFT, AgreedCalls, Grants, SessionGrants
from daemon.clients.input_required import TTL
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from trio.testing import MockClock


WRITE = tool("fs", "write")


def test_a_grant_is_for_one_definition_of_one_tool() -> None:
    grants = Grants()
    assert not grants
    grants.allow(WRITE, "its user")
    assert grants.covers(WRITE, 0.0)
    assert not grants.covers(tool("fs", "write", description="Another."), 0.0)
    assert not grants.covers(tool("git", "write"), 0.0)
    assert not grants.covers(tool("fs", "read"), 0.0)


@given(until=st.none() | st.floats(0, 100), now=st.floats(0, 100))
def test_a_grant_holds_until_its_end(until: float | None, now: float) -> None:
    grants = Grants()
    grants.allow(WRITE, "an operator", until)
    holds = until is None or now < until
    assert grants.covers(WRITE, now) == holds
    assert bool(grants.current(now)) == holds


def test_a_session_has_so_many_and_the_latest_stay() -> None:
    grants, tools = Grants(), [tool("fs", f"t{number}") for number in range(MAX_GRANTS + 1)]
    for each in tools:
        grants.allow(each, "its user")
    assert len(grants.current(0.0)) == MAX_GRANTS
    assert grants.covers(tools[-1], 0.0)
    assert not grants.covers(tools[0], 0.0)


def looked_at(left: SessionGrants, key: str) -> bool:
    """Whether a session may call anything."""
    found: list[bool] = []
    left.change(key, lambda grants: found.append(bool(grants)))
    return found[0]


def some() -> Grants:
    grants = Grants()
    grants.allow(WRITE, "its user")
    return grants


async def test_of_so_many_sessions_the_grants_stay_and_none_of_those_without() -> None:
    left = SessionGrants(lambda _key: None)
    for number in range(MAX_LEFT + 1):
        left.keep(f"k{number}", some())
    assert not looked_at(left, "k0")
    assert looked_at(left, "k1")
    left.keep("k1", Grants())
    assert not looked_at(left, "k1")


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

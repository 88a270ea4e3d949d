"""What a session may call: one definition of one tool, for so long, and not long after it has left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.clients.permissions.grants import GRACE, MAX_GRANTS, MAX_LEFT, Grants, LeftGrants
from tests.unit.catalog.samples import tool

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


def test_a_grant_that_is_revoked_is_gone() -> None:
    grants = Grants()
    grants.allow(WRITE, "its user")
    assert grants.revoke([("fs", "write"), ("fs", "read")]) == [("fs", "write")]
    assert not grants.covers(WRITE, 0.0)
    assert not grants


def test_a_session_has_so_many_and_the_latest_stay() -> None:
    grants, tools = Grants(), [tool("fs", f"t{number}") for number in range(MAX_GRANTS + 1)]
    for each in tools:
        grants.allow(each, "its user")
    assert len(grants.current(0.0)) == MAX_GRANTS
    assert grants.covers(tools[-1], 0.0)
    assert not grants.covers(tools[0], 0.0)


def test_grants_stay_for_a_while_when_a_session_has_left() -> None:
    left, grants = LeftGrants(), Grants()
    grants.allow(WRITE, "its user")
    left.keep("k", grants, 10.0)
    assert left.of("k", 10.0) is grants
    assert left.take("k", 10.0 + GRACE - 1) is grants
    assert not left.take("k", 10.0)
    left.keep("k", grants, 10.0)
    assert not left.of("k", 10.0 + GRACE)
    assert not left.take("k", 10.0 + GRACE)


def test_of_so_many_sessions_the_grants_stay_and_none_of_those_without() -> None:
    left = LeftGrants()
    for number in range(MAX_LEFT + 1):
        grants = Grants()
        grants.allow(WRITE, "its user")
        left.keep(f"k{number}", grants, 0.0)
    assert not left.of("k0", 0.0)
    assert left.of("k1", 0.0)
    left.keep("k1", Grants(), 0.0)
    assert not left.of("k1", 0.0)

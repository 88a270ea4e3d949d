"""Links count once and for a minute; sessions end when idle, when told, and with their token."""

from __future__ import annotations

import attrs
import pytest

from daemon.console.access import (
    IDLE_SECONDS,
    LINK_SECONDS,
    MAX_LINKS,
    MAX_NOTICES,
    MAX_SESSIONS,
    ConsoleSessions,
    Notice,
)


@attrs.define
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> ConsoleSessions:
    return ConsoleSessions(clock)


def test_a_link_is_too_old_after_a_minute(sessions: ConsoleSessions, clock: Clock) -> None:
    secret = sessions.invite(may_change=True)
    clock.now += LINK_SECONDS
    assert sessions.enter(secret) is None


def test_of_many_links_the_newest_count(sessions: ConsoleSessions) -> None:
    first, *others = [sessions.invite(may_change=True) for _ in range(MAX_LINKS + 1)]
    assert sessions.enter(first) is None
    assert all(sessions.enter(each) for each in others)


def test_secrets_are_long_and_never_the_same(sessions: ConsoleSessions) -> None:
    made = {sessions.invite(may_change=True) for _ in range(50)}
    made |= {sessions.begin("x", may_change=True) for _ in range(50)}
    made |= {each.form_token for each in sessions}
    assert len(made) == 150
    assert min(map(len, made)) >= 43


@pytest.mark.parametrize("cookie", ["", "x", "\udcff", "é" * 1000])
def test_what_is_no_cookie_finds_nobody(sessions: ConsoleSessions, cookie: str) -> None:
    sessions.begin("x", may_change=True)
    assert sessions.find(cookie) is None
    assert sessions.enter(cookie) is None


def test_nothing_that_is_shown_of_a_session_is_a_secret(sessions: ConsoleSessions) -> None:
    sessions.begin("x", may_change=True)
    (session,) = sessions
    assert session.form_token not in repr(session)


def test_a_session_goes_on_while_it_is_used(sessions: ConsoleSessions, clock: Clock) -> None:
    cookie = sessions.begin("x", may_change=True)
    for _ in range(3):
        clock.now += IDLE_SECONDS - 1
        assert sessions.find(cookie) is not None
    clock.now += IDLE_SECONDS
    (session,) = sessions
    assert sessions.find(cookie) is None
    assert session.has_ended
    assert not len(sessions)


def test_of_many_sessions_those_used_last_stay(sessions: ConsoleSessions) -> None:
    first, second, *_ = [sessions.begin("x", may_change=True) for _ in range(MAX_SESSIONS)]
    sessions.find(first)
    sessions.begin("x", may_change=True)
    assert sessions.find(first) is not None
    assert sessions.find(second) is None
    assert len(sessions) == MAX_SESSIONS


def test_a_revoked_token_takes_its_sessions_with_it(sessions: ConsoleSessions) -> None:
    sessions.begin("token ci", token="ci", may_change=False)
    kept = sessions.begin("token dev", token="dev", may_change=True)
    assert sessions.revoke("ci") == 1
    assert [each.token for each in sessions] == ["dev"]
    assert sessions.find(kept) is not None


def test_ending_all_ends_links_too(sessions: ConsoleSessions) -> None:
    secret = sessions.invite(may_change=True)
    sessions.begin("x", may_change=True)
    assert sessions.end_all() == 1
    assert sessions.enter(secret) is None


def test_notices_are_shown_once_and_are_few(sessions: ConsoleSessions) -> None:
    sessions.begin("x", may_change=True)
    (session,) = sessions
    for number in range(MAX_NOTICES + 1):
        session.tell(Notice(str(number)))
    assert [each.text for each in session.take_notices()] == ["1", "2", "3", "4"]
    assert session.take_notices() == []

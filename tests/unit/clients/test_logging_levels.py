"""A line of a server's log goes to the clients whose level takes it, and its own caller; to nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from daemon.clients.subscribers import LEVELS, LogLevels, rank_in, rank_of
from tests.unit.clients.members import TestMember, raw

if TYPE_CHECKING:
    from msgspec import Raw


class Cause:
    """The request that a line came with."""

    spared_until = 0.0

    def __init__(self, asker: object) -> None:
        self.asker = asker
        self.notices: list[str] = []

    def notified(self, method: str, params: Raw) -> None:
        self.notices.append(method)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Counted(TestMember):
    """A client that counts how often it is looked at."""

    looks = 0

    def sees(self, server: str) -> bool:
        self.looks += 1
        return super().sees(server)


def line(level: str) -> Raw:
    found: Raw = raw({"level": level, "data": {"any": "thing"}})
    return found


def test_each_level_takes_itself_and_what_is_more_urgent() -> None:
    client, levels = TestMember(level=LEVELS.index("error")), LogLevels(lambda: None)
    levels.join(client)
    for level in LEVELS:
        levels.hear("alpha", line(level), None)
    assert [each["level"] for each in client.params()] == list(LEVELS[4:])


def test_who_does_not_see_the_server_or_has_set_nothing_or_is_gone_gets_nothing() -> None:
    levels = LogLevels(lambda: None)
    elsewhere, unset, gone = TestMember(level=0, servers={"beta"}), TestMember(), TestMember(level=0)
    for each in (elsewhere, unset, gone):
        levels.join(each)
    levels.leave(gone)
    levels.hear("alpha", line("emergency"), None)
    assert [each.told for each in (elsewhere, unset, gone)] == [[], [], []]


def test_the_caller_gets_a_line_with_its_call_and_not_once_more() -> None:
    caller, other, levels = TestMember(level=0), TestMember(level=0), LogLevels(lambda: None)
    levels.join(caller)
    levels.join(other)
    cause = Cause(caller)
    levels.hear("alpha", line("info"), cause)
    assert (len(cause.notices), len(caller.told), len(other.told)) == (1, 0, 1)


@pytest.mark.parametrize("params", [{"data": 1}, {"level": "loud"}, {"level": 7}, ["info"]])
def test_a_line_without_a_known_level_goes_to_nobody_who_has_set_one(params: object) -> None:
    client, levels = TestMember(level=0), LogLevels(lambda: None)
    levels.join(client)
    levels.hear("alpha", raw(params), None)
    assert (client.told, rank_in(raw(params))) == ([], None)


def test_the_most_talkative_level_of_those_that_see_a_server_is_wished() -> None:
    changes: list[int] = []
    levels = LogLevels(lambda: changes.append(1))
    assert levels.wished("alpha") is None
    warning, debug = TestMember(level=3), TestMember(level=0, servers={"beta"})
    levels.join(warning)
    levels.join(debug)
    assert (levels.wished("alpha"), levels.wished("beta")) == ("warning", "debug")
    levels.leave(debug)
    assert (levels.wished("alpha"), levels.wished("beta")) == ("warning", "warning")
    levels.leave(warning)
    levels.leave(warning)
    assert (levels.wished("alpha"), len(changes)) == (None, 4)


def test_a_level_that_is_set_again_changes_nothing_and_another_one_takes_its_place() -> None:
    changes: list[int] = []
    client, levels = TestMember(level=3), LogLevels(lambda: changes.append(1))
    levels.join(client)
    levels.join(client)
    client.level = 5
    levels.join(client)
    assert (levels.wished("alpha"), len(changes)) == (LEVELS[5], 2)


def test_the_first_client_that_sees_a_server_settles_its_level() -> None:
    levels = LogLevels(lambda: None)
    clients = [Counted(level=7) for _ in range(100)]
    for each in clients:
        levels.join(each)
    assert levels.wished("alpha") == LEVELS[7]
    assert sum(each.looks for each in clients) == 1


@pytest.mark.parametrize("level", ['"loud"', "7", "null"])
def test_a_level_that_does_not_exist_is_refused(level: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        rank_of(msgspec.Raw(level.encode()))

"""Who listens is connected to, or it is said why not and what to do; and the delays between attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.bridge.ends import (
    FIRST_SECONDS,
    HUNG_UP,
    LONGEST_SECONDS,
    MUTE,
    STABLE_SECONDS,
    TURNED_AWAY,
    Retry,
    reach,
)
from tests.unit.cli.daemons import listen

if TYPE_CHECKING:
    from pathlib import Path


def test_a_connection_never_blocks(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with listen(path):
        link, trouble, nobody_listens = reach(str(path))
        assert link is not None
        assert (trouble, nobody_listens) == ("", False)
        with pytest.raises(BlockingIOError):
            link.recv(1)
        link.close()


@pytest.mark.parametrize(("left", "reason"), [(False, "ENOENT"), (True, "ECONNREFUSED")])
def test_nobody_is_there(sockets: Path, *, left: bool, reason: str) -> None:
    path = sockets / "mcpd.sock"
    if left:
        listen(path).close()
    link, trouble, nobody_listens = reach(str(path))
    assert (link, nobody_listens) == (None, True)
    assert all(part in trouble for part in (str(path), reason, "mcpd run", "--socket P"))


def test_a_full_queue_is_not_waited_for(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with listen(path) as listener:
        listener.listen(0)
        links = [reach(str(path)) for _ in range(3)]
        _, trouble, nobody_listens = links[-1]
        assert ("EAGAIN" in trouble, nobody_listens) == (True, False)
        for link, _, _ in links:
            if link is not None:
                link.close()


def test_every_trouble_says_what_to_do() -> None:
    for text in (TURNED_AWAY, HUNG_UP, MUTE):
        said = text.format(path="/run/x.sock", seconds=60.0)
        assert said.startswith("the daemon at /run/x.sock ")
        assert "`" in said


def test_the_first_attempt_is_made_at_once() -> None:
    assert Retry().delay() == 0.0


def test_delays_double_to_a_bound_and_half_of_each_is_chance() -> None:
    retry = Retry()
    for failure in range(12):
        retry.failed()
        whole = min(LONGEST_SECONDS, FIRST_SECONDS * 2**failure)
        delays = {retry.delay() for _ in range(200)}
        assert all(whole / 2 <= delay <= whole for delay in delays)
        assert len(delays) > 10


def test_they_do_not_overflow_however_long_it_takes() -> None:
    retry = Retry()
    for _ in range(5000):
        retry.failed()
    assert LONGEST_SECONDS / 2 <= retry.delay() <= LONGEST_SECONDS


def test_a_connection_that_lasted_forgives_all_and_a_short_one_all_but_itself() -> None:
    retry = Retry()
    for _ in range(10):
        retry.failed()
    retry.ended(STABLE_SECONDS / 2)
    assert 0 < retry.delay() <= FIRST_SECONDS
    retry.ended(STABLE_SECONDS)
    assert retry.delay() == 0.0

"""Who listens is connected to, or it is said why not and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli.bridging.reaching import HUNG_UP, MUTE, TURNED_AWAY, reach
from tests.cli.daemons import listen

if TYPE_CHECKING:
    from pathlib import Path


def test_a_connection_never_blocks(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with listen(path):
        link, trouble = reach(str(path))
        assert link is not None
        assert trouble == ""
        with pytest.raises(BlockingIOError):
            link.recv(1)
        link.close()


@pytest.mark.parametrize(("left", "reason"), [(False, "ENOENT"), (True, "ECONNREFUSED")])
def test_nobody_is_there(sockets: Path, *, left: bool, reason: str) -> None:
    path = sockets / "mcpd.sock"
    if left:
        listen(path).close()
    link, trouble = reach(str(path))
    assert link is None
    assert all(part in trouble for part in (str(path), reason, "mcpd run", "--socket P"))


def test_a_full_queue_is_not_waited_for(sockets: Path) -> None:
    path = sockets / "mcpd.sock"
    with listen(path) as listener:
        listener.listen(0)
        links = [reach(str(path)) for _ in range(3)]
        assert "EAGAIN" in links[-1][1]
        for link, _ in links:
            if link is not None:
                link.close()


def test_every_trouble_says_what_to_do() -> None:
    for text in (TURNED_AWAY, HUNG_UP, MUTE):
        said = text.format(path="/run/x.sock", seconds=60.0)
        assert said.startswith("the daemon at /run/x.sock ")
        assert "`" in said

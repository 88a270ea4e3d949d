"""Nobody answers: the text says which socket, why, and what to do."""

from __future__ import annotations

import errno
import os

import pytest

from daemon.bridge.unreachable import CLIENTS, OPERATORS, Door, explain


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.ENOTDIR, errno.EAGAIN]
)
@pytest.mark.parametrize("door", [CLIENTS, OPERATORS])
def test_each_reason_is_in_words_and_has_a_remedy(number: int, door: Door) -> None:
    problem, helps = explain("/run/x.sock", OSError(number, os.strerror(number)), door)
    assert problem.startswith("cannot reach the daemon at /run/x.sock: ")
    assert f"({errno.errorcode[number]})" in problem
    assert "mcpd run" in helps
    assert "systemctl --user" in helps


def test_the_reasons_differ() -> None:
    texts = {explain("/p", OSError(n, ""), CLIENTS) for n in (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES)}
    assert len(texts) == 3


def test_the_door_is_named_as_its_commands_name_it() -> None:
    missing = OSError(errno.ENOENT, "")
    assert "--socket P or $MCPD_SOCKET" in "".join(explain("/p", missing, CLIENTS))
    assert "start mcpd.socket" in "".join(explain("/p", missing, CLIENTS))
    assert "--socket P or $MCPD_SOCKET" in "".join(explain("/p", missing, OPERATORS))
    assert "--control P" in "".join(explain("/p", missing, OPERATORS))
    assert "start mcpd.service" in "".join(explain("/p", missing, OPERATORS))


def test_anything_else_is_what_the_system_says() -> None:
    assert "AF_UNIX path too long" in "".join(explain("/p", OSError("AF_UNIX path too long"), CLIENTS))
    assert "No buffer space" in "".join(explain("/p", OSError(errno.ENOBUFS, "No buffer space"), CLIENTS))

"""Nobody answers: the text says which socket, why, and what to do."""

from __future__ import annotations

import errno
import os

import pytest

from daemon.cli.unreachable import CLIENTS, OPERATORS, Door, explain


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.ENOTDIR, errno.EAGAIN]
)
@pytest.mark.parametrize("door", [CLIENTS, OPERATORS])
def test_each_reason_is_in_words_and_has_a_remedy(number: int, door: Door) -> None:
    text = explain("/run/x.sock", OSError(number, os.strerror(number)), door)
    assert text.startswith("cannot reach the daemon at /run/x.sock: ")
    assert f"({errno.errorcode[number]})" in text
    assert "mcpd run" in text
    assert "systemctl --user" in text


def test_the_reasons_differ() -> None:
    texts = {explain("/p", OSError(n, ""), CLIENTS) for n in (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES)}
    assert len(texts) == 3


def test_the_door_is_named_as_its_commands_name_it() -> None:
    missing = OSError(errno.ENOENT, "")
    assert "--socket P or $MCPD_SOCKET" in explain("/p", missing, CLIENTS)
    assert "start mcpd.socket" in explain("/p", missing, CLIENTS)
    assert "--socket P or $MCPD_SOCKET" in explain("/p", missing, OPERATORS)
    assert "--control P" in explain("/p", missing, OPERATORS)
    assert "start mcpd.service" in explain("/p", missing, OPERATORS)


def test_anything_else_is_what_the_system_says() -> None:
    assert "AF_UNIX path too long" in explain("/p", OSError("AF_UNIX path too long"), CLIENTS)
    assert "No buffer space" in explain("/p", OSError(errno.ENOBUFS, "No buffer space"), CLIENTS)

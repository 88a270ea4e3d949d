"""The client's end, of every kind that a client makes: none of them is waited for."""

from __future__ import annotations

import os
import select
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from daemon.bridge.ends import Stdout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1024 * 1024

Ends = tuple[int, int]
"""Where the bridge writes, where the client reads."""


@contextmanager
def ends_of(kind: str) -> Iterator[Ends]:
    """A pipe, a socket or a terminal, which blocks."""
    if kind == "socket":
        ours, theirs = (end.detach() for end in socket.socketpair())
    elif kind == "terminal":
        theirs, ours = os.openpty()
    else:
        theirs, ours = os.pipe()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def read(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(descriptor, count - len(data))
    return data


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_client_is_given_what_it_has_room_for_and_its_descriptor_still_blocks(kind: str) -> None:
    data = os.urandom(4 * MIB)
    with ends_of(kind) as (ours, theirs):
        stdout = Stdout(ours)
        sent = 0
        while taken := stdout.give(data[sent:]):
            sent += taken
        assert select.PIPE_BUF < sent < len(data)
        assert os.get_blocking(ours)
        assert not stdout.gone
        assert read(theirs, sent) == data[:sent]
        assert stdout.give(bytearray(b"more")) == 4
        assert read(theirs, 4) == b"more"


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_nobody_is_given_anything_when_nobody_reads(kind: str) -> None:
    with ends_of(kind) as (ours, theirs):
        stdout = Stdout(ours)
        assert stdout.give(b"one") == 3
        with open(os.devnull, "rb") as nobody:  # noqa: PTH123
            os.dup2(nobody.fileno(), theirs)
        while stdout.give(b"two"):
            pass
        assert stdout.gone


def test_a_terminal_is_given_no_more_at_once_than_it_takes_without_blocking() -> None:
    with ends_of("terminal") as (ours, _theirs):
        stdout = Stdout(ours)
        assert 0 < stdout.give(b"x" * MIB) <= select.PIPE_BUF


def test_a_file_is_given_everything_in_portions(tmp_path: Path) -> None:
    data = os.urandom(3 * select.PIPE_BUF + 1)
    with (tmp_path / "out").open("wb", buffering=0) as file:
        stdout = Stdout(file.fileno())
        sent = 0
        while sent < len(data):
            sent += stdout.give(data[sent:])
    assert (tmp_path / "out").read_bytes() == data

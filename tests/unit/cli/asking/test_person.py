"""Lines that are typed at a terminal, and what ends the wait for one."""

from __future__ import annotations

import io
import os
import pty
from typing import TYPE_CHECKING

import pytest

from daemon.cli.asking.elicitation import Interrupted, Terminal, forget_typed, is_coloured

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def typed() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """A keyboard, and the terminal's end of it."""
    keyboard, screen = pty.openpty()
    with open(screen, encoding="utf-8") as stdin:  # noqa: PTH123 - a descriptor
        yield keyboard, stdin
    os.close(keyboard)


def test_a_line_is_what_was_typed(typed: tuple[int, io.TextIOWrapper]) -> None:
    keyboard, stdin = typed
    stderr = io.StringIO()
    person = Terminal(stdin, stderr, colour=False)
    os.write(keyboard, "Ada Lövelace\nnext\n".encode() + b"\xff\n")
    assert [person.line("name: "), person.line("> "), person.line("> ")] == ["Ada Lövelace", "next", "\ufffd"]
    assert stderr.getvalue() == "name: > > "


def test_ctrl_d_breaks_it_off(typed: tuple[int, io.TextIOWrapper]) -> None:
    keyboard, stdin = typed
    os.write(keyboard, b"\x04")
    with pytest.raises(Interrupted):
        Terminal(stdin, io.StringIO(), colour=False).line("> ")


def test_what_happens_meanwhile_may_end_the_wait(typed: tuple[int, io.TextIOWrapper]) -> None:
    here, there = os.pipe()
    os.write(there, b"x")

    def ends() -> None:
        raise EOFError(os.read(here, 1))

    person = Terminal(typed[1], io.StringIO(), colour=False, meanwhile=(here, ends))
    with pytest.raises(EOFError):
        person.line("> ")
    os.close(here)
    os.close(there)


def test_ctrl_c_breaks_it_off(typed: tuple[int, io.TextIOWrapper]) -> None:
    here, there = os.pipe()
    os.write(there, b"x")

    def interrupted() -> None:
        raise KeyboardInterrupt

    person = Terminal(typed[1], io.StringIO(), colour=False, meanwhile=(here, interrupted))
    with pytest.raises(Interrupted):
        person.line("> ")
    os.close(here)
    os.close(there)


def test_what_was_typed_before_a_question_is_forgotten(typed: tuple[int, io.TextIOWrapper]) -> None:
    keyboard, stdin = typed
    os.write(keyboard, b"early\n")
    forget_typed(stdin)
    os.write(keyboard, b"late\n")
    assert Terminal(stdin, io.StringIO(), colour=False).line("> ") == "late"


def test_bold_is_only_for_terminals_that_want_it(typed: tuple[int, io.TextIOWrapper]) -> None:
    stdin = typed[1]
    assert Terminal(stdin, io.StringIO(), colour=True).loud("x") == "\x1b[1mx\x1b[0m"
    assert Terminal(stdin, io.StringIO(), colour=False).loud("x") == "x"
    assert is_coloured(stdin, {})
    assert not is_coloured(stdin, {"NO_COLOR": "1"})
    assert not is_coloured(stdin, {"TERM": "dumb"})
    assert not is_coloured(io.StringIO(), {})

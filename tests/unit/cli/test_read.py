"""`mcpd read`: what a resource holds, as it is, and never binary on a terminal."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.control import CommandFailed
from daemon.cli.use import Part, parts_of, show_parts, write_parts
from tests.unit.cli.daemons import asked_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls

main = implementation("read").main

TEXT: dict[str, Any] = {"contents": [{"uri": "x:t", "mimeType": "text/plain", "text": "a\x1b[2J\nb"}]}
BLOB: dict[str, Any] = {"contents": [{"uri": "x:b", "mimeType": "image/png", "blob": "AAEC"}]}


def test_a_text_is_printed_as_it_is(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"read": TEXT, "locate": {"server": "fs", "uri": "own:t"}})
    assert main(["fs/x:t", "-q"]) == 0
    assert capsys.readouterr() == ("a\x1b[2J\nb", "")
    assert main(["x:t", "-q"]) == 0
    assert asked_for(daemon.asked) == [
        ("read", {"server": "fs", "uri": "x:t"}),
        ("locate", {"uri": "x:t"}),
        ("read", {"server": "fs", "uri": "own:t"}),
    ]


def test_bytes_go_to_a_file(control: Controls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control({"read": BLOB})
    assert main(["fs/x:b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == BLOB
    place = tmp_path / "out"
    assert main(["fs/x:b", "--output", str(place)]) == 0
    assert place.read_bytes() == b"\0\1\2"
    assert capsys.readouterr() == ("", f"{place}: x:b (image/png, 3 bytes)\n")
    assert main(["fs/x:b", "--output", str(tmp_path / "no" / "out")]) == 1
    assert "cannot write" in capsys.readouterr().err


class Stream(io.TextIOWrapper):
    """A stdout that is a terminal, or is not."""

    def __init__(self, *, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        """As told."""
        return self._terminal

    def got(self) -> bytes:
        """All that was written."""
        self.flush()
        return self.bytes.getvalue()


def test_a_terminal_gets_control_characters_spelt_out_and_no_bytes() -> None:
    terminal = Stream(terminal=True)
    show_parts(parts_of(TEXT), terminal)
    assert terminal.got() == b"a\\x1b[2J\nb\n"
    with pytest.raises(CommandFailed, match=r"x:b \(image/png, 3 bytes\) is binary: --output FILE"):
        show_parts(parts_of(BLOB), Stream(terminal=True))


def test_a_pipe_gets_bytes_as_they_are() -> None:
    pipe = Stream(terminal=False)
    show_parts(parts_of(BLOB), pipe)
    assert pipe.got() == b"\0\1\2"


def test_several_contents_are_named() -> None:
    pipe = Stream(terminal=False)
    show_parts([*parts_of(TEXT), Part("x:é", "", "c\n")], pipe)
    wanted = "==> x:t (text/plain, 7 bytes) <==\na\x1b[2J\nb\n==> x:é (text, 2 bytes) <==\nc\n"
    assert pipe.got().decode() == wanted


def test_several_contents_go_to_files_beside_each_other(tmp_path: Path) -> None:
    write_parts([*parts_of(TEXT), *parts_of(BLOB)], tmp_path / "out")
    assert (tmp_path / "out").read_text() == "a\x1b[2J\nb"
    assert (tmp_path / "out.2").read_bytes() == b"\0\1\2"


@pytest.mark.parametrize(
    "result", [{}, {"contents": [7]}, {"contents": [{"uri": "x"}]}, {"contents": [{"uri": "x", "blob": "?"}]}]
)
def test_an_answer_without_contents_is_said_to_be_one(
    result: dict[str, Any], control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"read": result})
    assert main(["fs/x:b"]) == 1
    assert "--json shows the answer" in capsys.readouterr().err

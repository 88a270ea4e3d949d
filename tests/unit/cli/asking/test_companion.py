"""What the daemon sends before its answer: progress that is shown, questions that are asked, and their end."""

import argparse
import io
import json
import os
import pty
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.cli.asking.companion import CallCompanion, Progress, converse, pages_of
from daemon.cli.asking.elicitation import Interrupted, Terminal
from daemon.cli.control import Companion, RemoteFault, Wire
from daemon.cli.table import implementation
from tests.unit.cli.conftest import Controls
from tests.unit.cli.daemons import asked_for

Json = dict[str, Any]

SECONDS = 30.0
FORM: Json = {
    "method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object",
    "properties": {"name": {"type": "string"}}}},
}  # fmt: skip


@attrs.define(slots=False)
class Scene:
    """A person at a keyboard, and the daemon at the other end of a connection."""

    keyboard: int
    stdin: io.TextIOWrapper
    daemon: socket.socket
    wire: Wire
    stderr: io.StringIO = attrs.field(factory=io.StringIO)

    def companion(self, **changed: Any) -> CallCompanion:
        """One with a person."""
        given: Json = {"stdin": self.stdin, "stderr": self.stderr, "progress": None}
        return CallCompanion("alpha", **{**given, **changed})

    def says(self, *messages: Json) -> None:
        """The daemon sends messages in one write."""
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages]
        self.daemon.sendall(b"".join(lines))

    def heard(self) -> Json:
        """What the daemon gets."""
        message: Json = json.loads(self.daemon.makefile("rb").readline())
        return message

    def next(self) -> Json:
        """The next message of the daemon's."""
        return self.wire.next(time.monotonic() + SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    keyboard, screen = pty.openpty()
    ours, theirs = socket.socketpair()
    theirs.settimeout(SECONDS)
    with ours, theirs, open(screen, encoding="utf-8") as stdin:  # noqa: PTH123 - a descriptor
        yield Scene(keyboard, stdin, theirs, Wire(ours))
    os.close(keyboard)


def test_progress_is_shown_takes_no_time_of_a_person_and_ends_with_the_call(scene: Scene) -> None:
    progress = Progress(scene.stderr, columns=None, clock=time.monotonic)
    report = {"method": "notifications/progress", "params": {"progress": 1, "total": 2}}
    assert scene.companion(progress=progress).take(report, scene.wire) == 0
    assert scene.stderr.getvalue() == "mcpd: 1 of 2\n"
    scene.companion().take({"method": "notifications/other", "params": []}, scene.wire)
    bar = scene.companion(progress=Progress(scene.stderr, columns=80, clock=time.monotonic))

    def call(companion: Companion) -> Json:
        companion(report, scene.wire)
        assert scene.stderr.getvalue().endswith("50 %")
        return {}

    assert bar.conversing(options(), call) == {}
    assert scene.stderr.getvalue().endswith("\r\x1b[K")


def test_a_question_is_answered_on_the_connection(scene: Scene) -> None:
    scene.says({"id": 5, **FORM})
    message = scene.next()
    # What is typed before a question is asked counts for nothing, so all of it comes with the end of the input.
    os.write(scene.keyboard, b"early\n")
    reader = Typist(scene, "Ada", "y")
    spent = scene.companion(stderr=reader).take(message, scene.wire)
    assert spent > 0
    accepted = {"action": "accept", "content": {"name": "Ada"}}
    assert scene.heard() == {"jsonrpc": "2.0", "id": 5, "result": accepted}


class Typist(io.StringIO):
    """A screen; whenever a question ends with a blank, its person types the next line."""

    def __init__(self, scene: Scene, *lines: str, ends: tuple[str, ...] = (": ", "] ")) -> None:
        super().__init__()
        self._ends = ends
        self._scene = scene
        self._lines = list(lines)

    def write(self, text: str) -> int:
        """Show it; type if it is a question."""
        if text.endswith(self._ends) and self._lines:
            os.write(self._scene.keyboard, self._lines.pop(0).encode() + b"\n")
        return super().write(text)


def test_the_end_of_the_call_ends_its_questions(scene: Scene) -> None:
    scene.says({"id": 5, **FORM}, {"id": 6, **FORM}, {"id": 1, "result": {}})
    scene.companion().take(scene.next(), scene.wire)
    assert "the call ended before this was answered" in scene.stderr.getvalue()
    assert scene.next() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_withdrawn_question_is_not_asked_after_the_one_before_it(scene: Scene) -> None:
    scene.says(
        {"id": 5, **FORM}, {"id": 6, **FORM}, {"method": "notifications/cancelled", "params": {"requestId": 6}}
    )
    scene.companion(stderr=Typist(scene, "Ada", "y")).take(scene.next(), scene.wire)
    scene.says({"id": 1, "result": {}})
    assert scene.next() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_roots_are_those_that_were_named(scene: Scene, tmp_path: Path) -> None:
    companion = scene.companion(roots=[tmp_path])
    assert set(companion.capabilities) == {"elicitation", "roots"}
    companion.take({"id": 5, "method": "roots/list"}, scene.wire)
    assert scene.heard()["result"] == {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]}


def test_what_nobody_here_can_answer_is_refused(scene: Scene) -> None:
    for method in ("sampling/createMessage", "roots/list", "whatever"):
        scene.companion().take({"id": 5, "method": method, "params": {}}, scene.wire)
        assert scene.heard()["error"]["code"] == -32601
    companion = scene.companion(stdin=None)
    assert companion.capabilities == {}
    companion.take({"id": 5, **FORM}, scene.wire)
    assert scene.heard()["result"] == {"action": "decline"}


def options(*words: str) -> argparse.Namespace:
    line = ["alpha/echo", *words, "--control", os.environ.get("MCPD_CONTROL", ""), "--timeout", str(SECONDS)]
    return argparse.Namespace(**vars(implementation("call").make_parser().parse_args(line)) | {"profile": None})


def test_where_nobody_looks_no_progress_is_asked_for(control: Controls) -> None:
    daemon = control({"call": {}})
    for words in ((), ("-q",), ("--json",)):
        assert converse(options(*words), "alpha", "call", {"a": 1}) == {}
    assert [params for _, params in asked_for(daemon.asked)] == [{"a": 1, "progress": True}, {"a": 1}, {"a": 1}]


def test_a_modern_server_is_asked_again_with_the_answers(control: Controls) -> None:
    asks = {"resultType": "input_required", "inputRequests": {"k": FORM}, "requestState": "s"}
    daemon = control({"call": asks})
    with pytest.raises(RemoteFault, match="server alpha has asked questions 20 times without an answer"):
        converse(options("-q"), "alpha", "call", {"a": 1})
    again = {"a": 1, "inputResponses": {"k": {"action": "decline"}}, "requestState": "s"}
    assert [params for _, params in asked_for(daemon.asked)] == [{"a": 1}, *[again] * 19]


def refused_for(pages: object) -> Json:
    upstream = {"code": -32042, "message": "log in first", "data": {"elicitations": pages}}
    return {"isError": True, "structuredContent": {"error": {"upstream": upstream}}}


def test_pages_are_opened_before_a_call_is_made_again(scene: Scene) -> None:
    pages = pages_of(refused_for([{"url": "https://example.org/", "message": "Log in"}, 7]))
    assert len(pages) == 1
    asked = Typist(scene, "m", "", ends=("] ", "repeated. "))
    assert scene.companion(stderr=asked).visits(pages)
    assert "asks you to open a page: Log in" in asked.getvalue()
    assert not scene.companion(stderr=Typist(scene, "n")).visits(pages)
    assert not scene.companion(stdin=None).visits(pages)
    assert not scene.companion().visits(pages_of(refused_for(None)))


def test_questions_need_a_terminal_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert CallCompanion.of(options(), "alpha").capabilities == {}
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert set(CallCompanion.of(options(), "alpha").capabilities) == {"elicitation"}
    assert CallCompanion.of(options("--no-input"), "alpha").capabilities == {}
    assert set(CallCompanion.of(options("--no-input", "--root", "."), "alpha").capabilities) == {"roots"}


# --- lines that are typed at a terminal, and what ends the wait for one --------------------------------------


def test_a_line_is_what_was_typed_until_ctrl_d_or_ctrl_c(scene: Scene) -> None:
    person = Terminal(scene.stdin, scene.stderr, colour=False)
    os.write(scene.keyboard, "Ada Lövelace\nnext\n".encode() + b"\xff\n")
    assert [person.line("name: "), person.line("> "), person.line("> ")] == ["Ada Lövelace", "next", "\ufffd"]
    assert scene.stderr.getvalue() == "name: > > "
    os.write(scene.keyboard, b"\x04")
    with pytest.raises(Interrupted):
        person.line("> ")

    def interrupted() -> None:
        raise KeyboardInterrupt

    scene.says({})
    person = Terminal(scene.stdin, scene.stderr, colour=False, meanwhile=(scene.wire.fileno(), interrupted))
    with pytest.raises(Interrupted):
        person.line("> ")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_question_that_is_taken_back_is_not_answered(scene: Scene, at_once: bool) -> None:
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 5}}
    later = {"id": 6, **FORM}
    if at_once:
        scene.says({"id": 5, **FORM}, later, cancel)
        message = scene.next()
    else:
        scene.says({"id": 5, **FORM})
        message = scene.next()
        scene.says(later, cancel)
    scene.companion().take(message, scene.wire)
    assert "the server no longer wants an answer" in scene.stderr.getvalue()
    # What came meanwhile is not lost.
    assert scene.next()["id"] == 6

"""One question, one answer, and every way in which that fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import control as client
from daemon.cli import implementation
from daemon.cli.control import DaemonUnreachable, RemoteFault, ask, guarded
from tests.unit.cli.daemons import SILENCE, fake_control, listen
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls

COMMANDS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "calls": ([], "calls", {"inFlight": [], "inFlightMore": 0, "recent": []}), "call": (["git/log"], "call",
    {"content": []}), "disable": (["git"], "switch", {"server": "git"}), "enable": (["git"], "switch",
    {"server": "git"}), "metrics": ([], "metrics", {"text": ""}), "refresh": (["git"], "refresh",
    {"servers": {}}), "reload": ([], "reload", {"added": ["git"]}), "restart": (["git"], "restart",
    {"server": "git"}), "search": (["log"], "search", {"tools": [{"name": "log"}]}), "sessions": ([],
    "sessions", {"sessions": []}), "tools": ([], "tools", {"categories": {}}),
}  # fmt: skip
"""Commands that ask the daemon: arguments, the method that each asks, and an answer."""


def question(path: Path, answer: Any, timeout: float = PATIENCE) -> dict[str, Any]:
    with fake_control(path / "c", {"status": answer}) as daemon:
        try:
            return ask("status", {"a": 1}, path=str(path / "c"), timeout=timeout)
        finally:
            assert daemon.asked == [("status", {"a": 1})]


def test_bytes_of_the_command_line_that_are_no_text_are_replaced(sockets: Path) -> None:
    with fake_control(sockets / "c", {"sessions": {}}) as daemon:
        ask("sessions", {"key": "k\udcff \udcc3\udcbc"}, path=str(sockets / "c"), timeout=PATIENCE)
        assert daemon.asked == [("sessions", {"key": "k\ufffd ü"})]


def test_an_answer_may_be_larger_than_one_read(sockets: Path) -> None:
    large = {"text": "x" * 3_000_000}
    assert question(sockets, large) == large


def test_what_is_not_the_answer_is_passed_over(sockets: Path) -> None:
    lines = [
        {"jsonrpc": "2.0", "method": "note"},
        {"jsonrpc": "2.0", "id": 7, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {"yes": True}},
    ]
    assert question(sockets, b"".join(json.dumps(line).encode() + b"\n" for line in lines)) == {"yes": True}


def test_an_error_is_raised_with_all_it_says(sockets: Path) -> None:
    with pytest.raises(RemoteFault, match="no server 'gti'") as raised:
        question(sockets, {"error": {"code": -32602, "message": "no server 'gti'", "data": [1]}})
    assert (raised.value.code, raised.value.data) == (-32602, [1])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", r"closed the connection without an answer: .*listen\.servers"),
        (b'{"jsonrpc":"2.0","id":1,"resu', "closed the connection without an answer"),
        (b"220 smtp ready\n", "not mcpd's control socket"),
        (b"[]\n", "not mcpd's control socket"),
        (b'{"id":1,"result":3}\n', "not mcpd's control socket"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b"\xff\xfe\xfd\n", "not mcpd's control socket"),
    ],
)
def test_what_does_not_speak_our_protocol_is_no_daemon(sockets: Path, answer: bytes, text: str) -> None:
    with pytest.raises(DaemonUnreachable, match=text):
        question(sockets, answer)


def test_a_daemon_that_does_not_know_the_command_is_of_another_version(sockets: Path) -> None:
    refusal = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found: status"}}
    with pytest.raises(RemoteFault, match=r"does not know `status`: it is of another version .* `mcpd stop`"):
        question(sockets, json.dumps(refusal).encode() + b"\n")


def test_silence_is_bounded(sockets: Path) -> None:
    with pytest.raises(DaemonUnreachable, match=r"did not answer `status` within 0\.1 s"):
        question(sockets, SILENCE, timeout=0.1)


def test_an_answer_without_end_is_bounded(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 1024 * 1024)
    with pytest.raises(DaemonUnreachable, match="larger than 1 MiB"):
        question(sockets, b"x" * 3_000_000)


def test_nobody_there_is_explained(sockets: Path) -> None:
    with pytest.raises(DaemonUnreachable, match="ENOENT"):
        ask("status", {}, path=str(sockets / "none"), timeout=1)
    listen(sockets / "left").close()
    with pytest.raises(DaemonUnreachable, match="ECONNREFUSED"):
        ask("status", {}, path=str(sockets / "left"), timeout=1)
    with pytest.raises(DaemonUnreachable, match="too long"):
        ask("status", {}, path=str(sockets / ("x" * 200)), timeout=1)


def refuse() -> int:
    raise RemoteFault(-32602, "no \x1b[31mserver")


def vanish() -> int:
    raise DaemonUnreachable("cannot reach it")


def test_guarded_turns_failures_into_texts_and_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: 7) == 7
    assert guarded(refuse) == 1
    assert guarded(vanish) == 3
    assert capsys.readouterr().err == "mcpd: no \\x1b[31mserver\nmcpd: cannot reach it\n"


def test_a_daemon_that_leaves_something_out_is_of_another_version(
    sockets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer: dict[str, Any] = {"result": {}}

    def read() -> int:
        return int(question(sockets, answer)["servers"])

    assert guarded(read) == 1
    assert capsys.readouterr().err.startswith(
        "mcpd: the daemon's answer lacks 'servers': it is of another version"
    )


def run(command: str, *more: str) -> int:
    code: int = implementation(command).main([*COMMANDS[command][0], *more])
    return code


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_daemon_a_command_ends_with_three_and_says_what_to_do(
    command: str, sockets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--control", str(sockets / "none")) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "cannot reach the daemon" in told.err
    assert "mcpd run" in told.err


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_daemon_refuses_ends_with_one_and_the_daemons_words(
    command: str, control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "no server 'gti': did you mean 'git'?"
    control({COMMANDS[command][1]: {"error": {"code": -32602, "message": text}}})
    assert run(command) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"mcpd: {text}\n")


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "metrics"])
def test_json_is_the_answer_as_the_daemon_gave_it(
    command: str, control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    _, method, answer = COMMANDS[command]
    control({method: answer})
    assert run(command, "--json") == 0
    assert json.loads(capsys.readouterr().out) == answer

"""`mcpd check`: 0 or 78, and every fault with its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from daemon.cli.local_commands import CHECK

if TYPE_CHECKING:
    from pathlib import Path

main = CHECK.main

GOOD = """{"mcpServers": {"sh": {"command": "/bin/sh", "description": "A shell."}},
 "categories": {"c": {"description": "C.", "server": "sh"}}}"""
UNWISE = '{"mcpServers": {"a": {"command": "no-such-program-here"}}}'
BAD = '{"mcpServers": {"git": {"comand": "x"}, "b": {"command": 3}}, "categories": {"c": {"server": "gti"}}}'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mcpd.json"
    monkeypatch.setenv("MCPD_CONFIG", str(path))
    return path


def test_a_good_configuration_is_zero(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD)
    assert main([str(file)]) == 0
    assert capsys.readouterr() == ("OK: 1 server, 1 category\n", "")


def test_the_default_is_the_daemons(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('{"mcpServers": {}}')
    assert main([]) == 0
    assert capsys.readouterr().out == "OK: 0 servers, each a category\n"


def test_every_fault_is_told_with_its_place_and_is_78(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(BAD)
    assert main([str(file)]) == 78
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{file}: 3 faults\n")
    assert "  line 1, column 25: $.mcpServers.git.comand: unknown key 'comand': did you mean 'command'?" in err
    assert "$.mcpServers.b.command: expected text" in err
    assert "did you mean 'git'?" in err


def test_faults_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(BAD)
    assert main([str(file), "--json"]) == 78
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["source"], len(said["faults"])) == (False, str(file), 3)
    assert [(fault["path"], fault["line"], fault["column"]) for fault in said["faults"]] == [
        ("$.mcpServers.git.comand", 1, 25),
        ("$.mcpServers.b.command", 1, 47),
        ("$.categories.c.server", 1, 84),
    ]


def test_a_warning_does_not_fail(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(UNWISE)
    assert main([str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == "OK: 1 server, each a category\n"
    assert err.startswith(
        "warning: line 1, column 23: $.mcpServers.a.command: no-such-program-here is not on the PATH"
    )


def test_a_server_beside_the_configuration_is_told_where_it_is_started(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "server.here").touch()
    file.write_text('{"mcpServers": {"a": {"command": "/bin/sh", "args": ["server.here"]}}}')
    assert main([str(file)]) == 0
    told = "warning: line 1, column 54: $.mcpServers.a.args[0]: 'server.here' begins in the home dir"
    assert told in capsys.readouterr().err


def test_what_is_understood_is_a_note_and_what_doctor_would_say_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        """{
  "mcpServers": {
    "My Shell": {"command": "/bin/sh -e", "cwd": "/", "description": "A shell.", "timeout": 30000},
    "b": {"command": "sh", "cwd": "gone", "description": "Another.", "disabled": false}
  }
}"""
    )
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out == "OK: 2 servers, each a category\n"
    shell = '$.mcpServers["My Shell"]'
    assert err.splitlines() == [
        (
            f"note: line 3, column 5: {shell}: called 'my-shell', and this name is its title; in this file both"
            " stand for it"
        ),
        f"note: line 3, column 82: {shell}.timeout: understood as `timeouts.call` of 30000 milliseconds",
        'note: line 4, column 70: $.mcpServers.b.disabled: understood as "enabled": true',
        (
            f"warning: line 3, column 18: {shell}.command: there is no program /bin/sh -e: its arguments stand"
            ' in `command`. Write "command": "/bin/sh", "args": ["-e"]'
        ),
        (
            f"warning: line 4, column 28: $.mcpServers.b.cwd: its directory {file.parent}/gone is not there."
            " Make it, or correct `cwd`"
        ),
    ]


def test_warnings_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(UNWISE)
    assert main([str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["servers"], said["categories"], said["faults"]) == (True, 1, 0, [])
    assert [warning["path"] for warning in said["warnings"]] == ["$.mcpServers.a.command", "$.mcpServers.a"]


def test_a_missing_file_is_78(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 78
    err = capsys.readouterr().err
    assert "there is no such file" in err
    assert "`mcpd up`" in err


def test_what_the_file_says_is_escaped(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('{"mcpServers": {}, "\\u001b[2J": 1}')
    assert main([]) == 78
    assert "\x1b" not in capsys.readouterr().err


def test_the_file_may_be_named_as_everywhere_else(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD)
    assert main(["--config", str(file)]) == 0
    with pytest.raises(SystemExit):
        main([str(file), "--config", str(file)])
    assert "name one configuration" in capsys.readouterr().err

"""`mcpd check`: 0 or 78, and every finding with its place."""

import json
from pathlib import Path

import pytest

from daemon.cli.table import implementation
from tests.printing import err_of, out_of
from tests.unit.cli.conftest import Captured

main = implementation("check").main

GOOD = """{"mcpServers": {"sh": {"command": "/bin/sh", "description": "A shell."}},
 "categories": {"c": {"description": "C.", "server": "sh"}}}"""
UNWISE = '{"mcpServers": {"a": {"command": "no-such-program-here"}}}'
BAD = '{"mcpServers": {"git": {"comand": "x"}, "b": {"command": 3}}, "categories": {"c": {"server": "gti"}}}'
NOTED = """{
  "mcpServers": {
    "My Shell": {"command": "/bin/sh -e", "cwd": "/", "description": "A shell.", "timeout": 30000},
    "b": {"command": "sh", "cwd": "gone", "description": "Another.", "disabled": false}
  }
}"""
SHELL = '$.mcpServers["My Shell"]'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mcpd.json"
    monkeypatch.setenv("MCPD_CONFIG", str(path))
    return path


@pytest.mark.parametrize("words", [[], ["FILE"], ["--config", "FILE"]])
def test_a_good_configuration_is_zero_however_it_is_named(
    file: Path, capsys: Captured, words: list[str]
) -> None:
    file.write_text(GOOD)
    assert main([str(file) if word == "FILE" else word for word in words]) == 0
    assert capsys.readouterr() == (f"OK: 1 server, 1 category: {file}\n", "")
    with pytest.raises(SystemExit):
        main([str(file), "--config", str(file)])
    assert "name one configuration" in capsys.readouterr().err


def test_every_fault_has_its_place_and_is_78(file: Path, capsys: Captured) -> None:
    file.write_text(BAD)
    assert main([str(file)]) == 78
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"{file}: 3 faults\n")) == ("", True)
    assert err.endswith(f"`mcpd doctor --config {file}` names the commands that help.\n")
    assert "  line 1, column 25: $.mcpServers.git.comand: unknown key 'comand': did you mean 'command'?" in err
    said = json.loads(out_of(capsys, main([str(file), "--json"]), 78))
    assert (said["ok"], said["source"]) == (False, str(file))
    assert [(fault["path"], fault["line"], fault["column"]) for fault in said["faults"]] == [
        ("$.mcpServers.git.comand", 1, 25),
        ("$.mcpServers.b.command", 1, 47),
        ("$.categories.c.server", 1, 84),
    ]


def test_warnings_and_notes_do_not_fail(file: Path, capsys: Captured) -> None:
    file.write_text(NOTED)
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert out == f"OK: 2 servers, each a category: {file}\n"
    lines = [
        f"note: line 3, column 5: {SHELL}: renamed to 'my-shell'",
        f"note: line 3, column 82: {SHELL}.timeout: understood as `timeouts.call` of 30000 milliseconds",
        'note: line 4, column 70: $.mcpServers.b.disabled: understood as "enabled": true',
        f"warning: line 3, column 18: {SHELL}.command: there is no program /bin/sh -e",
        f"warning: line 4, column 28: $.mcpServers.b.cwd: its directory {file.parent}/gone does not exist.",
    ]
    assert all(line.startswith(begin) for line, begin in zip(err.splitlines(), lines, strict=True))
    (file.parent / "server.here").touch()
    file.write_text('{"mcpServers": {"a": {"command": "/bin/sh", "args": ["server.here"]}}}')
    main([])
    assert "$.mcpServers.a.args[0]: 'server.here' does not exist in the home dir" in capsys.readouterr().err
    file.write_text(UNWISE)
    said = json.loads(out_of(capsys, main(["--json"])))
    assert (said["ok"], said["servers"], said["categories"], said["faults"]) == (True, 1, 0, [])
    assert [warning["path"] for warning in said["warnings"]] == ["$.mcpServers.a.command", "$.mcpServers.a"]


def test_a_missing_file_is_78_and_a_hostile_one_is_escaped(file: Path, capsys: Captured) -> None:
    err = err_of(capsys, main([]), 78)
    assert "there is no such file" in err
    assert "`mcpd up`" in err
    file.write_text('{"mcpServers": {}, "\\u001b[2J": 1}')
    assert "\x1b" not in err_of(capsys, main([]), 78)

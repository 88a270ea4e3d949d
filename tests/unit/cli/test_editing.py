"""Keys of the configuration, set and removed by a command: what is written, and what is refused."""

import argparse
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import editing, implementation, taking_effect
from daemon.config.jsonc import decode
from daemon.setup.drafts import EX_MEANWHILE, Draft
from daemon.setup.settings import SettingsEdit
from tests.printing import err_of, out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import down, status_of

WRITTEN = """{
  // mine
  "mcpServers": {
    "time": {"command": "uvx", "args": [/* two */ "--with", "mcp<2", "time"], "env": {"A": "1"}}, // kept
    "web": {"url": "https://example.com/mcp", "trust": "all"},
  },
  "profiles": {"default": {"lazy": true}},
}
"""
KEY = "k-83hd82hd8xQ2"
OTHER = "k-5Tq9zX41mBv7"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = tmp_path / "mcpd.json"
    made.write_text(WRITTEN)
    made.chmod(0o600)
    return made


def told(config: Path, *words: str) -> int:
    status: int = implementation(words[0]).main([*words[1:], "--config", str(config), "--no-reload"])
    return status


@cases("line", "before", "after")
def test_a_key_is_written_or_removed_with_what_it_leaves_empty_and_all_else_stays(
    line: str, before: str, after: str, config: Path
) -> None:
    assert told(config, *line.split()) == 0
    assert config.read_text() == WRITTEN.replace(before, after)


@cases("written")
def test_one_argument_of_a_whole_command_line_is_changed_and_removed(written: str, config: Path) -> None:
    config.write_text(f'{{"mcpServers": {{"time": {{{written}}}}}}}')
    assert told(config, "set", "time", "start=lazy") == 0
    assert written in config.read_text()
    assert told(config, "set", "time", "args[0]=clock") == 0
    entry = json.loads(config.read_text())["mcpServers"]["time"]
    assert entry == {"command": "uvx", "args": ["clock", "--x"], "start": "lazy"}
    config.write_text(f'{{"mcpServers": {{"time": {{{written}}}}}}}')
    assert told(config, "unset", "time", "args[1]") == 0
    assert json.loads(config.read_text())["mcpServers"]["time"] == {"command": "uvx", "args": ["time"]}


@cases("words", "status", "said")
def test_a_fault_is_told_with_its_place_and_nothing_is_written(
    words: str, status: int, said: str, config: Path, capsys: Captured
) -> None:
    own = config.parent / "profiles.d"
    own.mkdir(mode=0o700)
    (own / "own.json").write_text("{}")
    (own / "own.json").chmod(0o600)
    assert said in err_of(capsys, told(config, *words.split()), status)
    assert config.read_text() == WRITTEN
    assert not config.with_name("env").exists()


def test_an_entry_that_is_no_object_has_no_arguments(config: Path, capsys: Captured) -> None:
    config.write_text('{"mcpServers": {"time": "uvx time"}}')
    said = err_of(capsys, told(config, "unset", "time", "args[0]"), 1)
    assert "there is no $.mcpServers.time.args[0] in " in said


def test_words_that_name_no_key_are_a_wrong_usage(config: Path, capsys: Captured) -> None:
    for key in ("", "=lazy", "a..b=1", "a[x]=1"):
        with pytest.raises(SystemExit):
            told(config, "set", "time", key)
        assert "write a key as in timeouts.call" in capsys.readouterr().err


def test_a_removed_server_leaves_its_data_and_what_others_use_with_the_commands(
    config: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(config.parent))
    monkeypatch.setenv("MCPD_CONTROL", str(config.parent / "none"))
    for name in ("time/data", "web/caches/lib"):
        (made := config.parent / "mcpd" / "servers" / name).mkdir(parents=True)
        (made / "a").write_text("x" * 2048)
        made.chmod(0o555)
    own = config.parent / "mcpd" / "servers"
    said = err_of(capsys, implementation("remove").main(["time", "web", "--config", str(config)]))
    for line in (
        "time stays in a cache that other programs share: `uv cache clean time`",
        f"its data stays: `rm -r {own}/time` deletes that",
        f"deleted its own caches, 2K: {own}/web/caches",
    ):
        assert f"mcpd: {line}\n" in said, said
    assert {*own.iterdir()} == {own / "time"}


def test_a_secret_is_kept_apart_replaced_there_and_shown_nowhere(config: Path, capsys: Captured) -> None:
    env = config.with_name("env")
    assert told(config, "set", "time", f"env.API_TOKEN={KEY}", "--dry-run") == 0
    assert not env.exists()
    assert told(config, "set", "time", f"env.API_TOKEN={KEY}", "start=lazy") == 0
    assert env.read_text() == f"TIME__API_TOKEN={KEY}\n"
    assert '"API_TOKEN": "${TIME__API_TOKEN}"' in config.read_text()
    assert told(config, "set", "time", f"env.API_TOKEN={OTHER}") == 0
    assert env.read_text() == f"TIME__API_TOKEN={OTHER}\n"
    # Others refer to it now.
    assert told(config, "set", "time", "env.MORE=${TIME__API_TOKEN}") == 0
    assert told(config, "set", "time", f"env.API_TOKEN={KEY}") == 0
    assert env.read_text() == f"TIME__API_TOKEN={OTHER}\nTIME__API_TOKEN_2={KEY}\n"
    assert told(config, "unset", "time", "env.API_TOKEN") == 0
    assert told(config, "set", ".", f"listen.http.tokens={KEY}{OTHER}", "--dry-run") == 0
    said = "".join(capsys.readouterr())
    assert (KEY in said, OTHER in said) == (False, False)
    spare = f"TIME__API_TOKEN_2, which nothing else uses, stays in {env}"
    assert f"{spare}: `MCPD_CONFIG={config} mcpd secret remove TIME__API_TOKEN_2` deletes it" in said
    assert '"tokens": "[redacted]"' in said
    assert f"kept in {env}, for you only: TIME__API_TOKEN" in said


def test_a_variable_that_an_entry_refers_to_outside_of_its_env_is_stored_and_the_entry_stays(
    config: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    refers = WRITTEN.replace('"trust": "all"', '"headers": {"Authorization": "Bearer ${WEB_KEY}"}')
    config.write_text(refers)
    assert told(config, "set", "web", f"env.WEB_KEY={KEY}") == 0
    assert config.with_name("env").read_text() == f"WEB_KEY={KEY}\n"
    assert config.read_text() == refers
    out, err = capsys.readouterr()
    assert f"kept in {config.with_name('env')}, for you only: WEB_KEY" in err
    assert told(config, "set", "web", f"env.WEB_KEY={OTHER}") == 0
    assert config.with_name("env").read_text() == f"WEB_KEY={OTHER}\n"
    assert config.read_text() == refers
    assert "undo" not in capsys.readouterr().out
    variable, _, *undo = re.findall("undo: `(.*)`", out)[0].split()
    monkeypatch.setitem(os.environ, *variable.split("="))
    assert implementation(undo[0]).main(undo[1:]) == 0
    assert config.with_name("env").read_text() == ""


@cases("written", "env", "line", "part", "kept")
def test_a_variable_is_written_where_nothing_else_is_changed_by_it(
    written: dict[str, str], env: str, line: str, part: str, kept: str, config: Path
) -> None:
    text, file = WRITTEN, config.with_name("env")
    for old, new in written.items():
        text = text.replace(old, new)
    config.write_text(text)
    file.write_text(env)
    assert told(config, *line.split()) == 0
    assert part in config.read_text()
    assert file.read_text() == kept


def test_a_variable_of_the_environment_is_not_taken_for_the_files(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(config, "set", "time", f"env.API_TOKEN={OTHER}") == 0
    # It would hide what the file says.
    monkeypatch.setitem(os.environ, "TIME__API_TOKEN", OTHER)
    assert told(config, "set", "time", f"env.API_TOKEN={KEY}") == 0
    assert "${TIME__API_TOKEN_2}" in config.read_text()


def test_a_key_of_the_whole_makes_the_file_that_is_not_there(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.setup.drafts.launch.trial", lambda _: None)
    made = tmp_path / "own" / "mcpd.json"
    assert "there is no $.lazy in" in err_of(capsys, told(made, "unset", ".", "lazy"), 1)
    assert "there is no server 'time'" in err_of(capsys, told(made, "set", "time", "start=lazy"), 1)
    assert [*tmp_path.iterdir()] == []
    assert told(made, "set", ".", "registries=https://mcp.example.com") == 0
    written = {"registries": ["https://mcp.example.com"], "sandbox": "home", "trust": "changes"}
    assert json.loads(made.read_text()) == written
    assert made.stat().st_mode & 0o077 == 0


@cases("words", "undo")
def test_the_command_that_undoes_a_change_is_named_and_does(
    words: str, undo: str | None, config: Path, capsys: Captured
) -> None:
    assert told(config, *words.split()) == 0
    said = "".join(capsys.readouterr())
    assert re.findall(r"undo: `(.*)`", said) == ([] if undo is None else [f"mcpd {undo} --config {config}"])
    if undo is not None:
        assert told(config, *shlex.split(undo)) == 0
        assert decode(config.read_text(), source="")[0] == decode(WRITTEN, source="")[0]


@pytest.mark.parametrize("key", [KEY, f"{KEY[:7]}'{KEY[7:]}", f'{KEY[:7]}\\"{KEY[7:]}'])
def test_no_undo_is_named_that_has_a_secret(key: str, config: Path, capsys: Captured) -> None:
    written = WRITTEN.replace('{"A": "1"}', f'{{"API_TOKEN": "{key}"}}')
    written = written.replace('"time"]', f'"time", "--token", "{key}"]')
    for words in (
        "set time env.API_TOKEN=${HOME}",
        "unset time env",
        "set time env.API_TOKEN=a",
        "set time args=x",
    ):
        config.write_text(written)
        assert told(config, *words.split()) == 0
        said = "".join(capsys.readouterr())
        assert (KEY[7:] in said, "undo" in said) == (False, False), said


@pytest.mark.parametrize("words", ["set time start=lazy", "rename time clock"])
def test_a_change_of_somebody_else_meanwhile_has_a_status_of_its_own(
    words: str, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for kind in (Draft, SettingsEdit):

        def write(draft: Any, write: Any = kind.write) -> None:
            write(draft)
            config.write_text(config.read_text() + "// theirs\n")

        monkeypatch.setattr(kind, "write", write)
    assert told(config, *words.split()) == EX_MEANWHILE == 75
    said = "".join(capsys.readouterr())
    assert "was changed meanwhile: no single command undoes this change" in said
    assert "undo:" not in said


@pytest.mark.parametrize("key", ["autoApprove", "timeoutz"])
def test_a_whole_entry_has_no_unknown_key_that_stood_not_there_before(
    key: str, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    entry = {"url": "https://example.com/mcp", "trust": "all", key: []}
    monkeypatch.setattr(editing, "given", lambda _what: json.dumps(entry))
    assert f"unknown key '{key}'" in err_of(capsys, told(config, "set", "web", "-"), 78)
    assert config.read_text() == WRITTEN
    config.write_text(WRITTEN.replace('"trust": "all"', '"autoApprove": ["x"]'))
    monkeypatch.setattr(editing, "given", lambda _what: json.dumps({**entry, "autoApprove": []}))
    assert told(config, "set", "web", "-") == (0 if key == "autoApprove" else 78)


def test_servers_are_removed_unless_one_is_not_there_also_by_an_entry_that_is_none(
    config: Path, capsys: Captured
) -> None:
    assert (told(config, "remove", "web", "tim"), config.read_text()) == (1, WRITTEN)
    assert "there is no server 'tim'" in capsys.readouterr().err
    for servers in (None, {"web": None, "time": 5}, {"web": {"origin": 5}, "time": {}}):
        config.write_text(WRITTEN if servers is None else json.dumps({"mcpServers": servers}))
        assert told(config, "remove", "web", "time") == 0
        left: Any = decode(config.read_text(), source="")[0]
        assert left["mcpServers"] == {}


def test_the_file_of_the_daemon_that_is_named_by_its_socket_is_changed(
    config: Path, control: Controls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MCPD_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    status = status_of({})
    status["daemon"] |= {"config": config.name, "directory": str(config.parent)}
    control({"status": status})
    assert implementation("set").main(["time", "start=lazy", "--no-reload"]) == 0
    assert '"start": "lazy"' in config.read_text()
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize("text", ["{", '{"mcpServers": [1]}', WRITTEN])
def test_a_daemon_switches_on_whatever_the_file_here_says(
    text: str, config: Path, control: Controls, capsys: Captured
) -> None:
    config.write_text(text)
    answer = {"server": "git", "tool": None, "off": False, "already": False, "note": "", "state": "ready"}
    control({"switch": answer | {"reason": ""}})
    assert out_of(capsys, told(config, "enable", "git")) == "git: switched on, now ready\n"


def test_a_server_that_has_just_ended_is_judged_once_its_last_words_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = down(nextRetryInMs=None, happened="It failed.")
    polls = [{"git": ended}, {"git": down(nextRetryInMs=600, happened="It needs TOKEN.")}]
    monkeypatch.setattr(taking_effect, "reloaded", lambda *_: taking_effect.Effect(asked=True, problem=""))
    monkeypatch.setattr(taking_effect, "poll_servers", lambda *_: iter(polls))
    listed = {"git/log": ("git", True), "git/not_yet": ("git", False), "web/get": ("web", True)}
    tools = {
        key: {"server": of, "listed": is_listed, "schemaHash": ""} for key, (of, is_listed) in listed.items()
    }
    monkeypatch.setattr(taking_effect, "ask_with", lambda *_: {"categories": {"all": {"tools": tools}}})
    effect = taking_effect.come_up(argparse.Namespace(timeout=1.0, change="add"), Path(), "git")
    assert effect.seen is not None
    assert (effect.seen["happened"], effect.tools) == ("It needs TOKEN.", ("log",))

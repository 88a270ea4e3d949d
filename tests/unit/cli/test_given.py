"""What `mcpd add` and `mcpd set` take from standard input, of which no fault quotes a value."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import implementation
from daemon.config.jsonc import decode
from tests.printing import err_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured

KEY = "k-83hd82hd8xQ2"
TIME = {"command": "uvx", "args": ["mcp-server-time==1.2"]}
WRITTEN = f"""{{
  "mcpServers": {{
    // mine
    "time": {{
      "command": "uvx", // kept
      "args": ["time==1", "--token", "{KEY}", "-v"],
      "env": {{"A": "1" /* one */, "API_TOKEN": "{KEY}-env", "C": "${{HOME}}"}},
      "disabled": false,
    }},
    "web": {{"url": "https://example.com/mcp", "headers": {{"Authorization": "Bearer {KEY}-web"}}}},
  }},
}}
"""
SECRET = "(a secret)"
Stdin = Callable[[bytes], None]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("daemon.setup.drafts.launch.trial", lambda _: None)
    return tmp_path / "mcpd.json"


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Stdin:
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def told(config: Path, *words: str) -> int:
    try:
        status: int = implementation(words[0]).main([*words[1:], "--config", str(config), "--no-reload"])
    except SystemExit as left:
        status = int(str(left.code))
    return status


def servers(config: Path) -> dict[str, Any]:
    found: Any = decode(config.read_text(), source="")[0]
    return dict(found["mcpServers"])


def configured(config: Path) -> None:
    config.write_text(WRITTEN)
    config.chmod(0o600)


@cases("words", "text", "name", "entry")
def test_an_entry_or_a_snippet_for_any_client_is_added(
    words: str, text: object, name: str, entry: dict[str, Any], config: Path, stdin: Stdin
) -> None:
    stdin((text if isinstance(text, str) else json.dumps(text)).encode())
    assert told(config, *words.split()) == 0
    assert servers(config) == {name: entry}


@cases("words", "text", "status", "said")
def test_what_is_no_server_is_refused_without_a_value(
    words: str,
    text: str,
    status: int,
    said: str,
    config: Path,
    stdin: Stdin,
    capsys: Captured,
) -> None:
    stdin(text.encode())
    err = err_of(capsys, told(config, *words.split()), status)
    assert said in " ".join(err.split())
    assert KEY not in err
    assert not config.exists()


@pytest.mark.parametrize("by_stdin", [False, True])
def test_a_file_of_variables_is_the_servers_with_its_secrets_apart(
    by_stdin: bool, config: Path, stdin: Stdin, capsys: Captured
) -> None:
    text = f"# mine\nLEVEL='two words'\nexport API_TOKEN={KEY}\n"
    stdin(text.encode())
    (file := config.with_name("x.env")).write_text(text)
    words = ["add", "time", "--env", "LEVEL=3", "--env-file", "-" if by_stdin else str(file), "npm:x@1"]
    assert told(config, *words) == 0
    assert servers(config)["time"]["env"] == {"LEVEL": "3", "API_TOKEN": "${TIME__API_TOKEN}"}
    assert config.with_name("env").read_text() == f"TIME__API_TOKEN={KEY}\n"
    said = "".join(capsys.readouterr())
    assert f"kept in {config.with_name('env')}, for you only: TIME__API_TOKEN\n" in said
    assert KEY not in said


def test_keys_of_other_clients_are_told(config: Path, stdin: Stdin, capsys: Captured) -> None:
    stdin(json.dumps({"servers": {"time": {**TIME, "autoApprove": ["x"]}}}).encode())
    assert told(config, "add", "-") == 0
    assert "$.servers.time.autoApprove: mcpd asks users only where a rule says so" in capsys.readouterr().err


@pytest.mark.parametrize(
    "keys", [{"sandbox": "off"}, {"sandboxEnabled": False}, {"trust": "all", "sandbox": {"mode": "off"}}]
)
def test_a_snippet_decides_neither_the_sandbox_nor_the_trust(
    keys: dict[str, Any], config: Path, stdin: Stdin, capsys: Captured
) -> None:
    for more in (["--dry-run"], []):
        stdin(json.dumps({"servers": {"time": {**TIME, **keys}}}).encode())
        err = err_of(capsys, told(config, "add", "-", "--sandbox", "strict", *more))
        assert all(f"{key} is left out of the snippet: only you may set it" in err for key in keys)
    assert servers(config)["time"] == {**TIME, "sandbox": "strict"}
    stdin(json.dumps({**TIME, "trust": "all"}).encode())
    assert told(config, "add", "own", "-") == 0
    assert servers(config)["own"]["trust"] == "all"


SHOWN = {
    "command": "uvx",
    "args": ["time==1", "--token", SECRET, "-v"],
    "env": {"A": "1", "API_TOKEN": SECRET, "C": "${HOME}"},
    "disabled": False,
}


@cases("changed", "before", "after")
def test_an_entry_is_made_that_of_standard_input_and_all_else_stays(
    changed: dict[str, Any], before: str, after: str, config: Path, stdin: Stdin
) -> None:
    configured(config)
    stdin(json.dumps({**SHOWN, **changed}).encode())
    assert told(config, "set", "time", "-") == 0
    assert config.read_text() == WRITTEN.replace(before, after)
    assert not config.with_name("env").exists()


def test_a_secret_keeps_its_place_among_others_and_in_a_text_and_a_missing_key_goes(
    config: Path, stdin: Stdin
) -> None:
    configured(config)
    stdin(json.dumps({**SHOWN, "args": ["time==1", "-v", "-q", "--token", SECRET]}).encode())
    assert told(config, "set", "time", "-") == 0
    # The list is written anew, and so is what was in it.
    assert servers(config)["time"]["args"] == ["time==1", "-v", "-q", "--token", "${TIME__TOKEN}"]
    assert config.with_name("env").read_text() == f"TIME__TOKEN={KEY}\n"
    stdin(
        json.dumps({"url": "https://example.com/", "headers": {"Authorization": f"Bearer {SECRET}"}}).encode()
    )
    assert told(config, "set", "web", "-") == 0
    assert servers(config)["web"]["headers"] == {"Authorization": f"Bearer {KEY}-web"}
    stdin(b'{"url": "https://example.com/mcp"}')
    assert told(config, "set", "web", "-") == 0
    assert servers(config)["web"] == {"url": "https://example.com/mcp"}


@cases("changed", "status", "said")
def test_an_entry_with_a_fault_changes_nothing(
    changed: Any, status: int, said: str, config: Path, stdin: Stdin, capsys: Captured
) -> None:
    configured(config)
    stdin(json.dumps([KEY] if changed is None else {**SHOWN, **changed}).encode())
    err = err_of(capsys, told(config, "set", "time", "-"), status)
    assert said in err
    assert KEY not in err
    assert config.read_text() == WRITTEN


def test_a_value_is_read_from_standard_input_or_typed_unseen(
    config: Path, stdin: Stdin, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    configured(config)
    stdin(f"{KEY}\n\n".encode())
    assert told(config, "set", "time", "env.OTHER_TOKEN") == 0
    assert config.with_name("env").read_text() == f'TIME__OTHER_TOKEN="{KEY}\n"\n'
    stdin(b"30s\n")
    assert told(config, "set", "time", "timeouts.call") == 0
    assert servers(config)["time"]["timeouts"] == {"call": "30s"}
    monkeypatch.setattr("daemon.cli.secret.has_terminal", lambda: True)
    monkeypatch.setattr("daemon.cli.secret.typed", lambda prompt, hidden: f"{prompt}{hidden}")
    assert told(config, "set", "time", "description") == 0
    assert servers(config)["time"]["description"] == "The value of description (not shown): True"
    assert KEY not in "".join(capsys.readouterr())

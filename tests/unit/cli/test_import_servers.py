"""`mcpd import`, from the outside."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.import_servers import table
from daemon.cli.install import installed_in_words
from daemon.cli.table import implementation
from daemon.cli.taking_effect import APPROVALS, CONFINED
from daemon.cli.terminal import Screen
from daemon.cli.up import _service, not_pinned, settled, summary
from daemon.documents.files import FoundFile
from daemon.documents.formats import Format
from daemon.setup.clients.file_plans import FileChange
from daemon.setup.clients.importing import find
from daemon.setup.clients.installing import Rewritten
from daemon.setup.clients.programs import PROGRAMS, Machine
from tests.printing import err_of, out_of
from tests.unit.cli.conftest import Captured, Controls, Users
from tests.unit.cli.users import Terminal, config_of
from tests.unit.setup.clients.test_found import BROKEN, digest
from tests.unit.setup.clients.test_importing import planned_and_found
from tests.unit.setup.machines import machine

SECRETS = ("bk-7Qm2xV9bT4Zr8Lw1", "nt-4hT8kQ2mZx9Vb1Rs", "ghx-9Kd3mP7wQ2vT5zXb")


def test_one_table_shows_all(user: Users, capsys: Captured) -> None:
    here = user("claude-code", "codex", "gemini", "goose")
    before = digest(here.home)
    assert implementation("import").main([]) == 0
    out, err = capsys.readouterr()
    assert not err
    lines = {line.split()[0]: line for line in out.splitlines() if line[:1].strip()}
    assert lines["SERVER"].split() == ["SERVER", "FROM", "RUNS", "SECRETS"]
    assert "Claude Code, Codex, Gemini CLI" in lines["time"]
    assert "uvx mcp-server-time --local-timezone=UTC" in lines["time"]
    assert lines["brave-search"].rstrip().endswith("BRAVE_API_KEY")
    assert "Claude Code (project), Gemini CLI (project)" in lines["files"]
    assert "developer (Goose) is part of Goose itself" in out
    assert not [secret for secret in SECRETS if secret in out]
    assert digest(here.home) == before


def test_the_sandbox_that_a_project_wrote_is_shown(user: Users, capsys: Captured) -> None:
    here = user()
    entry = {"command": "x", "sandboxEnabled": True, "sandbox": {"network": {"allowedDomains": ["*"]}, "y": 1}}
    for path, key in ((here.directory / ".vscode", "theirs"), (here.home / ".config/Code/User", "mine")):
        path.mkdir(parents=True)
        (path / "mcp.json").write_text(json.dumps({"servers": {key: {**entry, "args": [key]}}}))
    said = " ".join(out_of(capsys, implementation("import").main([])).split())
    assert 'theirs: the project\'s author wrote its sandbox: {"network": {"allowedDomains": ["*"]}}' in said
    assert "mine: the project" not in said
    assert "mine: sandbox.y: ignored: mcpd has no such setting" in said


def test_servers_are_added_once_with_their_secrets_apart(user: Users, capsys: Captured) -> None:
    here = user("claude-code")
    clients = digest(here.home)
    said = err_of(capsys, implementation("import").main(["--yes"]))
    assert said == "mcpd: nothing was written: `mcpd import --write --yes` writes\n"
    out = out_of(capsys, implementation("import").main(["--write", "--yes"]))
    assert "added 6 servers to ~/.config/mcpd/mcpd.json, 2 secrets to ~/.config/mcpd/env" in out
    assert "no daemon runs" in out
    assert f"{APPROVALS}\n{CONFINED}\n" in out
    after = digest(here.home)
    assert {path: after[path] for path in clients} == clients
    written = config_of(here).read_bytes()
    assert implementation("import").main(["--write", "--yes"]) == 0
    out, said = capsys.readouterr()
    assert ("mcpd has these already:" in out, said) == (True, "")
    assert config_of(here).read_bytes() == written


def test_a_daemon_that_runs_is_told(
    user: Users, control: Controls, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    user("jetbrains")
    monkeypatch.delenv("MCPD_CONTROL")
    daemon = control({"reload": {}})
    monkeypatch.setenv("MCPD_CONTROL", str(daemon.path))
    assert implementation("import").main(["--write", "--yes"]) == 0
    assert daemon.asked == [("reload", {"server": "", "change": "import"})]
    assert "the daemon starts them now" in capsys.readouterr().out


def test_a_dry_run_shows_the_diff_and_writes_nothing(user: Users, capsys: Captured) -> None:
    here = user("claude-code")
    before = digest(here.home)
    out = out_of(capsys, implementation("import").main(["--dry-run"]))
    assert ('+    "brave-search": {' in out, "+BRAVE_SEARCH__BRAVE_API_KEY=(a secret)" in out) == (True, True)
    assert not [secret for secret in SECRETS if secret in out]
    assert digest(here.home) == before


def test_a_terminal_is_asked_first(user: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    here = user("jetbrains")
    for answer, status in (("n\n", 1), ("", 1), ("\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        assert implementation("import").main(["--write"]) == status
        assert config_of(here).exists() == (status == 0)


def test_programs_are_told_the_same(user: Users, capsys: Captured) -> None:
    user("codex", "zed")
    out = out_of(capsys, implementation("import").main(["--json"]))
    told: dict[str, Any] = json.loads(out)
    servers = {each["name"]: each for each in told["servers"]}
    assert servers["notion"]["missing"] == ["NOTION_TOKEN"]
    assert servers["notion"]["enabled"]
    assert [origin["client"] for origin in servers["brave-search"]["from"]] == ["codex"]
    assert {each["name"] for each in told["left"]} == {"mcp-server-github"}
    assert told["written"] is False
    assert not [secret for secret in SECRETS if secret in out]


def test_where_there_is_nothing_it_is_said_where_was_looked_and_what_cannot_be_read(
    user: Users, capsys: Captured
) -> None:
    here = user()
    out = out_of(capsys, implementation("import").main(["--from", "lmstudio", "claude"]), 1)
    assert "No servers were found." in out
    assert "lmstudio: no file here; looked at ~/.lmstudio/mcp.json" in out
    assert "claude-code: no file here; looked at ~/.claude.json, ~/proj/.mcp.json" in out
    (here.home / ".cursor").mkdir()
    (here.home / ".cursor" / "mcp.json").write_text(BROKEN)
    out = out_of(capsys, implementation("import").main([]), 1)
    assert ("Could not be read:" in out, "line 3, column 10" in out) == (True, True)


def test_a_faulty_configuration_of_mcpd_is_not_written_to_and_a_faulty_entry_concerns_itself_alone(
    user: Users, capsys: Captured
) -> None:
    here = user("claude-code")
    config_of(here).parent.mkdir(parents=True)
    config_of(here).write_text('{"mcpServers": {"a": {}}, "lazy": 1}')
    assert "nothing was changed" in err_of(capsys, implementation("import").main(["--write", "--yes"]), 78)
    assert config_of(here).read_text() == '{"mcpServers": {"a": {}}, "lazy": 1}'
    config_of(here).write_text('{"mcpServers": {"a": {}}}')
    out = out_of(capsys, implementation("import").main(["--write", "--yes"]))
    # What holds later changes is told with a created configuration alone.
    assert ("added 6 servers" in out, "approval" in out) == (True, False)


# --- how what was found is told ------------------------------------------------------------------------------


SCREEN = Screen(width=200, colour=False)


def shown(at: Path, servers: dict[str, Any]) -> str:
    planned, findings = planned_and_found(at, files={"cursor": servers})
    return table(planned, findings, SCREEN, str(at / "home"))


def test_what_is_to_be_known_of_a_server_is_said_and_its_hidden_characters_are_shown(tmp_path: Path) -> None:
    told = shown(
        tmp_path,
        {
            "pkg": {"command": "npx", "args": ["pkg@1.0.0"]},
            "Pkg": {"command": "npx", "args": ["pkg@2.0.0"], "disabled": True},
            "web": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:WEB}"}},
            "net": {"url": "https://n/mcp", "headers": {"Authorization": "Bearer ${env:NET}"}},
            "browser": {"command": "npx", "args": ["@playwright/mcp@0.0.83"], "autoApprove": ["a"]},
            "hidden": {"command": "x", "args": ["\u202e\x1b[31m"]},
        },
    )
    assert "pkg-2: not the same as pkg" in told
    assert "pkg-2: switched off in every client that has it" in told
    assert "WEB (not set)" in told
    assert "web, net: waiting for variables that are set nowhere; `mcpd set web env.WEB`" in told
    assert "`mcpd set net env.NET` asks for the value" in told
    assert "browser: autoApprove: " in told
    assert "has one browser" in told
    assert told.replace("\n", "").isprintable()


# --- `mcpd uninstall`, from the outside ----------------------------------------------------------------------


main = implementation("uninstall").main


@pytest.fixture
def here(user: Users, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A user of Claude Code and Codex who has taken their servers into mcpd."""
    (tmp_path / "mcpd").touch()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "mcpd")])
    here = user("claude-code", "codex")
    implementation("import").main(["--write", "--yes"])
    return here


def test_imported_installed_and_uninstalled_every_byte_of_the_clients_is_as_it_was(
    user: Users, here: Machine, capsys: Captured
) -> None:
    paths = (here.home / ".claude.json", here.home / ".codex" / "config.toml")
    before = {path: path.read_bytes() for path in paths}
    implementation("install").main(["claude-code", "codex"])
    capsys.readouterr()
    implementation("import").main(["--json"])
    assert [each["client"] for each in json.loads(capsys.readouterr()[0])["own"]] == ["claude-code", "codex"]
    assert main(["--all"]) == 0
    kept = "mcpd keeps its configuration, secrets and state in ~/.config/mcpd"
    assert capsys.readouterr()[0].splitlines() == [
        "Claude Code: ~/.claude.json is restored, byte for byte",
        "Codex: ~/.codex/config.toml is restored, byte for byte",
        f"{kept}, ~/.local/state/mcpd: `mcpd purge` deletes them.",
    ]
    assert {path: path.read_bytes() for path in before} == before

    assert "nothing to do" in out_of(capsys, main(["claude-code"]))
    assert "nothing to do" in out_of(capsys, main(["--all"]))


def test_what_was_edited_since_stays_and_it_is_said_what_was_put_back(here: Machine, capsys: Captured) -> None:
    implementation("install").main(["claude-code"])
    path = here.home / ".claude.json"
    edited = json.loads(path.read_text())
    edited["mcpServers"]["time"] = {"command": "mine"}
    path.write_text(json.dumps(edited))
    capsys.readouterr()

    assert main(["claude-code"]) == 0

    out, _ = capsys.readouterr()
    assert "later edits of the file stay; notion, brave-search" in out
    assert "time not put back" in out
    backup = Path(out.strip().rpartition(" ")[2].replace("~", str(here.home)))
    assert "uvx" in json.loads(backup.read_text())["mcpServers"]["time"]["command"]
    assert json.loads(path.read_text())["mcpServers"]["time"] == {"command": "mine"}


def test_without_a_record_it_is_said_that_only_the_entry_is_removed(here: Machine, capsys: Captured) -> None:
    path = here.home / ".codex" / "config.toml"
    path.write_text('[mcp_servers.mcpd]\ncommand = "/old/mcpd"\nargs = ["connect"]\n\n[tui]\nx = 1\n')
    capsys.readouterr()
    assert "The former text is unknown" in out_of(capsys, main(["codex"]))
    assert path.read_text() == "[tui]\nx = 1\n"


# --- the last three lines of `mcpd up` -----------------------------------------------------------------------


SERVERS: dict[str, Any] = {
    "time": {"state": "ready", "tools": 2},
    "later": {"state": "dormant", "tools": 0},
    "new": {"state": "ready", "tools": 0, "held": {"echo": {}, "prompt:greet": {}}},
    "off": {"state": "disabled", "tools": 0},
    "notion": {"state": "needs_auth", "reason": "401\nmore", "tools": 0},
    "sso": {"state": "needs_auth", "reason": "Not you.", "cause": "login-refused", "tools": 0},
    "slow": {"state": "starting", "tools": 0},
    "box": {"state": "dormant", "happened": "It did not list.", "cause": "exited", "tools": 0},
    "gone": {"state": "backoff", "reason": "exited with status 2", "happened": "There is no /x.", "tools": 0},
}


def test_what_works_what_needs_attention_and_the_way_back(user: Users) -> None:
    here = user("vscode")
    found = find(here, [PROGRAMS["vscode"]])
    options = argparse.Namespace(socket="/s")
    works, attention, undo = summary(SERVERS, [PROGRAMS["codex"]], found, options)
    assert works == "Works: time, later, new, in Codex once restarted."
    assert "notion: needs_auth, 401 (`mcpd login notion`)" in attention
    assert "sso: needs_auth, Not you (`mcpd doctor`)" in attention
    assert "gone: backoff, There is no /x (`mcpd doctor`)" in attention
    assert "box: dormant, It did not list (`mcpd doctor`)" in attention
    assert "slow is still starting (`mcpd status`)" in attention
    assert "new: 2 held until you approve (`mcpd approve new`)" in attention
    assert undo == "Undo: `mcpd uninstall codex`, then `mcpd stop`."
    assert summary(SERVERS, [], found, options)[2] == "Undo: `mcpd stop`."
    waits = "2 tokens of an earlier daemon refused until you confirm"
    how = "see `mcpd token list`; `mcpd token confirm --default`; `mcpd token confirm ci`"
    assert summary({}, [], found, options, doubted=["", "ci"])[1] == f"Needs attention: {waits} ({how})."


def test_servers_that_may_change_at_each_start_are_told_with_what_pins_them() -> None:
    npx = {"command": "npx", "args": ["-y", "x"]}
    servers = {"a": npx, "b": npx, "c": {"command": "npx", "args": ["x@1.0"]}, "d": {"url": "http://x"}}
    servers["e"] = {"command": "npx", "args": None}
    assert not_pinned(servers) == ["Not pinned: a, b (`mcpd pin a b`)."]
    assert not_pinned({"d": servers["d"]}) == []


def test_each_server_is_told_once_it_is_up_or_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    polls = [SERVERS, {**SERVERS, "slow": {"state": "ready", "tools": 1}}]
    monkeypatch.setattr("daemon.cli.up.poll_servers", lambda *_: iter(polls))
    assert settled(argparse.Namespace(wait=5.0)) == polls[-1]
    told = capsys.readouterr().out
    assert told.startswith("  time: ready, 2 tools\n")
    assert told.endswith("  slow: ready, 1 tool\n")
    assert (told.count("  notion: needs_auth\n"), "off:" in told) == (1, False)


def test_a_service_is_offered_for_the_default_socket_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCPD_CONFIG", raising=False)
    state = argparse.Namespace(manager=True, installed=False)
    monkeypatch.setattr("daemon.cli.up.service.state", lambda *_: state)
    monkeypatch.setattr("daemon.cli.up.service.planned", lambda *_: state)
    options = [argparse.Namespace(no_service=False, socket=path, config=None) for path in (None, "/s")]
    assert [_service(each, "mcpd") is not None for each in options] == [True, False]


# --- which clients are meant and are here, and what is said of changes ---------------------------------------


def test_a_client_is_here_if_a_file_a_directory_or_a_program_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").touch(mode=0o755)
    here = machine(tmp_path, "cursor")
    (here.home / ".lmstudio").mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert {name for name, program in PROGRAMS.items() if program.is_on(here)} == {
        "claude-code",
        "cursor",
        "lmstudio",
    }


def test_what_was_done_is_said_in_one_line_and_what_stays_in_another(tmp_path: Path) -> None:
    found = FoundFile(path=tmp_path / "mcp.json", target=tmp_path / "mcp.json", content=b"a")
    change = FileChange(found=found, form=Format.JSON, new=Rewritten(text="b", left=("mine",)))
    (idle,) = installed_in_words(PROGRAMS["cursor"], [change])
    assert idle == "Cursor: nothing to do: mcpd has none of its servers (`mcpd import --write`)"

"""`mcpd install`, from the outside."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import install
from daemon.cli.table import implementation
from daemon.host.paths import client_socket
from daemon.setup.clients.programs import Machine
from daemon.setup.running.service import unit_directory, wanted_files
from tests.printing import err_of, out_of
from tests.unit.cases import rows_of
from tests.unit.cli.conftest import Captured, Users
from tests.unit.cli.users import Terminal, config_of
from tests.unit.setup.clients.test_found import BROKEN

main = implementation("install").main


@pytest.fixture(autouse=True)
def mcpd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program that runs, by a link that an upgrade moves."""
    program = tmp_path / "bin" / "mcpd"
    program.parent.mkdir()
    program.symlink_to("/bin/true")
    monkeypatch.setattr(sys, "argv", [str(program)])
    return str(program)


def servers(here: Machine, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((here.home / path).read_text())["mcpServers"]
    return found


def test_servers_that_mcpd_has_give_way_to_it_unless_it_has_switched_them_off(
    user: Users, mcpd: str, capsys: Captured
) -> None:
    here = user("claude-code")
    implementation("import").main(["--write", "--yes"])
    config = config_of(here)
    config.write_text(config.read_text().replace('"time": {', '"time": {"enabled": false,'))
    capsys.readouterr()
    out = out_of(capsys, main(["claude", "--profile", "reader", "--socket", "/s"]))
    own = {"type": "stdio", "command": mcpd, "args": ["connect", "--socket", "/s", "--profile", "reader"]}
    left = servers(here, ".claude.json")
    assert (list(left), left["mcpd"]) == (["time", "mcpd"], own)
    assert "Claude Code: mcpd is in ~/.claude.json, in place of notion, brave-search, git" in out
    assert "`mcpd uninstall CLIENT`" in out
    assert "  time (Claude Code), switched off\n" in out_of(capsys, implementation("import").main([]))


def test_an_unusual_socket_is_written_down_since_no_client_has_this_environment(
    user: Users, mcpd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = user("cursor")
    for socket, words in (("/s", ["--socket", "/s"]), (str(client_socket(os.environ)), [])):
        monkeypatch.setenv("MCPD_SOCKET", socket)
        assert main(["cursor"]) == 0
        assert servers(here, ".cursor/mcp.json")["mcpd"]["args"] == ["connect", *words]


def test_what_cannot_be_changed_is_said_and_the_others_are_changed(user: Users, capsys: Captured) -> None:
    here = user("claude-code", "cursor", "lmstudio")
    (here.home / ".cursor" / "mcp.json").write_text(BROKEN)
    (here.home / ".lmstudio" / "mcp.json").chmod(0o444)
    assert main(["cursor", "lmstudio", "claude-code"]) == 1
    out, err = capsys.readouterr()
    assert all(each in err for each in ("Cursor: ", "line 3, column 10", "mcpd: LM Studio: ", "is read-only"))
    assert "It takes effect when a client is restarted." in out
    assert (here.home / ".cursor" / "mcp.json").read_text() == BROKEN
    assert "mcpd" in servers(here, ".claude.json")
    (here.home / ".cursor" / "mcp.json").write_text("{}")
    assert main(["cursor", "claude-code"]) == 0
    assert "It takes effect when a client is restarted." in capsys.readouterr().out, "one of them has changed"


def test_a_faulty_configuration_of_mcpds_changes_nothing(user: Users, capsys: Captured) -> None:
    here = user("claude-code")
    config_of(here).parent.mkdir(parents=True)
    config_of(here).write_text(r'{"mcpServers": {}, "\u001b[31m": 1}')
    before = (here.home / ".claude.json").read_bytes()
    told = err_of(capsys, main(["claude-code"]), 78)
    assert ("nothing was changed: `mcpd check`" in told, "\x1b" in told) == (True, False)
    assert (here.home / ".claude.json").read_bytes() == before


def test_before_all_clients_are_changed_a_terminal_is_asked(
    user: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = user("claude-code", "cursor")
    for typed, status in (("n\n", 1), ("", 1), ("\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        assert main(["--all"]) == status
        for path in (".claude.json", ".cursor/mcp.json"):
            assert ("mcpd" in servers(here, path)) is (status == 0)


def test_a_dry_run_shows_a_diff_without_secrets_and_changes_nothing(user: Users, capsys: Captured) -> None:
    here = user("claude-code", "codex")
    implementation("import").main(["--write", "--yes"])
    before = (here.home / ".claude.json").read_bytes()
    capsys.readouterr()
    assert main(["claude-code", "codex", "--dry-run"]) == 0
    out, _ = capsys.readouterr()
    assert '-    "brave-search": {' in out
    assert '-        "BRAVE_API_KEY": "[redacted]"' in out
    assert "+[mcp_servers.mcpd]" in out
    assert "bk-7Qm2xV9bT4Zr8Lw1" not in out
    assert (here.home / ".claude.json").read_bytes() == before
    assert not (here.home / ".local").exists()
    main(["claude-code"])
    before = (here.home / ".claude.json").read_bytes()
    assert '-    "mcpd": {' in out_of(capsys, implementation("uninstall").main(["claude-code", "--dry-run"]))
    assert (here.home / ".claude.json").read_bytes() == before


def test_a_server_that_was_taken_stays_so_when_mcpd_runs_another_version_of_it(
    user: Users, capsys: Captured
) -> None:
    here = user("claude-code")
    implementation("import").main(["--write", "--yes"])
    imported = config_of(here).read_text().replace('"time": {', '"clock": {')
    config_of(here).write_text(imported)
    assert main(["claude-code"]) == 0
    config_of(here).write_text(imported.replace('"mcp-server-time', '"mcp-server-time==2026.1'))
    for _ in range(2):
        assert main(["claude-code"]) == 0
        assert list(servers(here, ".claude.json")) == ["mcpd"]
    assert "there as well" not in capsys.readouterr()[0]
    anew = {"mcpServers": {**servers(here, ".claude.json"), "time": {"command": "other"}}}
    (here.home / ".claude.json").write_text(json.dumps(anew))
    assert main(["claude-code"]) == 0
    assert servers(here, ".claude.json")["time"] == {"command": "other"}
    assert "  time stays: mcpd does not have it (`mcpd import` adds it)" in capsys.readouterr()[0]


# --- looking and purging -------------------------------------------------------------------------------------


def test_each_client_is_shown_with_mcpd_and_with_what_it_starts_itself(user: Users, capsys: Captured) -> None:
    here = user("claude-code", "cursor", "lmstudio")
    (here.home / ".lmstudio" / "mcp.json").write_text(BROKEN)
    # Without a configuration of mcpd's every server stays, and is named.
    said = out_of(capsys, main(["claude-code", "--profile", "reader", "--surface", "load"]))
    beside = "stay: mcpd does not have them (`mcpd import` adds them) or cannot run them (`mcpd status`)."
    assert f"time, notion, brave-search, git {beside}" in said
    shown = out_of(capsys, implementation("clients").main([]))
    assert "Claude Code: mcpd is in ~/.claude.json (profile reader, surface load)\n" in shown
    assert "  starts itself: time, notion, brave-search, git (~/.claude.json)\n" in shown
    assert "Cursor: mcpd is not in it: `mcpd install cursor`\n" in shown
    assert f"LM Studio: mcpd is not in it: `mcpd install lmstudio`\n  not read: {here.home}/.lmstudio" in shown
    first = json.loads(out_of(capsys, implementation("clients").main(["-o", "json"])))["clients"][0]
    own = {"file": f"{here.home}/.claude.json", "name": "mcpd", "scope": "user", "server": None}
    assert first["mcpd"] == [{**own, "profile": "reader", "surface": "load"}]
    assert {"name": "time", "file": f"{here.home}/.claude.json", "scope": "user"} in first["servers"]


MADE, FOREIGN = (rows_of(Path(__file__), name) for name in ("made", "foreign"))


@pytest.fixture
def purged(user: Users, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with all that mcpd makes, some of it read-only, and in between files of others, and links."""
    home = user().home
    monkeypatch.setattr(install, "uninstall_service", lambda _: (home / "told").touch())
    for name in (*MADE, *FOREIGN):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("1234")
    (unit_directory({"HOME": str(home)}) / "mcpd.service").write_bytes(wanted_files("/", "")["mcpd.service"])
    (home / ".local/share/mcpd/bundles/x-1/lib").chmod(0o555)
    (home / "elsewhere").mkdir()
    (home / "elsewhere" / "starts").write_text("1234")
    for link in ("state/mcpd/starts", "state/mcpd/tokens.json", "share/mcpd/servers/git/link"):
        (home / ".local" / link).symlink_to(home / "elsewhere")
    return home


def files_of(home: Path) -> set[str]:
    return {
        os.path.relpath(path, home) for path in home.parent.rglob("*") if not path.is_dir() or path.is_symlink()
    }


def test_purge_deletes_what_mcpd_made_and_nothing_else(purged: Path, capsys: Captured) -> None:
    before = files_of(purged)
    assert implementation("purge").main(["--dry-run", "--yes"]) == 0
    assert implementation("purge").main([]) == 1  # Nobody can be asked.
    assert files_of(purged) == before
    capsys.readouterr()
    shown = out_of(capsys, implementation("purge").main(["--yes"]))
    links = {".local/state/mcpd/starts", ".local/state/mcpd/tokens.json"}
    assert before - files_of(purged) == {*MADE, ".local/share/mcpd/servers/git/link"}
    assert {*FOREIGN, *links, "elsewhere/starts", "told"} <= files_of(purged)
    assert "    8B  ~/.local/state/mcpd/audit\n" in shown
    asked, gone = re.split("(?=deleted )", shown, maxsplit=1)
    for each in ("state/mcpd/audit", "share/mcpd/servers/git"):
        assert (line := re.findall(rf"\n( *\d+B  ~/.local/{each}\n)", asked)), asked
        assert f"deleted {line[0]}" in gone
    stays = {*re.findall(r"stays, since mcpd did not make it: ~/(.*)", shown)}
    assert links | {".config/mcpd/profiles.d", ".config/systemd/user/mcpd.socket"} <= stays
    assert ".config/mcpd/profiles.d/a.json" not in stays
    assert not (purged / ".local/share/mcpd/bundles").exists()


def test_a_directory_that_is_a_link_or_another_users_is_not_entered(
    purged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (purged / ".local/state/mcpd").rename(purged / "state")
    (purged / ".local/state/mcpd").symlink_to(purged / "state")
    before = {*(purged / "state").rglob("*")}
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: 4242)
        assert not any(ours for each in install._made().items() for _, ours in install._lying(*each))
    assert implementation("purge").main(["--yes"]) == 0
    assert {*(purged / "state").rglob("*")} == before
    assert (purged / ".local/state/mcpd").is_symlink()


def test_where_something_cannot_be_read_nothing_is_deleted(
    purged: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    closed, scandir, before = purged / ".local/state/mcpd/audit", os.scandir, files_of(purged)

    def look(path: str) -> object:
        if path == str(closed):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as another:
        another.setattr(os, "scandir", look)
        assert implementation("purge").main(["--yes"]) == 1
    assert f"mcpd: {closed} cannot be read: Permission denied. Nothing was" in capsys.readouterr().err
    assert files_of(purged) == before


def test_what_cannot_be_deleted_is_named_and_all_else_goes(
    purged: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def refuse(path: Path, *_: object, **_more: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    unlink, fixed = Path.unlink, purged / ".config/mcpd/env"
    monkeypatch.setattr(Path, "unlink", lambda path, **how: (refuse if path == fixed else unlink)(path, **how))
    assert implementation("purge").main(["--yes"]) == 1
    out, err = capsys.readouterr()
    assert f"mcpd: {fixed} stays: Operation not permitted\n" in err
    assert "The rest is deleted" in out
    assert {*MADE} & files_of(purged) == {".config/mcpd/env"}


def test_a_terminal_is_asked_before_anything_is_deleted(purged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for typed, status in (("\n", 1), ("", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        assert implementation("purge").main([]) == status
        assert (purged / ".config/mcpd/env").exists() is bool(status)


def test_nothing_is_purged_while_a_client_has_mcpd(user: Users, capsys: Captured) -> None:
    here = user("claude-code")
    main(["claude-code"])
    state, file = here.home / ".local/state/mcpd", here.home / ".claude.json"
    for hidden in (state, file):
        hidden.rename(here.home / "hidden")
        assert implementation("purge").main(["--yes"]) == 1
        assert "mcpd is still in Claude Code: first `mcpd uninstall --all`. Noth" in capsys.readouterr().err
        (here.home / "hidden").rename(hidden)
    assert (state / "clients.lock").exists()
    assert "`mcpd purge` deletes them.\n" in out_of(capsys, implementation("uninstall").main(["--all"]))
    assert implementation("purge").main(["--yes"]) == 0
    assert out_of(capsys, implementation("purge").main(["--yes"])).endswith("There is nothing to delete.\n")
    assert not state.exists()

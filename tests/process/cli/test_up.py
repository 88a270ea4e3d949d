"""`mcpd up` with a real daemon and real servers: what it asks, what it does, what it leaves if it cannot."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.e2e.harness import RawClient, free_port
from tests.process.setup.users import ARGS, PROGRAM, User, user
from tests.terminals import Typing

__all__ = ["user"]

CLIENTS = ("--clients", "cursor", "codex")
ENTRY = json.dumps({"command": PROGRAM, "args": ARGS})
BROKEN = '{"command": "/no/program"}'


@pytest.fixture
def here(user: User) -> User:
    """Somebody with two clients, a server in each, and nothing of mcpd's."""
    (user.home / ".config" / "mcpd" / "mcpd.json").unlink()
    cursor, codex = files(user)
    cursor.parent.mkdir()
    codex.parent.mkdir()
    cursor.write_text(f'{{"mcpServers": {{"echo": {ENTRY}}}}} // mine\n')
    codex.write_text(f'[mcp_servers.again]\ncommand = "{PROGRAM}"\nargs = {json.dumps(ARGS)}\n')
    return user


def files(user: User) -> tuple[Path, Path]:
    return user.home / ".cursor" / "mcp.json", user.home / ".codex" / "config.toml"


def contents(user: User) -> list[bytes]:
    return [path.read_bytes() for path in files(user)]


def config(user: User) -> Path:
    return user.home / ".config" / "mcpd" / "mcpd.json"


def test_with_yes_everything_is_done_and_once_more_nothing(here: User) -> None:
    before = contents(here)
    told = json.loads(here.mcpd("up", "--dry-run", "--json", *CLIENTS).stdout)
    assert [(each["name"], each["alreadyThere"]) for each in told["servers"]] == [("echo", False)]
    assert [(each["client"], each["pending"]) for each in told["clients"]] == [
        ("cursor", True),
        ("codex", True),
    ]
    done = here.mcpd("up", "--yes", *CLIENTS)
    assert done.returncode == 0, done.stderr
    assert "echo: ready, 1 tool" in done.stdout
    assert "later wait for your approval" in done.stdout
    assert 'Servers run in a sandbox ("sandbox": "home")' in done.stdout
    # Both clients had the same server.
    assert done.stdout.splitlines()[-3:] == [
        "Works: echo, in Cursor and Codex once restarted.",
        "Needs attention: nothing.",
        "Undo: `mcpd uninstall cursor codex`, then `mcpd stop`.",
    ]
    cursor, codex = files(here)
    assert '"mcpd"' in cursor.read_text()
    assert list(tomllib.loads(codex.read_text())["mcp_servers"]) == ["mcpd"]
    after, taken = contents(here), config(here).read_bytes()

    again = here.mcpd("up", *CLIENTS)

    assert (again.returncode, again.stderr) == (0, "")
    assert "approval" not in again.stdout
    assert again.stdout.splitlines()[-3:] == done.stdout.splitlines()[-3:]
    assert (contents(here), config(here).read_bytes()) == (after, taken)
    assert here.mcpd("uninstall", "cursor", "codex").returncode == 0
    assert contents(here) == before


def test_what_was_pinned_or_renamed_stays_taken_over_and_goes_back_as_it_was(here: User) -> None:
    path = packages(here)
    before = contents(here)
    done = here.mcpd("up", "--yes", *CLIENTS, path=path)
    assert done.returncode == 0, done
    undo = "`mcpd set echo 'args[0]=mcp-server-echo'`"
    assert f"  echo: mcp-server-echo becomes mcp-server-echo==2.0; undo: {undo}\n" in done.stdout
    assert "Not pinned" not in done.stdout
    missing = (
        "bubblewrap (bwrap) is not installed. `sudo apt install bubblewrap` (or your system's package manager)"
    )
    sandbox = f"Servers run without a sandbox: {missing}, then `mcpd set . sandbox=home`."
    assert sandbox in " ".join(done.stdout.split())
    assert json.loads(config(here).read_text())["sandbox"] == "off"
    assert json.loads(config(here).read_text())["mcpServers"]["echo"]["args"] == ["mcp-server-echo==2.0"]
    after, changed = contents(here), b""
    for change in (("status",), ("rename", "echo", "clock")):
        done = here.mcpd(*change, path=path)
        assert done.returncode == 0, done
        changed = config(here).read_bytes()
        again = here.mcpd("up", "--yes", *CLIENTS, path=path)
        assert (again.returncode, contents(here), config(here).read_bytes()) == (0, after, changed), again
    # What another client has without a version is the same server.
    unpinned = '[mcp_servers.other]\ncommand = "uvx"\nargs = ["mcp-server-echo"]\n'
    assert here.mcpd("uninstall", "codex").returncode == 0
    files(here)[1].write_text(unpinned)
    assert here.mcpd("up", "--yes", *CLIENTS, path=path).returncode == 0
    assert config(here).read_bytes() == changed
    assert list(tomllib.loads(files(here)[1].read_text())["mcp_servers"]) == ["mcpd"]
    assert here.mcpd("uninstall", "cursor", "codex").returncode == 0
    assert contents(here) == [before[0], unpinned.encode()]


def packages(here: User, *, newest: str = "echo mcp-server-echo==2.0", runs: str = "true") -> Path:
    """Cursor has a server in a package; programs run it, if `runs` succeeds, and tell its newest version."""
    cursor, codex = files(here)
    cursor.write_text('{"mcpServers": {"echo": {"command": "uvx", "args": ["mcp-server-echo"]}}} // mine\n')
    codex.write_text("")
    programs = here.home / "bin"  # without bwrap, so the server runs unconfined
    programs.mkdir()
    for name, body in (("uvx", f"{runs} || exit 1\nexec {shlex.join([PROGRAM, *ARGS])}"), ("uv", newest)):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    return programs


def test_a_package_of_another_registry_is_not_pinned_to_a_version_of_the_usual_one(here: User) -> None:
    path, corp = packages(here), "https://corp.example"
    by_words = {"command": "uvx", "args": ["--index-url", corp, "mcp-server-echo"]}
    by_variable = {"command": "uvx", "args": ["mcp-server-echo"], "env": {"UV_DEFAULT_INDEX": corp}}
    files(here)[0].write_text(json.dumps({"mcpServers": {"words": by_words, "variable": by_variable}}))
    done = here.mcpd("up", "--yes", *CLIENTS, path=path)
    assert (done.returncode, "==2.0" in done.stdout + config(here).read_text()) == (0, False), done
    assert "Works: words, variable, in Cursor" in done.stdout


def test_a_version_with_which_a_server_does_not_come_up_is_not_pinned(here: User) -> None:
    done = here.mcpd("up", "--yes", *CLIENTS, path=packages(here, runs="test $1 = mcp-server-echo"))
    assert done.returncode == 0, done
    assert "mcpd: echo is not pinned: with its newest version it does not come up\n" in done.stderr
    assert "Works: echo, in Cursor" in done.stdout
    assert "Not pinned: echo (`mcpd pin echo`)." in done.stdout
    assert json.loads(config(here).read_text())["mcpServers"]["echo"]["args"] == ["mcp-server-echo"]


def test_what_a_client_writes_is_no_command_of_mcpds(here: User) -> None:
    ran = here.home / "ran"
    entry = {**json.loads(ENTRY), "env": {"A": f"${{run:touch {ran}}}", "B": f"{{env:run:touch {ran}}}"}}
    files(here)[0].write_text(json.dumps({"mcpServers": {"echo": entry}}))
    done = here.mcpd("up", "--yes", "--clients", "cursor")
    assert "echo: ready, 1 tool" in done.stdout, done.stderr
    text = config(here).read_text()
    assert '"A": "$' in text
    assert "${run:" not in text.replace("$${", "")
    assert not ran.exists()


def test_purged_nothing_is_left_but_what_is_not_mcpds(here: User) -> None:
    before = {*here.home.rglob("*")}
    assert here.mcpd("up", "--yes", *CLIENTS).returncode == 0
    note = config(here).with_name("notes.txt")
    note.write_text("mine")
    why, remedies = "mcpd is still in Cursor, Codex and a daemon runs (pid ", ("uninstall --all", "stop")
    refused = here.mcpd("purge", "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"mcpd: {why}" in refused.stderr
    assert "): first `mcpd uninstall --all && mcpd stop`. Nothing was deleted\n" in refused.stderr
    looked = here.mcpd("purge", "--dry-run")
    assert (looked.returncode, "state.db" in looked.stdout, why in looked.stderr) == (0, True, True), looked
    assert [here.mcpd(*each.split()).returncode for each in remedies] == [0, 0]
    asked = here.mcpd("purge")
    assert (asked.returncode, "no terminal to ask in" in asked.stderr, note.exists()) == (1, True, True)
    with Typing(here, "purge") as person:
        assert "~/.local/state/mcpd/state.db" in person.until("Delete this for good? [y/N] ")
        person.write("y")
        assert person.end()[0] == 0
    kept = {here.home / name for name in (".local", ".local/share", ".local/state")} | {note}
    assert {*here.home.rglob("*")} - before == kept


def test_only_the_servers_that_rules_are_about_keep_their_names(here: User) -> None:
    cursor = files(here)[0]
    rules = cursor.with_name("cli-config.json")
    rules.write_text('{"permissions": {"deny": ["Mcp(echo:echo)"]}}')
    other = {"command": PROGRAM, "args": [*ARGS, "--name", "other"]}
    servers = {"echo": json.loads(ENTRY), "other": other}
    cursor.write_text(json.dumps({"mcpServers": servers}) + " // mine\n")
    before = contents(here)
    done = here.mcpd("up", "--yes", *CLIENTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        f"Under their own names: echo, because its own rules use these names: Mcp(echo:echo) in {rules}"
        in done.stdout
    )
    made = json.loads(cursor.read_text().removesuffix(" // mine\n"))["mcpServers"]
    assert list(made) == ["echo", "mcpd"]
    assert made["echo"]["args"][-2:] == ["--server", "echo"]
    assert made["mcpd"]["args"] == ["connect", "--without", "echo"]
    # Behind the entry for all, what is denied can be called by no name.
    with RawClient(here.front) as client:
        client.hello(without=["echo"])
        listed = client.ask("tools/list")
        called = {"category": "echo", "name": "echo", "args": {"text": "x"}}
        refused = client.ask("tools/call", {"name": "call-category-tool", "arguments": called})
    assert "- other: " in json.dumps(listed)
    assert "- echo: " not in json.dumps(listed)
    assert refused["result"]["isError"]
    assert "rules" not in here.mcpd("doctor").stdout
    # A rule that comes later is told, and `install` has it hold.
    rules.write_text('{"permissions": {"deny": ["Mcp(echo:echo)", "Mcp(other:echo)"]}}')
    assert "Mcp(other:echo)" in here.mcpd("doctor").stdout
    assert here.mcpd("install", "cursor").returncode == 0
    made = json.loads(cursor.read_text().removesuffix(" // mine\n"))["mcpServers"]
    assert [each["args"][-2:] for each in made.values()] == [["--server", "echo"], ["--server", "other"]]
    assert here.mcpd("uninstall", "cursor", "codex").returncode == 0
    assert contents(here) == before


def test_at_a_terminal_each_question_is_asked_once(here: User) -> None:
    with Typing(here, "up", *CLIENTS) as typing:
        typing.until("Take this server into ~/.config/mcpd/mcpd.json? [Y/n] ")
        typing.write("")
        typing.until("Put mcpd into Cursor and Codex, in place of the servers mcpd runs? [Y/n] ")
        typing.write("y")
        status, said = typing.end()
    assert status == 0
    assert "Needs attention: nothing." in said
    assert "?" not in said


def test_all_is_as_it_was_unless_somebody_agrees_and_a_daemon_can_run(here: User) -> None:
    before = contents(here)
    done = here.mcpd("up", *CLIENTS)
    assert "It would ask: Take this server into ~/.config/mcpd/mcpd.json?" in done.stdout
    assert "It would ask: Put mcpd into Cursor and Codex" in done.stdout
    assert "--yes to agree" in done.stderr
    found = here.mcpd("up", "--dry-run", "--yes", "--socket", str(here.front), *CLIENTS)
    assert (found.returncode, found.stdout) == (0, done.stdout), found.stderr
    assert contents(here) == before
    with Typing(here, "up", *CLIENTS) as typing:
        typing.until("? [Y/n] ")
        typing.write("n")
        status, said = typing.end()
    assert (status, "nothing was changed" in said) == (1, True)
    assert not here.front.exists()
    here.front.parent.touch()
    failed = here.mcpd("up", "--yes", *CLIENTS)
    assert "is unchanged, and no client was changed" in failed.stderr
    assert contents(here) == before
    assert not config(here).exists()
    here.front.parent.unlink()
    for path in files(here):
        path.write_text("")
    none = here.mcpd("up", "--yes", *CLIENTS)
    assert "`mcpd add`" in none.stderr
    assert (done.returncode, failed.returncode, none.returncode) == (1, 1, 1)
    assert not here.front.exists()


def test_what_needs_attention_is_said_and_what_a_project_has_is_not_taken(here: User, tmp_path: Path) -> None:
    project = tmp_path / ".cursor" / "mcp.json"
    project.parent.mkdir()
    project.write_text(f'{{"mcpServers": {{"theirs": {BROKEN}}}}}')
    cursor, codex = files(here)
    cursor.write_text(f'{{"mcpServers": {{"echo": {ENTRY}, "broken": {BROKEN}}}}}')
    codex.write_text("= broken")
    done = here.mcpd("up", "--yes", *CLIENTS, cwd=tmp_path)
    assert done.returncode == 1
    assert "config.toml" in done.stderr
    assert "Works: echo, in Cursor once restarted." in done.stdout
    assert "Needs attention: broken: failed, There is no file /no/program" in done.stdout
    assert f"; {codex}: 1 fault" in done.stdout
    assert codex.read_text() == "= broken"
    assert list(json.loads(config(here).read_text())["mcpServers"]) == ["echo", "broken"]
    assert f"Left out: theirs of the project, in {project} (`mcpd import`" in done.stdout


def test_tokens_that_wait_to_be_confirmed_after_a_restart_need_attention(here: User) -> None:
    assert here.mcpd("up", "--yes", *CLIENTS).returncode == 0
    listen = {"http": {"address": f"127.0.0.1:{free_port()}"}}
    config(here).write_text(json.dumps({**json.loads(config(here).read_text()), "listen": listen}))
    for words in (("start", "--restart"), ("token", "new", "ci"), ("start", "--restart")):
        assert here.mcpd(*words).returncode == 0
    said = " ".join(here.mcpd("up", "--yes", *CLIENTS).stdout.split())
    assert "Needs attention: 2 tokens of an earlier daemon refused until you confirm" in said
    assert "`mcpd token confirm --default`; `mcpd token confirm ci`" in said


def test_what_claude_code_has_in_one_directory_is_taken_from_anywhere_for_it_alone(here: User) -> None:
    at, file = here.home / "app", here.home / ".claude.json"
    at.mkdir()
    entry = {"command": PROGRAM, "args": [*ARGS, str(at)]}
    file.write_text(json.dumps({"projects": {str(at): {"mcpServers": {"own": entry}}}}))
    before = file.read_bytes()
    done = here.mcpd("up", "--yes", "--clients", "claude-code")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"own: Claude Code has it in {at} alone, so mcpd offers it only to clients that work there" in said
    assert "`mcpd unset own workspaces` offers it to all" in said
    made = json.loads(config(here).read_text())["mcpServers"]["own"]
    assert (made["args"][-1], made["share"]) == ("${workspace}", "workspace")
    assert made["workspaces"] == [str(at)]
    now = json.loads(file.read_text())
    assert (list(now["mcpServers"]), now["projects"][str(at)]["mcpServers"]) == (["mcpd"], {})
    again = here.mcpd("up", "--clients", "claude-code")
    assert (again.returncode, again.stderr) == (0, "")
    assert here.mcpd("remove", "own").returncode == 0
    assert here.mcpd("install", "claude-code").returncode == 0
    assert json.loads(file.read_text())["projects"][str(at)]["mcpServers"] == {"own": entry}
    assert here.mcpd("uninstall", "claude-code").returncode == 0
    assert file.read_bytes() == before

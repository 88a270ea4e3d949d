"""`mcpd add` with a real daemon and real servers: what is added is up, or is taken back byte for byte."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import MCPD, ROOT, Daemon, running
from tests.scripted_server import command
from tests.terminals import Typing
from tests.waiting import run_to_end

QUICK = command(tools=["echo", "pid"])
TEXT = f"""{{
  // mine
  "mcpServers": {{
    "old": {{"command": "{QUICK[0]}", "args": {json.dumps(QUICK[1:])}}} // kept
  }},
}}
"""


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running({"mcpServers": {}}) as started:
        started.config.write_text(TEXT)
        started.ask("reload")
        yield started


def told(daemon: Daemon, *words: str, status: int = 0, given: str = "") -> str:
    """Everything that a command says, which ends with this exit status."""
    asked, cut = [*words], words.index("--") if "--" in words else len(words)
    asked[cut:cut] = ["--config", str(daemon.config)]
    done = daemon.outcome(*asked, given=given)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def test_a_server_is_added_as_a_person_would_shown_with_its_tools_and_removed_again(daemon: Daemon) -> None:
    said = told(daemon, "add", "time", "--description", "the time", "--", *QUICK)
    assert ("time is ready: 2 tools" in said, "pid" in said) == (True, True), said
    text = daemon.config.read_text()
    assert "// mine" in text
    assert "} // kept" not in text  # a comma stands there now
    assert '    "time": {\n      "description": "the time",\n      "command": ' in text
    told(daemon, "remove", "time")
    assert daemon.config.read_text() == TEXT
    assert "time" not in daemon.ask("status")["servers"]


def test_what_cannot_come_up_is_explained_and_taken_back(daemon: Daemon) -> None:
    said = told(daemon, "add", "broken", "--env", "API_KEY=k-83hd82hd8", "--", "/no/program", status=1)
    assert ("/no/program" in said, "taken back" in said, "k-83hd82hd8" in said) == (True, True, False), said
    assert ("`command=PATH`" in said, "mcpd set" in said) == (True, False), said  # There is no entry any more.
    sick = ("--", "sh", "-c", "echo oh no >&2; exit 1")
    assert '"undone": true' in told(daemon, "add", "sick", "--json", *sick, status=1)
    # Its log is gone with it, so its last words are told here; each time, also if each session has its own.
    for share in ("all", "session", "session"):
        said = told(daemon, "add", "sick", "--share", share, *sick, status=1)
        assert ("stderr| oh no" in said, "taken back" in said) == (True, True), said
    assert daemon.config.read_text() == TEXT
    assert not daemon.config.with_name("env").exists()
    assert set(daemon.ask("status")["servers"]) == {"old"}


def test_what_waits_for_something_stays_and_so_does_what_is_to_be_kept(daemon: Daemon) -> None:
    wants_a_variable = ("--", "sh", "-c", "echo GITHUB_TOKEN is not set >&2; exit 1")
    said = told(daemon, "add", "github", *wants_a_variable, status=1)
    assert ("`mcpd set github env.GITHUB_TOKEN` asks" in said, "mcpd remove github" in said) == (True, True), (
        said
    )
    assert "mcpd remove broken" in told(daemon, "add", "broken", "--keep", "--", "/no/program", status=1)
    kept = daemon.config.read_text()
    assert "taken back" in told(daemon, "add", "gitlab", "--or-undo", *wants_a_variable, status=1)
    assert daemon.config.read_text() == kept
    assert set(daemon.ask("status")["servers"]) == {"old", "github", "broken"}


def test_a_pasted_server_waits_for_the_variables_that_nothing_sets(daemon: Daemon) -> None:
    entry = {"command": "true", "env": {"TOKEN": "${input:hub-token}", "API_KEY": "sk-0123456789abcdef"}}
    snippet = json.dumps({"inputs": [{"id": "hub-token"}], "servers": {"hub": entry}})
    said = told(daemon, "add", "-", given=snippet, status=1)
    assert ("`mcpd set hub env.TOKEN` asks" in said, "it stays" in said) == (True, True), said
    assert '"API_KEY": "${HUB__API_KEY}"' in daemon.config.read_text()


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(daemon: Daemon) -> None:
    assert "mcpd remove old" in told(daemon, "add", "old", "--", *QUICK, status=1)
    assert daemon.config.read_text() == TEXT
    told(daemon, "add", "old", "--replace", "--", *QUICK)
    assert json.loads(daemon.run("status", "--json"))["servers"]["old"]["state"] == "ready"


LISTING = command(
    tools=["echo", "pid"],
    on={
        "initialize": {
            "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }
        },
        # Later than the tools, with which a server is up, and than the daemon's answer to the reload.
        "prompts/list": {"delay": 2, "result": {"prompts": [{"name": "greet"}]}},
    },
)
"""A server with tools and a prompt."""


def held(daemon: Daemon, server: str) -> set[str]:
    return set(daemon.ask("status")["servers"][server]["held"])


def adding(daemon: Daemon, answer: str, server: list[str], *words: str) -> tuple[str, str]:
    """What is said before and after a person's answer to the one question."""
    with Typing(daemon, "add", "--config", str(daemon.config), "time", *words, "--", *server) as person:
        before = person.until("Approve? [Y/n] ")
        person.write(answer)
        status, after = person.end()
    assert status == 0
    assert "?" not in after
    return before, after


def test_what_a_new_server_lists_is_approved_with_one_key_where_nothing_is_trusted(daemon: Daemon) -> None:
    before, after = adding(daemon, "", LISTING, "--trust", "none")
    assert "time lists 3 definitions, held until you approve:\n  prompt:greet, echo, pid\n" in before
    assert "approved time/echo" in after
    assert held(daemon, "time") == set()
    assert '"trust": "none"' in daemon.config.read_text()
    with daemon.client().hello(surface="full") as client:
        assert {"echo", "pid"} <= {*client.listed()}


def test_without_a_yes_or_a_terminal_it_is_held_and_the_command_is_named(daemon: Daemon) -> None:
    _, after = adding(daemon, "n", QUICK, "--trust", "none")
    assert "`mcpd approve time` approves" in after
    assert held(daemon, "time") == {"echo", "pid"}
    said = told(daemon, "add", "again", "--trust", "none", "--", *QUICK)
    shown = [each in said for each in ("again lists 2 definitions", "`mcpd approve again`", "--yes")]
    assert shown == [True, True, False], said
    answer = json.loads(told(daemon, "add", "third", "--trust", "none", "--json", "--", *QUICK))
    assert (answer["held"], answer["tools"]) == (["echo", "pid"], [])
    # Where only changes are held, the first list is taken and nothing asked.
    said = told(daemon, "add", "fourth", "--trust", "changes", "--", *QUICK)
    assert ("fourth is ready: 2 tools" in said, "pprove" in said) == (True, False), said


def test_a_lock_beside_the_configuration_gets_the_new_server_with_one_key(daemon: Daemon) -> None:
    daemon.config.write_text(TEXT.replace("// mine", '"trust": "changes",'))
    lock = daemon.config.with_name("mcpd.lock")
    lock.write_text('{"lockfileVersion": 1, "servers": {}}')
    daemon.ask("reload")
    before, _ = adding(daemon, "y", QUICK)
    assert "2 definitions" in before
    assert held(daemon, "time") == set()
    assert set(json.loads(lock.read_text())["servers"]["time"]["tools"]) == {"echo", "pid"}
    assert held(daemon, "old") == {"echo", "pid"}


def test_without_a_daemon_it_is_added_and_what_starts_one_is_told(tmp_path: Path) -> None:
    config = tmp_path / "new" / "mcpd.json"
    done = alone(
        tmp_path, "add", "x", "https://example.com/mcp", "--header", "Authorization: Bearer t-8sh2ks02"
    )
    assert (done.returncode, "mcpd start" in done.stderr) == (0, True), done.stderr
    entry: dict[str, Any] = json.loads(config.read_text())["mcpServers"]["x"]
    assert entry == {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${X__TOKEN}"}}
    assert config.stat().st_mode & 0o777 == 0o600
    # Options may stand where one thinks of them.
    words = ("add", "y", "--type", "sse", "https://example.com/sse", "--dry-run")
    assert '"sse"' in alone(tmp_path, *words).stdout
    # What is known of a server is written, and said with its undo.
    known = alone(tmp_path, "add", "m", "--no-reload", "--", "mcp-server-memory")
    assert "m reads and rewrites its file for each call" in known.stderr
    assert '"limits": {"inFlight": 1} is written; undo: `mcpd unset m limits.inFlight`' in known.stderr
    assert json.loads(config.read_text())["mcpServers"]["m"]["limits"] == {"inFlight": 1}
    done = alone(tmp_path, "add", "y", "ftp://example.com/")
    assert (done.returncode, "'ftp://example.com/' is not a url" in done.stderr) == (2, True), done.stderr
    before = config.read_text()
    config.chmod(0o400)
    assert "read-only" in alone(tmp_path, "add", "y", "/run/y.sock").stderr
    config.chmod(0o600)
    assert config.read_text() == before
    config.write_text("{ broken")
    done = alone(tmp_path, "add", "y", "/run/y.sock")
    assert (done.returncode, "line 1" in done.stderr, config.read_text()) == (78, True, "{ broken")


def alone(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`mcpd WORDS` of somebody for whom no daemon runs."""
    own = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "MCPD_CONFIG": str(home / "new" / "mcpd.json")}
    return run_to_end([*MCPD, *words], env={"PATH": "/usr/bin:/bin", **own}, cwd=ROOT)


# --- `mcpd remove` -------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return tmp_path / "new" / "mcpd.json"


def test_a_server_is_removed_under_the_name_that_it_is_shown_by_unless_a_category_names_it(
    tmp_path: Path, config: Path
) -> None:
    text = '{"mcpServers": {"a": {"command": "x"}}, "categories": {"c": {"server": "a"}}}'
    config.write_text(text)
    done = alone(tmp_path, "remove", "a")
    assert (done.returncode, "$.categories.c.server" in done.stderr) == (78, True), done.stderr
    assert config.read_text() == text
    config.write_text('{"mcpServers": {"Brave Search": {"command": "x"}, "b": {"command": "y"}}}')
    assert "did you mean 'b'" in alone(tmp_path, "remove", "bb").stderr
    shown = alone(tmp_path, "remove", "brave-search", "--dry-run")
    assert (shown.returncode, '-{"mcpServers"' in shown.stdout) == (0, True)
    done = alone(tmp_path, "remove", "brave-search")
    assert (done.returncode, "no daemon runs" in done.stdout) == (0, True), done.stderr
    assert config.read_text() == '{"mcpServers": {"b": {"command": "y"}}}'


def test_secrets_that_only_the_removed_server_used_are_named_with_the_command_that_deletes_them(
    tmp_path: Path, config: Path
) -> None:
    servers = {"a": {"command": "x", "env": {"A": "${ONE}", "B": "${TWO}"}}, "b": {"command": "${TWO}"}}
    config.write_text(json.dumps({"mcpServers": servers}))
    config.with_name("env").write_text("ONE=1\nTWO=2\n")
    config.with_name("env").chmod(0o600)
    done = alone(tmp_path, "remove", "a")
    env = config.with_name("env")
    line = "`mcpd secret remove ONE` deletes it"
    assert done.stderr == f"mcpd: ONE, which nothing else uses, stays in {env}: {line}\n"
    done = alone(tmp_path, "secret", "remove", "ONE")
    assert (done.returncode, done.stdout) == (0, "ONE is removed\n"), done.stderr
    assert env.read_text() == "TWO=2\n"
    done = alone(tmp_path, "secret", "remove", "TWO")
    assert (done.returncode, "b cannot start without TWO: --yes" in done.stderr) == (1, True), done.stderr
    assert alone(tmp_path, "secret", "remove", "TWO", "--yes").returncode == 0
    assert env.read_text() == ""


# --- `mcpd lazy` and `mcpd summaries` with a real daemon ----------------------------------------------------


COMMENT = "// mine\n"


@pytest.fixture
def settled() -> Iterator[Daemon]:
    with running({"mcpServers": {}, "profiles": {"reader": {"surface": "browse"}}}) as started:
        started.config.write_text(COMMENT + started.config.read_text())
        started.ask("reload")
        yield started


def test_a_switch_counts_at_once_for_a_client_that_is_connected(settled: Daemon) -> None:
    with settled.client().hello(profile="reader") as client:
        before = client.listed()
        assert "written at $.profiles.reader.lazy" in settled.run("lazy", "off", "--profile", "reader")
        # There is no server, so all tools are none.
        assert (bool(before), client.listed()) == (True, [])
    text = settled.config.read_text()
    assert text.startswith(COMMENT)
    assert settled.ask("status")["daemon"]["surfaces"]["reader"] == "full"
    assert "reader off: full" in settled.run("lazy")


def test_a_file_that_the_daemon_may_not_write_is_written_by_who_may(settled: Daemon) -> None:
    settled.config.chmod(0o400)
    refused = settled.outcome("lazy", "off")
    assert refused.returncode == 1
    assert f"`mcpd set . lazy=false --config {settled.config}`" in refused.stderr
    settled.config.chmod(0o600)
    said = settled.run("lazy", "off", "--config", str(settled.config))
    assert "the daemon has read it again" in said
    assert settled.ask("status")["daemon"]["lazy"] is False

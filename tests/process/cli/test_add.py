"""`mcpd add` with a real daemon and real servers: what is added is up, or is taken back byte for byte."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness import MCPD, ROOT, running
from tests.scripted_server import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.harness import Daemon

pytestmark = pytest.mark.process

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


def told(daemon: Daemon, *words: str) -> tuple[int, str]:
    """The exit status of a command, and everything that it says."""
    asked, cut = [*words], words.index("--") if "--" in words else len(words)
    asked[cut:cut] = ["--config", str(daemon.config)]
    done = subprocess.run(
        daemon.command(*asked),
        cwd=daemon.code,
        env=daemon.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_server_is_added_as_a_person_would_shown_with_its_tools_and_removed_again(daemon: Daemon) -> None:
    status, said = told(daemon, "add", "time", "--description", "the time", "--", *QUICK)
    assert (status, "time is ready: 2 tools" in said, "pid" in said) == (0, True, True), said
    text = daemon.config.read_text()
    assert "// mine" in text
    assert "} // kept" not in text  # a comma stands there now
    assert '    "time": {\n      "description": "the time",\n      "command": ' in text
    assert told(daemon, "remove", "time")[0] == 0
    assert daemon.config.read_text() == TEXT
    assert "time" not in daemon.ask("status")["servers"]


def test_what_cannot_come_up_is_explained_and_taken_back(daemon: Daemon) -> None:
    status, said = told(daemon, "add", "broken", "--env", "API_KEY=k-83hd82hd8", "--", "/no/program")
    assert (status, "/no/program" in said, "taken back" in said) == (1, True, True), said
    assert "k-83hd82hd8" not in said
    status, said = told(daemon, "add", "sick", "--json", "--", "sh", "-c", "echo oh no >&2; exit 1")
    # Its log is gone with it, so its last words are told here.
    assert (status, '"undone": true' in said, "stderr| oh no" in said) == (1, True, False), said
    status, said = told(daemon, "add", "sick", "--", "sh", "-c", "echo oh no >&2; exit 1")
    assert (status, "stderr| oh no" in said, "taken back" in said) == (1, True, True), said
    assert daemon.config.read_text() == TEXT
    assert not daemon.config.with_name("env").exists()
    assert set(daemon.ask("status")["servers"]) == {"old"}


def test_what_waits_for_something_stays_and_so_does_what_is_to_be_kept(daemon: Daemon) -> None:
    wants_a_variable = ("sh", "-c", "echo GITHUB_TOKEN is not set >&2; exit 1")
    status, said = told(daemon, "add", "github", "--", *wants_a_variable)
    assert (status, "add GITHUB_TOKEN to it" in said, "mcpd remove github" in said) == (1, True, True), said
    status, said = told(daemon, "add", "broken", "--keep", "--", "/no/program")
    assert (status, "mcpd remove broken" in said) == (1, True), said
    kept = daemon.config.read_text()
    status, said = told(daemon, "add", "gitlab", "--or-undo", "--", *wants_a_variable)
    assert (status, "taken back" in said, daemon.config.read_text()) == (1, True, kept), said
    assert set(daemon.ask("status")["servers"]) == {"old", "github", "broken"}


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(daemon: Daemon) -> None:
    status, said = told(daemon, "add", "old", "--", *QUICK)
    assert (status, "mcpd remove old" in said, daemon.config.read_text()) == (1, True, TEXT)
    assert told(daemon, "add", "old", "--replace", "--", *QUICK)[0] == 0
    assert json.loads(daemon.run("status", "--json"))["servers"]["old"]["state"] == "ready"


def test_credentials_are_kept_beside_the_configuration(daemon: Daemon) -> None:
    words = ["add", "time", "--env", "API_KEY=k-83hd82hd8", "--env", "LEVEL=2", "--json", "--", *QUICK]
    status, said = told(daemon, *words)
    assert (status, '"state": "ready"' in said, "k-83hd82hd8" in said) == (0, True, False), said
    assert '"API_KEY": "${TIME__API_KEY}",\n        "LEVEL": "2"' in daemon.config.read_text()
    assert daemon.config.with_name("env").read_text() == "TIME__API_KEY=k-83hd82hd8\n"
    assert "TIME__API_KEY" in told(daemon, "remove", "time")[1]


def test_without_a_daemon_it_is_added_and_what_starts_one_is_told(tmp_path: Path) -> None:
    config = tmp_path / "new" / "mcpd.json"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MCPD_CONFIG": str(config)}
    done = add(environ, "x", "https://example.com/mcp", "--header", "Authorization: Bearer t-8sh2ks02")
    assert (done.returncode, "mcpd start" in done.stderr) == (0, True), done.stderr
    entry: dict[str, Any] = json.loads(config.read_text())["mcpServers"]["x"]
    assert entry == {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${X__TOKEN}"}}
    assert config.stat().st_mode & 0o777 == 0o600
    # Options may stand where one thinks of them.
    assert '"sse"' in add(environ, "y", "--type", "sse", "https://example.com/sse", "--dry-run").stdout
    # What is known of a server is written, and said with its undo.
    known = add(environ, "m", "--no-reload", "--", "mcp-server-memory")
    assert "m reads and rewrites its file for each call" in known.stderr
    assert '"limits": {"inFlight": 1} is written; to undo that, remove it in its entry' in known.stderr
    assert json.loads(config.read_text())["mcpServers"]["m"]["limits"] == {"inFlight": 1}
    done = add(environ, "y", "ftp://example.com/")
    assert (done.returncode, "'ftp://example.com/' is no url" in done.stderr) == (2, True), done.stderr
    before = config.read_text()
    assert "+" in add(environ, "y", "/run/y.sock", "--dry-run").stdout
    config.chmod(0o400)
    assert "read-only" in add(environ, "y", "/run/y.sock").stderr
    config.chmod(0o600)
    assert config.read_text() == before
    config.write_text("{ broken")
    done = add(environ, "y", "/run/y.sock")
    assert (done.returncode, "line 1" in done.stderr, config.read_text()) == (78, True, "{ broken")


def add(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MCPD, "add", *words],
        env={**environ, "XDG_RUNTIME_DIR": environ["HOME"]},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

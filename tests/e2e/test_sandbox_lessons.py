"""`mcpd sandbox` and `mcpd allow-host` with a real daemon: a server is learned, then confined."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Daemon, own_directory, started
from tests.pages import Page, site
from tests.waiting import WAIT, eventually

SERVER = """
import json, os, sys, urllib.request
def use(read=(), write=(), fetch=""):
    said = []
    for path in map(os.path.expanduser, read):
        said.append(open(path).read())
    for path in map(os.path.expanduser, write):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w") as file:
            file.write("written")
        os.replace(path + ".new", path)
    if fetch:
        said.append(urllib.request.urlopen(fetch, timeout=20).read().decode())
    return "; ".join(said) or "done"
for each in sys.argv[1:]:
    os.stat(each.removeprefix("at:"))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {}
    if asked["method"] == "initialize":
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "box", "version": "1"}}
    elif asked["method"] == "tools/list":
        answer = {"tools": [{"name": "use", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        try:
            text, failed = use(**asked["params"]["arguments"]), False
        except OSError as error:
            text, failed = str(error), True
        answer = {"content": [{"type": "text", "text": text}], "isError": failed}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""

TOOL = "~/.local/share/uv/tools/t/x"
"""In a cache, of which each server gets its own."""

USED = {"read": ["~/notes/a.md", "~/notes/b.md", "~/.ssh/config"], "write": ["~/journal/day.md", TOOL]}
"""What the server does while it is learned."""


class Box:
    """A daemon with one server, and a home directory with things that the server uses."""

    def __init__(self, daemon: Daemon, home: Path) -> None:
        self.daemon, self.home = daemon, home

    def sandbox(self) -> Any:
        """`sandbox` of the entry, and the comment that must have stayed."""
        text = self.daemon.config.read_text()
        assert "// mine" in text
        return json.loads(text.replace("// mine", ""))["mcpServers"]["box"].get("sandbox")

    def use(self, **arguments: Any) -> str:
        result = self.daemon.ask("call", server="box", tool="use", arguments=arguments)
        return str(result["content"][0]["text"])

    def lesson(self, *words: str, calls: tuple[dict[str, Any], ...] = ()) -> tuple[dict[str, Any], str]:
        """`mcpd sandbox box --learn` with these calls; returns its answer, and its remarks."""
        file = self.daemon.directory / "calls.jsonl"
        file.write_text("".join(json.dumps({"tool": "box/use", "arguments": each}) + "\n" for each in calls))
        words = ("sandbox", "box", "--learn", "--json", "--calls", str(file), *words)
        done = self.daemon.outcome(*words, "--config", str(self.daemon.config))
        assert done.returncode == 0, done.stderr
        return json.JSONDecoder().raw_decode(done.stdout)[0], done.stderr


@contextlib.contextmanager
def boxed(sandbox: object, *words: str) -> Iterator[Box]:
    home = Path(tempfile.mkdtemp()).resolve()
    for path, text in (("notes/a.md", "a"), ("notes/b.md", "b"), (".ssh/config", "secret")):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    entry = {"command": sys.executable, "args": ["-I", "-S", "-c", SERVER, *words], "sandbox": sandbox}
    daemon = Daemon(own_directory(), {"mcpServers": {"box": entry}}, {"HOME": str(home)})
    with started(daemon):
        text = json.dumps({"mcpServers": {"box": entry}}, indent=2).replace(
            '"mcpServers"', '// mine\n"mcpServers"'
        )
        daemon.config.write_text(text)
        daemon.ready("box")
        yield Box(daemon, home)
    shutil.rmtree(home)


@pytest.fixture
def given() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir="/var/tmp"))
    (made / "told").write_text("x")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def web() -> Iterator[str]:
    class Words(Page):
        def do_GET(self) -> None:
            self.say(b"page")

    with site(Words, "127.0.0.2") as address:
        yield f"{address}/"


def test_a_server_is_learned_and_then_works_under_strict_with_the_entry() -> None:
    with boxed("strict") as box:
        assert "No such file" in box.use(read=["~/notes/a.md"])
        answer, said = box.lesson("--mode", "strict", "--write", calls=(USED,))
        assert answer["sandbox"] == {
            "mode": "strict",
            "filesystem": {"allowRead": ["~/notes"], "allowWrite": ["~/journal"]},
        }
        assert [line["why"] for line in answer["lines"]] == [
            "read 2 files there, first a.md",
            "wrote 2 files there, first day.md",
        ]
        assert answer["notes"] == [
            "it read ~/.ssh/config, which is secret: add allowRead yourself to allow that"
        ]
        assert "called use" in said
        assert box.sandbox() == answer["sandbox"]
        assert box.use(read=["~/notes/a.md"], write=["~/journal/other.md"]) == "a"
        assert (box.home / "journal" / "other.md").read_text() == "written"
        assert "No such file" in box.use(read=["~/.ssh/config"])
        shown = box.daemon.run("sandbox", "box")
        assert shown.startswith("box: strict, which lets")
        assert shown.splitlines()[1] == f"  allowRead: {box.home}/notes"
        assert "  allowedDomains: none" in shown.splitlines()


def test_what_was_below_tmp_before_is_learned_where_the_entry_names_it(given: Path) -> None:
    with boxed("off", str(given)) as box:
        answer, _ = box.lesson("--mode", "strict", "--write", calls=({"read": [str(given / "told")]},))
        assert answer["sandbox"]["filesystem"] == {"allowRead": [str(given / "told")]}
        assert box.use(read=[str(given / "told")]) == "x"


def test_an_entry_with_which_the_server_does_not_come_up_is_taken_back(given: Path) -> None:
    with boxed("off", f"at:{given}") as box:
        before, config = box.daemon.config.read_text(), str(box.daemon.config)
        (calls := box.daemon.directory / "calls.jsonl").write_text('{"tool": "use"}')
        words = ("--learn", "--mode", "strict", "--calls", str(calls), "--write", "--config", config)
        done = box.daemon.outcome("sandbox", "box", *words)
        assert (done.returncode, box.daemon.config.read_text()) == (1, before)
        assert done.stderr.endswith("taken back: the files are restored; try again when that is corrected\n")
        assert box.use() == "done"


def test_a_lesson_ends_with_its_command_and_leaves_the_sandbox_as_it_was() -> None:
    with boxed("strict") as box:
        before = box.daemon.config.read_text()
        answer, _ = box.lesson(calls=({"read": ["~/notes/a.md"]},))
        assert answer["sandbox"] == {"network": {"allowedDomains": []}}
        assert box.daemon.config.read_text() == before
        box.daemon.ready("box")
        assert "No such file" in box.use(read=["~/notes/a.md"])
        assert box.daemon.ask("sandbox", server="box")["learning"] is False


def test_an_entry_that_would_have_no_effect_is_not_written() -> None:
    with boxed("off") as box:
        config = box.daemon.config
        config.write_text(config.read_text().replace('"sandbox"', '"sandboxEnabled": false, "sandbox"'))
        before, calls = config.read_text(), box.daemon.directory / "calls.jsonl"
        calls.write_text('{"tool": "use"}')
        words = ("sandbox", "box", "--learn", "--calls", str(calls), "--write", "--config", str(config))
        done = box.daemon.outcome(*words)
        assert (done.returncode, config.read_text()) == (1, before)
        assert "sandboxEnabled" in done.stderr


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_lesson_lasts_as_long_as_its_command(end: signal.Signals) -> None:
    with boxed("strict") as box:
        words = box.daemon.command("sandbox", "box", "--learn", "--mode", "strict", "--for", "1h")
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environ = box.daemon.environ
        with subprocess.Popen(words, cwd=box.daemon.code, env=environ, **pipes) as command:
            try:
                assert command.stderr is not None
                assert b"starts box without its sandbox" in command.stderr.readline()
                assert b"is watched: use it now, 1h" in command.stderr.readline()
                assert box.use(read=["~/notes/a.md"]) == "a"
                assert "mcpd is learning the server" in box.daemon.run("status", check=None)
                twice = box.daemon.outcome("sandbox", "box", "--learn")
                assert (twice.returncode, "under way" in twice.stderr) == (1, True)
                command.send_signal(end)
                said, _ = command.communicate(timeout=WAIT)
            finally:
                command.kill()
        learns = end is signal.SIGINT
        assert (command.returncode == 0) is learns
        assert (b"  allowRead ~/notes/a.md: read it" in said) is learns
        eventually(lambda: not box.daemon.ask("sandbox", server="box")["learning"], box.daemon.said)
        box.daemon.ready("box")
        assert "No such file" in box.use(read=["~/notes/a.md"])
        assert "being learned" not in box.daemon.run("status", check=None)


def test_a_private_host_stays_refused_meanwhile_and_is_told_of(web: str) -> None:
    with boxed("home") as box:
        answer, _ = box.lesson(calls=({"fetch": web},))
        assert answer["sandbox"] == {"network": {"allowedDomains": []}}
        assert [note[:19] for note in answer["notes"]] == ["it wanted 127.0.0.2"]


def test_a_refused_host_is_shown_and_allowed_by_the_line_that_is_named(web: str) -> None:
    with boxed({"mode": "strict", "network": {"allowedDomains": ["a.example"]}}) as box:
        assert "403" in box.use(fetch=web)
        shown = box.daemon.run("sandbox", "box")
        assert "  wanted 127.0.0.2 1 time: mcpd allow-host box 127.0.0.2" in shown
        box.daemon.run("allow-host", "box", "127.0.0.2", "--config", str(box.daemon.config))
        assert box.sandbox() == {"mode": "strict", "network": {"allowedDomains": ["a.example", "127.0.0.2"]}}
        assert box.use(fetch=web) == "page"
        again = box.daemon.run("allow-host", "box", "127.0.0.2", "--config", str(box.daemon.config))
        assert "already" in again


def test_a_word_becomes_the_object_with_the_same_meaning() -> None:
    with boxed("home") as box:
        box.daemon.run("allow-host", "box", "db.internal", "--config", str(box.daemon.config))
        assert box.sandbox() == {"network": {"allowedDomains": ["*", "db.internal"]}}
        refused = box.daemon.outcome("allow-host", "box", "https://x.com/y", "--config", str(box.daemon.config))
        assert refused.returncode == 78
        assert "https://x.com/y" in refused.stderr


def test_a_shell_is_inside_the_sandbox() -> None:
    with boxed({"mode": "strict", "filesystem": {"allowRead": ["~/notes"]}}) as box:
        words = ("sandbox", "box", "--shell", "--config", str(box.daemon.config))
        typed = "cat ~/notes/a.md; ls -A ~; cat ~/.ssh/config; exit 7"
        done = box.daemon.outcome(*words, given=typed, SHELL="/bin/sh")
        assert done.returncode == 7, done.stderr
        assert done.stdout.startswith("a")
        assert "secret" not in done.stdout
        assert "No such file" in done.stdout

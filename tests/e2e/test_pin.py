"""`mcpd pin` and `upgrade`: the newest version of what a server's command fetches, in its entry."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from daemon.config.jsonc import decode
from tests.e2e.harness import Daemon, own_directory, started
from tests.scripted_server import command
from tests.terminals import Typing
from tests.unit.cases import rows_of

DIGEST = f"sha256:{'0a' * 32}"
ENTRIES = dict(rows_of(Path(__file__), "entries"))
TEXT = "\n".join(
    ("{", "  // mine", '  "mcpServers": {', *(f'    "{k}": {v}' for k, v in ENTRIES.items()), "  },", "}")
)
"""Nothing is left out of it but what is to be pinned."""


class Pinning:
    """Somebody with clients of registries on the PATH, and without a daemon until one is started."""

    def __init__(self) -> None:
        self.daemon = Daemon(own_directory(), {}, {})
        self.config = self.daemon.config
        self.bin = self.daemon.directory / "bin"
        self.bin.mkdir()
        self.daemon.environ["PATH"] = f"{self.bin}:/usr/bin:/bin"
        self.daemon.environ["PYTHONPATH"] = str(self.bin)
        (self.bin / "pip.py").write_text("raise SystemExit('there is no index')")
        self.config.write_text(TEXT)
        self.config.chmod(0o600)
        for name in ("npx", "docker", "uvx"):
            self.client(name, "sys.exit(1)")
        self.client("uv", "print('mcp-server-time==2.0')")
        self.client("npm", "print('1.2.3')")
        self.client("docker", f"print('[\"ghcr.io/o/hub@{DIGEST}\"]')")

    def client(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{sys.executable} -SE\nimport os, sys\n{body}\n")
        path.chmod(0o755)

    def run(self, *words: str, command: str = "pin") -> tuple[int, str]:
        """`mcpd pin WORDS`: its exit status, and everything that it says."""
        done = self.daemon.outcome(command, "--config", str(self.config), *words)
        return done.returncode, done.stdout + done.stderr

    def changed(self) -> list[tuple[str, str]]:
        """The lines of the configuration that differ, before and after."""
        lines = zip(TEXT.splitlines(), self.config.read_text().splitlines(), strict=True)
        return [(was, now) for was, now in lines if was != now]


@pytest.fixture
def pinning() -> Pinning:
    return Pinning()


@pytest.mark.parametrize(
    ("server", "before", "after"),
    [
        ("time", "mcp-server-time", "mcp-server-time==2.0"),
        ("memory", "@s/memory@latest", "@s/memory@1.2.3"),
        ("hub", "ghcr.io/o/hub:1", f"ghcr.io/o/hub@{DIGEST}"),
    ],
)
def test_the_word_that_names_it_is_replaced_and_all_else_stays(
    server: str, before: str, after: str, pinning: Pinning
) -> None:
    status, said = pinning.run(server, "--dry-run")
    assert (status, f"{server}: {before} becomes {after}" in said, "+    " in said) == (0, True, True), said
    assert pinning.changed() == []
    status, said = pinning.run(server)
    assert (status, f"{server}: {before} becomes {after}" in said, "mcpd start" in said) == (0, True, True), (
        said
    )
    ((was, now),) = pinning.changed()
    assert now == was.replace(f'"{before}"', f'"{after}"')
    status, said = pinning.run(server)
    assert (status, "nothing in its entry is left to pin" in said) == (1, True), said


def test_what_cannot_be_pinned_or_is_not_found_is_said_and_left_alone(pinning: Pinning) -> None:
    for server in ("pinned", "ranged", "web"):
        status, said = pinning.run(server)
        assert (status, "nothing in its entry is left to pin" in said) == (1, True), said
    for name in ("uv", "npm", "docker"):
        pinning.client(name, "sys.exit(1)")
    for server, word in (
        ("time", "mcp-server-time"),
        ("memory", "@s/memory@latest"),
        ("hub", "ghcr.io/o/hub:1"),
        ("inside", "mcp-server-time"),
    ):
        status, said = pinning.run(server)
        assert (status, f"{word} is not pinned: neither npm nor uv found a version" in said) == (1, True), said
    status, said = pinning.run("tim")
    assert (status, "did you mean 'time'" in said) == (1, True), said
    assert pinning.changed() == []


def test_a_version_with_which_the_server_does_not_come_up_is_taken_back(pinning: Pinning) -> None:
    server = command(tools=["echo"])
    pinning.client(
        "uvx", f"if sys.argv[-1] == 'mcp-b==2.0': sys.exit('too new')\nos.execv({server[0]!r}, {server!r})"
    )
    pinning.client("uv", "print(f'{sys.stdin.read()}==2.0')")
    servers = {name: {"command": "uvx", "args": [f"mcp-{name}"]} for name in "ab"}
    pinning.config.write_text(json.dumps({"mcpServers": servers}))
    with started(pinning.daemon):
        pinning.daemon.ready("a", "b")
        status, said = pinning.run("a")
        assert (status, "a is ready: 1 tool" in said) == (0, True), said
        before = pinning.config.read_text()
        assert "mcp-a==2.0" in before
        status, said = pinning.run("b")
        assert (status, "too new" in said, "taken back" in said) == (1, True, True), said
        assert pinning.config.read_text() == before
        pinning.daemon.ready("a", "b")


def test_the_file_that_is_changed_is_the_one_that_is_named(pinning: Pinning, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(TEXT)
    status, said = pinning.run("time", "--config", str(other), "--no-reload")
    assert status == 0, said
    assert "mcp-server-time==2.0" in other.read_text()
    assert pinning.changed() == []


def test_all_servers_are_pinned_a_line_each(pinning: Pinning) -> None:
    status, said = pinning.run("--all", "--no-reload")
    assert status == 0, said
    assert len(pinning.changed()) == len(["time", "memory", "hub"]), pinning.changed()
    for line in (
        "memory: @s/memory@latest becomes @s/memory@1.2.3",
        "web: nothing in its entry is left to pin",
    ):
        assert f"mcpd: {line}" in said, said
    for words in ((), ("time", "--all")):
        status, said = pinning.run(*words)
        assert (status, "name servers, or write --all" in said) == (2, True), said
    pinning.config.write_text(TEXT.replace('"web":', '"odd": {"command": ["uvx", 1]}, "list": [], "web":'))
    status, said = pinning.run("--all", "--dry-run")
    assert status == 78, said
    assert "$.mcpServers.list: expected an object" in said
    assert "time: mcp-server-time becomes" in said
    status, said = pinning.run("tim", "time", "--no-reload")
    assert (status, "did you mean 'time'" in said) == (1, True), said
    assert "time: mcp-server-time becomes" in said


def test_exact_versions_are_upgraded_and_ranges_stay(pinning: Pinning) -> None:
    status, said = pinning.run("--all", "--dry-run", command="upgrade")
    assert (status, pinning.changed()) == (0, []), said
    assert "pinned: mcp-server-time==1.0 becomes mcp-server-time==2.0" in said
    assert "time: mcp-server-time becomes mcp-server-time==2.0" in said
    assert "ranged: nothing in its entry is left to upgrade" in said
    status, said = pinning.run("--all", "--dry-run", "--json", command="upgrade")
    told = json.JSONDecoder().raw_decode(said, said.index("{\n"))[0]["servers"]
    assert told["pinned"]["becomes"] == [["mcp-server-time==1.0", "mcp-server-time==2.0"]], said
    assert ("ranged" in told, status) == (False, 0)
    status, said = pinning.run("pinned", "--no-reload", "--json", command="upgrade")
    assert (status, '"becomes"' in said) == (0, False), said
    assert pinning.run("pinned", "--no-reload", command="upgrade")[0] == 1
    assert len(pinning.changed()) == 1


@pytest.mark.parametrize(("found", "newer"), [("1.0.dev9", False), ("1.0", False), ("1.0.post1", True)])
def test_an_upgrade_never_goes_down(found: str, newer: bool, pinning: Pinning) -> None:
    pinning.client("uv", f"print('mcp-server-time=={found}')")
    status, said = pinning.run("pinned", "--no-reload", command="upgrade")
    assert (status, len(pinning.changed())) == ((0, 1) if newer else (1, 0)), said
    line = f"mcpd: pinned: mcp-server-time==1.0 stays: the newest version that was found is {found}\n"
    assert (line in said, said.count("\n")) == (not newer, 2 if newer else 1), said


ECHO = {"name": "echo", "description": "Another one.", "inputSchema": {"type": "object"}}
VERSIONED = f"""
newer = sys.argv[-1].endswith("==2.0")
if newer and sys.argv[-1].startswith("mcp-b"):
    sys.exit("too new")
words = {command(tools=["more", ECHO])!r} if newer else {command(tools=["echo"])!r}
os.execv(words[0], words)
"""


def test_an_upgrade_shows_what_it_changes_and_is_taken_back_by_a_key_or_by_itself(pinning: Pinning) -> None:
    pinning.client("uvx", VERSIONED)
    pinning.client("uv", "print(f'{sys.stdin.read()}==2.0')")
    servers = {name: {"command": "uvx", "args": [f"mcp-{name}==1.0"]} for name in "ab"}
    pinning.config.write_text(json.dumps({"mcpServers": servers}))
    before = pinning.config.read_text()
    with started(pinning.daemon):
        pinning.daemon.ready("a", "b")
        for key, expected in (("n", 0), ("\x03", 130)):
            with Typing(pinning.daemon, "upgrade", "--config", str(pinning.config), "a") as person:
                said = person.until("Keep it? [Y/n] ")
                assert "a is ready: 2 tools\n" in said
                assert "  came: more\n  changed: echo\n" in said, said
                person.write(key)
                status, said = person.end()
            assert (status, pinning.config.read_text()) == (expected, before), said
            assert "taken back: the files are restored" in said
            assert "meanwhile" not in said
            assert pinning.daemon.ready("a", "b")["a"]["tools"] == 1
        status, said = pinning.run("--all", command="upgrade")
        assert (status, "a is ready: 2 tools" in said) == (1, True), said
        assert ("too new" in said, "taken back" in said) == (True, True), said
        assert pinning.config.read_text() == before.replace("mcp-a==1.0", "mcp-a==2.0")
        assert pinning.daemon.ready("a", "b")["a"]["tools"] == 2


HELD = f"""
if sys.argv[-1].endswith("==2.0") is ("mcp<2" in sys.argv):
    sys.exit("no solution found")
words = {command(tools=["echo"])!r}
os.execv(words[0], words)
"""


def test_an_upgrade_says_what_its_entry_holds_and_tries_without_that_too(pinning: Pinning) -> None:
    pinning.client("uvx", HELD)
    pinning.config.write_text(TEXT.replace('"mcp-server-time"]', '"mcp-server-time==1.0"]'))
    before = pinning.config.read_text()
    takes_out = f"`mcpd unset time 'args[0]' 'args[1]' --config {pinning.config}` removes it"
    holds = f"time: its entry holds --with mcp<2, which a newer version may not need: {takes_out}"
    status, said = pinning.run("time", "--no-reload", "--dry-run", command="upgrade")
    assert (status, holds in said) == (0, True), said
    with started(pinning.daemon):
        pinning.daemon.ready("time")
        status, said = pinning.run("time", command="upgrade")
        assert status == 0, said
        assert "taken back" in said
        assert "time: another try, without --with mcp<2" in said
        assert '["mcp-server-time==2.0"]' in pinning.config.read_text()
        undo = said.partition("undo: `mcpd ")[2].partition("`")[0]
        assert pinning.daemon.outcome(*shlex.split(undo)).returncode == 0
        assert decode(pinning.config.read_text(), source="") == decode(before, source="")


def test_an_upgrade_tries_a_server_that_starts_with_its_first_call(pinning: Pinning) -> None:
    pinning.client("uvx", VERSIONED)
    pinning.client("uv", "print(f'{sys.stdin.read()}==2.0')")
    servers = {name: {"command": "uvx", "args": [f"mcp-{name}==1.0"], "start": "lazy"} for name in "ab"}
    pinning.config.write_text(json.dumps({"mcpServers": servers}))
    with started(pinning.daemon):
        pinning.daemon.run("refresh", "a")
        status, said = pinning.run("--all", command="upgrade")
        assert (status, "  came: more\n  changed: echo\n" in said, "taken back" in said) == (1, True, True), (
            said
        )
        text = pinning.config.read_text()
        assert ("mcp-a==2.0" in text, "mcp-b==1.0" in text) == (True, True)

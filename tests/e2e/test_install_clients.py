"""Claude Code and Codex, really started: what they see of mcpd, and what is left when it is taken out again."""

import json
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.harness import MCPD, ROOT, free_port, node_server, program
from tests.waiting import eventually, run_to_end

MODULES = ROOT / ".cache" / "agents" / "node_modules"
MODEL = Path(__file__).with_name("scripted_model.py")

ARGUMENTS = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
CODEX_CONFIG = """\
# Kept by hand.
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "read-only"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""


@attrs.frozen
class Desk:
    """A user's home directory with both agents, and a port for the model that both talk to."""

    home: Path
    port: int

    def type(self, *words: str) -> str:
        """Run a command to its end, which must be a success; returns what it wrote."""
        done = run_to_end(words, cwd=self.home / "work", env=self.environ, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def mcpd(self, *words: str) -> str:
        """`mcpd WORDS`, on a socket of this test's."""
        return self.type(*MCPD, *words, "--socket", str(self.home / "mcpd.sock"))

    def claude(self, call: dict[str, Any], allowed: str = "") -> str:
        """What Claude Code reports while its model makes a call; `allowed`: what needs no agreement."""
        tools = allowed or call["name"]
        words = ("-p", "do it", "--allowedTools", tools, "--output-format", "stream-json", "--verbose")
        return self._with_model([call], claude(), *words)

    def codex(self, *calls: dict[str, Any]) -> str:
        """The same of Codex."""
        return self._with_model(calls, codex(), "exec", "--skip-git-repo-check", "--json", "do it")

    def _with_model(self, calls: Sequence[dict[str, Any]], *words: str) -> str:
        script = self.home / "calls.json"
        script.write_text(json.dumps(calls))
        with subprocess.Popen([sys.executable, MODEL, str(self.port), str(script)]) as model:
            try:
                eventually(lambda: listens(self.port))
                return self.type(*words)
            finally:
                model.kill()

    @property
    def environ(self) -> dict[str, str]:
        """The variables of everything that is run here."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(self.home),
            "PYTHONPATH": str(ROOT),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}",
            "ANTHROPIC_API_KEY": "sk-ant-scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Else its model would be shown no tools of servers until it has searched.
            "ENABLE_TOOL_SEARCH": "false",
            "SCRIPTED_KEY": "none",
        }


def claude() -> str:
    """The program of Claude Code, which its package would copy elsewhere when it is installed."""
    return str(next(MODULES.glob("@anthropic-ai/claude-code-*/claude")))


def codex() -> str:
    """The program of Codex."""
    return str(next(MODULES.glob("@openai/codex-*/vendor/*/bin/codex")))


def listens(port: int) -> bool:
    """Whether somebody does on a port of the loopback address."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def desk(sockets: Path) -> Iterator[Desk]:
    """Both agents with the same server, which they were given as their documentation says."""
    desk = Desk(sockets, free_port())
    (sockets / "work").mkdir()
    (sockets / ".codex").mkdir()
    (sockets / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(port=desk.port))
    desk.type(claude(), "mcp", "add", "--scope", "user", "time", "--", program("mcp-server-time"))
    desk.type(codex(), "mcp", "add", "time", "--", program("mcp-server-time"))
    yield desk
    desk.mcpd("stop")


def test_both_agents_call_a_tool_through_mcpd_and_have_their_own_server_again_afterwards(desk: Desk) -> None:
    path = desk.home / ".codex" / "config.toml"
    before = path.read_bytes()
    servers = _servers(desk)

    said = desk.mcpd("up", "--yes", "--no-service", "--clients", "claude", "codex")
    assert "Works: time, in Claude Code and Codex once restarted." in said
    assert "Needs attention: nothing." in said

    assert list(_servers(desk)) == ["mcpd"]
    assert list(tomllib.loads(path.read_text())["mcp_servers"]) == ["mcpd"]
    assert "+9.0h" in desk.claude({"name": "mcp__mcpd__convert_time", "arguments": ARGUMENTS})
    called = {"name": "convert_time", "namespace": "mcp__mcpd", "arguments": ARGUMENTS}
    assert "+9.0h" in desk.codex({"search": "convert time between timezones"}, called)

    desk.mcpd("uninstall", "claude-code", "codex")
    assert path.read_bytes() == before
    # Claude Code writes its file at each start.
    assert _servers(desk) == servers


@pytest.mark.nightly
def test_one_to_one_the_clients_names_of_tools_stay(desk: Desk) -> None:
    desk.mcpd("import", "--write", "--yes", "--from", "claude-code")
    desk.mcpd("start")
    desk.mcpd("install", "claude-code", "--one-to-one")
    assert list(_servers(desk)) == ["time"]
    assert _servers(desk)["time"]["args"][-2:] == ["--server", "time"]
    assert "+9.0h" in desk.claude({"name": "mcp__time__convert_time", "arguments": ARGUMENTS})


@pytest.mark.nightly
def test_what_an_agents_own_rules_forbid_stays_forbidden(desk: Desk) -> None:
    graph, settings = desk.home / "graph.json", desk.home / ".claude" / "settings.json"
    graph.write_text(json.dumps({"type": "entity", "name": "Ada", "entityType": "person", "observations": []}))
    memory = [f"MEMORY_FILE_PATH={graph}", "--", *_words(node_server("server-memory"))]
    desk.type(claude(), "mcp", "add", "--scope", "user", "memory", "-e", *memory)
    desk.type(codex(), "mcp", "add", "memory", "--env", *memory)
    settings.parent.mkdir(exist_ok=True)
    rules = {"deny": ["mcp__memory__delete_entities"], "allow": ["mcp__memory__open_nodes"]}
    settings.write_text(json.dumps({"permissions": rules}))
    config = desk.home / ".codex" / "config.toml"
    head = "[mcp_servers.memory]\n"
    config.write_text(config.read_text().replace(head, head + 'disabled_tools = ["delete_entities"]\n'))
    before = settings.read_bytes(), config.read_bytes(), _servers(desk)

    said = desk.mcpd("up", "--yes", "--no-service", "--clients", "claude", "codex")
    assert said.count("  Under their own names: memory, because its own rules use these names: ") == 2
    assert list(_servers(desk)) == ["memory", "mcpd"]
    assert _servers(desk)["mcpd"]["args"][-2:] == ["--without", "memory"]
    # What no rule is about is behind mcpd's entry.
    assert "+9.0h" in desk.claude({"name": "mcp__mcpd__convert_time", "arguments": ARGUMENTS})
    assert "Needs attention: nothing." in said
    assert "memory: ready" in said

    away = {"entityNames": ["Ada"]}
    for server in ("memory", "mcpd"):
        call = {"name": f"mcp__{server}__delete_entities", "arguments": away}
        assert "No such tool available" in desk.claude(call)
        called = {"name": "delete_entities", "namespace": f"mcp__{server}", "arguments": away}
        assert "mcp_tool_call" not in desk.codex({"search": "delete entities"}, called)
    # What the settings allow, and no option of the command line, is allowed.
    asked = {"name": "mcp__memory__open_nodes", "arguments": {"names": ["Ada"]}}
    assert "person" in desk.claude(asked, "Read")
    assert "person" in desk.codex(
        {"name": "open_nodes", "namespace": "mcp__memory", "arguments": asked["arguments"]}
    )
    assert "Ada" in graph.read_text()
    assert "rules about tools" not in desk.type(*MCPD, "doctor")

    desk.mcpd("uninstall", "claude-code", "codex")
    assert (settings.read_bytes(), config.read_bytes(), _servers(desk)) == before


def _words(entry: dict[str, Any]) -> list[str]:
    return [entry["command"], *entry["args"]]


def _servers(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((desk.home / ".claude.json").read_text())["mcpServers"]
    return found

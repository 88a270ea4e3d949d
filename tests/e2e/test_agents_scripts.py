"""Agents, really started, on the surface `code`: their models read what a tool is, and write a script."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.harness import MCPD, ROOT, Daemon, free_port, scripted, serving
from tests.e2e.test_install_clients import CODEX_CONFIG, MODEL, MODULES, claude, codex, listens
from tests.pairwise import at_night
from tests.scripted_server import tool
from tests.waiting import eventually, run_to_end

CODE = """\
import asyncio
answers = await asyncio.gather(*[call("work/echo", {"number": n}) for n in (40, 41)])
f"the sum is {sum(each['number'] for each in answers)}"
"""
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("describe_tools", {"names": ["work/echo"]}),
    ("run_code", {"code": CODE}),
]
"""What each model does."""
SEES = ["Gives back what it was told.", "the sum is 81"]
"""A part of each answer."""
CODEX_ENTRY = """
[mcp_servers.mcpd]
command = {command}
args = {args}
default_tools_approval_mode = "approve"
"""


@attrs.frozen
class Agent:
    """How one is told of a server and a model, and started."""

    words: tuple[str, ...]
    tool: str
    """Its name of a tool, `%s` being the server's; hyphens may be underscores."""
    more: dict[str, str] = attrs.field(factory=dict)
    """Variables, `%s` being the model's address."""


AGENTS = {
    "claude-code": Agent(
        (claude(), "-p", "do it", "--mcp-config", "mcp.json", "--allowedTools", "mcp__mcpd"),
        "mcp__mcpd__%s",
        {
            "ANTHROPIC_BASE_URL": "%s",
            "ANTHROPIC_API_KEY": "sk-ant-scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
        },
    ),
    "codex": Agent((codex(), "exec", "--skip-git-repo-check", "do it"), "%s", {"SCRIPTED_KEY": "none"}),
    "opencode": Agent(
        (str(next(MODULES.glob("opencode-linux-*/bin/opencode"))), "run", "do it"),
        "mcpd_%s",
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    "gemini": Agent(
        (
            "node",
            str(MODULES / "@google/gemini-cli/bundle/gemini.js"),
            "-m",
            "gemini-2.5-flash",
            "-y",
            "-p",
            "do it",
        ),
        "mcp_mcpd_%s",
        {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "%s"},
    ),
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    echo = tool("echo", description="Gives back what it was told.")
    with serving({"mcpServers": {"work": scripted(tools=[echo])}}) as daemon:
        yield daemon


def configure(home: Path, url: str, port: int, words: list[str]) -> None:
    """Write what each agent reads."""
    entry = {"command": words[0], "args": words[1:]}
    (home / ".codex").mkdir()
    (home / ".gemini").mkdir()
    named = CODEX_ENTRY.format(command=json.dumps(words[0]), args=json.dumps(words[1:]))
    (home / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(port=port) + named)
    gemini = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "mcpServers": {"mcpd": entry}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(gemini))
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"mcpd": entry}}))
    model = "anthropic/claude-sonnet-4-5"
    opencode = {
        "model": model,
        "small_model": model,
        "provider": {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "sk-ant-scripted"}}},
        "mcp": {"mcpd": {"type": "local", "command": words}},
    }
    (home / "opencode.json").write_text(json.dumps(opencode))


# OpenCode takes seven seconds of a processor, where others take one to three.
@pytest.mark.parametrize("name", at_night(AGENTS, "claude-code", "codex", "gemini"))
def test_a_model_of_every_agent_reads_a_tool_and_runs_a_script(
    daemon: Daemon, tmp_path: Path, name: str
) -> None:
    agent, port, seen = AGENTS[name], free_port(), tmp_path / "seen"
    url = f"http://127.0.0.1:{port}"
    configure(tmp_path, url, port, [*MCPD, "connect", "--socket", str(daemon.socket), "--surface", "code"])
    calls = [
        {"name": agent.tool % each, "namespace": "mcp__mcpd", "arguments": arguments}
        for each, arguments in CALLS
    ]
    (tmp_path / "calls.json").write_text(json.dumps(calls))
    environ = {key: value.replace("%s", url) for key, value in agent.more.items()}
    environ |= {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    words = [sys.executable, str(MODEL), str(port), str(tmp_path / "calls.json"), str(seen)]
    with subprocess.Popen(words) as model:
        try:
            eventually(lambda: listens(port))
            done = run_to_end(agent.words, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL)
        finally:
            model.kill()
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert "DONE" in said
    requests = seen.read_text().splitlines()
    for part in SEES:
        assert part in requests[-1], said

"""What the README's first screen promises: two commands, and every agent calls the tools of both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bare.machine import ROOT, TOLD, Machine, Ran, machine
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = ROOT / "tests" / "e2e" / "scripted_model.py"
CLAUDE, CODEX = 18431, 18432
"""Ports of the two models."""

CALLS: dict[int, list[dict[str, Any]]] = {
    CLAUDE: [{"name": "mcp__mcpd__git_status", "arguments": {"repo_path": "/home/ann/project"}}],
    CODEX: [
        {"search": "current time in a timezone"},
        {"name": "get_current_time", "namespace": "mcp__mcpd", "arguments": {"timezone": "UTC"}},
    ],
}
"""Each agent calls the tool of the server that only the other one had."""

AS_A_TEST = {
    "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{CLAUDE}",
    "ANTHROPIC_API_KEY": "sk-ant-scripted",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "SCRIPTED_KEY": "none",
}
CODEX_CONFIG = f"""\
# Kept by hand.
model = "scripted"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{CODEX}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""

BEFORE = {
    "uv": "pipx install uv",
    "project": "git init --quiet project",
    "claude has": "claude mcp add --scope user time -- uvx mcp-server-time==2026.10.19",
    "codex has": "codex mcp add git -- uvx mcp-server-git==2026.10.19",
}
"""What the user has: two agents with a server each, configured as their documentation says."""

STEPS = {
    "install": "cd mcpd && pipx install '.[locked]'",
    "up": "mcpd up --yes",
    "claude": "cd project && claude -p 'do it' --allowedTools mcp__mcpd --output-format stream-json --verbose",
    "codex": "codex exec --skip-git-repo-check --json 'do it'",
    "again": "mcpd up --yes",
    "down": "mcpd uninstall claude-code codex && mcpd stop",
}
"""What the user types."""


def listens(port: int) -> bool:
    """Whether a model is there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The two scripted models."""
    running = []
    for port, calls in CALLS.items():
        script = tmp_path_factory.mktemp("model") / "calls.json"
        script.write_text(json.dumps(calls))
        running.append(subprocess.Popen([sys.executable, MODEL, str(port), str(script)]))
    eventually(lambda: all(map(listens, CALLS)))
    yield
    for model in running:
        model.kill()
        model.wait()


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The machine, with what the user had before."""
    found = machine(Path(os.environ["MCPD_BARE"]), tmp_path_factory.mktemp("bare"))
    found.write(".codex/config.toml", CODEX_CONFIG)
    found.check_out("mcpd")
    for command in BEFORE.values():
        ran = found.type(command)
        assert ran.status == 0, ran.said
    return found


@pytest.fixture(scope="module")
def configured(debian: Machine) -> dict[str, bytes]:
    """The agents' files as they were before, but for what Claude Code writes at each start."""
    return {path: (debian.root / "home/ann" / path).read_bytes() for path in (".codex/config.toml",)}


@pytest.fixture(scope="module")
def visit(debian: Machine, configured: dict[str, bytes], models: None) -> dict[str, Ran]:
    """Everything that the user types, in order, with what came of it."""
    ran = {step: debian.type(command, AS_A_TEST) for step, command in STEPS.items()}
    TOLD.extend(f"{step}: {each.seconds:.1f} s" for step, each in ran.items())
    return ran


@pytest.mark.parametrize("step", STEPS)
def test_each_command_succeeds(visit: dict[str, Ran], step: str) -> None:
    assert visit[step].status == 0, visit[step].said


def test_claude_code_calls_a_tool_of_the_server_that_only_codex_had(visit: dict[str, Ran]) -> None:
    assert "tool_result" in visit["claude"].said
    assert "No commits yet" in visit["claude"].said, visit["claude"].said


def test_codex_calls_a_tool_of_the_server_that_only_claude_code_had(visit: dict[str, Ran]) -> None:
    called = [json.loads(line) for line in visit["codex"].said.splitlines() if '"mcp_tool_call"' in line]
    assert called[-1]["item"]["status"] == "completed", visit["codex"].said
    assert "day_of_week" in json.dumps(called[-1]["item"]["result"])


def test_a_second_time_changes_nothing(visit: dict[str, Ran]) -> None:
    assert "error" not in visit["again"].said.lower()


def test_taken_out_again_the_file_that_nobody_else_writes_is_as_it_was(
    debian: Machine, visit: dict[str, Ran], configured: dict[str, bytes]
) -> None:
    assert visit["down"].status == 0, visit["down"].said
    for path, content in configured.items():
        assert (debian.root / "home/ann" / path).read_bytes() == content

"""The six acceptance criteria of seed 001, §10, with real servers, through the real socket."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import loading
from tests.e2e.harness import Daemon, RawClient, running


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with one commit."""
    path = tmp_path_factory.mktemp("repository")
    loading.repository(path)
    return path


@pytest.fixture(scope="module")
def daemon(repository: Path) -> Iterator[Daemon]:
    """Three real servers and one that cannot start, in five categories."""
    config: dict[str, Any] = {
        "mcpServers": {**loading.three_servers(repository), "broken": {"command": "no-such-command-anywhere"}},
        "categories": {
            "history": {
                "description": "Look at commits.",
                "server": "git",
                "tools": {
                    "includeNames": ["git_log", "mcp__git__git_status", "git_reset", "git_nonsense"],
                    "overrides": {
                        "git_log": {"description": "Commits, newest first."},
                        "git_reset": {"enabled": False},
                    },
                },
            },
            "clock": {"description": "What time it is.", "server": "time"},
            "fs": {
                "description": "Files.",
                "server": "files",
                "tools": {"includeNames": ["read_text_file", "list_directory"]},
            },
            "lost": {
                "description": "Of a server that is down.",
                "server": "broken",
                "tools": {"includeNames": ["anything"]},
            },
        },
    }
    with running(config) as daemon:
        daemon.ready("git", "time", "files")
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[RawClient]:
    with daemon.client() as client:
        yield client


def test_1_to_4_categories_are_listed_and_described_and_enabled_tools_run(
    client: RawClient, repository: Path
) -> None:
    listed = client.ask("tools/list")["result"]["tools"]
    names = ["get-category-tools", "call-category-tool", "call-read-only-tool"]
    assert [tool["name"] for tool in listed] == names
    for line in ("- history: Look at commits.", "- clock: What time it is.", "- fs: Files."):
        assert line in listed[0]["description"]

    answer = client.get("history")
    assert list(answer["tools"]) == ["git_log", "git_status"]
    assert answer["tools"]["git_log"]["description"] == "Commits, newest first."
    assert answer["tools"]["git_log"]["inputSchema"]["type"] == "object"
    assert (answer["meta"]["category"], answer["meta"]["sourceServer"]) == ("history", "git")
    assert "git_nonsense" in answer["meta"]["unavailableTools"]
    assert list(client.get("history", "git_status")["tools"]) == ["git_status"]

    result = client.run("history", "git_log", repo_path=str(repository))
    assert result["isError"] is False
    assert "first" in json.dumps(result["content"])
    result = client.run("history", "git_reset", repo_path=str(repository))
    assert result["structuredContent"]["error"]["code"] == "ToolDisabled"


def test_5_unknown_names_are_answered_with_a_code_and_the_closest(client: RawClient) -> None:
    for category, name, code, hint in (
        ("histroy", "git_log", "UnknownCategory", "Did you mean history?"),
        ("history", "git_lg", "UnknownTool", "Did you mean git_log?"),
        ("history", "git_nonsense", "UnknownTool", "git_log"),
        ("fs", "write_file", "UnknownTool", "read_text_file"),
    ):
        result = client.run(category, name)
        assert result["structuredContent"]["error"]["code"] == code, name
        assert result["content"][0]["text"].startswith(f"{code}: ")
        assert hint in result["content"][0]["text"]


def test_6_categories_are_visible_although_no_server_is_up() -> None:
    config = {
        "mcpServers": {"dead": {"command": "no-such-command-anywhere"}},
        "categories": {
            "code": {"description": "Edit code.", "server": "dead", "tools": {"includeNames": ["edit"]}}
        },
    }

    with running(config) as daemon, daemon.client() as client:
        listed = client.ask("tools/list")["result"]["tools"]
        described = client.get("code")
        result = client.run("code", "edit")

    assert "- code: Edit code." in listed[0]["description"]
    assert described["meta"]["unavailableTools"] == ["edit"]
    assert described["meta"]["unavailableServers"]["dead"]["state"] == "failed"
    assert "no-such-command-anywhere" in described["meta"]["unavailableServers"]["dead"]["reason"]
    assert result["structuredContent"]["error"]["code"] == "UpstreamUnavailable"


def test_a_real_server_of_either_language_answers_and_the_operator_sees_and_calls_the_same(
    daemon: Daemon, client: RawClient, repository: Path
) -> None:
    result = client.run("clock", "get_current_time", timezone="UTC")
    told = json.loads(result["content"][0]["text"])
    assert result["structuredContent"]["timezone"] == told["timezone"] == "UTC"
    (repository / "hello.txt").write_text("good morning")
    result = client.run("fs", "read_text_file", path=str(repository / "hello.txt"))
    assert result["content"][0]["text"] == "good morning"
    assert "git_log" in daemon.run("tools")
    assert "UTC" in daemon.run("call", "time/get_current_time", "timezone=UTC")


def test_status_names_what_is_down_and_what_is_unresolved(daemon: Daemon) -> None:
    status = daemon.ask("status")
    states = {name: each["state"] for name, each in status["servers"].items()}
    assert (states["git"], states["broken"]) == ("ready", "failed")
    assert status["servers"]["git"]["rssBytes"] > 1_000_000
    assert "git/git_nonsense" in status["unresolved"]
    assert "no-such-command-anywhere" in daemon.run("status", check=1)

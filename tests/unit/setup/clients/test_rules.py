"""Rules of clients' own about tools: where they stand, and which of them are about mcpd's servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.setup.clients.importing import ConfiguredServers
from daemon.setup.clients.installing import Installation, Records
from daemon.setup.clients.programs import PROGRAMS
from daemon.setup.clients.rules import ToolRule, held_rules, keeping
from tests.unit.setup.machines import machine

if TYPE_CHECKING:
    from pathlib import Path

MEMORY = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}
KNOWN = ConfiguredServers(servers={"memory": MEMORY, "time": {"command": "time"}})
PLAIN = json.dumps({"mcpServers": {"memory": MEMORY}})

Files = dict[str, Any]

CLAUDE = {".claude.json": {"mcpServers": {"memory": MEMORY}}}
OPENCODE = {
    "mcp": {"memory": {"type": "local", "command": ["npx", "-y", "@modelcontextprotocol/server-memory"]}}
}


def settings(kind: str, *texts: str) -> Files:
    return {".claude/settings.json": {"permissions": {kind: list(texts)}}}


def rules(at: Path, client: str, files: Files) -> list[ToolRule]:
    """The rules that are found of a client with these files in the user's home directory."""
    here = machine(at)
    for name, said in files.items():
        path = here.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(said if isinstance(said, str) else json.dumps(said))
    program = PROGRAMS[client]
    return held_rules(program, here, KNOWN.lookup(program, here), KNOWN.servers, Records(at / "state"))[1]


def texts(at: Path, client: str, files: Files) -> list[str]:
    return sorted(rule.text for rule in rules(at, client, files))


CODEX = '[mcp_servers.memory]\ncommand = "npx"\nargs = ["-y", "@modelcontextprotocol/server-memory"]\n'


@pytest.mark.parametrize(
    ("client", "files", "wanted"),
    [
        (
            "claude-code",
            CLAUDE | settings("deny", "mcp__memory__delete_entities"),
            ["mcp__memory__delete_entities"],
        ),
        ("claude-code", CLAUDE | settings("ask", "mcp__memory"), ["mcp__memory"]),
        ("claude-code", CLAUDE | settings("allow", "mcp__memory__*"), ["mcp__memory__*"]),
        ("claude-code", CLAUDE | settings("deny", "mcp__mem*"), ["mcp__mem*"]),
        ("claude-code", CLAUDE | settings("deny", "mcp__*__delete_entities"), ["mcp__*__delete_entities"]),
        # What mcpd alone has counts if it is forbidden; to be asked where one was not is no danger.
        ("claude-code", settings("deny", "mcp__memory__read_graph"), ["mcp__memory__read_graph"]),
        ("claude-code", settings("allow", "mcp__memory__read_graph"), []),
        ("claude-code", CLAUDE | settings("deny", "mcp__*", "Bash(*)", "mcp__memory2__x", "*"), []),
        (
            "claude-code",
            CLAUDE
            | {"proj/.claude/settings.local.json": {"permissions": {"deny": ["mcp__memory__create_relations"]}}}
            | {"proj/.claude/settings.json": {"hooks": {"PreToolUse": [{"matcher": "Write|mcp__memory__.*"}]}}},
            ["Write|mcp__memory__.*", "mcp__memory__create_relations"],
        ),
        (
            "claude-code",
            {
                ".claude.json": CLAUDE[".claude.json"]
                | {"projects": {"{home}/other": {"disabledMcpServers": ["memory"]}}},
                "other/.claude/settings.json": {"permissions": {"deny": ["mcp__memory__open_nodes"]}},
            },
            ["mcp__memory__open_nodes", "memory"],
        ),
        # An agent's file, whose head is no YAML; what its text says is no rule.
        (
            "claude-code",
            CLAUDE
            | {
                ".claude/agents/team/careful.md": "---\ndescription: Use it so: with care\n"
                "disallowedTools:\n  - Bash\n  - mcp__memory__delete_entities\n---\nmcp__memory__open_nodes",
                "proj/.claude/agents/reader.md": "---\ntools: Read, mcp__memory__read_graph\n---\n",
                ".claude/agents/plain.md": "No head: mcp__memory__x\n",
            },
            ["- mcp__memory__delete_entities", "tools: Read, mcp__memory__read_graph"],
        ),
        ("claude-code", {".claude/agents/a.md": "---\ntools: mcp__memory__read_graph\n---\n"}, []),
        (
            "claude-code",
            CLAUDE
            | {".claude/settings.json": {"hooks": {"PermissionRequest": [{"matcher": "mcp__memory__.*"}]}}},
            ["mcp__memory__.*"],
        ),
        ("codex", {".codex/config.toml": CODEX + 'disabled_tools = ["x"]\n'}, ["memory.disabled_tools"]),
        ("codex", {".codex/config.toml": CODEX + "enabled_tools = []\n"}, ["memory.enabled_tools"]),
        (
            "codex",
            {".codex/config.toml": CODEX + '[mcp_servers.memory.tools.x]\napproval_mode = "prompt"\n'},
            ["memory.tools"],
        ),
        ("codex", {".codex/config.toml": CODEX}, []),
        (
            "opencode",
            {
                ".config/opencode/opencode.json": OPENCODE
                | {"permission": {"memory_delete*": "deny", "edit": "ask"}}
            },
            ["memory_delete*"],
        ),
        (
            "opencode",
            {".config/opencode/opencode.json": OPENCODE | {"agent": {"plan": {"tools": {"memory_*": False}}}}},
            ["memory_*"],
        ),
        ("opencode", {".config/opencode/opencode.json": OPENCODE | {"permission": {"*": "ask"}}}, []),
        (
            "gemini",
            {".gemini/settings.json": {"mcpServers": {"memory": MEMORY | {"excludeTools": ["x"]}}}},
            ["memory.excludeTools"],
        ),
        (
            "gemini",
            {
                ".gemini/settings.json": {"mcpServers": {"memory": MEMORY | {"trust": False}}},
                ".gemini/policies/mine.toml": '[[rule]]\nmcpName = "memory"\ntoolName = "x"\n',
            },
            ["memory"],
        ),
        # A name without a server may be that of any server's tool, unless it is one of the client's own.
        (
            "gemini",
            {
                ".gemini/settings.json": {
                    "mcpServers": {"memory": MEMORY},
                    "tools": {"exclude": ["run_shell_command", "ShellTool(rm)", "delete_entities"]},
                    "excludeTools": ["other__x", "mcp_other_x", "mcp_memory_x"],
                }
            },
            ["delete_entities", "mcp_memory_x"],
        ),
        ("gemini", {".gemini/settings.json": {"tools": {"exclude": ["delete_entities"]}}}, []),
        (
            "cursor",
            {
                ".cursor/mcp.json": PLAIN,
                ".cursor/cli-config.json": {"permissions": {"deny": ["Mcp(memory:x)"]}},
            },
            ["Mcp(memory:x)"],
        ),
        (
            "cursor",
            {".cursor/mcp.json": PLAIN, ".cursor/permissions.json": {"mcpAllowlist": ["memory:*"]}},
            ["memory:*"],
        ),
        (
            "zed",
            {".config/zed/settings.json": {"agent": {"tool_permissions": {"tools": {"mcp:memory:x": {}}}}}},
            ["mcp:memory:x"],
        ),
        ("goose", {".config/goose/permission.yaml": "user:\n  never_allow:\n    - memory__x\n"}, ["memory__x"]),
        (
            "windsurf",
            {
                ".codeium/windsurf/mcp_config.json": {
                    "mcpServers": {"memory": MEMORY | {"disabledTools": ["x"]}}
                }
            },
            ["memory.disabledTools"],
        ),
    ],
)
def test_rules_about_servers_that_mcpd_has_are_found(
    tmp_path: Path, client: str, files: Files, wanted: list[str]
) -> None:
    said = json.loads(json.dumps(files).replace("{home}", str(tmp_path / "home")))
    assert texts(tmp_path, client, said) == wanted


@pytest.mark.parametrize(
    ("client", "files", "of_system", "wanted"),
    [
        (
            "claude-code",
            CLAUDE,
            {
                "claude-code/managed-settings.json": '{"permissions": {"deny": ["mcp__memory__x"]}}',
                "claude-code/managed-settings.d/10-more.json": '{"permissions": {"ask": ["mcp__memory__y"]}}',
            },
            ["mcp__memory__x", "mcp__memory__y"],
        ),
        (
            "gemini",
            {".gemini/settings.json": PLAIN},
            {
                "gemini-cli/settings.json": '{"mcp": {"excluded": ["memory"]}}',
                "gemini-cli/system-defaults.json": '{"tools": {"exclude": ["mcp_memory_x"]}}',
                "gemini-cli/policies/all.toml": '[[rule]]\ntoolName = "mcp_memory_y"\n',
            },
            ["mcp_memory_x", "mcp_memory_y", "memory"],
        ),
    ],
)
def test_the_rules_of_the_administrator_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    files: Files,
    of_system: dict[str, str],
    wanted: list[str],
) -> None:
    monkeypatch.setattr("daemon.setup.clients.programs.ADMINISTRATED", tmp_path / "etc")
    for name, said in of_system.items():
        path = tmp_path / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(said)
    assert texts(tmp_path, client, files) == wanted


def test_where_rules_cannot_be_read_nobody_knows_what_they_forbid(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        rules(tmp_path, "claude-code", {**CLAUDE, ".claude/settings.json": "{"})


def test_a_client_with_rules_keeps_its_servers_names_or_stays_as_it_is(tmp_path: Path) -> None:
    here = machine(tmp_path)
    (here.home / ".claude.json").write_text(json.dumps(CLAUDE[".claude.json"]))
    (here.home / ".claude").mkdir()
    (here.home / ".claude" / "settings.json").write_text('{"permissions": {"deny": ["mcp__memory__x"]}}')
    program = PROGRAMS["claude-code"]
    theirs, found = held_rules(
        program, here, KNOWN.lookup(program, here), KNOWN.servers, Records(tmp_path / "state")
    )
    assert theirs == {"memory"}
    wanted = Installation(command="/bin/mcpd")
    assert keeping(wanted, theirs, [], KNOWN.servers) == wanted
    # The others are behind one entry; where there are no others, there is none.
    kept = keeping(wanted, theirs, found, KNOWN.servers)
    assert (kept.apart, kept.one_to_one) == (frozenset({"memory"}), False)
    assert keeping(wanted, theirs, found, ["memory"]).one_to_one
    assert keeping(attrs.evolve(wanted, keep=True), (), found, KNOWN.servers).apart == {"memory"}
    with pytest.raises(DocumentError, match="leave out --keep and --surface"):
        keeping(attrs.evolve(wanted, surface="full"), theirs, found, ["memory"])
    with pytest.raises(DocumentError, match="mcp__memory__x in "):
        keeping(wanted, (), found, ["memory"])


@pytest.mark.parametrize(
    ("client", "files", "servers"),
    [
        ("claude-code", CLAUDE | settings("deny", "mcp__memory__x"), {"memory"}),
        ("claude-code", settings("deny", "mcp__time__*"), {"time"}),
        ("claude-code", CLAUDE | settings("ask", "mcp__*__x"), {"memory", "time"}),
        ("claude-code", CLAUDE | settings("allow", "mcp__*__x"), {"memory"}),
        (
            "cursor",
            {
                ".cursor/mcp.json": {"mcpServers": {"memory": MEMORY, "t": {"command": "time"}}},
                ".cursor/cli-config.json": {"permissions": {"deny": ["Mcp(memory:x)"]}},
            },
            {"memory"},
        ),
        # The client's `time` is the `memory` of mcpd's, whose `time` a rule may mean as well.
        (
            "claude-code",
            {".claude.json": {"mcpServers": {"time": MEMORY}}} | settings("deny", "mcp__time__x"),
            {"memory", "time"},
        ),
        (
            "gemini",
            {".gemini/settings.json": {"mcpServers": {"memory": MEMORY}, "excludeTools": ["x"]}},
            {"memory", "time"},
        ),
    ],
)
def test_a_rule_is_about_servers_by_mcpds_names(
    tmp_path: Path, client: str, files: Files, servers: set[str]
) -> None:
    assert [rule.servers for rule in rules(tmp_path, client, files)] == [servers]

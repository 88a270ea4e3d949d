"""The clients that mcpd knows, each with the page of its documentation that says where it keeps its servers."""

from __future__ import annotations

import json
import os.path
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from daemon.documents.files import DocumentError, look
from daemon.documents.formats import Format
from daemon.kit.wording import quoted, suggestion
from daemon.setup.clients.installing import at
from daemon.setup.clients.programs import (
    CLAUDE_CODE,
    CONTINUE,
    CONTINUE_JSON,
    CURSOR,
    GEMINI,
    GOOSE,
    MCP_SERVERS,
    OPENCODE,
    VSCODE,
    WINDSURF,
    ZED,
    ClientPlace,
    ClientProgram,
    RulePlace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.setup.clients.programs import Machine, Shape

_Place = TypeVar("_Place", ClientPlace, RulePlace)

ADMINISTRATED = Path("/etc")
"""What the administrator of a machine says stands below."""

MOST_FILES = 64
"""Most files taken of a folder with one file for each server: more than anyone has servers."""

MOST_AGENTS = 1000
"""Most agents of a client's whose files are read: ten times what large collections of them have."""

MOST_DIRECTORIES = 1000
"""Most directories of a client's that are looked into, the latest: more than anyone works in."""


def _home(path: str) -> Callable[[Machine], list[Path]]:
    """In the user's home directory."""
    return lambda machine: [machine.home / path]


def _config(path: str) -> Callable[[Machine], list[Path]]:
    """In the user's directory of configurations (XDG)."""
    return lambda machine: [_config_home(machine) / path]


def _config_home(machine: Machine) -> Path:
    named = machine.environ.get("XDG_CONFIG_HOME", "")
    return machine.home / (named if named.startswith("/") else ".config")


def _project(path: str) -> Callable[[Machine], list[Path]]:
    """In the directory that the user works in; their home directory is no project."""
    return lambda machine: [machine.directory / path] if machine.directory != machine.home else []


def _moved(variable: str, usual: str, path: str) -> Callable[[Machine], list[Path]]:
    """In a directory of the home directory's, unless a variable names another."""
    return lambda machine: [machine.home / (machine.environ.get(variable) or usual) / path]


def _each(
    folder: Callable[[Machine], list[Path]], *patterns: str, most: int = MOST_FILES
) -> Callable[[Machine], list[Path]]:
    """Every file of a folder that fits one of the patterns."""

    def files(machine: Machine) -> list[Path]:
        try:
            found = sorted(path for at in folder(machine) for each in patterns for path in at.glob(each))
        except OSError:
            return []
        return found[:most]

    return files


def _first_there(*choices: Callable[[Machine], list[Path]]) -> Callable[[Machine], list[Path]]:
    """All of the files, one that is there before the others: a client writes into that one."""
    return lambda machine: sorted(
        chain.from_iterable(choice(machine) for choice in choices), key=lambda path: not path.is_file()
    )


def _places(
    *rows: tuple[Callable[[Machine], list[Path]], str],
    shape: Shape = MCP_SERVERS,
    form: Format = Format.JSON,
    trail: tuple[str, ...] = ("mcpServers",),
    listed: bool = False,
) -> Callable[[Machine], list[ClientPlace]]:
    """Places that differ in the file and its scope only."""
    return lambda machine: [
        ClientPlace(path=path, form=form, trail=trail, scope=scope, shape=shape, listed=listed)
        for where, scope in rows
        for path in where(machine)
    ]


def _all(*parts: Callable[[Machine], list[_Place]]) -> Callable[[Machine], list[_Place]]:
    return lambda machine: [place for part in parts for place in part(machine)]


_CLAUDE = _moved("CLAUDE_CONFIG_DIR", "", ".claude.json")


def _claude_directories(machine: Machine) -> list[str]:
    """The directory that the user works in, and those in which Claude Code has been started."""
    try:
        # It is the client's own memory, too, of some MiB, and to find comments in it takes half a second.
        known = at(json.loads(look(_CLAUDE(machine)[0]).text() or "{}"), ("projects",))
    except (ValueError, DocumentError):  # which is said where its servers are read
        known = None
    named = [each for each in known if each.startswith("/")] if isinstance(known, dict) else []
    return list(dict.fromkeys([str(machine.directory), *named[-MOST_DIRECTORIES:]]))


def _claude_local(machine: Machine) -> list[ClientPlace]:
    """Claude Code's servers for one user in one directory stand in the user's file, below the directory."""
    return [
        place
        for directory in _claude_directories(machine)
        for place in _places(
            (_CLAUDE, "local"), shape=CLAUDE_CODE, trail=("projects", directory, "mcpServers")
        )(machine)
    ]


def _system(path: str) -> Callable[[Machine], list[Path]]:
    """In the administrator's directory."""
    return lambda _machine: [ADMINISTRATED / path]


def _claude_settings(machine: Machine) -> list[Path]:
    """Claude Code's settings: the administrator's, the user's, each project's and those beside them."""
    names = (".claude/settings.json", ".claude/settings.local.json")
    return [
        *_system("claude-code/managed-settings.json")(machine),
        *_each(_system("claude-code/managed-settings.d"), "*.json")(machine),
        *_moved("CLAUDE_CONFIG_DIR", ".claude", "settings.json")(machine),
        *(Path(directory, name) for directory in _claude_directories(machine) for name in names),
    ]


def _claude_agents(machine: Machine) -> list[Path]:
    """The directories with Claude Code's agents: the user's, and each project's."""
    of_projects = (Path(directory, ".claude/agents") for directory in _claude_directories(machine))
    return [*_moved("CLAUDE_CONFIG_DIR", ".claude", "agents")(machine), *of_projects]


def _rules(
    where: Callable[[Machine], list[Path]],
    *trails: str,
    called: tuple[str, ...],
    allowing: tuple[str, ...] = (),
    form: Format = Format.JSON,
    own: frozenset[str] = frozenset(),
) -> Callable[[Machine], list[RulePlace]]:
    """Lists of rules in the files that are there, by their trails, `a/b`; `allowing`: those that only allow."""
    of_all = partial(RulePlace, form=form, called=called, own=own)
    return lambda machine: [
        of_all(path=path, trail=tuple(trail.split("/")), allows=trail in allowing)
        for path in dict.fromkeys(where(machine))
        if os.path.isfile(path)  # noqa: PTH113 - a directory that is closed to us holds no rules for us, either
        for trail in (*trails, *allowing)
    ]


_OF_CONTINUE = (_home(".continue/mcpServers"), _project(".continue/mcpServers"))

_OF_GEMINI = ("{}", "{}__", "mcp_{}_", "{}(")
"""A rule of Gemini CLI's names a server, or a tool as it is called in this version or in an earlier one."""

_GEMINI_SETTINGS = (
    *(_home(".gemini/settings.json"), _project(".gemini/settings.json")),
    *(_system("gemini-cli/settings.json"), _system("gemini-cli/system-defaults.json")),
)

_GEMINIS_TOOLS = frozenset({
    "activate_skill", "ask_user", "EditTool", "enter_plan_mode", "exit_plan_mode", "get_internal_docs", "glob",
    "GlobTool", "google_web_search", "grep_search", "GrepTool", "list_directory", "LSTool", "MemoryTool",
    "read_file", "read_many_files", "ReadFileTool", "ReadManyFilesTool", "replace", "run_shell_command",
    "save_memory", "search_file_content", "ShellTool", "web_fetch", "WebFetchTool", "WebSearchTool",
    "write_file", "write_todos", "WriteFileTool",
})  # fmt: skip
"""Gemini CLI's own tools, by the names of all versions. Any other name may be a tool of a server."""

_TABLE = (
    ClientProgram(
        name="claude-code",
        title="Claude Code",
        source="https://code.claude.com/docs/en/mcp",
        places=_all(
            _places((_CLAUDE, "user"), (_project(".mcp.json"), "project"), shape=CLAUDE_CODE), _claude_local
        ),
        aliases=("claude",),
        # https://code.claude.com/docs/en/permissions, /hooks, /managed-mcp, /settings
        rules=_all(
            _rules(
                _claude_settings,
                *("permissions/deny", "permissions/ask"),
                *("hooks/PreToolUse/*/matcher", "hooks/PermissionRequest/*/matcher"),
                allowing=("permissions/allow",),
                called=("mcp__{}__",),
            ),
            # https://code.claude.com/docs/en/sub-agents
            _rules(
                _each(_claude_agents, "**/*.md", most=MOST_AGENTS),
                *("disallowedTools", "hooks"),
                allowing=("tools",),
                called=("mcp__{}__",),
            ),
            _rules(_claude_settings, "deniedMcpServers/*/serverName", called=("{}",)),
            _rules(_CLAUDE, "projects/*/disabledMcpServers", called=("{}",)),
            _rules(_CLAUDE, allowing=("projects/*/allowedTools",), called=("mcp__{}__",)),
        ),
    ),
    ClientProgram(
        name="claude-desktop",
        title="Claude Desktop",
        source="https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        places=_places((_config("Claude/claude_desktop_config.json"), "user")),
    ),
    ClientProgram(
        name="cursor",
        title="Cursor",
        source="https://cursor.com/docs/mcp",
        places=_places(
            (_home(".cursor/mcp.json"), "user"), (_project(".cursor/mcp.json"), "project"), shape=CURSOR
        ),
        # https://cursor.com/docs/cli/reference/permissions, /docs/reference/permissions
        rules=_all(
            *(
                _rules(
                    where, "permissions/deny", allowing=("permissions/allow",), called=("Mcp({}:", "Mcp({},")
                )
                for where in (
                    *(_home(".cursor/cli-config.json"), _config("cursor/cli-config.json")),
                    _project(".cursor/cli.json"),
                )
            ),
            *(
                _rules(where, allowing=("mcpAllowlist",), called=("{}:",))
                for where in (_home(".cursor/permissions.json"), _project(".cursor/permissions.json"))
            ),
        ),
    ),
    ClientProgram(
        name="vscode",
        title="VS Code",
        source="https://code.visualstudio.com/docs/agents/reference/mcp-configuration",
        places=_all(
            _places(
                (_config("Code/User/mcp.json"), "user"),
                (_project(".vscode/mcp.json"), "workspace"),
                shape=VSCODE,
                trail=("servers",),
            ),
            # Versions before 1.102 kept them there; newer ones move them.
            _places(
                (_config("Code/User/settings.json"), "user"),
                (_project(".vscode/settings.json"), "workspace"),
                shape=VSCODE,
                trail=("mcp", "servers"),
            ),
        ),
        aliases=("code", "vs-code"),
    ),
    ClientProgram(
        name="windsurf",
        title="Windsurf",
        source="https://docs.windsurf.com/windsurf/cascade/mcp",
        places=_places((_home(".codeium/windsurf/mcp_config.json"), "user"), shape=WINDSURF),
    ),
    ClientProgram(
        name="zed",
        title="Zed",
        source="https://zed.dev/docs/ai/mcp",
        places=_places(
            (_config("zed/settings.json"), "user"),
            (_project(".zed/settings.json"), "project"),
            shape=ZED,
            trail=("context_servers",),
        ),
        # https://zed.dev/docs/ai/tool-permissions, /agent-profiles
        rules=_all(
            *(
                part
                for where in (_config("zed/settings.json"), _project(".zed/settings.json"))
                for part in (
                    _rules(where, "agent/tool_permissions/tools", called=("mcp:{}:",)),
                    _rules(where, "agent/profiles/*/context_servers", called=("{}",)),
                )
            )
        ),
    ),
    ClientProgram(
        name="codex",
        title="Codex",
        source="https://developers.openai.com/codex/mcp",
        places=_places(
            (_moved("CODEX_HOME", ".codex", "config.toml"), "user"),
            (_project(".codex/config.toml"), "project"),
            form=Format.TOML,
            trail=("mcp_servers",),
        ),
        aliases=("codex-cli",),
    ),
    ClientProgram(
        name="opencode",
        title="OpenCode",
        source="https://opencode.ai/docs/mcp-servers/",
        places=_places(
            (_first_there(_config("opencode/opencode.jsonc"), _config("opencode/opencode.json")), "user"),
            (_project("opencode.jsonc"), "project"),
            (_project("opencode.json"), "project"),
            shape=OPENCODE,
            trail=("mcp",),
        ),
        # https://opencode.ai/docs/permissions/, /docs/agents/
        rules=_all(
            *(
                _rules(where, *("permission", "tools", "agent/*/permission", "agent/*/tools"), called=("{}_",))
                for where in (
                    *(_config("opencode/opencode.jsonc"), _config("opencode/opencode.json")),
                    *(_project("opencode.jsonc"), _project("opencode.json")),
                )
            )
        ),
    ),
    ClientProgram(
        name="gemini",
        title="Gemini CLI",
        source="https://geminicli.com/docs/tools/mcp-server/",
        places=_places(
            (_home(".gemini/settings.json"), "user"),
            (_project(".gemini/settings.json"), "project"),
            shape=GEMINI,
        ),
        # https://geminicli.com/docs/reference/configuration, /docs/reference/policy-engine
        rules=_all(
            *(
                _rules(
                    where,
                    *("mcp/excluded", "mcp/allowed", "excludeMCPServers", "allowMCPServers"),
                    allowing=("tools/allowed",),
                    called=_OF_GEMINI,
                )
                for where in _GEMINI_SETTINGS
            ),
            *(
                _rules(where, "tools/exclude", "excludeTools", called=_OF_GEMINI, own=_GEMINIS_TOOLS)
                for where in _GEMINI_SETTINGS
            ),
            *(
                _rules(
                    _each(where, "*.toml"),
                    *("rule/*/mcpName", "rule/*/toolName", "rule/*/toolName/*"),
                    called=_OF_GEMINI,
                    form=Format.TOML,
                )
                for where in (
                    *(_home(".gemini/policies"), _project(".gemini/policies")),
                    _system("gemini-cli/policies"),
                )
            ),
        ),
        aliases=("gemini-cli",),
    ),
    ClientProgram(
        name="goose",
        title="Goose",
        source="https://block.github.io/goose/docs/guides/config-files",
        places=_places(
            (_config("goose/config.yaml"), "user"), shape=GOOSE, form=Format.YAML, trail=("extensions",)
        ),
        # https://block.github.io/goose/docs/guides/managing-tools/tool-permissions
        rules=_rules(
            _config("goose/permission.yaml"),
            *("user/ask_before", "user/never_allow"),
            allowing=("user/always_allow",),
            called=("{}__",),
            form=Format.YAML,
        ),
    ),
    ClientProgram(
        name="continue",
        title="Continue",
        source="https://docs.continue.dev/customize/deep-dives/mcp",
        places=_all(
            _places(
                (_home(".continue/config.yaml"), "user"),
                (_each(_OF_CONTINUE[0], "*.yaml", "*.yml"), "user"),
                (_each(_OF_CONTINUE[1], "*.yaml", "*.yml"), "workspace"),
                shape=CONTINUE,
                form=Format.YAML,
                listed=True,
            ),
            _places(
                (_each(_OF_CONTINUE[0], "*.json"), "user"),
                (_each(_OF_CONTINUE[1], "*.json"), "workspace"),
                shape=CONTINUE_JSON,
            ),
        ),
    ),
    ClientProgram(
        name="jetbrains",
        title="JetBrains Junie",
        source="https://junie.jetbrains.com/docs/junie-cli-mcp-configuration.html",
        places=_places((_home(".junie/mcp/mcp.json"), "user"), (_project(".junie/mcp/mcp.json"), "project")),
        aliases=("junie",),
    ),
    ClientProgram(
        name="lmstudio",
        title="LM Studio",
        source="https://lmstudio.ai/docs/app/mcp",
        places=_places((_home(".lmstudio/mcp.json"), "user")),
        aliases=("lm-studio",),
    ),
)

PROGRAMS: dict[str, ClientProgram] = {program.name: program for program in _TABLE}
"""All clients, by name."""

_NAMES = {alias: program for program in _TABLE for alias in (program.name, *program.aliases)}


def named(name: str) -> ClientProgram:
    """The client of a name or an alias.

    Raises:
        LookupError: there is none; the text says so, with the closest names.
    """
    if found := _NAMES.get(name.lower().replace("_", "-").replace(" ", "-")):
        return found
    raise LookupError(f"no client is called {quoted(name)}{suggestion(name, _NAMES)}")

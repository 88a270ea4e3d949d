"""What is planned of servers that were found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.config.known_servers import advice
from daemon.config.model import Share
from daemon.setup.clients.found import find
from daemon.setup.clients.importing import ImportPlan, plan
from daemon.setup.clients.known_programs import PROGRAMS
from tests.unit.setup.machines import machine

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.setup.clients.found import ClientServers

KEY = "bk-7Qm2xV9bT4Zr8Lw1"


def planned_and_found(
    at: Path,
    *clients: str,
    files: dict[str, dict[str, Any]] | None = None,
    written: dict[str, Any] | None = None,
    kept: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
) -> tuple[ImportPlan, ClientServers]:
    """The plan for clients with their own files, or with `mcpServers` written by name of the client."""
    here = machine(at, *clients, environ=environ)
    for client, servers in (files or {}).items():
        place = PROGRAMS[client].places(here)[0]
        place.path.parent.mkdir(parents=True, exist_ok=True)
        place.path.write_text(json.dumps({place.trail[0]: servers}))
    findings = find(here, PROGRAMS.values())
    source = here.home / ".config" / "mcpd" / "mcpd.json"
    made = plan(findings, written=written or {}, kept=kept or {}, environ=here.environ, source=source)
    return made, findings


def planned(at: Path, *clients: str, **given: Any) -> ImportPlan:
    return planned_and_found(at, *clients, **given)[0]


def clients_of(plan: ImportPlan) -> dict[str, list[str]]:
    return {server.name: [origin.program.name for origin in server.origins] for server in plan.servers}


def test_a_server_that_many_clients_have_is_one(tmp_path: Path) -> None:
    made = planned(tmp_path, "claude-code", "codex", "opencode", "gemini")
    found = clients_of(made)
    everywhere = ["claude-code", "codex", "opencode", "gemini"]
    assert found["time"] == found["brave-search"] == everywhere
    assert found["files"] == ["claude-code", "gemini"]
    # Codex names a variable that is set nowhere, but for the one that the others' token goes to.
    assert found["notion"] == ["claude-code", "opencode", "gemini", "codex"]
    entries = {server.name: server.entry for server in made.servers}
    assert entries["brave-search"]["env"] == {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}
    assert entries["notion"]["headers"] == {"Authorization": "Bearer ${NOTION_TOKEN}"}
    assert made.variables["BRAVE_API_KEY"] == KEY


def test_no_secret_is_left_in_an_entry_or_shown(tmp_path: Path) -> None:
    made = planned(tmp_path, *PROGRAMS)
    for secret in ("bk-7Qm2", "nt-4hT8", "ghx-9Kd3"):
        assert secret not in repr([server.entry for server in made.servers])
        assert secret not in repr(made)
        assert any(secret in value for value in made.variables.values())


def test_another_version_and_another_token_stay_apart(tmp_path: Path) -> None:
    def server(version: str, key: str) -> dict[str, Any]:
        return {"command": "npx", "args": [f"pkg@{version}"], "env": {"API_KEY": key}}

    files = {
        "cursor": {"Pkg": server("1.0.0", "first-Qx7Rm2")},
        "windsurf": {"pkg": server("2.0.0", "first-Qx7Rm2")},
        "lmstudio": {"pkg": server("1.0.0", "other-Zt5Kw9")},
    }
    made = planned(tmp_path, files=files)
    assert [(each.name, each.beside) for each in made.servers] == [
        ("pkg", None),
        ("pkg-2", "pkg"),
        ("pkg-3", "pkg"),
    ]
    assert [each.entry["env"]["API_KEY"] for each in made.servers] == [
        "${API_KEY}",
        "${API_KEY}",
        "${API_KEY_2}",
    ]
    assert made.variables == {"API_KEY": "first-Qx7Rm2", "API_KEY_2": "other-Zt5Kw9"}


def test_what_mcpd_has_already_is_not_added_again(tmp_path: Path) -> None:
    written = {
        "search": {
            "command": "npx",
            "args": ["@modelcontextprotocol/server-brave-search"],
            "env": {"BRAVE_API_KEY": "${B}"},
        }
    }
    made = planned(tmp_path, "codex", written=written, kept={"B": KEY})
    assert [(each.name, each.is_there) for each in made.servers] == [
        ("time", False),
        ("search", True),
        ("notion", False),
    ]
    assert made.variables == {}


def test_a_variable_that_is_set_nowhere_switches_the_server_off_until_it_is(tmp_path: Path) -> None:
    [time, brave, notion] = planned(tmp_path, "codex").servers
    assert notion.missing == ("NOTION_TOKEN",)
    assert notion.entry["enabled"] is False
    assert "enabled" not in {**time.entry, **brave.entry}


def test_a_variable_of_this_shell_is_kept_for_services(tmp_path: Path) -> None:
    made = planned(tmp_path, "codex", environ={"NOTION_TOKEN": "nt-1"})
    assert made.variables["NOTION_TOKEN"] == "nt-1"
    assert made.servers[2].secrets == ("NOTION_TOKEN",)
    assert "enabled" not in made.servers[2].entry


def test_what_vs_code_asks_for_is_a_variable_to_be_set(tmp_path: Path) -> None:
    [perplexity] = [each for each in planned(tmp_path, "vscode").servers if each.missing]
    assert perplexity.entry["env"] == {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"}
    assert perplexity.missing == ("PERPLEXITY_KEY",)


def test_a_server_is_on_if_it_is_on_in_one_client(tmp_path: Path) -> None:
    off = {"command": "x", "disabled": True}
    made = planned(
        tmp_path,
        files={"cursor": {"a": off, "b": {**off, "command": "y"}}, "lmstudio": {"a": {"command": "x"}}},
    )
    assert [(each.name, each.entry.get("enabled", True)) for each in made.servers] == [
        ("a", True),
        ("b", False),
    ]


def test_names_become_ones_that_mcpd_takes_and_stay_as_titles(tmp_path: Path) -> None:
    files = {"cursor": {"Brave Search": {"command": "x"}, "日本": {"command": "y"}, "time": {"command": "z"}}}
    made = planned(tmp_path, files=files, written={"time": {"command": "another"}})
    assert [each.name for each in made.servers] == ["brave-search", "server", "time-2"]
    assert [each.entry.get("title") for each in made.servers] == ["Brave Search", "日本", None]


@pytest.mark.parametrize(
    "entry", [{"command": "x", "args": "y"}, {"command": "x", "unheard": 1}, {"url": "nonsense"}]
)
def test_what_mcpd_would_refuse_is_left_and_the_others_are_taken(entry: dict[str, Any], tmp_path: Path) -> None:
    made = planned(tmp_path, files={"cursor": {"a": entry, "b": {"command": "b"}}})
    assert [each.name for each in made.servers] == ["b"]
    [left] = made.left
    assert left.origin.name == "a"
    assert left.why.startswith("cannot be used: ")


def test_what_is_known_of_a_server_can_be_told(tmp_path: Path) -> None:
    [browser] = planned(
        tmp_path, files={"cursor": {"p": {"command": "npx", "args": ["@playwright/mcp"]}}}
    ).servers
    assert browser.server is not None
    assert Share.SESSION in [each.value for each in advice(browser.server)]

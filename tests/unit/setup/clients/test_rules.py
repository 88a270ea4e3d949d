"""Rules of clients' own about tools: where they stand, and which of them are about mcpd's servers."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.setup.clients.importing import ConfiguredServers
from daemon.setup.clients.installing import Installation, Records
from daemon.setup.clients.programs import PROGRAMS
from daemon.setup.clients.rules import ToolRule, held_rules, keeping
from tests.unit.cases import cases
from tests.unit.setup.machines import machine, put

MEMORY = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}
KNOWN = ConfiguredServers(servers={"memory": MEMORY, "time": {"command": "time"}})

Files = dict[str, Any]

CLAUDE = {".claude.json": {"mcpServers": {"memory": MEMORY}}}


def rules(at: Path, client: str, files: Files) -> list[ToolRule]:
    """The rules that are found of a client with these files in the user's home directory."""
    here = machine(at)
    for name, said in files.items():
        put(here.home / name, said)
    program = PROGRAMS[client]
    return held_rules(program, here, KNOWN.lookup(program, here), KNOWN.servers, Records(at / "state"))[1]


def texts(at: Path, client: str, files: Files) -> list[str]:
    return sorted(rule.text for rule in rules(at, client, files))


@cases("client", "files", "wanted")
def test_rules_about_servers_that_mcpd_has_are_found(
    tmp_path: Path, client: str, files: Files, wanted: list[str]
) -> None:
    said = json.loads(json.dumps(files).replace("{home}", str(tmp_path / "home")))
    assert texts(tmp_path, client, said) == wanted


@cases("client", "files", "of_system", "wanted")
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
        put(tmp_path / "etc" / name, said)
    assert texts(tmp_path, client, files) == wanted


def test_where_rules_cannot_be_read_nobody_knows_what_they_forbid(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        rules(tmp_path, "claude-code", {**CLAUDE, ".claude/settings.json": "{"})


def test_a_client_with_rules_keeps_its_servers_names_or_stays_as_it_is(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.home / ".claude.json", CLAUDE[".claude.json"])
    put(here.home / ".claude" / "settings.json", {"permissions": {"deny": ["mcp__memory__x"]}})
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


@cases("client", "files", "servers")
def test_a_rule_is_about_servers_by_mcpds_names(
    tmp_path: Path, client: str, files: Files, servers: list[str]
) -> None:
    assert [rule.servers for rule in rules(tmp_path, client, files)] == [set(servers)]

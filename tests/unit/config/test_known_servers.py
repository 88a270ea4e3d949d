"""What a known server needs of its entry is told, and only where the entry does not say it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from daemon.config.command_lines import Advice, advice, completed, known, known_servers
from daemon.config.config_model import Share
from tests.unit.config.reading import server_of

FILESYSTEM = "@modelcontextprotocol/server-filesystem"


def entry_of(line: str, **more: Any) -> dict[str, Any]:
    command, *args = line.split()
    return {"command": command, "args": args, **more}


def told(line: str, **more: Any) -> list[tuple[str, object]]:
    """Key and value of all advice on the entry with this command line."""
    return [(each.key, each.value) for each in advice(server_of(entry_of(line, **more)))]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("npx -y @modelcontextprotocol/server-memory", "memory"),
        ("npx -y @modelcontextprotocol/server-memory@2026.1.26", "memory"),
        ("env A=1 npx @modelcontextprotocol/server-memory", "memory"),
        ("mcp-server-memory", "memory"),
        ("/usr/local/bin/mcp-server-memory", "memory"),
        ("npx -y --package @modelcontextprotocol/server-memory mcp-server-memory", "memory"),
        ("uv run --with x mcp-server-memory", "memory"),
        ("docker run -i --rm -v m:/app/dist mcp/memory:latest", "memory"),
        ("docker run -i --rm docker.io/mcp/memory", "memory"),
        ("podman run mcp/memory@sha256:0123456789abcdef", "memory"),
        ("podman run docker.io/mcp/memory:1.2@sha256:0123456789abcdef", "memory"),
        ("node /srv/node_modules/@modelcontextprotocol/server-memory/dist/index.js", "memory"),
        ("npx @playwright/mcp@latest --headless", "@playwright/mcp"),
        ("cmd.exe", None),
        ("playwright-mcp.cmd", "@playwright/mcp"),
        ("docker run -i --rm --init --pull=always mcr.microsoft.com/playwright/mcp", "@playwright/mcp"),
        ("npx playwright-mcp", None),
        ("npx -y chrome-devtools-mcp@latest", "chrome-devtools-mcp"),
        ("chrome-devtools", None),
        ("npx @browsermcp/mcp@latest", "@browsermcp/mcp"),
        ("bunx @modelcontextprotocol/server-puppeteer", "puppeteer"),
        ("pnpm dlx @executeautomation/playwright-mcp-server", "@executeautomation"),
        ("uvx mcp-server-git --repository /srv/x", "mcp-server-git"),
        ("uvx mcp-server-git@latest", "mcp-server-git"),
        ("uvx mcp-server-git==2026.10.19", "mcp-server-git"),
        ("python -m mcp_server_git --repository x", "mcp-server-git"),
        ("/srv/.venv/bin/python3.11 -m mcp_server_git", "mcp-server-git"),
        ("/srv/.venv/bin/mcp-server-git", "mcp-server-git"),
        ("pipx run mcp_server_git", "mcp-server-git"),
        ("uvx --from git+https://github.com/oraios/serena serena start-mcp-server", "serena-agent"),
        ("uvx --from serena-agent[all]==2.1.0 serena start-mcp-server", "serena-agent"),
        ("uv run --directory /srv/serena serena start-mcp-server", "serena-agent"),
        ("serena start-mcp-server", "serena-agent"),
        ("sh -c 'x'", None),
        ("uvx code-index-mcp", "code-index-mcp"),
        ("python -m code_index_mcp.server", "code-index-mcp"),
        ("npx -y @wonderwhy-er/desktop-commander@latest", "desktop-commander"),
        ("npx some-tool mcp/memory", None),
        ("echo --doc mcp-server-memory", None),
        ("docker run other mcp/memory", None),
        ("npx -y @modelcontextprotocol/server-time", None),
        ("mcp-server-memory-bank", None),
        ("cat memory", None),
        ("python memory.py mcp-server-git", None),
        ("x @ :", None),
    ],
)
def test_a_server_is_known_by_what_is_started_and_not_by_what_that_is_told(line: str, name: str | None) -> None:
    row = known(server_of(entry_of(line)))
    assert (row is None) == (name is None)
    assert row is None or name is None or any(name in each for each in row.names)


def test_a_server_elsewhere_or_switched_off_is_not_advised_on() -> None:
    assert advice(server_of({"url": "https://h/mcp-server-memory"})) == ()
    assert advice(server_of(entry_of("mcp-server-memory", enabled=False))) == ()


@pytest.mark.parametrize(
    ("line", "more", "expected"),
    [
        ("npx @playwright/mcp", {}, [("share", Share.SESSION), ("args", ("--isolated",))]),
        ("npx @playwright/mcp --isolated", {}, [("share", Share.SESSION)]),
        ("npx @playwright/mcp", {"share": "all"}, []),
        ("npx @playwright/mcp", {"share": "session"}, [("args", ("--isolated",))]),
        ("npx @playwright/mcp", {"share": "workspace"}, [("args", ("--isolated",))]),
        ("npx @playwright/mcp --user-data-dir=/x", {"share": "session"}, []),
        ("npx @playwright/mcp", {"share": "session", "env": {"PLAYWRIGHT_MCP_ISOLATED": "1"}}, []),
        ("docker run mcr.microsoft.com/playwright/mcp", {"share": "session"}, []),
        ("chrome-devtools-mcp --browserUrl http://h:1", {"share": "session"}, []),
        ("chrome-devtools-mcp", {"share": "session"}, [("args", ("--isolated",))]),
        (f"npx {FILESYSTEM} /srv", {}, [("args", ("${workspace}",))]),
        (f"npx {FILESYSTEM} ${{workspace}}", {}, []),
        (f"npx {FILESYSTEM} /srv", {"share": "all"}, []),
        (f"npx {FILESYSTEM}", {"share": "session"}, []),
        (f"npx {FILESYSTEM} .", {"cwd": "${workspace}"}, []),
        ("uvx mcp-server-git", {}, []),
        ("uvx mcp-server-git --repository /srv", {}, [("args", ("--repository", "${workspace}"))]),
        ("uvx mcp-server-git --repository=/srv", {}, [("args", ("--repository", "${workspace}"))]),
        ("uvx mcp-server-git -r ${workspace}", {}, []),
        ("serena start-mcp-server", {}, [("args", ("--project", "${workspace}"))]),
        ("serena start-mcp-server --project-from-cwd", {"cwd": "${workspace}"}, []),
        ("uvx code-index-mcp", {}, [("args", ("--project-path", "${workspace}"))]),
        ("mcp-server-memory", {}, [("limits.inFlight", 1)]),
        ("mcp-server-memory", {"limits": {"inFlight": 1}}, []),
        ("npx @browsermcp/mcp", {}, []),
        ("mcp-server-sqlite --db-path x", {}, [("share", Share.SESSION)]),
        ("sh -c desktop-commander", {}, [("share", Share.SESSION)]),
    ],
)
def test_what_an_entry_does_not_say_is_told_and_a_share_that_is_written_stands(
    line: str, more: dict[str, Any], expected: list[tuple[str, object]]
) -> None:
    assert told(line, **more) == expected


def test_a_directory_is_mounted_into_a_container() -> None:
    (found,) = advice(server_of(entry_of("docker run -i mcp/filesystem /projects")))
    assert found == Advice(key="args", value=("${workspace}",), why=found.why, in_container=True)


def test_a_completed_entry_needs_no_more_advice() -> None:
    for row in known_servers():
        entry = entry_of(next(iter(row.programs or row.names)))
        made, done = completed(entry, server_of(entry))
        assert advice(server_of(made)) == (), row.names
        assert all(each.written.startswith(row.why) or each.value == ("--isolated",) for each in done)


@pytest.mark.parametrize(
    ("line", "more", "written"),
    [
        ("uvx mcp-server-motherduck --db-path x", {}, {"limits": {"inFlight": 1}}),
        (f"npx {FILESYSTEM} /srv", {}, {"share": "workspace"}),
        ("serena start-mcp-server", {"share": "all"}, {}),
        ("npx @playwright/mcp", {}, {"args": ["@playwright/mcp", "--isolated"], "share": "session"}),
        ("npx @playwright/mcp --isolated", {}, {"share": "session"}),
        ("uvx mcp-server-time", {}, {}),
    ],
)
def test_an_entry_is_completed_with_what_is_known(
    line: str, more: dict[str, Any], written: dict[str, Any]
) -> None:
    entry = entry_of(line, **more)
    assert completed(entry, server_of(entry))[0] == {**entry, **written}


def test_every_row_says_why_and_where_that_was_seen() -> None:
    names = [name for row in known_servers() for name in (*row.names, *row.programs)]
    assert len(names) == len(set(names))
    for row in known_servers():
        assert re.match(r"[a-z]", row.why), "it follows the name of the server"
        assert not row.why.endswith(".")
        assert row.source
        assert all(name == name.lower().replace("_", "-") for name in (*row.names, *row.programs))
        assert (row.share is Share.WORKSPACE) == bool(row.workspace)

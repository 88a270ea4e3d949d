"""One server's entry, as the tests of what changes it begin."""

from typing import Any

from daemon.catalog.entry import ServerEntry
from daemon.catalog.snapshot import Catalog
from daemon.model import Tool
from tests.unit.catalog.samples import after, catalog_of, fingerprint_of, listed, servers, status, tool

CONFIG: dict[str, Any] = {"mcpServers": servers("git", "fs")}
BEGUN = catalog_of(CONFIG)
UP = after(BEGUN, [status("git"), listed("git", "log", "add")])
ANOTHER = fingerprint_of("git", command="another")


def git(catalog: Catalog) -> ServerEntry:
    return catalog.servers["git"]


def names(catalog: Catalog) -> list[str] | None:
    tools = git(catalog).tools
    return None if tools is None else list(tools)


def as_seen(catalog: Catalog) -> tuple[list[str] | None, int, bool]:
    return names(catalog), git(catalog).epoch, git(catalog).tool_list.recalled


def different(*which: str) -> list[Tool]:
    """Tools whose contents differ, too: plain ones are all the same but for their names."""
    return [tool("git", name, description=f"does {name}") for name in which]


def alike(content: str, name: str) -> Tool:
    return tool("git", name, description=content)

"""Trust: the definitions that are held, and those that are offered."""

from __future__ import annotations

from typing import Any

from daemon.catalog.snapshot import Catalog
from daemon.catalog.trust import FIRST, HeldBecause
from daemon.facts import Approved, DefinitionsListed
from daemon.model import Kind, Tool
from tests.unit.catalog.samples import after, catalog_of, listed, tool

LOG, OTHER_LOG = (tool("git", "log", description=text) for text in ("Shows commits.", "Deletes commits."))
DIFF = tool("git", "diff", description="Shows changes.")


def begun(trust: str = "changes", **more: Any) -> Catalog:
    """A catalog whose approvals were read."""
    return after(catalog_of({"mcpServers": {"git": {"command": "x", "trust": trust, **more}}}), [Approved()])


def held_in(catalog: Catalog) -> dict[str, HeldBecause]:
    return {name: each.because for name, each in catalog.servers["git"].tool_list.held.items()}


def offered(catalog: Catalog) -> list[str]:
    return list(catalog.servers["git"].tools or {})


def lists(*tools: Tool, run: int = 1) -> DefinitionsListed:
    return listed("git", *tools, incarnation=run)


def test_a_server_that_is_trusted_offers_what_it_lists() -> None:
    catalog = after(begun("all"), [lists(LOG), lists(OTHER_LOG, DIFF)])
    assert (offered(catalog), held_in(catalog)) == (["log", "diff"], {})
    assert not catalog.approvals


def test_the_first_list_is_approved_and_what_comes_later_is_held() -> None:
    catalog = after(begun(), [lists(LOG)])
    assert offered(catalog) == ["log"]
    catalog = after(catalog, [lists(OTHER_LOG, DIFF)])
    assert offered(catalog) == []
    assert held_in(catalog) == {"log": HeldBecause.CHANGED, "diff": HeldBecause.NEW}
    (known,) = (catalog.approvals or {}).values()
    assert [each.by for each in known[Kind.TOOL, "log"]] == [FIRST]
    assert (after(catalog, [lists(LOG)]).servers["git"].tools or {}).keys() == {"log"}

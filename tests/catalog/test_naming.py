"""Names of tools that stand side by side: stable, whoever comes up when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.catalog import naming
from daemon.states import ServerState
from tests.catalog.samples import after, catalog_of, failed, listed, servers, status

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog

BEFORE = catalog_of({"mcpServers": servers("a", "b", "c")})
STARTING = [status(name, ServerState.STARTING) for name in ("a", "b", "c")]


def names(catalog: Catalog) -> dict[str, list[str]]:
    """What the tools of each server are called."""
    return {
        entry.name: [catalog.names.name_of((entry.name, tool)) for tool in entry.tools]
        for entry in catalog.servers.values()
        if entry.tools is not None
    }


def test_a_tool_keeps_its_name_where_nobody_else_has_it() -> None:
    catalog = after(BEFORE, [listed("a", "x"), listed("b", "y")])
    assert names(catalog) == {"a": ["x"], "b": ["y"]}


def test_only_the_name_that_two_servers_share_is_qualified() -> None:
    catalog = after(BEFORE, [listed("a", "x", "only"), listed("b", "x", "other")])
    assert names(catalog) == {"a": ["x", "only"], "b": ["b__x", "other"]}


def test_of_servers_that_come_up_together_the_first_of_the_configuration_has_the_name() -> None:
    catalog = after(BEFORE, [*STARTING, listed("c", "x"), listed("b", "x"), listed("a", "x")])
    assert names(catalog) == {"a": ["x"], "b": ["b__x"], "c": ["c__x"]}


@pytest.mark.parametrize(
    "settled",
    [
        status("a", ServerState.BACKOFF),
        status("a", ServerState.DORMANT),
        status("a", ServerState.FAILED),
        failed("a"),
        listed("a", "other"),
    ],
)
def test_once_earlier_servers_are_settled_a_name_stays_whoever_comes_later(settled: object) -> None:
    catalog = after(BEFORE, [*STARTING, listed("b", "x"), settled])  # type: ignore[list-item]
    later = after(catalog, [status("a", incarnation=2), listed("a", "x", incarnation=2)])
    assert names(later) == {"a": ["a__x"], "b": ["x"]}


def test_a_name_never_comes_to_mean_another_tool_also_when_its_owner_drops_it() -> None:
    catalog = after(BEFORE, [listed("a", "x"), listed("b", "x"), listed("a", "y")])
    assert names(catalog) == {"a": ["y"], "b": ["b__x"]}
    assert catalog.names.key_of("x", catalog.servers) == ("a", "x")


def test_a_status_that_changes_no_name_leaves_the_names_as_they_are() -> None:
    catalog = after(BEFORE, [listed("a", "x")])
    assert after(catalog, [status("a")]).names is catalog.names


SHARED = after(BEFORE, [listed("a", "x", "own"), listed("b", "x", "a__own")])


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("x", ("a", "x")),
        ("b__x", ("b", "x")),
        ("a__x", ("a", "x")),
        ("b/x", ("b", "x")),
        ("mcp__b__x", ("b", "x")),
        ("mcp__mcpd__x", ("a", "x")),
        ("mcp__mcpd__b__x", ("b", "x")),
        ("a/unheard_of", ("a", "unheard_of")),
        ("a__own", ("b", "a__own")),
        ("nobody", None),
        ("z/x", None),
        ("mcp__", None),
        ("mcp__mcpd__", None),
        ("", None),
        ("mcp__a__mcp__b__x", ("a", "mcp__b__x")),
        ("mcp__z__mcp__z__x", None),
    ],
)
def test_a_tool_is_found_under_every_spelling_of_its_name(written: str, key: tuple[str, str] | None) -> None:
    assert SHARED.names.key_of(written, SHARED.servers) == key


def test_a_qualified_name_that_somebody_really_has_gives_way() -> None:
    catalog = after(BEFORE, [listed("a", "x", "b__x"), listed("b", "x")])
    assert names(catalog)["b"] == ["b/x"]
    assert catalog.names.key_of("b__x", catalog.servers) == ("a", "b__x")
    assert catalog.names.key_of("b/x", catalog.servers) == ("b", "x")


def test_every_tool_is_found_under_the_name_that_it_is_given() -> None:
    catalog = after(BEFORE, [listed("a", "x", "b__x", "y"), listed("b", "x", "y"), listed("c", "x", "b__x")])
    for entry in catalog.servers.values():
        for tool in entry.tools or ():
            name = catalog.names.name_of((entry.name, tool))
            assert catalog.names.key_of(name, catalog.servers) == (entry.name, tool)


@pytest.mark.parametrize(("count", "kept"), [(naming.MAX_REMEMBERED, True), (naming.MAX_REMEMBERED + 1, False)])
def test_names_that_nobody_lists_are_not_remembered_for_ever(count: int, *, kept: bool) -> None:
    gone = {f"gone{number}": "a" for number in range(count)}
    names = naming.Names(owners=gone, settled=frozenset(gone))
    assigned = naming.assign(names, [naming.Claims(server="a", tools=["x"], pending=False)])
    assert assigned.owners["x"] == "a"
    assert ("gone0" in assigned.owners) is kept

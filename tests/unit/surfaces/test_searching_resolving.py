"""Which tools names and needs mean."""

from __future__ import annotations

from daemon.surfaces.calling import resolve
from daemon.surfaces.load import META_TOOLS
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import view_of

PICTURES = [tool("a", name, description="Converts a picture.") for name in ("one", "two")]
VIEW = view_of(
    after(
        catalog_of({"mcpServers": servers("a", "b")}),
        [status("a"), status("b"), listed("a", *PICTURES), listed("b", "two", "three")],
    )
)


def test_a_name_comes_before_a_need_and_others_that_fit_are_named() -> None:
    wanted = resolve(VIEW, ["two", "convert picture"], {"a", "b"}, META_TOOLS)
    assert {name: each.key for name, each in wanted.tools.items()} == {"two": ("a", "two"), "one": ("a", "one")}
    assert wanted.alternatives == {"convert picture": ["two"]}


def test_a_bare_name_is_the_servers_own_where_only_that_one_is_meant() -> None:
    wanted = resolve(VIEW, ["two"], {"b"}, META_TOOLS)
    assert [each.key for each in wanted.tools.values()] == [("b", "two")]


def test_what_is_not_found_keeps_nothing_else_from_being_found() -> None:
    wanted = resolve(VIEW, ["qqqqqq", META_TOOLS[0], "three"], {"a", "b"}, META_TOOLS)
    assert list(wanted.tools) == ["three"]
    assert {name: error.code for name, error in wanted.failures.items()} == {
        "qqqqqq": "UnknownTool",
        META_TOOLS[0]: "InvalidArguments",
    }

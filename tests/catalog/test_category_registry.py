"""Seed 000's four operations."""

from __future__ import annotations

from daemon.catalog.category_registry import CategoryRegistry

REGISTRY = CategoryRegistry.of(
    ["files", "empty"], {"read_file": "files", "write_file": "files", "note": "memory"}
)


def test_the_category_of_a_tool_is_known() -> None:
    assert REGISTRY.get_category("read_file") == "files"
    assert REGISTRY.get_category("note") == "memory"


def test_a_tool_in_no_category_has_none() -> None:
    assert REGISTRY.get_category("unheard_of") is None


def test_the_tools_of_a_category_come_in_the_order_in_which_they_were_filed() -> None:
    assert REGISTRY.get_tools_by_category("files") == ["read_file", "write_file"]
    assert REGISTRY.get_tools_by_category("empty") == []
    assert REGISTRY.get_tools_by_category("unheard_of") == []


def test_all_categories_are_told_also_those_without_tools() -> None:
    assert REGISTRY.get_all_categories() == ["files", "empty", "memory"]


def test_a_registered_tool_is_filed_in_a_new_registry_and_the_old_one_stays() -> None:
    extended = REGISTRY.register_tool("run", "shell")
    assert extended.get_category("run") == "shell"
    assert extended.get_all_categories() == ["files", "empty", "memory", "shell"]
    assert REGISTRY.get_category("run") is None


def test_registering_a_tool_again_moves_it() -> None:
    moved = REGISTRY.register_tool("note", "files")
    assert moved.get_category("note") == "files"
    assert moved.get_tools_by_category("memory") == []

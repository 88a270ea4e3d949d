"""Which tool belongs to which category: seed 000's `ToolCategoryRegistry`, with its four operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@attrs.frozen
class CategoryRegistry:
    """Tools by the names that clients call them, each filed under one category."""

    _categories: tuple[str, ...]
    """All categories, those without tools too, in their order."""
    _filed: Mapping[str, str]
    """Tool to category."""

    @classmethod
    def of(cls, categories: Iterable[str], filed: Mapping[str, str]) -> CategoryRegistry:
        """A registry with these categories, in this order, and tools filed under them."""
        return cls(tuple(dict.fromkeys([*categories, *filed.values()])), filed)

    def get_category(self, tool_name: str) -> str | None:
        """The category of a tool; None if it is in none."""
        return self._filed.get(tool_name)

    def get_tools_by_category(self, category: str) -> list[str]:
        """The tools of a category, in the order in which they were filed; none if nobody knows it."""
        return [tool for tool, place in self._filed.items() if place == category]

    def get_all_categories(self) -> list[str]:
        """All categories."""
        return list(self._categories)

    def register_tool(self, tool_name: str, category: str) -> CategoryRegistry:
        """The registry with one tool filed under a category, which may be new. This one stays as it is."""
        return CategoryRegistry.of(self._categories, {**self._filed, tool_name: category})

"""What a surface sees: the catalog through a profile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.catalog.samples import catalog_of, servers
from tests.unit.surfaces.samples import view_of

CONFIG: dict[str, Any] = {"mcpServers": servers("git", "fs")}


@pytest.mark.parametrize(
    ("allowed", "seen"), [(None, ["git", "fs"]), (["fs"], ["fs"]), (["fs", "git"], ["git", "fs"]), ([], [])]
)
def test_a_view_holds_the_categories_of_its_profile_in_the_configured_order(
    allowed: list[str] | None, seen: list[str]
) -> None:
    categories = {name: {"description": name, "server": name} for name in ("git", "fs")}
    catalog = catalog_of({**CONFIG, "categories": categories, "profiles": {"p": {"categories": allowed}}})
    assert list(view_of(catalog, "p").categories) == seen

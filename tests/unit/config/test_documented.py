"""Every number that can be tuned about a server stands in the documentation, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from daemon.config.tuning import Restart, ServerLimits, Timeouts

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


@pytest.mark.parametrize("section", [Timeouts, ServerLimits, Restart], ids=lambda kind: str(kind.__name__))
def test_every_key_stands_in_the_documentation_with_its_default(section: type) -> None:
    page = PAGE.read_text()
    defaults = {camel(field.name): field.default for field in attrs.fields(section)}
    missing = [
        f"`{key}` {shown}"
        for key, default in defaults.items()
        if not re.search(rf"`{key}` \| {re.escape(shown := _shown(default))} \|", page)
    ]
    assert not missing, f"not in {PAGE.name}: {missing}"


def _shown(default: object) -> str:
    if default is None:
        return "none"
    if isinstance(default, int) and default >= 1 << 20:
        return f"{default >> 20} MiB"
    return f"{default:g}" if isinstance(default, int | float) else f"`{default}`"

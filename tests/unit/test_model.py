"""Values between the rooms: frozen, and harmless to print."""

from __future__ import annotations

import attrs
import pytest

from daemon.model import Tool

TOOL = Tool(
    server="git",
    name="log",
    description="",
    raw=b"{raw}",
    parts={"x": b"part"},
    schema_hash="00",
    content_hash="11",
)


def test_a_tool_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        TOOL.name = "status"  # type: ignore[misc]


def test_printing_a_tool_leaves_its_bytes_out() -> None:
    assert "server='git'" in repr(TOOL)
    assert "raw" not in repr(TOOL)
    assert "part" not in repr(TOOL)

"""Two configurations are the same if nobody could tell them apart."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.config.diff import same
from tests.unit.config.reading import config_of

CONFIG: dict[str, Any] = {
    "mcpServers": {
        "a": {"command": "a", "args": ["-v"], "env": {"X": "1", "Y": "2"}},
        "b": {"url": "https://example.com/mcp", "timeouts": {"call": 5}},
    },
    "categories": {
        "one": {"server": "a", "tools": {"overrides": {"a/t": {"enabled": False}, "a/u": {"enabled": False}}}},
        "two": {"server": "b"},
    },
    "profiles": {"reader": {"categories": ["one"]}},
}


def backwards(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """With the members at a path in the other order."""
    if not path:
        return dict(reversed(value.items()))
    return {**value, path[0]: backwards(value[path[0]], *path[1:])}


def test_what_was_read_twice_is_the_same() -> None:
    one, other = config_of(CONFIG), config_of(CONFIG)
    assert one is not other
    assert same(one, other)
    assert same(one, one)


@pytest.mark.parametrize(
    "path",
    [("mcpServers",), ("categories",), ("mcpServers", "a", "env"), ("categories", "one", "tools", "overrides")],
)
def test_another_order_is_not_the_same(path: tuple[str, ...]) -> None:
    one, other = config_of(CONFIG), config_of(backwards(CONFIG, *path))
    assert one == other
    assert not same(one, other)


def test_another_value_anywhere_is_not_the_same() -> None:
    one = config_of(CONFIG)
    server = CONFIG["mcpServers"]["a"]
    for more in ({"description": "other"}, {"args": ["-q"]}, {"env": {"X": "1", "Y": "3"}}, {"enabled": False}):
        servers = {**CONFIG["mcpServers"], "a": {**server, **more}}
        assert not same(one, config_of({**CONFIG, "mcpServers": servers}))
    assert not same(one, config_of({**CONFIG, "lazy": False}))
    assert not same(one, None)

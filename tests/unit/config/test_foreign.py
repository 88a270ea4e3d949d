"""A key that is not there is answered with what says the same."""

from __future__ import annotations

import pytest

from daemon.config.config_model import Category, Server, ToolSelection
from daemon.config.structure import keys, unknown_key


@pytest.mark.parametrize(
    ("cls", "key", "text"),
    [
        (
            Server,
            "disabled",
            "this value of 'disabled' cannot be understood. Understood as `enabled`, the opposite.",
        ),
        (ToolSelection, "exclude", "unknown key 'exclude': write \"excludePatterns\""),
        (Category, "sever", "unknown key 'sever': did you mean 'server'?"),
    ],
)
def test_an_unknown_key_is_answered_with_ours(cls: type, key: str, text: str) -> None:
    assert unknown_key(cls, key, keys(cls)) == text

"""A key and the value that it is to have."""

from __future__ import annotations

from daemon.setup.settings import UNSET, Setting


def test_no_value_is_something_else_than_null() -> None:
    assert Setting(trail=("lazy",), value=None) != Setting(trail=("lazy",), value=UNSET)

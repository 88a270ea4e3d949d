"""What goes in and comes out."""

from __future__ import annotations

import attrs
import pytest

from daemon.store.values import Batch, Changes


def test_an_empty_batch_says_only_when() -> None:
    batch = Batch(at=1.0)
    assert not any(value for name, value in attrs.asdict(batch).items() if name != "at")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        batch.at = 2.0  # type: ignore[misc]


def test_nothing_switched_is_not_everything_switched_on() -> None:
    assert Changes(version=1).switched is None
    assert Changes(version=1) != Changes(version=1, switched=frozenset())

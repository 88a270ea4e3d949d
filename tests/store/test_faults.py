"""Faults say what failed, why, and what to do."""

from __future__ import annotations

import pytest

from daemon.errors import McpdError
from daemon.store.faults import ADVICE, Kind, StoreFault


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_words(kind: Kind) -> None:
    fault = StoreFault(kind, "/var/lib/mcpd/state.db", "because")
    assert isinstance(fault, McpdError)
    assert str(fault).startswith("the store /var/lib/mcpd/state.db is ")
    assert str(fault).endswith(f": because. {ADVICE[kind]}")


def test_better_advice_replaces_the_kinds() -> None:
    assert str(StoreFault(Kind.FULL, "x", "y", "buy a disk")) == "the store x is full: y. buy a disk"

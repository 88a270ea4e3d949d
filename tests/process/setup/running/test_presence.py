"""Who serves a socket, as far as that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.setup.running.starting import NotStarted, found
from tests.unit.cli.daemons import listen

if TYPE_CHECKING:
    from pathlib import Path


def test_a_full_queue_is_a_daemons(sockets: Path) -> None:
    with listen(sockets / "mcpd.sock") as full:
        full.listen(0)
        seen = [found(sockets / "mcpd.sock") for _ in range(3)]
    assert None not in seen


def test_what_cannot_be_reached_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotStarted, match="Not a directory"):
        found(tmp_path / "file" / "mcpd.sock")

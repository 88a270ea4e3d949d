"""`mcpd schema`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli import implementation
from daemon.config.schema import render
from daemon.surfaces.table import SURFACES

if TYPE_CHECKING:
    import pytest

main = implementation("schema").main


def test_the_schema_is_printed_as_it_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == render(list(SURFACES))

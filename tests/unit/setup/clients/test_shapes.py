"""Entries of clients that write them in another way than `mcpServers`, as mcpd understands them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.config.translation import translated
from daemon.setup.clients.programs import PROGRAMS, SHAPES, Machine, NotTaken
from tests.unit.cases import cases

if TYPE_CHECKING:
    from pathlib import Path


@cases("shape", "entry", "read")
def test_what_only_the_client_means_so_is_read_as_it_means_it(
    shape: str, entry: dict[str, Any], read: dict[str, Any]
) -> None:
    before = repr(entry)
    assert SHAPES[shape].read(entry) == read
    assert repr(entry) == before


@cases("shape", "entry", "why")
def test_what_nobody_else_can_run_is_not_taken(shape: str, entry: dict[str, Any], why: str) -> None:
    answer = SHAPES[shape].read(entry)
    assert isinstance(answer, NotTaken)
    assert why in answer.why


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_for_a_client_reads_as_the_same_command(name: str, tmp_path: Path) -> None:
    for place in PROGRAMS[name].places(Machine(home=tmp_path, directory=tmp_path / "p", environ={})):
        read = place.shape.read(place.shape.write("/opt/bin/mcpd", ["connect"]))
        assert isinstance(read, dict)
        entry = translated(read, milliseconds=place.shape.milliseconds).entry
        assert (entry["command"], entry["args"]) == ("/opt/bin/mcpd", ["connect"])

"""A directory for sockets with a short path, and a control socket that commands find by themselves."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.unit.cli.daemons import FakeControl, fake_control

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Controls(Protocol):
    """Starts a control socket that answers as scripted; commands of this test find it."""

    def __call__(self, answers: Mapping[str, Any]) -> FakeControl: ...


@pytest.fixture
def control(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controls]:
    path = sockets / "control.sock"
    monkeypatch.setenv("MCPD_CONTROL", str(path))
    with ExitStack() as stack:
        yield lambda answers: stack.enter_context(fake_control(path, answers))

"""What the doctor finds: a cause and its data. `findings.toml` has each cause's level and its words."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@attrs.frozen(kw_only=True)
class FindingText:
    """The words for one cause; `{name}` is replaced by the finding's data of that name."""

    level: Level = attrs.field(converter=Level)
    what: str
    """What was found."""
    why: str = ""
    """Why that matters, or what causes it."""
    do: str = ""
    """What to do about it."""


@attrs.frozen
class Finding:
    """One thing that a check found."""

    cause: str
    """The name of its row in the table; it stays the same when the words change."""
    data: Mapping[str, object]
    """Values for the words; `server` is the name of the server concerned."""

    @property
    def level(self) -> Level:
        """How serious it is; only a fault makes `mcpd doctor` exit with 1."""
        return TABLE[self.cause].level

    @property
    def what(self) -> str:
        """What was found, in words."""
        return TABLE[self.cause].what.format_map(self.data)

    @property
    def why(self) -> str:
        """Why that matters, or what causes it; may be empty."""
        return TABLE[self.cause].why.format_map(self.data)

    @property
    def do(self) -> str:
        """What to do about it; may be empty."""
        return TABLE[self.cause].do.format_map(self.data)


def found(cause: str, **data: object) -> Finding:
    """A finding with a cause from the table."""
    return Finding(cause, data)


def _table() -> dict[str, FindingText]:
    rows: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("findings.toml").read_text())
    return {cause: FindingText(**row) for cause, row in rows.items()}


TABLE = _table()
"""Every cause that a check can find."""

"""What a checkup finds: a cause and its data. `findings.toml` says how much each matters, and the words."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@attrs.frozen(kw_only=True)
class FindingText:
    """What is said about one cause; `{name}` is replaced by the finding's data of that name."""

    level: Level = attrs.field(converter=Level)
    what: str
    """What is so."""
    why: str = ""
    """Why that matters, or where it comes from."""
    do: str = ""
    """What to do about it."""


@attrs.frozen
class Finding:
    """One thing that was found."""

    cause: str
    """The name of its row in the table; it stays the same when the words change."""
    data: Mapping[str, object]
    """What the words are filled with; `server` is the name of the server that it is about."""

    @property
    def level(self) -> Level:
        """Only a fault makes `mcpd doctor` end with 1."""
        return TABLE[self.cause].level

    @property
    def what(self) -> str:
        """What is so, in words."""
        return TABLE[self.cause].what.format_map(self.data)

    @property
    def why(self) -> str:
        """Why that matters, or where it comes from; may be empty."""
        return TABLE[self.cause].why.format_map(self.data)

    @property
    def do(self) -> str:
        """What to do about it; may be empty."""
        return TABLE[self.cause].do.format_map(self.data)


def found(cause: str, **data: object) -> Finding:
    """A finding of a cause in the table."""
    return Finding(cause, data)


def _table() -> dict[str, FindingText]:
    rows: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("findings.toml").read_text())
    return {cause: FindingText(**row) for cause, row in rows.items()}


TABLE = _table()
"""Every cause that a check can find."""

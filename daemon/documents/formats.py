"""The three formats of configuration files, each changed with its comments, order and layout kept."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Format(StrEnum):
    """How a file is written."""

    JSON = "json"
    """JSON, with comments and trailing commas where they stand there."""
    TOML = "toml"
    YAML = "yaml"


class Document(Protocol):
    """The text of a file, which can be read as a value and changed at a place."""

    def value(self) -> object:
        """What it says, in plain types: dictionaries, lists, texts, numbers."""

    def put(self, trail: Sequence[str | int], value: object) -> None:
        """Set the value at `trail`, replacing one that is there; missing objects on the way are made.

        Raises:
            DocumentError: something on the way is no object.
        """

    def remove(self, trail: Sequence[str | int]) -> None:
        """Remove the member at `trail` with the comments that belong to it; nothing if it is not there."""

    def text(self) -> str:
        """The text as it is now: byte for byte what was read, but for what was changed."""


def read_document(text: str, form: Format, *, source: str) -> Document:
    """Read a document; an empty text is an empty object.

    Raises:
        ConfigError: it is not of that format; the fault names line and column.
    """
    raise NotImplementedError

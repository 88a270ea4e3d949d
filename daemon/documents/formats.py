"""The three formats of configuration files, each changed with its comments, order and layout kept."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from daemon.documents.json_document import JsonDocument
from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from daemon.documents.toml_document import TomlDocument
    from daemon.documents.yaml_document import YamlDocument
else:  # 60 ms and 4 MB, needed only for clients that write such files
    TomlDocument = later("daemon.documents.toml_document", "TomlDocument")
    YamlDocument = later("daemon.documents.yaml_document", "YamlDocument")


class Format(StrEnum):
    """How a file is written."""

    JSON = "json"
    """JSON, with comments and trailing commas where they stand there."""
    TOML = "toml"
    YAML = "yaml"


class Document(Protocol):
    """The text of a file, which can be read as a value and changed at a place."""

    def value(self) -> object:
        """What it says, in plain types: dictionaries, lists, texts, numbers; it is not to be changed."""

    def together(self) -> AbstractContextManager[None]:
        """Have the changes made within checked once, at the end: all are made, or none.

        Raises:
            DocumentError: the text is written in a way that cannot be edited.
        """

    def put(self, trail: Sequence[str | int], value: object) -> None:
        """Set the value at `trail`; missing objects on the way are made.

        Of an object that is there, only the members that differ are touched. An index may be the length of its
        list, to which it then adds an item; TOML's lists are not edited so.

        Raises:
            DocumentError: something on the way is no object, or the text is written in a way that cannot be
                edited; nothing was changed.
        """

    def remove(self, trail: Sequence[str | int]) -> None:
        """Remove the member at `trail` with the comments that belong to it; nothing if it is not there.

        Raises:
            DocumentError: the text is written in a way that cannot be edited; nothing was changed.
        """

    def text(self) -> str:
        """The text as it is now: byte for byte what was read, but for what was changed."""


def read_document(text: str, form: Format, *, source: str) -> Document:
    """Read a document; an empty text is an empty object.

    Args:
        text: the whole file, its line ends as they are.
        form: how it is written.
        source: what errors call it.

    Raises:
        ConfigError: it is not of that format; the fault names line and column.
    """
    return _READERS[form](text, source)


_READERS: dict[Format, Callable[[str, str], Document]] = {
    Format.JSON: JsonDocument,
    Format.TOML: TomlDocument,
    Format.YAML: YamlDocument,
}

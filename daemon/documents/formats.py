"""The three formats of configuration files, each changed with its comments, order and layout kept."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from daemon.documents.json_document import JsonDocument
from daemon.kit.later import later

if TYPE_CHECKING:
    from daemon.documents.edited import EditedText
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


def read_document(text: str, form: Format, *, source: str) -> EditedText:
    """Read a document; an empty text is an empty object.

    Args:
        text: the whole file, its line ends as they are.
        form: how it is written.
        source: what errors call it.

    Raises:
        ConfigError: it is not of that format; the fault names line and column.
    """
    return _READERS[form](text, source)


_READERS: dict[Format, type[EditedText]] = {
    Format.JSON: JsonDocument,
    Format.TOML: TomlDocument,
    Format.YAML: YamlDocument,
}

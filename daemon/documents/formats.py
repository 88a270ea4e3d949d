"""The formats of configuration files."""

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
    """A file format."""

    JSON = "json"
    """With comments and trailing commas."""
    TOML = "toml"
    YAML = "yaml"


def read_document(text: str, form: Format, *, source: str) -> EditedText:
    """Read a document; `source` names it in errors. Raises ConfigError, with line and column, if malformed."""
    return _READERS[form](text, source)


_READERS: dict[Format, type[EditedText]] = {
    Format.JSON: JsonDocument,
    Format.TOML: TomlDocument,
    Format.YAML: YamlDocument,
}

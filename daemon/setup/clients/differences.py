"""What changes in a client's file, as a unified diff without the secrets that stand there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.config.model import Server
from daemon.config.redaction import names_credential, secrets_of
from daemon.documents.files import unified_diff
from daemon.documents.formats import Format, read_document
from daemon.errors import ConfigError
from daemon.safety.escape import visible
from daemon.safety.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTEXT = 2
"""Lines around a change: enough to see whose entry it is; more would show what has not changed."""

_GIVEN = ("env", "environment", "envs", "headers", "http_headers")
"""Members of a server's entry that have values by name, in any client."""


def difference(path: Path, before: str | None, after: str | None, form: Format) -> str:
    """The lines that change, with control characters made visible; empty if none do.

    Args:
        path: the file.
        before: what it holds; None if there is none.
        after: what it is to hold; None if there is to be none.
        form: its format.
    """
    redact = Redactor(secret for text in (before, after) if text for secret in _secrets(_value(text, form)))
    shown = unified_diff(path, before, after, context=CONTEXT)
    return visible(redact(shown, len(shown)), lines=True)


def _value(text: str, form: Format) -> object:
    try:
        return read_document(text, form, source="").value()
    except ConfigError:
        return None


def _secrets(value: object) -> Iterator[str]:
    """The values that must not be shown: of servers, and of whatever else has a telling name."""
    if isinstance(value, dict):
        yield from secrets_of(_as_server(value))[0]
        for name, item in value.items():
            # Codex names variables that hold tokens.
            if isinstance(item, str) and names_credential(str(name)) and not name.endswith("_env_var"):
                yield item
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield from _secrets(item)


def _as_server(entry: dict[str, Any]) -> Server:
    """Any object as if it were a server's entry, with what such an entry is given."""
    words = [entry.get("command"), entry.get("cmd"), *_items(entry.get("command")), *_items(entry.get("args"))]
    urls = [entry.get(name) for name in ("url", "httpUrl", "serverUrl", "uri")]
    given = {str(name): str(item) for key in _GIVEN for name, item in _members(entry.get(key))}
    return Server(
        name="",
        args=tuple(word for word in [*words, *urls] if isinstance(word, str)),
        headers=given,
        env=given,
    )


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _members(value: object) -> list[tuple[object, object]]:
    return list(value.items()) if isinstance(value, dict) else []

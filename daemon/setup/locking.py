"""Writes `mcpd.lock`: sorted JSON, a line for each definition, with unknown members kept (docs/trust.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.catalog.forms import form_of
from daemon.config.lock_file import MEMBERS, VERSION
from daemon.documents.files import DocumentError, look, replace

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.model import Definition

INLINE = 4
"""Depth from which a value stands on one line: that of a definition."""

SAYS = 80
"""Most characters of a description in a line."""

_STEADY = re.compile(r"[^\d,;:|\[\](){}<>\n]*")
"""The beginning of a text before a number or a list, which may vary."""

Content = dict[str, Any]


def empty() -> Content:
    """The content of a new lock."""
    return {"lockfileVersion": VERSION, "servers": {}}


def approve(content: Content, server: str, identity: str, definitions: Iterable[Definition]) -> None:
    """Add definitions to a server's lines, or replace their forms; another identity starts from nothing."""
    servers = content.setdefault("servers", {})
    if servers.get(server, {}).get("identity") != identity:
        servers[server] = {"identity": identity}
    for each in definitions:
        lines = servers[server].setdefault(MEMBERS[each.kind], {})
        lines[each.name] = {**lines.get(each.name, {}), **line_of(each)}


def line_of(definition: Definition) -> Content:
    """The line of a definition."""
    form = form_of(definition.kind, definition.raw)
    description = msgspec.json.decode(definition.raw).get("description")
    found = _STEADY.match(description) if isinstance(description, str) else None
    says = " ".join(found[0].split())[:SAYS].rstrip() if found else ""
    return {"hash": form.digest, "parts": dict(form.parts), "says": says}


def written(content: Mapping[str, Any]) -> str:
    """The text of a lock: the same for the same content."""
    return "\n".join(_lines(content, 0)) + "\n"


def _lines(value: Any, depth: int) -> Iterable[str]:
    if not isinstance(value, dict) or not value or depth >= INLINE:
        yield json.dumps(value, ensure_ascii=True, sort_keys=True)
        return
    yield "{"
    last = max(value)
    for key in sorted(value):
        first, *rest = _lines(value[key], depth + 1)
        indent = "  " * (depth + 1)
        lines = [f"{indent}{json.dumps(key)}: {first}", *rest]
        lines[-1] += "" if key == last else ","
        yield from lines
    yield f"{'  ' * depth}}}"


def changed(path: Path, change: Callable[[Content], None]) -> None:
    """Change the content of a lock, or of a new one. Raises DocumentError."""
    found = look(path)
    try:
        content: Content = empty() if found.content is None else json.loads(found.content)
        change(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise DocumentError(f"{path} cannot be read: {error}") from None
    text = written(content).encode()
    if text != found.content:
        replace(found, text)

"""Arguments of a tool that HTTP headers repeat, so that a proxy can route by them.

A schema marks them with `x-mcp-header` (MCP 2026-07-28, Streamable HTTP, "Custom headers").
"""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import Raw

    Marks = Mapping[tuple[str, ...], str]
    """The suffix of its header by the path of each marked argument."""

MARK = "x-mcp-header"
"""The annotation of an argument that is repeated in the header `Mcp-Param-<value>`."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=\Z)(?! )[\x20-\x7e]*(?<! )")


def marks_in(schema: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each marked argument and the suffix of its header.

    Only arguments reached through `properties` alone can be marked. The server ignores all headers of a tool
    that has a mark elsewhere, or an invalid one, so sending the valid ones does no harm.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, argument in properties.items() if isinstance(properties, dict) else ():
        mark = argument.get(MARK) if isinstance(argument, dict) else None
        if isinstance(mark, str) and _TOKEN.fullmatch(mark):
            yield (*path, name), mark
        yield from marks_in(argument, (*path, name))


def marked_headers(marks: Marks, arguments: Raw) -> dict[str, str]:
    """The headers that repeat marked arguments, by name; an argument without a value has none."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    headers = {}
    for path, suffix in marks.items():
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            # A number of thousands of digits cannot be converted (`sys.int_info`) and gets no header.
            with suppress(ValueError):
                headers[f"mcp-param-{suffix}"] = encoded(str(value))
    return headers


def encoded(value: str) -> str:
    """Encode a header's value: visible ASCII as it is, the rest as base64 in the specification's brackets."""
    return value if _PLAIN.fullmatch(value) else f"=?base64?{b64encode(value.encode()).decode()}?="

"""New JSON, written as the file is that it goes into."""

from __future__ import annotations

import json

import attrs

WIDTH = 80
"""Columns up to which a list of plain values stands on one line, as people write arguments."""


@attrs.frozen(kw_only=True)
class JsonWriting:
    """How a file is laid out."""

    unit: str
    """One step of indentation."""
    line_end: str

    def member(self, key: str | int, value: object, indent: str | None, *, tight: bool = False) -> str:
        """A member of an object or, where the key is an index, an item of a list; see `value`."""
        written = self.value(value, indent, tight=tight)
        colon = ":" if tight else ": "
        return written if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}{colon}{written}"

    def value(self, value: object, indent: str | None, *, tight: bool = False) -> str:
        """A value.

        Args:
            value: any.
            indent: the blanks that its first line begins with; None to write it on one line.
            tight: whether there are no blanks in it.
        """
        flat = json.dumps(value, ensure_ascii=False, separators=(",", ":") if tight else (", ", ": "))
        if indent is None or not isinstance(value, dict | list) or not value:
            return flat
        within = indent + self.unit
        if isinstance(value, list):
            if not any(isinstance(item, dict | list) for item in value) and len(within) + len(flat) <= WIDTH:
                return flat
            items, (first, last) = [self.value(item, within) for item in value], "[]"
        else:
            items, (first, last) = [self.member(key, item, within) for key, item in value.items()], "{}"
        lines = f",{self.line_end}{within}".join(items)
        return f"{first}{self.line_end}{within}{lines}{self.line_end}{indent}{last}"

"""New YAML, written as the file is that it goes into."""

from __future__ import annotations

import io
import re

import attrs
from ruamel.yaml import YAML

_ONE_LINE = 1 << 30
"""The width at which lines are broken: none is."""

_NESTED = re.compile(r"^[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n( +)[^\s#-]", re.MULTILINE)
_LISTED = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n( *)- ", re.MULTILINE)


@attrs.frozen(kw_only=True)
class YamlWriting:
    """How a file is laid out."""

    unit: int
    """Columns of one step of indentation."""
    offset: int
    """Columns by which the items of a list stand to the right of its key."""
    line_end: str

    def lines(self, key: str | int, value: object, column: int) -> str:
        """A member or, where the key is an index, an item; the first line begins where it stands.

        Args:
            key: a key, or an index.
            value: any.
            column: where the lines after the first begin.
        """
        written = self._dumped(key, value, flow=False, offset=self.offset if isinstance(key, str) else 0)
        return written.rstrip("\n").replace("\n", self.line_end + " " * column)

    def flow(self, key: str | int, value: object) -> str:
        """The same within braces or brackets, on one line."""
        return self._dumped(key, value, flow=True, offset=0).strip()[1:-1]

    def _dumped(self, key: str | int, value: object, *, flow: bool, offset: int) -> str:
        writer = YAML(pure=True)
        writer.width, writer.default_flow_style = _ONE_LINE, flow
        writer.indent(mapping=self.unit, sequence=offset + 2, offset=offset)
        out = io.StringIO()
        writer.dump([value] if isinstance(key, int) else {key: value}, out)
        return out.getvalue()


def writing_of(text: str, line_end: str) -> YamlWriting:
    """How a text is laid out, by the first nested mapping and the first list in it."""
    nested, listed = _NESTED.search(text), _LISTED.search(text)
    return YamlWriting(
        unit=len(nested[1]) if nested else 2,
        offset=max(0, len(listed[2]) - len(listed[1])) if listed else 2,
        line_end=line_end,
    )

"""JSON with comments and trailing commas, changed member by member.

Comments are blanked out as they are for reading (`config.jsonc`), so that positions are those of the file. A
member owns the comment behind it on its line and the lines of comments directly above it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import attrs

from daemon.config.jsonc import blank, decode
from daemon.documents.edited import EditedText, leading

if TYPE_CHECKING:
    from daemon.documents.edited import Trail

WIDTH = 80
"""Columns up to which a list of plain values stands on one line, as people write arguments."""

_BETWEEN = re.compile(r"(?P<line>\r?\n)|(?P<comment>//[^\n]*?(?=\r?\n|\Z)|/\*.*?\*/)|(?P<comma>,)|.", re.DOTALL)
_SPACE = re.compile(r"\s*")
# Numbers as their texts: only where they end matters, and int() has a limit of its own.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


class _Token(NamedTuple):
    """What stands between two members."""

    kind: str | None
    start: int
    end: int


class _Member(NamedTuple):
    """Where a member of an object, or an item of a list, stands."""

    key: str | int
    start: int
    value: int
    end: int


@attrs.frozen
class _Holder:
    """Where an object or a list stands."""

    opening: int
    closing: int
    """The position of its last bracket."""
    members: list[_Member]


class JsonDocument(EditedText):
    """A JSON document, with comments and trailing commas where they stand there."""

    def decode(self, text: str) -> object:
        """See the base class; an empty text is an empty object."""
        return decode(text, source=self.source)[0] if re.search(r"\S", text) else {}

    def with_new(self, trail: Trail, value: object) -> str:
        """See the base class."""
        if not self.body.strip():
            return self._written({str(trail[0]): value}, "") + self.line_end
        if self._is_null(trail[:-1]):
            return self.with_other(trail[:-1], {trail[-1]: value})
        holder = self._holder(trail[:-1])
        if not holder.members:
            return self._first(holder, trail, value)
        last = holder.members[-1]
        behind = self._between(last.end, holder.closing)
        comma = next((token.end for token in behind if token.kind == "comma"), None)
        place = self._end_of_line(comma or last.end, holder.closing)
        if (
            self._stands_on_a_line(holder, -1)
            or self.body[:place].endswith("\n")
            or "//" in self._spelt(behind)
        ):
            indent = leading(self.body, last.start)
            text = f"{self.line_end}{indent}{self._labelled(trail[-1], value, indent)}"
            if comma is not None:
                return _spliced(self.body, (place, place, f"{text},"))
            return _spliced(self.body, (last.end, last.end, ","), (place, place, text))
        space = self._space_before(holder)
        text = space + self._labelled(trail[-1], value, None, tight=not space)
        # Behind the comma that is there, else behind comments, which belong to the member before.
        return _spliced(self.body, (comma, comma, f"{text},") if comma else (place, place, f",{text}"))

    def with_other(self, trail: Trail, value: object) -> str:
        """See the base class."""
        start, end = self._span(trail)
        old = self.body[start:end]
        before = self.body[self.body.rfind("\n", 0, start) + 1 : start]
        alone = not before.strip() or re.fullmatch(r'\s*"(?:[^"\\]|\\.)*"\s*:\s*', before) is not None
        on_lines = "\n" in old or (alone and not (old[0] in "{[" and old[1:-1].strip()))
        return _spliced(
            self.body, (start, end, self._written(value, leading(self.body, start) if on_lines else None))
        )

    def without(self, trail: Trail) -> str:
        """See the base class."""
        holder = self._holder(trail[:-1])
        index = self._index(holder, trail)
        members = holder.members
        member, is_last = members[index], index == len(members) - 1
        before = members[index - 1].end if index else holder.opening + 1
        after = holder.closing if is_last else members[index + 1].start
        commas = [
            next((token.start for token in self._between(*gap) if token.kind == "comma"), None)
            for gap in ((before, member.start), (member.end, after))
        ]
        if self._stands_on_a_line(holder, index):
            edits = self._lines_of(before, member, after, commas, is_last=is_last)
        else:
            edits = [self._inline_of(before, member, after, commas, is_last=is_last)]
        left = _spliced(self.body, *edits)
        if len(members) == 1:
            removed = len(self.body) - len(left)
            inner = slice(holder.opening + 1, holder.closing - removed)
            if not left[inner].strip():
                return left[: inner.start] + left[inner.stop :]
        return left

    def _lines_of(
        self, before: int, member: _Member, after: int, commas: list[int | None], *, is_last: bool
    ) -> list[tuple[int, int, str]]:
        """What is cut out with a member that stands on lines of its own."""
        lines: list[list[_Token]] = []
        for token in self._between(self._end_of_line(before, member.start), member.start):
            if token.kind == "line":
                lines.append([])
            if lines:
                lines[-1].append(token)
        # The last line is the member's own; what stands above it is its own as long as it is comments.
        first = len(lines) - 1
        while first and any(token.kind == "comment" for token in lines[first - 1]):
            first -= 1
        while is_last and first and all(token.kind in {None, "line"} for token in lines[first - 1]):
            first -= 1
        start, end = lines[first][0].start, self._end_of_line(member.end, after)
        inside = [comma for comma in commas if comma is not None and start <= comma < end]
        others = [comma for comma in commas if comma is not None and comma not in inside]
        edits = [(start, end, "," if len(inside) > 1 else "")]
        if not inside and others:
            edits.append((others[-1], others[-1] + 1, ""))
        return sorted(edits)

    def _inline_of(
        self, before: int, member: _Member, after: int, commas: list[int | None], *, is_last: bool
    ) -> tuple[int, int, str]:
        """What is cut out with a member that shares its line with what stands before it."""
        in_front, behind = commas
        if not is_last:
            assert behind is not None
            rest = self._end_of_line(behind + 1, after)
            ended = rest if re.match(r"[^\S\n]*\n", self.body[rest:]) else behind + 1
            return member.start, _SPACE.match(self.body, ended).end(), ""  # type: ignore[union-attr]
        if in_front is not None:
            return (
                (in_front, self._end_of_line(member.end, after), "")
                if behind is None
                else (in_front + 1, behind + 1, "")
            )
        comments = [token.end for token in self._between(before, member.start) if token.kind == "comment"]
        return comments[-1] if comments else before, self._end_of_line(member.end, after), ""

    def _first(self, holder: _Holder, trail: Trail, value: object) -> str:
        """The text with the first member of an empty object."""
        inner, behind = holder.opening + 1, self._between(holder.opening + 1, holder.closing)
        base = leading(self.body, holder.opening)
        indent = base + self._unit()
        commented = any(token.kind == "comment" for token in behind)
        if commented and any(token.kind == "line" for token in behind):
            place = self._end_of_line(inner, holder.closing)
            text = f"{self.line_end}{indent}{self._labelled(trail[-1], value, indent)}"
            return _spliced(self.body, (place, place, text))
        if commented:
            place = self._end_of_line(inner, holder.closing)
            return _spliced(self.body, (place, place, f" {self._labelled(trail[-1], value, None)}"))
        if len(trail) > 1 and not (isinstance(value, dict) and value):
            return _spliced(self.body, (inner, holder.closing, self._labelled(trail[-1], value, None)))
        text = f"{self.line_end}{indent}{self._labelled(trail[-1], value, indent)}{self.line_end}{base}"
        return _spliced(self.body, (inner, holder.closing, text))

    # --- where things stand

    def _holder(self, trail: Trail) -> _Holder:
        blanked = blank(self.body)
        start = _after_space(blanked, 0)
        holder = _members(blanked, start)
        for place, _ in enumerate(trail):
            index = self._index(holder, trail[: place + 1])
            holder = _members(blanked, holder.members[index].value)
        return holder

    def _index(self, holder: _Holder, trail: Trail) -> int:
        found = [index for index, member in enumerate(holder.members) if member.key == trail[-1]]
        if len(found) > 1:
            raise self.refusal(trail, "the key stands there twice: keep one of them")
        return found[0]

    def _span(self, trail: Trail) -> tuple[int, int]:
        if not trail:
            blanked = blank(self.body)
            start = _after_space(blanked, 0)
            return start, _DECODER.raw_decode(blanked, start)[1]
        holder = self._holder(trail[:-1])
        member = holder.members[self._index(holder, trail)]
        return member.value, member.end

    def _is_null(self, trail: Trail) -> bool:
        start, end = self._span(trail)
        return self.body[start:end] == "null"

    def _between(self, start: int, end: int) -> list[_Token]:
        return [_Token(each.lastgroup, *each.span()) for each in _BETWEEN.finditer(self.body, start, end)]

    def _spelt(self, tokens: list[_Token]) -> str:
        return "".join(self.body[token.start : token.end][:2] for token in tokens if token.kind == "comment")

    def _end_of_line(self, start: int, end: int) -> int:
        """The end of the last comma or comment on the line of `start`; `start` itself without any."""
        for token in self._between(start, end):
            if token.kind == "line":
                break
            if token.kind in {"comma", "comment"}:
                start = token.end
        return start

    def _stands_on_a_line(self, holder: _Holder, index: int) -> bool:
        index %= len(holder.members)
        before = holder.members[index - 1].end if index else holder.opening + 1
        return any(token.kind == "line" for token in self._between(before, holder.members[index].start))

    def _space_before(self, holder: _Holder) -> str:
        """The space between members that share a line."""
        last = holder.members[-1]
        if len(holder.members) > 1:
            gap = self.body[holder.members[-2].end : last.start]
            if re.fullmatch(r",[ \t]*", gap):
                return gap[1:]
        return " " if isinstance(last.key, int) or self.body[last.value - 1] == " " else ""

    # --- how new things are written

    def _unit(self) -> str:
        """One step of indentation, as the file has it."""
        found = re.search(r"^([ \t]+)\S", blank(self.body), re.MULTILINE)
        return found[1] if found else "  "

    def _labelled(self, key: str | int, value: object, indent: str | None, *, tight: bool = False) -> str:
        written = self._written(value, indent, tight=tight)
        colon = ":" if tight else ": "
        return written if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}{colon}{written}"

    def _written(self, value: object, indent: str | None, *, tight: bool = False) -> str:
        """A value; on several lines if `indent`, that of its first line, is given."""
        separators = (",", ":") if tight else (", ", ": ")
        flat = json.dumps(value, ensure_ascii=False, separators=separators)
        if indent is None or not isinstance(value, dict | list) or not value:
            return flat
        within = indent + self._unit()
        if isinstance(value, list):
            if not any(isinstance(item, dict | list) for item in value) and len(within) + len(flat) <= WIDTH:
                return flat
            items, (first, last) = [self._written(item, within) for item in value], "[]"
        else:
            items, (first, last) = [self._labelled(key, item, within) for key, item in value.items()], "{}"
        lines = f",{self.line_end}{within}".join(items)
        return f"{first}{self.line_end}{within}{lines}{self.line_end}{indent}{last}"


def _members(blanked: str, opening: int) -> _Holder:
    """What an object or a list holds, in a text whose comments are blanks."""
    members: list[_Member] = []
    at = _after_space(blanked, opening + 1)
    while blanked[at] not in "}]":
        start, key = at, len(members) if blanked[opening] == "[" else None
        if key is None:
            key, at = _DECODER.raw_decode(blanked, at)
            at = _after_space(blanked, _after_space(blanked, at) + 1)
        _, end = _DECODER.raw_decode(blanked, at)
        members.append(_Member(key, start, at, end))
        at = _after_space(blanked, end)
        if blanked[at] == ",":
            at = _after_space(blanked, at + 1)
    return _Holder(opening, at, members)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _spliced(text: str, *edits: tuple[int, int, str]) -> str:
    """A text with spans replaced, which stand in order and do not overlap."""
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text

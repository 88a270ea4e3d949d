"""JSON with comments and trailing commas."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from daemon.config.jsonc import JsonHolder, JsonMember, after_space, blank, decode, end_of_value, members_of
from daemon.documents.edited import EditedText, Trail, leading, restoring, value_at, with_value

WIDTH = 80
"""Most columns of a list of plain values on one line, as people write arguments."""


class JsonWriting(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a file."""

    unit: str
    line_end: str

    def member(self, key: str | int, value: object, indent: str | None, *, tight: bool = False) -> str:
        """A member, or an item if the key is an index; for the other arguments see `value`."""
        written = self.value(value, indent, tight=tight)
        colon = ":" if tight else ": "
        return written if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}{colon}{written}"

    def value(self, value: object, indent: str | None, *, tight: bool = False) -> str:
        """Write a value; `indent`: blanks of its first line, None for one line; `tight`: no blanks."""
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


_BETWEEN = re.compile(r"(?P<line>\r?\n)|(?P<comment>//[^\n]*?(?=\r?\n|\Z)|/\*.*?\*/)|(?P<comma>,)|.", re.DOTALL)
_LINE_ENDS = re.compile(r"[^\S\n]*(?:\n|\Z)")


class _Token(NamedTuple):
    kind: str | None
    start: int
    end: int


class _Gap(msgspec.Struct, frozen=True, kw_only=True):
    before: list[_Token]
    behind: list[_Token]
    start: int
    after: int
    comma_before: int | None
    comma_after: int | None

    @property
    def inner(self) -> int:
        return self.start if self.comma_before is None else self.comma_before + 1

    @property
    def is_on_a_line(self) -> bool:
        return any(token.kind == "line" for token in self.before if token.start >= self.inner)

    @property
    def comma_is_first(self) -> bool:
        return any(token.kind == "line" for token in self.before if token.start < self.inner)


class JsonDocument(EditedText):
    """A JSON document; an empty text is an empty object."""

    _blanks = "", ""

    def decode(self, text: str) -> object:
        """See the base class; an empty text is an empty object."""
        return decode(text, source=self.source)[0] if re.search(r"\S", text) else {}

    def with_new(self, trail: Trail, value: object) -> str:
        """See the base class."""
        if not self.body.strip():
            return self._writing.value({str(trail[0]): value}, "") + self.line_end
        if value_at(self.value(), trail[:-1]) is None:
            return self.with_other(trail[:-1], {trail[-1]: value})
        holder = self._holder(trail[:-1])
        if not holder.members:
            return self._first(holder, trail, value)
        last, gap = holder.members[-1], _gap(self.body, holder, -1)
        comma = None if gap.comma_after is None else gap.comma_after + 1
        place = _end_of_line(self.body, comma or last.end, holder.closing)
        ends_line = any(
            self.body.startswith("//", token.start) for token in gap.behind if token.kind == "comment"
        )
        if gap.is_on_a_line or ends_line:
            indent = leading(self.body, last.start)
            text = f"{self.line_end}{indent}{self._writing.member(trail[-1], value, indent)}"
            if comma is not None:
                return _spliced(self.body, (place, place, f"{text},"))
            return _spliced(self.body, (last.end, last.end, ","), (place, place, text))
        space = _space_before(self.body, holder)
        text = space + self._writing.member(trail[-1], value, None, tight=not space)
        # Behind the comma that is there, else behind comments, which belong to the member before.
        return _spliced(self.body, (comma, comma, f"{text},") if comma else (place, place, f",{text}"))

    def with_other(self, trail: Trail, value: object) -> str:
        """See the base class."""
        if trail:
            holder = self._holder(trail[:-1])
            _, _, start, end = holder.members[self._index(holder, trail)]
        else:
            start = after_space(self._blanked, 0)
            end = end_of_value(self._blanked, start)
        old = self.body[start:end]
        before = self.body[self.body.rfind("\n", 0, start) + 1 : start]
        alone = not before.strip() or re.fullmatch(r'\s*"(?:[^"\\]|\\.)*"\s*:\s*', before) is not None
        on_lines = "\n" in old or (alone and not (old[0] in "{[" and old[1:-1].strip()))
        return _spliced(
            self.body, (start, end, self._writing.value(value, leading(self.body, start) if on_lines else None))
        )

    def without(self, trail: Trail) -> str:
        """See the base class."""
        holder = self._holder(trail[:-1])
        index = self._index(holder, trail)
        members = holder.members
        gap, last = _gap(self.body, holder, index), index == len(members) - 1
        if gap.is_on_a_line and (last or any(token.kind == "line" for token in gap.behind)):
            edits = _lines_of(self.body, members[index], gap, is_last=last)
        else:
            edits = [_inline_of(self.body, members[index], gap, is_last=last)]
        left = _spliced(self.body, *[_still_apart(self.body, gap, *edit, self.line_end) for edit in edits])
        if len(members) == 1:
            inner = slice(holder.opening + 1, holder.closing - (len(self.body) - len(left)))
            if not left[inner].strip():
                return left[: inner.start] + left[inner.stop :]
        return left

    def rename(self, trail: Trail, key: str) -> None:
        """See the base class."""
        members: Any = value_at(self.value(), trail[:-1])
        named = {key if each == trail[-1] else each: members[each] for each in members}
        holder, wanted = self._holder(trail[:-1]), with_value(self, trail[:-1], named)
        start = holder.members[self._index(holder, trail)].start
        end = end_of_value(self.body, start)
        with restoring(self):
            self.body = _spliced(self.body, (start, end, json.dumps(key, ensure_ascii=False)))
            if key in members:
                raise self.refusal(trail, f"'{key}' exists, too: remove one of them")
            self._verify(trail, wanted)

    def _first(self, holder: JsonHolder, trail: Trail, value: object) -> str:
        inner, behind = holder.opening + 1, _between(self.body, holder.opening + 1, holder.closing)
        base = leading(self.body, holder.opening)
        indent = base + self._writing.unit
        commented = any(token.kind == "comment" for token in behind)
        if commented and any(token.kind == "line" for token in behind):
            place = _end_of_line(self.body, inner, holder.closing)
            text = f"{self.line_end}{indent}{self._writing.member(trail[-1], value, indent)}"
            return _spliced(self.body, (place, place, text))
        if commented:
            place = _end_of_line(self.body, inner, holder.closing)
            return _spliced(self.body, (place, place, f" {self._writing.member(trail[-1], value, None)}"))
        if len(trail) > 1 and not (isinstance(value, dict) and value):
            return _spliced(self.body, (inner, holder.closing, self._writing.member(trail[-1], value, None)))
        text = f"{self.line_end}{indent}{self._writing.member(trail[-1], value, indent)}{self.line_end}{base}"
        return _spliced(self.body, (inner, holder.closing, text))

    @property
    def _blanked(self) -> str:
        if self._blanks[0] is not self.body:
            self._blanks = self.body, blank(self.body)
        return self._blanks[1]

    @property
    def _writing(self) -> JsonWriting:
        found = re.search(r"^([ \t]+)\S", self._blanked, re.MULTILINE)
        return JsonWriting(unit=found[1] if found else "  ", line_end=self.line_end)

    # --- where things stand

    def _holder(self, trail: Trail) -> JsonHolder:
        blanked = self._blanked
        start = after_space(blanked, 0)
        holder = members_of(blanked, start)
        for place, _ in enumerate(trail):
            index = self._index(holder, trail[: place + 1])
            holder = members_of(blanked, holder.members[index].value)
        return holder

    def _index(self, holder: JsonHolder, trail: Trail) -> int:
        found = [index for index, member in enumerate(holder.members) if member.key == trail[-1]]
        if len(found) > 1:
            raise self.refusal(trail, "the file has this key twice: remove one of them")
        if not found:
            # It was read with a sign in place of what is no character.
            raise self.refusal(trail, "its key contains half a character: edit it by hand")
        return found[0]


def _still_apart(body: str, gap: _Gap, start: int, end: int, line_end: str) -> tuple[int, int, str]:
    """Keep the line end in a cut if a comment would otherwise swallow the rest."""
    line = [token for token in gap.before if token.end <= start]
    open_comment = bool(line) and next(
        (body.startswith("//", token.start) for token in reversed(line) if token.kind in {"comment", "line"}),
        False,
    )
    ends = _LINE_ENDS.match(body, end) is not None
    return start, end, line_end if open_comment and not ends else ""


def _lines_of(body: str, member: JsonMember, gap: _Gap, *, is_last: bool) -> list[tuple[int, int]]:
    lines: list[list[_Token]] = []
    for token in _between(body, _end_of_line(body, gap.inner, member.start), member.start):
        if token.kind == "line":
            lines.append([])
        lines[-1:] = [[*line, token] for line in lines[-1:]]
    # The last line is the member's; what stands above it is its own as long as it is comments.
    first = len(lines) - 1
    while first and any(token.kind == "comment" for token in lines[first - 1]):
        first -= 1
    while is_last and first and all(token.kind != "comment" for token in lines[first - 1]):
        first -= 1
    start, end = lines[first][0].start, _end_of_line(body, member.end, gap.after)
    spare = gap.comma_after if gap.comma_after is not None else gap.comma_before
    if spare is None or start <= spare < end:
        return [(start, end)]
    return sorted([(start, end), (spare, spare + 1)])


def _inline_of(body: str, member: JsonMember, gap: _Gap, *, is_last: bool) -> tuple[int, int]:
    in_front, behind = gap.comma_before, gap.comma_after
    if not is_last:
        assert behind is not None
        rest = _end_of_line(body, behind + 1, gap.after)
        ended = rest if _LINE_ENDS.match(body, rest, gap.after) else behind + 1
        return member.start, after_space(body, ended)
    if in_front is None:
        comments = [token.end for token in gap.before if token.kind == "comment"]
        end = _end_of_line(body, member.end if behind is None else behind + 1, gap.after)
        return comments[-1] if comments else gap.inner, end
    if behind is not None:
        return in_front + 1, behind + 1
    end = _end_of_line(body, member.end, gap.after)
    return len(body[:in_front].rstrip()) if gap.comma_is_first else in_front, end


def _gap(body: str, holder: JsonHolder, index: int) -> _Gap:
    members, member = holder.members, holder.members[index]
    index %= len(members)
    start = members[index - 1].end if index else holder.opening + 1
    after = members[index + 1].start if index + 1 < len(members) else holder.closing
    before, behind = _between(body, start, member.start), _between(body, member.end, after)
    commas = [
        next((token.start for token in tokens if token.kind == "comma"), None) for tokens in (before, behind)
    ]
    return _Gap(
        before=before, behind=behind, start=start, after=after, comma_before=commas[0], comma_after=commas[1]
    )


def _space_before(body: str, holder: JsonHolder) -> str:
    last = holder.members[-1]
    if len(holder.members) > 1:
        gap = body[holder.members[-2].end : last.start]
        if re.fullmatch(r",[ \t]*", gap):
            return gap[1:]
    return " " if isinstance(last.key, int) or body[last.value - 1] == " " else ""


def _between(text: str, start: int, end: int) -> list[_Token]:
    return [_Token(each.lastgroup, *each.span()) for each in _BETWEEN.finditer(text, start, end)]


def _end_of_line(text: str, start: int, end: int) -> int:
    for token in _between(text, start, end):
        if token.kind == "line":
            break
        if token.kind in {"comma", "comment"}:
            start = token.end
    return start


def _spliced(text: str, *edits: tuple[int, int, str]) -> str:
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text

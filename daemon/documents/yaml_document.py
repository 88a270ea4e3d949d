"""Edits YAML member by member: ruamel.yaml finds positions and writes new members."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from daemon.documents.edited import TOO_DEEP, EditedText, Trail, is_too_deep
from daemon.documents.files import DocumentError

_ONE_LINE = 1 << 30

_NESTED = re.compile(r"^[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n( +)[^\s#-]", re.MULTILINE)
_LISTED = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n( *)- ", re.MULTILINE)


class YamlWriting(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a file."""

    unit: int
    """Columns of one level of indentation."""
    offset: int
    """Columns by which a list's items are indented from its key."""
    line_end: str

    def lines(self, key: str | int, value: object, column: int) -> str:
        """The lines of a member, or of an item if the key is an index; `column` indents all but the first."""
        written = self._dumped(key, value, flow=False, offset=self.offset if isinstance(key, str) else 0)
        return written.rstrip("\n").replace("\n", self.line_end + " " * column)

    def flow(self, key: str | int, value: object) -> str:
        """A member for use inside braces or brackets, on one line."""
        return self._dumped(key, value, flow=True, offset=0).strip()[1:-1]

    def _dumped(self, key: str | int, value: object, *, flow: bool, offset: int) -> str:
        writer = YAML(pure=True)
        writer.width, writer.default_flow_style = _ONE_LINE, flow
        writer.indent(mapping=self.unit, sequence=offset + 2, offset=offset)
        out = io.StringIO()
        writer.dump([value] if isinstance(key, int) else {key: value}, out)
        return out.getvalue()


def writing_of(text: str, line_end: str) -> YamlWriting:
    """The layout, taken from the text's first nested mapping and first list."""
    nested, listed = _NESTED.search(text), _LISTED.search(text)
    return YamlWriting(
        unit=len(nested[1]) if nested else 2,
        offset=max(0, len(listed[2]) - len(listed[1])) if listed else 2,
        line_end=line_end,
    )


_REST = re.compile(r"[^\n]*?(?=\r?\n|\Z)")
_ABOVE = re.compile(r"[ \t]*#[^\n]*")
_ALIAS = re.compile(r"\s*\*[^\s,\]}]+")
_MERGE = "tag:yaml.org,2002:merge"


MAX_VALUES = 1_000_000
"""Most values, counting repeats by aliases: a few lines of aliases can stand for billions."""

_TOO_MANY = f"more than {MAX_VALUES:,} values, or a value that contains itself"


class _BoundedConstructor(SafeConstructor):
    """Refuses to merge mappings (`<<`) beyond `MAX_VALUES`."""

    merged = 0

    def flatten_mapping(self, node: Any) -> None:
        merges = [value for key, value in node.value if key.tag == _MERGE]
        for mapping in chain.from_iterable(
            each.value if isinstance(each, SequenceNode) else [each] for each in merges
        ):
            if isinstance(mapping, MappingNode):
                self.flatten_mapping(mapping)
                self.merged += len(mapping.value)
            if self.merged > MAX_VALUES:
                raise ConstructorError(problem=_TOO_MANY, problem_mark=node.start_mark)
        super().flatten_mapping(node)


class _Place(NamedTuple):
    key: object
    start: int
    end: int
    colon: int
    """The end of the key's colon; for an item, its start."""
    node: Any


class _Collection(NamedTuple):
    node: Any
    members: list[_Place]


class _Layout:
    def __init__(self, body: str, refusal: Callable[[Trail, str], DocumentError]) -> None:
        self.body = body
        self.root: Any = YAML(pure=True).compose(body)
        self._refusal = refusal

    def holder(self, trail: Trail) -> _Collection | None:
        node = self.member(trail).node if trail else self.root
        return None if isinstance(node, ScalarNode) else self.collection(node)

    def known(self, trail: Trail) -> _Collection:
        found = self.holder(trail)
        assert found is not None
        return found

    def member(self, trail: Trail) -> _Place:
        found = [each for each in self.known(trail[:-1]).members if each.key == trail[-1]]
        if len(found) != 1:
            raise self._refusal(trail, "the value comes from another place in the file: edit it by hand")
        return found[0]

    def collection(self, node: Any) -> _Collection:
        members: list[_Place] = []
        if isinstance(node, MappingNode):
            for key, value in node.value:
                colon = self.body.index(":", key.end_mark.index) + 1
                members.append(_Place(key.value, key.start_mark.index, self._end(value, colon), colon, value))
            return _Collection(node, members)
        for index, value in enumerate(node.value):
            start = value.start_mark.index
            if not node.flow_style:
                start = self.body.rindex("-", 0, start) if self.body[start] != "-" or start else start
            members.append(_Place(index, start, self._end(value, value.start_mark.index), start, value))
        return _Collection(node, members)

    def _end(self, node: Any, after: int) -> int:
        """The end of a value, without the blanks and comments that ruamel includes."""
        start, end = node.start_mark.index, node.end_mark.index
        if (alias := _ALIAS.match(self.body, after)) is not None and start != after:
            return alias.end()
        if isinstance(node, ScalarNode):
            return after if start == end else start + len(self.body[start:end].rstrip())
        if node.flow_style or not node.value:
            return int(end)
        return self.collection(node).members[-1].end


class YamlDocument(EditedText):
    """A YAML document; an empty text is an empty object."""

    def decode(self, text: str) -> object:
        """See the base class; an empty text is an empty object."""
        try:
            reader = YAML(typ="safe", pure=True)
            reader.Constructor = _BoundedConstructor
            value = reader.load(text)
        except YAMLError as error:
            mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
            reason = (error.problem if isinstance(error, MarkedYAMLError) else None) or "it cannot be read"
            # Without what it quotes, which may be a secret.
            reason = re.sub(r"""\"[^"]*"|(?:(?<=alias )|(?<=tag ))'.*'""", "...", reason.partition("\n")[0])
            place = () if mark is None else (mark.line + 1, mark.column + 1)
            raise self._fault(f"this is not YAML: {reason}", *place) from None
        except (ValueError, RecursionError):
            raise self._fault("this is not YAML: a value cannot be read") from None
        try:
            plain = {} if value is None else _unshared(value, iter(range(MAX_VALUES)))
        except (StopIteration, RecursionError):
            raise self._fault(f"{_TOO_MANY}: this is not a configuration") from None
        if is_too_deep(plain):
            raise self._fault(TOO_DEEP)
        return plain

    def with_new(self, trail: Trail, value: object) -> str:
        """See the base class."""
        layout = _Layout(self.body, self.refusal)
        if layout.root is None or isinstance(layout.root, ScalarNode):
            # Nothing but comments, or the `---` that a document begins with.
            joint = self.line_end if self.body and not self.body.endswith("\n") else ""
            return f"{self.body}{joint}{self._writing.lines(trail[-1], value, 0)}{self.line_end}"
        holder = layout.holder(trail[:-1])
        if holder is None or not holder.members:
            return self._first(layout, trail, value)
        last = holder.members[-1]
        if holder.node.flow_style:
            return f"{self.body[: last.end]}, {self._writing.flow(trail[-1], value)}{self.body[last.end :]}"
        place = _rest(self.body, last.end)
        column = holder.node.start_mark.column
        line = " " * column + self._writing.lines(trail[-1], value, column)
        return f"{self.body[:place]}{self.line_end}{line}{self.body[place:]}"

    def with_other(self, trail: Trail, value: object) -> str:
        """See the base class."""
        layout = _Layout(self.body, self.refusal)
        if not trail or layout.root is None:
            raise self.refusal(trail, "mcpd cannot replace the whole document: edit it by hand")
        holder, member = layout.known(trail[:-1]).node, layout.member(trail)
        written = (
            self._writing.flow(trail[-1], value)
            if holder.flow_style
            else self._writing.lines(trail[-1], value, holder.start_mark.column)
        )
        return self.body[: member.start] + written + self.body[member.end :]

    def without(self, trail: Trail) -> str:
        """See the base class."""
        layout = _Layout(self.body, self.refusal)
        holder, member = layout.known(trail[:-1]), layout.member(trail)
        index = holder.members.index(member)
        following = holder.members[index + 1] if index + 1 < len(holder.members) else None
        body = self.body
        if len(holder.members) == 1:
            return self._emptied(layout, holder, trail)
        if holder.node.flow_style:
            if following:
                return body[: member.start] + body[following.start :]
            return body[: holder.members[index - 1].end] + body[member.end :]
        start = body.rfind("\n", 0, member.start) + 1
        if body[start : member.start].strip():
            assert following is not None
            return body[: member.start] + body[following.start :]
        return self._cut(start, member.end)

    def _cut(self, start: int, end: int) -> str:
        """Remove lines, and the comments directly above them."""
        body = self.body
        while start:
            above = body.rfind("\n", 0, start - 1) + 1
            if not _ABOVE.fullmatch(body[above : start - 1].rstrip("\r")):
                break
            start = above
        end = _rest(self.body, end)
        if start:
            start -= 2 if body[start - 2 : start] == "\r\n" else 1
        else:
            end += len(re.compile(r"(?:\r?\n)?").match(body, end)[0])  # type: ignore[index] # it fits everywhere
        return body[:start] + body[end:]

    def _emptied(self, layout: _Layout, holder: _Collection, trail: Trail) -> str:
        node, empty = holder.node, "[]" if isinstance(holder.node, SequenceNode) else "{}"
        if node.flow_style:
            return self.body[: node.start_mark.index] + empty + self.body[node.end_mark.index :]
        (member,) = holder.members
        if len(trail) == 1:
            return self._cut(self.body.rfind("\n", 0, member.start) + 1, member.end)
        before = layout.member(trail[:-1]).colon
        if "\n" not in self.body[before : member.start]:
            return f"{self.body[:before]} {empty}{self.body[member.end :]}"
        left = self._cut(self.body.rfind("\n", 0, member.start) + 1, member.end)
        return f"{left[:before]} {empty}{left[before:]}"

    def _first(self, layout: _Layout, trail: Trail, value: object) -> str:
        body = self.body
        if len(trail) == 1:
            start, end = layout.root.start_mark.index, layout.root.end_mark.index
            return body[:start] + self._writing.lines(trail[0], value, 0) + body[end:]
        outer, member = layout.known(trail[:-2]).node, layout.member(trail[:-1])
        if outer.flow_style or isinstance(outer, SequenceNode):
            written = "{" + self._writing.flow(trail[-1], value) + "}"
            return f"{body[: member.colon]} {written}{body[member.end :]}"
        is_list = isinstance(trail[-1], int)
        column = outer.start_mark.column + (self._writing.offset if is_list else self._writing.unit)
        rest = body[member.end : (place := _rest(self.body, member.end))]
        line = " " * column + self._writing.lines(trail[-1], value, column)
        return f"{body[: member.colon]}{rest}{self.line_end}{line}{body[place:]}"

    @property
    def _writing(self) -> YamlWriting:
        return writing_of(self.body, self.line_end)


def _rest(body: str, at: int) -> int:
    found = _REST.match(body, at)
    return found.end() if found else at


def _unshared(value: object, left: Iterator[int]) -> object:
    """Copy aliased values, so that a change affects one place. StopIteration: more values than `left`."""
    next(left)
    if isinstance(value, dict):
        return {key: _unshared(item, left) for key, item in value.items()}
    return [_unshared(item, left) for item in value] if isinstance(value, list) else value

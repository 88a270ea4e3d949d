"""Edits TOML statement by statement; tomlkit alone would lose comments of the next table."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import msgspec
import tomlkit
from tomlkit.exceptions import TOMLKitError

from daemon.documents.edited import TOO_DEEP, EditedText, Trail, is_too_deep, leading

_TOKEN = re.compile(
    r'''(?P<text>"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')|(?P<comment>\#[^\n]*)'''
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<equals>=)|(?P<end>\n)|.",
    re.DOTALL | re.VERBOSE,
)


_SILENT = frozenset({"blank", "comment"})


class _Statement(msgspec.Struct, frozen=True):
    start: int
    end: int
    """The statement's end, before the end of the line."""
    kind: str
    """`header`, `items` (header of a list of tables), `value`, `comment` or `blank`."""
    table: Trail
    """The table that contains it; for a header, the table that it begins."""
    trail: Trail


class TomlDocument(EditedText):
    """A TOML document."""

    keeps_empty = False

    def decode(self, text: str) -> object:
        """See the base class."""
        try:
            value = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            problem, _, place = str(error).partition(" (at ")
            numbers = [int(number) for number in re.findall(r"\d+", place)]
            # At the end of the file, it names no line.
            line, column = numbers or (text.count("\n") + 1, 1)
            raise self._fault(f"this is not TOML: {problem}", line, column) from None
        except (ValueError, RecursionError) as error:
            # Integers of thousands of digits are not TOMLDecodeError.
            problem = TOO_DEEP if isinstance(error, RecursionError) else "a number cannot be read"
            raise self._fault(f"this is not TOML: {problem}") from None
        if is_too_deep(value):
            raise self._fault(TOO_DEEP)
        return value

    def with_new(self, trail: Trail, value: object) -> str:
        """See the base class."""
        self._refuse_items(trail, value)
        statements = _statements(self.body)
        if (holder := _assignment(statements, trail[:-1])) is not None:
            return self._rewritten(holder, trail, value)
        siblings = [each for each in statements if _starts(each.trail, trail[:-1])]
        if isinstance(value, dict) and (value or not trail[:-1]):
            return self._with_table(statements, siblings, trail, value)
        own = [each for each in statements if each.table == trail[:-1] and each.kind in {"header", "value"}]
        dotted = [each for each in siblings if each.kind == "value" and len(each.table) < len(trail) - 1]
        if not own and not dotted and trail[:-1]:
            return self._with_table(statements, siblings, trail[:-1], {str(trail[-1]): value})
        if not own and not dotted:
            return _assigned(trail, value) + self.line_end + self.body
        last = (own or dotted)[-1]
        line = _assigned(trail[len(last.table) :], value)
        indent = leading(self.body, last.start)
        return self.body[: last.end] + self.line_end + indent + line + self.body[last.end :]

    def with_other(self, trail: Trail, value: object) -> str:
        """See the base class."""
        self._refuse_items(trail, value)
        holder = _assignment(_statements(self.body), trail)
        if holder is not None:
            return self._rewritten(holder, trail, value)
        before, self.body = self.body, self.without(trail)
        try:
            return self.with_new(trail, value)
        finally:
            self.body = before

    def without(self, trail: Trail) -> str:
        """See the base class."""
        self._refuse_items(trail, "")
        statements = _statements(self.body)
        holder = _assignment(statements, trail)
        if holder is not None and holder.trail != trail:
            return self._rewritten(holder, trail)
        body = self.body
        for first, last in reversed(_runs(statements, trail)):
            body = _cut(body, statements, first, last)
        return body

    def _refuse_items(self, trail: Trail, value: object) -> None:
        if any(isinstance(step, int) for step in trail):
            raise self.refusal(trail, "mcpd does not edit items of lists in TOML: edit it by hand")
        if _holds_null(value):
            raise self.refusal(trail, "TOML has no null")

    def _with_table(
        self, statements: list[_Statement], siblings: list[_Statement], trail: Trail, value: dict[str, Any]
    ) -> str:
        whole: dict[str, Any] = value
        for step in reversed(trail):
            whole = {str(step): whole}
        table = tomlkit.dumps(whole).strip("\n").replace("\n", self.line_end)
        if not any(each.kind != "blank" for each in statements):
            return table + self.line_end + self.body
        near = [at for at, each in enumerate(statements) if each in siblings] or [len(statements) - 1]
        place = statements[_end_of_table(statements, near[-1])].end
        return f"{self.body[:place]}{self.line_end * 2}{table}{self.body[place:]}"

    def _rewritten(self, statement: _Statement, trail: Trail, *values: object) -> str:
        """Change one statement with tomlkit; without a value, remove the member."""
        text = self.body[statement.start : statement.end]
        try:
            document: Any = tomlkit.parse(text)
            at: Any = document
            for step in trail[len(statement.table) : -1]:
                at = at[step]
            if not values:
                at.remove(trail[-1])
            else:
                at[trail[-1]] = _inline(values[0])
            changed = tomlkit.dumps(document)
        except TOMLKitError as error:
            raise self.refusal(trail, f"{error}; edit it by hand") from None
        return self.body[: statement.start] + changed + self.body[statement.end :]


def _statements(text: str) -> list[_Statement]:
    found: list[_Statement] = []
    table: Trail = ()
    start = depth = 0
    equals: int | None = None
    end = len(text)
    for token in [*_TOKEN.finditer(text), None]:
        kind = token.lastgroup if token else "end"
        depth += (kind == "open") - (kind == "close")
        if token and kind == "equals" and not depth and equals is None:
            equals = token.start()
        if kind != "end" or depth:
            continue
        end = token.start() if token else len(text)
        line = text[start:end]
        if line.endswith("\r"):
            end -= 1
        kind, table, trail = _understood(line.strip(), table, None if equals is None else text[start:equals])
        if token or line:
            found.append(_Statement(start, end, kind, table, trail))
        start, equals = end + 1 + (end < len(text) and text[end] == "\r"), None
    return found


def _understood(line: str, table: Trail, key: str | None) -> tuple[str, Trail, Trail]:
    if not line or line.startswith("#"):
        return ("comment" if line else "blank"), table, ()
    if key is None or line.startswith("["):
        header = _path(tomllib.loads(line))
        return ("items" if line.startswith("[[") else "header"), header, header
    return "value", table, (*table, *_path(tomllib.loads(f"{key} = {{}}")))


def _path(value: Any) -> Trail:
    trail: list[str] = []
    while value:
        at = value[0] if isinstance(value, list) else value
        if not at:
            break
        (step,) = at
        trail.append(step)
        value = at[step]
    return tuple(trail)


def _starts(trail: Trail, start: Trail) -> bool:
    return trail[: len(start)] == start and bool(trail)


def _assignment(statements: list[_Statement], trail: Trail) -> _Statement | None:
    fits = (each for each in statements if each.kind == "value" and _starts(trail, each.trail))
    return next(fits, None)


def _runs(statements: list[_Statement], trail: Trail) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    in_run = False
    for index, each in enumerate(statements):
        if each.kind in _SILENT:
            continue
        if not _starts(each.trail, trail):
            in_run = False
        elif in_run:
            runs[-1] = runs[-1][0], index
        else:
            runs.append((index, index))
            in_run = True
    return runs


def _end_of_table(statements: list[_Statement], index: int) -> int:
    """The index of a table's last statement, not counting comments directly above the next header."""
    last = after = index
    while (after := after + 1) < len(statements) and statements[after].kind not in {"header", "items"}:
        if statements[after].kind == "value":
            last = after
    while statements[last].kind == "blank" and last:
        last -= 1
    below = last
    while below + 1 < len(statements) and statements[below + 1].kind == "comment":
        below += 1
    is_free = below + 1 == len(statements) or statements[below + 1].kind == "blank"
    return below if is_free else last


def _cut(text: str, statements: list[_Statement], first: int, last: int) -> str:
    """Remove a run of statements with its comments, and the blank line above a table."""
    is_table = statements[first].kind in {"header", "items"}
    if is_table:
        last = _end_of_table(statements, last)
    while first and statements[first - 1].kind == "comment":
        first -= 1
    if is_table and first and statements[first - 1].kind == "blank":
        first -= 1
    if first:
        return text[: statements[first - 1].end] + text[statements[last].end :]
    after = last + 1
    while is_table and after < len(statements) and statements[after].kind == "blank":
        after += 1
    return text[statements[after].start :] if after < len(statements) else ""


def _assigned(trail: Trail, value: object) -> str:
    key = ".".join(tomlkit.key(str(step)).as_string() for step in trail)
    return f"{key} = {tomlkit.item(_inline(value)).as_string()}"


def _inline(value: object) -> Any:
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, item in value.items():
            table[key] = _inline(item)
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        array.extend(_inline(item) for item in value)
        return array
    return value


def _holds_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_null, value.values()))
    return any(map(_holds_null, value)) if isinstance(value, list) else value is None

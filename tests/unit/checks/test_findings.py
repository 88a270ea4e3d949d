"""The table of findings: each row is used, each check names a row, and gives it all that its words ask for."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import pytest

from daemon import checks
from daemon.checks.findings import TABLE, FindingText, Level, found
from daemon.safety.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = [*Path(checks.__path__[0]).glob("*.py")]


def calls() -> Iterator[tuple[set[str], set[str]]]:
    """Of each call of `found`: the rows that it may name, and the data that it gives."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "found":
                yield named(node.args[0]), {str(each.arg) for each in node.keywords}


def named(cause: ast.expr) -> set[str]:
    """The rows that an expression may name: all its texts, but for the condition that chooses among them."""
    if isinstance(cause, ast.IfExp):
        return named(cause.body) | named(cause.orelse)
    if isinstance(cause, ast.JoinedStr):
        return {row for row in TABLE if row.startswith(ast.literal_eval(cause.values[0]))}
    return {ast.literal_eval(cause)}


def asked(row: FindingText) -> set[str]:
    """The names in the words of a row."""
    return {name for text in (row.what, row.why, row.do) for _, name, _, _ in Formatter().parse(text) if name}


def test_every_call_names_a_row_and_every_row_is_named() -> None:
    rows = [each for each, _ in calls()]
    assert set().union(*rows) == TABLE.keys()


@pytest.mark.parametrize("cause", TABLE)
def test_every_row_is_given_what_its_words_ask_for(cause: str) -> None:
    assert all(asked(TABLE[cause]) <= data for rows, data in calls() if cause in rows)


@pytest.mark.parametrize("cause", TABLE)
def test_words_are_not_taken_for_a_secret(cause: str) -> None:
    row = TABLE[cause]
    for text in (row.what, row.why, row.do):
        assert Redactor(())(text) == text
    assert row.what


def test_a_finding_is_told_with_its_data() -> None:
    finding = found("program-not-executable", server="git", path="/bin/x")
    assert (finding.level, finding.what) == (Level.FAULT, "git: /bin/x is not executable.")
    assert (finding.why, finding.do) == ("", "`chmod +x /bin/x`")

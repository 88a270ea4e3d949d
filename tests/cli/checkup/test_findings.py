"""The table of findings: each row is used, each check names a row, and gives it all that its words ask for."""

from __future__ import annotations

import ast
import fnmatch
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import pytest

from daemon import cli
from daemon.cli.checkup.findings import TABLE, FindingText, Level, found
from daemon.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = [*Path(cli.__path__[0], "checkup").glob("*.py"), Path(cli.__path__[0], "doctor.py")]


def calls() -> Iterator[tuple[set[str], set[str]]]:
    """What each call of `found` may name, and the data that it gives: a name is looked up in its function."""
    for source in SOURCES:
        for function in ast.walk(ast.parse(source.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "found":
                    yield named(node.args[0], function), {str(each.arg) for each in node.keywords}


def named(cause: ast.expr, function: ast.FunctionDef) -> set[str]:
    """The rows that an expression may name: those that stand in it or in its function as text."""
    inside = cause if isinstance(cause, ast.Constant | ast.IfExp) else function
    texts = {each.value for each in ast.walk(inside) if isinstance(each, ast.Constant)}
    patterns = {
        "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in each.values)
        for each in ast.walk(inside)
        if isinstance(each, ast.JoinedStr)
    }
    return {
        row for row in TABLE if row in texts or any(fnmatch.fnmatch(row, each) for each in patterns - {"*"})
    }


def asked(row: FindingText) -> set[str]:
    """The names in the words of a row."""
    return {name for text in (row.what, row.why, row.do) for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("cause", TABLE)
def test_every_row_is_found_by_a_check_that_gives_what_its_words_ask_for(cause: str) -> None:
    given = [data for rows, data in calls() if cause in rows]
    by_name = {"socket-": {"path", "users"}, "package-": {"server", "runner"}}
    if not given:
        # Told by a name that another function returns, or a table holds.
        text = "".join(source.read_text() for source in SOURCES)
        assert f'"{cause}"' in text
        given = [data for prefix, data in by_name.items() if cause.startswith(prefix)]
    assert any(asked(TABLE[cause]) <= data for data in given)


def test_every_call_names_a_row() -> None:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "found":
                texts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
                assert {text for text in texts if isinstance(text, str) and "-" in text} <= TABLE.keys()


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

"""Docstrings begin with a subject and avoid some words; `test_documents.py` watches the documents."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "daemon").rglob("*.py"))
QUESTION = re.compile(r"(?:Who|What|Whom|Whose|Where|How)\b")
"""A beginning that asks instead of saying what the thing is for."""

CODE = re.compile("`[^`]*`")

BANNED = re.compile(
    r"\b(?:(?<!there )is none|(?i:"
    r"anew|whoever|told of|beside|of ours|for ever|as \S+ has it|all that|nobody's))\b"
)


def docstrings(source: str) -> list[tuple[int, str]]:
    """Every string that stands alone, of attributes and constants, too, with its line."""
    return [
        (node.lineno, node.value.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def prose(source: str) -> list[tuple[int, str]]:
    """The lines of docstrings and comments with their numbers: names and texts in code are no prose."""
    lines = [
        (start + number, line)
        for start, text in docstrings(source)
        for number, line in enumerate(text.splitlines())
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [*lines, *((each.start[0], each.string) for each in tokens if each.type == tokenize.COMMENT)]


def faults(path: Path, said: list[tuple[int, str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {text[:60]}" for line, text in said if QUESTION.match(text)]


def test_no_docstring_begins_with_a_question_word() -> None:
    found = [fault for path in SOURCES for fault in faults(path, docstrings(path.read_text()))]
    assert not found, "\n".join(found)


def test_the_words_to_avoid_stand_nowhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in SOURCES
        for number, line in prose(path.read_text())
        if (match := BANNED.search(CODE.sub("", line)))
    ]
    assert not found, "\n".join(found)


def test_the_rules_find_what_they_are_for() -> None:
    source = 'X = 1\n"""What becomes of X."""\n\n\ndef f() -> None:\n    """Whose is it."""\n'
    assert [line for line, text in docstrings(source) if QUESTION.match(text)] == [2, 6]
    assert prose('"""all\nthat"""\nbeside = 1  # is none\nx = "beside"\n') == [
        (1, "all"),
        (2, "that"),
        (3, "# is none"),
    ]
    assert not QUESTION.match("Whatever else")
    assert [match[0] for match in BANNED.finditer("made anew, as MCP has it, beside a tool")] == [
        "anew",
        "as MCP has it",
        "beside",
    ]

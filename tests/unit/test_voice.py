"""Docstrings begin with a subject and avoid some words; `test_documents.py` watches the documents."""

import io
import re
import tokenize
from pathlib import Path

from tests.modules import Module, read

ROOT = Path(__file__).resolve().parents[2]
QUESTION = re.compile(r"(?:Who|What|Whom|Whose|Where|How)\b")
"""A beginning that asks instead of saying what the thing is for."""

CODE = re.compile("`[^`]*`")

BANNED = re.compile(
    r"\b(?:(?<!there )is none|(?i:"
    r"anew|whoever|told of|beside|of ours|for ever|as \S+ has it|all that|nobody's))\b"
)


def prose(module: Module) -> list[tuple[int, str]]:
    """The lines of docstrings and comments with their numbers: names and texts in code are no prose."""
    lines = [
        (start + number, line)
        for start, text in module.docstrings
        for number, line in enumerate(text.splitlines())
    ]
    tokens = tokenize.generate_tokens(io.StringIO(module.source).readline)
    return [*lines, *((each.start[0], each.string) for each in tokens if each.type == tokenize.COMMENT)]


def test_no_docstring_begins_with_a_question_word() -> None:
    found = [
        f"{module.name}:{line}: {text[:60]}"
        for module in read(ROOT, "daemon").values()
        for line, text in module.docstrings
        if QUESTION.match(text)
    ]
    assert not found, "\n".join(found)


def test_the_words_to_avoid_stand_nowhere() -> None:
    found = [
        f"{module.name}:{number}: {match[0]}"
        for module in read(ROOT, "daemon").values()
        if BANNED.search(module.source)  # in prose or not, which is asked only then
        for number, line in prose(module)
        if (match := BANNED.search(CODE.sub("", line)))
    ]
    assert not found, "\n".join(found)


def test_the_rules_find_what_they_are_for() -> None:
    source = 'X = 1\n"""What becomes of X."""\n\n\ndef f() -> None:\n    """Whose is it."""\n'
    assert [line for line, text in Module("a", source).docstrings if QUESTION.match(text)] == [2, 6]
    assert prose(Module("a", '"""all\nthat"""\nbeside = 1  # is none\nx = "beside"\n')) == [
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
